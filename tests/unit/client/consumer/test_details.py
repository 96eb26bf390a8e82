"""Periodic work of consumers and its figures: pulls, locks, retries in order, blocked queues."""

import pickle
from datetime import UTC, datetime, timedelta

from twisted.internet.defer import Deferred

from rocketd.client.consumer.lite_pull_consumer import LitePullConsumerEngine
from rocketd.client.consumer.options.kind_options import ConsumerOptions, LitePullOptions
from rocketd.client.consumer.push_consumer import PushConsumerEngine
from rocketd.client.consumer.retries.handler_results import Retry
from rocketd.client.errors import IllegalOptionError, UsageError
from rocketd.client.hooks import ConsumerHook
from rocketd.client.trace.records import ConsumeReturnType
from rocketd.common.sysflag import PULL_SUSPEND
from rocketd.remoting.bodies.tables import LockBatchResponseBody, MessageQueue
from rocketd.remoting.wire.command import RemotingCommand
from tests.support.consuming import ORDERS, ConsumingTestCase


async def take(message):
    """A handler that consumes all."""


class DetailTestCase(ConsumingTestCase):
    def start_polled(self, **options):
        consumer = LitePullConsumerEngine(self.client, "cg", options=LitePullOptions(begin="earliest", **options))
        consumer.subscribe("T")
        self.result_of(consumer.start())
        return consumer

    def kinds(self):
        """Start a push and then a polled consumer; yield a function that hands out the delivered messages."""
        consumer = self.start(take)
        yield lambda: None
        self.end_of(consumer.stop())
        self.cluster.offsets.clear()
        consumer = self.start_polled()
        yield lambda: self.result_of(consumer.poll())
        self.end_of(consumer.stop())

    def sleeps(self, topic="T"):
        """Whether no pull of the topic is at the broker."""
        return not [1 for _, fields, held in self.cluster.held if not held.called and fields["topic"] == topic]


class PullTests(DetailTestCase):
    def test_next_pull_goes_to_suggested_broker(self):
        self.cluster.slaves["a"] = {1: "a-slave:10911", 2: "a-other:10911"}
        for give in self.kinds():
            told = [(1, "a-slave:10911"), (1, "a-slave:10911"), (2, "a-other:10911"), (0, "a:10911")]
            address = "a:10911"
            for place, (broker_id, following) in enumerate(told):
                self.cluster.deliver(address, [(b"x", "")], place, broker_id=broker_id)
                give()
                self.assertEqual(self.cluster.pulls(), {following: place + 1})
                address = following

    def test_missing_slave_is_replaced_by_a_known_broker(self):
        self.cluster.slaves["a"] = {1: "a-slave:10911"}
        for give in self.kinds():
            self.cluster.deliver("a:10911", [(b"x", "")], 0, broker_id=2)
            give()
            self.assertEqual(set(self.cluster.pulls()) & {"a:10911", "a-slave:10911"}, set(self.cluster.pulls()))
            self.assertEqual(list(self.cluster.pulls().values()), [1])

    def test_slave_has_members_and_offsets_while_master_is_gone(self):
        self.cluster.slaves["a"] = {1: "a-slave:10911"}
        self.cluster.masterless.add("a")
        self.cluster.offsets["a-slave:10911", "T"] = 3
        self.start(take)
        self.assertEqual(self.cluster.pulls(), {"a-slave:10911": 3})
        self.cluster.deliver("a-slave:10911", [(b"x", "")], 3, broker_id=1)
        self.clock.advance(5)
        self.assertEqual(self.cluster.offsets, {("a-slave:10911", "T"): 4})
        self.assertEqual({address for address, _ in self.cluster.of(38)}, {"a-slave:10911"})

    def check_slave_does_not_know(self):
        self.cluster.slaves["a"] = {1: "a-slave:10911"}
        self.cluster.masterless.add("a")
        consumer = self.start(take)
        self.assertEqual((consumer.queues(), self.cluster.pulls(), self.cluster.of(15)), ([], {}, []))
        self.cluster.masterless.clear()
        self.cluster.offsets["a:10911", "T"] = 5
        self.clock.pump([10] * 6)
        self.assertEqual(self.cluster.pulls(), {"a:10911": 5})

    def test_group_without_offset_at_a_slave_may_have_one(self):
        self.check_slave_does_not_know()

    def test_group_without_offset_at_a_slave_of_a_young_queue_may_have_one(self):
        self.cluster.offsets["a-slave:10911", "T"] = 0  # as Apache's broker answers
        self.cluster.answer_43 = lambda *_: RemotingCommand.response(0, body=b'{"offsetTable":{}}')
        self.check_slave_does_not_know()

    def test_offset_zero_at_a_slave_counts_if_it_is_stored(self):
        self.cluster.slaves["a"] = {1: "a-slave:10911"}
        self.cluster.masterless.add("a")
        self.cluster.offsets["a-slave:10911", "T"] = 0
        self.start(take)
        self.assertEqual(self.cluster.pulls(), {"a-slave:10911": 0})

    def test_committed_offset_is_asked_of_a_slave_while_master_is_gone(self):
        self.cluster.slaves["a"] = {1: "a-slave:10911"}
        self.cluster.masterless.add("a")
        self.cluster.offsets["a-slave:10911", "T"] = 3
        consumer = self.start(take)
        self.assertEqual(self.result_of(consumer.committed(MessageQueue("T", "a", 0))), 3)

    def test_slaves_get_no_offset_to_store(self):
        self.cluster.slaves["a"] = {1: "a-slave:10911"}
        self.start(take)
        self.cluster.deliver("a:10911", [(b"x", "")], 0, broker_id=1)
        self.cluster.deliver("a-slave:10911", [(b"x", "")], 1, broker_id=1)
        _, fields, _ = self.cluster.pull_of("a-slave:10911")
        self.assertEqual(int(fields["sysFlag"]), PULL_SUSPEND)
        self.cluster.deliver("a-slave:10911", [(b"x", "")], 2, broker_id=0)
        self.assertEqual(int(self.cluster.pull_of("a:10911")[1]["sysFlag"]) & ~PULL_SUSPEND, 1)

    def test_how_long_brokers_may_hold_a_pull(self):
        """As in Java: 15 s for consumers with a handler, 20 s for those that poll; after 30 s it is given up."""
        for seconds, _ in zip((15, 20), self.kinds(), strict=True):
            fields = self.cluster.pull_of("a:10911")[1]
            self.assertEqual(fields["suspendTimeoutMillis"], str(seconds * 1000))
            self.assertTrue(int(fields["sysFlag"]) & PULL_SUSPEND)
            (timeout_ms,) = {timeout for code, timeout in self.timeouts if code == 11}
            self.assertEqual(timeout_ms, 30_000)

    def setUp(self):
        super().setUp()
        self.timeouts = []
        invoke = self.cluster.invoke_sync

        def invoke_sync(address, request, timeout_ms):
            self.timeouts.append((request.code, timeout_ms))
            return invoke(address, request, timeout_ms)

        self.cluster.invoke_sync = invoke_sync

    def test_pull_interval(self):
        self.start(take, pull_interval=3)
        self.deliver(b"x")
        self.clock.advance(2.9)
        self.assertTrue(self.sleeps())
        self.clock.advance(0.1)
        self.assertFalse(self.sleeps())

    def test_pull_interval_of_polled_consumers(self):
        self.start_polled(pull_interval=0.5)
        self.deliver(b"x")
        self.clock.advance(0.4)
        self.assertTrue(self.sleeps())
        self.clock.advance(0.1)
        self.assertFalse(self.sleeps())

    def test_pull_batch(self):
        self.start(take, pull_batch=7)
        self.assertEqual(self.cluster.pull_of("a:10911")[1]["maxMsgNums"], "7")


class RetryTopicTests(DetailTestCase):
    """A group reads its retry topic from the start, whichever start its topics have: all messages there belong to it."""

    retry = "%RETRY%cg"

    def begin(self, start):
        self.cluster.topics.add(self.retry)
        consumer = PushConsumerEngine(self.client, "cg", take, options=ConsumerOptions(begin=start))
        consumer.subscribe("T")
        self.result_of(consumer.start())
        begins = {fields["topic"]: int(fields["queueOffset"]) for _, fields, held in self.cluster.held}
        return begins["T"], begins[self.retry]

    def test_latest(self):
        self.assertEqual(self.begin("latest"), (7, 0))
        self.assertEqual(self.cluster.offsets["a:10911", self.retry], 0)

    def test_earliest(self):
        self.assertEqual(self.begin("earliest"), (0, 0))

    def test_stored(self):
        self.cluster.offsets["a:10911", self.retry] = 3
        self.assertEqual(self.begin("latest"), (7, 3))

    def test_moment(self):
        """As in Java: a group that begins at a point in time has failed with nothing before."""
        self.cluster.offsets["a:10911", "T"] = 4
        self.assertEqual(self.begin(datetime(2026, 1, 1, tzinfo=UTC)), (4, 7))

    def test_retried_messages_arrive_with_their_original_topic(self):
        self.begin("latest")
        got = []

        async def handler(message):
            got.append((message.topic, message.body))

        self.end_of(self.client.consumers["cg"].stop())
        consumer = self.start(handler)
        self.cluster.deliver("a:10911", [(b"again", "RETRY_TOPIC\x01T")], 0, topic=self.retry)
        self.assertEqual(got, [("T", b"again")])
        self.assertEqual([queue.topic for queue in consumer.queues()], ["T"])


class InOrderTests(DetailTestCase):
    def fail_always(self, answer=None, **options):
        tries = []

        async def handler(message):
            tries.append((message.body, message.reconsume_times, self.clock.seconds()))
            if message.body == b"bad":
                raise answer or RuntimeError("no")

        consumer = self.start(handler, order="queue", **options)
        self.deliver(b"bad", b"good")
        return consumer, tries

    def test_suspend_time(self):
        _, tries = self.fail_always(suspend_time=4)
        self.clock.pump([1] * 12)
        self.assertEqual([at for _, _, at in tries], [0, 4, 8, 12])

    def test_suspend_time_is_a_second(self):
        _, tries = self.fail_always()
        self.clock.pump([0.25] * 8)
        self.assertEqual([at for _, _, at in tries], [0, 1, 2])

    def test_delay_of_handler_overrides_suspend_time(self):
        _, tries = self.fail_always(Retry(delay=2.5), suspend_time=4)
        self.clock.pump([0.5] * 10)
        self.assertEqual([at for _, _, at in tries], [0, 2.5, 5])

    def test_max_reconsume_times(self):
        _, tries = self.fail_always(max_reconsume_times=2)
        self.clock.pump([1] * 2)
        self.assertEqual(
            [(body, times) for body, times, _ in tries], [(b"bad", 0), (b"bad", 1), (b"bad", 2), (b"good", 0)]
        )
        ((_, fields),) = self.cluster.of(36)
        self.assertEqual((fields["offset"], fields["delayLevel"], fields["maxReconsumeTimes"]), ("100", "-1", "2"))
        self.assertEqual(self.stored(), 2)

    def test_failing_message_is_retried_without_limit_by_default(self):
        _, tries = self.fail_always()
        self.clock.pump([1] * 40)
        self.assertEqual([times for _, times, _ in tries], list(range(41)))
        self.assertEqual(self.given_back(), [])
        self.assertEqual(self.stored(), 0)


class LockTests(DetailTestCase):
    def locks(self):
        return self.cluster.codes().count(41)

    def test_locks_are_renewed_every_20_s(self):
        """Locks are renewed even if no message comes; a broker drops a lock after a minute."""
        consumer = self.start(take, order="queue")
        self.assertEqual(self.locks(), 1)
        counts = []
        for _ in range(60):
            self.clock.advance(1)
            counts.append(self.locks())
        self.assertEqual([counts[at] for at in (18, 19, 38, 39, 58, 59)], [1, 2, 2, 3, 3, 4])
        (assigned,) = consumer.assigned.values()
        self.assertFalse(assigned.held.is_lock_expired(int(self.client.clock_ms())))
        self.end_of(consumer.stop())
        self.clock.advance(60)
        self.assertEqual(self.locks(), 4)

    def test_lock_lost_to_other_member_stops_pulls_until_it_returns(self):
        seen = []

        async def handler(message):
            seen.append(message.body)

        self.start(handler, order="queue")
        self.cluster.answer_41 = lambda *_: RemotingCommand.response(0, body=LockBatchResponseBody(set()).encode())
        self.clock.advance(20)
        self.deliver(b"one")
        self.assertEqual(seen, [])
        self.clock.advance(3)
        self.assertTrue(self.sleeps())
        del self.cluster.answer_41
        self.clock.advance(3)
        self.assertEqual(seen, [b"one"])
        self.clock.advance(3)
        self.assertFalse(self.sleeps())

    def test_consumers_not_in_order_take_no_locks(self):
        for order in ("none", "key"):
            self.start(take, order=order, group=f"cg-{order}")
        self.clock.advance(60)
        self.assertEqual(self.locks(), 0)


class BlockedTests(DetailTestCase):
    def test_blocking_message_is_logged_once(self):
        for order in ORDERS:
            endless = Deferred()

            async def handle_slowly(message, endless=endless):
                if message.body == b"slow":
                    await endless

            consumer = self.start(handle_slowly, order=order, blocked_after=30, group=f"cg-{order}")
            self.deliver(b"quick", b"slow", b"next")
            self.clock.pump([1] * 29)
            self.assertEqual(self.lines, [], order)
            self.clock.pump([1] * 31)
            (line,) = self.lines
            count = 2 if order == "queue" else 1  # in no order the next one is done already
            self.assertRegex(
                line,
                r"^queue 0 of T at a is blocked by offset 1 for 30 s in handler "
                rf"BlockedTests\.test_blocking_message.*\.handle_slowly; {count} messages wait$",
            )
            self.lines.clear()
            endless.callback(None)
            self.end_of(consumer.stop())
            self.cluster.offsets.clear()

    def test_each_blocking_message_is_logged(self):
        waiting = []

        async def handler(message):
            waiting.append(Deferred())
            await waiting[-1]

        self.start(handler, order="queue", blocked_after=10)
        self.deliver(b"one", b"two")
        self.clock.pump([10] * 3)
        waiting[0].callback(None)
        self.clock.pump([10] * 3)
        self.assertEqual(len(self.lines), 2, self.lines)
        for offset, line in enumerate(self.lines):
            self.assertIn(f"blocked by offset {offset} for 10 s", line)

    def test_message_failing_repeatedly_is_logged_as_blocking(self):
        async def handler(message):
            raise Retry(delay=7)

        self.start(handler, order="queue", blocked_after=60)
        self.deliver(b"one")
        self.clock.pump([1] * 60)
        (line,) = self.lines
        self.assertIn("blocked by offset 0 for 60 s", line)


class ExpiryTests(DetailTestCase):
    """A message that is handled for too long: its queue goes on, it comes again."""

    def setUp(self):
        super().setUp()
        self.endless = Deferred()
        self.seen = []

    async def handle(self, message):
        self.seen.append(message.body)
        if message.body == b"slow":
            await self.endless

    def test_expired_message_is_given_back_with_level_3(self):
        for order in ("none", "key"):
            options = {"consume_timeout": 60, "blocked_after": 999}
            consumer = self.start(self.handle, order=order, group=f"cg-{order}", **options)
            self.deliver(b"slow", b"quick")
            self.clock.advance(60)
            self.assertEqual(self.given_back(), [], order)
            self.clock.advance(60)
            ((_, fields),) = self.cluster.of(36)
            self.assertEqual((fields["offset"], fields["delayLevel"]), ("100", "3"))
            self.assertRegex(self.lines.pop(0), "queue 0 of T at a at 0: handled for more than 1 minutes, given back")
            self.assertEqual(self.stored(), 2)
            self.endless.callback(None)
            self.assertEqual(self.stored(), 2)
            self.endless = Deferred()
            self.end_of(consumer.stop())
            self.cluster.asked.clear()
            self.cluster.offsets.clear()
            self.lines.clear()

    def test_expired_message_is_given_back_after_15_minutes_by_default(self):
        self.start(self.handle, blocked_after=9999)
        self.deliver(b"slow", b"quick")
        self.clock.pump([60] * 15)
        self.assertEqual(self.given_back(), [])
        # It is looked for every 15 minutes.
        self.clock.pump([60] * 15)
        self.assertEqual(len(self.given_back()), 1)

    def keep(self, options):
        """Consume with a handler that extends its message to 150 s at once; return the message's list."""
        messages = []

        async def handle(message):
            if not messages:
                messages.append(message)
                self.assertTrue(message.extend(150))
                await self.endless

        self.start(handle, consume_timeout=60, blocked_after=999, **options)
        self.deliver(b"slow", b"quick")
        return messages

    def test_extended_message_stays_with_its_handler(self):
        for order in ("none", "key"):
            self.keep({"order": order, "group": f"cg-{order}"})
            self.clock.advance(60)
            self.clock.advance(60)
            self.assertEqual(self.given_back(), [])
            self.endless.callback(None)
            self.assertEqual(self.stored(), 2)
            self.assertEqual(self.given_back(), [])
            self.endless = Deferred()
            self.cluster.held.clear()

    def test_extended_message_is_given_back_after_its_time(self):
        (message,) = self.keep({})
        self.clock.pump([60] * 2)
        self.assertTrue(message.extend(1))
        self.clock.advance(60)
        self.assertEqual(self.given_back(), [0])
        self.assertFalse(message.extend(100))

    def test_extend_by_less_does_not_shorten(self):
        (message,) = self.keep({})
        message.extend(timedelta(seconds=1))
        self.clock.pump([60] * 2)
        self.assertEqual(self.given_back(), [])

    def test_message_behind_an_extended_one_is_given_back(self):
        self.endless_again = Deferred()

        async def handle(message):
            if message.body == b"kept":
                message.extend(999)
            await self.endless_again

        self.start(handle, consume_timeout=60, blocked_after=999)
        self.deliver(b"kept", b"slow")
        self.clock.pump([60] * 2)
        self.assertEqual(self.given_back(), [1])

    def test_extended_handling_is_not_told_to_hooks_as_timeout(self):
        told = []

        class Hook(ConsumerHook):
            def consume_after(self, context):
                told.append(context.return_type)

        self.keep({"consume_hooks": [Hook()]})
        self.clock.pump([60] * 2)
        self.endless.callback(None)
        self.assertEqual(told[-1], ConsumeReturnType.SUCCESS)

    def expire_slowly(self, consumer):
        """Let the first message expire while giving back takes time. Return the end of giving back, and the offsets."""
        answer, offsets = Deferred(), []

        async def send_back(queue, pulled, level, error=None):
            offsets.append(pulled.queue_offset)
            return await answer if pulled.queue_offset == 0 else True

        consumer.send_back.send_back = send_back
        self.clock.pump([60] * 2)
        self.assertEqual(offsets, [0])
        return answer, offsets

    def start_waiting(self, *bodies, **options):
        """Consume with a handler that waits. Return the consumer, and the list of its messages."""
        messages = []
        handlers = self.handlers = [Deferred() for _ in bodies]

        async def handle(message):
            messages.append(message)
            await handlers[message.queue_offset]

        consumer = self.start(handle, consume_timeout=60, blocked_after=999, **options)
        self.deliver(*bodies, keys="A" * len(bodies) if "order" in options else None)
        return consumer, messages

    def test_message_extended_while_another_is_given_back_stays(self):
        consumer, messages = self.start_waiting(b"one", b"two")
        answer, offsets = self.expire_slowly(consumer)
        self.assertTrue(messages[1].extend(600))
        answer.callback(True)
        self.assertEqual(offsets, [0])
        self.assertTrue(messages[1].extend(1))

    def test_message_consumed_while_another_is_given_back_is_not_given_back(self):
        consumer, _ = self.start_waiting(b"one", b"two")
        answer, offsets = self.expire_slowly(consumer)
        self.handlers[1].callback(None)
        answer.callback(True)
        self.assertEqual(offsets, [0])
        self.assertEqual(self.stored(), 2)

    def test_expired_message_that_no_broker_takes_can_be_extended(self):
        consumer, messages = self.start_waiting(b"one")
        answer, offsets = self.expire_slowly(consumer)
        self.assertFalse(messages[0].extend(1))
        answer.callback(False)
        self.assertTrue(messages[0].extend(150))
        self.clock.pump([60] * 2)
        self.assertEqual(offsets, [0])

    def test_message_abandoned_as_given_back_comes_again_if_no_broker_took_it(self):
        consumer, messages = self.start_waiting(b"one")
        answer, offsets = self.expire_slowly(consumer)
        self.assertFalse(messages[0].extend(1))
        self.handlers[0].callback(None)
        answer.callback(False)
        self.assertEqual((self.stored(), offsets), (0, [0]))
        self.clock.pump([60] * 2)
        self.assertEqual((self.stored(), offsets[:2]), (0, [0, 0]))

    def test_message_failing_while_it_is_given_back_is_not_tried_here(self):
        for order in ("none", "key"):
            options = {"order": order} if order == "key" else {}
            consumer, messages = self.start_waiting(b"one", group=f"cg-{order}", **options)
            answer, offsets = self.expire_slowly(consumer)
            self.handlers[0].errback(ValueError())
            self.clock.pump([1] * 5)
            answer.callback(True)
            self.assertEqual(self.stored(), 1)
            self.clock.pump([1] * 5)
            self.assertEqual((len(messages), offsets), (1, [0]), order)
            self.end_of(consumer.stop())
            self.cluster.held.clear()
            self.cluster.offsets.clear()

    def test_message_failing_while_no_broker_takes_it_expires_again(self):
        for order in ("none", "key"):
            options = {"order": order} if order == "key" else {}
            consumer, _ = self.start_waiting(b"one", group=f"cg-{order}", **options)
            answer, offsets = self.expire_slowly(consumer)
            self.handlers[0].errback(ValueError())
            answer.callback(False)
            self.clock.advance(60)
            self.assertEqual(offsets, [0, 0], order)
            self.end_of(consumer.stop())
            self.cluster.held.clear()
            self.cluster.offsets.clear()

    def test_message_failing_after_it_was_given_back_is_not_given_back_again(self):
        for order in ("none", "key"):
            options = {"order": order} if order == "key" else {}
            consumer, _ = self.start_waiting(b"one", group=f"cg-{order}", **options)
            answer, offsets = self.expire_slowly(consumer)
            answer.callback(True)
            self.handlers[0].errback(ValueError())
            self.assertEqual((self.stored(), offsets), (1, [0]), order)
            self.end_of(consumer.stop())
            self.cluster.held.clear()
            self.cluster.offsets.clear()

    def test_extend_of_polled_message_is_refused(self):
        consumer = self.start_polled()
        self.deliver(b"one")
        (message,) = self.result_of(consumer.poll(0))
        self.assertRaises(UsageError, message.extend, 1)

    def test_extend_of_copy_without_its_consumer_is_refused(self):
        (message,) = self.keep({})
        copied = pickle.loads(pickle.dumps(message))
        self.assertEqual(copied, message)
        self.assertRaises(UsageError, copied.extend, 1)
        for wrong in (0, -1, "1", None, True):
            self.assertRaises(IllegalOptionError, message.extend, wrong)

    def test_not_in_order(self):
        self.start(self.handle, order="queue", consume_timeout=60)
        self.deliver(b"slow", b"quick")
        self.clock.pump([60] * 4)
        self.assertEqual((self.seen, self.given_back()), ([b"slow"], []))
        self.assertEqual(self.stored(), 0)
        self.endless.callback(None)
        self.assertEqual(self.seen, [b"slow", b"quick"])
