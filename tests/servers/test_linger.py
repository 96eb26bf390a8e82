"""Sends gathered into batches by a producer's ``linger``, stored by a real broker."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from rocketd.client import Message, aio, sync
from tests.support.server_processes import TOPIC, ServerProcesses

SECONDS = 60.0
COUNT = 200
TOGETHER = 20


@pytest.fixture(scope="module")
def name_server(tmp_path_factory):
    servers = ServerProcesses(tmp_path_factory.mktemp("servers"))
    try:
        servers.start_namesrv()
        servers.start_broker()
        yield servers.namesrv_address
    finally:
        servers.kill_all()


OPTIONS = {"linger": 0.01, "linger_messages": TOGETHER, "send_timeout": SECONDS}


def send_in_threads(address):
    with sync.Producer("sync", address, **OPTIONS) as producer, ThreadPoolExecutor(TOGETHER) as threads:
        return list(threads.map(lambda n: producer.send(Message(TOPIC, b"sync %d" % n)), range(COUNT)))


def send_in_loop(address):
    async def main():
        async with aio.Producer("aio", address, **OPTIONS) as producer:
            return await asyncio.gather(*(producer.send(Message(TOPIC, b"aio %d" % n)) for n in range(COUNT)))

    return asyncio.run(main())


@pytest.mark.parametrize("send", [send_in_threads, send_in_loop])
def test_gathered_messages_are_stored_where_their_results_say(name_server, send):
    kind = b"sync" if send is send_in_threads else b"aio"
    results = send(name_server)
    found = {}
    with sync.LitePullConsumer(f"reader_{send.__name__}", name_server, topics=TOPIC, begin="earliest") as consumer:
        while len(found) < COUNT:
            messages = consumer.poll(SECONDS)
            assert messages
            found.update((message.body, message) for message in messages if message.body.startswith(kind))
    for number, result in enumerate(results):
        message = found[b"%b %d" % (kind, number)]
        place = message.queue, message.queue_offset, message.msg_id, message.offset_msg_id
        assert place == (result.queue, result.queue_offset, result.msg_id, result.offset_msg_id)
        assert result.status == 0
