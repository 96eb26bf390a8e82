"""Questions of the client's administration about groups, topics and brokers, with the servers of rocketd.testing."""

import pytest

from rocketd.client import BrokerAccount, Message
from rocketd.client.errors import BrokerError, NoRouteError, UsageError
from rocketd.client.sync import Admin, Consumer, Producer
from rocketd.remoting.bodies.tables import MessageQueue
from rocketd.testing import Cluster

BROKER = "broker-a"


@pytest.fixture(scope="module")
def cluster():
    with Cluster(topics=["T"]) as cluster:
        with Producer("PG", **cluster.client_options()) as producer:
            for number in range(3):
                producer.send(Message("T", b"%d" % number), queue=MessageQueue("T", BROKER, 0))
        got = []
        with Consumer("CG", topics="T", handler=got.append, **cluster.client_options()):
            cluster.advance(seconds=10)
        with Producer("PG", **cluster.client_options()) as producer:
            producer.send(Message("T", b"3"), queue=MessageQueue("T", BROKER, 0))
        cluster.advance(seconds=10)
        yield cluster


@pytest.fixture(scope="module")
def admin(cluster):
    with Admin(**cluster.client_options()) as admin:
        yield admin


def test_stats_of_topic_are_ends_and_last_times_of_its_queues(admin, cluster):
    stats = admin.topic_stats("T")
    assert [(queue.queue_id, ends.min_offset, ends.max_offset) for queue, ends in stats.items()][:2] == [
        (0, 0, 4),
        (1, 0, 0),
    ]
    first, second = list(stats.values())[:2]
    assert first.last_stored_at == cluster.messages("T")[-1].stored_at
    assert second.last_stored_at is None


def test_progress_of_group_is_in_each_queue(admin, cluster):
    progress = admin.group_progress("CG", "T")
    first = progress[MessageQueue("T", BROKER, 0)]
    assert (first.consumed, first.end, first.behind) == (3, 4, 1)
    assert first.last_consumed_at == cluster.messages("T")[2].stored_at
    assert {queue.topic for queue in admin.group_progress("CG")} == {"T", "%RETRY%CG"}
    assert admin.group_progress("Nobody") == {}


def test_groups_and_their_topics_are_listed(admin):
    groups = admin.groups()
    assert (groups["CG"].group_name, groups["CG"].retry_max_times) == ("CG", 16)
    assert admin.topic_groups("T") == ["CG"]
    (queues,) = admin.topic_route("T").queue_datas
    assert (queues.broker_name, queues.perm) == (BROKER, 6)
    with pytest.raises(NoRouteError):
        admin.topic_stats("Nothing")


def test_clients_of_groups_are_those_online(admin, cluster):
    assert (admin.consumers("CG"), admin.producers("PG")) == ([], [])
    options = cluster.client_options()
    with Consumer("CG", topics="T", **options) as consumer, Producer("PG", **options) as producer:
        cluster.advance(seconds=40)
        (member,), (sender,) = admin.consumers("CG"), admin.producers("PG")
        assert member.client_id == consumer._engine.instance.client_id
        assert (member.language, member.version) == ("PYTHON", 407)
        assert sender.client_id == producer._engine.instance.client_id


def test_clone_of_offsets_lets_another_group_begin_there(admin):
    admin.create_group("Copy")
    before = admin.group_progress("CG", "T")
    admin.clone_offsets("CG", "Copy", "T")
    queue = MessageQueue("T", BROKER, 0)
    assert admin.group_progress("Copy", "T")[queue].consumed == before[queue].consumed
    admin.create_group("Whole")
    admin.clone_offsets("CG", "Whole")
    assert admin.group_progress("Whole", "T")[queue].consumed == before[queue].consumed


def test_permission_of_topic_is_changed_with_its_queues_kept(admin, cluster):
    cluster.create_topic("Closed", queues=3)
    admin.set_topic_permission("Closed", write=False)
    config = cluster.broker.topics.select("Closed")
    assert (config.perm, config.read_queue_nums, config.write_queue_nums) == (4, 3, 3)
    admin.set_topic_permission("Closed")
    assert cluster.broker.topics.select("Closed").perm == 6
    with pytest.raises(UsageError, match="neither"):
        admin.set_topic_permission("Closed", read=False, write=False)


def test_settings_and_state_of_broker(admin):
    assert admin.broker_config(BROKER)["brokerName"] == BROKER
    assert "bootTimestamp" in admin.broker_status(BROKER)
    admin.set_broker_config(BROKER, {"fileReservedTime": "48"})
    assert admin.broker_config(BROKER)["fileReservedTime"] == "48"
    for wrong in ({"a b": "1"}, {"a": 1}, {"a": "1\n2"}, {"": "1"}, {"a": " 1"}):
        with pytest.raises(UsageError, match="setting"):
            admin.set_broker_config(BROKER, wrong)
    with pytest.raises(BrokerError):
        admin.set_broker_config(BROKER, {"fileReservedTime": "never"})
    with pytest.raises(UsageError, match="registered are broker-a"):
        admin.broker_status("broker-b")


def test_settings_of_name_server_are_read_and_changed(admin):
    ((address, before),) = admin.namesrv_config().items()
    assert before["orderMessageEnable"] == "false"
    admin.set_namesrv_config({"orderMessageEnable": "true"})
    assert admin.namesrv_config()[address]["orderMessageEnable"] == "true"
    admin.set_namesrv_config({"orderMessageEnable": "false"})
    with pytest.raises(UsageError, match="setting"):
        admin.set_namesrv_config({"a b": "1"})
    with pytest.raises(BrokerError):
        admin.set_namesrv_config({"orderMessageEnable": "perhaps"})


def test_keys_of_name_server_are_put_listed_and_deleted(admin):
    assert admin.kv_values("N") == {}
    admin.put_kv("N", "k", "v")
    admin.put_kv("N", "a", "b=c")
    assert admin.kv_values("N") == {"a": "b=c", "k": "v"}
    admin.delete_kv("N", "k")
    admin.delete_kv("N", "missing")
    assert admin.kv_values("N") == {"a": "b=c"}
    with pytest.raises(UsageError, match="value=''"):
        admin.put_kv("N", "k", "")


def test_accounts_are_refused_by_broker_without_access_control(admin):
    for call in (lambda: admin.accounts(BROKER), lambda: admin.set_account(BrokerAccount("shopkeeper"))):
        with pytest.raises(BrokerError, match="access control is off"):
            call()


def test_write_permission_of_broker_is_wiped_and_added(admin):
    wiped = admin.wipe_write_permission(BROKER)
    assert wiped > 1
    assert admin.topic_route("T").queue_datas[0].perm == 4
    assert admin.add_write_permission(BROKER) == wiped
    assert admin.topic_route("T").queue_datas[0].perm == 6


def test_cleaning_is_accepted(admin, cluster):
    admin.clean_unused_topics()
    admin.clean_expired_queues()
    assert len(cluster.messages("T")) == 4
