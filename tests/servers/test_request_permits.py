"""How many requests are under way at once: those of a Python client, and those of a broker to its clients."""

from threading import current_thread

import pytest
import pytest_twisted
from twisted.internet.defer import DeferredList

from rocketd.client import ClientConfig, Message, Producer
from rocketd.remoting.bodies.admin import GetConsumerStatusBody
from rocketd.remoting.calling.rpc import RequestTable
from rocketd.remoting.settings import NettyClientConfig
from rocketd.remoting.wire.codes import RequestCode, ResponseCode
from rocketd.remoting.wire.command import RemotingCommand
from tests.servers.brokers import heartbeat, make_a_broker, make_name_server
from tests.servers.wire_client import connect, eventually, running


class Counted:
    """Watches how many requests of a code wait for an answer, by the table of outstanding requests."""

    def __init__(self, monkeypatch, code):
        self.limit = 0
        waiting = set()
        add, answer = RequestTable.add, RequestTable.answer

        def adding(table, opaque, owner, timeout_ms, waiter):
            if waiter._request.code == code:
                waiting.add(opaque)
                self.limit = max(self.limit, len(waiting))
            return add(table, opaque, owner, timeout_ms, waiter)

        def answering(table, opaque, owner):
            waiting.discard(opaque)
            return answer(table, opaque, owner)

        monkeypatch.setattr(RequestTable, "add", adding)
        monkeypatch.setattr(RequestTable, "answer", answering)


@pytest.mark.parametrize(("permits", "limit"), [(1, 1), (7, 7)])
@pytest_twisted.ensureDeferred
async def test_concurrent_sends_of_producer_are_at_most_its_permits(tmp_path, monkeypatch, permits, limit):
    async with running(make_name_server(tmp_path)) as name_server:
        address = f"127.0.0.1:{name_server.port}"
        async with running(make_a_broker(tmp_path, namesrvAddr=address)) as broker:
            counted = Counted(monkeypatch, RequestCode.SEND_MESSAGE_V2)
            config = ClientConfig(namesrv=address, remoting=NettyClientConfig(client_async_semaphore_value=permits))
            producer = Producer("P", cluster=config, send_timeout=60.0)
            await eventually(lambda: name_server.routes.pick_topic_route("TBW102") is not None)
            await producer.open()
            try:
                await producer.send(Message("T", b"first"))
                results = await DeferredList([producer.send(Message("T", b"%d" % n)) for n in range(400)])
                assert all(stored for stored, _ in results)
            finally:
                await producer.close()
            assert counted.limit == limit
            assert broker.store.messages_put == 401


@pytest_twisted.ensureDeferred
async def test_concurrent_relayed_requests_are_at_most_the_permits(tmp_path, monkeypatch):
    threads = []
    decode = GetConsumerStatusBody.decode

    def decoding(body):
        threads.append(current_thread().name)
        return decode(body)

    async with running(
        make_a_broker(tmp_path, serverAsyncSemaphoreValue="1", serverCallbackExecutorThreads="1")
    ) as broker:
        members = [await connect(broker.port) for _ in range(3)]
        for number, member in enumerate(members):
            await member.ask(heartbeat(f"client-{number}"))
        admin = await connect(broker.port)
        monkeypatch.setattr(GetConsumerStatusBody, "decode", decoding)
        asked = admin.ask(
            RemotingCommand(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, {"topic": "T", "group": "G"})
        )

        def questions():
            return [
                (member, request)
                for member in members
                for request in member.requests
                if request.code == RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT
            ]

        answered = set()
        for number in range(3):
            await eventually(lambda number=number: len(questions()) == number + 1)
            assert len(broker.invoke.pending) == 1
            ((member, request),) = [each for each in questions() if each[1].opaque not in answered]
            answered.add(request.opaque)
            body = GetConsumerStatusBody({}).encode()
            member.send(RemotingCommand.response(ResponseCode.SUCCESS, body=body).answering(request))
        answer = await asked
        assert answer.code == ResponseCode.SUCCESS
        assert threads == ["callback-1"] * 3
        for each in (admin, *members):
            each.transport.loseConnection()
