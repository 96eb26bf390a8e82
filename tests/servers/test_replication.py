"""A master and a slave as processes: the slave equals the master, through kills, stops and pauses of either."""

import json
import os
import shutil
import time
from functools import partial

import pytest

from rocketd.remoting.bodies.tables import (
    ConsumerOffsetSerializeWrapper,
    DataVersion,
    DelayOffsetSerializeWrapper,
    SubscriptionGroupWrapper,
    TopicConfigSerializeWrapper,
)
from rocketd.remoting.wire.codes import RequestCode, ResponseCode
from rocketd.remoting.wire.command import RemotingCommand
from tests.servers.load import Connection, Load, Sent, await_dispatched, check_everything_is_there, message, pull_all
from tests.servers.pairs import CATCH_UP_LIMIT, Pair, ask, runtime, slaves
from tests.support.ports import free_broker_port
from tests.support.server_processes import TOPIC, ServerProcesses

PRODUCERS = 4
KILLS = int(os.environ.get("ROCKETD_PAIR_KILLS", "2"))
SLAVE_TIMEOUT = 1.9  # seconds: an answer that waited for a slave in vain took slaveTimeout, or longer
AT_ONCE = 1.0  # seconds: less than any wait for a slave


@pytest.fixture
def make_pair(tmp_path):
    pairs = []

    def make(*args, **settings):
        pairs.append(Pair(tmp_path, *args, **settings))
        pairs[0].start()
        return pairs[0]

    yield make
    for pair in pairs:
        pair.end()
        assert "Traceback" not in pair.logs()


def send(address, number=0, **more):
    """Send one message; its answer, and how long that took."""
    begin = time.monotonic()
    command = message("single", number)
    command.ext_fields["i"] += "".join(f"\x02{name}\x01{value}" for name, value in more.items())
    answer = ask(address, command.code, command.ext_fields, command.body)
    return answer, time.monotonic() - begin


def put_load(pair, producers, count, then=lambda: None):
    """Send from several producers until so many are acknowledged; ``then`` is done while they still send."""
    load = Load(pair.master_address, producers)
    load.start()
    load.wait_for(count)
    then()
    load.join()


@pytest.mark.long
def test_a_slave_has_everything_through_kills_of_both(make_pair):
    pair = make_pair()
    producers = [Sent(f"p{number}") for number in range(PRODUCERS)]
    put_load(pair, producers, 3_000)
    pair.await_copy()
    pair.await_topic()
    stored = check_everything_is_there(pair.slave_address, producers)
    assert stored == sum(len(sent.acknowledged) for sent in producers)

    put_load(pair, producers, 2_000, then=pair.slave.kill)
    pair.start_slave()
    pair.await_copy()
    assert check_everything_is_there(pair.slave_address, producers) > stored

    put_load(pair, producers, 2_000, then=pair.master.kill)
    pair.start_master()
    pair.await_slave()
    pair.await_copy()
    put_load(pair, producers, 1_000)
    pair.await_copy()
    everything = check_everything_is_there(pair.master_address, producers)
    assert check_everything_is_there(pair.slave_address, producers) == everything

    assert pair.master.stop() == 0
    assert pair.slave.stop() == 0
    assert not (pair.slave_servers.store / "abort").exists()
    pair.check_same_logs()


@pytest.mark.long
def test_nothing_acknowledged_is_lost_through_kills_under_load(make_pair):
    """ROCKETD_PAIR_KILLS says how many kills there are, of master and slave in turn; each under load."""
    pair = make_pair("SYNC_MASTER")
    producers = [Sent(f"p{number}") for number in range(PRODUCERS)]
    for number in range(KILLS):
        if number % 2:
            put_load(pair, producers, 500, then=pair.slave.kill)
            pair.start_slave()
        else:
            put_load(pair, producers, 500, then=pair.master.kill)
            # Messages acknowledged with SEND_OK are at the slave before the master is back.
            await_dispatched(pair.slave_address)
            check_everything_is_there(pair.slave_address, producers)
            pair.start_master()
            pair.await_slave()
        pair.await_copy()
    stored = [check_everything_is_there(address, producers) for address in (pair.master_address, pair.slave_address)]
    assert stored[0] == stored[1]
    acknowledged = sum(len(sent.acknowledged) for sent in producers)
    print(f"{KILLS} kills, {acknowledged} acknowledged, {stored[0]} stored, 0 lost")
    assert pair.master.stop() == 0
    assert pair.slave.stop() == 0
    pair.check_same_logs()


def test_stopped_master_leaves_its_last_messages_at_the_slave(make_pair):
    pair = make_pair()
    producers = [Sent("p0")]
    put_load(pair, producers, 5_000)
    assert pair.master.stop() == 0
    assert pair.slave.stop() == 0
    pair.check_same_logs()


def test_late_slave_begins_with_the_last_file(make_pair):
    pair = make_pair()
    assert pair.slave.stop() == 0
    producers = [Sent("p0")]
    put_load(pair, producers, 4_000)
    first = runtime(pair.master_address)["commitLogMinOffset"]
    for directory in ("commitlog", "consumequeue", "index"):
        for root, _, files in os.walk(pair.slave_servers.store / directory, topdown=False):
            for file in files:
                os.remove(os.path.join(root, file))
            os.rmdir(root)
    pair.start_slave()
    pair.await_copy()
    begin = int(runtime(pair.slave_address)["commitLogMinOffset"])
    assert begin > int(first)
    assert begin % 1048576 == 0
    put_load(pair, producers, 4_000)
    pair.await_copy()
    offsets = [
        int(ask(address, RequestCode.GET_MAX_OFFSET, {"topic": TOPIC, "queueId": "0"}).ext_fields["offset"])
        for address in (pair.master_address, pair.slave_address)
    ]
    assert offsets[0] == offsets[1] > 0


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_synchronous_master_answers_with_result_of_the_copy(make_pair, flush):
    pair = make_pair("SYNC_MASTER", flushDiskType=flush)
    answer, _ = send(pair.master_address)
    assert answer.code == ResponseCode.SUCCESS
    assert list(slaves(pair.master_address).values()) == [int(runtime(pair.master_address)["commitLogMaxOffset"])]

    with pair.slave.paused():
        answer, took = send(pair.master_address, 1)
        assert answer.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
        assert took > SLAVE_TIMEOUT
        assert (answer.remark, set(answer.ext_fields)) == (
            None,
            {"msgId", "queueId", "queueOffset", "MSG_REGION", "TRACE_ON"},
        )
        assert [send(pair.master_address)[0].code for _ in range(7)] == [ResponseCode.SLAVE_NOT_AVAILABLE] * 7
        _, took = min((send(pair.master_address) for _ in range(3)), key=lambda each: each[1])
        assert took < AT_ONCE
        answer, _ = send(pair.master_address, 2, WAIT="false")
        assert answer.code == ResponseCode.SUCCESS
    pair.await_copy()
    answer, _ = send(pair.master_address, 3)
    assert answer.code == ResponseCode.SUCCESS

    assert pair.slave.stop() == 0
    answer, _ = send(pair.master_address, 4)
    assert answer.code == ResponseCode.SLAVE_NOT_AVAILABLE
    assert int(answer.ext_fields["queueOffset"]) > 0
    pair.start_slave()
    pair.await_copy()
    answer, _ = send(pair.master_address, 5)
    assert answer.code == ResponseCode.SUCCESS


def test_a_synchronous_master_under_load(make_pair):
    pair = make_pair("SYNC_MASTER", slaveTimeout="60000")
    producers = [Sent(f"p{number}") for number in range(PRODUCERS)]
    put_load(pair, producers, 1)
    pair.await_topic()
    # Killed at once: messages answered with success are at the slave.
    put_load(pair, producers, 5_000, then=pair.master.kill)
    assert not [sent.refused for sent in producers if sent.refused]
    pair.slave.wait_for("dispatched", lambda: runtime(pair.slave_address)["dispatchBehindBytes"] == "0", CATCH_UP_LIMIT)
    assert check_everything_is_there(pair.slave_address, producers) >= 5_000


def test_a_slave_copies_tables_and_refuses_changes(make_pair):
    pair = make_pair()
    address = pair.slave_address
    topic = {
        "topic": "Made", "defaultTopic": "TBW102", "readQueueNums": "3", "writeQueueNums": "3", "perm": "6",
        "topicFilterType": "SINGLE_TAG", "order": "false",
    }  # fmt: skip
    assert ask(pair.master_address, RequestCode.UPDATE_AND_CREATE_TOPIC, topic).code == ResponseCode.SUCCESS
    send(pair.master_address)
    send(pair.master_address, DELAY="1")
    group = b'{"groupName":"MadeGroup"}'
    assert ask(pair.master_address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=group).code == 0
    commit = {"consumerGroup": "G", "topic": TOPIC, "queueId": "0", "commitOffset": "1"}
    assert ask(pair.master_address, RequestCode.UPDATE_CONSUMER_OFFSET, commit).code == ResponseCode.SUCCESS

    def is_copied():
        topics = TopicConfigSerializeWrapper.decode(ask(address, RequestCode.GET_ALL_TOPIC_CONFIG).body)
        offsets = ConsumerOffsetSerializeWrapper.decode(ask(address, RequestCode.GET_ALL_CONSUMER_OFFSET).body)
        delays = DelayOffsetSerializeWrapper.decode(ask(address, RequestCode.GET_ALL_DELAY_OFFSET).body)
        groups = SubscriptionGroupWrapper.decode(ask(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG).body)
        return (
            "Made" in topics.topic_config_table
            and offsets.offset_table.get(f"{TOPIC}@G") == {0: 1}
            and delays.offset_table.get(1) == 1
            and "MadeGroup" in groups.subscription_group_table
        )

    pair.slave.wait_for("the tables are copied", is_copied, CATCH_UP_LIMIT)
    store = pair.slave_servers.store

    def is_written(file, name):
        path = store / "config" / file
        return path.exists() and f'"{name}"' in path.read_text()

    written = (
        *(("topics.json", "Made"), ("consumerOffset.json", f"{TOPIC}@G")),
        *(("delayOffset.json", "offsetTable"), ("subscriptionGroup.json", "MadeGroup")),
    )
    for file, name in written:
        pair.slave.wait_for(f"{file} is written", partial(is_written, file, name), CATCH_UP_LIMIT)

    answer, _ = send(address)
    assert (answer.code, "messages are put to the slave" in answer.remark) == (ResponseCode.SERVICE_NOT_AVAILABLE, True)
    end = {
        "producerGroup": "P", "tranStateTableOffset": "0", "commitLogOffset": "0", "commitOrRollback": "8", "msgId": "x",
    }  # fmt: skip
    answer = ask(address, RequestCode.END_TRANSACTION, end)
    assert (answer.code, answer.remark) == (ResponseCode.SLAVE_NOT_AVAILABLE, "not set any response code")
    assert ask(address, RequestCode.UPDATE_AND_CREATE_TOPIC, topic).code == ResponseCode.SYSTEM_ERROR


def test_master_address_can_be_changed_while_running(make_pair):
    pair = make_pair()
    send(pair.master_address)
    pair.await_copy()
    nobody = f"127.0.0.1:{free_broker_port()}"

    def follow(address):
        body = f"haMasterAddress={address}\n".encode()
        assert ask(pair.slave_address, RequestCode.UPDATE_BROKER_CONFIG, body=body).code == ResponseCode.SUCCESS

    follow(nobody)
    pair.master.wait_for("the slave is gone", lambda: not slaves(pair.master_address), CATCH_UP_LIMIT)
    table = runtime(pair.slave_address)
    assert (table["haMasterAddress"], table["haMasterConnected"]) == (nobody, "false")
    send(pair.master_address, 1)
    follow(f"localhost:{int(pair.master_address.partition(':')[2]) + 1}")
    pair.await_slave()
    pair.await_copy()
    assert runtime(pair.slave_address)["haMasterConnected"] == "true"
    assert f"cannot connect to the master at {nobody}" in pair.slave.log.read_text()


def test_port_for_slaves_in_use_ends_the_start(make_pair):
    pair = make_pair()
    port = str(int(pair.master_address.partition(":")[2]) + 1)
    assert pair.slave.stop() == 0
    done = pair.slave_servers.run_broker(haListenPort=port)
    assert done.returncode == 1
    text = (
        f"cannot listen on port {port}: it is in use by another process; stop that process or set another haListenPort"
    )
    assert text in done.stdout + done.stderr


@pytest.mark.parametrize("length", [1, 2, 200])
def test_diverged_logs_are_named(make_pair, length):
    """The master's log is recreated, shorter than the slave's, as long, and longer."""
    pair = make_pair()
    for number in range(2):
        send(pair.master_address, number)
    pair.await_copy()
    end = runtime(pair.slave_address)["commitLogMaxOffset"]
    assert pair.master.stop() == 0
    shutil.rmtree(pair.master_servers.store)
    pair.start_master()
    for number in range(length):
        send(pair.master_address, number)

    def is_named():
        text = pair.slave.log.read_text()
        return "the logs have diverged; move this store away and start again with an empty one" in text

    pair.slave.wait_for("the slave says so", is_named, CATCH_UP_LIMIT)
    assert runtime(pair.slave_address)["commitLogMaxOffset"] == end


def test_slave_with_more_than_the_overlap_is_named(make_pair):
    pair = make_pair()
    put_load(pair, [Sent("p0")], 1_000)
    pair.await_copy()
    assert pair.master.stop() == 0
    shutil.rmtree(pair.master_servers.store)
    pair.start_master()
    send(pair.master_address)

    def is_named():
        text = pair.master.log.read_text()
        return "the logs have diverged" in text and "move the slave's store away" in text

    pair.master.wait_for("the master says so", is_named, CATCH_UP_LIMIT)
    assert not slaves(pair.master_address)


def second_master(pair, directory, **settings):
    """A master of the same name at the same name server, not started."""
    directory.mkdir()
    servers = ServerProcesses(directory, brokerRole="ASYNC_MASTER", brokerIP2="127.0.0.1", **settings)
    servers.namesrv_address = servers.broker_config["namesrvAddr"] = pair.master_servers.namesrv_address
    pair.others.append(servers)
    return servers


def test_a_second_master_refuses_to_start_and_names_the_other(make_pair, tmp_path):
    pair = make_pair()
    other = second_master(pair, tmp_path / "other")
    done = other.run_broker()
    assert done.returncode == 1
    text = (
        f"another master of broker-a is registered and answers at {pair.master_address}: start this broker as its slave"
    )
    assert text in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert send(pair.master_address)[0].code == ResponseCode.SUCCESS
    # A killed one stays registered for two minutes, and does not stop the new one.
    pair.master.kill()
    other.start_broker()
    assert send(other.broker_address)[0].code == ResponseCode.SUCCESS


@pytest.mark.long
def test_paused_master_steps_down_for_its_successor(make_pair, tmp_path):
    pair = make_pair()
    other = second_master(pair, tmp_path / "other")
    with pair.master.paused():
        promoted = other.start_broker()
        assert send(other.broker_address)[0].code == ResponseCode.SUCCESS
    expected = f"another master of broker-a is registered and answers at {other.broker_address}"

    def has_stepped_down():
        answer, _ = send(pair.master_address)
        return answer.code == ResponseCode.SERVICE_NOT_AVAILABLE and expected in answer.remark

    pair.master.wait_for("it steps down", has_stepped_down, CATCH_UP_LIMIT)
    assert runtime(pair.master_address)["haSendsRefused"] == "true"
    assert send(other.broker_address)[0].code == ResponseCode.SUCCESS
    # Its stop does not unregister the other, nor does the other mind it.
    assert pair.master.stop() == 0
    assert pair.master_servers.namesrv_address == other.namesrv_address
    assert other.is_registered()
    assert promoted.stop() == 0


def commit(address, offset, group="G"):
    fields = {"consumerGroup": group, "topic": TOPIC, "queueId": "0", "commitOffset": str(offset)}
    assert ask(address, RequestCode.UPDATE_CONSUMER_OFFSET, fields).code == ResponseCode.SUCCESS


def committed(address, group="G"):
    offsets = ConsumerOffsetSerializeWrapper.decode(ask(address, RequestCode.GET_ALL_CONSUMER_OFFSET).body)
    return offsets.offset_table.get(f"{TOPIC}@{group}", {}).get(0)


def test_returning_master_takes_over_changes_of_its_slave(make_pair):
    pair = make_pair()
    for _ in range(8):
        assert send(pair.master_address, 0)[0].ext_fields["queueId"] == "0"
    commit(pair.master_address, 2)
    pair.slave.wait_for("the offset is copied", lambda: committed(pair.slave_address) == 2, CATCH_UP_LIMIT)
    pair.await_copy()
    pair.master.kill()
    pair.slave.wait_for("dispatched", lambda: runtime(pair.slave_address)["dispatchBehindBytes"] == "0", CATCH_UP_LIMIT)
    commit(pair.slave_address, 6)
    commit(pair.slave_address, 8, group="Last")
    heartbeat = {
        "clientID": "c", "producerDataSet": [],
        "consumerDataSet": [{
            "groupName": "Late", "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "subscriptionDataSet": [], "unitMode": False,
        }],
    }  # fmt: skip
    member = Connection(pair.slave_address)
    # Its answer may come together with the news that a member has come.
    member.send(RemotingCommand(RequestCode.HEART_BEAT, {}, json.dumps(heartbeat).encode()))

    def topics(address):
        return TopicConfigSerializeWrapper.decode(
            ask(address, RequestCode.GET_ALL_TOPIC_CONFIG).body
        ).topic_config_table

    pair.slave.wait_for("the group is made", lambda: "%RETRY%Late" in topics(pair.slave_address), CATCH_UP_LIMIT)
    member.close()

    pair.start_master()
    assert committed(pair.master_address) == 6
    assert committed(pair.master_address, "Last") == 8
    assert "%RETRY%Late" in topics(pair.master_address)
    groups = ask(pair.master_address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG).body
    assert b'"Late"' in groups
    pair.await_slave()
    pair.slave.wait_for("its offsets are copied", lambda: committed(pair.slave_address, "Last") == 8, CATCH_UP_LIMIT)
    assert committed(pair.slave_address) == 6


@pytest.mark.long
def test_returning_master_waits_briefly_for_hanging_slave(make_pair):
    pair = make_pair()
    assert pair.master.stop() == 0
    with pair.slave.paused():
        pair.start_master()
        assert send(pair.master_address)[0].code == ResponseCode.SUCCESS
        pair.master.wait_for(
            "it says so", lambda: f"lacks from slave {pair.slave_address}" in pair.master.log.read_text(), 60
        )


def has_topic(address, topic):
    return ask(address, RequestCode.GET_TOPIC_STATS_INFO, {"topic": topic}).code == ResponseCode.SUCCESS


def test_send_creating_a_topic_is_acknowledged_once_slave_has_it(make_pair):
    pair = make_pair("SYNC_MASTER")
    pair.slave.wait_for("tables are followed", lambda: follows(pair), CATCH_UP_LIMIT)
    for number in range(10):
        command = message("single", number)
        command.ext_fields["b"] = topic = f"Fresh{number}"
        assert ask(pair.master_address, command.code, command.ext_fields, command.body).code == ResponseCode.SUCCESS
        assert has_topic(pair.slave_address, topic)
    pair.master.kill()
    fields = {"topic": "Fresh9", "queueId": "1"}
    pair.slave.wait_for(
        "it is served",
        lambda: ask(pair.slave_address, RequestCode.GET_MAX_OFFSET, fields).ext_fields["offset"] == "1",
        CATCH_UP_LIMIT,
    )


def follows(pair):
    """Whether a topic that an administrator makes reaches the slave at once, as that of a table followed does."""
    topic = {
        "topic": f"Follow{time.monotonic_ns()}", "defaultTopic": "TBW102", "readQueueNums": "3", "writeQueueNums": "3",
        "perm": "6", "topicFilterType": "SINGLE_TAG", "order": "false",
    }  # fmt: skip
    assert ask(pair.master_address, RequestCode.UPDATE_AND_CREATE_TOPIC, topic).code == ResponseCode.SUCCESS
    deadline = time.monotonic() + 2
    while time.monotonic() < deadline:
        if has_topic(pair.slave_address, topic["topic"]):
            return True
    return False


def has_both(address, number):
    """Whether a slave has this offset of G, and the group of this number."""
    groups = ask(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG).body
    return committed(address) == number and b'"G%d"' % number in groups


def test_changed_tables_reach_the_slave_at_once(make_pair):
    pair = make_pair()
    pair.slave.wait_for("tables are followed", lambda: follows(pair), CATCH_UP_LIMIT)
    for _ in range(10):
        send(pair.master_address)
    begin = time.monotonic()
    # Each of them would take five seconds on the average, if the slave asked every ten.
    for offset in range(1, 11):
        commit(pair.master_address, offset, "G")
        ask(pair.master_address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=b'{"groupName":"G%d"}' % offset)
        pair.slave.wait_for("both are there", partial(has_both, pair.slave_address, offset), CATCH_UP_LIMIT)
    assert time.monotonic() - begin < 40


def test_slave_without_tables_costs_one_timeout(make_pair):
    pair = make_pair("SYNC_MASTER")
    pair.slave.wait_for("tables are followed", lambda: follows(pair), CATCH_UP_LIMIT)
    with pair.slave.paused():
        codes = []
        for number in range(4):
            command = message("single", number)
            command.ext_fields["b"] = f"Fresh{number}"
            codes.append(ask(pair.master_address, command.code, command.ext_fields, command.body).code)
        assert codes == [ResponseCode.FLUSH_SLAVE_TIMEOUT] + [ResponseCode.SLAVE_NOT_AVAILABLE] * 3


def forget_topic(servers, topic):
    """Take a topic out of the table of a stopped broker, as if it had been made after the last copy."""
    path = servers.store / "config" / "topics.json"
    table = TopicConfigSerializeWrapper.decode(path.read_bytes())
    table.topic_config_table.pop(topic, None)
    table.data_version = DataVersion(1_000, 1)
    path.write_bytes(table.encode())


def test_topics_known_only_by_the_log_survive_promotion(make_pair):
    pair = make_pair()
    for number in range(8):
        send(pair.master_address, number)
    pair.await_copy()
    pair.master.kill()
    assert pair.slave.stop() == 0
    forget_topic(pair.slave_servers, TOPIC)
    pair.slave = pair.slave_servers.start_broker(registered=False)
    assert len(list(pull_all(pair.slave_address, 0))) == 2
    assert pair.slave.stop() == 0

    forget_topic(pair.slave_servers, TOPIC)
    pair.slave_servers.broker_config.update(brokerRole="ASYNC_MASTER", brokerId="0")
    promoted = pair.slave_servers.start_broker()
    table = TopicConfigSerializeWrapper.decode(ask(pair.slave_address, RequestCode.GET_ALL_TOPIC_CONFIG).body)
    made = table.topic_config_table[TOPIC]
    assert (made.read_queue_nums, made.write_queue_nums, made.perm) == (4, 4, 6)
    assert len(list(pull_all(pair.slave_address, 3))) == 2
    # A topic that was deleted does not come back.
    assert ask(pair.slave_address, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": TOPIC}).code == ResponseCode.SUCCESS
    promoted.kill()
    pair.slave_servers.start_broker()
    assert not has_topic(pair.slave_address, TOPIC)


def test_master_and_slave_change_places(make_pair):
    pair = make_pair(messageDelayLevel="1s 8s")
    producers = [Sent("p0")]
    put_load(pair, producers, 1_000)
    delayed, _ = send(pair.master_address, 0, DELAY=2)
    assert delayed.code == ResponseCode.SUCCESS
    pair.await_copy()
    pair.await_topic()
    assert pair.master.stop() == 0
    assert pair.slave.stop() == 0

    pair.master_servers, pair.slave_servers = pair.slave_servers, pair.master_servers
    pair.master_address, pair.slave_address = pair.slave_address, pair.master_address
    pair.master_servers.broker_config.update(brokerRole="ASYNC_MASTER", brokerId="0")
    pair.slave_servers.broker_config.update(brokerRole="SLAVE", brokerId="1")
    pair.start_master()
    pair.start_slave()
    put_load(pair, producers, 1_000)

    def is_delivered():
        return any(stored.body.startswith(b"single 0 ") for stored in pull_all(pair.master_address, 0))

    pair.master.wait_for("the delayed message is delivered", is_delivered, CATCH_UP_LIMIT)
    pair.await_copy()
    assert pair.master.stop() == 0
    assert pair.slave.stop() == 0
    pair.check_same_logs()
