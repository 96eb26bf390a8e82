"""Messages with delivery times, on broker processes that are killed and replaced: none lost, none early."""

import shutil
import time

import pytest

from rocketd.remoting.bodies.tables import KVTable
from rocketd.remoting.wire.codes import RequestCode, ResponseCode
from rocketd.remoting.wire.command import RemotingCommand
from tests.servers.load import Connection, pull_all
from tests.servers.pairs import Pair
from tests.support.server_processes import QUEUES, TOPIC, ServerProcesses

COUNT = 300
WAIT_LIMIT = 60.0  # seconds
AHEAD_MS = (4_000, 12_000, 36_000)
"""How far ahead messages are due that are to be cancelled before: further each time that the machine was too slow."""


def fields(number, body_key, **properties):
    table = {"UNIQ_KEY": body_key, "WAIT": "true", **properties}
    text = "\x02".join(f"{name}\x01{value}" for name, value in table.items())
    return {
        "a": "P", "b": TOPIC, "c": "TBW102", "d": str(QUEUES), "e": str(number % QUEUES), "f": "0", "g": "1700000000000",
        "h": "0", "i": text, "j": "0", "k": "false", "m": "false",
    }  # fmt: skip


def send(address, messages):
    """Send messages, each its key and properties; returns the keys of those that are acknowledged."""
    connection = Connection(address)
    try:
        requests = [
            RemotingCommand(RequestCode.SEND_MESSAGE_V2, fields(number, key, **properties), key.encode())
            for number, (key, properties) in enumerate(messages)
        ]
        keys = {request.opaque: key for request, (key, _) in zip(requests, messages, strict=True)}
        connection.send(*requests)
        acknowledged = []
        while len(acknowledged) < len(keys):
            answers = connection.receive()
            assert answers, "the connection is gone"
            assert {answer.code for answer in answers} == {ResponseCode.SUCCESS}, answers[0].remark
            acknowledged += [keys[answer.opaque] for answer in answers]
        return acknowledged
    finally:
        connection.close()


def figures(address):
    connection = Connection(address)
    try:
        body = connection.ask(RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO)).body
        table = KVTable.decode(body).table
        return {name: int(value) for name, value in table.items() if name.startswith("timer")}
    finally:
        connection.close()


def delivered(address):
    """Return the delivered messages by key. None may come before its time."""
    found = {}
    for queue_id in range(QUEUES):
        for message in pull_all(address, queue_id):
            table = message.properties_map()
            # A message sent after its time, by a machine that hung, does not wait and lacks TIMER_OUT_MS.
            due_ms = table.get("TIMER_OUT_MS") or table["TIMER_DELIVER_MS"]
            assert message.store_timestamp >= int(due_ms), table
            assert "REAL_TOPIC" not in table
            found.setdefault(message.body.decode(), []).append(message)
    return found


def in_ms(milliseconds):
    return str(int(time.time() * 1000) + milliseconds)


def await_delivery(broker, address, keys):
    """Return the delivered messages once all these keys are among them."""
    broker.wait_for("all are delivered", lambda: set(keys) <= delivered(address).keys(), WAIT_LIMIT)
    broker.wait_for("none waits", lambda: figures(address).get("timerCongestNum") == 0, WAIT_LIMIT)
    return delivered(address)


@pytest.fixture
def servers(tmp_path):
    made = ServerProcesses(tmp_path)
    yield made
    made.kill_all()
    assert "Traceback" not in "".join(process.log.read_text() for process in made.processes)


@pytest.mark.parametrize("table", ["kept", "deleted", "damaged"])
def test_timed_messages_survive_a_kill(servers, table):
    broker = servers.start_broker(registered=False)
    address = servers.broker_address
    keys = send(address, [(f"m{n}", {"TIMER_DELAY_MS": str(500 + n * 20)}) for n in range(COUNT)])
    keys += send(address, [(f"late{n}", {"TIMER_DELIVER_MS": in_ms(8_000)}) for n in range(COUNT)])
    broker.wait_for("some are delivered", lambda: figures(address).get("timerDeliveredTotal", 0) > 20, WAIT_LIMIT)
    before = delivered(address)
    broker.kill()
    path = servers.store / "timer" / "waiting.db"
    if table == "deleted":
        shutil.rmtree(path.parent)
    elif table == "damaged":
        path.write_bytes(b"no database" * 2_000)
    broker = servers.start_broker(registered=False)
    found = await_delivery(broker, address, keys)
    assert found.keys() == set(keys)
    # The record of finished work is in the log beside its messages, so that nothing is repeated.
    assert {key: len(messages) for key, messages in found.items() if key in before} == dict.fromkeys(before, 1)
    assert broker.stop() == 0


def test_cancellation_survives_a_kill(servers):
    broker = servers.start_broker(registered=False)
    address = servers.broker_address
    for ahead_ms in AHEAD_MS:
        a, b, c = keys = [f"{name}{ahead_ms}" for name in "abc"]
        due_ms = int(in_ms(ahead_ms))
        # These may come when the messages that they cancel are due, but would not be refused then.
        at_any_time = {"TIMER_DELAY_MS": str(ahead_ms)}
        send(address, [(key, {"TIMER_DELIVER_MS": str(due_ms)}) for key in keys])
        send(
            address,
            [
                ("x", {**at_any_time, "TIMER_DEL_UNIQKEY": a}),
                ("y", {**at_any_time, "TIMER_DEL_UNIQKEY": f"{TOPIC}+{b}"}),
            ],
        )
        if int(in_ms(0)) < due_ms:
            break
    else:
        pytest.fail("the machine is so slow that the messages were due before they were cancelled")
    broker.kill()
    broker = servers.start_broker(registered=False)
    assert {a, b, c} & await_delivery(broker, address, [c]).keys() == {c}
    assert broker.stop() == 0


def test_many_messages_due_at_one_instant_are_delivered_once(servers):
    broker = servers.start_broker(registered=False)
    address = servers.broker_address
    due = {"TIMER_DELIVER_MS": in_ms(5_000)}
    keys = send(address, [(f"m{n}", due) for n in range(3_000)])
    found = await_delivery(broker, address, keys)
    assert {key: len(messages) for key, messages in found.items()} == dict.fromkeys(keys, 1)
    for queue_id in range(QUEUES):
        # Those that a slow machine sent too late did not wait, and may be anywhere among them.
        waited = [message for message in pull_all(address, queue_id) if "TIMER_OUT_MS" in message.properties_map()]
        order = [int(message.body[1:]) for message in waited]
        assert order == sorted(order)
    assert broker.stop() == 0


@pytest.mark.long
def test_slave_promoted_to_master_delivers_timed_messages(tmp_path):
    pair = Pair(tmp_path)
    try:
        pair.start()
        address = pair.master_address
        keys = send(address, [(f"m{n}", {"TIMER_DELAY_MS": str(100 + n)}) for n in range(50)])
        keys += send(address, [(f"late{n}", {"TIMER_DELIVER_MS": in_ms(15_000)}) for n in range(50)])
        send(address, [("x", {"TIMER_DELAY_SEC": "10", "TIMER_DEL_UNIQKEY": "late7"})])
        keys.remove("late7")
        pair.master.wait_for(
            "some are delivered", lambda: figures(address).get("timerDeliveredTotal", 0) >= 50, WAIT_LIMIT
        )
        pair.await_topic()
        pair.await_copy()
        assert figures(pair.slave_address) == {}
        pair.master.kill()
        assert pair.slave.stop() == 0
        assert not (pair.slave_servers.store / "timer").exists()
        pair.slave_servers.broker_config |= {"brokerRole": "ASYNC_MASTER", "brokerId": "0"}
        new = pair.slave_servers.start_broker()
        found = await_delivery(new, pair.slave_address, keys)
        assert {key: len(messages) for key, messages in found.items()} == dict.fromkeys(keys, 1)
        assert new.stop() == 0
    finally:
        pair.end()
    assert "Traceback" not in pair.logs()
