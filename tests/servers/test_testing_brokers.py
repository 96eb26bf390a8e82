"""rocketd.testing with several brokers and with slaves."""

import threading
from contextlib import ExitStack

import pytest

from rocketd.client.errors import ClientStateError, IllegalOptionError, TopicNotFoundError, UsageError
from rocketd.client.sync import Admin, Consumer, Message, Producer
from rocketd.testing import Cluster, ClusterBroker

PAIR = ["broker-a", "broker-b"]


def bodies(messages):
    return sorted(int(message.body) for message in messages)


def send(producer, numbers, topic="T"):
    return [producer.send(Message(topic, b"%d" % number)) for number in numbers]


def collector(cluster, seen, group="CG", topics="T", **options):
    def handle(message):
        seen.append(int(message.body))

    return Consumer(group, topics=topics, handler=handle, begin="earliest", **options, **cluster.client_options())


# ------------------------------------------------------------ several brokers


def test_brokers_have_names_and_share_topics():
    with Cluster(topics=["T"], brokers=2) as cluster, Producer("P", **cluster.client_options()) as producer:
        assert list(cluster.brokers) == PAIR
        assert {queue.broker_name for queue in producer.publish_queues("T")} == set(PAIR)
        results = send(producer, range(16))
        assert {result.queue.broker_name for result in results} == set(PAIR)
        assert bodies(cluster.messages("T")) == list(range(16))
        assert [len(cluster.brokers[name].messages("T")) for name in PAIR] == [8, 8]
        assert [message.queue.broker_name for message in cluster.messages("T")] == ["broker-a"] * 8 + ["broker-b"] * 8
        assert cluster.broker is cluster.brokers["broker-a"].server
        assert "ClusterBroker broker-b, running" in repr(cluster.brokers["broker-b"])


def test_brokers_have_settings_and_chosen_topics():
    brokers = {"one": {"defaultTopicQueueNums": 2}, "two": {"flushDiskType": "SYNC_FLUSH"}}
    with Cluster(brokers=brokers, broker={"defaultTopicQueueNums": 3}) as cluster:
        settings = [cluster.brokers[name].server.settings for name in brokers]
        assert [each.broker.default_topic_queue_nums for each in settings] == [2, 3]
        assert [each.store.flush_disk_type for each in settings] == ["ASYNC_FLUSH", "SYNC_FLUSH"]
        cluster.create_topic("Half", queues=1, brokers="two")
        cluster.create_topic("Whole", queues=1)
        with Producer("P", **cluster.client_options()) as producer:
            assert [queue.broker_name for queue in producer.publish_queues("Half")] == ["two"]
            assert {queue.broker_name for queue in producer.publish_queues("Whole")} == set(brokers)
            producer.send(Message("Half", b"1"))
        assert bodies(cluster.messages("Half")) == [1]
        with pytest.raises(TopicNotFoundError, match="'Half' is not at one; it is at two"):
            cluster.brokers["one"].messages("Half")
        with pytest.raises(
            TopicNotFoundError, match=r"'Hall' is not at two: it was not created.*known are Half, Whole"
        ):
            cluster.brokers["two"].messages("Hall")


def test_killed_broker_leaves_other_to_clients():
    seen = []
    with Cluster(topics=["T"], brokers=PAIR) as cluster, Producer("P", **cluster.client_options()) as producer:
        with collector(cluster, seen):
            send(producer, range(8))
            cluster.advance(seconds=20)  # the offsets are stored
            dead = cluster.brokers["broker-b"]
            dead.kill()
            assert not dead.is_running
            with pytest.raises(ClientStateError, match="broker-b does not run"):
                cluster.messages("T")
            with pytest.raises(ClientStateError, match="broker-b cannot be killed"):
                dead.kill()
            results = send(producer, range(8, 16))
            assert {result.queue.broker_name for result in results} == {"broker-a"}
            cluster.advance(minutes=1)
            assert sorted(seen) == list(range(16)) == sorted({*seen})
            dead.restart()
            cluster.advance(minutes=1)
            results = send(producer, range(16, 24))
            assert {result.queue.broker_name for result in results} == set(PAIR)
            cluster.advance(seconds=30)
        assert sorted(seen) == list(range(24))
        assert bodies(cluster.messages("T")) == list(range(24))


def test_power_cut_and_slow_disk_are_of_one_broker():
    brokers = {"broker-a": {"syncFlushTimeout": 2000}, "broker-b": {"syncFlushTimeout": 200}}
    with Cluster(topics=["T"], brokers=brokers, broker={"flushDiskType": "SYNC_FLUSH"}) as cluster:
        with Producer("P", **cluster.client_options()) as producer:
            queues = {queue.broker_name: queue for queue in producer.publish_queues("T")}
            cluster.brokers["broker-b"].slow_fsync(30)
            statuses = {
                name: producer.send(Message("T", b"1"), queue=queue).status.name for name, queue in queues.items()
            }
            assert statuses == {"broker-a": "SEND_OK", "broker-b": "FLUSH_DISK_TIMEOUT"}
            cluster.brokers["broker-b"].kill(power_cut=True)
            cluster.brokers["broker-b"].slow_fsync(0)
            cluster.brokers["broker-b"].restart()
        assert [len(cluster.brokers[name].messages("T")) for name in PAIR] == [1, 0]


def test_faults_of_cluster_are_of_all_brokers():
    with Cluster(topics=["T"], brokers=2, slaves=1) as cluster, Producer("P", **cluster.client_options()) as producer:
        send(producer, range(8))
        cluster.settle()
        cluster.kill()
        assert not any(broker.is_running for broker in cluster.brokers.values())
        with pytest.raises(ClientStateError, match="no broker runs"):
            cluster.kill()
        cluster.restart()
        assert all(broker.is_running for broker in cluster.brokers.values())
        assert bodies(cluster.messages("T")) == list(range(8))
        cluster.cut_connections()
        cluster.advance(minutes=1)
        send(producer, range(8, 16))
        cluster.settle()
        assert bodies(cluster.messages("T")) == list(range(16))
        copies = [message for name in PAIR for message in cluster.brokers[f"{name}:1"].messages("T")]
        assert bodies(copies) == list(range(16))


def test_cut_connections_of_one_broker_are_reopened():
    seen = []
    with (
        Cluster(topics=["T"], brokers=2) as cluster,
        Producer("P", **cluster.client_options()) as producer,
        collector(cluster, seen),
    ):
        send(producer, range(8))
        cluster.settle()
        servers = [cluster.brokers[name].server.server for name in PAIR]
        kept, cut = (set(server.connections) for server in servers)
        cluster.brokers["broker-b"].cut_connections()
        cluster.advance(minutes=1)
        assert kept <= set(servers[0].connections)
        assert not cut & set(servers[1].connections)
        send(producer, range(8, 16))
        cluster.settle()
    assert sorted(seen) == list(range(16))


def test_delayed_messages_of_each_broker_are_delivered():
    seen = []
    with Cluster(topics=["T"], brokers=3) as cluster, Producer("P", **cluster.client_options()) as producer:
        queues = {queue.broker_name: queue for queue in producer.publish_queues("T")}
        with collector(cluster, seen):
            for level, queue in zip((5, 6, 8), queues.values(), strict=True):  # 1, 2 and 4 minutes
                producer.send(Message("T", b"%d" % level, delay_level=level), queue=queue)
                producer.send(Message("T", b"%d" % (100 + level), deliver_after=60 * level), queue=queue)
            cluster.advance(seconds=90)
            assert sorted(seen) == [5]
            cluster.advance(minutes=3)
            assert sorted(seen) == [5, 6, 8]
            cluster.advance(minutes=4)
        assert sorted(seen) == [5, 6, 8, 105, 106, 108]


def test_sockets_of_each_broker_stay_after_restart():
    with Cluster(topics=["T"], brokers=2, slaves=1) as cluster:
        address = cluster.listen()
        with Producer("P", address) as producer:
            send(producer, range(8))
            addresses = [broker.server.address for broker in cluster.brokers.values()]
            assert len(set(addresses)) == 4
            for broker in cluster.brokers.values():
                broker.kill()
                broker.restart()
            assert [broker.server.address for broker in cluster.brokers.values()] == addresses
            send(producer, range(8, 16))
        assert bodies(cluster.messages("T")) == list(range(16))


def test_broker_can_be_killed_by_any_thread():
    with Cluster(topics=["T"], brokers=4) as cluster, Producer("P", **cluster.client_options()) as producer:
        errors = []

        def work(broker):
            try:
                for _ in range(3):
                    broker.kill()
                    broker.restart()
                    cluster.advance(1)
            except Exception as error:
                errors.append(error)

        threads = [threading.Thread(target=work, args=(broker,)) for broker in cluster.brokers.values()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors
        cluster.advance(minutes=1)
        send(producer, range(8))
        assert bodies(cluster.messages("T")) == list(range(8))


# ------------------------------------------------------------ slaves


def test_slave_has_each_message_after_settle():
    with Cluster(topics=["T"], slaves=2) as cluster, Producer("P", **cluster.client_options()) as producer:
        assert list(cluster.brokers) == ["broker-a", "broker-a:1", "broker-a:2"]
        assert [broker.is_slave for broker in cluster.brokers.values()] == [False, True, True]
        for begin in range(0, 200, 50):
            send(producer, range(begin, begin + 50))
            cluster.settle()
            for broker in cluster.brokers.values():
                assert bodies(broker.messages("T")) == list(range(begin + 50))
        assert bodies(cluster.messages("T")) == list(range(200))


def test_consumer_reads_from_slave_while_master_is_dead():
    seen = []
    with Cluster(topics=["T"], slaves=1) as cluster, Producer("P", **cluster.client_options()) as producer:
        send(producer, range(10))
        with collector(cluster, seen):
            cluster.advance(seconds=20)
            assert sorted(seen) == list(range(10))
        send(producer, range(10, 20))
        cluster.settle()
        master = cluster.brokers["broker-a"]
        master.kill()
        with collector(cluster, seen):
            cluster.advance(minutes=2)
            # The offsets were copied, so the first ten do not come again.
            assert sorted(seen) == list(range(20))
            master.restart()
            cluster.advance(minutes=2)
            send(producer, range(20, 30))
            cluster.settle()
        assert sorted(seen) == list(range(30))
        assert bodies(cluster.brokers["broker-a:1"].messages("T")) == list(range(30))


def test_synchronous_master_waits_for_its_slave():
    with (
        Cluster(topics=["T"], slaves=1, broker={"brokerRole": "SYNC_MASTER"}) as cluster,
        Producer("P", **cluster.client_options()) as producer,
    ):
        slave = cluster.brokers["broker-a:1"]
        [result] = send(producer, [0])
        assert result.status.name == "SEND_OK"
        assert bodies(slave.messages("T")) == [0]
        slave.kill()
        [result] = send(producer, [1])
        assert result.status.name == "SLAVE_NOT_AVAILABLE"
        slave.restart()
        [result] = send(producer, [2])
        assert result.status.name == "SEND_OK"
        assert bodies(slave.messages("T")) == [0, 1, 2]


def test_restarted_slave_goes_on_where_it_was():
    with Cluster(topics=["T"], slaves=1) as cluster, Producer("P", **cluster.client_options()) as producer:
        slave = cluster.brokers["broker-a:1"]
        send(producer, range(10))
        cluster.settle()
        slave.kill(power_cut=True)
        send(producer, range(10, 20))
        slave.restart()
        cluster.settle()
        assert bodies(slave.messages("T")) == list(range(20))


def test_slave_follows_restarted_master_soon():
    with Cluster(topics=["T"], slaves=1) as cluster, Producer("P", **cluster.client_options()) as producer:
        send(producer, range(10))
        cluster.settle()
        cluster.brokers["broker-a"].kill()
        cluster.brokers["broker-a"].restart()
        cluster.advance(seconds=6)
        send(producer, range(10, 20))
        cluster.settle()
        assert bodies(cluster.brokers["broker-a:1"].messages("T")) == list(range(20))


def test_topics_and_offsets_come_to_slave_in_seconds():
    with (
        Cluster(slaves=1) as cluster,
        Producer("P", **cluster.client_options()) as producer,
        Admin(**cluster.client_options()) as admin,
    ):
        slave = cluster.brokers["broker-a:1"].server
        cluster.create_topic("Made")
        assert slave.topics.select("Made") is not None
        seen = []
        send(producer, [1], topic="ByFirstSend")
        with collector(cluster, seen, topics="ByFirstSend"):
            cluster.advance(seconds=20)
        assert seen == [1]
        assert slave.topics.select("ByFirstSend") is not None
        queues = admin.fetch_subscribe_queues("ByFirstSend")
        assert max(slave.offsets.query("CG", "ByFirstSend", queue.queue_id) for queue in queues) == 1


def test_jump_of_time_keeps_connections_of_slaves():
    with Cluster(topics=["T"], slaves=1) as cluster:
        cluster.advance(seconds=30)
        master = cluster.broker
        connections, slaves = set(master.server.connections), set(master.replication.master.slaves)
        cluster.advance(minutes=5)
        assert len(connections) == len(slaves) == 1
        assert set(master.server.connections) == connections
        assert set(master.replication.master.slaves) == slaves


def test_slave_delivers_no_delayed_message_of_dead_master():
    with Cluster(topics=["T"], slaves=1) as cluster, Producer("P", **cluster.client_options()) as producer:
        producer.send(Message("T", b"1", delay_level=5))
        producer.send(Message("T", b"2", deliver_after=60))
        cluster.settle()
        cluster.brokers["broker-a"].kill()
        cluster.advance(minutes=5)
        assert cluster.brokers["broker-a:1"].messages("T") == []
        cluster.brokers["broker-a"].restart()
        cluster.advance(seconds=10)
        assert bodies(cluster.messages("T")) == bodies(cluster.brokers["broker-a:1"].messages("T")) == [1, 2]


def test_longer_log_of_slave_is_refused_by_master_after_power_cut():
    with Cluster(topics=["T"], slaves=1) as cluster, Producer("P", **cluster.client_options()) as producer:
        cluster.brokers["broker-a"].slow_fsync(10_000)
        send(producer, range(10))
        cluster.settle()
        cluster.brokers["broker-a"].kill(power_cut=True)
        cluster.brokers["broker-a"].slow_fsync(0)
        cluster.brokers["broker-a"].restart()
        cluster.advance(seconds=30)
        assert bodies(cluster.messages("T")) == []
        assert bodies(cluster.brokers["broker-a:1"].messages("T")) == list(range(10))
        cluster.brokers["broker-a:1"].restart()
        assert cluster.broker.replication.master.slaves == set()


def test_cluster_starts_again_after_failed_start():
    cluster = Cluster(topics=["T"], brokers={"broker-a": {}, "broker-b": {"messageStorePlugIn": "none.Such"}})
    for _ in range(2):
        with pytest.raises(IllegalOptionError, match=r"^messageStorePlugIn = none\.Such: none\.Such is not installed"):
            cluster.start()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("rocketd-testing")]


# ------------------------------------------------------------ wrong uses


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"brokers": 0}, "brokers=0: accepted is a whole number from 1 on"),
        ({"brokers": 1000}, "accepted are 1 to 200 brokers"),
        ({"brokers": []}, "accepted are 1 to 200 brokers"),
        ({"brokers": ["a", "a"]}, "'a' is not a name, or a second broker"),
        ({"brokers": ["a:1"]}, "'a:1' is not a name"),
        ({"brokers": ["../a"]}, "'../a' is not a name"),
        ({"brokers": {"../a": {}}}, "'../a' is not a name"),
        ({"brokers": "../a"}, "'../a' is not a name"),
        ({"brokers": {"..": {}}}, "'..' is not a name"),
        ({"brokers": {"": {}}}, "'' is not a name"),
        ({"brokers": {1: {}}}, "1 is not a name"),
        ({"brokers": {"a": 3}}, "the settings of 'a' are 3; accepted is a mapping"),
        ({"brokers": {"a": {"flushDiskType": "FOO"}}}, "^flushDiskType = FOO: accepted is one of ASYNC_FLUSH"),
        ({"broker": {"noSuchThing": 1}}, "^'noSuchThing' is not a setting of a broker"),
        ({"broker": {"listenprt": 1}}, "^'listenprt' is not a setting of a broker; did you mean listenPort"),
        ({"broker": {"commercialBaseCount": 1}}, "^set, but without effect in rocketd.*commercialBaseCount"),
        ({"namesrv": {"serverWorkerThreads": "x"}}, "^serverWorkerThreads = x: accepted is"),
        ({"namesrv": {"flushDiskType": "SYNC_FLUSH"}}, "^'flushDiskType' is not a setting of a name server"),
        ({"brokers": {"a": {"listenPort": 1}}}, "listenPort: the servers of a test choose"),
        ({"slaves": -1}, "slaves=-1"),
        ({"broker": {"brokerRole": "SLAVE"}}, "slaves come from the option slaves"),
        ({"broker": {"brokerId": 1}}, "slaves come from the option slaves"),
        ({"broker": {"brokerName": "b"}}, "names come from the option brokers"),
    ],
)
def test_impossible_brokers_are_refused_at_once(options, text):
    with pytest.raises(IllegalOptionError, match=text):
        Cluster(**options)


@pytest.mark.parametrize("port", [-1, 65536])
def test_impossible_port_is_refused(port):
    with Cluster() as cluster, pytest.raises(IllegalOptionError, match=f"port={port}: accepted is a"):
        cluster.listen(port)


def test_names_of_many_brokers_go_on_after_z():
    names = list(Cluster(brokers=28).brokers)
    assert names[0] == "broker-a"
    assert names[25:] == ["broker-z", "broker-aa", "broker-ab"]


def test_topic_on_unknown_broker_or_slave_is_refused():
    with Cluster(brokers=2, slaves=1) as cluster:
        for name in ("broker-c", "broker-a:1"):
            with pytest.raises(UsageError, match=f"'{name}' is not a master of this cluster: there are broker-a, "):
                cluster.create_topic("T", brokers=[name])
        assert all(isinstance(broker, ClusterBroker) for broker in cluster.brokers.values())
    with pytest.raises(ClientStateError, match="not started"):
        cluster.brokers["broker-a"].kill()


def test_clusters_of_several_brokers_stand_side_by_side():
    with ExitStack() as stack:
        clusters = [stack.enter_context(Cluster(topics=["T"], brokers=2, slaves=1)) for _ in range(2)]
        for number, cluster in enumerate(clusters):
            with Producer("P", **cluster.client_options()) as producer:
                send(producer, [number] * 4)
        assert [bodies(cluster.messages("T")) for cluster in clusters] == [[0] * 4, [1] * 4]
