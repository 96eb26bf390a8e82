"""Sends made-up frames to a real name server and a real broker, and sees that they go on.

The broker gets them with and without TLS, and made-up reports on its port for slaves.
"""

import os
import select
import socket
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

from rocketd.remoting.wire.codes import RequestCode, ResponseCode
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.remoting.wire.frame import FrameDecoder
from rocketd.store.base.findings import Severity
from rocketd.store.log.transfer import TransferDecoder
from rocketd.store.offline.examine import Examination
from rocketd.store.offline.stopped_store import StoppedStore
from tests.fuzz.frames import FrameMaker
from tests.fuzz.requests import HEADERS, code_of
from tests.support.process import ServerProcess
from tests.support.server_processes import ServerProcesses

CONNECTIONS = 4
FRAMES_TOGETHER = 200
REPORTS_TOGETHER = 20
"""Reports on each connection to the port for slaves, one after the other."""
ANSWER_SECONDS = 60.0
MEMORY_LIMIT = 700 << 20
"""Most bytes of resident memory of a server."""
ENOUGH_FRAMES = 30_000
"""From so many frames on, a run has to have reached every processor."""
LATE = {RequestCode.PUT_KV_CONFIG, RequestCode.DELETE_KV_CONFIG}
"""Answered when the disk has the change: by then a broken frame may have ended the connection, so they are asked again."""
LOG_LIMIT = 32 << 20
"""Most bytes of log of a server, for any number of frames."""
SETTINGS = {
    "enablePropertyFilter": "true",
    "enableCalcFilterBitMap": "true",
    "enableConsumeQueueExt": "true",
    "enableLmq": "true",
    "enableMultiDispatch": "true",
    "haAllowedAddresses": "127.0.0.1",
    "tls.server.mode": "permissive",
}


class FuzzError(AssertionError):
    """A server misbehaved; the text says how."""


class Attacker:
    """Connections to one server. Answers are read; ``reached`` are the codes answered by their processors."""

    def __init__(self, address: str, reached: set[RequestCode]) -> None:
        self._address = address.rpartition(":")[0], int(address.rpartition(":")[2])
        self._sockets: list[socket.socket] = []
        self._decoders: dict[socket.socket, FrameDecoder] = {}
        self._reached = reached
        self.closed = 0

    def send(self, number: int, data: bytes) -> None:
        """Send bytes on a connection, which is made again if the server has closed it."""
        while len(self._sockets) <= number:
            self._sockets.append(self._connect())
        view = memoryview(data)
        deadline = time.monotonic() + ANSWER_SECONDS
        while view:
            connection = self._sockets[number]
            readable, writable, _ = select.select([connection], [connection], [], 1.0)
            try:
                if readable:
                    self._read(connection)
                if writable:
                    view = view[connection.send(view) :]
                    deadline = time.monotonic() + ANSWER_SECONDS
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                continue
            except OSError:
                # A frame that is not one ends its connection, and the rest of these bytes with it.
                self.closed += 1
                self._replace(number)
                return
            if time.monotonic() > deadline:
                # The server holds back a peer that it cannot answer; another connection has to be served.
                self._replace(number)
                return

    def _replace(self, number: int) -> None:
        self._forget(self._sockets[number])
        self._sockets[number].close()
        self._sockets[number] = self._connect()

    def _read(self, connection: socket.socket) -> None:
        data = connection.recv(1 << 20)
        if not data:
            raise ConnectionResetError
        self._take(connection, data)

    def _take(self, connection: socket.socket, data: bytes) -> None:
        for found in self._decoders[connection].feed(data):
            answer = RemotingCommand.decode(found)
            code = code_of(answer.opaque) if answer.is_response else None
            if code is not None and is_of_processor(answer):
                self._reached.add(code)

    def _forget(self, connection: socket.socket) -> None:
        del self._decoders[connection]

    def close(self) -> None:
        """Close all connections."""
        for connection in self._sockets:
            connection.close()

    def _connect(self) -> socket.socket:
        connection = socket.create_connection(self._address, timeout=ANSWER_SECONDS)
        connection.setblocking(False)
        self._decoders[connection] = FrameDecoder()
        return connection


class TLSAttacker(Attacker):
    """Frames over TLS. Each connection begins after one with ``noise`` in place of a handshake."""

    def __init__(self, address: str, reached: set[RequestCode], noise: Callable[[], bytes]) -> None:
        super().__init__(address, reached)
        self._noise = noise
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._context.check_hostname = False
        self._context.verify_mode = ssl.CERT_NONE

    def _connect(self) -> socket.socket:
        with socket.create_connection(self._address, timeout=ANSWER_SECONDS) as plain:
            plain.sendall(self._noise())
        deadline = time.monotonic() + ANSWER_SECONDS
        while True:
            plain = socket.create_connection(self._address, timeout=ANSWER_SECONDS)
            try:
                connection = self._context.wrap_socket(plain)
                break
            except OSError as error:
                plain.close()
                if time.monotonic() > deadline:  # a busy server ends handshakes that take long
                    raise FuzzError(f"{self._address} ends every TLS handshake: {error!r}") from error
        connection.setblocking(False)
        self._decoders[connection] = FrameDecoder()
        return connection


class SlaveAttacker(Attacker):
    """Reports to the port for slaves. ``end`` is the greatest offset of the log received so far."""

    def __init__(self, address: str) -> None:
        super().__init__(address, set())
        self._transfers: dict[socket.socket, TransferDecoder] = {}
        self.end = 0

    def _take(self, connection: socket.socket, data: bytes) -> None:
        for offset, body in self._transfers.setdefault(connection, TransferDecoder()).feed(data):
            self.end = max(self.end, offset + len(body))

    def _forget(self, connection: socket.socket) -> None:
        super()._forget(connection)
        self._transfers.pop(connection, None)


class WireFuzzer:
    """Two servers in a directory, and the frames and reports sent to them."""

    def __init__(self, directory: Path, seed: int, say: Callable[[str], None] = lambda line: None) -> None:
        self._servers = ServerProcesses(directory, **SETTINGS)
        self._maker = FrameMaker(Random(seed))
        self._say = say
        self.frames = 0
        self.reports = 0
        self.closed = 0
        self.reached: set[RequestCode] = set()

    def run(self, seconds: float, frames: int | None = None) -> None:
        """Send for so long, or so many frames. Raises FuzzError or ServerError."""
        namesrv, broker = self._servers.start_namesrv(), self._servers.start_broker()
        address = self._servers.namesrv_address
        namesrv_attacker, broker_attacker, tls_attacker, slave_attacker = attackers = (
            Attacker(address, self.reached),
            Attacker(self._servers.broker_address, self.reached),
            TLSAttacker(self._servers.broker_address, self.reached, self._maker.tls_noise),
            SlaveAttacker(self._servers.ha_address),
        )
        began = checked = time.monotonic()
        try:
            while (time.monotonic() - began < seconds) if frames is None else (self.frames < frames):
                for attacker in (broker_attacker, broker_attacker, tls_attacker, namesrv_attacker):
                    for number in range(CONNECTIONS):
                        attacker.send(number, b"".join(self._maker.frames(FRAMES_TOGETHER)))
                        self.frames += FRAMES_TOGETHER
                for number in [*range(CONNECTIONS)] * REPORTS_TOGETHER:
                    slave_attacker.send(number, self._maker.reports(slave_attacker.end))
                    self.reports += 1
                if time.monotonic() - checked > 10.0:
                    checked = time.monotonic()
                    self._check(namesrv, broker)
            self._check(namesrv, broker)
            for code in LATE - self.reached:
                if is_of_processor(_ask(address, self._maker.requests.request(code))):
                    self.reached.add(code)
            missed = sorted(code.name for code in HEADERS if code not in self.reached)
            if missed and self.frames >= ENOUGH_FRAMES:
                raise FuzzError(f"no request got to the processors of {', '.join(missed)}")
            if not slave_attacker.end and self.frames >= ENOUGH_FRAMES:
                raise FuzzError("the broker has sent its log to no slave")
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
        self._examine_store()

    def _examine_store(self) -> None:
        findings = Examination(StoppedStore(str(self._servers.store))).findings()
        damage = [str(finding) for finding in findings if finding.severity is Severity.DAMAGE]
        if damage:
            raise FuzzError(f"the store has {len(damage)} damages:\n" + "\n".join(damage[:20]))

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


def is_of_processor(answer: RemotingCommand) -> bool:
    """Whether an answer is of a processor that has read the header: not of an unknown code, bad field or full pool."""
    refused = answer.remark is not None and ("the custom field <" in answer.remark or "[OVERLOAD]" in answer.remark)
    return answer.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED and not refused


def resident_bytes(pid: int) -> int:
    """Resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _ask(address: str, command: RemotingCommand) -> RemotingCommand:
    """Ask on a new connection. Raises FuzzError without an answer."""
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
