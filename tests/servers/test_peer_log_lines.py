"""Log lines that peers cause: a real broker and a real name server get 1,000 of each kind, and write a few lines."""

import json
import socket
import time
from collections import Counter

import pytest

from rocketd.remoting.wire.codes import RequestCode, ResponseCode
from rocketd.remoting.wire.command import RemotingCommand
from tests.servers.load import Connection, message
from tests.support.server_processes import ServerProcesses

COUNT = 1_000
LINE_LIMIT = 20
"""Lines of one kind: one a minute, on a machine that may be slow."""
NULL_ITEMS = {
    RequestCode.HEART_BEAT: {
        "clientID": "c",
        "producerDataSet": [{"groupName": "HalfProducer"}],
        "consumerDataSet": [{"groupName": "Half", "subscriptionDataSet": [None]}],
    },
    RequestCode.LOCK_BATCH_MQ: {"consumerGroup": "g", "clientId": "c", "mqSet": [None]},
}
REGISTRATION = {
    "brokerName": "bad", "brokerAddr": "10.0.0.1:10911", "clusterName": "c", "haServerAddr": "10.0.0.1:10912",
    "brokerId": "0",
}  # fmt: skip


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    servers = ServerProcesses(tmp_path_factory.mktemp("servers"), sendThreadPoolQueueCapacity="10")
    try:
        servers.start_namesrv()
        servers.start_broker()
        yield servers
    finally:
        servers.kill_all()


def ask_all(address, commands, at_once=50):
    """Send the requests, some at a time; returns their answers."""
    connection = Connection(address)
    answers = []
    for first in range(0, len(commands), at_once):
        part = commands[first : first + at_once]
        connection.send(*part)
        wanted = len(answers) + len(part)
        while len(answers) < wanted:
            found = connection.receive()
            assert found, "the connection is closed"
            answers += [answer for answer in found if answer.is_response]
    connection.close()
    return answers


def lines_with(process, text):
    return [line for line in process.log.read_text(errors="replace").splitlines() if text in line]


def check_lines(process, text):
    """The first line is there, and few others; a count comes with the next one, after a minute."""
    found = lines_with(process, text)
    assert 1 <= len(found) <= LINE_LIMIT, f"{len(found)} lines with {text!r}"
    assert max(map(len, found)) < 2_000


def test_bad_frames_leave_few_lines(servers):
    host, _, port = servers.broker_address.partition(":")
    for _ in range(COUNT):
        with socket.create_connection((host, int(port)), timeout=60) as peer:
            peer.sendall(b"\x7f\xff\xff\xff" + b"x" * 100)
            try:
                assert peer.recv(100) == b""
            except ConnectionResetError:
                pass
    check_lines(servers.processes[1], "closing:")


def test_unknown_codes_leave_few_lines(servers):
    for process, address in zip(servers.processes, (servers.namesrv_address, servers.broker_address), strict=True):
        answers = ask_all(address, [RemotingCommand(20_000 + number) for number in range(COUNT)])
        assert {answer.code for answer in answers} == {ResponseCode.REQUEST_CODE_NOT_SUPPORTED}
        check_lines(process, "not supported")


def test_damaged_registrations_leave_few_lines(servers):
    fields = {**REGISTRATION, "bodyCrc32": "1"}
    commands = [RemotingCommand(RequestCode.REGISTER_BROKER, fields, b"{}", version=407) for _ in range(COUNT)]
    assert {answer.remark for answer in ask_all(servers.namesrv_address, commands)} == {"crc32 not match"}
    check_lines(servers.processes[0], "was damaged in transit")


def test_responses_to_no_request_leave_few_lines(servers):
    connection = Connection(servers.broker_address)
    connection.send(*[RemotingCommand.response(0).answering(RemotingCommand(1)) for _ in range(COUNT)])
    assert connection.ask(RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO)).code == ResponseCode.SUCCESS
    assert len(lines_with(servers.processes[1], "dropped a response")) <= LINE_LIMIT
    connection.close()


def test_null_items_are_named_and_register_nothing(servers):
    for code, body in NULL_ITEMS.items():
        commands = [RemotingCommand(code, {}, json.dumps(body).encode()) for _ in range(COUNT)]
        answers = ask_all(servers.broker_address, commands)
        assert {answer.code for answer in answers} == {ResponseCode.SYSTEM_ERROR}
        (remark,) = {answer.remark for answer in answers}
        assert "[0]: expected a non-null item, found null" in remark
        assert "Error" not in remark
        check_lines(servers.processes[1], f"<request {RequestCode(code).name}")
    for code, fields in (
        (RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "Half"}),
        (RequestCode.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "HalfProducer"}),
    ):
        assert ask_all(servers.broker_address, [RemotingCommand(code, fields)])[0].code != ResponseCode.SUCCESS
    registration = {"topicConfigSerializeWrapper": {"topicConfigTable": {}}, "filterServerList": [None]}
    command = RemotingCommand(RequestCode.REGISTER_BROKER, REGISTRATION, json.dumps(registration).encode(), version=407)
    (answer,) = ask_all(servers.namesrv_address, [command])
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "filterServerList[0]" in answer.remark


def test_invented_groups_leave_a_bounded_number_of_lines(servers):
    bodies = [{"clientID": "c", "producerDataSet": [{"groupName": f"Invented{number}"}]} for number in range(COUNT)]
    commands = [RemotingCommand(RequestCode.HEART_BEAT, {}, json.dumps(body).encode()) for body in bodies]
    assert {answer.code for answer in ask_all(servers.broker_address, commands)} == {ResponseCode.SUCCESS}
    assert len(lines_with(servers.processes[1], "has joined")) <= 100 + LINE_LIMIT


def test_busy_sends_leave_one_line_with_count_reason_and_slowest_step(servers):
    broker = servers.processes[1]
    codes = Counter()
    deadline = time.monotonic() + 60
    while codes[ResponseCode.SYSTEM_BUSY] < COUNT:
        assert time.monotonic() < deadline, codes
        answers = ask_all(servers.broker_address, [message("p", number) for number in range(COUNT)], at_once=COUNT)
        codes.update(answer.code for answer in answers)
    found = lines_with(broker, "refused with SYSTEM_BUSY")
    assert 1 <= len(found) <= LINE_LIMIT
    assert "the send pool holds" in found[0]
    assert "slowest step: " in found[0]
    assert "since the start)" in found[0]
