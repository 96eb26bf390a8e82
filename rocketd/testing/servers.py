"""The processes of a cluster: name servers and brokers, the real ones, in memory. They belong to the servers' thread."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import TypeVar

from twisted.internet.defer import Deferred

from rocketd.broker.base.address import AdvertisedAddress
from rocketd.broker.base.settings import BrokerSettings
from rocketd.broker.service import Broker
from rocketd.broker.timer.table import TimerTable
from rocketd.client.errors import IllegalOptionError
from rocketd.common.event_loop.reactor import IReactor
from rocketd.common.settings.daemon_settings import OPTION, DaemonSettings
from rocketd.common.settings.declaration import ConfigError
from rocketd.common.suggest import did_you_mean
from rocketd.namesrv.service import NameServer
from rocketd.namesrv.settings import NamesrvSettings
from rocketd.remoting.serving.dispatch import Dispatcher
from rocketd.store.format.message import PutStatus
from rocketd.store.log.flush import FlushCallback
from rocketd.testing.faults import Faults
from rocketd.testing.simulated.memory_disk import MemoryDisk
from rocketd.testing.simulated.memory_network import HOST, MemoryNetwork
from rocketd.testing.simulated.virtual_time import VirtualReactor, VirtualTime
from rocketd.testing.sockets import Sockets

S = TypeVar("S", bound=DaemonSettings)

NAMESRV_PORT = 9876
ROOT = "/rocketd"
STORE = f"{ROOT}/store"

NAMESRV_SETTINGS: Mapping[str, object] = {
    "listenPort": NAMESRV_PORT,
    "tls.server.mode": "disabled",
    "kvConfigPath": f"{ROOT}/namesrv/kvConfig.json",
    "configStorePath": f"{ROOT}/namesrv/namesrv.properties",
}
BROKER_SETTINGS: Mapping[str, object] = {
    "namesrvAddr": f"{HOST}:{NAMESRV_PORT}",
    "brokerIP1": HOST,
    "brokerIP2": HOST,
    "haAllowedAddresses": "loopback",
    "storePathRootDir": STORE,
    "enablePropertyFilter": "true",
    "tls.server.mode": "disabled",
    "mappedFileSizeCommitLog": 64 << 20,
    "mappedFileSizeConsumeQueue": 600_000,
    "maxHashSlotNum": 10_000,
    "maxIndexNum": 40_000,
    "waitTimeMillsInSendQueue": 60_000,
}
"""Settings that differ from the defaults: small files, SQL filters, and sends that a busy machine may delay.

A test may override them.
"""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The parts shared by all servers of a cluster."""

    virtual: VirtualTime
    network: MemoryNetwork
    faults: Faults
    sockets: Sockets


class FlushWaiters:
    """Counts the callbacks that wait for a flush or run. Any thread."""

    def __init__(self) -> None:
        self.count = 0
        self._lock = Lock()

    def counting(self, when_flushed: Callable[[int, FlushCallback], None]) -> Callable[[int, FlushCallback], None]:
        """Wrap a store's function."""

        def counted(end_offset: int, callback: FlushCallback) -> None:
            def called(status: PutStatus) -> None:
                try:
                    callback(status)
                finally:
                    self._add(-1)

            self._add(1)
            when_flushed(end_offset, called)

        return counted

    def _add(self, number: int) -> None:
        with self._lock:
            self.count += number


class Process:
    """Resources of one server, lost when it is killed."""

    server: NameServer | Broker

    def __init__(self, base: IReactor, around: Surroundings, disk: MemoryDisk) -> None:
        self.reactor = VirtualReactor(base, around.virtual, around.network)
        self.around = around
        self.disk = disk

    def abort_connections(self) -> None:
        """Break all connections. New ones may be made."""
        for connection in list(self.server.server.connections):
            connection.abort()
        self.reactor.abort_connections()

    def cut_off(self) -> None:
        """Break all connections and refuse new ones, as if the process had died."""
        self.reactor.cut_off()
        self.abort_connections()

    def _come_between(self, dispatcher: Dispatcher) -> None:
        faulty = self.around.faults.dispatching(dispatcher.dispatch)
        dispatcher.dispatch = self.around.sockets.watching(faulty)  # type: ignore[assignment, method-assign]


class NameServerProcess(Process):
    """A name server."""

    server: NameServer

    def start(self, settings: Mapping[str, object]) -> None:
        """Start it."""
        loaded = load_namesrv_settings(settings)
        virtual = self.around.virtual
        server = self.server = NameServer(
            loaded, self.reactor.as_reactor(), self.disk, virtual.seconds, virtual.stopwatch, virtual.now_ms
        )
        self._come_between(server.dispatcher)
        server.startService()


class BrokerProcess(Process):
    """A broker."""

    server: Broker

    def __init__(self, base: IReactor, around: Surroundings, disk: MemoryDisk) -> None:
        super().__init__(base, around, disk)
        self._flush_waiters = FlushWaiters()

    async def start(self, settings: Mapping[str, object]) -> None:
        """Start it. The name server knows it when this returns."""
        loaded = load_broker_settings(settings)
        broker = self.server = Broker(
            loaded,
            self.reactor.as_reactor(),
            self.disk,
            self.around.virtual.now_ms,
            AdvertisedAddress(loaded.broker.broker_ip1 or HOST, "in memory", None),
            self.reactor.seconds,
            self.around.virtual.stopwatch,
        )
        # The real table is a file for all processes; this one is rebuilt from the log.
        broker.timers.waiting = TimerTable(":memory:")
        self._come_between(broker.dispatcher)
        broker.startService()
        await broker.when_serving()
        store = broker.store
        store.when_flushed = self._flush_waiters.counting(store.when_flushed)  # type: ignore[assignment, method-assign]
        registered: Deferred[None] = Deferred()
        broker.when_registered(lambda: registered.callback(None))
        await registered

    @property
    def is_slave(self) -> bool:
        """Whether it is a slave."""
        return self.server.replication.is_slave

    @property
    def flushes(self) -> bool:
        """Whether it writes stored data to the disk at once."""
        return self.server.settings.store.flush_disk_type == "SYNC_FLUSH" and not self.disk.slow_fsync_seconds

    @property
    def is_flushing(self) -> bool:
        """Whether senders wait for a flush, or a callback of a flush runs. Not if the disk waits for the time to pass."""
        return self.flushes and self._flush_waiters.count > 0


def load_namesrv_settings(given: Mapping[str, object]) -> NamesrvSettings:
    """Return the settings of a name server. Raises IllegalOptionError."""
    return _load(NamesrvSettings, "name server", {**NAMESRV_SETTINGS, **given})


def load_broker_settings(given: Mapping[str, object]) -> BrokerSettings:
    """Return the settings of a broker. Raises IllegalOptionError."""
    return _load(BrokerSettings, "broker", {**BROKER_SETTINGS, **given})


def _load(kind: type[S], server: str, settings: Mapping[str, object]) -> S:
    known = {key for setting in kind.by_name().values() for key in (setting.name, *setting.aliases)}
    for key in settings:
        if key not in known:
            raise IllegalOptionError(f"{key!r} is not a setting of a {server}{did_you_mean(key, known)}")
    try:
        loaded, warnings = kind.load(None, _texts(settings))
    except ConfigError as error:
        raise IllegalOptionError(_plain(str(error))) from None
    if warnings:
        raise IllegalOptionError("; ".join(map(_plain, warnings)))
    return loaded


def _plain(text: str) -> str:
    """Return an error about settings without its place, an option of the command line."""
    return text.removeprefix(f"{OPTION}: ")


def _texts(settings: Mapping[str, object]) -> list[tuple[str, str]]:
    return [(name, str(value).lower() if isinstance(value, bool) else str(value)) for name, value in settings.items()]
