"""Either broker, Apache's or rocketd's, as a process on one and the same store directory."""

from collections.abc import Mapping
from pathlib import Path

from tests.support import apache, twistd_servers, wire
from tests.support.patience import PATIENT
from tests.support.ports import free_broker_port
from tests.support.process import ServerProcess
from tests.support.store_wire import await_dispatched

APACHE, ROCKETD = "apache", "rocketd"
IPV4, IPV6 = "127.0.0.1", "::1"

SLOTS = 100
# Files so small that a hundred messages cross the borders of all kinds; level 2 outlasts the stop of a broker.
SMALL_FILES = {
    "mappedFileSizeCommitLog": "65536",
    "mappedFileSizeConsumeQueue": "400",
    "maxHashSlotNum": str(SLOTS),
    "maxIndexNum": "500",
    "messageDelayLevel": "1s 10s",
    "diskMaxUsedSpaceRatio": "95",
}
# A small broker that starts fast: it lives for seconds.
_JVM = ("-Xms256m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_STOPPED_BY_SIGTERM = {APACHE: 143, ROCKETD: 0}


class StoreBrokers:
    """Starts and ends brokers on ``directory``/store, one at a time, all on one port and known to one name server."""

    def __init__(self, directory: Path, namesrv: str, properties: Mapping[str, str] = SMALL_FILES) -> None:
        self.directory = directory
        self.store = directory / "store"
        self.namesrv = namesrv
        self.port = free_broker_port()
        self.address = f"{IPV4}:{self.port}"
        self._properties = dict(properties)
        self._running: ServerProcess | None = None
        self._kind = APACHE
        self._host = IPV4
        directory.mkdir(parents=True, exist_ok=True)

    def start(self, kind: str, host: str = IPV4, **properties: str) -> None:
        """Start a broker of this kind that registers as ``host`` and writes it into its records; then it serves all."""
        assert self._running is None
        given = {**PATIENT, **self._properties, **properties, "brokerIP1": host}
        self._kind, self._host = kind, host
        if kind == APACHE:
            self._running = apache.start_broker(self.directory, self.port, self.namesrv, given, _JVM)
        else:
            self._running = twistd_servers.start_broker(self.directory, self.port, self.namesrv, given)
            await_dispatched(self.address)  # for which Apache's broker waits itself

    def await_route(self, topic: str) -> None:
        """Return once the name server's route of a topic leads to the broker that runs."""
        wire.await_route(self.namesrv, topic, f"{self._host}:{self.port}")

    def stop(self) -> None:
        """End the broker by SIGTERM; AssertionError unless it ends as it should."""
        server = self._end()
        assert server.stop() == _STOPPED_BY_SIGTERM[self._kind], server.tail()
        if self._kind == ROCKETD:
            twistd_servers.check_log(server)

    def kill(self) -> None:
        """End the broker by SIGKILL."""
        self._end().kill()

    def close(self) -> None:
        """End all running brokers."""
        if self._running is not None:
            self.kill()

    def _end(self) -> ServerProcess:
        assert self._running is not None
        server, self._running = self._running, None
        return server
