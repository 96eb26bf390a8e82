"""Stories of features: each is a generator that yields at the moment for a kill and restart of the broker."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest

from rocketd.remoting.bodies.groups import GroupProblemKind, GroupProblems
from tests.interop.java_features import CommandError, JavaFeatures
from tests.support import wire
from tests.support.store_brokers import APACHE, ROCKETD, StoreBrokers

KIND = APACHE if os.environ.get("ROCKETD_INTEROP_SERVERS") == "apache" else ROCKETD
DELAYS = {1: 1000, 2: 6000}  # milliseconds by level
QUEUES = 4
GET_MAX_OFFSET = 30
QUERY_CONSUMER_OFFSET = 14
GET_GROUP_PROBLEMS = 30001


@dataclass(frozen=True)
class World:
    """The servers and clients of a story."""

    java: JavaFeatures
    brokers: StoreBrokers
    namesrv: str
    fresh: Callable[[str], str]

    def topic(self) -> str:
        """Create a topic."""
        name = self.fresh("Feature")
        wire.create_topic(self.brokers.address, name, QUEUES)
        wire.await_route(self.namesrv, name, self.brokers.address)
        return name

    def send(self, topic: str, bodies: list[str], *, level: int = 0, queue: int = -1) -> dict[str, dict[str, Any]]:
        """Send until the broker has acknowledged each; returns the results by body."""
        return {body: self.java.persist("send", "sender", topic, body, level, queue) for body in bodies}

    def consumer(
        self,
        topic: str,
        group: str,
        mode: str = "accept",
        model: str = "CLUSTERING",
        traced: str = "",
        expression: str = "*",
    ) -> str:
        """Start a consumer and return its name."""
        name = self.fresh("consumer")
        self.java.do("consumer", name, group, topic, expression, mode, model, traced)
        return name

    def ask(self, code: int, **fields: object) -> wire.Answer:
        """Ask the broker itself."""
        return wire.call(self.brokers.address, code, {name: str(value) for name, value in fields.items()})


Story = Callable[[World], Iterator[None]]


def numbered(name: str, numbers: range) -> list[str]:
    return [f"{name}-{number}" for number in numbers]


# ---------------------------------------------------------------- stories


def dead_letters(world: World) -> Iterator[None]:
    """Messages refused at every try come twice more, and then become dead letters."""
    java, topic, group = world.java, world.topic(), world.fresh("G")
    refuser = world.consumer(topic, group, "refuse")
    first, second = numbered("first", range(4)), numbered("second", range(4))
    world.send(topic, first)
    java.wait_bodies(refuser, set(first))
    yield
    world.send(topic, second)
    wanted = {*first, *second}
    java.wait(
        "each is refused three times",
        lambda: {told["body"] for told in java.of(refuser) if told["reconsumeTimes"] == 2} >= wanted,
    )
    undertaker = world.consumer(f"%DLQ%{group}", world.fresh("G"))
    java.wait_bodies(undertaker, wanted)
    for told in java.of(undertaker):
        assert told["properties"]["RETRY_TOPIC"] == topic
        assert told["properties"]["ORIGIN_MESSAGE_ID"]
    for body in wanted:
        times = {told["reconsumeTimes"] for told in java.of(refuser) if told["body"] == body}
        assert times == {0, 1, 2}, (body, times)


def order(world: World) -> Iterator[None]:
    """Every queue's messages reach an orderly consumer in their order, also redelivered ones."""
    java, topic = world.java, world.topic()
    name = world.consumer(topic, world.fresh("G"), "order")
    before = {queue: numbered(f"q{queue}", range(10)) for queue in range(QUEUES)}
    after = {queue: numbered(f"q{queue}", range(10, 20)) for queue in range(QUEUES)}
    for queue, bodies in before.items():
        world.send(topic, bodies, queue=queue)
    java.wait_bodies(name, {"q0-0", "q3-9"})
    yield
    for queue, bodies in after.items():
        world.send(topic, bodies, queue=queue)
    java.wait_bodies(name, {body for part in (before, after) for bodies in part.values() for body in bodies})
    for queue in range(QUEUES):
        came = [told for told in java.of(name) if told["queueId"] == queue]
        assert list(dict.fromkeys(told["body"] for told in came)) == [*before[queue], *after[queue]]
        # The offsets that were not on the disk yet are read again, once, from one place on.
        breaks = [pair for pair in pairwise([told["queueOffset"] for told in came]) if pair[1] != pair[0] + 1]
        assert len(breaks) <= 1, breaks


def shared_order(world: World) -> Iterator[None]:
    """Two orderly consumers hold the locks of different queues, and one takes over the queues left by the other."""
    java, topic, group = world.java, world.topic(), world.fresh("G")
    one, two = world.consumer(topic, group, "order"), world.consumer(topic, group, "order")
    ids = [java.do("id", name) for name in (one, two)]
    java.wait("they share", lambda: {len(queues_of(world, group, client_id)) for client_id in ids} == {QUEUES // 2})
    first = set(numbered("shared", range(20)))
    world.send(topic, sorted(first))
    java.wait("all came", lambda: {*java.bodies(one), *java.bodies(two)} == first)
    assert {told["queueId"] for told in java.of(one)}.isdisjoint(told["queueId"] for told in java.of(two))
    yield
    second = set(numbered("again", range(20)))
    world.send(topic, sorted(second))
    java.wait("all came", lambda: {*java.bodies(one), *java.bodies(two)} == first | second)
    java.do("stop", two)
    third = set(numbered("alone", range(20)))
    world.send(topic, sorted(third))
    java.wait_bodies(one, third)


def queues_of(world: World, group: str, client_id: str) -> list[str]:
    """The queues, but for those of the retry topic, that a consumer says it has."""
    queues = world.java.persist("running-info", group, client_id)["queues"]
    return [queue for queue in queues if not queue.startswith("%RETRY%")]


def broadcasting(world: World) -> Iterator[None]:
    """Every consumer of a broadcasting group gets every message."""
    java, topic, group = world.java, world.topic(), world.fresh("G")
    names = [world.consumer(topic, group, model="BROADCASTING") for _ in range(2)]
    first, second = set(numbered("first", range(8))), set(numbered("second", range(8)))
    world.send(topic, sorted(first))
    for name in names:
        java.wait_bodies(name, first)
    yield
    world.send(topic, sorted(second))
    for name in names:
        java.wait_bodies(name, first | second)


def switched_off(world: World) -> Iterator[None]:
    """A group that may not consume, or not broadcast, gets nothing until it may, and then the messages sent meanwhile."""
    java, topic, groups = world.java, world.topic(), [world.fresh("G"), world.fresh("G")]
    for group, allowed in zip(groups, ("broadcast", "consume"), strict=True):
        java.do("group", world.brokers.address, group, allowed)
    names = [world.consumer(topic, groups[0]), world.consumer(topic, groups[1], model="BROADCASTING")]
    sent = world.send(topic, numbered("kept", range(8)))
    # Whoever may consume has got them long before.
    other = world.consumer(topic, world.fresh("G"))
    java.wait_bodies(other, set(sent))
    yield
    for name, group in zip(names, groups, strict=True):
        allowed_at = java.do("group", world.brokers.address, group, "consume broadcast")
        java.wait_bodies(name, set(sent))
        assert min(told["at"] for told in java.of(name)) >= allowed_at


def members_at_odds(world: World) -> Iterator[None]:
    """Two members of a group with different tags are named, until they are no longer two."""
    if KIND == APACHE:
        yield  # whose broker cannot be asked
        return
    java, topic, group = world.java, world.topic(), world.fresh("G")
    names = [world.consumer(topic, group, expression=tag) for tag in ("TagA", "TagB")]
    ids = [java.do("id", name) for name in names]

    def named() -> bool:
        texts = differences(world, group)
        return len(texts) == 1 and all(f"{client_id} subscribe to" in texts[0] for client_id in ids)

    java.wait("both are named", named)
    yield
    java.wait("both are named again", named)
    java.do("stop", names[1])
    java.wait("nobody is named", lambda: not differences(world, group))


def differences(world: World, group: str) -> list[str]:
    """Return the broker's report on different subscriptions within a group."""
    problems = GroupProblems.decode(world.ask(GET_GROUP_PROBLEMS, consumerGroup=group).body).problems
    return [problem.text for problem in problems if problem.kind is GroupProblemKind.DIFFERENT_SUBSCRIPTIONS]


def request_and_reply(world: World) -> Iterator[None]:
    """A request gets its reply, which is stored as well."""
    java, topic, asker = world.java, world.topic(), world.fresh("asker")
    java.do("producer", asker, world.fresh("P"), "")
    replier = world.consumer(topic, world.fresh("G"), "reply")
    java.do("producer", replier, world.fresh("P"), "")
    # The broker learns of a producer by its heartbeat: the first reply may find no producer.
    assert java.persist("request", asker, topic, "ping", 10_000) == "re: ping"
    java.wait("it is stored", lambda: replies(world) >= 1)
    stored = replies(world)
    numbers = [java.begin("request", asker, topic, f"ping-{number}", 60_000) for number in range(5)]
    assert {java.end(number) for number in numbers} == {f"re: ping-{number}" for number in range(5)}
    java.wait("a reply is acknowledged", lambda: any(told.get("replied") == "SEND_OK" for told in java.arrivals))
    java.wait("they are stored", lambda: replies(world) >= stored + 5)
    yield
    assert java.persist("request", asker, topic, "again", 10_000) == "re: again"
    java.wait("it is stored", lambda: replies(world) >= stored + 6)


def replies(world: World) -> int:
    """How many replies are stored."""
    return int(world.ask(GET_MAX_OFFSET, topic="DefaultCluster_REPLY_TOPIC", queueId=0).ext_fields["offset"])


def trace(world: World) -> Iterator[None]:
    """The trace of a message can be asked for by its id, before and after."""
    java, topic, sender = world.java, world.topic(), world.fresh("traced")
    java.do("producer", sender, world.fresh("P"), "trace")
    name = world.consumer(topic, world.fresh("G"), traced="trace")
    sent = java.persist("send", sender, topic, "followed", 0, -1)
    java.wait_bodies(name, {"followed"})
    everything = ["Pub true", "SubAfter true", "SubBefore true"]

    def complete() -> bool:
        return sorted(set(java.persist("trace", sent["msgId"]))) == everything

    # Clients send theirs in batches, every few seconds.
    java.wait("the trace is complete", complete)
    yield
    java.wait("the trace is complete", complete)


def relays(world: World) -> Iterator[None]:
    """Consumers are asked how they are, consume on request, and go to other offsets."""
    java, topic, group = world.java, world.topic(), world.fresh("G")
    name = world.consumer(topic, group)
    client_id = java.do("id", name)
    sent = world.send(topic, numbered("m", range(12)))
    java.wait_bodies(name, set(sent))
    info = java.persist("running-info", group, client_id)
    assert info["clientVersion"] == "V4_9_7"
    assert info["hasStack"]
    assert len(queues_of(world, group, client_id)) == QUEUES
    before = len(java.of(name))
    assert java.do("consume-directly", group, client_id, sent["m-3"]["offsetMsgId"]) == "CR_SUCCESS"
    java.wait("it was consumed once more", lambda: java.bodies(name)[before:] == ["m-3"])
    places = {f"{topic}/{queue}" for queue in range(QUEUES)}
    assert set(java.do("status", topic, group, client_id)[client_id]) == places
    java.wait("all is committed", lambda: sum(committed(world, topic, group)) == len(sent))
    java.do("clone", group, f"{group}-copy", topic)
    yield
    java.persist("running-info", group, client_id)
    assert set(java.persist("reset", topic, group, 0, "true").values()) == {0}
    # Every queue is read from its beginning once more.
    java.wait("all come again", lambda: set(java.bodies(name)[before + 1 :]) == set(sent))
    copy = world.consumer(topic, f"{group}-copy")
    world.send(topic, ["new"])
    java.wait_bodies(copy, {"new"})
    # Apache's loses the offsets cloned in the last five seconds before a kill.
    assert java.bodies(copy) == ["new"] or KIND == APACHE
    java.do("stop", name)
    with pytest.raises(CommandError, match=f"The Consumer <{group}> <{client_id}> not online"):
        java.do("consume-directly", group, client_id, sent["m-3"]["offsetMsgId"])
    with pytest.raises(CommandError, match=r"CODE: 206.*Consumer not online"):
        java.do("reset", topic, group, 0, "true")


def committed(world: World, topic: str, group: str) -> list[int]:
    """Return the group's offsets at the broker, by queue; 0 if it has none."""
    answers = [
        world.ask(QUERY_CONSUMER_OFFSET, topic=topic, consumerGroup=group, queueId=queue) for queue in range(QUEUES)
    ]
    return [int(answer.ext_fields.get("offset", 0)) for answer in answers]


def delays(world: World) -> Iterator[None]:
    """Delayed messages come, and none before its time. The last before the kill: their time is not to be over then."""
    java, topic = world.java, world.topic()
    name = world.consumer(topic, world.fresh("G"))
    sent = {
        **world.send(topic, numbered("soon", range(3)), level=1),
        **world.send(topic, numbered("late", range(10)), level=2),
    }
    assert {result["status"] for result in sent.values()} == {"SEND_OK"}
    yield
    java.wait_bodies(name, set(sent))
    for told in java.of(name):
        level = 1 if told["body"].startswith("soon") else 2
        assert told["at"] - told["bornTimestamp"] >= DELAYS[level], told
        assert told["topic"] == topic


STORIES: tuple[Story, ...] = (
    dead_letters,
    order,
    shared_order,
    broadcasting,
    switched_off,
    members_at_odds,
    request_and_reply,
    trace,
    relays,
    delays,
)
