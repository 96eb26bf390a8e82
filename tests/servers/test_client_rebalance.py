"""Functions for a rebalance in the three faces of the client, with the servers of rocketd.testing."""

import asyncio

import pytest
import pytest_twisted
from twisted.internet.threads import deferToThread

from rocketd import client
from rocketd.client import Message, aio, sync
from rocketd.testing import Cluster


@pytest.fixture
def cluster():
    with Cluster(topics=["T"]) as cluster:
        yield cluster


def options_of(cluster, **others):
    return {"topics": "T", "begin": "earliest", "order": "queue", **others, **cluster.client_options()}


def test_blocking_members_hand_over_queues_after_on_revoked(cluster):
    events, handled = [], []

    def revoke(queues):
        events.append(("revoked", len(queues)))

    def assigned_to(name):
        return lambda queues: events.append((name, len(queues)))

    with sync.Consumer(
        "CG",
        **options_of(
            cluster,
            handler=lambda message: handled.append(message.body),
            on_assigned=assigned_to("first"),
            on_revoked=revoke,
        ),
    ) as first:
        with sync.Consumer(
            "CG",
            **options_of(
                cluster, handler=lambda message: handled.append(message.body), on_assigned=assigned_to("second")
            ),
        ) as second:
            cluster.advance(seconds=40)
            assert len(first.queues()) == len(second.queues()) == 2
            assert events == [("first", 4), ("revoked", 2), ("second", 2)]
            with sync.Producer("PG", **cluster.client_options()) as producer:
                for queue in producer.publish_queues("T"):
                    producer.send(Message("T", b"%d" % queue.queue_id), queue=queue)
                cluster.settle()
        cluster.advance(seconds=20)
        assert events[3:] == [("first", 2)]
    assert events[4:] == [("revoked", 4)]
    assert sorted(handled) == [b"%d" % number for number in range(4)]


def test_blocking_on_assigned_chooses_the_first_message(cluster):
    handled = []

    def begin_behind_the_first(queues):
        for queue in queues:
            consumer.seek(queue, "latest" if queue != first.queue else 1)

    with sync.Producer("PG", **cluster.client_options()) as producer:
        first = producer.send(Message("T", b"one"))
        producer.send(Message("T", b"two"), queue=first.queue)
        options = options_of(
            cluster, handler=lambda message: handled.append(message.body), on_assigned=begin_behind_the_first
        )
        consumer = sync.Consumer("CG", **options)
        with consumer:
            cluster.settle()
    assert handled == [b"two"]


def test_asyncio_functions_use_the_consumer_while_it_opens_and_closes(cluster):
    seen = []

    async def main():
        async def look(queues):
            assert asyncio.get_running_loop() is loop
            seen.append(len(consumer.queues()))

        loop = asyncio.get_running_loop()
        # An iteration, whose own coroutines do not run in asyncio.
        consumer = aio.Consumer("CG", **options_of(cluster, on_assigned=look, on_revoked=look))
        async with consumer:
            pass

    asyncio.run(main())
    assert seen == [4, 4]


@pytest_twisted.inlineCallbacks
def test_twisted_functions_use_the_consumer_while_it_opens_and_closes(cluster):
    seen = []

    async def look(queues):
        await consumer.commit()
        seen.append(len(queues))

    consumer = client.LitePullConsumer("CG", topics="T", on_assigned=look, on_revoked=look, **cluster.client_options())
    yield consumer.open()
    yield deferToThread(cluster.settle)
    yield consumer.close()
    assert seen == [4, 4]
