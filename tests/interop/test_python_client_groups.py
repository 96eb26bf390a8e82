"""Groups of Python consumers, and actions of administrators on them, against rocketd's servers and against Apache's."""

import asyncio
import re
import threading
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from rocketd.client import ClientConfig, Message, aio
from rocketd.client.consumer.allocation import AllocateMessageQueueAveragelyByCircle
from rocketd.client.consumer.options.flow_limits import FlowLimits
from tests.interop.python_client_faces import LIMIT, Got, eventually
from tests.interop.python_client_world import QUEUES, World, numbered, send_all


def shares(*consumers: Any) -> list[int]:
    """How many queues each has."""
    return [len(consumer.queues()) for consumer in consumers]


# ---------------------------------------------------------------- sharing


def test_queues_are_shared_until_a_member_leaves(world: World) -> None:
    topic, group = world.topic(), world.group()
    one, two = Got(), Got()
    first, second = numbered("shared", 20), numbered("alone", 20)
    with world.producer() as producer, world.consumer(group, topic, one) as staying:
        assert shares(staying) == [QUEUES]
        with world.consumer(group, topic, two) as leaving:
            eventually("they share", lambda: shares(staying, leaving) == [QUEUES // 2] * 2)
            assert not set(staying.queues()) & set(leaving.queues())
            send_all(producer, topic, first)
            eventually("all come", lambda: len(one.bodies) + len(two.bodies) >= len(first))
        eventually("one has all", lambda: shares(staying) == [QUEUES])
        send_all(producer, topic, second)
        one.wait_bodies(second)
    # No member crashed, so nothing comes twice.
    world.check_none_twice(one.bodies + two.bodies, first + second)
    assert {message.queue for message in two.messages}.isdisjoint(
        message.queue for message in one.messages if message.body in first
    )


def test_queues_are_shared_by_chosen_strategy(world: World) -> None:
    topic, group = world.topic(), world.group()
    options = {"allocation": AllocateMessageQueueAveragelyByCircle()}
    with world.consumer(group, topic, Got(), **options) as one, world.consumer(group, topic, Got(), **options) as two:
        eventually("they share", lambda: shares(one, two) == [QUEUES // 2] * 2)
        parities = {queue.queue_id % 2 for queue in one.queues()}, {queue.queue_id % 2 for queue in two.queues()}
    assert sorted(map(len, parities)) == [1, 1]
    assert parities[0] != parities[1]


def test_a_queue_consumed_in_order_changes_hands(world: World) -> None:
    topic, group = world.topic(), world.group()
    one, two = Got(), Got()
    bodies = [numbered(f"part{part}", 12) for part in range(3)]
    with world.producer() as producer, world.consumer(group, topic, one, order="queue") as staying:
        send_all(producer, topic, bodies[0])
        one.wait_bodies(bodies[0])
        with world.consumer(group, topic, two, order="queue") as leaving:
            eventually("they share", lambda: shares(staying, leaving) == [QUEUES // 2] * 2)
            send_all(producer, topic, bodies[1])
            eventually("all come", lambda: len(one.bodies) + len(two.bodies) >= 24)
            assert {message.queue for message in two.messages} == set(leaving.queues())
        send_all(producer, topic, bodies[2])
        eventually("all come", lambda: len(one.bodies) + len(two.bodies) >= 36)
    everything = [message for got in (one, two) for message in got.messages]
    world.check_none_twice([message.body for message in everything], [body for part in bodies for body in part])
    for queue_id in range(QUEUES):
        offsets = [message.queue_offset for message in one.messages if message.queue.queue_id == queue_id]
        assert offsets == sorted(offsets)


def test_broadcasting_members_get_all_and_go_on_after_a_restart(world: World, tmp_path: Path) -> None:
    topic, group = world.topic(), world.group()
    before, missed = numbered("before", 8), numbered("missed", 8)

    def member(name: str, got: Got) -> Any:
        config = ClientConfig(namesrv=world.servers.namesrv, instance_name=name)
        return world.consumer(group, topic, got, config, broadcast=True, offset_directory=str(tmp_path))

    got = {name: [Got(), Got()] for name in ("one", "two")}
    with world.producer() as producer:
        with member("one", got["one"][0]) as one, member("two", got["two"][0]) as two:
            assert shares(one, two) == [QUEUES, QUEUES]
            send_all(producer, topic, before)
            for name in got:
                got[name][0].wait_bodies(before)
        send_all(producer, topic, missed)
        with member("one", got["one"][1]), member("two", got["two"][1]):
            for name in got:
                got[name][1].wait_bodies(missed)
    assert len(list(tmp_path.rglob("offsets.json"))) == 2
    for first, second in got.values():
        assert (sorted(first.bodies), sorted(second.bodies)) == (sorted(before), sorted(missed))


# ---------------------------------------------------------------- where a group begins


def test_new_group_begins_at_chosen_start(world: World) -> None:
    """Also at the end of a young topic, of which brokers say that a new group begins at its first message."""
    topic = world.topic()
    old, new, last = numbered("old", 8), numbered("new", 8), numbered("last", 8)
    got = {"latest": Got(), "earliest": Got(), "moment": Got()}
    with world.producer() as producer:
        send_all(producer, topic, old)
        # The brokers' clock is this one.
        began = time.time()
        eventually("the clock has ticked", lambda: time.time() > began + 0.02)
        moment = datetime.now(UTC)
        eventually("the clock has ticked", lambda: time.time() > moment.timestamp() + 0.02)
        send_all(producer, topic, new)
        world.await_dispatch()
        starts = {"latest": "latest", "earliest": "earliest", "moment": moment}
        with ExitStack() as stack:
            for name, start in starts.items():
                stack.enter_context(world.consumer(world.group(), topic, got[name], begin=start))
            send_all(producer, topic, last)
            got["earliest"].wait_bodies([*old, *new, *last])
            got["moment"].wait_bodies([*new, *last])
            got["latest"].wait_bodies(last)
    assert sorted(got["earliest"].bodies) == sorted([*old, *new, *last])
    assert sorted(got["moment"].bodies) == sorted([*new, *last])
    assert sorted(got["latest"].bodies) == sorted(last)


def test_group_begun_at_the_end_gets_all_later_messages(world: World) -> None:
    topic, group, got = world.topic(), world.group(), Got()
    with world.producer() as producer:
        send_all(producer, topic, numbered("old", 4))
        world.await_dispatch()
        with world.consumer(group, topic, Got(), begin="latest"):
            pass
        meanwhile = numbered("meanwhile", 8)
        send_all(producer, topic, meanwhile)
        with world.consumer(group, topic, got, begin="latest"):
            got.wait_bodies(meanwhile)
    assert sorted(got.bodies) == sorted(meanwhile)


# ---------------------------------------------------------------- while it runs


def test_suspended_consumer_gets_messages_after_resume(world: World) -> None:
    topic, got, seen = world.topic(), Got(), Got()
    first, second = numbered("first", QUEUES), numbered("second", QUEUES)
    with (
        world.producer() as producer,
        world.consumer(world.group(), topic, seen),
        world.consumer(world.group(), topic, got) as consumer,
    ):
        consumer.suspend()
        # Pulls sent before still return: one message of each queue.
        send_all(producer, topic, first)
        got.wait_bodies(first)
        send_all(producer, topic, second)
        seen.wait_bodies(second)
        assert sorted(got.bodies) == sorted(first)
        consumer.resume()
        got.wait_bodies(second)


def test_paused_queues_get_no_messages(world: World) -> None:
    topic, got, seen = world.topic(), Got(), Got()
    first, second = numbered("first", QUEUES), numbered("second", QUEUES)
    with (
        world.producer() as producer,
        world.consumer(world.group(), topic, seen),
        world.consumer(world.group(), topic, got) as consumer,
    ):
        paused = consumer.queues()[:2]
        consumer.pause(paused)
        send_all(producer, topic, first)
        got.wait_bodies(first)
        send_all(producer, topic, second)
        seen.wait_bodies(second)
        got.wait_bodies(second[2:])
        assert sorted(got.bodies) == sorted(first + second[2:])
        consumer.unpause(paused)
        got.wait_bodies(second)


def test_concurrency_can_be_changed(world: World) -> None:
    topic = world.topic()
    barriers = {b"one": threading.Barrier(1), b"three": threading.Barrier(3)}
    running: list[int] = [0]
    limit: dict[bytes, int] = {}
    lock = threading.Lock()

    def handle(message: Any) -> None:
        with lock:
            running[0] += 1
            limit[message.body] = max(limit.get(message.body, 0), running[0])
        barriers[message.body].wait(LIMIT)
        with lock:
            running[0] -= 1

    got = Got(handle)
    with world.producer() as producer, world.consumer(world.group(), topic, got, concurrency=1) as consumer:
        send_all(producer, topic, [b"one"] * 8)
        got.wait("all come", lambda: len(got.messages) == 8)
        consumer.set_concurrency(3)
        send_all(producer, topic, [b"three"] * 6)
        got.wait("all come", lambda: len(got.messages) == 14)
    assert limit == {b"one": 1, b"three": 3}


def test_batches_of_messages(world: World) -> None:
    topic = world.topic(1)
    sizes: list[int] = []
    bodies: list[bytes] = []
    done = threading.Event()

    def handle(messages: list[Any]) -> None:
        sizes.append(len(messages))
        bodies.extend(message.body for message in messages)
        if len(bodies) == 20:
            done.set()

    sent = numbered("together", 20)
    with world.producer() as producer:
        producer.send_batch([Message(topic, body) for body in sent])
        with world.consumer(world.group(), topic, handle, batch=8, order="queue"):
            assert done.wait(LIMIT)
    assert (sizes, bodies) == ([8, 8, 4], sent)


def test_a_slow_handler_holds_its_queue_back(world: World) -> None:
    """No more is held than the limits allow; nothing is lost by that."""
    topic, go_on = world.topic(1), threading.Event()
    held: list[int] = []
    got = Got(lambda _: (go_on.wait(LIMIT), None)[1])
    bodies = numbered("slow", 40)
    with world.producer() as producer:
        producer.send_batch([Message(topic, body) for body in bodies])
        with world.consumer(
            world.group(), topic, got, concurrency=2, pull_batch=4, limits=FlowLimits(messages=8)
        ) as consumer:
            assigned = consumer.client._engine.assigned
            eventually("the limit is reached", lambda: sum(one.held.count for one in assigned.values()) > 8)
            held.append(sum(one.held.count for one in assigned.values()))
            go_on.set()
            got.wait_bodies(bodies)
    assert held[0] <= 8 + 4
    assert sorted(got.bodies) == sorted(bodies)


def test_closing_waits_for_handlers(world: World) -> None:
    topic, group, begun, go_on = world.topic(), world.group(), threading.Event(), threading.Event()
    ended: list[bytes] = []
    again = Got()

    def handle(message: Any) -> None:
        begun.set()
        go_on.wait(LIMIT)
        ended.append(message.body)

    with world.producer() as producer:
        consumer = world.consumer(group, topic, handle)
        consumer.open()
        producer.send(Message(topic, b"slow"))
        assert begun.wait(LIMIT)
        closing = threading.Thread(target=consumer.close)
        closing.start()
        eventually("it is closing", lambda: consumer.client._life.ended)
        assert closing.is_alive()
        go_on.set()
        closing.join(LIMIT)
        assert ended == [b"slow"]
        producer.send(Message(topic, b"next"))
        with world.consumer(group, topic, again):
            again.wait_bodies([b"next"])
    world.check_none_twice([*ended, *again.bodies], [b"slow", b"next"])


@pytest.mark.parametrize("order", ["none", "queue", "key"])
def test_close_cancels_endless_handler(world: World, order: str) -> None:
    """Its message comes again, to the next member."""
    topic, group, begun, again = world.topic(), world.group(), threading.Event(), Got()
    cancelled: list[bytes] = []

    async def handle(message: Any) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(message.body)
            raise

    with world.producer() as producer:
        with world.consumer(group, topic, handle, order=order, grace=0.1):
            producer.send(Message(topic, b"endless", keys=["k"]))
            assert begun.wait(LIMIT)
        assert cancelled == [b"endless"]
        with world.consumer(group, topic, again, order=order):
            again.wait_bodies([b"endless"])
    assert [message.reconsume_times for message in again.messages] == [0]


@pytest.mark.parametrize("order", ["none", "queue", "key"])
def test_close_abandons_endless_thread(world: World, order: str) -> None:
    topic, group, begun, go_on, again = world.topic(), world.group(), threading.Event(), threading.Event(), Got()

    def handle(message: Any) -> None:
        begun.set()
        go_on.wait(LIMIT)

    with world.producer() as producer:
        try:
            with world.consumer(group, topic, handle, order=order, grace=0.1):
                producer.send(Message(topic, b"endless", keys=["k"]))
                assert begun.wait(LIMIT)
            with world.consumer(group, topic, again, order=order):
                again.wait_bodies([b"endless"])
        finally:
            go_on.set()


def test_offset_file_is_written_without_handler_threads(world: World, tmp_path: Path) -> None:
    """It is written while they are busy, and when a consumer leaves one behind."""
    topic, group, begun, go_on = world.topic(1), world.group(), threading.Event(), threading.Event()
    config = ClientConfig(namesrv=world.servers.namesrv, instance_name=topic)
    options: dict[str, Any] = {"broadcast": True, "offset_directory": str(tmp_path)}

    def handle(message: Any) -> None:
        if message.body == b"endless":
            begun.set()
            go_on.wait(LIMIT)

    got, again = Got(handle), Got()
    with world.producer() as producer:
        try:
            with world.consumer(group, topic, got, config, concurrency=1, grace=0.1, **options):
                producer.send_batch([Message(topic, body) for body in (b"quick", b"endless")])
                assert begun.wait(LIMIT)
                eventually("offsets are stored", lambda: bool(list(tmp_path.rglob("offsets.json"))))
            with world.consumer(group, topic, again, config, **options):
                again.wait_bodies([b"endless"])
        finally:
            go_on.set()
    assert again.bodies == [b"endless"]


def test_message_handled_too_long_is_redelivered(world: World) -> None:
    """And the queue goes on without it: the next member gets nothing twice."""
    topic, group, go_on, rest = world.topic(1), world.group(), threading.Event(), Got()

    def handle(message: Any) -> None:
        if message.body == b"slow" and not message.reconsume_times:
            go_on.wait(LIMIT)

    got = Got(handle)
    with world.producer() as producer:
        with world.consumer(group, topic, got, consume_timeout=0.3) as consumer:
            producer.send_batch([Message(topic, body) for body in (b"slow", b"quick")])
            got.wait("it comes again", lambda: len(got.messages) == 3)
            go_on.set()
            held = consumer.client._engine.assigned
            eventually("nothing is held", lambda: not any(one.held.count for one in held.values()))
        producer.send(Message(topic, b"next"))
        with world.consumer(group, topic, rest):
            rest.wait_bodies([b"next"])
    again = got.messages[2]
    assert (again.body, again.reconsume_times, again.topic) == (b"slow", 1, topic)
    world.check_none_twice([*got.bodies, *rest.bodies], [b"slow", b"quick", b"slow", b"next"])


def test_waiting_for_a_message_can_be_cancelled(world: World) -> None:
    """And the message that comes afterwards is not lost."""
    topic, group = world.topic(), world.group()
    consumer = aio.Consumer(group, world.servers.namesrv, topics=topic, begin="earliest")

    async def scenario() -> list[bytes]:
        async with consumer, aio.Producer(world.group(), world.servers.namesrv) as producer:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await anext(consumer)
            await producer.send(Message(topic, b"first"))
            bodies = [(await anext(consumer)).body]
            waiting = asyncio.ensure_future(anext(consumer))
            waiting.cancel()
            await producer.send(Message(topic, b"second"))
            return [*bodies, (await anext(consumer)).body]

    assert world.face.run(scenario) == [b"first", b"second"]


# ---------------------------------------------------------------- administrators


@pytest.fixture
def watched(world: World) -> Any:
    """``watched(bodies)``: topic, group, the consumer's messages, and the consumer, which has got these."""
    with ExitStack() as stack:

        def watch(bodies: list[bytes]) -> tuple[str, str, Got, Any, list[Any]]:
            topic, group, got = world.topic(), world.group(), Got()
            producer = stack.enter_context(world.producer())
            consumer = stack.enter_context(world.consumer(group, topic, got))
            sent = send_all(producer, topic, bodies)
            world.await_dispatch()
            got.wait_bodies(bodies)
            return topic, group, got, consumer, sent

        yield watch


def all_is_stored(world: World, group: str) -> bool:
    """Whether the broker knows that the group has consumed everything."""
    try:
        return "Diff Total: 0" in world.servers.mqadmin("consumerProgress", "-g", group)
    except AssertionError:  # it complains of a group that has none
        return False


def test_mqadmin_resets_a_running_consumer(world: World, watched: Any) -> None:
    bodies = numbered("again", 8)
    topic, group, got, _, _ = watched(bodies)
    # Brokers reset only groups of which they know offsets.
    eventually("offsets are stored", lambda: all_is_stored(world, group))
    printed = world.servers.mqadmin("resetOffsetByTime", "-g", group, "-t", topic, "-s", "0", "-f", "true")
    assert "rollback consumer offset" in printed or "#offset" in printed
    got.wait("all come again", lambda: len(got.messages) >= 16)
    assert sorted(got.bodies) == sorted(bodies * 2)
    eventually("offsets are stored", lambda: all_is_stored(world, group))


def test_mqadmin_gets_consumer_status(world: World, watched: Any) -> None:
    bodies = numbered("asked", 8)
    topic, group, _, consumer, _ = watched(bodies)
    client_id = consumer.client_id

    def stored() -> bool:
        printed = world.servers.mqadmin("consumerStatus", "-g", group, "-i", client_id, "-s")
        return len(re.findall(rf"(?m)^{re.escape(topic)} +\S+ +\d +2 +", printed)) == QUEUES

    eventually("all queues are there with their offsets", stored)
    printed = world.servers.mqadmin("consumerStatus", "-g", group, "-i", client_id, "-s")
    assert re.search(r"(?m)^PROP_CONSUME_TYPE +: CONSUME_PASSIVELY", printed), printed
    assert re.search(r"(?m)^consumeThreadMax +: 20", printed)
    assert f"%RETRY%{group}" in printed
    assert 'File "' in printed  # stacks of Python's threads
    connection = world.servers.mqadmin("consumerConnection", "-g", group)
    assert client_id in connection
    assert "PYTHON" in connection
    assert "CONSUME_FROM_FIRST_OFFSET" in connection
    assert f"%RETRY%{group}" in connection
    listed = world.servers.mqadmin("consumerStatus", "-g", group)
    assert client_id in listed
    assert "Same subscription" in listed


def test_mqadmin_has_a_message_consumed(world: World, watched: Any) -> None:
    bodies = numbered("direct", 4)
    topic, group, got, consumer, sent = watched(bodies)
    words = ("queryMsgByUniqueKey", "-t", topic, "-i", sent[2].msg_id, "-g", group, "-d", consumer.client_id)
    assert "consumeResult=CR_SUCCESS" in world.servers.mqadmin(*words)
    assert got.bodies.count(bodies[2]) == 2
    assert got.messages[-1].topic == topic


def test_mqadmin_sees_producers(world: World) -> None:
    topic, group = world.topic(), world.group()
    with world.producer(group, ClientConfig(namesrv=world.servers.namesrv, heartbeat_interval=0.5)) as producer:
        producer.send(Message(topic, b"x"))

        def listed() -> bool:
            try:
                return producer.client_id in world.servers.mqadmin("producerConnection", "-g", group, "-t", topic)
            except AssertionError:  # the first heartbeat has not come yet
                return False

        eventually("it is listed", listed)
