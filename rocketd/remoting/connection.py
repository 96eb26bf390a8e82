"""One accepted connection: bytes in to frames, frames to the dispatcher, answers out.

Answers to Apache's NettyServerHandler and channel. Reading and all Twisted calls belong to the reactor thread. ``write``
may be called from any thread: when nothing is pending it sends on the socket at once, under a lock and on a descriptor of
its own, so that a closing connection can never hand that number to another; what the socket does not take is written by
the reactor.
"""

import socket
from collections import deque
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any, NamedTuple

from twisted.internet import interfaces
from twisted.internet.error import ConnectionAborted, ConnectionDone
from twisted.internet.protocol import Protocol, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from rocketd.common.log_throttle import ThrottledLog
from rocketd.remoting.command import RemotingCommand
from rocketd.remoting.errors import FrameError
from rocketd.remoting.frame import MAX_FRAME_LENGTH, MAX_HEADER_LENGTH, Frame, FrameDecoder
from rocketd.remoting.frame_budget import FrameBudget
from rocketd.remoting.interfaces import IConnection
from rocketd.remoting.peer import peer_of
from rocketd.remoting.unsent_budget import UnsentBudget, memory_of

OUTBOUND_LIMIT = 8 << 20
"""Bytes of unsent answers above which no more requests are read from a connection, nor carried out."""

_CHUNK = 1 << 18
_PARKED = "parked requests"

Resume = Callable[[Callable[[], None]], None]
"""Hands parked requests over again, in the reactor thread; what it is given is to be called after them."""


def _nothing() -> None:
    """Nobody waits for these requests."""


class ConnectionLimits(NamedTuple):
    """The limits of a connection, and the budgets that it shares with others."""

    frame_length: int = MAX_FRAME_LENGTH
    header_length: int = MAX_HEADER_LENGTH
    unsent: int = OUTBOUND_LIMIT
    frames: FrameBudget | None = None
    all_unsent: UnsentBudget | None = None
    resume: int = 0
    """Unsent bytes down to which a peer that is behind must come; 0 waits until the socket has taken all."""


UNSHARED = ConnectionLimits()
"""The limits of a connection that shares no budget."""


@implementer(IConnection, interfaces.IPullProducer, interfaces.IHandshakeListener)
class Connection(Protocol):
    """A peer that sends requests and, if it is a client, takes ours.

    ``unsent_memory`` are the unsent bytes that are memory of their own; ``handshake_began`` is the time at which a TLS
    handshake began that is not over.
    """

    transport: Any

    def __init__(
        self,
        reactor: Any,
        dispatch: Callable[["Connection", list[Frame]], None],
        on_lost: Callable[["Connection"], None],
        limits: ConnectionLimits = UNSHARED,
        log: ThrottledLog | None = None,
    ) -> None:
        self._log = log or ThrottledLog(Logger())
        self.address = "unknown"
        self.host = b""
        self.closed = False
        self.fault = ""
        """Why the connection failed, if it did."""
        self.last_active = reactor.seconds()
        self._reactor = reactor
        self._dispatch = dispatch
        self._on_lost = on_lost
        self.unsent_memory = 0
        self.handshake_began: float | None = None
        self._limits = limits
        self._decoder = FrameDecoder(limits.frame_length, limits.header_length)
        self._held = 0
        self._parked: list[Resume] = []
        self._lock = Lock()
        self._direct: socket.socket | None = None
        self._outbound: deque[bytes | memoryview] = deque()
        self._outbound_bytes = 0
        self._flushing = False
        self._pauses: set[object] = set()

    # ------------------------------------------------------------ reactor thread: reading

    def connectionMade(self) -> None:
        """Learn the peer's address and take a descriptor for direct writes."""
        self.address, self.host = peer_of(self.transport.getPeer())
        if interfaces.ISSLTransport.providedBy(self.transport):
            self.handshake_began = self._reactor.seconds()
        if interfaces.ITCPTransport.providedBy(self.transport) and not interfaces.ISSLTransport.providedBy(
            self.transport
        ):
            self.transport.setTcpNoDelay(True)
            plain = getattr(self.transport, "socket", None)
            if plain is not None:
                try:
                    self._direct = plain.dup()
                except OSError:
                    pass  # no descriptor left: the reactor writes everything

    def handshakeCompleted(self) -> None:
        """The TLS handshake is over."""
        self.handshake_began = None

    def dataReceived(self, data: bytes) -> None:
        """Cut frames and hand them on. Bytes that are not a frame close the connection with one log line."""
        self.last_active = self._reactor.seconds()
        decoder = self._decoder
        try:
            frames = decoder.feed(data)
            if decoder.held or self._held:
                self._count_held(bool(frames))
            if frames:
                self._dispatch(self, frames)
        except FrameError as error:
            self._log.warn("bad frame", "{address}: closing: {error}", address=self.address, error=error)
            self.fault = str(error)
            self.abandon_frame()

    def _count_held(self, anew: bool) -> None:
        self._held = self._decoder.held
        if self._limits.frames is not None:
            self._limits.frames.changed(self, self._held, self._decoder.missing, anew, self.last_active)

    @property
    def reading_paused(self) -> bool:
        """Whether nothing is read from the peer."""
        return bool(self._pauses)

    def abandon_frame(self) -> None:
        """Drop the part of a frame that is held and close at once."""
        self._forget_frame()
        self.abort()

    def _forget_frame(self) -> None:
        self._decoder.clear()
        self._held = 0
        if self._limits.frames is not None:
            self._limits.frames.forget(self)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Drop what is unsent and tell the server."""
        if not self.fault and not reason.check(ConnectionDone, ConnectionAborted):
            self.fault = reason.getErrorMessage()
        with self._lock:
            self.closed = True
            self._outbound.clear()
            self._outbound_bytes = 0
            self._count_unsent(-self.unsent_memory)
            self._parked.clear()
            if self._direct is not None:
                self._direct.close()
                self._direct = None
        self._forget_frame()
        self._on_lost(self)

    def pause_reading(self, reason: object) -> None:
        """Read no more until every reason is taken back."""
        if not self._pauses and not self.closed:
            self.transport.pauseProducing()
        self._pauses.add(reason)

    def resume_reading(self, reason: object) -> None:
        """Take a reason back."""
        self._pauses.discard(reason)
        if not self._pauses and not self.closed:
            self.transport.resumeProducing()

    # ------------------------------------------------------------ any thread: writing

    def send(self, command: RemotingCommand) -> None:
        """Write one command."""
        self.write((command.encode(),))

    def write(self, buffers: Sequence[bytes | memoryview]) -> None:
        """Write buffers one after the other. Bytes for a closed connection are dropped."""
        with self._lock:
            if self.closed:
                return
            if self._direct is not None and not self._flushing:
                buffers = self._send_now(self._direct, buffers)
                if not buffers:
                    return
            before = self._outbound_bytes
            self._outbound.extend(buffers)
            self._outbound_bytes += sum(map(len, buffers))
            too_much = self._count_unsent(memory_of(buffers))
            then: Callable[[], None] | None = None
            if not self._flushing:
                self._flushing = True
                then = self._start_flushing
            elif before <= self._limits.unsent < self._outbound_bytes:
                then = self._pause_if_behind
        if then is not None:
            self._reactor.callFromThread(then)
        if too_much and self._limits.all_unsent is not None:
            self._reactor.callFromThread(self._limits.all_unsent.relieve)

    @property
    def behind(self) -> bool:
        """Whether the peer takes so little that none of its requests are carried out at present. Any thread."""
        return self._outbound_bytes > self._limits.unsent or bool(self._parked)

    def park(self, resume: Resume) -> bool:
        """Keep requests until the peer has taken its answers; no more of them are read meanwhile. Any thread.

        Returns False if the peer is not behind any more: the caller goes on. The requests of a closed connection are
        dropped.
        """
        with self._lock:
            if self.closed:
                return True
            if not self.behind:
                return False
            self._parked.append(resume)
        self._reactor.callFromThread(self.pause_reading, _PARKED)
        return True

    def _resume_parked(self) -> None:
        with self._lock:
            parked, self._parked = self._parked, []
        for index, resume in enumerate(parked, 1):
            resume((lambda: self._reactor.callFromThread(self._read_on)) if index == len(parked) else _nothing)

    def _read_on(self) -> None:
        if not self._parked:
            self.resume_reading(_PARKED)

    def _count_unsent(self, size: int) -> bool:
        """Count bytes that are memory of their own; returns whether all connections hold too many."""
        self.unsent_memory += size
        return size != 0 and self._limits.all_unsent is not None and self._limits.all_unsent.add(size)

    def _send_now(self, direct: socket.socket, buffers: Sequence[bytes | memoryview]) -> Sequence[bytes | memoryview]:
        """Send what the socket takes, and return the rest."""
        try:
            sent = direct.send(buffers[0]) if len(buffers) == 1 else direct.sendmsg(buffers[:1024])
        except BlockingIOError:
            return buffers
        except OSError:
            return ()  # the peer is gone; the reactor finds out and closes
        for index, buffer in enumerate(buffers):
            if sent < len(buffer):
                return [memoryview(buffer)[sent:], *buffers[index + 1 :]]
            sent -= len(buffer)
        return ()

    def close(self) -> None:
        """Write what is pending, then close. Any thread."""
        self._reactor.callFromThread(self._close)

    def abort(self) -> None:
        """Close at once, unsent bytes or not. Reactor thread."""
        if not self.closed and self.transport is not None:
            self.transport.abortConnection()

    # ------------------------------------------------------------ reactor thread: the unsent rest

    def _close(self) -> None:
        if not self.closed:
            self.transport.loseConnection()

    def _start_flushing(self) -> None:
        if not self.closed:
            self._pause_if_behind()
            self.transport.registerProducer(self, False)

    def _pause_if_behind(self) -> None:
        # What is unsent shrinks in this thread only, and reading resumes when nothing is left.
        if self._outbound_bytes > self._limits.unsent:
            self.pause_reading(self)

    def resumeProducing(self) -> None:
        """Called by the transport whenever it has written all that it had: the peer reads."""
        self.last_active = self._reactor.seconds()
        with self._lock:
            chunk: list[bytes | memoryview] = []
            size = 0
            while self._outbound and size < _CHUNK:
                chunk.append(self._outbound.popleft())
                size += len(chunk[-1])
            self._outbound_bytes -= size
            self._count_unsent(-memory_of(chunk))
            if not chunk:
                self._flushing = False
        if chunk:
            self.transport.write(b"".join(chunk))
            if self._pauses and self._outbound_bytes <= self._limits.resume > 0:
                self._go_on()
        else:
            self.transport.unregisterProducer()
            self._go_on()

    def _go_on(self) -> None:
        self._resume_parked()
        self.resume_reading(self)

    def stopProducing(self) -> None:
        """The transport closes: connectionLost cleans up."""
