"""One connection to a server over a blocking socket, with any number of requests in flight.

Answers may come in any order. Connections are kept per process and thread: a connection inherited through fork is never
used.
"""

import contextlib
import os
import select
import socket
import ssl
import threading
from collections import deque
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Final

from rocketd.acl.credentials import Credentials
from rocketd.remoting.errors import FrameError
from rocketd.remoting.headers.client import Header, write_header
from rocketd.remoting.wire.codes import request_name
from rocketd.remoting.wire.command import RemotingCommand, next_opaque
from rocketd.remoting.wire.frame import FrameDecoder
from rocketd.spark.errors import NoAnswerError
from rocketd.spark.wire.faults import unreachable
from rocketd.spark.wire.options import ClusterOptions, host_and_port, tls_context

_RECEIVED_AT_ONCE: Final = 1 << 18
_LARGEST_FRAME: Final = 256 * 1024 * 1024
"""Bytes of the largest accepted answer. Tables of all offsets of a large broker exceed the usual limit."""

OnRequest = Callable[["BlockingConnection", RemotingCommand], None]
"""Called with each request that the server sends on its initiative."""


class BlockingConnection:
    """A connected socket to one server. All methods raise NoAnswerError, and so does the constructor."""

    def __init__(self, address: str, options: ClusterOptions) -> None:
        self.address = address
        self.closed = False
        self.on_request: OnRequest | None = None
        self._timeout = options.timeout
        self._decoder = FrameDecoder(_LARGEST_FRAME)
        self._waiting: set[int] = set()
        self._answers: dict[int, RemotingCommand] = {}
        self._asked: deque[RemotingCommand] = deque()
        self._signer = _signer(options)
        self._socket = self._connect(options)

    def _connect(self, options: ClusterOptions) -> socket.socket:
        host, port = host_and_port(self.address)
        plain: socket.socket | None = None
        try:
            plain = socket.create_connection((host, port), self._timeout)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if not options.tls:
                return plain
            return tls_context(options).wrap_socket(plain, server_hostname=host)
        except OSError as error:
            if plain is not None:
                plain.close()
            if isinstance(error, ssl.SSLError):
                lasting = unreachable(self.address, "cannot be spoken to over TLS", error)
                lasting.retriable = not isinstance(error, ssl.SSLCertVerificationError)
                raise lasting from error
            raise unreachable(self.address, "cannot be reached", _reason(error)) from error

    @property
    def signs(self) -> bool:
        """Whether each request must be signed."""
        return self._signer is not None

    def is_alive(self) -> bool:
        """Tell whether the server has kept the connection open. Servers close connections that were idle for long."""
        if self.closed:
            return False
        readable = select.poll()
        readable.register(self._socket, select.POLLIN)
        try:
            while not self.closed and readable.poll(0):
                if not self._receive(0, 0):
                    break
        except NoAnswerError:
            return False
        return not self.closed

    # ------------------------------------------------------------ asking

    def request(
        self,
        code: int,
        header: Header | None = None,
        body: bytes | None = None,
        fields: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> RemotingCommand:
        """Send a request and return its answer, whatever the code. Raises NoAnswerError."""
        return self.wait(self.submit(code, header, body, fields), code, timeout)

    def submit(
        self,
        code: int,
        header: Header | None = None,
        body: bytes | None = None,
        fields: Mapping[str, str] | None = None,
        *,
        oneway: bool = False,
    ) -> int:
        """Send a request and return its number, for `wait`. Raises a doubtful NoAnswerError."""
        texts = dict(fields or {}) if header is None else write_header(header)
        if self._signer is not None:
            texts = self._signer(texts, body)
        command = RemotingCommand(code, texts or None, body, flag=2 if oneway else 0)
        self.write(b"".join(command.encode_parts()), code)
        if not oneway:
            self._waiting.add(command.opaque)
        return command.opaque

    def expect(self) -> int:
        """Reserve a number for a request that the caller encodes itself, and writes next."""
        opaque = next_opaque()
        self._waiting.add(opaque)
        return opaque

    def write(self, data: bytes, code: int) -> None:
        """Write whole frames of requests. Raises NoAnswerError, whose text names their request code."""
        try:
            self._socket.settimeout(self._timeout)
            self._socket.sendall(data)
        except OSError as error:
            raise self._lost(code, _reason(error)) from error

    def wait(self, opaque: int, code: int, timeout: float | None = None) -> RemotingCommand:
        """Return the answer to a request. Raises a doubtful NoAnswerError if none comes in time."""
        answers = self._answers
        ends = monotonic() + (self._timeout if timeout is None else timeout)
        while True:
            answer = answers.pop(opaque, None)
            if answer is not None:
                self._waiting.discard(opaque)
                if self._asked:
                    self._tell()
                return answer
            if self.closed:
                raise self._lost(code, "the connection is closed")
            left = ends - monotonic()
            if left <= 0 or not self._receive(left, code):
                self.forget(opaque)
                raise self._lost(code, f"no answer within {self._timeout if timeout is None else timeout:g} s")

    def forget(self, opaque: int) -> None:
        """Drop the answer to a request, also one that comes later."""
        self._waiting.discard(opaque)
        self._answers.pop(opaque, None)

    def serve(self, seconds: float) -> bool:
        """Wait so many seconds for requests of the server, and pass them to `on_request`. Return whether one came."""
        if not self._asked and not self.closed:
            self._receive(seconds, 0)
        came = bool(self._asked)
        self._tell()
        return came

    def close(self) -> None:
        """Close the socket; requests in flight get no answer."""
        self.closed = True
        with contextlib.suppress(OSError):
            self._socket.close()

    # ------------------------------------------------------------ receiving

    def _receive(self, seconds: float, code: int) -> bool:
        """Receive data within so many seconds. Return whether any came."""
        try:
            self._socket.settimeout(max(seconds, 0.001))
            data = self._socket.recv(_RECEIVED_AT_ONCE)
        except (TimeoutError, ssl.SSLWantReadError):
            return False
        except OSError as error:
            raise self._lost(code, _reason(error)) from error
        if not data:
            raise self._lost(code, "the server closed the connection before it answered")
        try:
            for frame in self._decoder.feed(data):
                command = RemotingCommand.decode(frame)
                if not command.is_response:
                    self._asked.append(command)
                elif command.opaque in self._waiting:
                    self._answers[command.opaque] = command
        except FrameError as error:
            raise self._lost(code, f"it does not speak RocketMQ's protocol: {error}") from error
        return True

    def _tell(self) -> None:
        while self._asked:
            asked = self._asked.popleft()
            if self.on_request is not None:
                self.on_request(self, asked)

    def _lost(self, code: int, reason: object) -> NoAnswerError:
        self.close()
        what = f"did not answer {request_name(code)}" if code else "went away"
        return unreachable(self.address, what, reason, doubtful=True)


def _reason(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__


def _signer(options: ClusterOptions) -> Callable[[Mapping[str, str], bytes | None], dict[str, str]] | None:
    if not options.access_key:
        return None
    return Credentials(options.access_key, options.secret_key, options.security_token or None).sign


# ---------------------------------------------------------------- connections of this process


class _Kept(threading.local):
    def __init__(self) -> None:
        self.process = os.getpid()
        self.connections: dict[tuple[ClusterOptions, str], BlockingConnection] = {}


_kept = _Kept()


def connection_to(address: str, options: ClusterOptions) -> BlockingConnection:
    """Return the connection of this process and thread to a server, opened if needed. Raises NoAnswerError."""
    if _kept.process != os.getpid():
        # The parent process uses those connections. Dropping them here leaves them open in the parent.
        _kept.process = os.getpid()
        _kept.connections = {}
    known = _kept.connections.get((options, address))
    if known is None or not known.is_alive():
        known = _kept.connections[options, address] = BlockingConnection(address, options)
    return known


def close_connections() -> None:
    """Close all connections of this process and thread."""
    if _kept.process == os.getpid():
        for connection in _kept.connections.values():
            connection.close()
    _kept.connections = {}
