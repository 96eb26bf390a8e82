"""The name server and the broker of a test: the real ones, on memory.

No counterpart in Apache.
"""

import itertools
from collections.abc import Mapping
from typing import Any

from twisted.internet.defer import Deferred

from rocketd.broker.address import AdvertisedAddress
from rocketd.broker.service import Broker
from rocketd.broker.settings import BrokerSettings
from rocketd.broker.timer.table import TimerTable
from rocketd.client.errors import IllegalOptionError
from rocketd.namesrv.service import NameServer
from rocketd.namesrv.settings import NamesrvSettings
from rocketd.testing.faults import Faults
from rocketd.testing.memory_disk import MemoryDisk
from rocketd.testing.memory_network import HOST, MemoryNetwork
from rocketd.testing.sockets import Sockets
from rocketd.testing.virtual_time import VirtualReactor, VirtualTime

NAMESRV_PORT = 9876
BROKER_PORT = 10911
HA_PORT = 10912
ROOT = "/rocketd"
STORE = f"{ROOT}/store"

BROKER_SETTINGS: Mapping[str, object] = {
    "brokerName": "broker-a",
    "brokerIP1": HOST,
    "brokerIP2": HOST,
    "listenPort": BROKER_PORT,
    "haListenPort": HA_PORT,
    "storePathRootDir": STORE,
    "enablePropertyFilter": "true",
    "tls.server.mode": "disabled",
    "mappedFileSizeCommitLog": 64 << 20,
    "mappedFileSizeConsumeQueue": 600_000,
    "maxHashSlotNum": 10_000,
    "maxIndexNum": 40_000,
}
"""What differs from the defaults unless the test says otherwise: small files, as nobody fills them, and SQL filters."""


class Process:
    """What one server has for itself, and loses when it is killed. Belongs to the servers' thread."""

    def __init__(self, base: Any, virtual: VirtualTime, network: MemoryNetwork, disk: MemoryDisk) -> None:
        self.reactor = VirtualReactor(base, virtual, network)
        self.virtual = virtual
        self.disk = disk


class NameServerProcess(Process):
    """A name server."""

    def start(self, settings: Mapping[str, object], faults: Faults, sockets: Sockets) -> None:
        """Start it."""
        given = {
            "listenPort": NAMESRV_PORT,
            "tls.server.mode": "disabled",
            "kvConfigPath": f"{ROOT}/namesrv/kvConfig.json",
            "configStorePath": f"{ROOT}/namesrv/namesrv.properties",
            **settings,
        }
        loaded, warnings = NamesrvSettings.load(None, _texts(given))
        _refuse(warnings)
        server = self.server = NameServer(loaded, self.reactor, self.disk, self.reactor.seconds)
        _come_between(server, faults, sockets)
        server.startService()


class BrokerProcess(Process):
    """A broker."""

    async def start(self, settings: Mapping[str, object], faults: Faults, sockets: Sockets) -> None:
        """Start it; the name server knows it when this returns."""
        given = {"namesrvAddr": f"{HOST}:{NAMESRV_PORT}", **BROKER_SETTINGS, **settings}
        loaded, warnings = BrokerSettings.load(None, _texts(given))
        _refuse(warnings)
        broker = self.server = Broker(
            loaded,
            self.reactor,
            self.disk,
            self.virtual.now_ms,
            AdvertisedAddress(loaded.broker.broker_ip1 or HOST, "in memory", None),
            self.reactor.seconds,
        )
        # It can be made again from the log, and is for every process.
        broker.timers.waiting = TimerTable(":memory:")
        _come_between(broker, faults, sockets)
        broker.startService()
        await broker.when_serving()
        registered: Deferred[None] = Deferred()
        broker.when_registered(lambda: registered.callback(None))
        await registered


def check_settings(settings: Mapping[str, object]) -> None:
    """Raise IllegalOptionError for settings that a server of a test cannot have."""
    for name in settings:
        if name.startswith("tls."):
            raise IllegalOptionError(f"{name}: servers in the process of a test have no TLS")
        if name in ("listenPort", "haListenPort", "namesrvAddr", "brokerIP1", "brokerIP2", "brokerRole"):
            raise IllegalOptionError(f"{name}: where the servers of a test are is theirs to choose; see Cluster.listen")


def _texts(settings: Mapping[str, object]) -> list[tuple[str, str]]:
    return [(name, str(value).lower() if isinstance(value, bool) else str(value)) for name, value in settings.items()]


def _refuse(warnings: list[str]) -> None:
    if warnings:
        raise IllegalOptionError("; ".join(itertools.chain(warnings)))


def _come_between(server: Any, faults: Faults, sockets: Sockets) -> None:
    server.dispatcher.dispatch = sockets.watching(faults.dispatching(server.dispatcher.dispatch))
