"""Questions passed on to consumers, and offsets set for them; the consumers are played."""

from types import SimpleNamespace

from twisted.internet.defer import Deferred
from twisted.logger import formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from rocketd.broker.clients import offset_reset
from rocketd.broker.clients import relay as client_relay
from rocketd.broker.clients.client import ClientChannelInfo
from rocketd.remoting.bodies.admin import GetConsumerStatusBody
from rocketd.remoting.bodies.tables import (
    ConsumerData,
    ConsumerOffsetSerializeWrapper,
    MessageQueue,
    SubscriptionData,
    TopicConfig,
)
from rocketd.remoting.errors import (
    RemotingCommandError,
    RemotingSendRequestError,
    RemotingTimeoutError,
    RequestError,
)
from rocketd.remoting.fastjson import dialect as fastjson
from rocketd.remoting.interfaces import IRequestProcessor
from rocketd.remoting.wire.codes import LanguageCode
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.remoting.wire.versions import version_name
from rocketd.store.format.message import MessageInner
from tests.support.broker import RecordingConnection, SmallBroker
from tests.support.descriptors import codes_of


class RelayTestCase(SynchronousTestCase):
    def setUp(self):
        self.broker = SmallBroker(self.mktemp())
        self.broker.start()
        self.addCleanup(self.broker.stop)
        self.broker.topics.update(TopicConfig("T", 2, 2))
        self.processors = {
            **dict.fromkeys(
                codes_of(client_relay.ClientRelayProcessor), client_relay.ClientRelayProcessor(self.broker)
            ),
            **dict.fromkeys(
                codes_of(offset_reset.OffsetResetProcessor), offset_reset.OffsetResetProcessor(self.broker)
            ),
        }
        self.sent = self.broker.invoke.sent
        self.waiting = self.broker.invoke.waiting

    def ask(self, code, body=None, **fields):
        request = RemotingCommand(code, fields, body)
        answers = []
        context = SimpleNamespace(connection=RecordingConnection(), answer=answers.append)
        answer = self.processors[code].process(request, context)
        return answers[0] if answer is None else answer

    def refused(self, code, **fields):
        error = self.assertRaises(RequestError, self.ask, code, **fields)
        return error.code, error.remark

    def join(self, client_id="one", group="G", topics=("T",), version=407, language=LanguageCode.JAVA):
        connection = RecordingConnection(f"127.0.0.1:{5000 + len(self.sent)}")
        client = ClientChannelInfo(connection, client_id, language, version, self.broker.now_ms())
        data = ConsumerData(group, subscription_data_set=[SubscriptionData(topic, "*") for topic in topics])
        self.broker.consumers.register(client, data, notify=False)
        return connection

    def put(self, queue_id=0, body=b"x"):
        message = MessageInner(
            "T", queue_id, 0, 0, self.broker.now_ms(), b"\x7f\0\0\1\0\0\0\1", 0, 0, body, b"KEYS\1k", 0
        )
        (result,) = self.broker.store.put_messages([message])
        self.broker.clock.advance(1)
        self.broker.settle()
        return result


class VersionNameTests(SynchronousTestCase):
    def test_ordinals_of_apache(self):
        self.assertEqual(version_name(0), "V3_0_0_SNAPSHOT")
        self.assertEqual(version_name(14), "V3_0_0_BETA9")
        self.assertEqual(version_name(28), "V3_0_7_SNAPSHOT")
        self.assertEqual(version_name(62), "V3_1_8_SNAPSHOT")
        self.assertEqual(version_name(121), "V3_4_9")
        self.assertEqual(version_name(401), "V4_9_4")
        self.assertEqual(version_name(407), "V4_9_7")
        self.assertEqual(version_name(100_000), "HIGHER_VERSION")
        self.assertEqual(version_name(-1), "-1")


class AskOneTests(RelayTestCase):
    INFO = {"consumerGroup": "G", "clientId": "one", "jstackEnable": "true"}

    def test_interface(self):
        for processor in self.processors.values():
            verifyObject(IRequestProcessor, processor)

    def test_relay_of_running_info(self):
        self.join("other")
        connection = self.join()
        result = self.ask(307, AccessKey="k", Signature="s", **self.INFO)
        ((asked, request, timeout_ms),) = self.sent
        self.assertIs(asked, connection)
        self.assertEqual((request.code, request.ext_fields, timeout_ms), (307, self.INFO, 10_000))
        self.assertNoResult(result)
        self.waiting[0].callback(RemotingCommand.response(0, None, {"x": "y"}, b"{}"))
        answer = self.successResultOf(result)
        self.assertEqual((answer.code, answer.ext_fields, answer.body), (0, {"x": "y"}, b"{}"))

    def test_answer_of_consumer_is_passed_on(self):
        self.join()
        result = self.ask(307, **self.INFO)
        self.waiting[0].callback(RemotingCommand.response(1, "no such group"))
        answer = self.successResultOf(result)
        self.assertEqual((answer.code, answer.remark), (1, "no such group"))

    def test_relay_to_offline_consumer_is_refused(self):
        self.assertEqual(self.refused(307, **self.INFO), (1, "The Consumer <G> <one> not online"))
        self.join("other")
        self.assertEqual(self.refused(307, **self.INFO), (1, "The Consumer <G> <one> not online"))

    def test_relay_to_old_consumer_is_refused(self):
        self.join(version=61)
        self.assertEqual(
            self.refused(307, **self.INFO),
            (1, "The Consumer <one> Version <V3_1_7> too low to finish, please upgrade it to V3_1_8_SNAPSHOT"),
        )

    def end(self, error):
        self.join()
        result = self.ask(307, **self.INFO)
        self.waiting[0].errback(error)
        failure = self.failureResultOf(result, RequestError)
        return failure.value.code, failure.value.remark

    def test_relay_timeout_is_answered(self):
        code, remark = self.end(RemotingTimeoutError("no answer from h:1"))
        self.assertEqual((code, remark), (207, "consumer <G> <one> Timeout: no answer from h:1"))

    def test_relay_connection_loss_is_answered(self):
        code, remark = self.end(RemotingSendRequestError("h:1", "closed"))
        self.assertEqual(code, 1)
        self.assertIn("invoke consumer <G> <one> Exception: send request to <h:1> failed", remark)

    def test_relay_uses_latest_connection(self):
        self.join()
        latest = self.join()
        self.ask(307, **self.INFO)
        self.assertIs(self.sent[0][0], latest)

    def test_missing_field(self):
        self.assertRaises(RemotingCommandError, self.ask, 307, consumerGroup="G")

    def test_consume_directly_sends_message_to_consumer(self):
        self.put()
        second = self.put(body=b"second")
        message_id = f"7F00000100002A9F{second.physical_offset:016X}"
        self.join()
        result = self.ask(309, consumerGroup="G", clientId="one", msgId=message_id)
        ((_, request, _),) = self.sent
        self.assertEqual(
            request.ext_fields,
            {"consumerGroup": "G", "clientId": "one", "msgId": message_id, "brokerName": "broker-a"},
        )
        self.assertEqual(request.body, bytes(self.broker.store.look_message(second.physical_offset)))
        self.waiting[0].callback(RemotingCommand.response(body=b'{"consumeResult":"CR_SUCCESS"}'))
        self.assertEqual(self.successResultOf(result).body, b'{"consumeResult":"CR_SUCCESS"}')

    def test_consume_directly_without_message_is_refused(self):
        fields = {"consumerGroup": "G", "clientId": "one"}
        self.assertEqual(self.refused(309, **fields), (1, "None is not a message id of a broker"))
        self.assertEqual(self.refused(309, msgId="Z" * 32, **fields)[0], 1)
        code, remark = self.refused(309, msgId="0" * 32, **fields)
        self.assertEqual((code, remark), (1, f"no message {'0' * 32} is stored here"))
        message = self.put()
        message_id = f"7F00000100002A9F{message.physical_offset:016X}"
        self.assertEqual(
            self.refused(309, msgId=message_id, consumerGroup="G"), (1, "The Consumer <G> <null> not online")
        )


class StatusTests(RelayTestCase):
    def status(self, offset):
        body = GetConsumerStatusBody({MessageQueue("T", "broker-a", 0): offset}).encode()
        return RemotingCommand.response(body=body)

    def test_status_asks_all_consumers_at_once(self):
        self.join("one")
        self.join("two")
        self.join("three")
        result = self.ask(223, topic="T", group="G")
        self.assertEqual([(request.code, timeout) for _, request, timeout in self.sent], [(221, 5000)] * 3)
        self.assertEqual(self.sent[0][1].ext_fields, {"topic": "T", "group": "G"})
        self.waiting[1].callback(self.status(7))
        self.waiting[0].errback(RemotingTimeoutError("no answer"))
        self.assertNoResult(result)
        self.waiting[2].callback(RemotingCommand.response(1, "what?"))
        answer = self.successResultOf(result)
        table = GetConsumerStatusBody.decode(answer.body)
        self.assertEqual(table.consumer_table, {"two": {MessageQueue("T", "broker-a", 0): 7}})
        self.assertEqual(
            answer.body,
            b'{"consumerTable":{"two":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:7}},"messageQueueTable":{}}',
        )

    def test_status_asks_named_consumer_only(self):
        self.join("one")
        two = self.join("two")
        result = self.ask(223, topic="T", group="G", clientAddr="two")
        self.assertEqual([connection for connection, _, _ in self.sent], [two])
        self.assertIsInstance(result, Deferred)

    def test_status_skips_unreadable_body(self):
        self.join()
        result = self.ask(223, topic="T", group="G")
        self.waiting[0].callback(RemotingCommand.response(body=b"{"))
        self.assertEqual(fastjson.loads(self.successResultOf(result).body)["consumerTable"], {})

    def test_status_without_answers_of_many_consumers_leaves_one_line(self):
        events = []
        globalLogPublisher.addObserver(events.append)
        self.addCleanup(globalLogPublisher.removeObserver, events.append)
        for number in range(20):
            self.join(f"c{number}")
        self.ask(223, topic="T", group="G")
        for waiting in self.waiting:
            waiting.errback(RemotingTimeoutError("no answer"))
        self.assertEqual(sum("did not send its offsets" in formatEvent(event) for event in events), 1)

    def test_status_refusals(self):
        self.assertEqual(
            self.refused(223, topic="T", group="G"), (1, "No Any Consumer online in the consumer group: [G]")
        )
        self.join(version=27)
        self.assertEqual(
            self.refused(223, topic="T", group="G"),
            (1, "the client does not support this feature. version=V3_0_6"),
        )


class ResetTests(RelayTestCase):
    def setUp(self):
        super().setUp()
        self.times = []
        for _ in range(4):
            self.times.append(self.broker.now_ms())
            self.put()
        self.broker.offsets.commit("h:1", "G", "T", 0, 3)
        self.broker.offsets.commit("h:1", "G", "T", 1, 0)

    def reset(self, timestamp, force="true"):
        return self.ask(222, topic="T", group="G", timestamp=str(timestamp), isForce=force)

    def offsets(self, answer):
        return {dict(queue)["queueId"]: offset for queue, offset in fastjson.loads(answer.body)["offsetTable"].items()}

    def test_reset_notifies_members(self):
        java = self.join("java")
        cpp = self.join("cpp", language=LanguageCode.CPP)
        answer = self.reset(self.times[1])
        self.assertEqual((answer.code, self.offsets(answer)), (0, {0: 1, 1: 0}))
        self.assertEqual(answer.remark, "not set any response code")
        (to_java, to_cpp) = self.sent
        self.assertEqual([to_java[0], to_cpp[0]], [java, cpp])
        self.assertEqual([(request.code, timeout) for _, request, timeout in self.sent], [(220, 5000)] * 2)
        fields = {"topic": "T", "group": "G", "timestamp": str(self.times[1]), "isForce": "false"}
        self.assertEqual(to_java[1].ext_fields, fields)
        self.assertEqual(to_java[1].body, answer.body)
        self.assertEqual(
            fastjson.loads(to_cpp[1].body)["offsetTable"],
            [
                {"brokerName": "broker-a", "offset": 1, "queueId": 0, "topic": "T"},
                {"brokerName": "broker-a", "offset": 0, "queueId": 1, "topic": "T"},
            ],
        )

    def test_reset_without_force_moves_backwards_only(self):
        self.join()
        self.assertEqual(self.offsets(self.reset(-1)), {0: 4, 1: 0})
        self.assertEqual(self.offsets(self.reset(self.times[3] + 60_000)), {0: 4, 1: 0})
        self.assertEqual(self.offsets(self.reset(-1, "false")), {0: 3, 1: 0})
        self.assertEqual(self.offsets(self.reset(self.times[0], "false")), {0: 0, 1: 0})

    def test_reset_of_offline_group_is_refused(self):
        self.assertEqual(
            self.reset_refused(5),
            (206, "Consumer not online, so can not reset offset, Group: G Topic: T Timestamp: 5"),
        )

    def reset_refused(self, timestamp, topic="T", group="G"):
        return self.refused(222, topic=topic, group=group, timestamp=str(timestamp), isForce="true")

    def test_reset_refusals(self):
        self.join()
        self.assertEqual(
            self.reset_refused(1, topic="X"),
            (1, "[reset-offset] reset offset failed, no topic in this broker. topic=X"),
        )
        self.assertEqual(self.reset_refused(1, group="H"), (1, "THe consumer group <H> not exist"))
        self.join("old", version=27)
        self.assertEqual(self.reset_refused(1), (1, "the client does not support this feature. version=V3_0_6"))
        self.assertEqual(self.sent, [])


class CloneTests(RelayTestCase):
    def setUp(self):
        super().setUp()
        self.broker.topics.update(TopicConfig("U", 1, 1))
        for topic, queue_id, offset in (("T", 0, 3), ("T", 1, 4), ("U", 0, 5), ("Gone", 0, 6)):
            self.broker.offsets.commit("h:1", "G", topic, queue_id, offset)
        self.broker.offsets.commit("h:1", "New", "T", 7, 1)

    def clone(self, **fields):
        answer = self.ask(314, srcGroup="G", destGroup="New", **fields)
        self.assertEqual((answer.code, answer.remark), (0, None))
        table = self.broker.offsets.snapshot().offset_table
        return {key.partition("@")[0]: offsets for key, offsets in table.items() if key.endswith("@New")}

    def test_clone_of_one_topic(self):
        self.assertEqual(self.clone(topic="T"), {"T": {0: 3, 1: 4}})

    def test_clone_covers_existing_topics(self):
        self.assertEqual(self.clone(), {"T": {0: 3, 1: 4}, "U": {0: 5}})

    def test_clone_of_online_group_covers_its_subscriptions(self):
        self.join(topics=("U",))
        self.assertEqual(self.clone(), {"T": {7: 1}, "U": {0: 5}})
        self.assertEqual(self.clone(offline="true"), {"T": {0: 3, 1: 4}, "U": {0: 5}})

    def test_clone_is_stored_before_answer(self):
        self.clone(topic="T")
        stored = self.broker.json_file("consumerOffset", ConsumerOffsetSerializeWrapper).load()
        self.assertEqual(stored.offset_table["T@New"], {0: 3, 1: 4})

    def test_clone_without_offsets_changes_nothing(self):
        self.assertEqual(self.clone(topic="SELF_TEST_TOPIC"), {"T": {7: 1}})
