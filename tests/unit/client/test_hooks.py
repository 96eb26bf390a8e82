"""Hooks of producers and consumers, and the traces that are told by them, against scripted brokers."""

from twisted.internet.defer import Deferred, succeed

from rocketd.client.consumer.lite_pull_consumer import LitePullConsumerEngine
from rocketd.client.consumer.options.kind_options import ConsumerOptions, LitePullOptions
from rocketd.client.consumer.options.member_options import MemberOptions
from rocketd.client.consumer.pull_consumer import PullConsumerEngine, PullStatus
from rocketd.client.consumer.push_consumer import PushConsumerEngine
from rocketd.client.consumer.retries.handler_results import Retry
from rocketd.client.errors import BrokerError, IllegalOptionError, IllegalTopicError, SendForbiddenError
from rocketd.client.hooks import ConsumerHook, ProducerHook
from rocketd.client.messages.codec import BYTES, JsonCodec
from rocketd.client.messages.message import Message
from rocketd.client.producer.options import ProducerOptions
from rocketd.client.producer.producer import ProducerEngine
from rocketd.client.producer.transaction import TransactionState
from rocketd.client.trace.records import ConsumeReturnType, MessageType, TraceType, decode_records
from rocketd.common.names import TRACE_TOPIC
from rocketd.common.sysflag import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK
from rocketd.remoting.bodies.tables import MessageQueue
from rocketd.remoting.headers.client import CheckTransactionStateRequestHeader
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.store.format.message import MessageInner
from rocketd.store.format.record import decode_messages, encode_record
from tests.support.client_cluster import HOST, ClientTestCase


class Witness(ProducerHook):
    """Records the calls; ``meddle`` is called before each send."""

    def __init__(self, meddle=lambda context: None):
        self.meddle = meddle
        self.before = []
        self.after = []
        self.ends = []

    def send_before(self, context):
        self.before.append(context)
        self.meddle(context)

    def send_after(self, context):
        self.after.append(context)

    def end_transaction(self, context):
        self.ends.append(context)


class Doorman(ProducerHook):
    """Refuses a body."""

    asked = 0

    def check_forbidden(self, context):
        self.asked += 1
        if context.messages[0].body == b"bad":
            raise PermissionError("not today")


class Ledger:
    """Local transactions that end as their argument says, and are committed when asked for."""

    async def execute(self, message, arg, transaction_id):
        return arg

    async def check(self, message):
        return TransactionState.COMMIT


def traces_of(cluster, topic=TRACE_TOPIC):
    """The records that were sent to a trace topic, and the groups that sent them."""
    sent = [request for code, _, fields, request in cluster.asked if code == 310 and fields["b"] == topic]
    groups = {request.ext_fields["a"] for request in sent}
    return [context for request in sent for context in decode_records(request.body.decode())], groups


def broken(context):
    raise RuntimeError("broken hook")


class ProducerTestCase(ClientTestCase):
    def setUp(self):
        super().setUp()
        self.ends = []
        self.response = {}
        self.cluster.answer_310 = self.store
        self.cluster.answer_320 = self.store
        self.cluster.answer_37 = self.end

    def end(self, address, request, fields):
        self.ends.append(fields)
        return RemotingCommand.response(0)

    def store(self, address, request, fields):
        self.cluster.log.append(fields)
        header = {"msgId": f"{'0' * 16}{7:016X}", "queueId": fields["e"], "queueOffset": "5", **self.response}
        return RemotingCommand.response(0, ext_fields=header)

    def make(self, *hooks, transactions=None, **options):
        producer = ProducerEngine(
            self.client, "pg", options=ProducerOptions(send_hooks=hooks, **options), transactions=transactions
        )
        self.result_of(producer.start())
        self.addCleanup(lambda: self.end_of(producer.stop()))
        return producer


class ProducerHookTests(ProducerTestCase):
    def test_send_calls_hooks(self):
        witness = Witness()
        message = Message("T", b"hello", "A", delay_level=2)
        result = self.result_of(self.make(witness).send(message))
        (context,) = witness.after
        self.assertIs(witness.before[0], context)
        self.assertEqual((context.group, context.messages, context.queue.topic), ("pg", (message,), "T"))
        self.assertEqual(context.broker_address, f"{context.queue.broker_name}:10911")
        self.assertEqual((context.msg_id, context.body_length, context.oneway), (result.msg_id, 5, False))
        self.assertEqual((context.properties["TAGS"], context.message_type), ("A", MessageType.DELAY))
        self.assertEqual((context.result, context.error), (result, None))

    def test_each_try_calls_hooks(self):
        self.cluster.refusals = {(310, "a:10911"): 1, (310, "b:10911"): 1}
        witness = Witness()
        self.failure_of(self.make(witness).send(Message("T", b"hello")), BrokerError)
        self.assertEqual([(context.result, context.error.code) for context in witness.after], [(None, 1)] * 3)
        self.assertEqual(len({id(context) for context in witness.before}), 3)

    def test_batch_and_oneway_send_call_hooks(self):
        witness = Witness()
        producer = self.make(witness)
        results = self.result_of(producer.send_batch([Message("T", b"one"), Message("T", b"two")]))
        self.result_of(producer.send_oneway(Message("T", b"three")))
        batch, oneway = witness.after
        self.assertEqual([message.body for message in batch.messages], [b"one", b"two"])
        self.assertEqual(batch.msg_id, ",".join(result.msg_id for result in results))
        self.assertEqual((oneway.oneway, oneway.result, oneway.error), (True, None, None))

    def test_names_are_the_applications(self):
        self.cluster.topics.add("space%T")
        object.__setattr__(self.client.config, "namespace", "space")
        witness = Witness()
        self.result_of(self.make(witness).send(Message("T", b"hello")))
        self.assertEqual((witness.after[0].group, witness.after[0].queue.topic), ("pg", "T"))
        self.assertEqual(self.cluster.log[0]["b"], "space%T")

    def test_properties_added_by_hook_are_sent(self):
        message = Message("T", b"hello")
        self.result_of(self.make(Witness(lambda context: context.properties.update(span="s1"))).send(message))
        self.assertIn("span\x01s1", self.cluster.log[0]["i"])
        self.assertEqual(message.properties, {})

    def test_illegal_properties_added_by_hook_are_dropped(self):
        for value in ("a\x02b", "", 7, "x" * 40_000, "\ud800"):
            producer = self.make(Witness(lambda context, value=value: context.properties.update(span=value)))
            self.result_of(producer.send(Message("T", b"hello")))
            self.assertNotIn("span", self.cluster.log[-1]["i"])
            self.end_of(producer.stop())

    def test_failing_hook_does_not_fail_the_send(self):
        witness = Witness()
        self.result_of(self.make(Witness(broken), witness).send(Message("T", b"hello")))
        self.assertEqual(len(witness.after), 1)
        (failure,) = self.flushLoggedErrors(RuntimeError)
        self.assertEqual(str(failure.value), "broken hook")

    def test_forbidden_hook_refuses_the_send(self):
        witness, doorman = Witness(), Doorman()
        producer = self.make(doorman, witness)
        error = self.failure_of(producer.send(Message("T", b"bad")), SendForbiddenError)
        self.assertIsInstance(error.__cause__, PermissionError)
        self.assertIn("not today", str(error))
        self.assertEqual(doorman.asked, 1, "another broker was tried")
        self.failure_of(producer.send_oneway(Message("T", b"bad")), SendForbiddenError)
        self.assertEqual((self.cluster.log, witness.before), ([], []))
        self.result_of(producer.send(Message("T", b"good")))
        self.assertEqual(len(witness.after), 1)

    def test_transaction_end_calls_hooks(self):
        witness = Witness()
        producer = self.make(witness, transactions=Ledger())
        message = Message("T", b"hello", "A")
        sent = self.result_of(producer.send_in_transaction(message, TransactionState.ROLLBACK)).send_result
        (context,) = witness.ends
        self.assertEqual(witness.after[0].message_type, MessageType.TRANSACTION_HALF)
        self.assertEqual((context.group, context.message, context.properties["TAGS"]), ("pg", message, "A"))
        self.assertEqual((context.msg_id, context.transaction_id), (sent.msg_id, sent.msg_id))
        self.assertEqual((context.commit_or_rollback, context.from_check), (TRANSACTION_ROLLBACK, False))
        self.assertEqual(context.broker_address, f"{sent.queue.broker_name}:10911")
        self.assertEqual(len(self.ends), 1)

    def test_transaction_check_calls_hooks(self):
        witness = Witness(broken)
        producer = self.make(witness, transactions=Ledger())
        half = MessageInner("T", 0, 0, 0, 0, HOST, 0, 0, b"hello", b"UNIQ_KEY\x01KEY1", 0)
        (record,) = decode_messages(encode_record(half, HOST, 5, 100, 0))
        asked = CheckTransactionStateRequestHeader(tran_state_table_offset=5, commit_log_offset=100)
        producer.check_transaction("a:10911", asked, record)
        (context,) = witness.ends
        self.assertEqual((context.msg_id, context.transaction_id), ("KEY1", "KEY1"))
        self.assertEqual((context.commit_or_rollback, context.from_check), (TRANSACTION_COMMIT, True))
        self.assertEqual((context.broker_address, context.message.body), ("a:10911", b"hello"))
        self.assertEqual(self.ends[0]["commitOrRollback"], str(TRANSACTION_COMMIT))


class OptionTests(ClientTestCase):
    def test_object_without_hook_methods_is_refused(self):
        class Awaited(ProducerHook):
            async def send_after(self, context):
                """Would have to be awaited."""

        for hook in (object(), ProducerHook(), Awaited()):
            with self.assertRaisesRegex(IllegalOptionError, "send_hooks"):
                ProducerOptions(send_hooks=[hook])
        with self.assertRaisesRegex(IllegalOptionError, "consume_hooks"):
            ConsumerOptions(consume_hooks=[Witness()])

    def test_any_object_with_such_a_method_is_a_hook(self):
        class Plain:
            def send_after(self, context):
                """Has the name, that is all."""

        ProducerOptions(send_hooks=[Plain()])

    def test_trace_is_a_truth_or_a_topic(self):
        for options in (ProducerOptions, ConsumerOptions):
            with self.assertRaises(IllegalOptionError):
                options(trace=1)
            with self.assertRaises(IllegalTopicError):
                options(trace="no topic")


class Watcher(ConsumerHook):
    """Records the calls, and removes messages with this body."""

    def __init__(self, unwanted=None):
        self.unwanted = unwanted
        self.before = []
        self.after = []

    def consume_before(self, context):
        self.before.append(context)

    def consume_after(self, context):
        self.after.append(context)

    def filter_messages(self, context):
        context.messages[:] = [message for message in context.messages if message.body != self.unwanted]


class Clumsy(ConsumerHook):
    """Removes all messages, and fails then."""

    def filter_messages(self, context):
        context.messages.clear()
        broken(context)


class ConsumerTestCase(ClientTestCase):
    def setUp(self):
        super().setUp()
        self.got = []
        self.cluster.answer_36 = lambda *_: RemotingCommand.response(0)

    async def take(self, message):
        self.got.append(message.body)
        if message.body == b"later":
            raise Retry(1)
        if message.body == b"broken":
            raise RuntimeError("broken handler")
        if message.body == b"slow":
            done = Deferred()
            self.clock.callLater(5, done.callback, None)
            await done

    def start(self, *hooks, codec=BYTES, **options):
        options = ConsumerOptions(begin="earliest", consume_hooks=hooks, **options)
        consumer = PushConsumerEngine(self.client, "cg", self.take, options=options, codec=codec)
        consumer.subscribe("T")
        self.result_of(consumer.start())
        return consumer

    def stop(self, consumer):
        self.end_of(consumer.stop())

    def deliver(self, *bodies, properties=""):
        self.cluster.deliver("a:10911", [(body, properties) for body in bodies], self.cluster.pulls()["a:10911"])


class ConsumerHookTests(ConsumerTestCase):
    def test_consumption_calls_hooks_with_results(self):
        watcher = Watcher()
        consumer = self.start(watcher, consume_timeout=5.0)
        self.deliver(b"one", b"later", b"broken")
        self.deliver(b"slow")
        self.clock.advance(5)
        self.assertEqual([context.messages[0].body for context in watcher.before], self.got)
        told = [(context.messages[0].body, context.success, context.return_type) for context in watcher.after]
        self.assertEqual(
            told,
            [
                (b"one", True, ConsumeReturnType.SUCCESS),
                (b"later", False, ConsumeReturnType.FAILED),
                (b"broken", False, ConsumeReturnType.EXCEPTION),
                (b"slow", True, ConsumeReturnType.TIME_OUT),
            ],
        )
        context = watcher.after[2]
        self.assertEqual((context.group, context.queue.topic, str(context.error)), ("cg", "T", "broken handler"))
        self.stop(consumer)

    def test_ordered_consumption_calls_hooks(self):
        watcher = Watcher()
        consumer = self.start(watcher, order="queue")
        self.deliver(b"one", b"two")
        self.assertEqual([context.messages[0].body for context in watcher.after], [b"one", b"two"])
        self.stop(consumer)

    def test_message_removed_by_filter_is_not_handled(self):
        consumer = self.start(Watcher(b"unwanted"))
        self.deliver(b"one", b"unwanted", b"two", b"unwanted")
        self.assertEqual(self.got, [b"one", b"two"])
        self.stop(consumer)
        self.assertEqual(self.cluster.offsets["a:10911", "T"], 3)

    def test_failing_filter_removes_nothing(self):
        consumer = self.start(Clumsy(), Watcher(b"unwanted"))
        self.deliver(b"one", b"unwanted")
        self.assertEqual(self.got, [b"one"])
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)
        self.stop(consumer)

    def test_filter_does_not_see_undecodable_messages(self):
        watcher = Watcher("unwanted")
        consumer = self.start(watcher, codec=JsonCodec(str))
        self.deliver(b"no json", b'"one"', b'"unwanted"')
        self.assertEqual(self.got, ["one"])
        self.assertEqual([fields["offset"] for _, fields in self.cluster.of(36)], ["100"])  # it was given back
        self.assertEqual([context.messages[0].body for context in watcher.before], ["one"])
        self.stop(consumer)

    def test_direct_consumption_does_not_call_hooks(self):
        watcher = Watcher()
        consumer = self.start(watcher)
        one = MessageInner("T", 0, 0, 0, 0, HOST, 0, 0, b"one", b"", 0)
        (record,) = decode_messages(encode_record(one, HOST, 0, 100, 0))
        self.result_of(consumer.consume_directly(record, "a"))
        self.assertEqual((self.got, watcher.before, watcher.after), ([b"one"], [], []))
        self.stop(consumer)

    def test_failing_hook_does_not_fail_the_consumption(self):
        watcher = Watcher()
        watcher.consume_before = watcher.consume_after = broken
        consumer = self.start(watcher)
        self.deliver(b"one")
        self.assertEqual(self.cluster.pulls()["a:10911"], 1)
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 2)
        self.assertEqual(self.cluster.of(36), [])
        self.stop(consumer)


class Handled:
    """Records the calls about messages."""

    def __init__(self):
        self.told = []

    def consume_before(self, context):
        self.told.append(("before", context.queue.topic, [message.body for message in context.messages]))

    def consume_after(self, context):
        self.told.append(("after", context.success, context.return_type))

    def filter_messages(self, context):
        context.messages = [message for message in context.messages if message.body != b"no"]


BEFORE_ONE = ("before", "T", [b"one"])
SUCCEEDED = ("after", True, ConsumeReturnType.SUCCESS)


class AskedTests(ClientTestCase):
    """Consumers that are asked for messages."""

    def setUp(self):
        super().setUp()
        self.hook = Handled()

    def polls(self, **options):
        consumer = LitePullConsumerEngine(self.client, "cg", options=LitePullOptions(begin="earliest", **options))
        consumer.subscribe("T")
        self.result_of(consumer.start())
        return consumer

    def deliver(self, *bodies, begin=0):
        self.cluster.deliver("a:10911", [(body, "") for body in bodies], begin)

    def test_polled_messages_are_handled_until_the_next_poll(self):
        consumer = self.polls(consume_hooks=[self.hook])
        self.deliver(b"no", b"one")
        self.assertEqual([message.body for message in self.result_of(consumer.poll(0))], [b"one"])
        self.assertEqual(self.hook.told, [BEFORE_ONE])
        self.assertEqual(self.result_of(consumer.poll(0)), [])
        self.assertEqual(self.hook.told, [BEFORE_ONE, SUCCEEDED])
        self.result_of(consumer.poll(0))
        self.end_of(consumer.stop())
        self.assertEqual(self.hook.told, [BEFORE_ONE, SUCCEEDED])

    def test_stop_calls_hook_with_result_of_last_poll(self):
        for consumed in (True, False):
            consumer = self.polls(consume_hooks=[self.hook])
            begin = self.cluster.offsets.get(("a:10911", "T"), 0)
            self.deliver(b"one", begin=begin)
            self.result_of(consumer.poll(0))
            self.end_of(consumer.stop(consumed=consumed))
        failed = ("after", False, ConsumeReturnType.FAILED)
        self.assertEqual(self.hook.told, [BEFORE_ONE, SUCCEEDED, BEFORE_ONE, failed])

    def test_pulled_messages_are_handled_at_once(self):
        consumer = PullConsumerEngine(self.client, "cg", options=MemberOptions(consume_hooks=[self.hook]))
        self.result_of(consumer.start())
        for bodies in ([b"no", b"one"], [b"no"]):
            pulling = Deferred.fromCoroutine(consumer.pull(MessageQueue("T", "a", 0), None, 0))
            self.deliver(*bodies)
            found = self.successResultOf(pulling)
            self.assertEqual([message.body for message in found.messages], bodies[1:])
        self.assertIs(found.status, PullStatus.NO_MATCHED_MSG)
        self.assertEqual(self.hook.told, [BEFORE_ONE, SUCCEEDED])
        self.end_of(consumer.stop())


class TracingTests(ProducerTestCase):
    def setUp(self):
        super().setUp()
        self.cluster.topics.add(TRACE_TOPIC)

    def traces(self, topic=TRACE_TOPIC):
        return traces_of(self.cluster, topic)

    def test_sends_are_traced(self):
        self.response = {"MSG_REGION": "here", "TRACE_ON": "true"}
        producer = self.make(trace=True)
        result = self.result_of(producer.send(Message("T", b"hello", "A", keys=["k"])))
        self.assertEqual(self.traces(), ([], set()))
        self.clock.advance(0.5)
        (context,), groups = self.traces()
        (bean,) = context.beans
        self.assertEqual((context.trace_type, context.group, context.region), (TraceType.PUB, "pg", "here"))
        self.assertEqual((bean.topic, bean.msg_id, bean.tags, bean.keys), ("T", result.msg_id, "A", "k"))
        self.assertEqual((bean.store_host, bean.body_length), (f"{result.queue.broker_name}:10911", 5))
        self.assertRegex(groups.pop(), r"^_INNER_TRACE_PRODUCER-pg-PRODUCE-\d+$")
        self.clock.advance(1)
        self.assertEqual(len(self.traces()[0]), 1, "traces are traced")

    def test_another_topic_can_be_named(self):
        self.cluster.topics.add("Mine")
        self.result_of(self.make(trace="Mine").send(Message("T", b"hello")))
        self.clock.advance(0.5)
        self.assertEqual((len(self.traces("Mine")[0]), self.traces()[0]), (1, []))

    def test_trace_topic_has_no_namespace_prefix(self):
        self.cluster.topics |= {"space%T", "Mine"}
        object.__setattr__(self.client.config, "namespace", "space")
        self.result_of(self.make(trace="Mine").send(Message("T", b"hello")))
        self.clock.advance(0.5)
        (context,), groups = self.traces("Mine")
        self.assertEqual((context.group, context.beans[0].topic), ("pg", "T"))
        self.assertRegex(groups.pop(), "^_INNER_TRACE_PRODUCER-pg-PRODUCE-")

    def test_refused_and_untraced_sends_are_not_traced(self):
        producer = self.make(trace=True)
        self.cluster.refusals = {(310, "a:10911"): 13, (310, "b:10911"): 13}
        self.failure_of(producer.send(Message("T", b"hello")), BrokerError)
        self.cluster.refusals.clear()
        self.response = {"TRACE_ON": "false"}
        self.result_of(producer.send(Message("T", b"hello")))
        self.clock.advance(1)
        self.assertEqual(self.traces()[0], [])

    def test_transactions_are_traced(self):
        producer = self.make(trace=True, transactions=Ledger())
        result = self.result_of(producer.send_in_transaction(Message("T", b"hello"), TransactionState.COMMIT))
        self.clock.advance(0.5)
        half, end = self.traces()[0]
        self.assertEqual(half.beans[0].message_type, MessageType.TRANSACTION_HALF)
        self.assertEqual((end.trace_type, end.group), (TraceType.END_TRANSACTION, "pg"))
        (bean,) = end.beans
        self.assertEqual((bean.msg_id, bean.transaction_id), (result.send_result.msg_id,) * 2)
        self.assertEqual((bean.transaction_state, bean.from_transaction_check), ("COMMIT_MESSAGE", False))

    def test_batch_is_traced_as_one(self):
        producer = self.make(trace=True)
        results = self.result_of(producer.send_batch([Message("T", b"one"), Message("T", b"two")]))
        self.clock.advance(0.5)
        (context,) = self.traces()[0]
        self.assertEqual(context.beans[0].msg_id, ",".join(result.msg_id for result in results))

    def test_missing_trace_topic_does_not_fail_the_send(self):
        self.cluster.topics.discard(TRACE_TOPIC)
        producer = self.make(trace=True)
        for _ in range(3):
            self.result_of(producer.send(Message("T", b"hello")))
            self.clock.advance(1)
        self.assertEqual(self.traces()[0], [])

    def test_hanging_trace_does_not_delay_the_send(self):
        producer = self.make(trace=True)
        self.cluster.answer_310 = lambda address, request, fields: (
            Deferred() if fields["b"] == TRACE_TOPIC else succeed(self.store(address, request, fields))
        )
        for _ in range(2):
            self.result_of(producer.send(Message("T", b"hello")))
            self.clock.advance(1)
        stopping = Deferred.fromCoroutine(producer.stop())
        self.clock.advance(0.5)
        self.end_of(stopping)

    def test_group_name_too_long_is_not_traced(self):
        producer = ProducerEngine(self.client, "g" * 250, options=ProducerOptions(trace=True))
        self.result_of(producer.start())
        self.result_of(producer.send(Message("T", b"hello")))
        self.clock.advance(1)
        self.assertEqual(self.traces()[0], [])
        self.assertEqual(list(self.client.producers), ["g" * 250])
        self.result_of(producer.stop())

    def test_stop_sends_waiting_traces_and_unregisters(self):
        producer = self.make(trace=True)
        self.result_of(producer.send(Message("T", b"hello")))
        (group,) = set(self.client.producers) - {"pg"}
        self.end_of(producer.stop())
        self.assertEqual(len(self.traces()[0]), 1)
        self.assertEqual({fields["producerGroup"] for _, fields in self.cluster.of(35)}, {"pg", group})
        self.assertEqual(self.client.producers, {})


class ConsumerTracingTests(ConsumerTestCase):
    def setUp(self):
        super().setUp()
        self.cluster.topics.add(TRACE_TOPIC)

    def told(self):
        self.clock.advance(0.5)
        return traces_of(self.cluster)[0]

    def test_consumption_is_traced(self):
        consumer = self.start(trace=True)
        self.deliver(b"one", properties="UNIQ_KEY\x01ID1\x02KEYS\x01k")
        before, after = self.told()
        self.assertEqual((before.trace_type, before.group, before.beans[0].msg_id), (TraceType.SUB_BEFORE, "cg", "ID1"))
        self.assertEqual((after.trace_type, after.success, after.context_code), (TraceType.SUB_AFTER, True, 0))
        self.assertEqual((after.request_id, after.beans[0].keys), (before.request_id, "k"))
        self.assertRegex(traces_of(self.cluster)[1].pop(), r"^_INNER_TRACE_PRODUCER-cg-CONSUME-\d+$")
        self.stop(consumer)
        self.assertEqual(self.client.producers, {})

    def test_failed_consumption_is_traced(self):
        consumer = self.start(trace=True)
        self.deliver(b"later")
        self.deliver(b"broken")
        codes = [(after.success, after.context_code) for after in self.told() if after.trace_type == "SubAfter"]
        self.assertEqual(codes, [(False, ConsumeReturnType.FAILED), (False, ConsumeReturnType.EXCEPTION)])
        self.stop(consumer)

    def test_untraced_messages_are_not_traced_when_consumed(self):
        consumer = self.start(trace=True)
        self.deliver(b"one", properties="TRACE_ON\x01false")
        self.assertEqual(self.told(), [])
        self.stop(consumer)
