"""A master of one kind and a slave of the other: log, queues, index and tables are the same, and consumers go on."""

import os
from collections import Counter

import pytest

from tests.interop.store_checks import check_index, check_log, check_queues
from tests.interop.store_journey import GROUP, QUEUES, TRANSACTION_TOPICS, StoreJourney
from tests.interop.toolchain import run_client
from tests.support import wire
from tests.support.store_brokers import APACHE, IPV4, ROCKETD, SLOTS, SMALL_FILES, StoreBrokers
from tests.support.store_directory import read_log, read_table
from tests.support.store_wire import await_condition, max_offset, pull_records

SEND_MESSAGE = 10
QUERY_CONSUMER_OFFSET = 14
GET_BROKER_RUNTIME_INFO = 28
KILLS = int(os.environ.get("ROCKETD_PAIR_KILLS", "2"))
TOPIC = "T"
LATE = "latecomers"

PAIR = {
    **SMALL_FILES,
    "brokerIP2": IPV4,
    "registerNameServerPeriod": "10000",  # a slave learns from the answers where its master is
}
MASTER = {**PAIR, "brokerRole": "SYNC_MASTER", "slaveTimeout": "20000"}
SLAVE = {**PAIR, "brokerRole": "SLAVE", "brokerId": "1"}


LISTED = {"haAllowedAddresses": "127.0.0.1"}
"""Apache's broker does not know this setting, and passes over it."""


@pytest.fixture
def brokers(request, namesrv, tmp_path_factory):
    """A master and a slave; a parameter adds settings to those of the master."""
    master = {**MASTER, **getattr(request, "param", {})}
    pair = [
        StoreBrokers(tmp_path_factory.mktemp(part), namesrv, given) for part, given in (("m", master), ("s", SLAVE))
    ]
    yield pair
    for broker in pair:
        broker.close()


BOTH_WAYS = pytest.mark.parametrize(
    ("kind", "other"), [(APACHE, ROCKETD), (ROCKETD, APACHE)], ids=["apache-master", "rocketd-master"]
)


@BOTH_WAYS
def test_master_and_slave_of_different_kinds(kind, other, brokers, tmp_path_factory):
    master, slave = brokers
    journey = StoreJourney(master, tmp_path_factory.mktemp)
    journey.begin(kind, IPV4)
    slave.start(other)
    await_replication(master)

    # SEND_OK, on which the journey insists, means that the slave has it.
    journey.fill()
    journey.consume()
    journey.transact()
    # The consumer does not wait for answers to its last offsets: the master may take them a moment after its end.
    await_condition("offsets are copied", lambda: consumer_offsets(slave, GROUP) == consumer_offsets(master, GROUP))
    committed = consumer_offsets(master, GROUP)
    assert committed[TOPIC, 0] > 0

    # Apache's broker does not start again when it was killed while it made a file of a queue.
    await_condition("the slave has dispatched everything", lambda: ends(slave) == ends(master))
    slave.kill()
    slave.start(other)
    await_replication(master)
    journey.fill()
    journey.postpone()
    journey.await_delivered("delay-2")
    await_condition("the slave serves everything", lambda: served(slave) == served(master))
    await_condition("progress of delays is copied", lambda: same_table(master, slave, "delayOffset"))
    refused = wire.call(slave.address, SEND_MESSAGE, send_fields(), b"x")
    assert refused.code == 14
    assert "messages are put to the slave" in refused.remark

    everything = {(line["queueId"], line["queueOffset"]) for line in consumable(master)}
    journey.stop()
    # The group continues behind the offsets committed at the master; a new one gets everything.
    unread = {place for place in everything if place[1] >= committed[TOPIC, place[0]]}
    assert consume(master.namesrv, GROUP, len(unread), tmp_path_factory) == Counter(unread)
    assert consume(master.namesrv, LATE, len(everything), tmp_path_factory) == Counter(everything)
    slave.stop()

    assert log_files(slave) == log_files(master)
    records = read_log(slave.store)
    check_log(records)
    check_queues(slave.store, records, journey.delays_ms, complete=True)
    check_index(slave.store, SLOTS, records, once=False)
    for table, content in (("topics", "topicConfigTable"), ("subscriptionGroup", "subscriptionGroupTable")):
        copied, original = (read_table(broker.store, table)[content] for broker in (slave, master))
        # The last changes reached one of them only: the consumers the slave, a topic of Apache's the stopping master.
        for name in original.keys() - TRANSACTION_TOPICS:
            assert copied[name] == original[name], name


@BOTH_WAYS
@pytest.mark.parametrize("brokers", [LISTED], indirect=True, ids=["listed"])
@pytest.mark.timeout(120 + 60 * KILLS)
def test_kills_under_load(kind, other, brokers, tmp_path_factory):
    """ROCKETD_PAIR_KILLS says how many kills there are, of master and slave in turn; each under load."""
    master, slave = brokers
    journey = StoreJourney(master, tmp_path_factory.mktemp)
    journey.begin(kind, IPV4)
    slave.start(other)
    for number in range(KILLS):
        await_replication(master)
        await_condition("the slave has dispatched everything", lambda: ends(slave) == ends(master))
        if number % 2:
            journey.load(1000 // KILLS, slave.kill)
            for _ in range(20):
                wire.call(master.address, SEND_MESSAGE, send_fields(), b"alone")
            slave.start(other)
        else:
            journey.kill_under_load(acknowledged=1000 // KILLS)
            journey.begin(kind, IPV4)
    await_replication(master)
    await_condition("the slave has dispatched everything", lambda: ends(slave) == ends(master))
    print(f"{KILLS} kills, {sum(line['status'] == 'SEND_OK' for line in journey.sent)} acknowledged, 0 lost")
    # After many kills, Apache's own index lacks entries: a start deletes files of it that the checkpoint does not cover.
    journey.stop(index=kind == ROCKETD or KILLS <= 2)
    slave.stop()
    assert log_files(slave) == log_files(master)
    check_queues(slave.store, read_log(slave.store), journey.delays_ms, complete=True)


def await_replication(master):
    """Return when a send is answered as one that the slave has."""

    def is_replicated():
        return wire.call(master.address, SEND_MESSAGE, send_fields(), b"probe").code == wire.SUCCESS

    await_condition("a send is replicated", is_replicated)


def send_fields():
    """The header of a send to a topic for this purpose only."""
    return {
        "producerGroup": "probes",
        "topic": "T-1",
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "1",
        "queueId": "0",
        "sysFlag": "0",
        "bornTimestamp": "1700000000000",
        "flag": "0",
        "properties": "KEYS\x01probe",
        "reconsumeTimes": "0",
        "unitMode": "false",
    }


def consumer_offsets(broker, group):
    """Return the offsets of a group at a broker."""
    offsets = {}
    for queue_id in range(QUEUES[TOPIC]):
        fields = {"consumerGroup": group, "topic": TOPIC, "queueId": str(queue_id)}
        answer = wire.call(broker.address, QUERY_CONSUMER_OFFSET, fields)
        offsets[TOPIC, queue_id] = int(answer.ext_fields["offset"]) if answer.code == wire.SUCCESS else -1
    return offsets


def served(broker):
    """Every record available to pulls, by queue."""
    return {
        (topic, queue): pull_records(broker.address, topic, queue) for topic in QUEUES for queue in range(QUEUES[topic])
    }


def ends(broker):
    """The end of every queue, of topics too that the broker has not copied yet."""
    return {
        (topic, queue): max_offset(broker.address, topic, queue) for topic in QUEUES for queue in range(QUEUES[topic])
    }


def consumable(broker):
    """Queue ids and offsets of all messages of the topic that the consumers read."""
    return [
        {"queueId": queue, "queueOffset": offset}
        for queue in range(QUEUES[TOPIC])
        for offset in range(max_offset(broker.address, TOPIC, queue))
    ]


def consume(namesrv, group, count, homes):
    """Have the Java client consume; return its messages."""
    arguments = ("--namesrv", namesrv, "--topic", TOPIC, "--group", group, "--count", count, "--timeout", 120)
    lines = run_client("java", "consume", *arguments, home=homes.mktemp("java-consume")).lines
    return Counter((line["queueId"], line["queueOffset"]) for line in lines)


def same_table(master, slave, name):
    """Whether a table in the files of both says the same."""
    files = [broker.store / "config" / f"{name}.json" for broker in (master, slave)]
    return all(file.exists() for file in files) and read_table(master.store, name) == read_table(slave.store, name)


def log_files(broker):
    """Name and content of every file of the log that holds something."""
    files = ((file.name, file.read_bytes()) for file in sorted((broker.store / "commitlog").iterdir()))
    return {name: data for name, data in files if any(data)}
