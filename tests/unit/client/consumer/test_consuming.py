"""Push consumers with failing handlers, with keys, and with a changing concurrency, on a fake clock."""

from datetime import timedelta
from threading import Barrier, Lock

from twisted.internet.defer import Deferred
from twisted.logger import formatEvent, globalLogPublisher

from rocketd.client.consumer.lite_pull_consumer import LitePullConsumerEngine
from rocketd.client.consumer.options.flow_limits import FlowLimits
from rocketd.client.consumer.options.kind_options import ConsumerOptions, LitePullOptions
from rocketd.client.consumer.push_consumer import LET_END_SECONDS
from rocketd.client.consumer.retries.handler_results import Reject, Retry
from rocketd.client.errors import IllegalOptionError
from rocketd.client.messages.codec import JsonCodec
from rocketd.common.logs.throttle import INTERVAL
from rocketd.common.message_properties import decode_properties
from rocketd.common.sysflag import TRANSACTION_COMMIT
from rocketd.protocol.compression import compress
from rocketd.remoting.bodies.admin import ConsumeStatus
from rocketd.remoting.wire.codes import RequestCode
from rocketd.remoting.wire.command import RemotingCommand
from tests.support.client_cluster import THREAD_LIMIT
from tests.support.consuming import ORDERS, ConsumingTestCase


class CancelledHandlerTests(ConsumingTestCase):
    """A handler that awaits a cancelled Deferred has failed; the consumer does not stop."""

    def consume_cancelled(self, **options):
        """Cancel the first try of the second of three messages; return the consumer and the handled bodies."""
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
        self.assertEqual((handled, self.given_back()), ([b"one", b"two"], []))
        self.clock.advance(1)
        self.assertEqual(handled, [b"one", b"two", b"two", b"three"])
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

    def test_system_exit_in_handler_does_not_end_the_queue(self):
        """SystemExit ends the handler only, as sys.exit ends only its thread."""
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

    def test_key_function_raises_gives_message_back(self):
        handled = self.consume_by_key(lambda message: message.body["n"], b'{"m": 2}')
        self.check_given_back_without_the_handler(handled, "KeyError")

    def test_key_without_hash_gives_message_back(self):
        handled = self.consume_by_key(
            lambda message: [2] if "m" in message.body else message.body["n"],
            b'{"m": 2}',
        )
        self.check_given_back_without_the_handler(handled, "TypeError")

    def test_undecodable_body_gives_message_back(self):
        handled = self.consume_by_key(lambda message: message.body["n"], b"no JSON")
        self.check_given_back_without_the_handler(handled, "IllegalMessageError")

    def test_undecodable_body_without_key_function_gives_message_back(self):
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

    def test_handler_gets_at_most_as_many_messages_as_the_option_says(self):
        handled = []

        async def handler(messages):
            handled.append([message.body for message in messages])

        self.start(handler, batch=4)
        self.feed()
        self.assertEqual([len(batch) for batch in handled], [4, 4, 2])
        self.assertEqual([item for batch in handled for item in batch], [b"%d" % n for n in range(10)])

    def test_defaults_are_20_at_once_one_message_each_and_pulls_of_32(self):
        running = []

        async def handler(message):
            running.append(message.body)
            await Deferred()

        self.start(handler)
        self.deliver(*[b"%d" % n for n in range(30)])
        self.assertEqual(len(running), 20)
        self.assertEqual({fields["maxMsgNums"] for _, fields in self.cluster.of(11)}, {"32"})

    def test_pull_asks_for_as_many_messages_as_the_option_says(self):
        async def handler(message):
            pass

        self.start(handler, pull_batch=7)
        self.assertEqual({fields["maxMsgNums"] for _, fields in self.cluster.of(11)}, {"7"})

    def test_in_order(self):
        self.cluster.queues = 10

        def feed():
            for queue_id in range(10):
                self.cluster.deliver("a:10911", [(b"x", ""), (b"y", "")], 0, queue_id=queue_id)

        self.feed = feed
        self.assertEqual(self.running_at_once(order="queue"), [2, 5, 1, 1])

    def test_functions_get_threads(self):
        barrier, lock, running, limit = Barrier(4), Lock(), [0], [0]

        def handler(message):
            with lock:
                running[0] += 1
                limit[0] = max(limit[0], running[0])
            barrier.wait(THREAD_LIMIT)
            with lock:
                running[0] -= 1

        consumer = self.start(handler, concurrency=1, order="key")
        consumer.set_concurrency(4)
        self.deliver(*[b"%d" % n for n in range(4)], keys=[f"k{n}" for n in range(4)])
        while consumer.threads.running:
            self.clock.run_call()
        self.assertEqual(limit, [4])
        self.end_of(consumer.stop())

    def test_set_concurrency_refuses_same_values_as_option(self):
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


class PartlyDoneTests(ConsumingTestCase):
    """A handler of batches says with Retry how many of its messages it has done."""

    def consume(self, answers, **options):
        handled = []

        async def handler(messages):
            handled.append([message.body for message in messages])
            return answers.pop(0) if answers else None

        consumer = self.start(handler, batch=4, **options)
        self.deliver(*[b"%d" % n for n in range(6)])
        return consumer, handled

    def test_at_once(self):
        consumer, handled = self.consume([Retry(delay=10, done=1)])
        self.assertEqual(handled, [[b"0", b"1", b"2", b"3"], [b"4", b"5"]])
        self.assertEqual(self.given_back(), [1, 2, 3])
        self.assertEqual({fields["delayLevel"] for _, fields in self.cluster.of(36)}, {"3"})
        self.assertEqual(self.stored(), 6)
        status = consumer.running_info(False).status_table["T"]
        self.assertEqual((status.consume_ok_tps * 60, status.consume_failed_tps * 60), (3, 3))

    def test_all_is_done(self):
        _, handled = self.consume([Retry(done=4), Retry(done=99)])
        self.assertEqual((len(handled), self.given_back()), (2, []))
        self.assertEqual(self.stored(), 6)

    def test_none_is_done(self):
        self.consume([Retry(), Retry(done=0)])
        self.assertEqual(self.given_back(), [0, 1, 2, 3, 4, 5])

    def test_in_order(self):
        """The queue goes on with the messages not done; meanwhile its offset is that of the first of them."""
        _, handled = self.consume([Retry(delay=7, done=3)], order="queue")
        self.assertEqual(handled, [[b"0", b"1", b"2", b"3"]])
        self.assertEqual(self.stored(), 3)
        self.clock.advance(2)
        self.assertEqual(handled[1:], [[b"3", b"4", b"5"]])
        self.assertEqual(self.given_back(), [])
        self.assertEqual(self.stored(), 6)

    def test_done_count_of_wrong_type_or_sign_is_refused(self):
        for done in (-1, 1.5, True, "2", None):
            with self.assertRaisesRegex(IllegalOptionError, "done="):
                Retry(done=done)


class PauseTests(ConsumingTestCase):
    def test_paused_queue_and_suspended_consumer_get_nothing_more(self):
        """Also the message for which a pull waits at the broker."""
        for pause, go_on in (
            (lambda consumer: consumer.pause(consumer.queues()), lambda consumer: consumer.unpause(consumer.queues())),
            (lambda consumer: consumer.suspend(), lambda consumer: consumer.resume()),
        ):
            self.setUp()
            handled = []

            async def handler(message, handled=handled):
                handled.append(message.body)

            consumer = self.start(handler)
            self.deliver(b"one")
            pause(consumer)
            self.assertEqual(self.cluster.pulls("T"), {})
            self.clock.advance(30)
            self.assertEqual(self.cluster.pulls("T"), {})
            go_on(consumer)
            self.clock.advance(1)
            self.deliver(b"two", begin=1)
            self.assertEqual(handled, [b"one", b"two"])


class ResultTests(ConsumingTestCase):
    """Results of a handler that are easily mistaken."""

    def consume(self, result, **options):
        """Deliver a message to a handler with this result, and wait for a second. Return how often it came."""
        handled = []

        async def handler(message):
            handled.append(message)
            return result()

        self.start(handler, **options)
        self.deliver(b"one")
        self.clock.advance(1)
        return len(handled)

    def test_retry_with_a_text_as_delay_is_a_failure_of_the_handler(self):
        """Its first argument is the delay. The message once stood still for ever."""
        by_key = {"order": "key", "key": lambda message: "same"}
        cases = (({}, 1, [0]), ({"batch": 4}, 1, [0]), ({"order": "queue"}, 2, []), (by_key, 2, []))
        for options, times, given_back in cases:
            with self.subTest(options=options):
                self.setUp()
                self.assertEqual(self.consume(lambda: Retry("the bank is away"), **options), times)
                self.assertEqual(self.given_back(), given_back)
                self.assertIn("delay='the bank is away'", self.lines[0])

    def test_class_of_a_result_is_that_result(self):
        for options in ({}, {"batch": 4}, {"order": "queue"}, {"order": "key"}):
            with self.subTest(options=options):
                self.setUp()
                self.assertEqual(self.consume(lambda: Reject, **options), 1)
                self.assertEqual([fields["delayLevel"] for _, fields in self.cluster.of(36)], ["-1"])

    def test_class_that_cannot_be_made_without_arguments_is_a_failure_of_the_handler(self):
        self.consume(lambda: UnicodeDecodeError)
        self.assertEqual(self.given_back(), [0])
        self.assertIn("TypeError", self.lines[0])

    def test_delay_of_wrong_type_or_sign_is_refused(self):
        for delay in ("soon", -1, float("nan"), float("inf"), True, timedelta(seconds=-1)):
            with self.assertRaisesRegex(IllegalOptionError, "delay="):
                Retry(delay)
        self.assertEqual(Retry(0).delay_level, 1)
        self.assertEqual(Retry(timedelta(seconds=7)).delay_seconds, 7)


class OtherBrokerTests(ConsumingTestCase):
    """A message that its broker does not take back goes to the retry topic of another one, as Java's does."""

    def setUp(self):
        super().setUp()
        self.cluster.brokers.append("b")
        self.cluster.topics.add("%RETRY%cg")
        self.cluster.refusals[36, "a:10911"] = 1

    def consume(self, answer, *, begin=0, properties="", times=1, **options):
        handled = []

        async def handler(message):
            handled.append(message.reconsume_times)
            if len(handled) <= times:
                raise answer

        consumer = self.start(handler, **options)
        self.cluster.deliver("a:10911", [(b"one", f"KEYS\x01k\x02WAIT\x01true{properties}")], begin)
        return consumer, handled

    def retry(self):
        """The one message that was sent: address, header and properties."""
        ((address, fields),) = self.cluster.of(310)
        return address, fields, decode_properties(fields["i"])

    def refuse_all(self):
        for broker in ("a", "b"):
            self.cluster.refusals[310, f"{broker}:10911"] = 14

    def test_retry_message_has_expected_fields(self):
        _, handled = self.consume(RuntimeError("not now"), properties="\x02TRAN_MSG\x01true\x02TIMER_DELIVER_MS\x015")
        _, fields, table = self.retry()
        self.assertEqual((fields["a"], fields["b"]), ("CLIENT_INNER_PRODUCER", "%RETRY%cg"))
        self.assertEqual((fields["j"], fields["l"]), ("1", "17"))
        self.assertEqual([request.body for code, *_, request in self.cluster.asked if code == 310], [b"one"])
        self.assertEqual(
            table,
            {
                "KEYS": "k",
                "WAIT": "true",
                "RETRY_TOPIC": "T",
                "ORIGIN_MESSAGE_ID": "0A000001000000010000000000000064",
                "DELAY": "3",
            },
        )
        self.assertEqual(handled, [0])
        self.assertEqual(self.stored(), 1)

    def test_body_stays_compressed_and_the_transaction_is_over(self):
        bodies = []

        async def handler(message):
            bodies.append(message.body)
            raise RuntimeError("no")

        self.start(handler)
        packed, sys_flag = compress(b"long " * 1000)
        self.cluster.deliver("a:10911", [(packed, "")], 0, sys_flag=sys_flag | TRANSACTION_COMMIT)
        _, fields, _ = self.retry()
        self.assertEqual(bodies, [b"long " * 1000])
        self.assertEqual(int(fields["f"]), sys_flag)
        self.assertEqual([request.body for code, *_, request in self.cluster.asked if code == 310], [packed])

    def test_retry_message_has_delay_of_handler(self):
        self.consume(Retry(delay=60))
        self.assertEqual(self.retry()[2]["DELAY"], "5")

    def test_message_of_retry_topic_keeps_its_origin(self):
        """The origin properties stay; the delay level rises."""
        self.cluster.reconsume_times = 4
        self.consume(RuntimeError("no"), properties="\x02RETRY_TOPIC\x01Origin\x02ORIGIN_MESSAGE_ID\x01ABC")
        _, fields, table = self.retry()
        self.assertEqual((table["RETRY_TOPIC"], table["ORIGIN_MESSAGE_ID"], table["DELAY"]), ("Origin", "ABC", "7"))
        self.assertEqual((fields["j"], fields["l"]), ("5", "17"))

    def check_dead(self):
        """A broker compares the tries with the limit in the header, not with the group's limit."""
        _, fields, table = self.retry()
        self.assertGreaterEqual(int(fields["j"]), int(fields["l"]))
        self.assertNotIn("DELAY", table)

    def test_rejected_message_becomes_dead_letter(self):
        self.consume(Reject())
        self.check_dead()

    def test_message_at_retry_limit_becomes_dead_letter(self):
        self.cluster.reconsume_times = 2
        self.consume(RuntimeError("no"), max_reconsume_times=2)
        self.check_dead()

    def test_message_below_retry_limit_is_retried(self):
        self.cluster.reconsume_times = 1
        self.consume(RuntimeError("no"), max_reconsume_times=2)
        _, fields, _ = self.retry()
        self.assertEqual((fields["j"], fields["l"]), ("2", "3"))

    def test_orderly_dead_letter(self):
        self.consume(RuntimeError("no"), order="queue", max_reconsume_times=0)
        self.check_dead()
        self.assertEqual(self.stored(), 1)

    def test_local_tries_count_if_no_broker_takes_the_message(self):
        """The handler has it as often as it may, and then no more, until a broker takes it."""
        self.refuse_all()
        consumer, handled = self.consume(RuntimeError("no"), times=99, max_reconsume_times=2)
        self.clock.pump([5] * 2)
        self.assertEqual(handled, [0, 1, 2])
        self.clock.pump([5] * 3)
        self.assertEqual(handled, [0, 1, 2])
        levels = [fields["delayLevel"] for _, fields in self.cluster.of(36)]
        self.assertEqual(levels, ["0", "0", "-1", "-1", "-1", "-1"])
        self.assertEqual(self.stored(), 0)
        self.cluster.refusals.clear()
        self.clock.advance(5)
        self.assertEqual(self.stored(), 1)
        self.assertEqual(self.cluster.of(36)[-1][1]["delayLevel"], "-1")
        self.end_of(consumer.stop())

    def test_local_tries_end_when_the_handler_succeeds(self):
        self.refuse_all()
        _, handled = self.consume(RuntimeError("no"), times=2)
        self.clock.pump([5] * 2)
        self.assertEqual(handled, [0, 1, 2])
        self.assertEqual(self.stored(), 1)

    def test_rejected_message_is_not_handled_again(self):
        self.refuse_all()
        consumer, handled = self.consume(Reject(), times=99)
        self.clock.pump([5] * 3)
        self.assertEqual(handled, [0])
        self.assertEqual(len(self.cluster.of(36)), 4)
        self.end_of(consumer.stop())
        self.clock.advance(60)
        self.assertEqual(len(self.cluster.of(36)), 4)

    def test_expired_message(self):
        """Its delay is the same each time."""
        endless = Deferred()

        async def handler(message):
            await endless

        self.cluster.reconsume_times = 4
        consumer = self.start(handler, consume_timeout=60)
        self.deliver(b"slow")
        self.clock.advance(60)
        self.assertEqual(self.cluster.of(310), [])
        self.clock.advance(60)
        ((_, fields),) = self.cluster.of(36)
        self.assertEqual((fields["delayLevel"], self.retry()[2]["DELAY"]), ("3", "3"))
        self.assertEqual(self.stored(), 1)
        endless.callback(None)
        self.end_of(consumer.stop())


class SlowGiveBackTests(ConsumingTestCase):
    """The broker takes its time when a message is given back."""

    def test_failed_message_does_not_expire_while_it_is_given_back(self):
        answer = Deferred()
        self.cluster.answer_36 = lambda address, request, fields: answer

        async def handler(message):
            raise ValueError

        consumer = self.start(handler, consume_timeout=60)
        self.deliver(b"fails")
        for _ in range(3):
            self.clock.advance(60)
        self.assertEqual(self.given_back(), [0])
        answer.callback(RemotingCommand.response(0))
        self.assertEqual(self.stored(), 1)
        self.end_of(consumer.stop())

    def test_queue_dropped_while_an_expired_message_is_given_back_gives_back_no_other(self):
        answer = Deferred()
        self.cluster.answer_36 = lambda address, request, fields: answer
        endless = Deferred()

        async def handler(message):
            await endless

        consumer = self.start(handler, consume_timeout=60)
        self.deliver(b"slow", b"slow too")
        for _ in range(2):
            self.clock.advance(60)
        self.assertEqual(self.given_back(), [0])
        (queue,) = [queue for queue in consumer.assigned if queue.topic == "T"]
        giving = Deferred.fromCoroutine(consumer.give_up([queue]))
        self.clock.advance(LET_END_SECONDS)
        self.successResultOf(giving)
        answer.callback(RemotingCommand.response(0))
        self.assertEqual(self.given_back(), [0])
        endless.callback(None)
        self.end_of(consumer.stop())


class FiguresTests(ConsumingTestCase):
    """Figures that mqadmin consumerStatus shows."""

    def status(self, consumer, topic="T"):
        return consumer.running_info(False).status_table[topic]

    def test_times_and_rates(self):
        waiting = []

        async def handler(message):
            waiting.append(Deferred())
            if await waiting[-1]:
                raise RuntimeError("no")

        consumer = self.start(handler)
        self.assertEqual(self.status(consumer), ConsumeStatus())
        self.clock.advance(4)
        self.deliver(b"one", b"two", b"three")
        self.clock.advance(1)
        waiting[0].callback(False)
        self.clock.advance(1)
        waiting[1].callback(False)
        self.clock.advance(4)
        waiting[2].callback(True)
        self.deliver(b"four", b"five", b"six", begin=3)
        for done in waiting[3:]:
            done.callback(False)
        status = self.status(consumer)
        self.assertEqual(status.pull_rt, (4000 + 6000) / 2)
        self.assertEqual(status.pull_tps, 6 / 60)
        self.assertEqual(status.consume_rt, (1000 + 2000 + 6000) / 6)
        self.assertEqual((status.consume_ok_tps, status.consume_failed_tps), (5 / 60, 1 / 60))
        self.assertEqual(status.consume_failed_msgs, 1)
        # Rates are those of the last minute, failures those of the last hour.
        self.clock.advance(61)
        self.assertEqual(self.status(consumer), ConsumeStatus(consume_failed_msgs=1))
        self.clock.advance(3600)
        self.assertEqual(self.status(consumer), ConsumeStatus())

    def test_batch_counts_its_handling_time_once(self):
        waiting = []

        async def handler(messages):
            waiting.append(Deferred())
            await waiting[-1]

        consumer = self.start(handler, batch=8)
        self.deliver(*[b"x"] * 8)
        self.clock.advance(2)
        waiting[0].callback(None)
        self.assertEqual(self.status(consumer).consume_rt, 2000)

    def test_in_order(self):
        waiting = []

        async def handler(message):
            waiting.append(Deferred())
            await waiting[-1]

        consumer = self.start(handler, order="queue")
        self.clock.advance(3)
        self.deliver(b"one")
        self.clock.advance(2)
        waiting[0].callback(None)
        status = self.status(consumer)
        self.assertEqual((status.pull_rt, status.consume_rt, status.consume_ok_tps), (3000, 2000, 1 / 60))


class LockTests(ConsumingTestCase):
    def test_queue_whose_lock_is_not_confirmed_for_30_seconds_is_not_handled(self):
        handled = []

        async def handler(message):
            handled.append(message.body)

        self.start(handler, order="queue")
        self.cluster.refusals[RequestCode.LOCK_BATCH_MQ, "a:10911"] = 1
        self.clock.pump([1] * 32)
        self.deliver(b"one")
        self.clock.pump([1] * 5)
        self.assertEqual(handled, [])
        del self.cluster.refusals[RequestCode.LOCK_BATCH_MQ, "a:10911"]
        self.clock.pump([1] * 5)
        self.assertEqual(handled, [b"one"])


class FlowTests(ConsumingTestCase):
    """When the next pull waits."""

    def waits(self, queue_id=0):
        """Whether no pull of the queue is at the broker."""
        return not [
            1 for _, fields, held in self.cluster.held if not held.called and fields["queueId"] == str(queue_id)
        ]

    def hold(self, count=8, **options):
        """Have so many messages held, of which the handler has the first one; each is done when it fires."""
        self.begun = []

        async def handler(message):
            self.begun.append(Deferred())
            await self.begun[-1]

        consumer = self.start(handler, concurrency=1, **options)
        self.deliver(*[b"x"] * count)
        return consumer

    def finish(self):
        while self.begun:
            self.begun.pop(0).callback(None)

    def test_messages_of_a_queue(self):
        self.hold(limits=FlowLimits(messages=7))
        self.assertTrue(self.waits())
        self.begun.pop(0).callback(None)
        self.assertFalse(self.waits())
        self.finish()

    def test_full_queue_is_logged_once_a_minute_with_a_count(self):
        events = []
        globalLogPublisher.addObserver(events.append)
        self.addCleanup(globalLogPublisher.removeObserver, events.append)
        self.hold(limits=FlowLimits(messages=7))
        self.clock.pump([0.5] * 2 * int(INTERVAL))
        first, second = [formatEvent(event) for event in events if "reason" in event]
        self.assertTrue(second.startswith(first), second)
        self.assertRegex(second, r" \(\d+ more like this were not logged\)$")
        self.finish()

    def test_topic_limit_is_shared_anew_after_rebalance(self):
        self.cluster.queues = 2
        consumer = self.hold(limits=FlowLimits(messages=1, topic_messages=12))
        self.assertTrue(self.waits(0))
        self.assertFalse(self.waits(1))
        self.cluster.others = ("zzz",)
        self.cluster.request(40, {"consumerGroup": "cg"})
        self.assertEqual([queue.queue_id for queue in consumer.queues()], [0])
        self.clock.advance(0.05)
        self.assertFalse(self.waits(0))
        self.finish()

    def test_span_does_not_count_in_order(self):
        for order, waits in (("none", True), ("key", True), ("queue", False)):
            consumer = self.hold(order=order, limits=FlowLimits(max_span=5), group=f"cg-{order}")
            self.assertEqual(self.waits(), waits, order)
            self.finish()
            self.end_of(consumer.stop())
            self.cluster.offsets.clear()

    def test_limits_of_a_polled_consumer(self):
        consumer = LitePullConsumerEngine(
            self.client, "cg", options=LitePullOptions(begin="earliest", limits=FlowLimits(topic_messages=4))
        )
        consumer.subscribe("T")
        self.result_of(consumer.start())
        self.deliver(*[b"x"] * 5)
        self.assertTrue(self.waits())
        self.assertEqual(len(self.result_of(consumer.poll())), 5)
        self.assertFalse(self.waits())

    def test_running_info_has_topic_limits(self):
        more = {"topic_messages": 500, "topic_size_mib": 60}
        for limits, told in ((FlowLimits(), ("-1", "-1")), (FlowLimits(**more), ("500", "60"))):
            consumer = self.hold(limits=limits, group=f"cg{limits.topic_messages}")
            properties = consumer.running_info(False).properties
            self.assertEqual((properties["pullThresholdForTopic"], properties["pullThresholdSizeForTopic"]), told)
            self.finish()
            self.end_of(consumer.stop())
