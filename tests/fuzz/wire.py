"""Sends made-up frames to a real name server and a real broker, and sees that they go on."""

import os
import select
import socket
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

from benchmarks.peers.process import ServerProcess
from rocketd.remoting.codes import RequestCode
from rocketd.remoting.command import RemotingCommand
from rocketd.remoting.frame import FrameDecoder
from tests.fuzz.frames import FrameMaker
from tests.servers.server_processes import ServerProcesses

CONNECTIONS = 4
FRAMES_TOGETHER = 200
ANSWER_SECONDS = 60.0
MEMORY_LIMIT = 700 << 20
"""Bytes of resident memory that a server may reach."""
LOG_LIMIT = 32 << 20
"""Bytes of log that a server may write, however many frames."""
SETTINGS = {
    "enablePropertyFilter": "true",
    "enableCalcFilterBitMap": "true",
    "enableConsumeQueueExt": "true",
    "enableLmq": "true",
    "enableMultiDispatch": "true",
}


class FuzzError(AssertionError):
    """A server did what it must not; the text says what."""


class Attacker:
    """Connections to one server; whatever it answers is read and thrown away."""

    def __init__(self, address: str) -> None:
        self._address = address.rpartition(":")[0], int(address.rpartition(":")[2])
        self._sockets: list[socket.socket] = []
        self.closed = 0

    def send(self, number: int, data: bytes) -> None:
        """Send bytes on a connection, which is made anew if the server has closed it."""
        while len(self._sockets) <= number:
            self._sockets.append(self._connect())
        view = memoryview(data)
        deadline = time.monotonic() + ANSWER_SECONDS
        while view:
            connection = self._sockets[number]
            readable, writable, _ = select.select([connection], [connection], [], 1.0)
            try:
                if readable and not connection.recv(1 << 20):
                    raise ConnectionResetError
                if writable:
                    view = view[connection.send(view) :]
                    deadline = time.monotonic() + ANSWER_SECONDS
            except BlockingIOError:
                continue
            except OSError:
                # A frame that is not one ends its connection, and the rest of these bytes with it.
                self.closed += 1
                connection.close()
                self._sockets[number] = self._connect()
                return
            if time.monotonic() > deadline:
                # The server holds back a peer that it cannot answer; another connection has to be served.
                connection.close()
                self._sockets[number] = self._connect()
                return

    def close(self) -> None:
        """Close all connections."""
        for connection in self._sockets:
            connection.close()

    def _connect(self) -> socket.socket:
        connection = socket.create_connection(self._address, timeout=ANSWER_SECONDS)
        connection.setblocking(False)
        return connection


class WireFuzzer:
    """Two servers in a directory, and what is sent to them."""

    def __init__(self, directory: Path, seed: int, say: Callable[[str], None] = lambda line: None) -> None:
        self._servers = ServerProcesses(directory, **SETTINGS)
        self._maker = FrameMaker(Random(seed))
        self._say = say
        self.frames = 0
        self.closed = 0

    def run(self, seconds: float, frames: int | None = None) -> None:
        """Send for so long, or so many frames. Raises FuzzError or ServerError."""
        namesrv, broker = self._servers.start_namesrv(), self._servers.start_broker()
        addresses = (self._servers.namesrv_address, self._servers.broker_address)
        attackers = [Attacker(address) for address in addresses]
        began = checked = time.monotonic()
        try:
            while (time.monotonic() - began < seconds) if frames is None else (self.frames < frames):
                for attacker in (attackers[1], attackers[1], attackers[1], attackers[0]):
                    for number in range(CONNECTIONS):
                        attacker.send(number, b"".join(self._maker.frames(FRAMES_TOGETHER)))
                        self.frames += FRAMES_TOGETHER
                if time.monotonic() - checked > 10.0:
                    checked = time.monotonic()
                    self._check(namesrv, broker)
            self._check(namesrv, broker)
        finally:
            for attacker in attackers:
                attacker.close()
            self.closed = sum(attacker.closed for attacker in attackers)
        for process in (broker, namesrv):
            if process.stop() != 0:
                raise FuzzError(f"{process.name} ended with {process.exit_code}")
            text = process.log.read_text(errors="replace")
            if "Traceback" in text:
                at = text.index("Traceback")
                raise FuzzError(f"{process.name} logged a traceback:\n{text[max(0, at - 500) : at + 3000]}")

    def kill(self) -> None:
        """End the servers."""
        self._servers.kill_all()

    def _check(self, namesrv: ServerProcess, broker: ServerProcess) -> None:
        sizes = []
        for process, address, code in (
            (namesrv, self._servers.namesrv_address, RequestCode.GET_BROKER_CLUSTER_INFO),
            (broker, self._servers.broker_address, RequestCode.GET_BROKER_RUNTIME_INFO),
        ):
            if process.exit_code is not None:
                raise FuzzError(f"{process.name} ended with {process.exit_code}: {process.tail()}")
            _ask(address, RemotingCommand(code))
            size = resident_bytes(process.pid)
            sizes.append(f"{process.name} {size >> 20} MiB")
            if size > MEMORY_LIMIT:
                raise FuzzError(f"{process.name} has {size >> 20} MiB of memory, more than {MEMORY_LIMIT >> 20}")
            if process.log.stat().st_size > LOG_LIMIT:
                raise FuzzError(f"{process.name} has logged {process.log.stat().st_size >> 20} MiB")
        self._say(f"{self.frames} frames; {', '.join(sizes)}")


def resident_bytes(pid: int) -> int:
    """Resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _ask(address: str, command: RemotingCommand) -> RemotingCommand:
    """Ask on a new connection. Raises FuzzError if there is no answer."""
    host, _, port = address.rpartition(":")
    decoder = FrameDecoder()
    try:
        with socket.create_connection((host, int(port)), timeout=ANSWER_SECONDS) as connection:
            connection.sendall(command.encode())
            while True:
                data = connection.recv(1 << 16)
                if not data:
                    raise FuzzError(f"{address} closed a connection instead of answering")
                for found in decoder.feed(data):
                    return RemotingCommand.decode(found)
    except OSError as error:
        raise FuzzError(f"{address} does not answer {command.code}: {error!r}") from error
