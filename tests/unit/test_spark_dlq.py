"""Dead letters as rows, and what is remembered of redriving them."""

import argparse

import pyarrow as pa
from twisted.trial.unittest import TestCase

from rocketd.spark.columns import arrow_schema
from rocketd.spark.errors import OptionError
from rocketd.spark.jobs.dlq import dead_letter_options, fixed
from rocketd.spark.jobs.dlq_rows import READ_COLUMNS, Facts, Redriven
from rocketd.spark.jobs.dlq_state import RedriveState, filter_name, remaining
from rocketd.spark.ranges import Queue, QueueRange


def rows(*given):
    full = [
        {
            "topic": "%DLQ%g",
            "broker": "broker-a",
            "queue_id": 0,
            "queue_offset": number,
            "store_time": 1_700_000_000_000_000 + number,
            "reconsume_times": 16,
            "msg_id": f"ID{number}",
            "uniq_key": f"U{number}",
            "tags": "TagA",
            "keys": "k",
            "flag": 7,
            "body": b"body",
            **one,
            "properties": list(one.get("properties", {}).items()),
        }
        for number, one in enumerate(given)
    ]
    return pa.RecordBatch.from_pylist(full, arrow_schema(READ_COLUMNS))


class RowTests(TestCase):
    def test_what_messages_are_grouped_by(self) -> None:
        batch = rows(
            {"properties": {"RETRY_TOPIC": "orders", "ORIGIN_MESSAGE_ID": "FIRST", "why": "timeout"}},
            {"topic": "%RETRY%h", "properties": {"RETRY_TOPIC": "orders"}},
            {"properties": {"ORIGIN_MESSAGE_ID": ""}},
        )
        found = Facts("why").of(batch).to_pylist()
        self.assertEqual(
            [(row["kind"], row["group"], row["origin"], row["cause"], row["id"]) for row in found],
            [
                ("dead", "g", "orders", "timeout", "FIRST"),
                ("retried", "h", "orders", None, "ID1"),
                ("dead", "g", None, None, "ID2"),
            ],
        )

    def test_messages_go_back_to_where_they_came_from(self) -> None:
        batch = rows(
            {"properties": {"RETRY_TOPIC": "orders", "ORIGIN_MESSAGE_ID": "FIRST", "DELAY": "0", "a": "b"}},
            {"properties": {"RETRY_TOPIC": "bills"}},
            {"properties": {}},
        )
        sent = Redriven().of(batch).to_pylist()
        self.assertEqual([row["topic"] for row in sent], ["orders", "bills"])
        self.assertEqual(
            [dict(row["properties"]) for row in sent],
            [
                {"RETRY_TOPIC": "orders", "ORIGIN_MESSAGE_ID": "FIRST", "a": "b"},
                {"RETRY_TOPIC": "bills", "ORIGIN_MESSAGE_ID": "ID1"},
            ],
        )
        self.assertEqual((sent[0]["uniq_key"], sent[0]["flag"], sent[0]["body"]), ("U0", 7, b"body"))

    def test_messages_go_to_their_group_or_to_a_topic(self) -> None:
        batch = rows({"properties": {"RETRY_TOPIC": "orders"}}, {"properties": {}})
        self.assertEqual([row["topic"] for row in Redriven(to_group=True).of(batch).to_pylist()], ["%RETRY%g"])
        self.assertEqual([row["topic"] for row in Redriven("other").of(batch).to_pylist()], ["other", "other"])


QUEUE = Queue("%DLQ%g", "broker-a", 0)


class StateTests(TestCase):
    def setUp(self) -> None:
        self.directory = self.mktemp()

    def test_what_is_done_is_not_done_again(self) -> None:
        name = filter_name(tags=[])
        step = RedriveState(self.directory).begin(name, [QueueRange(QUEUE, 0, 10)])
        self.assertEqual((step.number, step.ranges), (1, (QueueRange(QUEUE, 0, 10),)))
        RedriveState(self.directory).finish(step)
        self.assertEqual(RedriveState(self.directory).begin(name, [QueueRange(QUEUE, 0, 10)]).ranges, ())
        step = RedriveState(self.directory).begin(name, [QueueRange(QUEUE, 0, 12)])
        self.assertEqual((step.number, step.ranges), (2, (QueueRange(QUEUE, 10, 12),)))

    def test_what_was_cut_short_is_gone_on_with(self) -> None:
        name = filter_name(tags=[])
        step = RedriveState(self.directory).begin(name, [QueueRange(QUEUE, 0, 10)])
        # More has come meanwhile: it is for the next one.
        again = RedriveState(self.directory).begin(name, [QueueRange(QUEUE, 0, 15)])
        self.assertEqual((again, again.job_id), (step, step.job_id))
        error = self.assertRaises(
            OptionError, RedriveState(self.directory).begin, filter_name(tags=["a"]), [QueueRange(QUEUE, 0, 15)]
        )
        self.assertIn("was cut short", str(error))

    def test_each_filter_is_counted_apart(self) -> None:
        state = RedriveState(self.directory)
        one, other = filter_name(tags=["a"]), filter_name(tags=["b"])
        state.finish(state.begin(one, [QueueRange(QUEUE, 0, 10)]))
        self.assertEqual(state.begin(other, [QueueRange(QUEUE, 0, 10)]).ranges, (QueueRange(QUEUE, 0, 10),))

    def test_what_is_left(self) -> None:
        second = Queue("%DLQ%g", "broker-a", 1)
        self.assertEqual(
            remaining([QueueRange(QUEUE, 5, 10), QueueRange(second, 0, 3)], {QUEUE: 8, second: 3}),
            (QueueRange(QUEUE, 8, 10),),
        )


class OptionTests(TestCase):
    def options(self, given=(), **named):
        args = argparse.Namespace(**{"group": [], "retried": False, **named})
        return dead_letter_options(args, dict(given))

    def test_topics(self) -> None:
        self.assertEqual(self.options(), {"subscribePattern": "%DLQ%.+"})
        self.assertEqual(self.options(retried=True), {"subscribePattern": "(%DLQ%|%RETRY%).+"})
        self.assertEqual(self.options(group=["a", "b"])["subscribe"], "%DLQ%a,%DLQ%b")
        self.assertEqual(self.options({"subscribe": "x"}), {"subscribe": "x"})
        self.assertRaises(OptionError, self.options, {"subscribe": "x"}, group=["a"])
        self.assertRaises(OptionError, self.options, group=["a b"])

    def test_a_fixed_range(self) -> None:
        options = fixed({"store": "s", "subscribePattern": "x", "endingTimestamp": "1"}, [QueueRange(QUEUE, 3, 9)])
        self.assertEqual(
            options,
            {
                "store": "s",
                "assign": '{"%DLQ%g": {"broker-a": [0]}}',
                "startingOffsets": '{"%DLQ%g": {"broker-a": {"0": 3}}}',
                "endingOffsets": '{"%DLQ%g": {"broker-a": {"0": 9}}}',
            },
        )
