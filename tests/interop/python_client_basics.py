"""Scenarios that every face of the Python client passes, each a function of a world.

``python -m tests.interop.python_client_basics KIND NAMESRV BROKER`` plays them all on the Twisted face,
with the global reactor in the main thread, and prints the result of each as a line of JSON.
"""

import json
import sys
import threading
import traceback
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rocketd.client import (
    JsonCodec,
    Message,
    Reject,
    Retry,
    SelectMessageQueueByHash,
    TransactionState,
)
from rocketd.client.errors import ClientClosedError, ClientStateError, NotStartedError
from rocketd.common.java_hash import java_string_hash
from tests.interop.python_client_faces import LIMIT, Face, Got, iterate
from tests.interop.python_client_world import QUEUES, World, numbered, send_all


def sent_messages_arrive(world: World) -> None:
    """Sent messages arrive unchanged, from the place told by the broker."""
    topic, got = world.topic(), Got()
    with world.producer() as producer, world.consumer(world.group(), topic, got):
        sent = [
            producer.send(
                Message(
                    topic,
                    f"žluťoučký kůň {number}".encode(),
                    tags=f"Tag{number % 2}",
                    keys=[f"k{number}", f"also{number}"],
                    properties={"number": str(number), "what": "消息"},
                    flag=number,
                )
            )
            for number in range(12)
        ]
        got.wait("all come", lambda: len(got.messages) >= len(sent))
    assert {result.status for result in sent} == {0}
    assert {result.queue.queue_id for result in sent} == set(range(QUEUES))
    assert len({result.msg_id for result in sent}) == len(sent)
    arrived = {message.msg_id: message for message in got.messages}
    for number, result in enumerate(sent):
        message = arrived[result.msg_id]
        assert message.topic == topic
        assert message.body == f"žluťoučký kůň {number}".encode()
        assert message.tags == f"Tag{number % 2}"
        assert message.keys == [f"k{number}", f"also{number}"]
        assert message.properties["number"] == str(number)
        assert message.properties["what"] == "消息"
        assert message.flag == number
        assert message.reconsume_times == 0
        assert (message.queue, message.queue_offset) == (result.queue, result.queue_offset)
        assert message.offset_msg_id == result.offset_msg_id
        assert abs((message.stored_at - message.born_at).total_seconds()) < LIMIT
    assert len(got.messages) == len(sent)


def other_ways_to_send(world: World) -> None:
    """One-way, to a queue, by the hash of a key, compressed."""
    topic, got = world.topic(), Got()
    big = b"0123456789" * 1000
    with world.producer() as producer, world.consumer(world.group(), topic, got):
        queues = producer.publish_queues(topic)
        assert [queue.queue_id for queue in queues] == list(range(QUEUES))
        producer.send_oneway(Message(topic, b"one-way"))
        assert producer.send(Message(topic, b"there"), queue=queues[2]).queue == queues[2]
        for key in ("order-7", "order-8", "zákazník"):
            places = {
                producer.send(Message(topic, key.encode()), selector=SelectMessageQueueByHash(), key=key).queue
                for _ in range(2)
            }
            assert places == {queues[abs(java_string_hash(key)) % QUEUES]}
        producer.send(Message(topic, big))
        got.wait_bodies([b"one-way", b"there", big])
    (compressed,) = [message for message in got.messages if message.body == big]
    assert compressed.sys_flag & 1
    assert compressed.store_size < len(big)


def batches(world: World) -> None:
    """Messages sent together arrive one by one; too many for one request go in several."""
    topic, got = world.topic(), Got()
    bodies = [bytes([65 + number]) * 1000 for number in range(10)]
    with (
        world.producer(max_message_size=4000) as producer,
        world.consumer(world.group(), topic, got),
    ):
        sent = producer.send_batch([Message(topic, body, keys=[str(place)]) for place, body in enumerate(bodies)])
        got.wait_bodies(bodies)
    assert len({(result.queue, result.queue_offset) for result in sent}) == len(bodies)
    assert 2 <= len({result.queue for result in sent}) <= QUEUES
    arrived = {message.msg_id: message for message in got.messages}
    for place, (body, result) in enumerate(zip(bodies, sent, strict=True)):
        message = arrived[result.msg_id]
        assert (message.body, message.keys) == (body, [str(place)])
        assert (message.queue, message.queue_offset) == (result.queue, result.queue_offset)
        assert message.offset_msg_id == result.offset_msg_id


@dataclass
class Order:
    """The value sent in the typed scenario."""

    number: int
    items: list[str]


def typed_bodies(world: World) -> None:
    """A codec makes values of bodies; an undecodable body finally becomes a dead letter."""
    topic, group, got, dead = world.topic(), world.group(), Got(), Got()
    codec = JsonCodec(Order)
    with (
        world.producer(codec=codec) as producer,
        world.producer() as plain,
        world.consumer(group, topic, got, codec=codec, max_reconsume_times=0),
    ):
        plain.send(Message(topic, b"no JSON"))
        producer.send(Message(topic, Order(7, ["book", "pen"])))
        got.wait("the order comes", lambda: got.bodies == [Order(7, ["book", "pen"])])
        world.await_topic(f"%DLQ%{group}")
        with world.consumer(world.group(), f"%DLQ%{group}", dead):
            dead.wait_bodies([b"no JSON"])


def retries_and_rejections(world: World) -> None:
    """A message refused by its handler comes again after its delay, or becomes a dead letter."""
    topic, group, dead = world.topic(), world.group(), Got()

    def answer(message: Any) -> None:
        if message.body == b"reject":
            raise Reject("never")
        if message.body == b"hopeless":
            raise RuntimeError("this handler fails as the scenario wants it to")
        if message.body == b"later" and message.reconsume_times == 0:
            raise Retry(delay=1)

    def answer_otherwise(message: Any) -> Any:
        answer(message)
        return Retry(delay=2) if message.body == b"returned" and not message.reconsume_times else None

    got = Got(answer_otherwise)
    with (
        world.producer() as producer,
        world.consumer(group, topic, got, max_reconsume_times=2),
    ):
        for body in (b"later", b"reject", b"hopeless", b"returned", b"fine"):
            producer.send(Message(topic, body, keys=["key"]))
        world.await_topic(f"%DLQ%{group}")
        with world.consumer(world.group(), f"%DLQ%{group}", dead):
            dead.wait_bodies([b"reject", b"hopeless"])
            got.wait("all come as often as they should", lambda: len(got.messages) >= 9)
    times = defaultdict(list)
    for message in got.messages:
        assert (message.topic, message.keys) == (topic, ["key"])
        times[message.body].append(message.reconsume_times)
    assert times == {b"later": [0, 1], b"reject": [0], b"hopeless": [0, 1, 2], b"returned": [0, 1], b"fine": [0]}
    assert {message.properties["RETRY_TOPIC"] for message in dead.messages} == {topic}
    ids = {message.msg_id for message in got.messages if message.body == b"later"}
    assert len(ids) == 1


def coroutine_handlers(world: World) -> None:
    """A handler may await as its face does, and refuse as any other."""
    topic, got = world.topic(), Got()

    async def handle(message: Any) -> None:
        await world.face.breathe()
        got(message)
        if not message.reconsume_times:
            raise Retry(delay=1)

    bodies = numbered("awaited", 6)
    with world.producer() as producer, world.consumer(world.group(), topic, handle):
        send_all(producer, topic, bodies)
        got.wait("all come twice", lambda: len(got.messages) >= 12)
    assert sorted((message.body, message.reconsume_times) for message in got.messages) == sorted(
        (body, times) for body in bodies for times in (0, 1)
    )


def order_of_queues(world: World) -> None:
    """Each queue's messages are handled one after the other, refused ones in their place."""
    topic = world.topic(2)
    running: set[int] = set()
    refused: set[bytes] = set()
    overlaps: list[int] = []
    lock = threading.Lock()

    def answer(message: Any) -> None:
        queue_id = message.queue.queue_id
        with lock:
            if queue_id in running:
                overlaps.append(queue_id)
            running.add(queue_id)
        try:
            if message.body.endswith(b"3") and message.body not in refused:
                refused.add(message.body)
                raise Retry(delay=0.05)
        finally:
            with lock:
                running.discard(queue_id)

    got = Got(answer)
    bodies = numbered("ordered", 24)
    with world.producer() as producer:
        send_all(producer, topic, bodies)
        with world.consumer(world.group(), topic, got, order="queue"):
            got.wait("all come", lambda: len(got.messages) >= len(bodies) + 3)
    assert not overlaps
    for queue_id in (0, 1):
        expected = []
        for body in bodies[queue_id::2]:
            expected += [body, body] if body in refused else [body]
        assert [message.body for message in got.messages if message.queue.queue_id == queue_id] == expected
    assert refused == {b"ordered-3", b"ordered-13", b"ordered-23"}


def order_of_keys(world: World) -> None:
    """Messages of one key are handled one after the other, those of other keys of the same queue meanwhile."""
    topic = world.topic(1)
    together = threading.Barrier(3)
    running: set[str] = set()
    overlaps: list[str] = []
    lock = threading.Lock()

    def answer(message: Any) -> None:
        (key,) = message.keys
        with lock:
            if key in running:
                overlaps.append(key)
            running.add(key)
        # Passes only when one message of each key is here at once.
        together.wait(LIMIT)
        with lock:
            running.discard(key)

    got = Got(answer)
    with world.producer() as producer, world.consumer(world.group(), topic, got, order="key"):
        for number in range(5):
            for key in "abc":
                producer.send(Message(topic, f"{key}{number}".encode(), keys=[key]))
        got.wait("all come", lambda: len(got.messages) >= 15)
    assert not overlaps
    for key in "abc":
        assert [body for body in got.bodies if body.startswith(key.encode())] == [
            f"{key}{number}".encode() for number in range(5)
        ]


def offsets_are_kept(world: World) -> None:
    """The successor of a closed consumer gets none of its messages."""
    topic, group = world.topic(), world.group()
    first, second = Got(), Got()
    before, after = numbered("before", 12), numbered("after", QUEUES)
    with world.producer() as producer:
        # There before it, and to be pulled: Apache's broker may store the offset that a pull carries after it has answered
        # that pull with messages that came meanwhile, and so go back behind the offset stored when the consumer closed.
        send_all(producer, topic, before)
        world.await_dispatch()
        with world.consumer(group, topic, first, persist_interval=600):
            first.wait_bodies(before)
        send_all(producer, topic, after)
        with world.consumer(group, topic, second):
            second.wait_bodies(after)
    bodies = sorted(second.bodies)
    assert bodies == sorted(after), bodies


class Listener:
    """Ends transactions as the message says, and records the checks."""

    def __init__(self) -> None:
        self.executed: list[tuple[bytes, Any, str]] = []
        self.checked = Got()

    def execute(self, message: Message[bytes], arg: Any, transaction_id: str) -> TransactionState:
        self.executed.append((message.body, arg, transaction_id))
        if message.body == b"failing":
            raise RuntimeError("this transaction fails as the scenario wants it to")
        return {b"commit": TransactionState.COMMIT, b"rollback": TransactionState.ROLLBACK}.get(
            message.body, TransactionState.UNKNOWN
        )

    def check(self, message: Any) -> TransactionState:
        self.checked(message)
        return TransactionState.ROLLBACK if message.body == b"unknown, rolled back" else TransactionState.COMMIT


def iteration(world: World) -> None:
    """A loop consumes a message when it asks for the next, or ends well; one that fails leaves its message."""
    topic, group, bodies = world.topic(), world.group(), numbered("looped", 12)
    first: list[bytes] = []
    second: list[bytes] = []
    third: list[bytes] = []

    def take_five(message: Any) -> bool:
        first.append(message.body)
        return len(first) < 5

    def fail_on_the_second(message: Any) -> bool:
        second.append(message.body)
        if len(second) == 2:
            raise ZeroDivisionError
        return True

    with world.producer() as producer:
        send_all(producer, topic, bodies)
    consumers = [world.consumer(group, topic, None) for _ in range(3)]
    world.face.iterate(consumers[0], take_five)
    raises(ZeroDivisionError, lambda: world.face.iterate(consumers[1], fail_on_the_second))

    def take_the_rest(message: Any) -> bool:
        third.append(message.body)
        if len(third) == 6:
            ending.start()
        return True

    # The loop waits for more until other code ends it.
    ending = threading.Thread(target=consumers[2].close)
    world.face.iterate(consumers[2], take_the_rest)
    ending.join(LIMIT)
    assert sorted([*first, second[0], *third]) == sorted(bodies)
    assert second[1] in third


def transactions(world: World) -> None:
    """Committed messages arrive, and those committed when the broker checks."""
    topic, got, listener = world.topic(), Got(), Listener()
    with (
        world.producer(transactions=listener) as producer,
        world.consumer(world.group(), topic, got),
    ):
        results = {
            body: producer.send_in_transaction(Message(topic, body, keys=["t"]), arg=body.decode())
            for body in (b"commit", b"rollback", b"unknown, committed", b"unknown, rolled back")
        }
        raises(RuntimeError, lambda: producer.send_in_transaction(Message(topic, b"failing")))
        got.wait_bodies([b"commit", b"unknown, committed", b"failing"])
        listener.checked.wait_bodies([b"unknown, committed", b"unknown, rolled back", b"failing"])
    assert {body: result.state for body, result in results.items()} == {
        b"commit": TransactionState.COMMIT,
        b"rollback": TransactionState.ROLLBACK,
        b"unknown, committed": TransactionState.UNKNOWN,
        b"unknown, rolled back": TransactionState.UNKNOWN,
    }
    ids = {body: result.send_result.msg_id for body, result in results.items()}
    assert [(body, arg) for body, arg, _ in listener.executed[:4]] == [(body, body.decode()) for body in results]
    assert {body: transaction_id for body, _, transaction_id in listener.executed[:4]} == ids
    assert set(got.bodies) == {b"commit", b"unknown, committed", b"failing"}
    for message in got.messages:
        if message.body != b"failing":
            assert (message.topic, message.msg_id, message.keys) == (topic, ids[message.body], ["t"])
            assert message.transaction_id == ids[message.body]
    assert {message.topic for message in listener.checked.messages} == {topic}


def requests(world: World) -> None:
    """A request has its reply."""
    topic = world.topic()
    with world.producer() as asking, world.producer() as answering:
        got = Got(lambda message: answering.reply(message, b"re: " + message.body) and None)
        with world.consumer(world.group(), topic, got):
            for number in range(3):
                reply = asking.request(Message(topic, b"request %d" % number), timeout=LIMIT)
                assert reply.body == b"re: request %d" % number
            with world.producer() as leaving:
                assert leaving.request(Message(topic, b"last"), timeout=LIMIT).body == b"re: last"
            # The others of its client go on.
            assert asking.request(Message(topic, b"after"), timeout=LIMIT).body == b"re: after"


def closed_and_unopened(world: World) -> None:
    """Every method of a client that is not open raises."""
    topic = world.topic()
    producer = world.producer()
    consumer = world.consumer(world.group(), topic, Got())
    for call in (lambda: producer.send(Message(topic, b"x")), lambda: producer.publish_queues(topic), consumer.queues):
        raises(NotStartedError, call)
    with producer, consumer:
        producer.send(Message(topic, b"x"))
        raises(ClientStateError, producer.open)
        assert len(consumer.queues()) == QUEUES
    for call in (lambda: producer.send(Message(topic, b"x")), consumer.queues, producer.open, consumer.open):
        raises(ClientClosedError, call)
    producer.close()
    consumer.close()


def raises(kind: type[BaseException], call: Any) -> BaseException:
    """Return the exception of a call. AssertionError when there is none of the kind."""
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


SCENARIOS = (
    sent_messages_arrive,
    other_ways_to_send,
    batches,
    typed_bodies,
    retries_and_rejections,
    coroutine_handlers,
    order_of_queues,
    order_of_keys,
    offsets_are_kept,
    iteration,
    transactions,
    requests,
    closed_and_unopened,
)


# ---------------------------------------------------------------- the Twisted face, in a separate process


def main(kind: str, namesrv: str, broker: str, *, scenarios: Sequence[Callable[[World], None]] = SCENARIOS) -> None:
    """Play scenarios on the Twisted face, and print their results."""
    from twisted.internet import reactor
    from twisted.internet.defer import Deferred
    from twisted.internet.task import deferLater, react
    from twisted.internet.threads import blockingCallFromThread, deferToThread

    from rocketd import client
    from tests.interop.python_client_servers import RunningServers

    class TwistedFace(Face):
        name = "twisted"
        module = client

        def run(self, function):
            return blockingCallFromThread(reactor, function)

        async def breathe(self):
            await deferLater(reactor, 0.01)

        def iterate(self, consumer, take):
            self.run(lambda: Deferred.fromCoroutine(iterate(consumer.client, take)))

    world = World(RunningServers(kind, namesrv, broker), TwistedFace())

    async def play() -> None:
        for scenario in scenarios:
            try:
                await deferToThread(scenario, world)
                trouble = ""
            except BaseException:
                trouble = traceback.format_exc()
            print(json.dumps({"scenario": scenario.__name__, "trouble": trouble}), flush=True)
        left = [str(call) for call in reactor.getDelayedCalls()] + [
            str(reader) for reader in reactor.getReaders() if "Waker" not in type(reader).__name__
        ]
        print(json.dumps({"scenario": "reactor", "trouble": "\n".join(left)}), flush=True)

    react(lambda _: Deferred.fromCoroutine(play()), [])


if __name__ == "__main__":
    main(*sys.argv[1:])
