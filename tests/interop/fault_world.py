"""Two brokers and a name server of one kind; and the check that closed clients leave nothing behind."""

import gc
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import LogEvent, LogLevel, formatEvent, globalLogPublisher

from rocketd.client.consumer.membership.group_member import GroupMember
from rocketd.client.consumer.pulling.process_queue import ProcessQueue
from rocketd.client.consumer.pulling.queue_puller import QueuePuller
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.client.producer.producer import ProducerEngine
from rocketd.client.producer.sender import ProducerSender
from rocketd.client.runtime.asyncio_host import AsyncioHost
from rocketd.client.runtime.thread_host import ThreadHost
from rocketd.remoting.calling.channel_table import ChannelTable
from rocketd.remoting.calling.client import RemotingClient
from rocketd.remoting.calling.client_connection import ClientConnection
from rocketd.remoting.calling.rpc import RequestTable
from tests.interop.fault_net import A, B, Where
from tests.interop.python_client_faces import AioFace, Face, SyncFace, eventually
from tests.interop.python_client_servers import APACHE, PROPERTIES
from tests.support import apache, twistd_servers
from tests.support.left_open import LeftOpen
from tests.support.ports import free_broker_port, free_port
from tests.support.process import ServerProcess

_KINDS = (
    ChannelTable,
    ClientConnection,
    ClientInstance,
    Deferred,
    GroupMember,
    ProcessQueue,
    ProducerEngine,
    QueuePuller,
    RemotingClient,
    RequestTable,
    ProducerSender,
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
    never_retrieved = _ErrorsOfAsyncio(troubles)
    logging.getLogger("asyncio").addHandler(never_retrieved)
    with ExitStack() as stack:
        stack.callback(globalLogPublisher.removeObserver, look)
        stack.callback(logging.getLogger("asyncio").removeHandler, never_retrieved)
        both = [AioFace(), SyncFace()]
        for face in both:
            stack.callback(face.close)
        reactors = [stack.enter_context(_reactor(face)) for face in both]
        yield both
        for face, reactor in zip(both, reactors, strict=True):
            _await_nothing(f"timers of {face.name}", partial(face.run, reactor.getDelayedCalls))
            _await_nothing(f"writers of {face.name}", partial(face.run, reactor.getWriters))
    _await_nothing("sockets, pipes and threads", left_open.found)
    assert not troubles, f"unhandled: {troubles}"
    _await_nothing("objects of the clients", lambda: _grown(before))


class _ErrorsOfAsyncio(logging.Handler):
    """Collects the errors that asyncio logs, such as an exception of a future without a waiter."""

    def __init__(self, texts: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._texts = texts

    def emit(self, record: logging.LogRecord) -> None:
        self._texts.append(self.format(record))


@contextmanager
def _reactor(face: Face) -> Iterator[Any]:
    """The reactor of the face's clients, which runs a bit longer than they do: its end would hide their leftovers."""
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
    """Return once ``look`` finds nothing; AssertionError with its findings if they stay."""
    last: list[list[Any]] = []

    def gone() -> bool:
        last[:] = [look()]
        return not last[0]

    try:
        eventually(f"no {what} are left", gone)
    except AssertionError as error:
        raise AssertionError(f"{error}: {list(map(str, last[0]))}") from None


def _engines() -> Counter[str]:
    """Return the number of objects of each class in a client's engine."""
    gc.collect()
    kinds = [type(one) for one in gc.get_objects()]
    return Counter(kind.__name__ for kind in kinds if issubclass(kind, _KINDS))


def _grown(before: Counter[str]) -> list[str]:
    """Return the classes with more objects than before, and the chain of holders of one object of each."""
    grown = _engines() - before - _OF_THE_TEST
    return [f"{grown[name]} {name}, held by {_holders(name)}" for name in grown]


def _holders(name: str) -> str:
    """Return the chain of the objects that hold the newest object of a class, the nearest first."""
    chain = [one for one in gc.get_objects() if type(one).__name__ == name][-1:]
    texts: list[str] = []
    while chain and len(chain) < 12:
        seen = {id(one) for one in chain} | {id(chain), id(texts)}
        holders = [one for one in gc.get_referrers(chain[-1]) if id(one) not in seen and not _of_this_module(one)]
        if not holders:
            break
        chain.append(holders[0])
        texts.append(repr(type(holders[0])) if not isinstance(holders[0], FrameType) else str(holders[0]))
    return " < ".join(texts)


def _of_this_module(one: object) -> bool:
    return isinstance(one, FrameType) and one.f_code.co_filename == __file__
