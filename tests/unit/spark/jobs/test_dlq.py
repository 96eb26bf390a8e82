"""The selection of dead letters, and the state of redriving them."""

from twisted.trial.unittest import TestCase

from rocketd.spark.errors import OptionError
from rocketd.spark.jobs.dlq.job import dead_letter_options, fixed
from rocketd.spark.jobs.dlq.state import RedriveState, filter_name, remaining
from rocketd.spark.jobs.running.options import Arguments
from rocketd.spark.ranges import Queue, QueueRange

QUEUE = Queue("%DLQ%g", "broker-a", 0)


class StateTests(TestCase):
    def setUp(self) -> None:
        self.directory = self.mktemp()

    def test_finished_ranges_are_not_redriven_again(self) -> None:
        name = filter_name(tags=[])
        step = RedriveState(self.directory).begin(name, [QueueRange(QUEUE, 0, 10)])
        self.assertEqual((step.number, step.ranges), (1, (QueueRange(QUEUE, 0, 10),)))
        RedriveState(self.directory).finish(step)
        self.assertEqual(RedriveState(self.directory).begin(name, [QueueRange(QUEUE, 0, 10)]).ranges, ())
        step = RedriveState(self.directory).begin(name, [QueueRange(QUEUE, 0, 12)])
        self.assertEqual((step.number, step.ranges), (2, (QueueRange(QUEUE, 10, 12),)))

    def test_interrupted_redrive_is_continued(self) -> None:
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

    def test_remaining_ranges_follow_the_offsets(self) -> None:
        second = Queue("%DLQ%g", "broker-a", 1)
        self.assertEqual(
            remaining([QueueRange(QUEUE, 5, 10), QueueRange(second, 0, 3)], {QUEUE: 8, second: 3}),
            (QueueRange(QUEUE, 8, 10),),
        )


class OptionTests(TestCase):
    def options(self, given=(), **named):
        args = Arguments(**{"group": [], "retried": False, **named})
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
