"""Sharing and choosing queues: the same results as Apache's own classes."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jvm_client_rules import JvmClientRules, arrays

from benchmarks.peers.apache import PeerUnavailableError
from rocketd.client.consumer.allocation import (
    AllocateMachineRoomNearby,
    AllocateMessageQueueAveragely,
    AllocateMessageQueueAveragelyByCircle,
    AllocateMessageQueueByConfig,
    AllocateMessageQueueByMachineRoom,
    AllocateMessageQueueConsistentHash,
    AllocationError,
    sort_client_ids,
    sort_queues,
)
from rocketd.client.message import Message
from rocketd.client.producer.faults import LATENCY_MAX_MS, LatencyFaultTolerance
from rocketd.client.producer.queue_choice import QueueChoice, TopicPublishInfo, write_queue_nums_of
from rocketd.client.producer.selectors import SelectMessageQueueByHash
from rocketd.common.java_hash import java_string_hash
from rocketd.remoting.bodies import MessageQueue, QueueData, TopicRouteData

CASES = settings(
    max_examples=400,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


@pytest.fixture(scope="module")
def apache(lacking, tmp_path_factory):
    try:
        jvm = JvmClientRules(tmp_path_factory.mktemp("rules"))
    except PeerUnavailableError as e:
        lacking(str(e))
    yield jvm
    jvm.stop()


# ---------------------------------------------------------------- sharing

# Java orders 🚀, whose first unit is D83D, before the character FF5E; a lone surrogate has no bytes of its own.
BROKERS = ["b", "hz@b1", "hz@b2", "sh@b1", "@b1", "hz@", "hz@b3@@", "hz@@b1", "a@b@c", "@", "🚀", "\uff5e", "\ud83d"]
CLIENTS = ["10.0.0.1@1", "10.0.0.1@2", "10.0.0.2@1", "x", "🚀", "\uff5e", "\ud83d", "é"]
ROOMS = ["hz", "sh", "", "🚀", "\uff5e"]

queues = st.builds(MessageQueue, st.sampled_from(["T", "T-2"]), st.sampled_from(BROKERS), st.integers(0, 15))
topics = st.one_of(
    st.lists(queues, max_size=20),
    st.integers(1, 40).map(lambda count: [MessageQueue("T", "b", queue_id) for queue_id in range(count)]),
)
members = st.one_of(
    st.lists(st.sampled_from(CLIENTS), max_size=8),
    st.integers(1, 12).map(lambda count: [f"192.168.0.{number}@{number * 7919}" for number in range(count)]),
)
named = st.sampled_from(ROOMS[:2] + ROOMS[3:])


def places(names):
    """Rooms by name, nearly always of all names."""
    known = st.fixed_dictionaries(dict.fromkeys(names, named))
    doubtful = st.dictionaries(st.sampled_from(names), st.sampled_from([*ROOMS, None]))
    return st.one_of(known, known, known, doubtful)


simple = st.one_of(
    st.sampled_from([{"name": "AVG"}, {"name": "AVG_BY_CIRCLE"}, {"name": "CONSISTENT_HASH"}]),
    st.fixed_dictionaries({"name": st.just("CONFIG"), "queues": st.lists(queues, max_size=3).map(arrays)}),
    st.fixed_dictionaries({"name": st.just("MACHINE_ROOM"), "rooms": st.lists(st.sampled_from(ROOMS), max_size=3)}),
    st.fixed_dictionaries(
        {
            "name": st.just("CONSISTENT_HASH"),
            "virtual_nodes": st.integers(0, 40),
            "ring": st.one_of(st.just(0), st.integers(1, 40)),
        }
    ),
)
nearby = st.fixed_dictionaries(
    {"name": st.just("MACHINE_ROOM_NEARBY"), "inner": simple, "brokers": places(BROKERS), "clients": places(CLIENTS)}
)


def strategy_of(made):
    """What is here for a strategy as JvmClientRules.allocate takes it."""
    match made:
        case {"name": "AVG"}:
            return AllocateMessageQueueAveragely()
        case {"name": "AVG_BY_CIRCLE"}:
            return AllocateMessageQueueAveragelyByCircle()
        case {"name": "CONFIG", "queues": configured}:
            return AllocateMessageQueueByConfig([MessageQueue(*queue) for queue in configured])
        case {"name": "MACHINE_ROOM", "rooms": rooms}:
            return AllocateMessageQueueByMachineRoom(rooms)
        case {"name": "CONSISTENT_HASH", "virtual_nodes": virtual_nodes, "ring": 0}:
            return AllocateMessageQueueConsistentHash(virtual_nodes)
        case {"name": "CONSISTENT_HASH", "virtual_nodes": virtual_nodes, "ring": places}:
            return AllocateMessageQueueConsistentHash(virtual_nodes, lambda key: java_string_hash(key) % places)
        case {"name": "CONSISTENT_HASH"}:
            return AllocateMessageQueueConsistentHash()
        case {"inner": inner, "brokers": brokers, "clients": clients}:
            return AllocateMachineRoomNearby(
                strategy_of(inner), lambda queue: brokers.get(queue.broker_name), clients.get
            )
    raise AssertionError(made)


def check_share(apache, made, client, queues, clients, is_sorted):
    strategy = strategy_of(made)
    try:
        if is_sorted:
            share = strategy("G", client, sort_queues(queues), sort_client_ids(clients))
        else:
            share = strategy("G", client, queues, clients)
    except AllocationError:
        share = None
    assert (strategy.name, share) == apache.allocate(made, client, queues, clients, is_sorted)
    return share


@CASES
@given(made=st.one_of(simple, simple, nearby), queues=topics, clients=members, is_sorted=st.booleans(), data=st.data())
def test_shares_are_apaches(apache, made, queues, clients, is_sorted, data):
    client = data.draw(st.sampled_from([*clients, *clients, *clients, "stranger", ""]))
    check_share(apache, made, client, queues, clients, is_sorted)


def test_a_large_group_shares_as_apaches(apache):
    queues = [MessageQueue("T", f"broker-{number % 8}", number // 8) for number in range(512)]
    clients = [f"172.17.{number}.1@{number * number}" for number in range(48)]
    for made in ({"name": "AVG"}, {"name": "AVG_BY_CIRCLE"}, {"name": "CONSISTENT_HASH"}):
        shares = [check_share(apache, made, client, queues, clients, is_sorted=True) for client in clients]
        assert sorted(queue for share in shares for queue in share) == sorted(queues)


# ---------------------------------------------------------------- choosing

keys = st.one_of(
    st.text(st.characters(), max_size=20),
    st.integers(-(2**31), 2**31 - 1),
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from(["", "polygenelubricants", -(2**31), 2**31, -(2**63), 2**63 - 1, True, False]),
)


@CASES
@given(key=keys, count=st.integers(1, 100))
def test_a_key_goes_to_apaches_queue(apache, key, count):
    queues = [MessageQueue("T", "b", queue_id) for queue_id in range(count)]
    assert SelectMessageQueueByHash()(queues, Message("T", b"x"), key).queue_id == apache.hash(key, count)


KNOWN = ["a", "b", "c", "d"]
latencies = st.sampled_from(
    [0, 20, 49, 50, 99, 100, 549, 550, 999, 1000, 1999, 2000, 2999, 3000, 14_999, 15_000, 40_000]
)
steps = st.one_of(
    st.tuples(st.just("select"), st.one_of(st.none(), st.sampled_from(KNOWN))),
    st.tuples(st.just("select"), st.one_of(st.none(), st.sampled_from(KNOWN))),
    st.tuples(st.just("update"), st.sampled_from(KNOWN), latencies, st.booleans()),
    st.tuples(st.just("update"), st.sampled_from(KNOWN), latencies, st.just(True)),
    st.tuples(st.just("available"), st.sampled_from(KNOWN)),
    st.tuples(st.just("age"), st.sampled_from([1000, 29_000, 61_000, 200_000, 601_000])),
)
producers = st.fixed_dictionaries(
    {
        "enabled": st.sampled_from([True, True, False]),
        "start": st.one_of(st.integers(0, 2**31 - 1000), st.integers(0, 20)),
        "half_start": st.one_of(st.integers(0, 20), st.integers(2**31 - 20, 2**31 - 1)),
        "queues": st.lists(
            st.builds(MessageQueue, st.just("T"), st.sampled_from(KNOWN[:3]), st.integers(0, 3)), min_size=1, max_size=8
        ).map(arrays),
        # Of the route, which may have fewer brokers than the table of faults, and other numbers than the list.
        "write_queue_nums": st.lists(st.tuples(st.sampled_from(KNOWN), st.integers(0, 4)), max_size=5),
    }
)


def distinct(steps):
    """The steps with latencies that no two have: of brokers that are equally bad, Java takes any."""
    seen, changed = set(), []
    for step in steps:
        if step[0] == "update":
            latency = next(latency for latency in range(step[2], step[2] + len(steps)) if latency not in seen)
            seen.add(latency)
            step = (step[0], step[1], latency, step[3])
        changed.append(step)
    return changed


class Replay:
    """Takes the steps here, at the times at which the JVM took them."""

    def __init__(self, producer):
        self.faults = LatencyFaultTolerance(producer["half_start"])
        self.choice = QueueChoice(self.faults if producer["enabled"] else None)
        route = TopicRouteData([QueueData(name, 0, count, 6) for name, count in producer["write_queue_nums"]], [])
        queues = [MessageQueue(*queue) for queue in producer["queues"]]
        self.info = TopicPublishInfo(queues, write_queue_nums_of(route), producer["start"])
        self.age_ms = 0

    def take(self, step, before, after, got):
        """Take a step and compare what it gives; False if it cannot be told, as a broker became available meanwhile."""
        before, after = before + self.age_ms, after + self.age_ms
        available = [[self.faults.is_available(broker, now) for broker in KNOWN] for now in (before, after)]
        if available[0] != available[1]:
            return False
        match step:
            case ("age", milliseconds):
                self.age_ms += milliseconds
            case ("available", broker):
                assert self.faults.is_available(broker, before) is got
            case ("select", last):
                assert list(arrays([self.choice.select_one_message_queue(self.info, last, before)])[0]) == got
            case ("update", broker, latency, isolation):
                if self.choice.faults is None:
                    assert got is None
                    return True
                noted = got + self.age_ms - self.faults.not_available_duration_ms(30_000 if isolation else latency)
                assert before <= noted <= after
                self.choice.update(broker, latency, noted, isolation=isolation)
        return True


@CASES
@given(producer=producers, steps=st.lists(steps, min_size=4, max_size=40).map(distinct))
def test_queues_are_chosen_as_by_apache(apache, producer, steps):
    replay = Replay(producer)
    for step, result in zip(steps, apache.choose(producer, steps), strict=True):
        if not replay.take(step, *result):
            break


def test_times_of_slow_brokers_are_apaches(apache):
    latencies = [latency + more for latency in LATENCY_MAX_MS for more in (-1, 0, 1)]
    producer = {"enabled": True, "start": 0, "half_start": 0, "queues": [("T", "a", 0)], "write_queue_nums": []}
    steps = [("update", f"{latency}", latency, False) for latency in (0, *latencies, 30_000)]
    faults = LatencyFaultTolerance(0)
    for (_, _, latency, _), (before, after, available_from) in zip(steps, apache.choose(producer, steps), strict=True):
        assert before <= available_from - faults.not_available_duration_ms(latency) <= after
