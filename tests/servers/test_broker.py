"""A broker and its name server on real sockets: their behaviour for clients, and bad peers that must not harm others."""

import os
import sys
from contextlib import asynccontextmanager
from struct import pack

import pytest
import pytest_twisted
from twisted.internet import reactor
from twisted.internet.defer import DeferredList
from twisted.internet.endpoints import TCP4ClientEndpoint, connectProtocol, wrapClientTLS
from twisted.internet.task import deferLater
from twisted.internet.utils import getProcessOutputAndValue
from twisted.logger import LogLevel, formatEvent, globalLogPublisher

from rocketd.remoting.settings import TlsConfig
from rocketd.remoting.tls.contexts import ClientTLS
from rocketd.remoting.wire.codes import RequestCode, ResponseCode, SerializeType
from rocketd.remoting.wire.command import ONEWAY_FLAG, RemotingCommand
from rocketd.store.format.record import decode_messages
from rocketd.store.testing import FaultyFileSystem
from tests.servers.brokers import heartbeat, make_a_broker, make_name_server, pull, route, send
from tests.servers.wire_client import WireClient, connect, eventually, running
from tests.support.ports import free_broker_port


@asynccontextmanager
async def both(directory, **options):
    async with running(make_name_server(directory)) as name_server:
        address = f"127.0.0.1:{name_server.port}"
        async with running(make_a_broker(directory, namesrvAddr=address, **options)) as broker:
            yield name_server, broker


@asynccontextmanager
async def log_lines():
    """Collect log events of level warn and above."""
    lines = []

    def observe(event):
        if event["log_level"] >= LogLevel.warn:
            lines.append(formatEvent(event))

    globalLogPublisher.addObserver(observe)
    try:
        yield lines
    finally:
        globalLogPublisher.removeObserver(observe)


# ---------------------------------------------------------------- with the name server


@pytest_twisted.ensureDeferred
async def test_topic_created_by_first_message_is_in_the_route_at_once(tmp_path):
    async with both(tmp_path) as (name_server, broker):
        await eventually(lambda: route(name_server, "TBW102"))
        client = await connect(broker.port)
        assert (await client.ask(send())).code == ResponseCode.SUCCESS

        async def is_known():
            found = await route(name_server, "T")
            return found and found.queue_datas[0].write_queue_nums == 4

        await eventually(is_known)
        found = await route(name_server, "T")
        assert found.broker_datas[0].broker_addrs == {0: f"127.0.0.1:{broker.port}"}
        await broker.stopService()
        assert await route(name_server, "T") is None
        async with running(make_a_broker(tmp_path, namesrvAddr=f"127.0.0.1:{name_server.port}")):
            await eventually(is_known)


@pytest_twisted.ensureDeferred
async def test_a_changed_name_server_address_takes_effect(tmp_path):
    config = tmp_path / "broker.conf"
    async with both(tmp_path) as (first, broker), running(make_name_server(tmp_path / "second")) as second:
        await eventually(lambda: route(first, "TBW102"))
        client = await connect(broker.port)
        change = f"namesrvAddr=127.0.0.1:{first.port};127.0.0.1:{second.port}\n".encode()
        answer = await client.ask(RemotingCommand(RequestCode.UPDATE_BROKER_CONFIG, body=change))
        assert answer.code == ResponseCode.SUCCESS, (answer, config)
        await broker.registration.register()
        assert await route(second, "TBW102")


@pytest_twisted.ensureDeferred
async def test_late_name_server_gets_the_registration(tmp_path):
    async with running(make_name_server(tmp_path)) as name_server:
        port = name_server.port
    async with running(make_a_broker(tmp_path, namesrvAddr=f"127.0.0.1:{port}")) as broker:
        await broker.registration.register()
        late = make_name_server(tmp_path)
        late.server.port = port
        async with running(late):
            await broker.registration.register()
            await eventually(lambda: route(late, "TBW102"))


@pytest.mark.long
@pytest_twisted.ensureDeferred
async def test_restarted_name_server_learns_all_brokers_again(tmp_path):
    async with (
        running(make_name_server(tmp_path / "one")) as first,
        running(make_name_server(tmp_path / "two")) as second,
    ):
        address = f"127.0.0.1:{first.port};127.0.0.1:{second.port}"
        options = {"namesrvAddr": address, "registerNameServerPeriod": "10000"}
        async with (
            running(make_a_broker(tmp_path / "a", **options)) as one,
            running(make_a_broker(tmp_path / "b", brokerName="broker-b", **options)) as other,
        ):
            addresses = {"broker-a": f"127.0.0.1:{one.port}", "broker-b": f"127.0.0.1:{other.port}"}

            async def knows_both(name_server):
                found = await route(name_server, "TBW102")
                return found and {each.broker_name: each.broker_addrs[0] for each in found.broker_datas} == addresses

            await eventually(lambda: knows_both(first))
            await eventually(lambda: knows_both(second))
            port = first.port
            await first.stopService()
            assert await knows_both(second)
            again = make_name_server(tmp_path / "one")
            again.server.port = port
            async with running(again):
                await eventually(lambda: knows_both(again))


@pytest_twisted.ensureDeferred
async def test_port_two_below_serves_too(tmp_path):
    async with running(make_a_broker(tmp_path, listenPort=str(free_broker_port()))) as broker:
        client = await connect(broker.port - 2)
        assert (await client.ask(send())).code == ResponseCode.SUCCESS


# ---------------------------------------------------------------- messages


@pytest_twisted.ensureDeferred
async def test_a_waiting_pull_is_woken_by_its_message(tmp_path):
    async with running(make_a_broker(tmp_path)) as broker:
        producer, consumer = await connect(broker.port), await connect(broker.port)
        await producer.ask(send(tag="First"))
        await eventually(lambda: broker.store.get_max_offset("T", 0) == 1)
        held = consumer.ask(pull(offset=1, expression="Mine"))
        await consumer.ask(pull())  # its answer tells that the pull before it is held
        await producer.ask(send(tag="Other"))
        await eventually(lambda: broker.store.get_max_offset("T", 0) == 2)
        await consumer.ask(pull())
        assert not held.called
        await producer.ask(send(tag="Mine", body=b"mine"))
        answer = await held
        assert [message.body for message in decode_messages(answer.body)] == [b"mine"]
        assert answer.ext_fields["nextBeginOffset"] == "3"
        assert consumer.strays == []


@pytest_twisted.ensureDeferred
async def test_a_waiting_pull_ends_with_its_time(tmp_path):
    async with running(make_a_broker(tmp_path)) as broker:
        client = await connect(broker.port)
        await client.ask(send())
        await eventually(lambda: broker.store.get_max_offset("T", 0) == 1)
        before = reactor.seconds()
        answer = await client.ask(pull(offset=1, wait_ms=500))
        assert (answer.code, answer.remark) == (ResponseCode.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE")
        assert 0.4 < reactor.seconds() - before < 15


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
@pytest_twisted.ensureDeferred
async def test_many_messages_from_many_connections_come_back(flush, tmp_path):
    async with running(make_a_broker(tmp_path, flushDiskType=flush)) as broker:
        clients = [await connect(broker.port) for _ in range(5)]
        waiting = [
            client.ask(
                send(queue_id=number % 4, body=b"%d %d" % (who, number), serialize_type=list(SerializeType)[number % 2])
            )
            for number in range(200)
            for who, client in enumerate(clients)
        ]
        answers = [answer for _, answer in await DeferredList(waiting)]
        assert {answer.code for answer in answers} == {0}
        oneway = send(body=b"9 0", flag=ONEWAY_FLAG)
        clients[0].send(oneway)
        await eventually(lambda: broker.store.get_max_offset("T", 0) == 251)
        for queue_id in range(4):
            offset, seen = 0, {}
            while offset < broker.store.get_max_offset("T", queue_id):
                answer = await clients[0].ask(pull(queue_id=queue_id, offset=offset))
                for message in decode_messages(answer.body):
                    who, number = map(int, message.body.split())
                    assert number > seen.get(who, -1)
                    seen[who] = number
                    assert message.queue_offset == offset
                    offset += 1
            assert offset == 250 + (queue_id == 0)


@pytest_twisted.ensureDeferred
async def test_delayed_messages_come_after_their_delay(tmp_path):
    async with running(make_a_broker(tmp_path, messageDelayLevel="1s 2s")) as broker:
        client = await connect(broker.port)
        await client.ask(send())
        await eventually(lambda: broker.store.get_max_offset("T", 0) == 1)
        delayed = send(body=b"late")
        delayed.ext_fields["i"] = "DELAY\x011"
        begun = reactor.seconds()
        await client.ask(delayed)
        answer = await client.ask(pull(offset=1))
        assert [message.body for message in decode_messages(answer.body)] == [b"late"]
        assert reactor.seconds() - begun > 0.9


# ---------------------------------------------------------------- the store's threads


@pytest_twisted.ensureDeferred
async def test_hanging_disk_does_not_delay_other_requests(tmp_path):
    disk = FaultyFileSystem()
    async with running(make_a_broker(tmp_path, disk, flushDiskType="SYNC_FLUSH", syncFlushTimeout="60000")) as broker:
        sender, other = await connect(broker.port), await connect(broker.port)
        await sender.ask(send(body=b"first"))
        gate = disk.block("fdatasync")
        hanging = sender.ask(send(body=b"second"), limit=60)
        try:
            for _ in range(50):
                await other.ask(heartbeat("one"))
                answer = await other.ask(RemotingCommand(RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": "0"}))
                assert answer.code == ResponseCode.SUCCESS
            assert not hanging.called
        finally:
            gate.set()
        assert (await hanging).code == ResponseCode.SUCCESS


async def send_until_stored(client, body):
    """Send, and send again if a broker that is quickly too busy has refused it."""

    async def is_stored():
        return (await client.ask(send(body=body))).code == ResponseCode.SUCCESS

    await eventually(is_stored)


@pytest_twisted.ensureDeferred
async def test_hanging_append_does_not_let_requests_time_out(tmp_path):
    disk = FaultyFileSystem()
    options = {
        "brokerFastFailureEnable": "true",
        "osPageCacheBusyTimeOutMills": "400",
        "waitTimeMillsInSendQueue": "100",
    }
    async with running(make_a_broker(tmp_path, disk, **options)) as broker:
        client, later = await connect(broker.port), await connect(broker.port)
        await send_until_stored(client, b"first")
        gate = disk.block("pwrite")
        hanging = client.ask(send(body=b"second"), limit=60)
        try:
            await eventually(lambda: broker.store.append_lock_ms() > 0)
            answers = await DeferredList([client.ask(send(body=b"queued")) for _ in range(3)])
            for _, answer in answers:
                assert answer.code == ResponseCode.SYSTEM_BUSY
                assert answer.remark.startswith(
                    "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period"
                )
            await eventually(broker.store.is_os_page_cache_busy)
            answer = await later.ask(send(body=b"late"))
            assert answer.code == ResponseCode.SYSTEM_BUSY
            assert answer.remark.startswith(
                "[REJECTREQUEST]system busy, start flow control for a while; cause: the append"
            )
            assert not hanging.called
        finally:
            gate.set()
        assert (await hanging).code == ResponseCode.SUCCESS
        await send_until_stored(later, b"third")
        await eventually(lambda: broker.store.get_max_offset("T", 0) == 3)
        bodies = [message.body for message in decode_messages((await later.ask(pull())).body)]
        assert bodies == [b"first", b"second", b"third"]


@pytest_twisted.ensureDeferred
async def test_sends_waiting_behind_busy_append_are_answered(tmp_path):
    disk = FaultyFileSystem()
    options = {"brokerFastFailureEnable": "true", "osPageCacheBusyTimeOutMills": "200"}
    async with running(make_a_broker(tmp_path, disk, **options)) as broker:
        client = await connect(broker.port)
        await send_until_stored(client, b"first")
        gate = disk.block("pwrite")
        hanging = client.ask(send(body=b"second"), limit=60)
        try:
            await eventually(lambda: broker.store.append_lock_ms() > 0)
            answer = await client.ask(send(body=b"queued"))
            assert answer.code == ResponseCode.SYSTEM_BUSY
            assert answer.remark.startswith(
                "[PCBUSY_CLEAN_QUEUE]broker busy, start flow control for a while, period in"
            )
        finally:
            gate.set()
        assert (await hanging).code == ResponseCode.SUCCESS


@pytest_twisted.ensureDeferred
async def test_produce_retries_sends_refused_by_busy_broker(tmp_path):
    disk = FaultyFileSystem()
    async with both(tmp_path, file_system=disk, osPageCacheBusyTimeOutMills="200") as (name_server, broker):
        client = await connect(broker.port)
        await send_until_stored(client, b"first")
        gate = disk.block("pwrite")
        hanging = client.ask(send(body=b"second"), limit=60)
        try:
            await eventually(broker.store.is_os_page_cache_busy)
            command = ("-m", "rocketd", "produce", "T", "third", "--namesrv", f"127.0.0.1:{name_server.port}")
            producing = getProcessOutputAndValue(sys.executable, command, os.environ)
            await deferLater(reactor, 3, lambda: None)
            assert not producing.called
        finally:
            gate.set()
        await hanging
        out, errors, status = await producing
        assert (b" queue " in out, errors, status) == (True, b"", 0)


def bytes_of_log(directory):
    return b"".join(file.read_bytes() for file in sorted((directory / "store" / "commitlog").iterdir()))


@pytest_twisted.ensureDeferred
async def test_pulls_from_mapped_file_and_from_copies_return_log_bytes(tmp_path):
    """A plain socket takes them from the mapped file, TLS and a socket that was full take copies."""
    options = {"tls.server.mode": "permissive", "serverUnsentMaxBytesPerConnection": str(1 << 20)}
    async with running(make_a_broker(tmp_path, **options)) as broker:
        plain = await connect(broker.port)
        for number in range(32):
            await plain.ask(send(body=b"%02d" % number * 3500))
        await eventually(lambda: broker.store.get_max_offset("T", 0) == 32)
        mapped = (await plain.ask(pull())).body
        assert len(decode_messages(mapped)) == 32
        assert mapped == bytes_of_log(tmp_path)[: len(mapped)]

        endpoint = TCP4ClientEndpoint(reactor, "127.0.0.1", broker.port)
        creator = ClientTLS(TlsConfig()).connection_creator("127.0.0.1")
        secure = await connectProtocol(wrapClientTLS(creator, endpoint), WireClient())
        assert (await secure.ask(pull())).body == mapped

        slow = await connect(broker.port)
        slow.transport.pauseProducing()
        answers = [slow.ask(pull()) for _ in range(200)]
        await eventually(lambda: any(connection.behind for connection in broker.server.connections))
        slow.transport.resumeProducing()
        for answer in answers:
            assert (await answer).body == mapped
        for client in (plain, secure, slow):
            client.transport.loseConnection()


# ---------------------------------------------------------------- members of groups


class SeenRequests:
    """A hook of a server that records requests."""

    def __init__(self):
        self.seen = []

    def before_request(self, address, request):
        self.seen.append((request.code, request.serialize_type))

    def after_response(self, address, request, response):
        """Keep nothing of answers."""


@pytest_twisted.ensureDeferred
async def test_requests_of_broker_have_headers_of_its_serialize_type(tmp_path):
    async with running(make_name_server(tmp_path)) as name_server:
        hook = SeenRequests()
        name_server.dispatcher.answers.hooks += (hook,)
        options = {"namesrvAddr": f"127.0.0.1:{name_server.port}", "rocketmq.serialize.type": "ROCKETMQ"}
        async with running(make_a_broker(tmp_path, **options)) as broker:
            await eventually(lambda: RequestCode.REGISTER_BROKER in {code for code, _ in hook.seen})
            assert {serialize_type for _, serialize_type in hook.seen} == {SerializeType.ROCKETMQ}
            member = await connect(broker.port)
            await member.ask(heartbeat("one"))
            await eventually(lambda: member.requests)
            assert member.requests[0].serialize_type == SerializeType.ROCKETMQ
            member.transport.loseConnection()


@pytest_twisted.ensureDeferred
async def test_members_are_notified_of_joins_and_a_death(tmp_path):
    async with running(make_a_broker(tmp_path)) as broker:
        first, second = await connect(broker.port), await connect(broker.port)
        await first.ask(heartbeat("one"))
        await eventually(lambda: first.requests)  # of itself
        first.requests.clear()
        await second.ask(heartbeat("two"))
        await eventually(lambda: first.requests)
        (notice,) = first.requests
        assert (notice.code, notice.is_oneway) == (RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, True)
        assert notice.ext_fields == {"consumerGroup": "G"}
        answer = await first.ask(RemotingCommand(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "G"}))
        assert answer.body == b'{"consumerIdList":["one","two"]}'
        first.requests.clear()
        second.transport.abortConnection()
        await eventually(lambda: first.requests)
        answer = await first.ask(RemotingCommand(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "G"}))
        assert answer.body == b'{"consumerIdList":["one"]}'


# ---------------------------------------------------------------- bad peers


def framed(header, body=b"", kind=0):
    return pack(">II", 4 + len(header) + len(body), kind << 24 | len(header)) + header + body


CLOSES = {
    "garbage": b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
    "an oversized frame": pack(">I", 16_777_217),
    "a negative length": pack(">i", -5),
    "a header longer than its frame": pack(">II", 8, 1000) + b"\0\0\0\0",
    "an unknown form of header": framed(b"{}", kind=9),
    "no JSON": framed(b'{"code":310,'),
    "JSON that is no object": framed(b"[310]"),
    "no JSON behind a good prefix": framed(b'{"code":310,"flag":0,"extFields":{"a":'),
    "no JSON in a pull": framed(b'{"code":11,"flag":0,'),
    "deep JSON": framed(b'{"code":310,"extFields":' + b"[" * 100_000),
    "a cut binary header": framed(b"\x01\x36\x0a", kind=1),
}
ANSWERED = {
    "no fields": RemotingCommand(310),
    "a missing field": RemotingCommand(310, {name: value for name, value in send().ext_fields.items() if name != "b"}),
    "a wrong type": RemotingCommand(310, {**send().ext_fields, "e": "one"}),
    "a number without end": RemotingCommand(310, {**send().ext_fields, "h": "9" * 400}),
    "no fields in a pull": RemotingCommand(11),
    "a heartbeat without body": RemotingCommand(34),
    "a heartbeat that is no JSON": RemotingCommand(34, body=b"\xff{"),
    "an unknown code": RemotingCommand(9999),
    "a binary header without fields": RemotingCommand(310, serialize_type=SerializeType.ROCKETMQ),
}


@pytest.mark.parametrize("name", CLOSES)
@pytest_twisted.ensureDeferred
async def test_malformed_bytes_close_only_their_connection(name, tmp_path):
    async with running(make_a_broker(tmp_path)) as broker:
        good, bad = await connect(broker.port), await connect(broker.port)
        await good.ask(send())
        async with log_lines() as lines:
            bad.send(CLOSES[name])
            await bad.closed
            assert (await good.ask(send())).code == ResponseCode.SUCCESS
        assert len(lines) == 1, lines
        assert len(lines[0]) < 500


@pytest.mark.parametrize("name", ANSWERED)
@pytest_twisted.ensureDeferred
async def test_bad_requests_are_answered(name, tmp_path):
    async with running(make_a_broker(tmp_path)) as broker:
        client = await connect(broker.port)
        request = ANSWERED[name]
        async with log_lines() as lines:
            answer = await client.ask(request)
            assert (answer.code, answer.serialize_type) != (0, None)
            assert answer.code in (ResponseCode.SYSTEM_ERROR, ResponseCode.REQUEST_CODE_NOT_SUPPORTED), answer
            assert answer.remark
            assert answer.serialize_type == request.serialize_type
            assert (await client.ask(send())).code == ResponseCode.SUCCESS
        assert len(lines) <= 1, lines


@pytest_twisted.ensureDeferred
async def test_half_a_frame_does_not_delay_other_connections(tmp_path):
    async with running(make_a_broker(tmp_path)) as broker:
        half, good = await connect(broker.port), await connect(broker.port)
        frame = send(body=b"x" * 1000).encode()
        half.send(frame[:-1])
        assert (await good.ask(send())).code == ResponseCode.SUCCESS
        half.transport.abortConnection()
        assert (await good.ask(send())).code == ResponseCode.SUCCESS
        assert broker.store.get_max_offset("T", 0) <= 2


@pytest_twisted.ensureDeferred
async def test_full_queue_is_named_in_the_answer(tmp_path):
    async with running(make_a_broker(tmp_path, sendThreadPoolQueueCapacity="10")) as broker:
        client = await connect(broker.port)
        await client.ask(send())
        waiting = DeferredList([client.ask(send()) for _ in range(200)])
        answers = [answer for _, answer in await waiting]
        busy = [answer for answer in answers if answer.code == ResponseCode.SYSTEM_BUSY]
        assert busy
        for answer in busy:
            assert answer.remark.startswith("[OVERLOAD]system busy, start flow control for a while")
            assert "of at most 10 requests" in answer.remark
        stored = 201 - len(busy)
        await eventually(lambda: broker.store.get_max_offset("T", 0) == stored)


@pytest_twisted.ensureDeferred
async def test_stop_answers_received_requests_and_closes(tmp_path):
    async with running(make_a_broker(tmp_path)) as broker:
        client, waiting = await connect(broker.port), await connect(broker.port)
        await client.ask(send())
        await eventually(lambda: broker.store.get_max_offset("T", 0) == 1)
        held = waiting.ask(pull(offset=1))
        held.addErrback(lambda failure: None)
        answers = [client.ask(send()) for _ in range(50)]
        await eventually(lambda: broker.store.get_max_offset("T", 0) > 1)
        await broker.stopService()
        for each in answers:
            assert (await each).code == ResponseCode.SUCCESS
        await client.closed
        await waiting.closed
    assert not os.path.exists(tmp_path / "store" / "abort")
