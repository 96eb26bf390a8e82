"""Totals and rates of stored and read messages."""

import os
import time

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from rocketd.broker.stats.put_times import PutTimes
from rocketd.broker.stats.store_stats import StoreStats


class StoreStatsTests(SynchronousTestCase):
    def setUp(self):
        self.zone("UTC")
        self.clock = Clock()
        self.clock.advance(1_795_000_000 // 86_400 * 86_400 + 86_400 - 100)  # 100 s before midnight
        self.put = 0
        self.stats = StoreStats(*[lambda: int(self.clock.seconds() * 1000)] * 2, lambda: self.put)

    def zone(self, name):
        before = os.environ.get("TZ")

        def restore():
            os.environ.pop("TZ", None)
            if before is not None:
                os.environ["TZ"] = before
            time.tzset()

        self.addCleanup(restore)
        os.environ["TZ"] = name
        time.tzset()

    def run_for(self, seconds, *, put=0, found=0, missed=0, transferred=0):
        for _ in range(seconds):
            self.clock.advance(1)
            self.put += put
            self.stats.found += found
            self.stats.missed += missed
            self.stats.transferred += transferred
            self.stats.sample()

    def test_incomplete_span_has_no_rate(self):
        self.assertEqual(self.stats.table()["putTps"], "  ")
        self.run_for(10, put=3)
        self.assertEqual(self.stats.table()["putTps"], "  ")
        self.run_for(1, put=3)
        self.assertEqual(self.stats.table()["putTps"], "3.0  ")
        self.assertEqual(self.stats.table()["getTotalTps"], "0.0 0.0 0.0")

    def test_rates_over_three_spans(self):
        self.run_for(560)
        self.run_for(50, put=12, found=6, missed=3, transferred=24)
        table = self.stats.table()
        self.assertEqual(table["putTps"], "12.0 10.0 1.0")
        self.assertEqual(table["getFoundTps"], "6.0 5.0 0.5")
        self.assertEqual(table["getMissTps"], "3.0 2.5 0.25")
        self.assertEqual(table["getTotalTps"], "9.0 7.5 0.75")
        self.assertEqual(table["getTransferedTps"], "24.0 20.0 2.0")

    def test_late_sample_uses_its_real_interval(self):
        self.run_for(10)
        self.clock.advance(9)
        self.run_for(1, put=40)
        self.assertEqual(self.stats.table()["putTps"], f"{40 / 19}  ")

    def test_totals_of_day_and_before(self):
        self.run_for(99, put=2, transferred=1)
        table = self.stats.table()
        self.assertEqual((table["msgPutTotalTodayMorning"], table["msgPutTotalTodayNow"]), ("0", "198"))
        self.run_for(2, put=2, transferred=1)
        table = self.stats.table()
        self.assertEqual((table["msgPutTotalYesterdayMorning"], table["msgPutTotalTodayMorning"]), ("0", "200"))
        self.assertEqual((table["msgPutTotalTodayNow"], table["msgGetTotalTodayNow"]), ("202", "101"))
        self.clock.advance(86_400)
        self.run_for(1)
        table = self.stats.table()
        self.assertEqual((table["msgPutTotalYesterdayMorning"], table["msgPutTotalTodayMorning"]), ("200", "202"))
        self.assertEqual((table["msgGetTotalYesterdayMorning"], table["msgGetTotalTodayMorning"]), ("100", "101"))


class PutTimesTests(SynchronousTestCase):
    def setUp(self):
        self.clock = Clock()
        self.clock.advance(1_795_000_000)
        self.times = PutTimes(lambda: int(self.clock.seconds() * 1000))

    def end_minute(self):
        self.clock.advance(61)
        self.times.sample()
        return self.times.table()

    def latencies(self, *counts):
        for puts, took_ms in counts:
            self.times.count(puts, took_ms)
        table = self.end_minute()
        return table["putLatency99"], table["putLatency999"]

    def test_put_times_before_end_of_first_minute(self):
        self.times.count(3, 7)
        self.clock.advance(60)
        self.times.sample()
        self.assertEqual(
            self.times.table(),
            {
                "putMessageEntireTimeMax": "7",
                "putMessageDistributeTime": "null",
                "putLatency99": "0.00",
                "putLatency999": "0.00",
            },
        )

    def test_distribution_of_the_last_minute(self):
        for took_ms in (
            0,
            0.9,
            1,
            9,
            10,
            49,
            50,
            99,
            100,
            199,
            200,
            499,
            500,
            999,
            1000,
            1999,
            2000,
            3000,
            4000,
            5000,
            9999,
        ):
            self.times.count(1, took_ms)
        self.times.count(2, 10_000)
        self.assertEqual(
            self.end_minute()["putMessageDistributeTime"],
            "[<=0ms]:2 [0~10ms]:2 [10~50ms]:2 [50~100ms]:2 [100~200ms]:2 [200~500ms]:2 [500ms~1s]:2 [1~2s]:2 [2~3s]:1 "
            "[3~4s]:1 [4~5s]:1 [5~10s]:2 [10s~]:2 ",
        )
        table = self.end_minute()
        self.assertTrue(table["putMessageDistributeTime"].startswith("[<=0ms]:0 "))
        self.assertEqual(table["putMessageEntireTimeMax"], "10000")

    def test_percentiles_are_found_within_their_class(self):
        self.assertEqual(self.latencies((100, 0)), ("0.99", "0.99"))
        self.assertEqual(self.latencies((990, 0), (10, 8)), ("1.00", "7.90"))
        # 20 classes of 1 ms, then 2 ms: 21 and 22 are in one.
        self.assertEqual(self.latencies((900, 0), (100, 21)), ("21.80", "21.98"))
        self.assertEqual(self.latencies((1, 0), (999, 300)), ("299.50", "299.95"))

    def test_percentile_in_open_class_is_its_lower_bound(self):
        self.assertEqual(self.latencies((1, 12_345)), ("0.00", "0.00"))
        self.assertEqual(self.latencies((1000, 60_000)), ("10000.00", "10000.00"))

    def test_halves_are_rounded_up_as_in_java(self):
        # 1.125 and 1.875
        self.assertEqual(self.latencies((600, 0), (8, 2)), ("1.13", "1.88"))


class GetTimesTests(SynchronousTestCase):
    def test_get_time_maximum_is_kept(self):
        stats = StoreStats(lambda: 0, lambda: 0, lambda: 0)
        for took_ms in (3, 12, 5):
            stats.get_took(took_ms)
        self.assertEqual(stats.table()["getMessageEntireTimeMax"], "12")
