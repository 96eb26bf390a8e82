"""The Python client and Java's side by side, at rocketd's broker and at Apache's."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from rocketd.client import Message, SelectMessageQueueByHash, TransactionState
from tests.interop.clients import Clients, Cluster
from tests.interop.java_features import JavaFeatures
from tests.interop.python_client_faces import LIMIT, Got, eventually
from tests.interop.python_client_member import Member
from tests.interop.python_client_servers import LEVEL_2_SECONDS, Servers
from tests.interop.python_client_world import QUEUES, World, fresh, numbered

COUNT = 64
RECENT = 16  # messages from which one sees whose the queues are


@pytest.fixture
def java_programs(python_servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Clients:
    """The interop ring's programs, against these servers."""
    return Clients(Cluster(python_servers.namesrv, python_servers.broker), tmp_path_factory.mktemp)


@pytest.fixture
def java(world: World) -> JavaFeatures:
    return world.servers.java


# ---------------------------------------------------------------- from one to the other


@pytest.mark.parametrize("mode", [["--order"], ["--batch", 16], ["--oneway"]], ids=lambda mode: mode[0].strip("-"))
def test_java_sends_and_python_receives(world: World, java_programs: Clients, mode: list[object]) -> None:
    topic, got = world.topic(), Got()
    sent = java_programs.run("java", "send", topic, "--group", world.group(), "--count", COUNT, *mode).lines
    with world.consumer(world.group(), topic, got):
        got.wait("all come", lambda: len(got.messages) >= COUNT)
    arrived = {message.msg_id: message for message in got.messages}
    assert len(got.messages) == len(arrived) == COUNT
    for line in sent:
        message, index = arrived[line["msgId"]], line["index"]
        assert message.body.decode() == f"message {index}: žluťoučký kůň, 消息, 🚀"
        assert (message.tags, message.keys) == ("TagB" if index % 2 else "TagA", [f"key-{index}"])
        assert (message.properties["index"], message.properties["from"]) == (str(index), "java")
        if "queueId" in line:
            assert (message.queue.queue_id, message.queue_offset) == (line["queueId"], line["queueOffset"])


def test_python_sends_and_java_receives(world: World, java_programs: Clients) -> None:
    topic = world.topic()
    bodies = [f"message {index}: 消息, 🚀" for index in range(COUNT)]
    with world.producer() as producer:
        messages = [
            Message(topic, body.encode(), tags="Tag", keys=["one", "two"], properties={"index": str(index)})
            for index, body in enumerate(bodies)
        ]
        sent = producer.send_batch(messages[: COUNT // 2])
        sent += [producer.send(message) for message in messages[COUNT // 2 :]]
    received = java_programs.run(
        "java", "consume", topic, "--group", world.group(), "--count", COUNT, "--timeout", int(LIMIT)
    ).lines
    assert len(received) == COUNT
    for line in received:
        result = sent[line["index"]]
        assert line["body"] == bodies[line["index"]]
        assert (line["tags"], line["keys"]) == ("Tag", "one two")
        assert line["properties"] == {"index": str(line["index"])}
        assert (line["queueId"], line["queueOffset"]) == (result.queue.queue_id, result.queue_offset)


def test_same_key_has_same_queue_as_in_java(world: World, java_programs: Clients) -> None:
    """Java's program sends each of four streams to the queue of the number that is its key's hash."""
    topic = world.topic()
    sent = java_programs.run("java", "send", topic, "--group", world.group(), "--count", 8, "--order").lines
    with world.producer() as producer:
        for line in sent:
            message = Message(topic, b"x")
            chosen = producer.send(message, selector=SelectMessageQueueByHash(), key=line["index"] % 4).queue
            assert chosen.queue_id == line["queueId"]


def test_compressed_and_delayed_both_ways(world: World, java: JavaFeatures) -> None:
    to_python, to_java, got = world.topic(), world.topic(), Got()
    sender, receiver = fresh("java-sender"), fresh("java-receiver")
    big = "žluťoučký kůň " * 1000
    java.do("producer", sender, world.group(), "")
    java.do("consumer", receiver, world.group(), to_java, "*", "accept", "CLUSTERING")
    with world.producer() as producer, world.consumer(world.group(), to_python, got):
        java.do("send", sender, to_python, big, 0, -1)
        java.do("send", sender, to_python, "delayed", 2, -1)
        producer.send(Message(to_java, big.encode()))
        producer.send(Message(to_java, b"delayed", delay_level=2))
        got.wait_bodies([big.encode(), b"delayed"])
        java.wait_bodies(receiver, {big, "delayed"})
    assert {message.topic for message in got.messages} == {to_python}
    (delayed,) = [message for message in got.messages if message.body == b"delayed"]
    assert (delayed.stored_at - delayed.born_at).total_seconds() > LEVEL_2_SECONDS - 0.1
    java.do("stop", sender)
    java.do("stop", receiver)


class Committer:
    """Commits every checked transaction."""

    def __init__(self) -> None:
        self.checked = Got()

    def execute(self, message: Any, arg: Any, transaction_id: str) -> TransactionState:
        return arg

    def check(self, message: Any) -> TransactionState:
        self.checked(message)
        return TransactionState.COMMIT


def test_transactions_left_by_java_are_ended_by_python(world: World, java_programs: Clients) -> None:
    """Each third is committed, each third rolled back, each third left to the checked member of the group."""
    topic, group, got, listener = world.topic(), world.group(), Got(), Committer()
    lines = java_programs.run("java", "transact", topic, "--group", group, "--count", 9, "--first", 0).lines
    with (
        world.producer(group, transactions=listener) as producer,
        world.consumer(world.group(), topic, got),
    ):
        producer.send_in_transaction(Message(topic, b"own"), TransactionState.COMMIT)
        committed = {f"within {index}".encode() for index in (0, 2, 3, 5, 6, 8)}
        got.wait_bodies({b"own", *committed})
    assert set(got.bodies) == {b"own", *committed}
    ids = {line["index"]: line["msgId"] for line in lines}
    for message in got.messages:
        if message.body != b"own":
            assert message.transaction_id == ids[int(message.properties["index"])]
    assert set(listener.checked.bodies) == {b"within 2", b"within 5", b"within 8"}


def test_requests_both_ways(world: World, java: JavaFeatures) -> None:
    to_java, to_python = world.topic(), world.topic()
    name = fresh("java-talks")
    java.do("producer", name, world.group(), "")
    java.do("consumer", name, world.group(), to_java, "*", "reply", "CLUSTERING")
    with world.producer() as producer:
        got = Got(lambda message: producer.reply(message, b"re: " + message.body) and None)
        with world.consumer(world.group(), to_python, got):
            for number in range(3):
                reply = producer.request(Message(to_java, b"request %d" % number), timeout=LIMIT)
                assert reply.body == b"re: request %d" % number
                assert java.do("request", name, to_python, f"request {number}", 60_000) == f"re: request {number}"
    java.do("stop", name)


# ---------------------------------------------------------------- in one group


class Traffic:
    """Sends numbered messages, one after the other, until it is stopped."""

    def __init__(self, producer: Any, topic: str) -> None:
        self.sent: list[str] = []
        self._producer = producer
        self._topic = topic
        self._enough = Event()
        self._thread = Thread(target=self._send)
        self._thread.start()

    def _send(self) -> None:
        while not self._enough.wait(0.002):
            body = f"message {len(self.sent)}"
            self._producer.send(Message(self._topic, body.encode()))
            self.sent.append(body)

    def stop(self) -> None:
        self._enough.set()
        self._thread.join()


def share_of(arrivals: list[dict[str, Any]], since: int) -> set[int]:
    """The queues of the last messages since a place; empty while these are too few to tell."""
    last = arrivals[since:][-RECENT:]
    return {told["queueId"] for told in last} if len(last) == RECENT else set()


@pytest.fixture
def traffic(world: World) -> Iterator[Callable[[str], Traffic]]:
    with ExitStack() as stack:
        producer = stack.enter_context(world.producer())

        def begin(topic: str) -> Traffic:
            traffic = Traffic(producer, topic)
            stack.callback(traffic.stop)
            return traffic

        yield begin


def test_java_and_python_share_and_are_killed(world: World, traffic: Any, tmp_path: Path) -> None:
    """If one is killed, the other goes on with all queues, and nothing is lost."""
    topic, group = world.topic(), world.group()
    java = world.servers.new_java(fresh("java"))
    members: list[Member] = []

    def member() -> Member:
        members.append(Member(world.servers.namesrv, group, topic))
        return members[-1]

    def sharing(python: Member) -> Callable[[], bool]:
        since = len(java.arrivals), len(python.arrivals)

        def share() -> bool:
            of_java, of_python = share_of(java.arrivals, since[0]), share_of(python.arrivals, since[1])
            return len(of_java) == len(of_python) == QUEUES // 2 and not of_java & of_python

        return share

    def alone(arrivals: list[dict[str, Any]]) -> Callable[[], bool]:
        since = len(arrivals)
        return lambda: share_of(arrivals, since) == set(range(QUEUES))

    try:
        java.do("consumer", "java", group, topic, "*", "accept", "CLUSTERING")
        first = member()
        sending = traffic(topic)
        eventually("Java and Python share", sharing(first))
        first.kill()
        eventually("Java has all queues", alone(java.arrivals))
        second = member()
        eventually("Java and Python share again", sharing(second))
        java.kill()
        eventually("Python has all queues", alone(second.arrivals))
        sending.stop()

        def received() -> set[str]:
            return {told["body"] for arrivals in (java.arrivals, first.arrivals, second.arrivals) for told in arrivals}

        eventually("nothing is lost", lambda: set(sending.sent) <= received())
        assert second.stop() == 0
        members.remove(second)
    finally:
        for left in members[1:]:
            left.kill()


def test_java_continues_at_offsets_of_python(world: World, java: JavaFeatures) -> None:
    """And the reverse: none of them gets a message handled by the other."""
    topic, group = world.topic(), world.group()
    first, second = Got(), Got()
    parts = [numbered(f"part{part}", 2 * QUEUES) for part in range(3)]
    with world.producer() as producer:

        def send(bodies: list[bytes]) -> None:
            for body in bodies:
                producer.send(Message(topic, body))

        with world.consumer(group, topic, first):
            send(parts[0])
            first.wait_bodies(parts[0])
        send(parts[1])
        name = fresh("java-follows")
        java.do("consumer", name, group, topic, "*", "accept", "CLUSTERING")
        java.wait_bodies(name, {body.decode() for body in parts[1]})
        java.do("stop", name)
        send(parts[2])
        with world.consumer(group, topic, second):
            second.wait_bodies(parts[2])
    came = [*first.bodies, *(body.encode() for body in java.bodies(name)), *second.bodies]
    world.check_none_twice(came, [body for part in parts for body in part])
