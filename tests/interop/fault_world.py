"""Two brokers and a name server of one kind behind proxies; and what may be left of a client that has closed: nothing."""

import gc
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import twistd_servers
from fault_proxy import Proxies
from python_client_faces import AioFace, Face, Held, SyncFace, eventually
from python_client_servers import APACHE, LIMIT, PROPERTIES
from python_client_world import fresh
from twisted.internet.defer import Deferred
from twisted.logger import LogEvent, LogLevel, formatEvent, globalLogPublisher

from benchmarks.peers import apache, wire
from benchmarks.peers.ports import free_broker_port, free_port
from benchmarks.peers.process import ServerProcess
from rocketd.client import ClientConfig
from rocketd.client.consumer.group_member import GroupMember
from rocketd.client.consumer.process_queue import ProcessQueue
from rocketd.client.consumer.queue_puller import QueuePuller
from rocketd.client.hosting.asyncio_host import AsyncioHost
from rocketd.client.hosting.thread_host import ThreadHost
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.client.producer.producer import Producer
from rocketd.client.producer.sender import Sender
from rocketd.remoting.channel_table import ChannelTable
from rocketd.remoting.client import RemotingClient
from rocketd.remoting.client_connection import ClientConnection
from rocketd.remoting.rpc import RequestTable

sys.path.append(str(Path(__file__).resolve().parents[1] / "unit"))

from left_open import LeftOpen

A, B = "broker-a", "broker-b"
TIMEOUT = 1.0  # of questions to brokers and name servers
_KINDS = (
    ChannelTable,
    ClientConnection,
    ClientInstance,
    Deferred,
    GroupMember,
    ProcessQueue,
    Producer,
    QueuePuller,
    RemotingClient,
    RequestTable,
    Sender,
)
_JVM = ("-Xms64m", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class TwoBrokers:
    """A name server and the brokers A and B, in ``directory``."""

    def __init__(self, kind: str, directory: Path) -> None:
        self.kind = kind
        self._directory = directory
        self.brokers: dict[str, str] = {}
        while len(self.brokers) < 2:
            port = free_broker_port()
            if all(abs(port - int(other.rpartition(":")[2])) > 3 for other in self.brokers.values()):
                self.brokers[(A, B)[len(self.brokers)]] = f"127.0.0.1:{port}"
        port = free_port()
        self.namesrv = f"127.0.0.1:{port}"
        self._running: dict[str, ServerProcess] = {}
        directory.mkdir(parents=True, exist_ok=True)
        start_namesrv: Callable[..., ServerProcess] = twistd_servers.start_namesrv
        if kind == APACHE:
            start_namesrv = lambda *place: apache.start_namesrv(*place, _JVM)  # noqa: E731
        try:
            self._running["namesrv"] = start_namesrv(directory / "names", port)
            with ThreadPoolExecutor() as threads:
                list(threads.map(self.start, (A, B)))
        except BaseException:
            self.stop()
            raise

    def start(self, name: str) -> None:
        """Start a broker; the name server lists it when this returns."""
        place = self._directory / name, int(self.brokers[name].rpartition(":")[2]), self.namesrv
        place[0].mkdir(exist_ok=True)
        properties = {**PROPERTIES, "brokerName": name}
        if self.kind == APACHE:
            self._running[name] = apache.start_broker(*place, properties, _JVM)
        else:
            self._running[name] = twistd_servers.start_broker(*place, properties)

    def kill(self, name: str) -> None:
        """End a broker by SIGKILL."""
        self._running.pop(name).kill()

    def stop(self) -> None:
        """End all. Rocketd's may not have logged a traceback."""
        for server in reversed(self._running.values()):
            server.kill()
            if self.kind != APACHE:
                twistd_servers.check_log(server)

    def create_topic(self, topic: str, *names: str) -> str:
        """Create a topic at these brokers, and return its name; the name server has its route then."""
        for name in names:
            wire.create_topic(self.brokers[name], topic, 2)
        for name in names:
            wire.await_route(self.namesrv, topic, self.brokers[name], LIMIT)
        return topic


class Net:
    """Fresh proxies before the servers, and clients of one face that know nothing else."""

    def __init__(self, servers: TwoBrokers, face: Face, proxies: Proxies) -> None:
        self.servers = servers
        self.face = face
        self.a, self.b = (proxies.proxy(servers.brokers[name]) for name in (A, B))
        addresses = {servers.brokers[A]: self.a.address, servers.brokers[B]: self.b.address}
        self.names = [proxies.proxy(servers.namesrv, addresses) for _ in range(2)]

    def config(self, **options: Any) -> ClientConfig:
        """What clients are told: short intervals, both name servers."""
        usual: dict[str, Any] = {
            "namesrv": [name.address for name in self.names],
            "timeout": TIMEOUT,
            "route_interval": 0.3,
            "heartbeat_interval": 1.0,
        }
        return ClientConfig(**{**usual, **options})

    def topic(self, *names: str) -> str:
        """A new topic at these brokers; at both unless some are named."""
        return self.servers.create_topic(fresh(f"Topic-{self.face.name}"), *(names or (A, B)))

    def producer(self, config: ClientConfig | None = None, **options: Any) -> Held:
        """A producer, to be opened by ``with``."""
        return Held(self.face, self.face.module.Producer(fresh("P"), config or self.config(), **options))

    def consumer(self, topic: str, handler: Any, config: ClientConfig | None = None, **options: Any) -> Held:
        """A consumer of all there is, which shares queues and stores offsets often; to be opened by ``with``."""
        usual = {"start": "earliest", "rebalance_interval": 0.5, "persist_interval": 0.2}
        more: Any = {"topics": topic, "handler": handler, **usual, **options}
        return Held(self.face, self.face.module.Consumer(fresh("G"), config or self.config(), **more))


FACES = {"sync": SyncFace, "aio": AioFace}


@contextmanager
def clean(face_name: str, servers: TwoBrokers) -> Iterator[Net]:
    """A net, at whose end nothing may be left: no connection, timer, thread, socket or object, and no unhandled error."""
    troubles: list[str] = []

    def look(event: LogEvent) -> None:
        if event.get("log_level") is LogLevel.critical:
            troubles.append(formatEvent(event))

    globalLogPublisher.addObserver(look)
    left_open = LeftOpen()
    before = _engines()
    face = FACES[face_name]()
    try:
        with Proxies() as proxies:
            net = Net(servers, face, proxies)
            with _reactor(face) as reactor:
                yield net
                everything = (*net.names, net.a, net.b)
                eventually("connections are closed", lambda: not any(proxy.connections for proxy in everything))
                eventually("timers are gone", lambda: not face.run(reactor.getDelayedCalls))
                writers = face.run(reactor.getWriters)
                assert not writers, f"still writing: {writers}"
    finally:
        face.close()
        globalLogPublisher.removeObserver(look)
    try:
        eventually("nothing is left open", lambda: not left_open.found())
    except AssertionError:
        pytest.fail(f"left open: {left_open.found()}")
    grown = _engines() - before - Counter({"Deferred": 1})  # one may be that of the test itself
    assert not grown, f"more objects than before: {grown}"
    assert not troubles, f"unhandled: {troubles}"


@contextmanager
def _reactor(face: Face) -> Iterator[Any]:
    """The reactor of the face's clients, which runs a bit longer than they do."""
    if isinstance(face, AioFace):

        async def acquire() -> AsyncioHost:
            return AsyncioHost.acquire()

        host: Any = face.run(acquire)
        yield host.reactor
        face.run(host.release)
    else:
        host = ThreadHost.acquire()
        yield host.reactor
        host.release()


def _engines() -> Counter[str]:
    """How many objects there are of what a client's engine is made of."""
    gc.collect()
    kinds = [type(one) for one in gc.get_objects()]
    return Counter(kind.__name__ for kind in kinds if issubclass(kind, _KINDS))
