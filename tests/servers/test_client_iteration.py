"""Iterations over consumers, and receiving, in the three faces of the client, with the servers of rocketd.testing."""

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import pytest_twisted
from twisted.internet.threads import deferToThread

from rocketd import client
from rocketd.client import Message, aio, sync
from rocketd.client.errors import IllegalOptionError, NotStartedError
from rocketd.client.runtime import asyncio_host
from rocketd.testing import Cluster


@pytest.fixture
def cluster():
    """A cluster with three messages in one queue."""
    with Cluster(topics=["T"]) as cluster:
        with sync.Producer("PG", **cluster.client_options()) as producer:
            queue = producer.send(Message("T", b"0")).queue
            for number in (1, 2):
                producer.send(Message("T", b"%d" % number), queue=queue)
        yield cluster


def consumer_of(face, cluster):
    return face.LitePullConsumer("CG", topics="T", begin="earliest", **cluster.client_options())


def test_blocking_iteration_continues_where_the_last_was_left(cluster):
    with pytest.raises(NotStartedError):
        next(consumer_of(sync, cluster))
    got = []
    for _ in range(3):
        with consumer_of(sync, cluster) as consumer:
            got.append(next(consumer).body)
            assert sum(consumer.lag().values()) == 3 - len(got)
    assert got == [b"0", b"1", b"2"]
    assert list(consumer) == []


def test_iteration_ends_when_its_block_closes_the_consumer(cluster):
    got = []

    async def read(consumer):
        async for message in consumer:
            got.append(message.body)
            await consumer.close()

    async def main():
        async with consumer_of(aio, cluster) as consumer:
            await read(consumer)

    asyncio.run(main())
    with consumer_of(sync, cluster) as consumer:
        for message in consumer:
            got.append(message.body)
            consumer.close()
    assert got == [b"0", b"1"]


def test_asyncio_iteration_ends_when_the_consumer_is_closed(cluster):
    got = []

    async def main():
        async def read():
            async for message in consumer:
                got.append(message.body)
                if len(got) == 3:
                    done.set()

        done = asyncio.Event()
        async with consumer_of(aio, cluster) as consumer:
            reading = asyncio.create_task(read())
            await done.wait()
        await reading

    asyncio.run(main())
    assert got == [b"0", b"1", b"2"]


@pytest_twisted.ensureDeferred
async def test_twisted_iteration_gets_all_messages(cluster):
    got = []
    async with consumer_of(client, cluster) as consumer:
        async for message in consumer:
            got.append(message.body)
            if len(got) == 3:
                break
    assert got == [b"0", b"1", b"2"]


# ------------------------------------------------------------ receive with a time limit


def receiver_of(face, cluster):
    return face.Consumer("CG", topics="T", begin="earliest", order="queue", **cluster.client_options())


def test_blocking_receive_returns_messages_in_order_and_none_after_its_time(cluster):
    with receiver_of(sync, cluster) as consumer:
        got = [consumer.receive(timeout=30).body for _ in range(3)]
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(consumer.receive, timeout=30)
            while not waiting.done():
                cluster.advance(seconds=10)
        with sync.Producer("PG", **cluster.client_options()) as producer:
            producer.send(Message("T", b"3"))
        got.append(consumer.receive().body)
    assert (got, waiting.result()) == ([b"0", b"1", b"2", b"3"], None)
    assert consumer.receive() is None
    with pytest.raises(NotStartedError):
        receiver_of(sync, cluster).receive()
    with pytest.raises(IllegalOptionError), receiver_of(sync, cluster) as consumer:
        consumer.receive(timeout=-1)


def test_asyncio_receive_returns_none_after_its_time(cluster):
    async def main():
        async with receiver_of(aio, cluster) as consumer:
            got = [(await consumer.receive(timeout=30)).body for _ in range(3)]
            waiting = asyncio.create_task(consumer.receive(timeout=30))
            while not waiting.done():
                await asyncio.to_thread(cluster.advance, seconds=10)
            return [*got, await waiting]

    assert asyncio.run(main()) == [b"0", b"1", b"2", None]


@pytest.mark.parametrize(
    ("kind", "method"), [("Consumer", "receive"), ("LitePullConsumer", "poll"), ("LitePullConsumer", "__anext__")]
)
def test_asyncio_message_given_to_a_task_that_is_cancelled_comes_again(cluster, monkeypatch, kind, method):
    async def take(consumer):
        messages = await getattr(consumer, method)()
        return [message.body for message in (messages if method == "poll" else [messages])]

    def send():
        with sync.Producer("PG", **cluster.client_options()) as producer:
            producer.send(Message("T", b"3"))

    async def main():
        async with getattr(aio, kind)("CG", topics="T", begin="earliest", **cluster.client_options()) as consumer:
            got = []
            while len(got) < 3:
                got += await take(consumer)
            receiving = asyncio.create_task(take(consumer))
            set_result = asyncio.Future.set_result

            def set_result_and_cancel(future, result):
                set_result(future, result)
                if receiving._fut_waiter is future:
                    receiving.cancel()

            with monkeypatch.context() as patched:
                patched.setattr(asyncio_host._Bridge, "set_result", set_result_and_cancel, raising=False)
                await asyncio.to_thread(send)
                await asyncio.wait([receiving])
            assert receiving.cancelled()
            return got + await asyncio.wait_for(take(consumer), 30)

    assert asyncio.run(main()) == [b"0", b"1", b"2", b"3"]


@pytest_twisted.ensureDeferred
async def test_twisted_receive_returns_none_after_its_time(cluster):
    async with receiver_of(client, cluster) as consumer:
        got = [(await consumer.receive(timeout=30)).body for _ in range(3)]
        waiting = consumer.receive(timeout=30)
        while not waiting.called:
            await deferToThread(cluster.advance, seconds=10)
        got.append(await waiting)
    assert got == [b"0", b"1", b"2", None]


# ------------------------------------------------------------ blocking calls in a coroutine


def test_blocking_call_in_a_coroutine_warns_once_in_its_line(cluster):
    async def main(producer):
        for number in (3, 4):
            producer.send(Message("T", b"%d" % number))

    with sync.Producer("PG", **cluster.client_options()) as producer:
        with pytest.warns(RuntimeWarning, match="use rocketd.client.aio") as warned:
            asyncio.run(main(producer))
        assert [each.filename for each in warned] == [__file__]
        asyncio.run(main(producer))


def test_blocking_call_in_a_thread_or_a_notebook_does_not_warn(cluster, monkeypatch, recwarn):
    async def in_thread(producer):
        await asyncio.to_thread(producer.send, Message("T", b"3"))

    async def in_notebook(producer):
        monkeypatch.setitem(sys.modules, "ipykernel", sys)
        producer.send(Message("T", b"3"))

    with sync.Producer("PG", **cluster.client_options()) as producer:
        producer.send(Message("T", b"3"))
        asyncio.run(in_thread(producer))
        asyncio.run(in_notebook(producer))
    assert [each for each in recwarn if each.category is RuntimeWarning] == []
