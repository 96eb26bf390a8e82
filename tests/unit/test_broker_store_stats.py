"""Totals and rates of what is stored and read."""

import os
import time

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from rocketd.broker.store_stats import StoreStats


class StoreStatsTests(SynchronousTestCase):
    def setUp(self):
        self.zone("UTC")
        self.clock = Clock()
        self.clock.advance(1_795_000_000 // 86_400 * 86_400 + 86_400 - 100)  # 100 s before midnight
        self.put = 0
        self.stats = StoreStats(lambda: int(self.clock.seconds() * 1000), lambda: self.put)

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

    def test_a_span_that_was_not_watched_yet_has_no_rate(self):
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

    def test_a_late_sample_counts_its_time(self):
        self.run_for(10)
        self.clock.advance(9)
        self.run_for(1, put=40)
        self.assertEqual(self.stats.table()["putTps"], f"{40 / 19}  ")

    def test_days(self):
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
