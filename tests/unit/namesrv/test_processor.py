"""Requests to the name server's processor, one after the other, without network or threads."""

import zlib

from twisted.trial.unittest import SynchronousTestCase

from rocketd.common.settings import properties_file
from rocketd.namesrv.kv_config import KVConfigManager
from rocketd.namesrv.processor import NamesrvProcessor
from rocketd.namesrv.route_info import BrokerIdentity, RouteInfoManager
from rocketd.namesrv.settings import NamesrvSettings
from rocketd.remoting.bodies.tables import (
    ClusterInfo,
    DataVersion,
    KVTable,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicList,
)
from rocketd.remoting.errors import RemotingCommandError, RequestError
from rocketd.remoting.serving.audit import Audit
from rocketd.remoting.wire.codes import RequestCode, ResponseCode
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.store.base.filesystem import RealFileSystem
from rocketd.store.state.audit_file import AuditFile
from tests.support.places import GOLDEN

V1 = DataVersion(1000, 1)
# Made absolute at once: trial changes the directory before it runs the tests.
APACHES_CONFIG = GOLDEN / "config" / "namesrv-4.9.7.properties"


class FakeConnection:
    address = "127.0.0.1:5"

    def close(self):
        pass


class Context:
    def __init__(self, received_ms=0):
        self.connection = FakeConnection()
        self.received_ms = received_ms
        self.answers = []
        self.answer = self.answers.append


class FakeNameServer:
    def __init__(self, directory):
        self.settings, _ = NamesrvSettings.load(home=directory)
        self.routes = RouteInfoManager()
        self.kv_config = KVConfigManager(f"{directory}/kv.json", RealFileSystem())
        self.audit = Audit(AuditFile(RealFileSystem(), f"{directory}/audit.log"), lambda: 0)
        self.stored = []

    def store_settings(self, changes):
        self.stored.append(changes)


def registration(configs=(), version=V1, filter_servers=()):
    table = {config.topic_name: config for config in configs}
    return RegisterBrokerBody(TopicConfigSerializeWrapper(table, version), list(filter_servers))


class ProcessorTest(SynchronousTestCase):
    def setUp(self):
        self.name_server = FakeNameServer(self.mktemp())
        self.processor = NamesrvProcessor(self.name_server)

    def ask(self, code, fields=None, body=None, version=407, received_ms=0):
        context = Context(received_ms)
        answer = self.processor.process(RemotingCommand(code, fields, body, version=version), context)
        return context.answers[0] if answer is None else answer

    def refused(self, *args, **kwargs):
        error = self.assertRaises(RequestError, self.ask, *args, **kwargs)
        return error.code, error.remark

    def register(self, body, *, broker_id=0, address="10.0.0.1:10911", version=407, **fields):
        fields = {
            "brokerName": "a",
            "brokerAddr": address,
            "clusterName": "c",
            "haServerAddr": address.replace("911", "912"),
            "brokerId": str(broker_id),
            **fields,
        }
        return self.ask(RequestCode.REGISTER_BROKER, fields, body, version=version)

    def queue(self, topic="T"):
        return self.name_server.routes.pick_topic_route(topic).queue_datas[0]


class RegisterTest(ProcessorTest):
    def test_plain_body(self):
        body = registration([TopicConfig("T", 4, 8, 6, topic_sys_flag=1)]).encode()
        answer = self.register(body, bodyCrc32=str(zlib.crc32(body) & 0x7FFFFFFF))
        self.assertEqual((answer.code, answer.ext_fields, answer.body), (ResponseCode.SUCCESS, {}, None))
        self.assertEqual((self.queue().write_queue_nums, self.queue().topic_sys_flag), (8, 1))

    def test_compressed_body(self):
        body = registration([TopicConfig("T", 4, 8, 6)], filter_servers=["f:1"]).deflate()
        self.register(body, compressed="true", bodyCrc32=str(zlib.crc32(body) & 0x7FFFFFFF))
        self.assertEqual(self.queue().write_queue_nums, 8)
        route = self.name_server.routes.pick_topic_route("T")
        self.assertEqual(route.filter_server_table, {"10.0.0.1:10911": ["f:1"]})

    def test_register_before_3_0_11_has_topics_only_body(self):
        body = TopicConfigSerializeWrapper({"T": TopicConfig("T", 4, 8, 6)}, V1).encode()
        self.register(body, version=36)
        self.assertEqual(self.queue().write_queue_nums, 8)

    def test_register_without_body_succeeds_without_topics(self):
        self.assertEqual(self.register(None).code, ResponseCode.SUCCESS)
        self.assertEqual(self.name_server.routes.all_topics().topic_list, [])

    def test_damaged_body(self):
        body = registration([TopicConfig("T")]).encode()
        error = self.assertRaises(RequestError, self.register, body, bodyCrc32="12345")
        self.assertEqual((error.code, error.remark), (ResponseCode.SYSTEM_ERROR, "crc32 not match"))
        self.assertIsNone(self.name_server.routes.pick_topic_route("T"))

    def test_body_crc_of_zero_is_not_checked(self):
        self.assertEqual(self.register(registration().encode(), bodyCrc32="0").code, ResponseCode.SUCCESS)

    def test_unreadable_registration_changes_nothing(self):
        for body, compressed in ((b"{", "false"), (b"no zlib", "true"), (zlib.compress(b"\0\0"), "true")):
            self.assertRaises(RemotingCommandError, self.register, body, compressed=compressed)
        self.assertRaises(RemotingCommandError, self.ask, RequestCode.REGISTER_BROKER, {"brokerName": "a"})
        self.assertEqual(self.name_server.routes.cluster_info().broker_addr_table, {})

    def test_registration_of_all_topics_removes_the_others(self):
        def topics():
            return sorted(self.name_server.routes.all_topics().topic_list)

        both = [TopicConfig("T"), TopicConfig("U")]
        of_system = [TopicConfig("SELF_TEST_TOPIC")]
        for counter, configs, version, expected in (
            (1, both + of_system, 407, ["SELF_TEST_TOPIC", "T", "U"]),
            (2, [TopicConfig("T")], 407, ["SELF_TEST_TOPIC", "T", "U"]),
            (3, both[:1] + of_system, 413, ["SELF_TEST_TOPIC", "T", "U"]),
            (4, both[:1] + of_system, 407, ["SELF_TEST_TOPIC", "T"]),
        ):
            self.register(registration(configs, DataVersion(1, counter)).encode(), version=version)
            self.assertEqual(topics(), expected, counter)

    def test_broker_that_is_new_with_some_topics_gets_all_into_the_routes_by_its_next_registration(self):
        all_topics = registration([TopicConfig("T"), TopicConfig("New"), TopicConfig("SELF_TEST_TOPIC")], V1).encode()
        for version in (407, 413):
            self.register(registration([TopicConfig("New")], V1).encode(), version=version)
            self.assertIsNone(self.name_server.routes.pick_topic_route("T"))
            self.register(all_topics, version=version)
            self.assertIsNotNone(self.name_server.routes.pick_topic_route("T"))
            self.name_server.routes.unregister(BrokerIdentity("c", "a", 0, "10.0.0.1:10911"))

    def test_register_slave_returns_master_address(self):
        self.register(registration().encode())
        answer = self.register(registration().encode(), broker_id=1, address="10.0.0.2:10911")
        self.assertEqual(answer.ext_fields, {"haServerAddr": "10.0.0.1:10912", "masterAddr": "10.0.0.1:10911"})

    def test_register_answer_has_ordered_topics(self):
        self.name_server.kv_config.put("ORDER_TOPIC_CONFIG", "T", "a:4")
        self.assertEqual(KVTable.decode(self.register(registration().encode()).body).table, {"T": "a:4"})

    def test_unregister_removes_broker(self):
        self.register(registration([TopicConfig("T")]).encode())
        fields = {"brokerName": "a", "brokerAddr": "10.0.0.1:10911", "clusterName": "c", "brokerId": "0"}
        self.assertEqual(self.ask(RequestCode.UNREGISTER_BROKER, fields).code, ResponseCode.SUCCESS)
        self.assertIsNone(self.name_server.routes.pick_topic_route("T"))

    def test_data_version(self):
        fields = {"brokerName": "a", "brokerAddr": "10.0.0.1:10911", "clusterName": "c", "brokerId": "0"}

        def ask(version):
            answer = self.ask(RequestCode.QUERY_DATA_VERSION, fields, version.encode(), received_ms=100_000)
            return answer.ext_fields, answer.body

        self.assertEqual(ask(V1), ({"changed": "true"}, None))
        self.register(registration([TopicConfig("SELF_TEST_TOPIC")]).encode())
        self.assertEqual(ask(DataVersion(1, 1)), ({"changed": "true"}, b'{"counter":1,"timestamp":1000}'))
        self.assertEqual(self.name_server.routes.scan_inactive(120_000), 0)
        self.assertEqual(ask(V1), ({"changed": "false"}, b'{"counter":1,"timestamp":1000}'))
        self.assertEqual(self.name_server.routes.scan_inactive(220_000), 0)


class ListsTest(ProcessorTest):
    def setUp(self):
        super().setUp()
        configs = [TopicConfig("T"), TopicConfig("U", topic_sys_flag=1), TopicConfig("W", topic_sys_flag=3)]
        configs.append(TopicConfig("V", topic_sys_flag=2))
        self.register(registration(configs).encode())

    def test_cluster_info(self):
        answer = self.ask(RequestCode.GET_BROKER_CLUSTER_INFO)
        self.assertIn(b'{"brokerAddrs":{0:"10.0.0.1:10911"},"brokerName":"a","cluster":"c"}', answer.body)
        self.assertEqual(ClusterInfo.decode(answer.body).cluster_addr_table, {"c": {"a"}})

    def test_topic_lists(self):
        for code, fields, expected in (
            (RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, None, {"T", "U", "V", "W"}),
            (RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": "c"}, {"T", "U", "V", "W"}),
            (RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": "d"}, set()),
            (RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS, None, {"c", "a"}),
            (RequestCode.GET_UNIT_TOPIC_LIST, None, {"U", "W"}),
            (RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST, None, {"V", "W"}),
            (RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, None, {"V"}),
        ):
            answer = self.ask(code, fields)
            self.assertEqual(set(TopicList.decode(answer.body).topic_list), expected, code)

    def test_write_permission(self):
        answer = self.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "a"})
        self.assertEqual((answer.ext_fields, self.queue().perm), ({"wipeTopicCount": "4"}, 4))
        answer = self.ask(RequestCode.ADD_WRITE_PERM_OF_BROKER, {"brokerName": "a"})
        self.assertEqual((answer.ext_fields, self.queue().perm), ({"addTopicCount": "4"}, 6))

    def test_delete_topic(self):
        self.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": "T", "clusterName": "d"})
        self.assertIsNotNone(self.name_server.routes.pick_topic_route("T"))
        self.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": "T", "clusterName": "c"})
        self.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": "U"})
        self.assertEqual(set(self.name_server.routes.all_topics().topic_list), {"V", "W"})


class KVConfigTest(ProcessorTest):
    def test_put_get_list_delete(self):
        key = {"namespace": "N", "key": "k"}
        self.ask(RequestCode.PUT_KV_CONFIG, {**key, "value": "v"})
        self.assertEqual(self.ask(RequestCode.GET_KV_CONFIG, key).ext_fields, {"value": "v"})
        listed = self.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, {"namespace": "N"})
        self.assertEqual(listed.body, b'{"table":{"k":"v"}}')
        self.ask(RequestCode.DELETE_KV_CONFIG, key)
        self.assertEqual(
            self.refused(RequestCode.GET_KV_CONFIG, key),
            (ResponseCode.QUERY_NOT_FOUND, "No config item, Namespace: N Key: k"),
        )

    def test_unknown_namespace(self):
        self.assertEqual(
            self.refused(RequestCode.GET_KVLIST_BY_NAMESPACE, {"namespace": "N"}),
            (ResponseCode.QUERY_NOT_FOUND, "No config item, Namespace: N"),
        )

    def test_key_is_required(self):
        self.assertRaises(RemotingCommandError, self.ask, RequestCode.PUT_KV_CONFIG, {"namespace": "N", "value": "v"})


class ConfigTest(ProcessorTest):
    def update(self, text):
        return self.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=text.encode())

    def test_get_config_has_apaches_keys(self):
        keys = {entry.key for entry in properties_file.parse(APACHES_CONFIG.read_text())} - {"rocketmqHome"}
        answer = self.ask(RequestCode.GET_NAMESRV_CONFIG)
        self.assertLessEqual(keys, {entry.key for entry in properties_file.parse(answer.body.decode())})

    def test_update_takes_effect_and_is_stored(self):
        self.assertEqual(self.update("orderMessageEnable=true\n").code, ResponseCode.SUCCESS)
        self.assertTrue(self.name_server.settings.namesrv.order_message_enable)
        self.assertEqual(self.name_server.stored, [{"orderMessageEnable": "true"}])

    def test_update_of_restart_setting_is_remarked_and_pending(self):
        self.assertIsNone(self.update("orderMessageEnable=true\n").remark)
        answer = self.update("listenPort=1\norderMessageEnable=true\n")
        self.assertEqual((answer.code, answer.remark), (0, "listenPort: no effect before the next start"))
        self.assertEqual(self.name_server.stored[-1], {"listenPort": "1", "orderMessageEnable": "true"})
        lines = self.ask(RequestCode.GET_NAMESRV_CONFIG).body.decode().splitlines()
        self.assertIn("listenPort=9876", lines)
        self.assertIn("rocketd.pending.listenPort=1", lines)

    def test_paths_cannot_be_updated(self):
        for key in ("kvConfigPath", "configStorePath"):
            error = self.assertRaises(RequestError, self.update, f"orderMessageEnable=true\n{key}=/elsewhere\n")
            self.assertEqual((error.code, error.remark), (ResponseCode.NO_PERMISSION, "Can not update config path"))
        self.assertFalse(self.name_server.settings.namesrv.order_message_enable)

    def test_update_with_unknown_key_names_it_and_applies_rest(self):
        error = self.assertRaises(RequestError, self.update, "orderMessageEnabel=true\norderMessageEnable=true\n")
        self.assertEqual(error.code, ResponseCode.SYSTEM_ERROR)
        self.assertIn("orderMessageEnabel", error.remark)
        self.assertTrue(self.name_server.settings.namesrv.order_message_enable)
        self.assertEqual(self.name_server.stored, [{"orderMessageEnable": "true"}])

    def test_update_with_failed_store_applies_and_returns_error(self):
        def store_settings(changes):
            raise OSError(28, "No space left on device", "/namesrv.properties")

        self.name_server.store_settings = store_settings
        error = self.assertRaises(RequestError, self.update, "orderMessageEnable=true\nlistenPort=1\n")
        self.assertEqual((error.code, self.name_server.settings.pending), (ResponseCode.SYSTEM_ERROR, {}))
        self.assertIn("No space left on device: '/namesrv.properties'", error.remark)
        self.assertTrue(self.name_server.settings.namesrv.order_message_enable)

    def test_update_with_malformed_properties_is_refused(self):
        error = self.assertRaises(RequestError, self.update, "key=\\u12")
        self.assertTrue(error.remark.startswith("string2Properties error"), error.remark)
