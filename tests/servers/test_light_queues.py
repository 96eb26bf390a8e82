"""Light queues on real sockets: consumers of a broker that serves them, and its files afterwards."""

import json
from contextlib import asynccontextmanager

import pytest_twisted

from rocketd.common.message_properties import encode_properties
from rocketd.remoting.wire.codes import RequestCode
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.store.format.record import decode_messages
from tests.servers.in_process import broker_in, namesrv_in
from tests.servers.wire_client import connect, eventually, running

LIGHT = {"enableLmq": "true", "enableMultiDispatch": "true"}
ONE, TWO = "%LMQ%device-1", "%LMQ%device-2"


@asynccontextmanager
async def broker_with(directory, **options):
    async with (
        running(namesrv_in(directory)) as name_server,
        running(broker_in(directory, f"127.0.0.1:{name_server.port}", **options)) as broker,
    ):
        yield broker


def send(body, *queues):
    properties = encode_properties({"INNER_MULTI_DISPATCH": ",".join(queues)} if queues else {"KEYS": "k"})
    fields = {
        "a": "P", "b": "Devices", "c": "TBW102", "d": "4", "e": "2", "f": "0", "g": "1700000000000", "h": "0",
        "i": properties, "m": "false",
    }  # fmt: skip
    return RemotingCommand(RequestCode.SEND_MESSAGE_V2, fields, body)


def pull(queue, offset, wait_ms=0):
    fields = {
        "consumerGroup": queue, "topic": queue, "queueId": "0", "queueOffset": str(offset), "maxMsgNums": "32",
        "sysFlag": str(2 | 4 if wait_ms else 4), "commitOffset": "0", "suspendTimeoutMillis": str(wait_ms),
        "subVersion": "0", "subscription": "*",
    }  # fmt: skip
    return RemotingCommand(RequestCode.PULL_MESSAGE, fields)


def offset(code, queue, **more):
    fields = {"consumerGroup": queue, "topic": queue, "queueId": "0", **more}
    return RemotingCommand(code, fields)


def bodies(answer):
    return [message.body for message in decode_messages(answer.body)]


@pytest_twisted.ensureDeferred
async def test_a_message_reaches_the_readers_of_all_its_queues(tmp_path):
    async with broker_with(tmp_path, **LIGHT) as broker:
        client, reader = await connect(broker.port), await connect(broker.port)
        assert (await client.ask(send(b"first", ONE, TWO))).code == 0
        await eventually(lambda: broker.store.get_max_offset(TWO, 0) == 1)
        assert bodies(await client.ask(pull(ONE, 0))) == [b"first"]
        waiting = reader.ask(pull(ONE, 1, wait_ms=15_000))
        assert (await client.ask(send(b"of two", TWO))).code == 0
        assert (await client.ask(send(b"of one", ONE))).code == 0
        assert bodies(await waiting) == [b"of one"]
        await eventually(lambda: broker.store.get_max_offset(TWO, 0) == 2)
        assert bodies(await client.ask(pull(TWO, 0))) == [b"first", b"of two"]
        assert (await client.ask(offset(15, ONE, commitOffset="2"))).code == 0
        assert (await client.ask(offset(14, ONE))).ext_fields["offset"] == "2"
        for wire in (client, reader):
            wire.transport.loseConnection()
            await wire.wait_closed()
    stored = json.loads((tmp_path / "store/config/lmqConsumerOffset.json").read_text())
    assert stored["lmqOffsetTable"] == {f"{ONE}@{ONE}": 2}
    assert not (tmp_path / "store/config/consumerOffset.json").exists()
    for table in ("topics", "subscriptionGroup"):
        assert ONE not in (tmp_path / f"store/config/{table}.json").read_text().replace("%RETRY%", "")
    async with broker_with(tmp_path, **LIGHT) as broker:
        client = await connect(broker.port)
        assert (await client.ask(offset(14, ONE))).ext_fields["offset"] == "2"
        await eventually(lambda: broker.store.get_max_offset(TWO, 0) == 2)
        assert bodies(await client.ask(pull(TWO, 1))) == [b"of two"]
        assert (await client.ask(send(b"later", ONE))).code == 0
        await eventually(lambda: broker.store.get_max_offset(ONE, 0) == 3)
        assert bodies(await client.ask(pull(ONE, 2))) == [b"later"]
        client.transport.loseConnection()
        await client.wait_closed()


@pytest_twisted.ensureDeferred
async def test_light_queues_above_the_limit_are_refused(tmp_path):
    async with broker_with(tmp_path, maxLmqConsumeQueueNum="0", **LIGHT) as broker:
        client = await connect(broker.port)
        assert (await client.ask(send(b"first", ONE))).code == 0
        answer = await client.ask(send(b"second", TWO))
        assert answer.code == 1
        assert answer.remark.startswith(
            "[LMQ_CONSUME_QUEUE_NUM_EXCEEDED]broker config enableLmq and enableMultiDispatch"
        )
        assert answer.remark.endswith("[light-queues-exceeded]")
        answer = await client.ask(send(b"second", "../outside"))
        assert answer.code == 13
        client.transport.loseConnection()
        await client.wait_closed()


@pytest_twisted.ensureDeferred
async def test_light_queues_are_off_by_default(tmp_path):
    async with broker_with(tmp_path) as broker:
        client = await connect(broker.port)
        assert (await client.ask(send(b"first", ONE))).code == 0
        assert (await client.ask(pull(ONE, 0))).code == 17
        assert broker.store.get_max_offset(ONE, 0) == 0
        client.transport.loseConnection()
        await client.wait_closed()
