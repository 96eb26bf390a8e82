"""Lanes of a default broker: which connections they read, and that a hanging disk harms none of their clients."""

import os
import select
from threading import current_thread

import pytest
import pytest_twisted

from rocketd.remoting.wire.codes import RequestCode, ResponseCode
from rocketd.remoting.wire.command import ONEWAY_FLAG, RemotingCommand
from rocketd.store.format.record import decode_messages
from rocketd.store.testing import FaultyFileSystem
from tests.servers.brokers import heartbeat, make_a_broker, pull, send
from tests.servers.wire_client import connect, eventually, running

pytestmark = pytest.mark.skipif(not hasattr(select, "epoll"), reason="this system has no epoll, so it has no lanes")


def lanes(broker):
    """The pools whose lanes own connections, one for each connection; "" for the reactor."""
    return sorted("" if each.lane is None else each.lane._pool.name for each in broker.server.connections)


@pytest_twisted.ensureDeferred
async def test_connections_move_to_the_lane_of_their_first_send_or_pull(tmp_path):
    async with running(make_a_broker(tmp_path)) as broker:
        producer, consumer, other = [await connect(broker.port) for _ in range(3)]
        await producer.ask(send())
        await eventually(lambda: broker.store.get_max_offset("T", 0) == 1)
        await consumer.ask(pull())
        await other.ask(heartbeat("other"))
        await eventually(lambda: lanes(broker) == ["", "pull", "send"])
        assert (await producer.ask(send())).code == ResponseCode.SUCCESS
        assert (await producer.ask(pull())).code == ResponseCode.SUCCESS
        assert (await consumer.ask(pull())).code == ResponseCode.SUCCESS
        assert (await consumer.ask(send())).code == ResponseCode.SUCCESS
        assert (await consumer.ask(heartbeat("consumer"))).code == ResponseCode.SUCCESS


@pytest_twisted.ensureDeferred
async def test_without_the_setting_the_reactor_reads_all_connections(tmp_path):
    async with running(make_a_broker(tmp_path, connectionLanes="false")) as broker:
        producer = await connect(broker.port)
        for _ in range(3):
            assert (await producer.ask(send())).code == ResponseCode.SUCCESS
        assert lanes(broker) == [""]


@pytest_twisted.ensureDeferred
async def test_held_pull_is_answered_by_the_thread_that_stores_its_message(tmp_path, monkeypatch):
    async with running(make_a_broker(tmp_path)) as broker:
        producer, consumer = await connect(broker.port), await connect(broker.port)
        await producer.ask(send())
        await eventually(lambda: broker.store.get_max_offset("T", 0) == 1)
        table = broker.dispatcher.target_of(RequestCode.PULL_MESSAGE)[1].long_polling
        threads, run_again = [], table._run_again

        def run(pull):
            threads.append(current_thread().name)
            run_again(pull)

        monkeypatch.setattr(table, "_run_again", run)
        for offset in range(1, 50):  # while the other thread is busy with the hold, it answers as well
            waiting = consumer.ask(pull(offset=offset, wait_ms=60_000))
            await eventually(lambda: table.count == 1)
            assert (await producer.ask(send(body=b"next"))).code == ResponseCode.SUCCESS
            answer = await waiting
            assert [message.body for message in decode_messages(answer.body)] == [b"next"]
            if "send-0" in threads:
                return
        pytest.fail(f"answered by {set(threads)}")


@pytest_twisted.ensureDeferred
async def test_heartbeats_of_a_producer_are_answered_while_its_send_hangs(tmp_path):
    disk = FaultyFileSystem()
    async with running(make_a_broker(tmp_path, disk)) as broker:
        producer = await connect(broker.port)
        await producer.ask(send(body=b"first"))
        await eventually(lambda: lanes(broker) == ["send"])
        gate = disk.block("pwrite")
        hanging = producer.ask(send(body=b"second"), limit=60)
        try:
            await eventually(lambda: broker.store.append_lock_ms() > 0)
            for _ in range(20):
                assert (await producer.ask(heartbeat("producer"))).code == ResponseCode.SUCCESS
                offset = RemotingCommand(RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": "0"})
                assert (await producer.ask(offset)).code == ResponseCode.SUCCESS
            assert not hanging.called
        finally:
            gate.set()
        assert (await hanging).code == ResponseCode.SUCCESS


@pytest_twisted.ensureDeferred
async def test_oneway_sends_behind_a_hanging_append_keep_their_order(tmp_path):
    disk = FaultyFileSystem()
    async with running(make_a_broker(tmp_path, disk)) as broker:
        producer = await connect(broker.port)
        await producer.ask(send(body=b"0"))
        await eventually(lambda: lanes(broker) == ["send"])
        gate = disk.block("pwrite")
        hanging = producer.ask(send(body=b"1"), limit=60)
        try:
            await eventually(lambda: broker.store.append_lock_ms() > 0)
            for number in range(2, 200):
                oneway = send(body=b"%d" % number)
                oneway.flag |= ONEWAY_FLAG
                producer.send(oneway)
            assert (await producer.ask(heartbeat("producer"))).code == ResponseCode.SUCCESS  # all of them are read
        finally:
            gate.set()
        await hanging
        await eventually(lambda: broker.store.get_max_offset("T", 0) == 200)
        bodies = []
        while len(bodies) < 200:
            bodies += await bodies_from(producer, len(bodies))
        assert bodies == [b"%d" % number for number in range(200)]


async def bodies_from(client, offset):
    return [message.body for message in decode_messages((await client.ask(pull(offset=offset))).body)]


@pytest_twisted.ensureDeferred
async def test_stop_closes_connections_of_lanes_and_leaves_no_descriptor(tmp_path):
    def descriptors():
        links = [os.path.realpath(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")]
        return sum("socket:" in link or "pipe:" in link or "eventpoll" in link for link in links)

    async with running(make_a_broker(tmp_path / "once")):
        pass
    before = descriptors()
    async with running(make_a_broker(tmp_path)) as broker:
        clients = [await connect(broker.port) for _ in range(4)]
        for client in clients:
            await client.ask(send())
        await eventually(lambda: lanes(broker) == ["send"] * 4)
        await broker.stopService()
        for client in clients:
            await client.closed
    await eventually(lambda: descriptors() <= before)
