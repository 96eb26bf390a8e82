"""What the three faces of the client tell about failures, with the servers of rocketd.testing."""

import asyncio

import pytest
import pytest_twisted
from twisted.internet.threads import deferToThread

from rocketd import client
from rocketd.client import Message, aio, sync
from rocketd.client.errors import TopicNotFoundError
from rocketd.testing import Cluster


@pytest.fixture
def cluster():
    with Cluster(topics=["T"]) as cluster:
        yield cluster


def fail(message):
    raise ValueError(message.body)


async def fail_in_coroutine(message):
    fail(message)


def check_logged(caplog, *functions):
    (record,) = [record for record in caplog.records if "failed on" in record.getMessage()]
    assert "keys 'A17', attempt 1, group CG" in record.getMessage()
    assert isinstance(record.exc_info[1], ValueError)
    frames = []
    traceback = record.exc_info[2]
    while traceback is not None:
        frames.append(traceback.tb_frame.f_code.co_name)
        traceback = traceback.tb_next
    assert frames == list(functions)


def options_of(cluster, handler, told):
    def on_error(error, message):
        told.append((type(error), message.keys))

    return dict(topics="T", begin="earliest", handler=handler, on_error=on_error, **cluster.client_options())


MESSAGE = Message("T", b"one", keys=["A17"])
TOLD = [(ValueError, ["A17"])]


def test_blocking_handler_failure_is_logged_with_its_frames(cluster, caplog):
    told = []
    with (
        sync.Producer("PG", **cluster.client_options()) as producer,
        sync.Consumer("CG", **options_of(cluster, fail, told)),
    ):
        producer.send(MESSAGE)
        cluster.settle()
    check_logged(caplog, "fail")
    assert told == TOLD


def test_asyncio_handler_failure_is_logged_with_its_frames(cluster, caplog):
    told = []

    async def main():
        async with (
            aio.Producer("PG", **cluster.client_options()) as producer,
            aio.Consumer("CG", **options_of(cluster, fail_in_coroutine, told)),
        ):
            await producer.send(MESSAGE)
            await asyncio.to_thread(cluster.settle)

    asyncio.run(main())
    check_logged(caplog, "fail_in_coroutine", "fail")
    assert told == TOLD


@pytest_twisted.inlineCallbacks
def test_twisted_handler_failure_is_logged_with_its_frames(cluster, caplog):
    told = []
    producer = yield client.Producer("PG", **cluster.client_options()).open()
    consumer = yield client.Consumer("CG", **options_of(cluster, fail_in_coroutine, told)).open()
    yield producer.send(MESSAGE)
    yield deferToThread(cluster.settle)
    yield consumer.close()
    yield producer.close()
    check_logged(caplog, "fail_in_coroutine", "fail")
    assert told == TOLD


# ------------------------------------------------------------ consumers that open before their topic


def late_options(cluster, got):
    return dict(topics="Late", handler=lambda message: got.append(message.body), **cluster.client_options())


def test_blocking_consumer_gets_first_message_of_topic_that_comes_later(cluster):
    got = []
    with (
        sync.Producer("PG", **cluster.client_options()) as producer,
        sync.Consumer("CG", **late_options(cluster, got)),
    ):
        producer.send(Message("Late", b"one"))
        cluster.advance(seconds=10)
    assert got == [b"one"]


def test_asyncio_consumer_gets_first_message_of_topic_that_comes_later(cluster):
    got = []

    async def main():
        async with (
            aio.Producer("PG", **cluster.client_options()) as producer,
            aio.Consumer("CG", **late_options(cluster, got)),
        ):
            await producer.send(Message("Late", b"one"))
            await asyncio.to_thread(cluster.advance, seconds=10)

    asyncio.run(main())
    assert got == [b"one"]


@pytest_twisted.inlineCallbacks
def test_twisted_consumer_gets_first_message_of_topic_that_comes_later(cluster):
    got = []
    producer = yield client.Producer("PG", **cluster.client_options()).open()
    consumer = yield client.Consumer("CG", **late_options(cluster, got)).open()
    yield producer.send(Message("Late", b"one"))
    yield deferToThread(cluster.advance, seconds=10)
    yield consumer.close()
    yield producer.close()
    assert got == [b"one"]


def test_iteration_and_poll_wait_for_their_topic(cluster):
    options = cluster.client_options()
    with (
        sync.Producer("PG", **options) as producer,
        sync.LitePullConsumer("PG", topics="Late", **options) as polling,
        sync.Consumer("CG", topics="Late", **options) as consumer,
    ):
        producer.send(Message("Late", b"one"))
        cluster.advance(seconds=10)
        assert next(consumer).body == b"one"
        assert [message.body for message in polling.poll(1)] == [b"one"]


def test_missing_topic_is_created_or_raises_on_request(cluster):
    options = cluster.client_options()
    with pytest.raises(TopicNotFoundError, match=r"none of .* has it"):
        sync.Consumer("CG", topics="Late", missing="raise", **options).open()
    with sync.LitePullConsumer("PG", topics="Late", missing="create", **options) as polling:
        assert len(polling.queues()) == 4


# ------------------------------------------------------------ dead letters


@pytest.mark.parametrize("order", ["none", "queue", "key"])
def test_dead_letter_tells_why_and_is_the_message_otherwise(cluster, order):
    more = {"order": order, "max_reconsume_times": 1, "suspend_time": 1}
    with (
        sync.Producer("PG", **cluster.client_options()) as producer,
        sync.Consumer("CG", topics="T", begin="earliest", handler=fail, **more, **cluster.client_options()) as consumer,
    ):
        sent = producer.send(Message("T", b"one", keys=["A17"], properties={"price": "3"}))
        cluster.advance(minutes=1)
        client_id = consumer._engine.instance.client_id
    (dead,) = cluster.messages("%DLQ%CG")
    assert (dead.topic, dead.body, dead.keys, dead.msg_id) == ("T", b"one", ["A17"], sent.msg_id)
    assert dead.reconsume_times == 2
    assert dead.properties["price"] == "3"
    assert {name: value for name, value in dead.properties.items() if name.startswith("DEAD_LETTER")} == {
        "DEAD_LETTER_CONSUMER": client_id,
        "DEAD_LETTER_ATTEMPTS": "2",
        "DEAD_LETTER_EXCEPTION": "ValueError",
        "DEAD_LETTER_REASON": "b'one'",
    }
