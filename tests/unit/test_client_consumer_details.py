"""What consumers do from time to time, and with which figures: pulls, locks, retries in order, queues that are blocked."""

from datetime import UTC, datetime

from twisted.internet.defer import Deferred

from rocketd.client.consumer.lite_pull_consumer import LitePullConsumer
from rocketd.client.consumer.options import ConsumerOptions, LitePullOptions
from rocketd.client.consumer.outcome import Retry
from rocketd.client.consumer.push_consumer import PushConsumer
from rocketd.common.sysflag import PULL_SUSPEND
from rocketd.remoting.bodies import LockBatchResponseBody
from rocketd.remoting.command import RemotingCommand
from tests.unit.test_client_consuming import ORDERS, ConsumingTestCase


async def take(message):
    """A handler that consumes all."""


class DetailTestCase(ConsumingTestCase):
    def start_polled(self, **options):
        consumer = LitePullConsumer(self.client, "cg", options=LitePullOptions(start="earliest", **options))
        consumer.subscribe("T")
        self.result_of(consumer.start())
        return consumer

    def kinds(self):
        """Start a consumer of either kind, one after the other; yields what gives each of their messages to nobody."""
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
    def test_next_pull_goes_to_the_broker_that_the_last_one_was_told_of(self):
        self.cluster.slaves["a"] = {1: "a-slave:10911", 2: "a-other:10911"}
        for give in self.kinds():
            told = [(1, "a-slave:10911"), (1, "a-slave:10911"), (2, "a-other:10911"), (0, "a:10911")]
            address = "a:10911"
            for place, (broker_id, following) in enumerate(told):
                self.cluster.deliver(address, [(b"x", "")], place, broker_id=broker_id)
                give()
                self.assertEqual(self.cluster.pulls(), {following: place + 1})
                address = following

    def test_a_slave_that_is_gone_is_replaced_by_who_is_there(self):
        self.cluster.slaves["a"] = {1: "a-slave:10911"}
        for give in self.kinds():
            self.cluster.deliver("a:10911", [(b"x", "")], 0, broker_id=2)
            give()
            self.assertEqual(set(self.cluster.pulls()) & {"a:10911", "a-slave:10911"}, set(self.cluster.pulls()))
            self.assertEqual(list(self.cluster.pulls().values()), [1])

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
    """A group reads its retry topic from the start, whatever its topics' is: all that is there is its own."""

    retry = "%RETRY%cg"

    def begin(self, start):
        self.cluster.topics.add(self.retry)
        consumer = PushConsumer(self.client, "cg", take, options=ConsumerOptions(start=start))
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
        """As in Java: a group that begins at a moment has failed with nothing before."""
        self.cluster.offsets["a:10911", "T"] = 4
        self.assertEqual(self.begin(datetime(2026, 1, 1, tzinfo=UTC)), (4, 7))

    def test_messages_come_as_those_of_their_topic(self):
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

    def test_the_handler_s_own_time(self):
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

    def test_without_end(self):
        _, tries = self.fail_always()
        self.clock.pump([1] * 40)
        self.assertEqual([times for _, times, _ in tries], list(range(41)))
        self.assertEqual(self.given_back(), [])
        self.assertEqual(self.stored(), 0)


class LockTests(DetailTestCase):
    def locks(self):
        return self.cluster.codes().count(41)

    def test_locks_are_renewed_every_20_s(self):
        """Also where nothing is to be consumed: who has one loses it after a minute."""
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

    def test_a_lock_that_another_has_got_ends_the_pulling_until_it_is_back(self):
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

    def test_others_have_no_locks(self):
        for order in ("none", "key"):
            self.start(take, order=order, group=f"cg-{order}")
        self.clock.advance(60)
        self.assertEqual(self.locks(), 0)


class BlockedTests(DetailTestCase):
    def test_who_blocks_is_named_once(self):
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
                rf"BlockedTests\.test_who.*\.handle_slowly; {count} messages wait$",
            )
            self.lines.clear()
            endless.callback(None)
            self.end_of(consumer.stop())
            self.cluster.offsets.clear()

    def test_each_that_blocks_is_named(self):
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

    def test_one_that_fails_again_and_again_blocks_too(self):
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

    def test_it_is_given_back_with_level_3(self):
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

    def test_not_in_order(self):
        self.start(self.handle, order="queue", consume_timeout=60)
        self.deliver(b"slow", b"quick")
        self.clock.pump([60] * 4)
        self.assertEqual((self.seen, self.given_back()), ([b"slow"], []))
        self.assertEqual(self.stored(), 0)
        self.endless.callback(None)
        self.assertEqual(self.seen, [b"slow", b"quick"])
