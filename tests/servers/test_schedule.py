"""Delay levels on broker processes: under load, through kills and stops, nothing early and nothing lost."""

import time

import pytest

from rocketd.remoting.bodies.tables import KVTable
from rocketd.remoting.wire.codes import RequestCode, ResponseCode
from rocketd.remoting.wire.command import RemotingCommand
from tests.servers.load import Connection, pull_all
from tests.support.server_processes import QUEUES, TOPIC, ServerProcesses

DELAYS_MS = {1: 1_000, 2: 3_000, 3: 6_000}
WINDOW = 64
WAIT_LIMIT = 60.0  # seconds


def command(name, number, level):
    fields = {
        "a": "P", "b": TOPIC, "c": "TBW102", "d": str(QUEUES), "e": str(number % QUEUES), "f": "0", "g": "1700000000000",
        "h": "0", "i": f"UNIQ_KEY\x01{name}\x02DELAY\x01{level}", "j": "0", "k": "false", "m": "false",
    }  # fmt: skip
    return RemotingCommand(RequestCode.SEND_MESSAGE_V2, fields, name.encode().ljust(200))


def send(address, level, count):
    """Send so many messages of a level, many at a time; returns when each was sent, once all are acknowledged."""
    connection = Connection(address)
    try:
        names = [f"level{level}-{number}" for number in range(count)]
        sent_ms = {}
        answered = begun = 0
        while answered < count:
            commands = [command(names[n], n, level) for n in range(begun, min(count, answered + WINDOW))]
            if commands:
                sent_ms |= dict.fromkeys(names[begun : begun + len(commands)], int(time.time() * 1000))
                begun += len(commands)
                connection.send(*commands)
            answers = connection.receive()
            assert answers, "the connection is gone"
            assert {answer.code for answer in answers} == {ResponseCode.SUCCESS}, answers[0].remark
            answered += len(answers)
        return sent_ms
    finally:
        connection.close()


def delivered(address):
    """Name and message of all that is delivered, in the order of each queue."""
    return [(message.body.decode().strip(), message) for queue in range(QUEUES) for message in pull_all(address, queue)]


def names_of(address):
    return {name for name, _ in delivered(address)}


def runtime(address):
    connection = Connection(address)
    try:
        return KVTable.decode(connection.ask(RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO)).body).table
    finally:
        connection.close()


def progress(address):
    """Delivered offset and end of each level's queue."""
    table = runtime(address)
    prefix = "scheduleMessageOffset_"
    return {
        int(key.removeprefix(prefix)): tuple(map(int, value.split(",")))
        for key, value in table.items()
        if key.startswith(prefix)
    }


@pytest.fixture
def servers(tmp_path):
    made = ServerProcesses(tmp_path, messageDelayLevel="1s 3s 6s", flushDelayOffsetInterval="1000")
    yield made
    made.kill_all()
    assert "Traceback" not in "".join(process.log.read_text() for process in made.processes)


def check_nothing_was_early(address, sent_ms):
    for name, message in delivered(address):
        level = int(message.properties_map()["DELAY"])
        assert message.store_timestamp >= sent_ms[name] + DELAYS_MS[level]


def test_delayed_messages_survive_a_kill(servers):
    broker = servers.start_broker(registered=False)
    address = servers.broker_address
    sent_ms = {}
    for level in DELAYS_MS:
        sent_ms |= send(address, level, 400)
    broker.wait_for("the first level is delivered", lambda: progress(address).get(1, (0, 0))[0] == 400, WAIT_LIMIT)
    broker.kill()
    broker = servers.start_broker(registered=False)
    broker.wait_for("all are delivered", lambda: names_of(address) == sent_ms.keys(), WAIT_LIMIT)
    check_nothing_was_early(address, sent_ms)
    broker.wait_for("it knows that", lambda: progress(address) == dict.fromkeys(DELAYS_MS, (400, 400)), WAIT_LIMIT)
    broker.wait_for("it shows that", lambda: runtime(address)["dispatchBehindBytes"] == "0", WAIT_LIMIT)
    # A clean stop writes how far it is: nothing is repeated.
    count = len(delivered(address))
    assert broker.stop() == 0
    broker = servers.start_broker(registered=False)
    sent_ms |= send(address, 1, 401)
    broker.wait_for("another is delivered", lambda: "level1-400" in names_of(address), WAIT_LIMIT)
    broker.wait_for("all are delivered", lambda: len(delivered(address)) >= count + 401, WAIT_LIMIT)
    assert len(delivered(address)) == count + 401
    assert broker.stop() == 0


def test_a_level_keeps_up_with_its_senders(servers):
    """More come in a second than one round delivers in the tenth of a second between two ticks, in order."""
    broker = servers.start_broker(registered=False)
    address = servers.broker_address
    count = 6_000
    sent_ms = send(address, 1, count)
    broker.wait_for("all are delivered", lambda: progress(address).get(1) == (count, count), WAIT_LIMIT)
    broker.wait_for("all are seen", lambda: len(delivered(address)) >= count, WAIT_LIMIT)
    check_nothing_was_early(address, sent_ms)
    for queue in range(QUEUES):
        numbers = [int(message.body.split(b"-")[1]) for message in pull_all(address, queue)]
        assert numbers == list(range(queue, count, QUEUES))
    assert broker.stop() == 0
