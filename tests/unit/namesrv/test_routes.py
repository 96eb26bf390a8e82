"""Route queries: both dialects, the cache of answers, and both ways to handle a request."""

import json
import os
from threading import Event

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from rocketd.namesrv.kv_config import KVConfigManager
from rocketd.namesrv.route_answers import RouteAnswers
from rocketd.namesrv.route_info import BrokerIdentity, RouteInfoManager
from rocketd.namesrv.route_processor import RouteProcessor
from rocketd.namesrv.service import POOL, NameServer
from rocketd.namesrv.settings import NamesrvConfig, NamesrvSettings
from rocketd.remoting.bodies.tables import DataVersion, TopicConfig
from rocketd.remoting.serving.dispatch import Dispatcher
from rocketd.remoting.serving.plugins import load_processors
from rocketd.remoting.serving.pools import Job
from rocketd.remoting.wire.codes import LanguageCode, RequestCode, ResponseCode, SerializeType
from rocketd.remoting.wire.command import ONEWAY_FLAG, RemotingCommand
from rocketd.remoting.wire.frame import FrameDecoder
from rocketd.store.base.filesystem import RealFileSystem
from tests.support.broker import RecordingConnection

BARE = (
    b'{"brokerDatas":[{"brokerAddrs":{0:"10.0.0.1:10911"},"brokerName":"a","cluster":"c"}],"filterServerTable":{},'
    b'"queueDatas":[{"brokerName":"a","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":8}]}'
)
STANDARD = BARE.replace(b"{0:", b'{"0":')
REFUSAL = (
    "No topic route info in name server for the topic: {}"
    "\nSee http://rocketmq.apache.org/docs/faq/ for further details."
)


class FakeConnection:
    address = "127.0.0.1:5"
    behind = False

    def __init__(self):
        self.writes = []
        self.is_closed = False

    def write(self, buffers):
        self.writes.append(b"".join(buffers))

    def close(self):
        self.is_closed = True


class RoutesTest(SynchronousTestCase):
    def setUp(self):
        self.routes = RouteInfoManager()
        self.kv_config = KVConfigManager(self.mktemp() + "/kv.json", RealFileSystem())
        self.config = NamesrvConfig()
        self.answers = RouteAnswers(self.routes, self.kv_config, self.config)
        self.counter = 0
        self.register(TopicConfig("T", 4, 8, 6))

    def register(self, *configs):
        self.counter += 1
        broker = BrokerIdentity("c", "a", 0, "10.0.0.1:10911")
        topics = {config.topic_name: config for config in configs}
        self.routes.register(broker, "", DataVersion(0, self.counter), topics, [], object(), 0)


class AnswersTest(RoutesTest):
    def test_answers_exist_in_both_json_dialects(self):
        self.assertEqual(self.answers.get("T", standard=True).body, STANDARD)
        self.assertEqual(self.answers.get("T", standard=False).body, BARE)
        self.assertIsNone(self.answers.get("U", standard=True))

    def test_acting_master_member_only_on_request(self):
        (broker,) = json.loads(self.answers.get("T", True, acting_master=True).body)["brokerDatas"]
        self.assertIs(broker.pop("enableActingMaster"), False)
        self.assertEqual([broker], json.loads(STANDARD)["brokerDatas"])

    def test_route_answer_is_cached_until_tables_change(self):
        first = self.answers.get("T", standard=True)
        self.assertIs(self.answers.get("T", standard=True), first)
        self.register(TopicConfig("T", 16, 16, 6))
        second = self.answers.get("T", standard=True)
        self.assertEqual(json.loads(second.body)["queueDatas"][0]["readQueueNums"], 16)
        self.routes.unregister(BrokerIdentity("c", "a", 0, "10.0.0.1:10911"))
        self.assertIsNone(self.answers.get("T", standard=True))

    def test_order_topic_conf_only_if_enabled(self):
        self.kv_config.put("ORDER_TOPIC_CONFIG", "T", "a:4")
        self.assertEqual(self.answers.get("T", standard=True).body, STANDARD)
        self.config.order_message_enable = True
        self.assertEqual(json.loads(self.answers.get("T", standard=True).body)["orderTopicConf"], "a:4")
        self.kv_config.put("ORDER_TOPIC_CONFIG", "T", "a:2")
        self.assertEqual(json.loads(self.answers.get("T", standard=True).body)["orderTopicConf"], "a:2")

    def test_cached_frame_equals_codec_output(self):
        answer = self.answers.get("T", standard=True)
        for opaque in (0, 7, 10, 12345, 2**31 - 1, -1, -(2**31)):
            request = RemotingCommand(105, opaque=opaque)
            self.assertEqual(
                answer.frame(opaque), RemotingCommand.response(body=STANDARD).answering(request).encode(), opaque
            )


class ProcessorTest(RoutesTest):
    def setUp(self):
        super().setUp()
        self.dispatcher = Dispatcher(lambda function, *args: function(*args))
        self.processor = RouteProcessor(self.answers, self.dispatcher, self.dispatcher.pool("routes"))
        self.connection = FakeConnection()

    def ask_frames(self, *frames):
        self.processor.process_jobs([Job(self.processor, self.connection, FrameDecoder().feed(b"".join(frames)), 0)])
        writes, self.connection.writes = self.connection.writes, []
        return [RemotingCommand.decode(frame) for frame in FrameDecoder().feed(b"".join(writes))]

    def ask(self, fields, **attributes):
        (answer,) = self.ask_frames(RemotingCommand(105, fields, **attributes).encode())
        return answer

    def test_dialect_depends_on_version_and_request_flag(self):
        topic = {"topic": "T"}
        for fields, version, expected in (
            (topic, 407, STANDARD),
            (topic, 401, STANDARD),
            (topic, 400, BARE),
            (topic, 63, BARE),
            ({**topic, "acceptStandardJsonOnly": "true"}, 400, STANDARD),
            ({**topic, "acceptStandardJsonOnly": "TRUE"}, 400, STANDARD),
            ({**topic, "acceptStandardJsonOnly": "false"}, 400, BARE),
            ({**topic, "acceptStandardJsonOnly": "false"}, 407, STANDARD),
        ):
            for serialize_type in SerializeType:
                answer = self.ask(fields, version=version, serialize_type=serialize_type)
                self.assertEqual((answer.code, answer.body), (ResponseCode.SUCCESS, expected), (fields, version))

    def test_route_longer_than_a_frame_becomes_an_error(self):
        self.dispatcher.answers.longest_answer = len(STANDARD)
        for serialize_type in SerializeType:
            answer = self.ask({"topic": "T"}, serialize_type=serialize_type)
            self.assertEqual((answer.code, answer.body), (ResponseCode.SYSTEM_ERROR, None))
            self.assertIn("[answer-too-long]", answer.remark)

    def test_answer_is_addressed_to_its_request(self):
        for serialize_type in SerializeType:
            answer = self.ask({"topic": "T"}, opaque=4711, serialize_type=serialize_type)
            self.assertEqual((answer.opaque, answer.serialize_type, answer.is_response), (4711, serialize_type, True))

    def test_unknown_topic(self):
        for serialize_type in SerializeType:
            answer = self.ask({"topic": "U"}, serialize_type=serialize_type)
            self.assertEqual((answer.code, answer.remark), (ResponseCode.TOPIC_NOT_EXIST, REFUSAL.format("U")))
            self.assertIsNone(answer.body)

    def test_topic_is_required(self):
        answer = self.ask({})
        self.assertEqual(answer.code, ResponseCode.SYSTEM_ERROR)
        self.assertIn("topic", answer.remark)
        self.assertEqual(self.ask(None).code, ResponseCode.SYSTEM_ERROR)

    def test_rust_client_gets_acting_master_member(self):
        for serialize_type in SerializeType:
            answer = self.ask({"topic": "T"}, language=LanguageCode.RUST, serialize_type=serialize_type)
            self.assertIn(b'"enableActingMaster":false', answer.body)

    def test_answers_of_job_are_written_at_once_in_order(self):
        frames = [RemotingCommand(105, {"topic": topic}, opaque=n).encode() for n, topic in enumerate("TUTT")]
        answers = self.ask_frames(*frames)
        self.assertEqual([(a.opaque, a.code) for a in answers], [(0, 0), (1, 17), (2, 0), (3, 0)])
        self.processor.process_jobs([Job(self.processor, self.connection, FrameDecoder().feed(b"".join(frames)), 0)])
        self.assertEqual(len(self.connection.writes), 1)

    def test_lenient_headers_of_other_clients_are_read(self):
        header = b'{"code":"105","extFields":{"topic":"T","AccessKey":"","x":1},"flag":0,"language":1,"opaque":9}\n'
        frame = (4 + len(header)).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header
        (answer,) = self.ask_frames(frame)
        self.assertEqual((answer.code, answer.opaque, answer.body), (0, 9, BARE))

    def test_oneway_requests_are_not_answered(self):
        self.assertEqual(self.ask_frames(RemotingCommand(105, {"topic": "T"}, flag=ONEWAY_FLAG).encode()), [])
        self.assertEqual(self.ask_frames(RemotingCommand(105, {"topic": "U"}, flag=ONEWAY_FLAG).encode()), [])

    def test_response_goes_to_invoke_layer(self):
        taken = []

        class Invoker:
            def process_response(self, connection, response):
                taken.append((connection, response.opaque))

        self.dispatcher.answers.responses = Invoker()
        response = RemotingCommand.response(105)
        response.opaque = 8
        self.assertEqual(self.ask_frames(response.encode()), [])
        self.assertEqual(taken, [(self.connection, 8)])

    def test_garbage_closes_connection_after_earlier_answers(self):
        good = RemotingCommand(105, {"topic": "T"}).encode()
        answers = self.ask_frames(good, b"\0\0\0\x06\0\0\0\x02{]", good)
        self.assertEqual([answer.code for answer in answers], [0])
        self.assertTrue(self.connection.is_closed)
        self.assertEqual(self.ask_frames(good), [], "frames behind it are dropped")

    def test_hooks_see_every_request(self):
        seen = []

        class Hook:
            def before_request(self, address, request):
                seen.append((address, request.ext_fields))

            def after_response(self, address, request, response):
                seen.append(response.code)

        self.dispatcher.answers.hooks = (Hook(),)
        self.assertEqual(self.ask({"topic": "T"}).body, STANDARD)
        self.assertEqual(seen, [("127.0.0.1:5", {"topic": "T"}), 0])


class AnsweringConnection(RecordingConnection):
    """Passes written data to a waiting thread."""

    def __init__(self):
        super().__init__()
        self.answered = Event()

    def write(self, buffers):
        super().write(buffers)
        self.answered.set()


class PoolClock(Clock):
    def callFromThread(self, function, *arguments):
        function(*arguments)


class PoolTests(SynchronousTestCase):
    def test_route_is_answered_during_registration(self):
        settings, _ = NamesrvSettings.load(None, [("kvConfigPath", os.path.abspath(self.mktemp()))])
        server = NameServer(settings, PoolClock(), RealFileSystem())
        load_processors(server.dispatcher, "namesrv", server)
        connection, taken = AnsweringConnection(), Event()
        server.dispatcher.start()
        try:
            server.dispatcher.pool(POOL).call(taken.wait)
            request = RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"})
            server.dispatcher.dispatch(connection, FrameDecoder().feed(request.encode()))
            self.assertTrue(connection.answered.wait(30), "the route waits for the registration")
        finally:
            taken.set()
            server.dispatcher.stop()
        self.assertEqual(connection.answer().code, ResponseCode.TOPIC_NOT_EXIST)
