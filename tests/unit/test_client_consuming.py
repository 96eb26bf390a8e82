"""What a consumer makes of handlers that fail, of keys, and of a concurrency that changes; on a fake clock."""

from threading import Barrier, Lock

from twisted.internet.defer import Deferred
from twisted.logger import formatEvent, globalLogPublisher

from rocketd.client.codec import BYTES, JsonCodec
from rocketd.client.consumer.options import ConsumerOptions
from rocketd.client.consumer.push_consumer import PushConsumer
from rocketd.client.errors import IllegalOptionError
from tests.unit.client_cluster import THREAD_LIMIT, ClientTestCase

ORDERS = ("none", "queue", "key")


class ConsumingTestCase(ClientTestCase):
    """Has a cluster, of whose two brokers one has the messages; ``lines`` is what the log says from warnings on."""

    def setUp(self):
        super().setUp()
        self.cluster.brokers.remove("b")
        self.lines = []

        def observe(event):
            if event["log_level"].name in ("warn", "error", "critical"):
                self.lines.append(formatEvent(event))

        globalLogPublisher.addObserver(observe)
        self.addCleanup(globalLogPublisher.removeObserver, observe)

    def start(self, listener, codec=BYTES, group="cg", **options):
        consumer = PushConsumer(
            self.client, group, listener, options=ConsumerOptions(start="earliest", **options), codec=codec
        )
        consumer.subscribe("T")
        self.result_of(consumer.start())
        return consumer

    def deliver(self, *bodies, begin=0, keys=None):
        """Answer the pull that waits with these bodies."""
        keys = keys or [""] * len(bodies)
        self.cluster.deliver(
            "a:10911", [(body, f"KEYS\x01{key}") for body, key in zip(bodies, keys, strict=True)], begin
        )

    def stored(self):
        """The offset that the group has got to."""
        self.clock.advance(5)
        return self.cluster.offsets["a:10911", "T"]

    def given_back(self):
        return [int(fields["offset"]) - 100 for _, fields in self.cluster.of(36)]


class CancelledHandlerTests(ConsumingTestCase):
    """A handler may await what somebody cancels: that is its failure, and no wish to stop."""

    def consume_cancelled(self, **options):
        """Have the first message fail so at its first try, with others before and after; return what was handled."""
        handled = []

        async def handler(message):
            if message.body == b"two" and message.reconsume_times == 0 and b"two" not in handled:
                handled.append(message.body)
                cancelled = Deferred()
                cancelled.cancel()
                await cancelled
            handled.append(message.body)

        consumer = self.start(handler, **options)
        self.deliver(b"one", b"two", b"three")
        return consumer, handled

    def check_goes_on(self, consumer, handled):
        self.assertFalse(consumer.suspended)
        self.assertEqual(len(self.lines), 1, self.lines)
        self.assertRegex(self.lines[0], r"handler failed on .* at 1: CancelledError\(\)")
        before = len(handled)
        self.deliver(b"four", begin=3)
        self.assertEqual(handled[before:], [b"four"])
        self.assertEqual(self.stored(), 4)
        self.end_of(consumer.stop())

    def test_at_once(self):
        consumer, handled = self.consume_cancelled()
        self.assertEqual((handled, self.given_back()), ([b"one", b"two", b"three"], [1]))
        self.check_goes_on(consumer, handled)

    def test_by_key(self):
        consumer, handled = self.consume_cancelled(order="key", key=lambda message: "same")
        self.assertEqual((handled, self.given_back()), ([b"one", b"two", b"three"], [1]))
        self.check_goes_on(consumer, handled)

    def test_in_order(self):
        consumer, handled = self.consume_cancelled(order="queue")
        self.assertEqual((handled, self.given_back()), ([b"one", b"two"], []))
        self.clock.advance(1)
        self.assertEqual(handled, [b"one", b"two", b"two", b"three"])
        self.check_goes_on(consumer, handled)

    def test_cancelled_by_stopping_leaves_the_message(self):
        for order in ORDERS:
            endless = Deferred()

            async def handler(message, endless=endless):
                await endless

            consumer = self.start(handler, order=order, grace=2, group=f"cg-{order}")
            self.cluster.deliver("a:10911", [(b"one", "")], 0)
            stopping = Deferred.fromCoroutine(consumer.stop())
            self.clock.advance(2)
            self.end_of(stopping)
            self.assertEqual(self.cluster.offsets.pop(("a:10911", "T")), 0, order)
        self.assertEqual(self.given_back(), [])
        self.assertEqual(len(self.lines), len(ORDERS), self.lines)
        for line in self.lines:
            self.assertRegex(line, "1 handlers are cancelled")

    def test_what_ends_programs_does_not_end_the_queue(self):
        """As sys.exit in a thread, where it ends nothing but the handler."""
        for order in ORDERS:
            tries = []

            def handler(message, tries=tries):
                tries.append(message.body)
                if len(tries) == 1:
                    raise SystemExit

            consumer = self.start(handler, order=order, group=f"cg-{order}")
            self.cluster.deliver("a:10911", [(b"one", "")], 0)
            self.clock.run_call()
            if order == "queue":
                self.clock.advance(1)
                self.clock.run_call()
            self.assertEqual(self.stored(), 1, order)
            del self.cluster.offsets["a:10911", "T"]
            self.assertEqual(len(tries), 2 if order == "queue" else 1)
            self.end_of(consumer.stop())
        self.assertEqual(self.given_back(), [0, 0])


class FailingKeyTests(ConsumingTestCase):
    def check_given_back_without_the_handler(self, handled, error):
        self.assertEqual((handled, self.given_back()), ([{"n": 1}, {"n": 3}], [1]))
        self.assertEqual(len(self.lines), 1, self.lines)
        self.assertRegex(self.lines[0], rf"the key for .* failed on .* at 1: {error}")
        self.assertEqual(self.cluster.pulls(), {"a:10911": 3})
        self.assertEqual(self.stored(), 3)

    def consume_by_key(self, key, second):
        handled = []

        async def handler(message):
            handled.append(message.body)

        self.start(handler, order="key", key=key, codec=JsonCodec())
        self.deliver(b'{"n": 1}', second, b'{"n": 3}')
        return handled

    def test_function_that_raises(self):
        handled = self.consume_by_key(lambda message: message.body["n"], b'{"m": 2}')
        self.check_given_back_without_the_handler(handled, "KeyError")

    def test_key_that_has_no_hash(self):
        handled = self.consume_by_key(
            lambda message: [2] if "m" in message.body else message.body["n"],
            b'{"m": 2}',
        )
        self.check_given_back_without_the_handler(handled, "TypeError")

    def test_body_that_the_codec_cannot_read(self):
        handled = self.consume_by_key(lambda message: message.body["n"], b"no JSON")
        self.check_given_back_without_the_handler(handled, "IllegalMessageError")

    def test_body_that_the_codec_cannot_read_without_a_function(self):
        handled = []

        async def handler(message):
            handled.append(message.body)

        self.start(handler, order="key", codec=JsonCodec())
        self.deliver(b"1", b"no JSON", b"3", keys=["k", "k", "k"])
        self.assertEqual((handled, self.given_back()), ([1, 3], [1]))
        self.assertEqual(self.stored(), 3)


class ConcurrencyTests(ConsumingTestCase):
    def running_at_once(self, **options):
        """Return how many handlers of ten messages run at once with concurrency 2, then 5, then 1."""
        waiting = []

        async def handler(message):
            done = Deferred()
            waiting.append(done)
            await done

        consumer = self.start(handler, concurrency=2, **options)
        self.feed()
        counts = [len(waiting)]
        consumer.set_concurrency(5)
        counts.append(len(waiting))
        consumer.set_concurrency(1)
        while len(waiting) > 1:
            waiting.pop(0).callback(None)
        counts.append(len(waiting))
        waiting.pop(0).callback(None)
        counts.append(len(waiting))
        while waiting:
            waiting.pop(0).callback(None)
        return counts

    def feed(self):
        self.deliver(*[b"%d" % n for n in range(10)], keys=[f"k{n}" for n in range(10)])

    def test_at_once(self):
        self.assertEqual(self.running_at_once(), [2, 5, 1, 1])

    def test_by_key(self):
        self.assertEqual(self.running_at_once(order="key"), [2, 5, 1, 1])

    def test_in_order(self):
        self.cluster.queues = 10

        def feed():
            for queue_id in range(10):
                self.cluster.deliver("a:10911", [(b"x", ""), (b"y", "")], 0, queue_id=queue_id)

        self.feed = feed
        self.assertEqual(self.running_at_once(order="queue"), [2, 5, 1, 1])

    def test_functions_get_threads(self):
        barrier, lock, running, most = Barrier(4), Lock(), [0], [0]

        def handler(message):
            with lock:
                running[0] += 1
                most[0] = max(most[0], running[0])
            barrier.wait(THREAD_LIMIT)
            with lock:
                running[0] -= 1

        consumer = self.start(handler, concurrency=1, order="key")
        consumer.set_concurrency(4)
        self.deliver(*[b"%d" % n for n in range(4)], keys=[f"k{n}" for n in range(4)])
        while consumer.threads.running:
            self.clock.run_call()
        self.assertEqual(most, [4])
        self.end_of(consumer.stop())

    def test_refuses_what_the_option_refuses(self):
        async def handler(message):
            pass

        consumer = self.start(handler)
        for concurrency in (0, -1, 1001, True, 2.0, "3", None):
            with self.assertRaisesRegex(IllegalOptionError, "concurrency="):
                consumer.set_concurrency(concurrency)
            with self.assertRaisesRegex(IllegalOptionError, "concurrency="):
                ConsumerOptions(concurrency=concurrency)
        self.assertEqual(consumer.concurrency, 20)
        consumer.set_concurrency(1000)
        self.assertEqual(consumer.concurrency, 1000)
