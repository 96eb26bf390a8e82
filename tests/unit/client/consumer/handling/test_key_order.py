"""Order by key after failures: the key waits for its failed message, other keys go on. On a fake clock."""

from twisted.internet.defer import Deferred

from rocketd.client.consumer.options.kind_options import ConsumerOptions
from rocketd.client.consumer.push_consumer import PushConsumerEngine
from rocketd.client.consumer.retries.handler_results import Reject, Retry
from tests.support.consuming import ConsumingTestCase


class FailedKeyTests(ConsumingTestCase):
    """``tries`` has the bodies in the order of the calls; ``failing`` those that fail, with what the handler raises."""

    def setUp(self):
        super().setUp()
        self.tries = []
        self.failing = {}

    async def handle(self, message):
        self.tries.append(message.body)
        if message.body in self.failing:
            raise self.failing[message.body]

    def begin(self, **options):
        self.consumer = self.start(self.handle, order="key", **options)

    def times_of(self, body, seconds):
        """Advance the time second by second. Return the seconds at which a message was tried."""
        times = []
        for second in range(seconds + 1):
            times += [second] * self.tries.count(body)
            self.tries.clear()
            self.clock.advance(1)
        return times

    def test_failed_message_blocks_its_key_and_no_other(self):
        self.failing[b"a1"] = ValueError()
        self.begin()
        self.deliver(b"a1", b"b1", b"a2", b"b2", keys="ABAB")
        self.assertEqual(self.tries, [b"a1", b"b1", b"b2"])
        self.assertEqual(self.stored(), 0)
        self.failing.clear()
        self.tries.clear()
        self.clock.pump([1] * 10)
        self.assertEqual(self.tries, [b"a1", b"a2"])
        self.assertEqual((self.stored(), self.given_back()), (4, []))

    def test_new_messages_of_a_blocked_key_wait(self):
        self.failing[b"a1"] = ValueError()
        self.begin()
        self.deliver(b"a1", keys="A")
        self.deliver(b"a2", b"b1", begin=1, keys="AB")
        self.assertEqual(self.tries, [b"a1", b"b1"])

    def test_blocked_keys_leave_the_concurrency_to_others(self):
        self.failing = {b"a1": ValueError(), b"b1": ValueError()}
        self.begin(concurrency=2)
        self.deliver(b"a1", b"b1", b"c1", b"d1", keys="ABCD")
        self.assertEqual(self.tries, [b"a1", b"b1", b"c1", b"d1"])

    def test_pauses_double_up_to_a_minute_until_the_dead_letter(self):
        self.failing[b"a1"] = ValueError()
        self.begin(max_reconsume_times=8, blocked_after=9999)
        self.deliver(b"a1", b"a2", keys="AA")
        self.assertEqual(self.times_of(b"a1", 200), [0, 1, 3, 7, 15, 31, 63, 123, 183])
        ((_, fields),) = self.cluster.of(36)
        self.assertEqual((fields["offset"], fields["delayLevel"]), ("100", "-1"))
        self.assertEqual(self.stored(), 2)

    def test_pause_is_suspend_time_or_that_of_retry(self):
        self.begin(suspend_time=70)
        self.failing = {b"a1": ValueError(), b"b1": Retry(delay=5), b"c1": Retry(delay=0)}
        self.deliver(b"a1", b"b1", keys="AB")
        self.tries.clear()
        self.clock.pump([1] * 16)
        self.assertEqual(self.tries, [b"b1"] * 3)
        self.clock.pump([1] * 130)
        self.assertEqual(self.tries.count(b"a1"), 2)

    def test_attempts_are_counted(self):
        attempts = []

        async def handle(message):
            attempts.append(message.reconsume_times)
            if len(attempts) < 4:
                raise ValueError

        self.start(handle, order="key")
        self.deliver(b"one", keys="A")
        self.clock.pump([1] * 10)
        self.assertEqual(attempts, [0, 1, 2, 3])

    def test_reject_frees_the_key_at_once(self):
        self.failing[b"a1"] = Reject()
        self.begin()
        self.deliver(b"a1", b"a2", keys="AA")
        self.assertEqual((self.tries, self.given_back()), ([b"a1", b"a2"], [0]))

    def test_message_without_key_goes_back_to_the_broker(self):
        self.failing[b"one"] = ValueError()
        self.begin()
        self.deliver(b"one", b"two")
        self.assertEqual((self.tries, self.given_back()), ([b"one", b"two"], [0]))
        self.assertEqual(self.stored(), 2)

    def test_broadcast_message_keeps_its_place_too(self):
        self.failing[b"a1"] = ValueError()
        options = ConsumerOptions(begin="earliest", order="key", broadcast=True, offset_directory=self.mktemp())
        consumer = PushConsumerEngine(self.client, "cg", self.handle, options=options)
        consumer.subscribe("T")
        self.end_of(consumer.start())
        self.deliver(b"a1", b"a2", keys="AA")
        self.failing.clear()
        self.clock.advance(1)
        self.assertEqual(self.tries, [b"a1", b"a1", b"a2"])
        self.end_of(consumer.stop())

    def test_resting_message_does_not_expire(self):
        self.failing[b"a1"] = Retry(delay=1000)
        self.begin(consume_timeout=10)
        self.deliver(b"a1", keys="A")
        self.clock.pump([10] * 5)
        self.assertEqual(self.given_back(), [])

    def test_message_behind_a_resting_one_expires(self):
        async def handle(message):
            if message.body == b"a1":
                raise Retry(delay=1000)
            await Deferred()

        self.start(handle, order="key", consume_timeout=10)
        self.deliver(b"a1", b"b1", keys="AB")
        self.clock.pump([10] * 2)
        self.assertEqual(self.given_back(), [1])

    def test_queue_given_up_ends_the_tries(self):
        self.failing[b"a1"] = ValueError()
        self.begin()
        self.deliver(b"a1", keys="A")
        self.result_of(self.consumer.give_up(list(self.consumer.assigned)))
        self.clock.pump([1] * 10)
        self.assertEqual(self.tries, [b"a1"])

    def test_stop_leaves_a_resting_message_in_place(self):
        self.failing[b"a1"] = ValueError()
        self.begin()
        self.deliver(b"a1", b"b1", keys="AB")
        self.end_of(self.consumer.stop())
        self.assertEqual((self.cluster.offsets["a:10911", "T"], self.given_back()), (0, []))
        self.clock.pump([1] * 10)
        self.assertEqual(self.tries, [b"a1", b"b1"])

    def test_handler_failing_within_grace_leaves_no_timer(self):
        handling = Deferred()

        async def handle(message):
            await handling
            raise Retry(delay=86_400)

        consumer = self.start(handle, order="key")
        self.deliver(b"a1", keys="A")
        stopped = Deferred.fromCoroutine(consumer.stop())
        handling.callback(None)
        self.successResultOf(stopped)
        self.assertEqual([call for call in self.clock.getDelayedCalls() if call.getTime() > 80_000], [])
        self.assertEqual((self.cluster.offsets["a:10911", "T"], self.given_back()), (0, []))

    def test_suspended_consumer_tries_after_resume(self):
        self.failing[b"a1"] = ValueError()
        self.begin()
        self.deliver(b"a1", keys="A")
        self.consumer.stop_taking()
        self.clock.pump([1] * 5)
        self.assertEqual(self.tries, [b"a1"])
        self.failing.clear()
        self.consumer.resume()
        self.assertEqual(self.tries, [b"a1", b"a1"])
