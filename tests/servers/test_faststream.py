"""FastStream applications on rocketd, as users write them, and their messages as other clients see them."""

import asyncio
import uuid

import pytest
from faststream import AckPolicy, BaseMiddleware, ExceptionMiddleware
from faststream.exceptions import AckMessage, NackMessage, RejectMessage, SetupError, StopConsume
from pydantic import BaseModel

from rocketd.client import Message, Reject, Retry, aio
from rocketd.faststream import (
    RocketBatchMessage,
    RocketBroker,
    RocketMessage,
    RocketPublisher,
    RocketPublishMessage,
    RocketResponse,
    RocketRoute,
    RocketRouter,
)
from tests.servers.faststream_brokers import SECONDS, started
from tests.support.server_processes import ServerProcesses


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    servers = ServerProcesses(tmp_path_factory.mktemp("servers"), enablePropertyFilter="true")
    try:
        servers.start_namesrv()
        servers.start_broker()
        yield servers
    finally:
        servers.kill_all()


@pytest.fixture
def name():
    """A word for topics and groups that no other test has."""
    return f"fs{uuid.uuid4().hex[:10]}"


@pytest.fixture
def broker(servers, name):
    return RocketBroker(servers.namesrv_address, group=name, create_topics=True, logger=None)


class Order(BaseModel):
    number: int
    fruit: str = "pear"


# ------------------------------------------------------------ sending and consuming


def test_models_headers_and_rocketmq_fields_arrive(broker, name):
    got = asyncio.Queue()

    @broker.subscriber(name)
    async def handle(order: Order, message: RocketMessage):
        await got.put((order, message))

    async def main():
        async with started(broker):
            result = await broker.publish(
                Order(number=7), name, tags="new", keys=["A7", "B"], headers={"shop": 3}, correlation_id="c-1"
            )
            order, message = await got.get()
            assert order == Order(number=7)
            assert message.message_id == result.msg_id == message.raw_message.msg_id
            assert (message.tags, message.keys, message.correlation_id) == ("new", ["A7", "B"], "c-1")
            assert message.headers == {"shop": "3", "content-type": "application/json", "correlation_id": "c-1"}
            assert (message.reconsume_times, message.is_request, message.reply_to) == (0, False, "")

    asyncio.run(main())


def test_messages_are_exchanged_with_other_clients(broker, servers, name):
    got = asyncio.Queue()

    @broker.subscriber(f"{name}in")
    @broker.publisher(f"{name}out", tags="made", headers={"from": "handler"})
    async def handle(text: str, message: RocketMessage):
        await got.put((text, message.headers, message.correlation_id == message.message_id))
        return {"length": len(text)}

    async def main():
        address = servers.namesrv_address
        async with started(broker), aio.Producer(f"{name}p", address) as producer:
            await broker.publish("to make the topic", f"{name}out")
            async with aio.Consumer(f"{name}c", address, topics={f"{name}out": "made"}, begin="earliest") as consumer:
                await producer.send(Message(f"{name}in", b"plain", properties={"colour": "red"}))
                message = await anext(consumer)
            assert message.body == b'{"length":5}'
            assert message.properties["content-type"] == "application/json"
            assert message.properties["from"] == "handler"
            text, headers, same = await got.get()
            assert (text, headers, same) == ("plain", {"colour": "red"}, True)
            assert message.properties["correlation_id"]

    asyncio.run(main())


def test_none_and_other_bodies(broker, name):
    got = asyncio.Queue()

    @broker.subscriber(name)
    async def handle(body, message: RocketMessage):
        await got.put(body)

    async def main():
        async with started(broker):
            for body in (None, b"\x00\xff", "text", [1, 2], 5, {"a": None}):
                await broker.publish(body, name)
                assert await got.get() == body

    asyncio.run(main())


def test_messages_of_a_key_go_to_one_queue(broker, name):
    async def main():
        async with started(broker):
            queues = {(await broker.publish(n, name, key="A17")).queue for n in range(5)}
            [queue] = queues
            assert (await broker.publish("named", name, queue=queue)).queue == queue
            batch = await broker.publish_batch(1, 2, topic=name, key="A17")
            assert {result.queue for result in batch} == queues
            chosen = await broker.publish(1, name, key=3, selector=lambda queues, message, key: queues[key])
            assert chosen.queue.queue_id == 3

    asyncio.run(main())


def test_tags_sql_and_several_handlers_of_a_subscriber(broker, name):
    tagged, selected, filtered = [], [], []
    done = asyncio.Event()

    @broker.subscriber(name, tags=["a", "b"], group=f"{name}1")
    async def by_tag(n: int):
        tagged.append(n)

    @broker.subscriber(name, sql="weight > 3", group=f"{name}2")
    async def by_sql(n: int):
        selected.append(n)

    everything = broker.subscriber(name, group=f"{name}3", order="queue")

    @everything(filter=lambda message: message.tags == "a")
    async def some(n: int):
        filtered.append(("a", n))

    @everything
    async def others(n: int):
        filtered.append(("other", n))
        if n == 9:
            done.set()

    async def main():
        async with started(broker):
            for n, tag in enumerate("abcabc"):
                await broker.publish(n, name, tags=tag, headers={"weight": n}, key="one")
            await broker.publish(9, name, tags="b", headers={"weight": 9}, key="one")
            await done.wait()
            while len(tagged) < 5 or len(selected) < 3:
                await asyncio.sleep(0.02)

    asyncio.run(main())
    assert sorted(tagged) == [0, 1, 3, 4, 9]
    assert sorted(selected) == [4, 5, 9]
    assert filtered == [("a", 0), ("other", 1), ("other", 2), ("a", 3), ("other", 4), ("other", 5), ("other", 9)]


# ------------------------------------------------------------ results of messages


def test_messages_come_again_or_become_dead_letters(broker, servers, name):
    tries = []
    again = asyncio.Event()

    @broker.subscriber(name)
    async def handle(what: str, message: RocketMessage):
        tries.append((what, message.reconsume_times))
        if what == "rejected":
            raise RejectMessage
        if what == "rejected as the client does":
            raise Reject
        if message.reconsume_times == 0:
            raise NackMessage(delay=1) if what == "nacked" else Retry(delay=1)
        if len([what for what, times in tries if times]) == 2:
            again.set()

    async def main():
        async with started(broker):
            for what in ("nacked", "retried", "rejected", "rejected as the client does"):
                await broker.publish(what, name)
            await again.wait()
            dead_topic = f"%DLQ%{name}"
            async with aio.Consumer(f"{name}d", servers.namesrv_address, topics=dead_topic, begin="earliest") as dead:
                assert {(await anext(dead)).body for _ in range(2)} == {b"rejected", b"rejected as the client does"}

    asyncio.run(main())
    assert sorted(tries) == [
        ("nacked", 0),
        ("nacked", 1),
        ("rejected", 0),
        ("rejected as the client does", 0),
        ("retried", 0),
        ("retried", 1),
    ]


@pytest.mark.parametrize("policy", [AckPolicy.NACK_ON_ERROR, AckPolicy.REJECT_ON_ERROR, AckPolicy.MANUAL])
def test_dead_letter_has_reason_of_handlers_exception(broker, servers, name, policy):
    @broker.subscriber(name, ack_policy=policy, max_reconsume_times=0)
    async def handle(what: str):
        raise ValueError("no such order\nof that name")

    async def main():
        async with started(broker):
            await broker.publish("one", name)
            dead_topic = f"%DLQ%{name}"
            async with aio.Consumer(f"{name}d", servers.namesrv_address, topics=dead_topic, begin="earliest") as dead:
                properties = (await anext(dead)).properties
        assert properties["DEAD_LETTER_EXCEPTION"] == "ValueError"
        assert (properties["DEAD_LETTER_REASON"], properties["DEAD_LETTER_ATTEMPTS"]) == ("no such order", "1")

    asyncio.run(main())


@pytest.mark.parametrize("policy", [AckPolicy.ACK, AckPolicy.ACK_FIRST, AckPolicy.REJECT_ON_ERROR, AckPolicy.MANUAL])
def test_policies(broker, name, policy):
    """The next message of the queue tells that the one before is settled: ``order="queue"`` waits for that."""
    seen, done = [], asyncio.Event()

    @broker.subscriber(name, ack_policy=policy, order="queue", suspend_time=0.1)
    async def handle(n: int, message: RocketMessage):
        seen.append(n)
        if n == 0:
            if policy is AckPolicy.MANUAL:
                if len(seen) == 1:
                    raise ValueError("comes again")
                task = asyncio.create_task(message.ack())  # settles it after the handler has come back
                task.add_done_callback(lambda _: seen.append("acked"))
                return
            raise ValueError("a fault of the handler's")
        if policy is AckPolicy.MANUAL:
            raise AckMessage
        done.set()

    async def main():
        async with started(broker):
            for n in (0, 1, 2):
                await broker.publish(n, name, key="one")
            if policy is AckPolicy.MANUAL:
                while 2 not in seen:
                    await asyncio.sleep(0.02)
            else:
                await done.wait()
                while 2 not in seen:
                    await asyncio.sleep(0.02)

    asyncio.run(main())
    assert seen == ([0, 0, "acked", 1, 2] if policy is AckPolicy.MANUAL else [0, 1, 2])


def test_stopping_drains(servers, name):
    """Messages in handlers at the stop are handled to the end, and not given to the next member of the group."""
    begun, ended, later = asyncio.Event(), [], []

    def member(handler):
        broker = RocketBroker(servers.namesrv_address, group=name, create_topics=True, logger=None)
        broker.subscriber(name, concurrency=1, begin="earliest")(handler)
        return broker

    async def slow(n: int):
        begun.set()
        await asyncio.sleep(0.3)
        ended.append(n)

    async def rest(n: int):
        later.append(n)

    async def main():
        first, second = member(slow), member(rest)
        async with asyncio.timeout(SECONDS):
            await first.start()
            for n in range(4):
                await first.publish(n, name, key="one")
            await begun.wait()
            await first.stop()
            assert ended == [0]
            assert not await first.ping(0.1)
            async with started(second):
                while len(later) < 3:
                    await asyncio.sleep(0.02)

    asyncio.run(main())
    assert later == [1, 2, 3]


def test_endless_handlers_are_cancelled_at_graceful_timeout(servers, name):
    """Their messages come again, to others, and have not failed."""
    cancelled, later = [], asyncio.Queue()

    def member():
        return RocketBroker(servers.namesrv_address, group=name, create_topics=True, logger=None, graceful_timeout=0.2)

    async def main():
        begun = asyncio.Event()
        first, second = member(), member()

        @first.subscriber(name, begin="earliest")
        async def endless(n: int):
            begun.set()
            try:
                await asyncio.sleep(2 * SECONDS)
            except asyncio.CancelledError:
                cancelled.append(n)
                raise

        @second.subscriber(name, begin="earliest")
        async def handle(n: int, message: RocketMessage):
            await later.put((n, message.reconsume_times))

        async with asyncio.timeout(SECONDS):
            await first.start()
            await first.publish(1, name)
            await begun.wait()
            await first.stop()
            assert cancelled == [1]
            async with started(second):
                assert await later.get() == (1, 0)

    asyncio.run(main())


def test_subscribers_can_join_a_group_later(broker, name):
    async def main():
        @broker.subscriber(f"{name}a", begin="earliest")
        async def handle(n: int):
            pass

        async with started(broker):
            await broker.publish(1, f"{name}b")
            async with broker.subscriber(f"{name}b", begin="earliest", persistent=False) as later:
                assert await (await later.get_one(timeout=SECONDS)).decode() == 1
            with pytest.raises(SetupError, match="differ in begin"):
                await broker.subscriber(f"{name}c").start()
            with pytest.raises(SetupError, match="two subscribers"):
                await broker.subscriber(f"{name}a", begin="earliest").start()

    asyncio.run(main())


def test_stop_consume_stops_only_its_subscriber(broker, name):
    """The other subscriber of the group goes on."""
    stopped, others = [], asyncio.Queue()

    @broker.subscriber(f"{name}a", ack_policy=AckPolicy.ACK)
    async def once(n: int):
        stopped.append(n)
        raise StopConsume

    @broker.subscriber(f"{name}b")
    async def on(n: int):
        await others.put(n)

    async def main():
        async with started(broker):
            await broker.publish(1, f"{name}a")
            while any(subscriber.running for subscriber in broker.subscribers if subscriber.topics == [f"{name}a"]):
                await asyncio.sleep(0.02)
            await broker.publish(2, f"{name}a")
            await broker.publish(3, f"{name}b")
            assert await others.get() == 3

    asyncio.run(main())
    assert stopped == [1]


# ------------------------------------------------------------ questions and answers


def test_requests_and_answers(broker, servers, name):
    answers = asyncio.Queue()

    @broker.subscriber(name)
    async def handle(text: str, message: RocketMessage):
        return RocketResponse(text.upper(), headers={"request": message.is_request})

    @broker.subscriber(f"{name}answers")
    async def answered(text: str, message: RocketMessage):
        await answers.put((text, message.correlation_id))

    @broker.subscriber(f"{name}silent", no_reply=True)
    async def silent(text: str):
        return text

    async def main():
        async with started(broker):
            reply = await broker.request("hello", name, timeout=20, correlation_id="c-2")
            assert (await reply.decode(), reply.correlation_id, reply.headers["request"]) == ("HELLO", "c-2", "True")
            publisher = broker.publisher(name)
            assert await (await publisher.request("again", timeout=20)).decode() == "AGAIN"
            # As a program of another kind asks.
            async with aio.Producer(f"{name}p", servers.namesrv_address) as producer:
                raw = await producer.request(Message(name, b"plain"), timeout=20)
                assert (raw.body, raw.properties["content-type"]) == (b"PLAIN", "text/plain")
            await broker.publish("to a topic", name, reply_to=f"{name}answers", correlation_id="c-3")
            assert await answers.get() == ("TO A TOPIC", "c-3")
            with pytest.raises(TimeoutError):
                await broker.request("nothing comes", f"{name}silent", timeout=0.5)

    asyncio.run(main())


# ------------------------------------------------------------ batches


def test_batches(broker, name):
    lists, made = [], []
    done = asyncio.Event()

    @broker.subscriber(name, batch=True, max_records=4)
    @broker.publisher(f"{name}out", batch=True)
    async def handle(orders: list[Order], message: RocketBatchMessage):
        lists.append(([order.number for order in orders], [raw.tags for raw in message.raw_message]))
        return [RocketPublishMessage(order.number, keys=f"K{order.number}") for order in orders]

    @broker.subscriber(f"{name}out", group=f"{name}o")
    async def out(n: int, message: RocketMessage):
        made.append((n, message.keys))
        if len(made) == 6:
            done.set()

    async def main():
        async with started(broker):
            orders = [Order(number=n) for n in range(5)]
            results = await broker.publish_batch(
                *orders, RocketPublishMessage(Order(number=5), tags="last"), topic=name, tags="t"
            )
            assert len(results) == len({result.msg_id for result in results}) == 6
            assert {result.queue for result in results} == {results[0].queue}
            await done.wait()

    asyncio.run(main())
    assert [len(numbers) <= 4 for numbers, _ in lists] == [True] * len(lists)
    assert sorted(n for numbers, _ in lists for n in numbers) == list(range(6))
    assert [tag for _, tags in lists for tag in tags].count("last") == 1
    assert sorted(made) == [(n, [f"K{n}"]) for n in range(6)]


# ------------------------------------------------------------ routers, middlewares, subscribers without handlers


def test_routers(broker, name):
    got = asyncio.Queue()

    async def first(n: int) -> int:
        return n + 1

    inner = RocketRouter(prefix="inner_")
    router = RocketRouter(
        prefix=f"{name}_",
        handlers=[RocketRoute(first, "first", publishers=[RocketPublisher("second", tags="routed")])],
        routers=[inner],
    )

    @inner.subscriber("deep")
    async def deep(n: int):
        await got.put(("deep", n))

    @router.subscriber("second")
    @inner.publisher("deep")
    async def second(n: int, message: RocketMessage):
        await got.put((message.tags, n))
        return n * 10

    broker.include_router(router)

    async def main():
        async with started(broker):
            await broker.publish(1, f"{name}_first")
            assert [await got.get(), await got.get()] == [("routed", 2), ("deep", 20)]

    assert sorted(topic for subscriber in broker.subscribers for topic in subscriber.topics) == [
        f"{name}_first",
        f"{name}_inner_deep",
        f"{name}_second",
    ]
    asyncio.run(main())


def test_middlewares(servers, name):
    seen, caught = [], asyncio.Event()

    class Watching(BaseMiddleware):
        async def consume_scope(self, call_next, message):
            seen.append(("consumes", message.raw_message.topic, message.headers["stamp"]))
            return await call_next(message)

        async def publish_scope(self, call_next, command):
            command.headers["stamp"] = "stamped"
            command.options["tags"] = "watched"
            seen.append(("publishes", command.destination))
            return await call_next(command)

    catching = ExceptionMiddleware()

    @catching.add_handler(ZeroDivisionError)
    async def catch(error):
        caught.set()

    broker = RocketBroker(
        servers.namesrv_address, group=name, create_topics=True, logger=None, middlewares=[catching, Watching]
    )

    @broker.subscriber(name)
    async def handle(n: int, message: RocketMessage):
        seen.append(message.tags)
        return 1 / n

    async def main():
        async with started(broker):
            await broker.publish(0, name)
            await caught.wait()

    asyncio.run(main())
    assert seen == [("publishes", name), ("consumes", name, "stamped"), "watched"]


def test_subscribers_without_handlers(broker, name):
    async def main():
        subscriber = broker.subscriber(name, begin="earliest")
        async with started(broker):
            assert await subscriber.get_one(timeout=0.05) is None
            for n in range(3):
                await broker.publish(n, name, key="one")
            first = await subscriber.get_one()
            assert await first.decode() == 0
            await first.nack(delay=1)
            seen = []
            async for message in subscriber:
                seen.append((await message.decode(), message.reconsume_times))
                if len(seen) == 3:
                    break
            assert seen == [(1, 0), (2, 0), (0, 1)]
            await broker.publish(3, name, key="one")
        assert await subscriber.get_one(timeout=None) is None
        # Messages not asked for are left for the next subscriber.
        next_broker = RocketBroker(*broker.specification.url, group=name, logger=None)
        async with next_broker, next_broker.subscriber(name, persistent=False) as fresh:
            assert await (await fresh.get_one(timeout=SECONDS)).decode() == 3

    asyncio.run(main())
