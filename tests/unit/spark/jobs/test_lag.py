"""Lag, rates and the time to the end, computed from samples of queues."""

from twisted.trial.unittest import TestCase

from rocketd.spark.errors import ClusterError, OptionError, SparkError
from rocketd.spark.jobs.lag.job import open_sampler, report_of, take_samples
from rocketd.spark.jobs.lag.sample import broker_time_ms, group_topics
from rocketd.spark.jobs.lag.table import QueueSample, by_queue, lag_of, over_time, together
from rocketd.spark.jobs.running.progress import JobProgressBar
from rocketd.spark.options import ReadOptions
from rocketd.spark.ranges import Queue
from tests.support.stores import write_group_offsets, write_store

QUEUE = Queue("orders", "broker-a", 0)


def sample(seconds, end, committed, *, group="g", queue=QUEUE, start=0, first=None):
    return QueueSample(group, queue, 1_700_000_000_000 + int(seconds * 1000), seconds, start, end, committed, first)


class LagTests(TestCase):
    def test_one_sample_has_no_rates(self) -> None:
        lag = lag_of([sample(0, 100, 40)])
        self.assertEqual((lag.behind, lag.produced, lag.consumed, lag.eta_seconds), (60, None, None, None))

    def test_rates_and_time_to_the_end(self) -> None:
        lag = lag_of([sample(0, 100, 40), sample(5, 130, 70), sample(10, 150, 140)])
        self.assertEqual((lag.behind, lag.produced, lag.consumed), (10, 5.0, 10.0))
        self.assertEqual(lag.eta_seconds, 2.0)

    def test_slower_group_has_no_eta(self) -> None:
        self.assertIsNone(lag_of([sample(0, 100, 40), sample(10, 200, 90)]).eta_seconds)
        self.assertEqual(lag_of([sample(0, 100, 40), sample(10, 200, 200)]).eta_seconds, 0.0)

    def test_group_without_offset_is_behind_by_all_messages(self) -> None:
        self.assertEqual(lag_of([sample(0, 100, None, start=30)]).behind, 70)
        self.assertEqual(lag_of([sample(0, 100, 10, start=30)]).behind, 70)
        self.assertEqual(lag_of([sample(0, 100, 120)]).behind, 0)

    def test_offset_set_back_counts_as_zero_consumption(self) -> None:
        self.assertEqual(lag_of([sample(0, 100, 90), sample(10, 100, 20)]).consumed, 0.0)

    def test_age_is_that_of_the_first_unconsumed_message(self) -> None:
        lag = lag_of([sample(10, 100, 40, first=1_700_000_003_000)])
        self.assertEqual(lag.behind_seconds, 7.0)

    def test_queues_together(self) -> None:
        lag = together(
            [
                lag_of([sample(0, 10, 0), sample(10, 20, 10)]),
                lag_of([sample(0, 0, 0), sample(10, 10, 5, first=1_700_000_008_000)]),
            ]
        )
        self.assertEqual((lag.behind, lag.behind_seconds, lag.produced, lag.consumed), (15, 2.0, 2.0, 1.5))

    def test_over_time(self) -> None:
        other = Queue("orders", "broker-b", 0)
        rows = list(
            over_time(
                [
                    [sample(0, 10, 0), sample(0, 10, 0, queue=other)],
                    [sample(5, 20, 10), sample(5, 20, 10, queue=other)],
                ]
            )
        )
        self.assertEqual([row["behind"] for row in rows], [20, 20])
        self.assertEqual([row["consumed_per_second"] for row in rows], [None, 4.0])

    def test_groups_and_topics(self) -> None:
        table = {"orders@g": {}, "%RETRY%g@g": {}, "orders@h": {}, "odd": {}}
        self.assertEqual(group_topics(table, frozenset(), frozenset({"orders"})), [("g", "orders"), ("h", "orders")])
        self.assertEqual(group_topics(table, frozenset({"g"}), frozenset()), [("g", "%RETRY%g"), ("g", "orders")])

    def test_time_of_broker_is_boot_time_plus_runtime(self) -> None:
        info = {"bootTimestamp": "1700000000123", "runtime": "[ 1 days, 2 hours, 3 minutes, 4 seconds ]"}
        self.assertEqual(broker_time_ms(info), 1700000000123 + (86400 + 7200 + 180 + 4) * 1000)
        self.assertRaises(ClusterError, broker_time_ms, {})

    def test_an_unknown_group_is_an_error(self) -> None:
        error = self.assertRaises(SparkError, report_of, [[]], frozenset({"ghost"}))
        self.assertIn("no broker knows the group ghost", str(error))
        report = report_of([[sample(0, 10, 5)]], frozenset({"g", "ghost"}))
        self.assertEqual((report.status, len(report.problems)), (1, 1))


class StoreLagTests(TestCase):
    def sampler(self, root):
        return open_sampler(ReadOptions.parse({"store": root, "subscribePattern": ".*"}))

    def test_lag_is_read_from_files_of_a_store(self) -> None:
        root = self.mktemp()
        write_store(root, 100)
        write_group_offsets(root, {("orders", "g"): {0: 25, 1: 20, 2: 0}, ("gone", "g"): {0: 3}})
        rounds = take_samples(self.sampler(root), frozenset({"g"}), frozenset(), 2, 0.0, JobProgressBar(quiet=True))
        found = {key[1].queue_id: some[-1] for key, some in by_queue(rounds[1]).items()}
        self.assertEqual({key: one.behind for key, one in found.items()}, {0: 0, 1: 5, 2: 25, 3: 25})
        # All were stored in one group.
        self.assertEqual({one.first_stored_ms for one in found.values()}, {None, 1_700_000_000_000})
        report = report_of(rounds, frozenset({"g"}), queues=True)
        self.assertEqual(report.facts["groups"][0]["behind"], 55)
        self.assertEqual(len(report.facts["queues"]), 4)
        self.assertEqual(report.status, 0)

    def test_a_store_without_offsets(self) -> None:
        root = self.mktemp()
        write_store(root, 10)
        rounds = take_samples(self.sampler(root), frozenset(), frozenset(), 1, 0.0, JobProgressBar(quiet=True))
        self.assertEqual(report_of(rounds, frozenset()).facts["groups"], [])

    def test_wrong_options(self) -> None:
        self.assertRaises(OptionError, ReadOptions.parse, {"store": "x", "namesrv": "y", "subscribePattern": ".*"})
