"""Either broker, Apache's or rocketd's, as a process on one and the same store directory."""

import contextlib
import selectors
import socket
import threading
from collections.abc import Mapping
from pathlib import Path

import twistd_servers

from benchmarks.peers import apache
from benchmarks.peers.ports import free_broker_port
from benchmarks.peers.process import ServerProcess

APACHE, ROCKETD = "apache", "rocketd"
IPV4, IPV6 = "127.0.0.1", "::1"

SLOTS = 100
# Files so small that a hundred messages cross the borders of all kinds; level 2 outlasts the stop of a broker.
SMALL_FILES = {
    "mappedFileSizeCommitLog": "65536",
    "mappedFileSizeConsumeQueue": "400",
    "maxHashSlotNum": str(SLOTS),
    "maxIndexNum": "500",
    "messageDelayLevel": "1s 12s",
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
        self._relay: Relay | None = None
        directory.mkdir(parents=True, exist_ok=True)

    def start(self, kind: str, host: str = IPV4, **properties: str) -> None:
        """Start a broker of this kind that registers as ``host`` and writes it into its records."""
        assert self._running is None
        given = {**self._properties, **properties, "brokerIP1": host}
        self._kind = kind
        if kind == APACHE:
            self._running = apache.start_broker(self.directory, self.port, self.namesrv, given, _JVM)
        else:
            # It listens on IPv4 alone; a client that has the address from a record gets there all the same.
            self._relay = Relay((IPV6, self.port), (IPV4, self.port))
            self._running = twistd_servers.start_broker(self.directory, self.port, self.namesrv, given)

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
        """End whatever still runs."""
        if self._running is not None:
            self.kill()

    def _end(self) -> ServerProcess:
        assert self._running is not None
        server, self._running = self._running, None
        if self._relay is not None:
            self._relay.close()
            self._relay = None
        return server


class Relay:
    """Hands the connections of one address on to another, in a thread of its own, until it is closed."""

    def __init__(self, listen: tuple[str, int], target: tuple[str, int]) -> None:
        self._target = target
        self._selector = selectors.DefaultSelector()
        self._listener = socket.create_server(listen, family=socket.AF_INET6)
        self._waker, woken = socket.socketpair()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(woken, selectors.EVENT_READ)
        self._woken = woken
        self._peers: dict[socket.socket, socket.socket] = {}
        self._thread = threading.Thread(target=self._run, name="relay", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Close everything and wait for the thread's end."""
        self._waker.close()
        self._thread.join()

    def _run(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._woken:
                    for each in (*self._peers, self._listener, self._woken):
                        each.close()
                    self._selector.close()
                    return
                if key.fileobj is self._listener:
                    self._accept()
                elif key.fileobj in self._peers:
                    self._pass_on(key.fileobj)

    def _accept(self) -> None:
        near, _ = self._listener.accept()
        try:
            far = socket.create_connection(self._target)
        except OSError:
            near.close()
            return
        for one, other in ((near, far), (far, near)):
            self._peers[one] = other
            self._selector.register(one, selectors.EVENT_READ)

    def _pass_on(self, one: socket.socket) -> None:
        other = self._peers[one]
        with contextlib.suppress(OSError):
            data = one.recv(1 << 16)
            if data:
                other.sendall(data)
                return
        for each in (one, other):
            del self._peers[each]
            self._selector.unregister(each)
            each.close()
