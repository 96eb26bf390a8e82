"""The name server's tables: registration, expiry of brokers, and queries."""

from twisted.trial.unittest import SynchronousTestCase

from rocketd.namesrv import route_info
from rocketd.namesrv.route_info import BROKER_EXPIRY_MS, BrokerIdentity, MasterAddresses, RouteInfoManager
from rocketd.remoting.bodies.tables import DataVersion, TopicConfig

MASTER = BrokerIdentity("c", "a", 0, "10.0.0.1:10911")
SLAVE = BrokerIdentity("c", "a", 1, "10.0.0.2:10911")
OTHER = BrokerIdentity("c", "b", 0, "10.0.0.3:10911")
V1 = DataVersion(1000, 1)
V2 = DataVersion(1000, 2)


class FakeConnection:
    def __init__(self):
        self.is_closed = False

    def close(self):
        self.is_closed = True


def topics(*configs):
    return {config.topic_name: config for config in configs}


class RouteInfoTest(SynchronousTestCase):
    def setUp(self):
        self.routes = RouteInfoManager()

    def register(
        self, broker=MASTER, version=V1, configs=(), filter_servers=(), connection=None, now_ms=0, has_all_topics=False
    ):
        return self.routes.register(
            broker,
            broker.address.replace("911", "912"),
            version,
            topics(*configs),
            None if filter_servers is None else list(filter_servers),
            connection or FakeConnection(),
            now_ms,
            has_all_topics=has_all_topics,
        )

    def addresses(self, topic="T"):
        route = self.routes.pick_topic_route(topic)
        return route and {broker.broker_name: broker.broker_addrs for broker in route.broker_datas}


class RegistrationTest(RouteInfoTest):
    def test_topic_deleted_at_one_broker_leaves_its_route(self):
        for broker in (MASTER, OTHER):
            self.register(broker, configs=[TopicConfig("T"), TopicConfig("U")])
        self.register(version=V2, configs=[TopicConfig("U")], has_all_topics=True)
        self.assertEqual(set(self.addresses("T")), {"b"})
        self.assertEqual(set(self.addresses("U")), {"a", "b"})

    def test_late_registration_of_all_topics_keeps_topic_made_since(self):
        self.register(version=V2, configs=[TopicConfig("T"), TopicConfig("U")])
        self.register(version=V1, configs=[TopicConfig("U")], has_all_topics=True)
        self.assertEqual(set(self.addresses("T")), {"a"})

    def test_broker_with_another_name_at_an_address_replaces_the_first(self):
        self.register(configs=[TopicConfig("T")])
        self.register(SLAVE)
        self.register(BrokerIdentity("c", "b", 0, MASTER.address), configs=[TopicConfig("T")])
        self.assertEqual(self.addresses(), {"a": {1: SLAVE.address}, "b": {0: MASTER.address}})
        self.register(BrokerIdentity("c", "b", 1, SLAVE.address))
        self.assertEqual(self.addresses(), {"b": {0: MASTER.address, 1: SLAVE.address}})
        self.assertEqual(self.routes.cluster_info().cluster_addr_table, {"c": {"b"}})

    def test_register_master_adds_topics(self):
        self.assertEqual(self.register(configs=[TopicConfig("T", 4, 8, 6, topic_sys_flag=1)]), MasterAddresses())
        route = self.routes.pick_topic_route("T")
        (queue,) = route.queue_datas
        self.assertEqual(
            (queue.broker_name, queue.read_queue_nums, queue.write_queue_nums, queue.perm, queue.topic_sys_flag),
            ("a", 4, 8, 6, 1),
        )
        (broker,) = route.broker_datas
        self.assertEqual((broker.cluster, broker.broker_name, broker.broker_addrs), ("c", "a", {0: MASTER.address}))
        self.assertIsNone(route.order_topic_conf)
        self.assertIsNone(self.routes.pick_topic_route("U"))

    def test_register_builds_queues_outside_lock(self):
        held = []
        real = route_info.queues_of
        lock = self.routes._lock
        self.patch(route_info, "queues_of", lambda *arguments: (held.append(lock.locked()), real(*arguments))[1])
        self.register(configs=[TopicConfig("T", 4, 4)])
        self.assertEqual(held, [False])
        self.assertEqual(self.routes.pick_topic_route("T").queue_datas[0].read_queue_nums, 4)

    def test_register_slave_returns_master_and_adds_no_topics(self):
        self.assertEqual(self.register(SLAVE, configs=[TopicConfig("S")]), MasterAddresses())
        self.register(configs=[TopicConfig("T")])
        self.assertEqual(self.register(SLAVE), MasterAddresses("10.0.0.1:10911", "10.0.0.1:10912"))
        self.assertIsNone(self.routes.pick_topic_route("S"))
        self.assertEqual(self.addresses(), {"a": {0: MASTER.address, 1: SLAVE.address}})

    def test_register_with_same_data_version_ignores_topics(self):
        self.register(configs=[TopicConfig("T", 4, 4, 6)])
        self.register(configs=[TopicConfig("T", 8, 8, 6)])
        self.assertEqual(self.routes.pick_topic_route("T").queue_datas[0].read_queue_nums, 4)
        self.register(version=V2, configs=[TopicConfig("T", 8, 8, 6), TopicConfig("U")])
        self.assertEqual(self.routes.pick_topic_route("T").queue_datas[0].read_queue_nums, 8)
        self.assertIsNotNone(self.routes.pick_topic_route("U"))

    def test_slave_promoted_to_master_loses_old_id(self):
        self.register(SLAVE)
        self.register(BrokerIdentity("c", "a", 0, SLAVE.address), configs=[TopicConfig("T")])
        self.assertEqual(self.addresses(), {"a": {0: SLAVE.address}})

    def test_register_from_new_address_updates_topics(self):
        self.register(configs=[TopicConfig("T", 4, 4, 6)])
        moved = BrokerIdentity("c", "a", 0, "10.0.0.9:10911")
        self.register(moved, configs=[TopicConfig("T", 8, 8, 6)])
        self.assertEqual(self.addresses(), {"a": {0: moved.address}})
        self.assertEqual(self.routes.pick_topic_route("T").queue_datas[0].read_queue_nums, 8)

    def test_filter_servers(self):
        self.register(configs=[TopicConfig("T")], filter_servers=["f:1"])
        self.register(filter_servers=None)
        self.assertEqual(self.routes.pick_topic_route("T").filter_server_table, {MASTER.address: ["f:1"]})
        self.register(filter_servers=[])
        self.assertEqual(self.routes.pick_topic_route("T").filter_server_table, {})

    def test_revision_grows_only_on_route_changes(self):
        self.register(configs=[TopicConfig("T")])
        before = self.routes.revision
        self.register(configs=[TopicConfig("T")], now_ms=30_000)
        self.register(version=V2, configs=[TopicConfig("T")], now_ms=60_000)
        self.routes.query_data_version(MASTER.address, V2, 90_000)
        self.routes.delete_topic("no such topic")
        self.assertEqual(self.routes.revision, before)
        for change in (
            lambda: self.register(version=DataVersion(2000, 3), configs=[TopicConfig("T", 1, 1, 6)]),
            lambda: self.register(SLAVE),
            lambda: self.register(SLAVE, filter_servers=["f:1"]),
            lambda: self.routes.wipe_write_perm("a"),
            lambda: self.routes.delete_topic("T"),
            lambda: self.routes.unregister(SLAVE),
            lambda: self.routes.unregister(MASTER),
        ):
            before = self.routes.revision
            change()
            self.assertGreater(self.routes.revision, before)

    def test_returned_routes_do_not_change_later(self):
        self.register(configs=[TopicConfig("T")])
        route, info = self.routes.pick_topic_route("T"), self.routes.cluster_info()
        self.routes.wipe_write_perm("a")
        self.register(SLAVE)
        self.register(OTHER)
        self.assertEqual(route.queue_datas[0].perm, 6)
        self.assertEqual(route.broker_datas[0].broker_addrs, {0: MASTER.address})
        self.assertEqual(info.broker_addr_table["a"].broker_addrs, {0: MASTER.address})
        self.assertEqual(info.cluster_addr_table, {"c": {"a"}})


class DepartureTest(RouteInfoTest):
    def setUp(self):
        super().setUp()
        self.master, self.other = FakeConnection(), FakeConnection()
        self.register(configs=[TopicConfig("T"), TopicConfig("U")], connection=self.master, filter_servers=["f:1"])
        self.register(OTHER, configs=[TopicConfig("T")], connection=self.other, now_ms=50_000)

    def test_unregister_removes_the_broker_with_its_topics(self):
        self.routes.unregister(MASTER)
        self.assertEqual(self.addresses(), {"b": {0: OTHER.address}})
        self.assertEqual([queue.broker_name for queue in self.routes.pick_topic_route("T").queue_datas], ["b"])
        self.assertIsNone(self.routes.pick_topic_route("U"))
        self.assertEqual(self.routes.cluster_info().cluster_addr_table, {"c": {"b"}})
        self.routes.unregister(OTHER)
        self.assertEqual(self.routes.cluster_info().cluster_addr_table, {})
        self.assertEqual(self.routes.all_topics().topic_list, [])

    def test_unregister_master_keeps_topics_of_slave(self):
        self.register(SLAVE)
        self.routes.unregister(MASTER)
        self.assertEqual(self.addresses("U"), {"a": {1: SLAVE.address}})

    def test_late_unregister_leaves_successor(self):
        successor = BrokerIdentity("c", "a", 0, "10.0.0.9:10911")
        self.register(successor, configs=[TopicConfig("U")])
        self.routes.unregister(MASTER)
        self.assertEqual(self.addresses("U"), {"a": {0: successor.address}})

    def test_closed_connection_removes_its_broker(self):
        self.routes.on_connection_closed(self.master)
        self.assertIsNone(self.routes.pick_topic_route("U"))
        self.assertEqual(self.addresses(), {"b": {0: OTHER.address}})

    def test_closed_other_connections_remove_no_broker(self):
        self.register(connection=FakeConnection())
        self.routes.on_connection_closed(self.master)
        self.routes.on_connection_closed(FakeConnection())
        self.assertEqual(set(self.addresses()), {"a", "b"})

    def test_scan_inactive_removes_expired_brokers(self):
        self.assertEqual(self.routes.scan_inactive(BROKER_EXPIRY_MS), 0)
        self.assertEqual(self.routes.scan_inactive(BROKER_EXPIRY_MS + 1), 1)
        self.assertEqual(self.addresses(), {"b": {0: OTHER.address}})
        self.assertEqual((self.master.is_closed, self.other.is_closed), (True, False))
        self.assertEqual(self.routes.scan_inactive(BROKER_EXPIRY_MS + 50_001), 1)
        self.assertIsNone(self.routes.pick_topic_route("T"))

    def test_expired_broker_registers_again_with_topics(self):
        self.routes.scan_inactive(BROKER_EXPIRY_MS + 1)
        self.register(configs=[TopicConfig("U")], now_ms=BROKER_EXPIRY_MS + 2)
        self.assertEqual(self.addresses("U"), {"a": {0: MASTER.address}})


class DataVersionTest(RouteInfoTest):
    def test_unknown_broker_is_changed(self):
        self.assertEqual(self.routes.query_data_version(MASTER.address, V1, 0), (True, None))

    def test_changed_and_unchanged(self):
        self.register()
        self.assertEqual(self.routes.query_data_version(MASTER.address, V1, 0), (False, V1))
        self.assertEqual(self.routes.query_data_version(MASTER.address, V2, 0), (True, V1))

    def test_query_data_version_unchanged_renews_broker(self):
        self.register()
        self.routes.query_data_version(MASTER.address, V2, 50_000)
        self.routes.query_data_version(MASTER.address, V1, 40_000)
        self.assertEqual(self.routes.scan_inactive(40_000 + BROKER_EXPIRY_MS), 0)
        self.assertEqual(self.routes.scan_inactive(40_001 + BROKER_EXPIRY_MS), 1)


class TopicsTest(RouteInfoTest):
    def setUp(self):
        super().setUp()
        self.register(configs=[TopicConfig("T", perm=7), TopicConfig("U", topic_sys_flag=1)])
        self.register(OTHER, configs=[TopicConfig("T"), TopicConfig("V", topic_sys_flag=2)])
        self.register(
            BrokerIdentity("d", "x", 0, "10.0.0.4:10911"),
            configs=[TopicConfig("T"), TopicConfig("W", topic_sys_flag=3)],
        )

    def perms(self, topic):
        return {queue.broker_name: queue.perm for queue in self.routes.pick_topic_route(topic).queue_datas}

    def test_write_permission_is_wiped_and_given(self):
        self.assertEqual(self.routes.wipe_write_perm("a"), 2)
        self.assertEqual(self.perms("T"), {"a": 5, "b": 6, "x": 6})
        self.assertEqual(self.routes.add_write_perm("a"), 2)
        self.assertEqual(self.perms("T"), {"a": 6, "b": 6, "x": 6})
        self.assertEqual(self.routes.wipe_write_perm("nobody"), 0)

    def test_wiped_permission_lasts_until_the_topics_change(self):
        self.routes.wipe_write_perm("a")
        self.register(configs=[TopicConfig("T", perm=7)])
        self.assertEqual(self.perms("T")["a"], 5)
        self.register(version=V2, configs=[TopicConfig("T", perm=7)])
        self.assertEqual(self.perms("T")["a"], 7)

    def test_delete_topic_in_cluster_and_everywhere(self):
        self.routes.delete_topic("T", "c")
        self.assertEqual(self.perms("T"), {"x": 6})
        self.routes.delete_topic("T", "no such cluster")
        self.assertEqual(self.perms("T"), {"x": 6})
        self.routes.delete_topic("T")
        self.assertIsNone(self.routes.pick_topic_route("T"))

    def test_topic_lists_by_kind(self):
        def names(topic_list):
            self.assertEqual(len(topic_list.topic_list), len(set(topic_list.topic_list)))
            return set(topic_list.topic_list)

        self.assertEqual(names(self.routes.all_topics()), {"T", "U", "V", "W"})
        self.assertEqual(names(self.routes.topics_of_cluster("c")), {"T", "U", "V"})
        self.assertEqual(names(self.routes.topics_of_cluster("no such cluster")), set())
        self.assertEqual(names(self.routes.unit_topics()), {"U", "W"})
        self.assertEqual(names(self.routes.unit_sub_topics()), {"V", "W"})
        self.assertEqual(names(self.routes.unit_sub_ununit_topics()), {"V"})
        self.assertEqual(names(self.routes.system_topics()), {"c", "d", "a", "b", "x"})
        self.assertEqual(self.routes.system_topics().broker_addr, MASTER.address)
        self.assertIsNone(self.routes.all_topics().broker_addr)

    def test_cluster_info(self):
        info = self.routes.cluster_info()
        self.assertEqual(info.cluster_addr_table, {"c": {"a", "b"}, "d": {"x"}})
        self.assertEqual(info.broker_addr_table["x"].broker_addrs, {0: "10.0.0.4:10911"})
