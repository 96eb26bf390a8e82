"""Sharing and choosing queues: the same results as Apache's own classes."""

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rocketd.client.consumer.allocation import (
    AllocateMachineRoomNearby,
    AllocateMessageQueueAveragely,
    AllocateMessageQueueAveragelyByCircle,
    AllocateMessageQueueByConfig,
    AllocateMessageQueueByMachineRoom,
    AllocateMessageQueueConsistentHash,
    sort_client_ids,
    sort_queues,
)
from rocketd.client.consumer.options.kind_options import ConsumerOptions, LitePullOptions
from rocketd.client.consumer.options.member_options import consume_from_where, message_model
from rocketd.client.errors import AllocationError
from rocketd.client.messages.message import Message
from rocketd.client.producer.faults import LATENCY_MAX_MS, LatencyFaultTolerance
from rocketd.client.producer.options import ProducerOptions
from rocketd.client.producer.queue_choice import QueueChoice, TopicPublishInfo, write_queue_nums_of
from rocketd.client.producer.selectors import SelectMessageQueueByHash
from rocketd.client.settings.config import ClientConfig
from rocketd.common.java_hash import java_string_hash
from rocketd.remoting.bodies.tables import MessageQueue, QueueData, TopicRouteData
from tests.interop.jvm_client_rules import JvmClientRules, arrays
from tests.support.jars import PeerUnavailableError


@pytest.fixture(scope="module")
def apache(lacking, tmp_path_factory):
    try:
        jvm = JvmClientRules(tmp_path_factory.mktemp("rules"))
    except PeerUnavailableError as e:
        lacking(str(e))
    yield jvm
    jvm.stop()


# ---------------------------------------------------------------- defaults


def of_config(config):
    """Return the settings common to Apache's clients, by their names there; times in ms."""
    return {
        "pollNameServerInterval": config.route_interval * 1000,
        "heartbeatBrokerInterval": config.heartbeat_interval * 1000,
        "mqClientApiTimeout": config.timeout * 1000,
        "vipChannelEnabled": config.vip_channel,
        "useTLS": config.tls,
    }


def of_member(options):
    return {
        "persistConsumerOffsetInterval": options.persist_interval * 1000,
        "pullBatchSize": options.pull_batch,
        "pullThresholdForQueue": options.limits.messages,
        "pullThresholdSizeForQueue": options.limits.size_mib,
        "consumeMaxSpan": options.limits.max_span,
        "consumeFromWhere": consume_from_where(options).name,
        "messageModel": message_model(options).name,
    }


def of_producer(options):
    return {
        "createTopicKey": options.create_topic_key,
        "defaultTopicQueueNums": options.default_topic_queues,
        "sendMsgTimeout": options.send_timeout * 1000,
        "compressMsgBodyOverHowmuch": options.compress_over,
        "retryTimesWhenSendFailed": options.retries,
        "retryTimesWhenSendAsyncFailed": options.retries,
        "retryAnotherBrokerWhenNotStoreOK": options.retry_another_broker,
        "maxMessageSize": options.max_message_size,
        "sendLatencyFaultEnable": options.latency_fault_tolerance,
    }


def of_push_consumer(options):
    return {
        **of_member(options),
        "pullThresholdForTopic": options.limits.topic_messages or -1,
        "pullThresholdSizeForTopic": options.limits.topic_size_mib or -1,
        "consumeThreadMin": options.concurrency,
        "consumeThreadMax": options.concurrency,
        "consumeMessageBatchMaxSize": options.batch,
        "pullInterval": options.pull_interval * 1000,
        "consumeTimeout": options.consume_timeout / 60,
        "maxReconsumeTimes": options.max_reconsume_times,
        "suspendCurrentQueueTimeMillis": options.suspend_time * 1000,
    }


def of_lite_pull_consumer(options):
    return {
        **of_member(options),
        "autoCommit": options.auto_commit,
        "autoCommitIntervalMillis": options.persist_interval * 1000,
        "pollTimeoutMillis": options.poll_timeout * 1000,
        "pullThresholdForAll": options.max_held,
        "topicMetadataCheckIntervalMillis": options.watch_interval * 1000,
    }


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("producer.DefaultMQProducer", of_producer(ProducerOptions())),
        ("consumer.DefaultMQPushConsumer", of_push_consumer(ConsumerOptions())),
        ("consumer.DefaultLitePullConsumer", of_lite_pull_consumer(LitePullOptions())),
    ],
)
def test_defaults_are_apaches(apache, name, values):
    defaults = apache.defaults(name)
    # It goes by another name where messages are pushed.
    defaults.setdefault("consumeMaxSpan", defaults.get("consumeConcurrentlyMaxSpan"))
    values = {**of_config(ClientConfig()), **values}
    assert {name: defaults.get(name) for name in values} == values


# ---------------------------------------------------------------- sharing

# Java orders 🚀, whose first unit is D83D, before the character FF5E; a lone surrogate cannot be encoded.
BROKERS = ["b", "hz@b1", "hz@b2", "sh@b1", "@b1", "hz@", "hz@b3@@", "hz@@b1", "a@b@c", "@", "🚀", "\uff5e", "\ud83d"]
CLIENTS = ["10.0.0.1@1", "10.0.0.1@2", "10.0.0.2@1", "x", "🚀", "\uff5e", "\ud83d", "é"]
ROOMS = ["hz", "sh", "\uff5e", "🚀", "bj", "gz"]
NAMES = ["AVG", "AVG_BY_CIRCLE", "CONFIG", "MACHINE_ROOM", "CONSISTENT_HASH", "MACHINE_ROOM_NEARBY"]

PLAIN = ["hz@b1", "hz@b2", "sh@b1", "bj@b1", "b"]
MEMBERS = [*CLIENTS, *(f"192.168.0.{number}@{number * 7919}" for number in range(12))]


def some_queues(random):
    names = random.choice([["b"], PLAIN, PLAIN, BROKERS])
    every = [
        MessageQueue(topic, name, number) for topic in ("T", "🚀", "\uff5e") for name in names for number in range(16)
    ]
    return random.sample(every, random.randint(1, 24))


def some_members(random):
    members = random.sample(MEMBERS, random.randint(1, 8))
    return random.choices(members, k=random.randint(1, 12)) if random.random() < 0.2 else members


def some_strategy(random, name):
    """Return arguments for JvmClientRules.allocate."""
    if name == "CONFIG":
        return {"name": name, "queues": arrays(some_queues(random))}
    if name == "MACHINE_ROOM":
        return {"name": name, "rooms": random.sample(["hz", "sh", "bj", "a", ""], random.randint(1, 4))}
    if name == "CONSISTENT_HASH" and random.random() < 0.8:
        return {"name": name, "virtual_nodes": random.randint(0, 20), "ring": random.choice([0, random.randint(1, 60)])}
    if name == "MACHINE_ROOM_NEARBY":
        brokers = {name: random.choice(ROOMS) for name in [*PLAIN, *BROKERS]}
        clients = {name: random.choice(ROOMS[:3]) for name in MEMBERS}
        if random.random() < 0.2:
            doubtful = random.choice([brokers, clients])
            doubtful[random.choice(list(doubtful))] = random.choice(["", None])
        return {
            "name": name,
            "inner": some_strategy(random, random.choice(NAMES[:-1])),
            "brokers": brokers,
            "clients": clients,
        }
    return {"name": name}


def strategy_of(made):
    """Return the strategy of rocketd for one of JvmClientRules.allocate."""
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


@pytest.mark.parametrize("name", NAMES)
def test_shares_are_apaches(apache, name):
    random = Random(name)
    shared = 0
    for _ in range(600):
        queues, clients = some_queues(random), some_members(random)
        client = random.choice(clients) if random.random() < 0.95 else random.choice(["stranger", ""])
        if random.random() < 0.02:
            random.choice([queues, clients]).clear()
        made, is_sorted = some_strategy(random, name), random.random() < 0.7
        shared += bool(check_share(apache, made, client, queues, clients, is_sorted))
    assert shared > 200


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


@settings(max_examples=400, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
@given(key=keys, count=st.integers(1, 100))
def test_key_chooses_apaches_queue(apache, key, count):
    queues = [MessageQueue("T", "b", queue_id) for queue_id in range(count)]
    assert SelectMessageQueueByHash()(queues, Message("T", b"x"), key).queue_id == apache.hash(key, count)


KNOWN = "abcdef"
LATENCIES = [0, *(latency + more for latency in LATENCY_MAX_MS for more in (-1, 0)), 40_000]
AGES = [1000, 29_000, 30_000, 60_000, 200_000, 601_000]


def some_producer(random):
    brokers = random.sample(KNOWN, random.randint(1, 5))
    queues = [MessageQueue("T", broker, number) for broker in brokers for number in range(random.randint(1, 3))]
    enabled = random.random() < 0.8
    return {
        "enabled": enabled,
        # At 2^31 - 1 Apache's walk over the queues goes astray: Math.abs() of the smallest number is negative.
        "start": random.randrange(2**31 - 1000) if enabled else 2**31 - 1 - random.randrange(20),
        "half_start": 2**31 - 1 - random.randrange(20),
        "queues": arrays(queues),
        # Of the route, which may have other brokers than the table of faults, and other numbers than the list.
        "write_queue_nums": [(random.choice(KNOWN), random.randrange(5)) for _ in range(8)],
    }


def some_steps(random):
    bad = random.random()
    steps = []
    # Of brokers with equal latencies and times Java takes any: so that there are none, each latency comes once.
    latencies = random.sample(LATENCIES, len(LATENCIES))
    for _ in range(50):
        draw, broker = random.random(), random.choice(KNOWN)
        if draw < 0.35 and latencies:
            steps.append(("update", broker, latencies.pop(), random.random() < bad))
        elif draw < 0.4:
            steps.append(("age", random.choice(AGES)))
        elif draw < 0.5:
            steps.append(("available", broker))
        else:
            steps.append(("select", random.choice([broker, None])))
    return steps


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
        """Take a step and compare its result; False if it is undecided, as a broker became available meanwhile."""
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


def test_queues_are_chosen_as_by_apache(apache):
    random = Random(3)
    selected = 0
    for _ in range(600):
        producer, steps = some_producer(random), some_steps(random)
        replay = Replay(producer)
        for step, result in zip(steps, apache.choose(producer, steps), strict=True):
            if not replay.take(step, *result):
                break
            selected += step[0] == "select"
    assert selected > 10_000


def test_times_of_slow_brokers_are_apaches(apache):
    latencies = [latency + more for latency in LATENCY_MAX_MS for more in (-1, 0, 1)]
    producer = {"enabled": True, "start": 0, "half_start": 0, "queues": [("T", "a", 0)], "write_queue_nums": []}
    steps = [("update", f"{latency}", latency, False) for latency in (0, *latencies, 30_000)]
    faults = LatencyFaultTolerance(0)
    for (_, _, latency, _), (before, after, available_from) in zip(steps, apache.choose(producer, steps), strict=True):
        assert before <= available_from - faults.not_available_duration_ms(latency) <= after
