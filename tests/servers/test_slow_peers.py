"""Peers that do not read, or stop in the middle of a frame: IO never blocks, so all other peers are answered."""

import struct

import pytest

from rocketd.remoting.wire.codes import RequestCode, ResponseCode, SerializeType
from rocketd.remoting.wire.command import RemotingCommand
from tests.servers.load import Connection, await_dispatched, message
from tests.support.server_processes import TOPIC, ServerProcesses

BODY = b"x" * 60_000
STORED = 4
PULLS = 200  # of all that is stored each: 48 MB of answers, which no socket takes
ROUNDS = 5
BINARY = SerializeType.ROCKETMQ


@pytest.fixture
def servers(tmp_path):
    made = ServerProcesses(tmp_path)
    made.start_namesrv()
    made.start_broker()
    yield made
    made.kill_all()
    assert "Traceback" not in "".join(process.log.read_text() for process in made.processes)


@pytest.fixture
def connect(servers):
    made = []

    def connect():
        made.append(Connection(servers.broker_address))
        return made[-1]

    yield connect
    for connection in made:
        connection.close()


def send_of(number, body=b"small"):
    """A send to queue 0, with a binary header."""
    command = message("slow", number * STORED)
    return RemotingCommand(command.code, command.ext_fields, body, serialize_type=BINARY)


def pull():
    """A pull of all that queue 0 has, with a binary header."""
    fields = {
        "consumerGroup": "ReadAll", "topic": TOPIC, "queueId": "0", "queueOffset": "0", "maxMsgNums": str(STORED),
        "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
    }  # fmt: skip
    return RemotingCommand(RequestCode.PULL_MESSAGE, fields, serialize_type=BINARY)


def exactly(connection, size):
    """Read so many bytes, with no help of the code under test."""
    parts = []
    while size:
        parts.append(connection.socket.recv(size))
        assert parts[-1], "the connection was closed"
        size -= len(parts[-1])
    return b"".join(parts)


def read_frame(connection):
    """Read one frame by its lengths. Return the form of its header, which has to be binary, its opaque and its body."""
    length, form_and_size = struct.unpack(">II", exactly(connection, 8))
    rest = exactly(connection, length - 4)
    _code, _language, _version, opaque = struct.unpack_from(">hBhi", rest)
    return form_and_size >> 24, opaque, rest[form_and_size & 0xFFFFFF :]


def check_served(connection, number):
    """The pools of sends and pulls, and the reactor itself, answer this peer."""
    requests = (send_of(number), pull(), RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO))
    for request in requests:
        assert connection.ask(request).code == ResponseCode.SUCCESS


def test_unread_answers_do_not_delay_others_and_arrive_later(servers, connect):
    other, silent = connect(), connect()
    for number in range(STORED):
        assert other.ask(send_of(number, BODY)).code == ResponseCode.SUCCESS
    await_dispatched(servers.broker_address)
    pulls = [pull() for _ in range(PULLS)]
    silent.send(*pulls)
    for number in range(ROUNDS):
        check_served(other, STORED + number)
    check_served(connect(), STORED + ROUNDS)
    answers = [read_frame(silent) for _ in pulls]
    assert [(form, opaque) for form, opaque, _ in answers] == [(int(BINARY), pull.opaque) for pull in pulls]
    bodies = {body for _, _, body in answers}
    assert len(bodies) == 1
    assert bodies.pop().count(BODY) == STORED


def test_unfinished_frame_does_not_delay_others(servers, connect):
    other, stuck = connect(), connect()
    assert other.ask(send_of(0)).code == ResponseCode.SUCCESS
    await_dispatched(servers.broker_address)
    frame = send_of(0).encode()
    for cut in (2, 6, len(frame) // 2, len(frame) - 1):
        stuck.socket.sendall(frame[:cut])
        for number in range(ROUNDS):
            check_served(other, number)
        stuck.socket.sendall(frame[cut:])
        (answer,) = stuck.receive()
        assert answer.code == ResponseCode.SUCCESS
