"""Which thread of a real broker handles which request."""

from functools import partialmethod
from threading import current_thread

import pytest_twisted

from rocketd.broker.clients.heartbeats import ClientManageProcessor
from rocketd.broker.pull.processor import PullMessageProcessor
from rocketd.broker.send.processor import SendMessageProcessor
from rocketd.remoting.headers.client import (
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    read_header,
    write_header,
)
from rocketd.remoting.wire.codes import RequestCode, ResponseCode
from rocketd.remoting.wire.command import RemotingCommand
from tests.servers.brokers import heartbeat, make_a_broker, pull, send
from tests.servers.wire_client import connect, eventually, running


def with_long_names(short):
    """Make a SEND_MESSAGE of a SEND_MESSAGE_V2."""
    header = read_header(SendMessageRequestHeaderV2, short)
    fields = {name: getattr(header, name) for name in header.__struct_fields__}
    return RemotingCommand(RequestCode.SEND_MESSAGE, write_header(SendMessageRequestHeader(**fields)), short.body)


@pytest_twisted.ensureDeferred
async def test_sends_run_in_a_separate_thread(tmp_path, monkeypatch):
    threads = {}

    def note(self, *arguments, owner, run):
        threads.setdefault(owner, set()).add(current_thread().name)
        return run(self, *arguments)

    for processor, method in (
        (SendMessageProcessor, "process_jobs"), (PullMessageProcessor, "process_jobs"), (ClientManageProcessor, "process"),
    ):  # fmt: skip
        noting = partialmethod(note, owner=processor, run=getattr(processor, method))
        monkeypatch.setattr(processor, method, noting)
    async with running(make_a_broker(tmp_path)) as broker:
        client = await connect(broker.port)
        for request in (send(), with_long_names(send())):
            answer = await client.ask(request)
            assert answer.code == ResponseCode.SUCCESS, answer
        await eventually(lambda: broker.store.get_max_offset("T", 0) == 2)
        assert (await client.ask(pull())).code == ResponseCode.SUCCESS
        assert (await client.ask(heartbeat("member"))).code == ResponseCode.SUCCESS
        client.transport.loseConnection()
    assert threads == {
        SendMessageProcessor: {"send-0"}, PullMessageProcessor: {"pull-0"}, ClientManageProcessor: {"heartbeat-0"},
    }  # fmt: skip
