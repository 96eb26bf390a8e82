"""The parts of the trace job that need no Spark."""

from twisted.trial.unittest import TestCase

from rocketd.client.trace.records import MessageType, TraceType
from rocketd.spark.errors import OptionError
from rocketd.spark.jobs.trace.follow import Lengths, summed, watermark_after
from rocketd.spark.jobs.trace.job import duration_ms, latency_rows, unreadable
from rocketd.spark.jobs.trace.measures import DELAYED, HALF
from rocketd.spark.jobs.trace.records import END_TRANSACTION, PUB, SUB_AFTER, SUB_BEFORE
from rocketd.spark.jobs.trace.sketch import bucket_of


def bucket(value, messages, *, topic="orders", window=0, skewed=0):
    return {
        "measure": "send",
        "topic": topic,
        "group": "g",
        "window": window,
        "bucket": bucket_of(value),
        "messages": messages,
        "skewed": skewed,
    }


class TraceTests(TestCase):
    def test_words_and_numbers_equal_the_clients(self) -> None:
        self.assertEqual({PUB, SUB_BEFORE, SUB_AFTER, END_TRANSACTION}, set(TraceType))
        self.assertEqual((HALF, DELAYED), (MessageType.TRANSACTION_HALF, MessageType.DELAY))

    def test_percentiles_by_group_and_by_window(self) -> None:
        buckets = [bucket(10, 98), bucket(1000, 2, window=60_000, skewed=1), bucket(5, 1, topic=None)]
        unknown, row = latency_rows(buckets, by_window=False)
        self.assertEqual((row["topic"], row["messages"], row["skewed"], unknown["topic"]), ("orders", 100, 1, None))
        self.assertLessEqual(abs(row["p50"] - 10), 0.1)
        self.assertLessEqual(abs(row["p95"] - 10), 0.1)
        self.assertLessEqual(abs(row["p99"] - 1000), 10)
        windows = latency_rows(buckets, by_window=True)
        self.assertEqual([row["messages"] for row in windows], [1, 98, 2])
        self.assertEqual(windows[2]["window"].timestamp(), 60)

    def test_watermark_never_goes_back(self) -> None:
        lengths = Lengths(window=60, delay=10, grace=0, keep=0)
        self.assertIsNone(watermark_after(None, None, lengths))
        self.assertEqual(watermark_after(None, 135, lengths), 120)
        self.assertEqual(watermark_after(None, 129, lengths), 60)
        self.assertEqual(watermark_after(120, 100, lengths), 120)
        self.assertEqual(watermark_after(120, None, lengths), 120)

    def test_steps_add_up(self) -> None:
        failure = {"what": "send", "topic": "orders", "group": "g", "how": "failed", "messages": 2}
        steps = [
            {
                "watermark": 60 * number,
                "records": {"Pub": 3},
                "late": {"Pub": number},
                "unreadable": number,
                "buckets": [bucket(10, 1)],
                "failures": [failure],
                "never_consumed": [{"topic": "orders", "messages": 2, "ids": [f"A{number}", f"B{number}"]}],
            }
            for number in (1, 2)
        ]
        total = summed(steps, 3)
        self.assertEqual((total["records"], total["late"], total["unreadable"]), ({"Pub": 6}, {"Pub": 3}, 3))
        self.assertEqual((total["watermark"], len(total["buckets"])), (120, 2))
        self.assertEqual(total["failures"], [{**failure, "messages": 4}])
        self.assertEqual(total["never_consumed"], [{"topic": "orders", "messages": 4, "ids": ["A1", "B1", "A2"]}])

    def test_durations(self) -> None:
        self.assertEqual(duration_ms("--window", "1m"), 60_000)
        self.assertRaises(OptionError, duration_ms, "--window", "soon")
        self.assertRaises(OptionError, duration_ms, "--window", "0s")

    def test_unreadable_records_are_reported(self) -> None:
        self.assertEqual(unreadable(0), [])
        self.assertIn("3 trace records", unreadable(3)[0])
