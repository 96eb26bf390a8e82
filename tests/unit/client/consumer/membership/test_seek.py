"""Positions of push consumers: seek, commit, lag, on a fake clock. Those of polling ones are in test_lite_pull."""

from datetime import UTC, datetime

from twisted.internet.defer import Deferred

from rocketd.client.consumer.lite_pull_consumer import LitePullConsumerEngine
from rocketd.client.consumer.options.kind_options import LitePullOptions
from rocketd.client.errors import ClientClosedError, CommitError, UsageError
from rocketd.remoting.bodies.tables import MessageQueue
from rocketd.remoting.wire.codes import ResponseCode
from rocketd.remoting.wire.command import RemotingCommand
from tests.support.consuming import ORDERS, ConsumingTestCase

QUEUE, OTHER = (MessageQueue("T", name, 0) for name in "ab")
AT_A = "a:10911"
UPDATE_OFFSET = 15


class PositionTestCase(ConsumingTestCase):
    """The broker has the offsets 0 to 7; a look for a time finds 5."""

    def setUp(self):
        super().setUp()
        self.handled = []

    async def handle(self, message):
        self.handled.append(message.body)

    def in_each_order(self):
        for order in ORDERS:
            self.handled.clear()
            self.cluster.held.clear()
            self.cluster.offsets.clear()
            self.cluster.asked.clear()
            consumer = self.start(self.handle, order=order, group=f"cg-{order}")
            yield consumer
            self.end_of(consumer.stop())


class SeekTests(PositionTestCase):
    def test_seek_pulls_from_offset_and_stores_it(self):
        for consumer in self.in_each_order():
            self.deliver(b"one", b"two", b"three")
            self.result_of(consumer.seek(QUEUE, 1))
            self.assertEqual(self.cluster.pulls(), {AT_A: 1})
            self.assertEqual(self.cluster.offsets, {(AT_A, "T"): 1})
            self.deliver(b"two", begin=1)
            self.assertEqual(self.handled, [b"one", b"two", b"three", b"two"])
            self.assertEqual(consumer.position(QUEUE), 2)

    def test_seek_to_words_and_moments(self):
        consumer = self.start(self.handle)
        for position, offset in (("latest", 7), ("earliest", 0), (datetime(2026, 1, 2, tzinfo=UTC), 5)):
            seeking = Deferred.fromCoroutine(consumer.seek(QUEUE, position))
            if not seeking.called:  # it looks at the message found for the time
                *_, answer = self.cluster.held.pop()
                answer.callback(RemotingCommand.response(ResponseCode.PULL_NOT_FOUND))
            self.successResultOf(seeking)
            self.assertEqual(consumer.position(QUEUE), offset)
        self.result_of(consumer.seek_to_end(QUEUE))
        self.assertEqual(consumer.position(QUEUE), 7)
        self.result_of(consumer.seek_to_begin(QUEUE))
        self.assertEqual(consumer.position(QUEUE), 0)

    def test_seek_elsewhere_is_refused(self):
        consumer = self.start(self.handle)
        for position in (-1, 8, True, "oldest", 1.5, None):
            self.failure_of(consumer.seek(QUEUE, position), UsageError)
        self.failure_of(consumer.seek(OTHER, 0), UsageError)
        self.end_of(consumer.stop())
        self.failure_of(consumer.seek(QUEUE, 0), ClientClosedError)

    def test_seek_in_handler_keeps_order(self):
        """The next handler of the queue, or of the key, starts after the one that called seek."""
        for order in ("queue", "key"):
            events, seeking, waiting = [], [], Deferred()

            async def handler(message, events=events, seeking=seeking, waiting=waiting):
                events.append(("begin", message.body))
                if len(events) == 1:
                    await seeking[0].seek(QUEUE, 0)
                    await waiting
                events.append(("end", message.body))

            consumer = self.start(handler, order=order, group=f"cg-{order}")
            seeking.append(consumer)
            self.deliver(b"one", b"two", keys=["A", "A"])
            self.deliver(b"one", b"two", keys=["A", "A"])
            self.assertEqual(events, [("begin", b"one")], order)
            waiting.callback(None)
            self.assertEqual(
                events[1:], [("end", b"one"), *[(at, b) for b in (b"one", b"two") for at in ("begin", "end")]]
            )
            self.assertEqual(consumer.position(QUEUE), 2)
            self.end_of(consumer.stop())
            self.cluster.held.clear()
            self.cluster.offsets.clear()

    def test_consumer_stops_while_a_handler_from_before_seek_runs(self):
        for order in ("queue", "key"):

            async def hang(message):
                await Deferred()

            consumer = self.start(hang, order=order, group=f"cg-{order}", grace=1)
            self.deliver(b"one", keys=["A"])
            self.result_of(consumer.seek(QUEUE, 0))
            self.deliver(b"one", keys=["A"])
            stopping = Deferred.fromCoroutine(consumer.stop())
            self.clock.advance(1)
            self.end_of(stopping)
            self.cluster.held.clear()


class OffsetTests(PositionTestCase):
    def test_position_is_the_first_message_not_handled(self):
        waiting = Deferred()

        async def handler(message):
            if message.body == b"two":
                await waiting

        for order in ORDERS:
            waiting = Deferred()
            consumer = self.start(handler, order=order, group=f"cg-{order}")
            self.assertEqual(consumer.position(QUEUE), 0)
            self.deliver(b"one", b"two", b"three")
            self.assertEqual(consumer.position(QUEUE), 1)
            self.assertEqual(self.result_of(consumer.lag()), {QUEUE: 6})
            waiting.callback(None)
            self.assertEqual(consumer.position(QUEUE), 3)
            self.assertEqual(self.result_of(consumer.lag()), {QUEUE: 4})
            self.end_of(consumer.stop())
            self.cluster.held.clear()
            self.cluster.offsets.clear()

    def test_commit_stores_progress_at_once(self):
        for consumer in self.in_each_order():
            self.deliver(b"one", b"two")
            self.clock.advance(0)  # the early commit of an empty queue
            self.deliver(b"three", begin=2)
            self.assertEqual(self.result_of(consumer.committed(QUEUE)), 2)
            self.result_of(consumer.commit())
            self.assertEqual(self.result_of(consumer.committed(QUEUE)), 3)

    def test_commit_that_is_not_stored_raises(self):
        consumer = self.start(self.handle)
        self.deliver(b"one")
        self.cluster.refusals[UPDATE_OFFSET, AT_A] = 1
        self.failure_of(consumer.commit(), CommitError)
        self.failure_of(consumer.commit({QUEUE: 1}), CommitError)
        self.failure_of(consumer.commit({OTHER: 1}), UsageError)

    def test_lag_of_polling_consumer_counts_messages_not_polled(self):
        consumer = LitePullConsumerEngine(self.client, "cg", options=LitePullOptions(begin="earliest"))
        consumer.subscribe("T")
        self.result_of(consumer.start())
        self.deliver(b"one", b"two")
        self.assertEqual((consumer.position(QUEUE), self.result_of(consumer.lag())), (0, {QUEUE: 7}))
        self.assertEqual(len(self.result_of(consumer.poll(0))), 2)
        self.assertEqual((consumer.position(QUEUE), self.result_of(consumer.lag())), (2, {QUEUE: 5}))
        self.result_of(consumer.seek(QUEUE, "latest"))
        self.assertEqual(self.result_of(consumer.lag()), {QUEUE: 0})
