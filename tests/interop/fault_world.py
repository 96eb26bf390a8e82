"""Two brokers and a name server of one kind; and what may be left of clients that have closed: nothing."""

import gc
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import twistd_servers
from fault_net import A, B, Where
from python_client_faces import AioFace, Face, SyncFace, eventually
from python_client_servers import APACHE, PROPERTIES
from twisted.internet.defer import Deferred
from twisted.logger import LogEvent, LogLevel, formatEvent, globalLogPublisher

from benchmarks.peers import apache
from benchmarks.peers.ports import free_broker_port, free_port
from benchmarks.peers.process import ServerProcess
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
_OF_THE_TEST = Counter({"Deferred": 2})  # which may have begun meanwhile
_JVM = ("-Xms64m", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class TwoBrokers(Where):
    """A name server and the brokers A and B, running in ``directory``."""

    def __init__(self, kind: str, directory: Path) -> None:
        first = second = free_broker_port()
        while abs(second - first) < 8:
            second = free_broker_port()
        port = free_port()
        while min(abs(port - first), abs(port - second)) < 8:
            port = free_port()
        super().__init__(kind, f"127.0.0.1:{port}", {A: f"127.0.0.1:{first}", B: f"127.0.0.1:{second}"})
        self._directory = directory
        self._running: dict[str, ServerProcess] = {}
        start_namesrv: Callable[..., ServerProcess] = twistd_servers.start_namesrv
        if kind == APACHE:
            start_namesrv = lambda *place: apache.start_namesrv(*place, _JVM)  # noqa: E731
        (directory / "names").mkdir(parents=True)
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
        for server in self._running.values():
            server.kill()
        if self.kind != APACHE:
            for server in self._running.values():
                twistd_servers.check_log(server)


@contextmanager
def faces() -> Iterator[list[Face]]:
    """The faces of asyncio and of threads; at the end nothing may be left of their clients, not even an unhandled error."""
    troubles: list[str] = []

    def look(event: LogEvent) -> None:
        if event.get("log_level") is LogLevel.critical:
            failure = event.get("log_failure")
            troubles.append(formatEvent(event) + ("" if failure is None else failure.getTraceback()))

    left_open = LeftOpen()
    before = _engines()
    globalLogPublisher.addObserver(look)
    with ExitStack() as stack:
        stack.callback(globalLogPublisher.removeObserver, look)
        both = [AioFace(), SyncFace()]
        for face in both:
            stack.callback(face.close)
        reactors = [stack.enter_context(_reactor(face)) for face in both]
        yield both
        for face, reactor in zip(both, reactors, strict=True):
            _await_nothing(f"timers of {face.name}", partial(face.run, reactor.getDelayedCalls))
            _await_nothing(f"writers of {face.name}", partial(face.run, reactor.getWriters))
    _await_nothing("sockets, pipes and threads", left_open.found)
    grown = _engines() - before - _OF_THE_TEST
    assert not grown, f"more objects than before: {grown}"
    assert not troubles, f"unhandled: {troubles}"


@contextmanager
def _reactor(face: Face) -> Iterator[Any]:
    """The reactor of the face's clients, which runs a bit longer than they do: its end would hide what they leave."""
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


def _await_nothing(what: str, look: Callable[[], list[Any]]) -> None:
    """Return once there is nothing; AssertionError with what there is."""
    last: list[list[Any]] = []

    def gone() -> bool:
        last[:] = [look()]
        return not last[0]

    try:
        eventually(f"no {what} are left", gone)
    except AssertionError as error:
        raise AssertionError(f"{error}: {list(map(str, last[0]))}") from None


def _engines() -> Counter[str]:
    """How many objects there are of what a client's engine is made of."""
    gc.collect()
    kinds = [type(one) for one in gc.get_objects()]
    return Counter(kind.__name__ for kind in kinds if issubclass(kind, _KINDS))
