"""The Python client with two brokers, in two machine rooms, of which one copies to a slave that is not there, until it is.

Beside rocketd's servers, and beside Apache's.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from threading import Event
from typing import Any

import pytest
from zope.interface import implementer

from rocketd.client import (
    ClientConfig,
    Message,
    MessageQueue,
    SelectMessageQueueByRandom,
)
from rocketd.client.consumer.allocation import (
    AllocateMachineRoomNearby,
    AllocateMessageQueueAveragely,
    AllocateMessageQueueByConfig,
    AllocateMessageQueueByMachineRoom,
    AllocateMessageQueueConsistentHash,
)
from rocketd.client.messages.message import SEND_OK
from rocketd.client.producer.selectors import SelectMessageQueueByMachineRoom
from rocketd.common.names import room_of_broker
from rocketd.remoting.interfaces import IRPCHook
from rocketd.remoting.wire.codes import ResponseCode
from tests.interop.python_client_faces import Got, Held, SyncFace, eventually
from tests.interop.python_client_polling import poll_all
from tests.interop.python_client_servers import APACHE, LIMIT, Servers
from tests.interop.python_client_world import World, fresh, numbered
from tests.support import apache, twistd_servers, wire
from tests.support.patience import PATIENT
from tests.support.ports import free_broker_port

NEAR, FAR = "broker-a", "far@broker-b"
QUEUES = 2
PROPERTIES = {
    **PATIENT,
    "brokerName": FAR,
    "brokerRole": "SYNC_MASTER",
    "slaveTimeout": "20000",
    "messageDelayLevel": "1s 1s 1s 1s",
    "mappedFileSizeCommitLog": "67108864",
    # Who reads anything but the newest message is to read it from a slave.
    "slaveReadEnable": "true",
    "accessMessageInMemoryMaxRatio": "0",
}
SLAVE = {**PROPERTIES, "brokerRole": "SLAVE", "brokerId": "1"}
UPDATE_BROKER_CONFIG = 25
PULL_MESSAGE = 11
_JVM = ("-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


@dataclass(frozen=True)
class TwoBrokers:
    """The world of the near broker, and the far broker's address."""

    world: World
    far: str

    def topic(self) -> str:
        """A new topic, with QUEUES queues at each of both."""
        name, servers = fresh("Topic-two"), self.world.servers
        for broker in (servers.broker, self.far):
            wire.create_topic(broker, name, QUEUES)
            wire.await_route(servers.namesrv, name, broker, LIMIT)
        return name

    def group(self) -> str:
        return self.world.group()


@implementer(IRPCHook)
class PullsSeen:
    """A client's hook that remembers which addresses were asked for messages."""

    def __init__(self) -> None:
        self.addresses: list[str] = []

    def before_request(self, address: str, request: Any) -> None:
        if request.code == PULL_MESSAGE:
            self.addresses.append(address)

    def after_response(self, address: str, request: Any, response: Any) -> None:
        pass


@pytest.fixture(scope="module")
def two(python_servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoBrokers]:
    with another_broker(python_servers, tmp_path_factory.mktemp("far"), PROPERTIES) as address:
        yield TwoBrokers(World(python_servers, SyncFace()), address)


@contextmanager
def another_broker(servers: Servers, directory: Path, properties: dict[str, str]) -> Iterator[str]:
    """Start a broker beside these servers; the name server forgets it with its connection."""
    port = free_broker_port()
    start = start_apache if servers.kind == APACHE else twistd_servers.start_broker
    broker = start(directory, port, servers.namesrv, properties)
    try:
        yield f"127.0.0.1:{port}"
    except BaseException:
        broker.kill()
        raise
    if servers.kind == APACHE:
        broker.kill()
    else:
        broker.stop()
        twistd_servers.check_log(broker)


def start_apache(directory: Path, port: int, namesrv: str, properties: dict[str, str]) -> Any:
    return apache.start_broker(directory, port, namesrv, properties, _JVM)


def queues_of(topic: str, *brokers: str) -> set[MessageQueue]:
    return {MessageQueue(topic, broker, queue_id) for broker in brokers for queue_id in range(QUEUES)}


def test_retry_another_broker_is_used_without_slave_copy(two: TwoBrokers) -> None:
    topic = two.topic()
    with two.world.producer() as producer:
        results = [producer.send(Message(topic, body)) for body in numbered("once", 4)]
    assert {(result.queue.broker_name, result.status) for result in results} == {
        (NEAR, SEND_OK),
        (FAR, ResponseCode.SLAVE_NOT_AVAILABLE),
    }
    bodies, got = numbered("again", 4), Got()
    with two.world.producer(retry_another_broker=True) as producer:
        results = [producer.send(Message(topic, body)) for body in bodies]
    assert {(result.queue.broker_name, result.status) for result in results} == {(NEAR, SEND_OK)}
    with two.world.consumer(two.group(), topic, got):
        got.wait_bodies(bodies)


def test_a_message_need_not_wait_for_a_copy(two: TwoBrokers) -> None:
    topic = two.topic()
    with two.world.producer() as producer:
        queue = MessageQueue(topic, FAR, 0)
        results = [producer.send(Message(topic, b"x", wait_stored=wait), queue=queue) for wait in (True, False)]
    assert [result.status for result in results] == [ResponseCode.SLAVE_NOT_AVAILABLE, SEND_OK]


def test_queues_chosen_at_random_and_by_room(two: TwoBrokers) -> None:
    topic = two.topic()
    with two.world.producer() as producer:
        at_random = SelectMessageQueueByRandom(Random(7))
        results = [producer.send(Message(topic, b"x"), selector=at_random) for _ in range(40)]
        assert {result.queue for result in results} == queues_of(topic, NEAR, FAR)
        in_room = SelectMessageQueueByMachineRoom(["far"])
        results = [producer.send(Message(topic, b"x"), selector=in_room, key=key) for key in range(8)]
        assert {result.queue for result in results} == queues_of(topic, FAR)
        with pytest.raises(ValueError, match="room@broker in: elsewhere"):
            producer.send(Message(topic, b"x"), selector=SelectMessageQueueByMachineRoom(["elsewhere"]), key=1)


def test_rooms_rings_and_lists_share_the_queues(two: TwoBrokers) -> None:
    """Two members for each way to share; together they have all queues, and get all messages."""
    topic = two.topic()
    everything = queues_of(topic, NEAR, FAR)
    nearby = AllocateMachineRoomNearby(
        AllocateMessageQueueAveragely(),
        lambda queue: room_of_broker(queue.broker_name) or "near",
        lambda client_id: "far" if "@far" in client_id else "near",
    )
    in_room, ring = AllocateMessageQueueByMachineRoom(["far"]), AllocateMessageQueueConsistentHash()
    lists = [AllocateMessageQueueByConfig(sorted(queues_of(topic, broker))) for broker in (NEAR, FAR)]
    ways = {
        "room": ((in_room, in_room), queues_of(topic, FAR)),
        "nearby": ((nearby, nearby), everything),
        "ring": ((ring, ring), everything),
        "lists": (lists, everything),
    }
    got = {way: Got() for way in ways}
    members: dict[str, list[Any]] = {}
    with ExitStack() as stack, two.world.producer() as producer:
        for way, (strategies, _) in ways.items():
            group = two.group()
            for room, strategy in zip(("near", "far"), strategies, strict=True):
                config = ClientConfig(namesrv=two.world.servers.namesrv, instance_name=fresh(room))
                # Lists name queues of this topic, which the group's retry topic has none of.
                member = two.world.consumer(group, topic, got[way], config, allocation=strategy)
                members.setdefault(way, []).append(stack.enter_context(member))
        for way, (_, shared) in ways.items():
            eventually(f"they share by {way}", lambda way=way, shared=shared: are_shared(members[way], shared))
        near, far = members["nearby"]
        assert (set(near.queues()), set(far.queues())) == (queues_of(topic, NEAR), queues_of(topic, FAR))
        assert [len(member.queues()) for member in members["room"]] == [1, 1]
        for queue in everything:
            producer.send(Message(topic, f"{queue.broker_name}-{queue.queue_id}".encode()), queue=queue)
        for way, (_, shared) in ways.items():
            bodies = {f"{queue.broker_name}-{queue.queue_id}".encode() for queue in shared}
            got[way].wait_bodies(bodies)
            assert set(got[way].bodies) == bodies


def are_shared(members: list[Any], queues: set[MessageQueue]) -> bool:
    """Whether two members have all of these queues, each for itself."""
    first, second = (set(member.queues()) for member in members)
    return not first & second and first | second == queues


def test_message_refused_by_send_back_comes_again(two: TwoBrokers) -> None:
    """It goes to the retry topic, for which a broker still takes messages that takes none back, or another one does."""
    topic, group, go_on, dead = two.topic(), two.group(), Event(), Got()
    dead_letters = f"%DLQ%{group}"
    brokers = (two.world.servers.broker, two.far)
    handled = []

    def handle(message: Any) -> None:
        handled.append((message.topic, message.body, message.keys, message.reconsume_times))
        assert go_on.wait(LIMIT)
        raise RuntimeError("not now")

    with two.world.producer() as producer, two.world.consumer(group, topic, handle, max_reconsume_times=1):
        producer.send(Message(topic, b"failing", keys=["K"]), queue=MessageQueue(topic, FAR, 0))
        eventually("it is handled", lambda: len(handled) == 1)
        set_permission(two.far, 4)
        try:
            go_on.set()
            eventually(
                "it is a dead letter",
                lambda: any(wire.has_route(two.world.servers.namesrv, dead_letters, broker) for broker in brokers),
            )
            with two.world.consumer(two.group(), dead_letters, dead):
                dead.wait_bodies([b"failing"])
        finally:
            set_permission(two.far, 6)
    assert handled == [(topic, b"failing", ["K"], 0), (topic, b"failing", ["K"], 1)]
    assert [message.keys for message in dead.messages] == [["K"]]


def set_permission(broker: str, permission: int) -> None:
    """Have a broker take messages back, 6, or not, 4."""
    answer = wire.call(broker, UPDATE_BROKER_CONFIG, body=f"brokerPermission={permission}\n".encode())
    assert answer.code == wire.SUCCESS


def test_slave_is_read_if_the_broker_suggests_it(two: TwoBrokers, tmp_path: Path) -> None:
    """By consumers with a handler, and by those that poll."""
    topic, bodies, got = two.topic(), numbered("old", 40), Got()
    queue = MessageQueue(topic, FAR, 0)
    with (
        another_broker(two.world.servers, tmp_path, SLAVE) as slave,
        two.world.producer(send_timeout=LIMIT) as producer,
    ):
        eventually("the slave copies", lambda: producer.send(Message(topic, b"x"), queue=queue).status == SEND_OK)
        for body in bodies:
            assert producer.send(Message(topic, body), queue=queue).status == SEND_OK
        seen = {kind: PullsSeen() for kind in ("push", "poll")}
        configs = {kind: ClientConfig(namesrv=two.world.servers.namesrv, hooks=[hook]) for kind, hook in seen.items()}
        with two.world.consumer(two.group(), topic, got, configs["push"], pull_batch=4):
            got.wait_bodies(bodies)
        polled = two.world.face.module.LitePullConsumer(
            two.group(), configs["poll"], topics=topic, begin="earliest", pull_batch=4
        )
        with Held(two.world.face, polled) as consumer:
            poll_all(consumer, bodies)
    for kind, hook in seen.items():
        assert {two.far, slave} <= set(hook.addresses), kind
