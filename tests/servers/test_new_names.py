"""Bursts of new names, against real daemons: others are served meanwhile, and a kill loses nothing."""

import json
import statistics
import threading
import time
from contextlib import contextmanager

import pytest

from rocketd.remoting.bodies.tables import DataVersion, RegisterBrokerBody, TopicConfig, TopicConfigSerializeWrapper
from rocketd.remoting.wire.codes import RequestCode, ResponseCode
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.store.format.record import decode_messages
from tests.servers.load import Connection
from tests.support.server_processes import ServerProcesses

SLOWEST_SECONDS = 5.0
"""How long another client may wait at most. Before there was one writer, it waited 31 s; on an idle machine it is 0.1 s."""

NOT_YET = (
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)


def send(topic, body=b"x"):
    fields = {
        "a": "P", "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1700000000000", "h": "0",
        "i": "", "j": "0", "k": "false", "m": "false",
    }  # fmt: skip
    return RemotingCommand(RequestCode.SEND_MESSAGE_V2, fields, body)


def heartbeat(client, groups):
    consumers = [
        {
            "groupName": group,
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
            "subscriptionDataSet": [{"topic": "T", "subString": "*", "subVersion": 1}],
        }
        for group in groups
    ]
    body = {"clientID": client, "consumerDataSet": consumers, "producerDataSet": []}
    return RemotingCommand(RequestCode.HEART_BEAT, {}, json.dumps(body).encode())


def responses(connection):
    """Wait for answers; the server's own requests, such as notices of new members, are passed over."""
    while True:
        received = connection.receive()
        assert received, "the server has closed the connection"
        if found := [command for command in received if command.is_response]:
            return found


@contextmanager
def asking(address, make_command):
    """Ask repeatedly over a separate connection; yield the list of (seconds, code) so far."""
    waits = []
    stop = threading.Event()

    def run():
        connection = Connection(address)
        try:
            while not stop.is_set():
                began = time.monotonic()
                connection.send(make_command())
                (answer,) = responses(connection)
                waits.append((time.monotonic() - began, answer.code))
                stop.wait(0.005)
        finally:
            connection.close()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield waits
    finally:
        stop.set()
        thread.join(120)


def told(what, waits):
    """Print the figures of the other requests, for measurements by hand with -s."""
    seconds = sorted(wait for wait, _ in waits)
    print(
        f"{what}: {len(seconds)} answers, p50 {statistics.median(seconds) * 1000:.1f} ms, "
        f"p99 {seconds[int(len(seconds) * 0.99)] * 1000:.1f} ms, max {seconds[-1] * 1000:.1f} ms, "
        f"refused {sum(code != 0 for _, code in waits)}"
    )
    return seconds[-1]


def ask_all(address, commands, window):
    """Send all, so many under way at a time; return their answers."""
    connection = Connection(address)
    answers = []
    try:
        under_way = 0
        rest = iter(commands)
        done = False
        while not done or under_way:
            batch = []
            while under_way < window and not done:
                command = next(rest, None)
                done = command is None
                if command is not None:
                    batch.append(command)
                    under_way += 1
            if batch:
                connection.send(*batch)
            if under_way:
                received = responses(connection)
                under_way -= len(received)
                answers += received
    finally:
        connection.close()
    return answers


def running(tmp_path, **properties):
    return ServerProcesses(tmp_path, **properties)


def test_heartbeats_go_on_beside_one_with_2000_unknown_groups(tmp_path):
    servers = running(tmp_path)
    try:
        servers.start_namesrv()
        broker = servers.start_broker()
        with asking(servers.broker_address, lambda: heartbeat("honest", ["CG"])) as waits:
            bomb = heartbeat("bomb", [f"invented-group-of-a-client-{number:05}" for number in range(2000)])
            answers = [ask_all(servers.broker_address, [bomb], 1)[0] for _ in range(3)]
        assert answers[0].code == ResponseCode.SYSTEM_BUSY, answers[0].remark
        assert told("heartbeats beside 3 bombs", waits) < SLOWEST_SECONDS
        assert {code for _, code in waits} == {0}
        began = time.monotonic()
        assert broker.stop() == 0
        assert time.monotonic() - began < 20
    finally:
        servers.kill_all()


def test_heartbeats_go_on_beside_hostile_ones_and_their_ends(tmp_path):
    """Before there were limits, the first made others wait for 88 s once its connection had closed."""
    servers = running(tmp_path)
    producers = {"producerDataSet": [{"groupName": f"invented-{number}"} for number in range(250_000)]}
    topics = [{"topic": f"invented-{number}"} for number in range(150_000)]
    bombs = [
        producers,
        {"consumerDataSet": [{"groupName": "bomb", "subscriptionDataSet": topics}]},
        {"producerDataSet": producers["producerDataSet"][:20_000]},
        {"producerDataSet": producers["producerDataSet"][:2000]},
        {"consumerDataSet": [{"groupName": "bomb", "subscriptionDataSet": topics[:10_000]}]},
    ]
    try:
        servers.start_broker(registered=False)
        with asking(servers.broker_address, lambda: heartbeat("honest", ["CG"])) as waits:
            codes = []
            for bomb in bombs:
                body = json.dumps({"clientID": "bomb", **bomb}).encode()
                (answer,) = ask_all(servers.broker_address, [RemotingCommand(RequestCode.HEART_BEAT, {}, body)], 1)
                codes.append(answer.code)
            ask_all(servers.broker_address, [heartbeat("last", ["CG"])] * 100, 1)
        assert codes == [ResponseCode.SYSTEM_ERROR] * 3 + [0] * 2
        assert told("heartbeats beside 5 bombs", waits) < SLOWEST_SECONDS
        assert {code for _, code in waits} == {0}
    finally:
        servers.kill_all()


@pytest.mark.long
def test_sends_go_on_beside_a_flood_of_new_topics(tmp_path):
    servers = running(tmp_path)
    try:
        servers.start_namesrv()
        broker = servers.start_broker()
        ask_all(servers.broker_address, [send("Known")], 1)
        with asking(servers.broker_address, lambda: send("Known")) as waits:
            flood = [send(f"invented-topic-{number:05}") for number in range(4000)]
            codes = [answer.code for answer in ask_all(servers.broker_address, flood, 64)]
        assert {0, ResponseCode.SYSTEM_BUSY} == set(codes)
        assert codes.count(0) >= 1000
        print(f"{codes.count(0)} of 4000 new topics")
        assert told("sends beside the flood", waits) < SLOWEST_SECONDS
        assert broker.stop() == 0
    finally:
        servers.kill_all()


def test_routes_are_answered_beside_1000_kv_puts(tmp_path):
    servers = running(tmp_path)
    try:
        servers.start_namesrv()
        servers.start_broker()
        query = {"topic": "TBW102"}
        with asking(
            servers.namesrv_address, lambda: RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, dict(query))
        ) as waits:
            puts = [
                RemotingCommand(RequestCode.PUT_KV_CONFIG, {"namespace": "N", "key": f"k{number}", "value": "v" * 100})
                for number in range(1000)
            ]
            assert {answer.code for answer in ask_all(servers.namesrv_address, puts, 64)} == {0}
        assert told("routes beside 1,000 KV puts", waits) < SLOWEST_SECONDS
        assert {code for _, code in waits} == {0}
        assert len(json.loads((tmp_path / "kvConfig.json").read_text())["configTable"]["N"]) == 1000
    finally:
        servers.kill_all()


@pytest.mark.long
def test_routes_are_answered_beside_broker_with_20000_topics(tmp_path):
    servers = running(tmp_path)
    topics = {f"invented-topic-{number:05}": TopicConfig(f"invented-topic-{number:05}") for number in range(20_000)}
    fields = {
        "brokerName": "other", "brokerAddr": "127.0.0.1:1", "clusterName": "C", "haServerAddr": "127.0.0.1:2",
        "brokerId": "0", "compressed": "false", "bodyCrc32": "0",
    }  # fmt: skip
    try:
        servers.start_namesrv()
        servers.start_broker()
        query = {"topic": "TBW102"}
        with asking(
            servers.namesrv_address, lambda: RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, dict(query))
        ) as waits:
            ask_all(servers.broker_address, [send(f"new-topic-{number:04}") for number in range(900)], 64)
            bomb = heartbeat("bomb", [f"invented-group-of-a-client-{number:05}" for number in range(500)])
            assert ask_all(servers.broker_address, [bomb], 1)[0].code == 0
            told("routes beside new topics and groups", waits)
            for version in range(3):
                wrapper = TopicConfigSerializeWrapper(topics, DataVersion(1, version))
                request = RemotingCommand(
                    RequestCode.REGISTER_BROKER, dict(fields), RegisterBrokerBody(wrapper, []).encode()
                )
                assert ask_all(servers.namesrv_address, [request], 1)[0].code == 0
        assert told("and beside 20,000 topics", waits) < SLOWEST_SECONDS
        assert {code for _, code in waits} == {0}
    finally:
        servers.kill_all()


@pytest.mark.long
def test_message_in_a_new_topic_can_be_read_after_a_kill(tmp_path):
    """The broker dies as soon as it has acknowledged; the topic gets no further message."""
    servers = running(tmp_path)
    try:
        for number in range(5):
            topic = f"New-{number}"
            broker = servers.start_broker(registered=False)
            connection = Connection(servers.broker_address)
            answer = connection.ask(send(topic, b"acknowledged"))
            broker.kill()
            assert answer.code == 0
            broker = servers.start_broker(registered=False)
            assert body_of_first(servers.broker_address, topic, answer.ext_fields["queueId"]) == b"acknowledged"
            broker.kill()
    finally:
        servers.kill_all()


def body_of_first(address, topic, queue_id):
    """Pull the first message of a queue, as any consumer would."""
    fields = {
        "consumerGroup": "CG", "topic": topic, "queueId": queue_id, "queueOffset": "0", "maxMsgNums": "1", "sysFlag": "4",
        "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
    }  # fmt: skip
    limit = time.monotonic() + 60
    while True:
        connection = Connection(address)
        try:
            answer = connection.ask(RemotingCommand(RequestCode.PULL_MESSAGE, dict(fields)))
        finally:
            connection.close()
        if answer.code == 0:
            (message,) = decode_messages(answer.body)
            return bytes(message.body)
        # Recovered messages are dispatched a little later than the port opens.
        assert answer.code in NOT_YET, answer
        assert time.monotonic() < limit
