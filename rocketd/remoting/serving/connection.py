"""One accepted connection: bytes in to frames, frames to the dispatcher, answers out.

Counterpart: `NettyServerHandler` and its channel (Apache). Reading and all calls of Twisted belong to the owner's
thread: the reactor thread, or the thread that holds the lock of the connection's lane (see ``lane``).

``write`` may be called from any thread. If nothing is pending, it sends on the socket at once, under a lock. It uses a
duplicate of the socket's descriptor, so a closing connection can never pass that number on to another one. The rest is
written by the reactor, on the same descriptor and without a copy. A connection without such a descriptor, such as one
with TLS, gives its transport copies of bounded size. They count as unsent memory until the transport asks for more.
"""

import socket
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from threading import Lock, get_ident
from typing import Any, NamedTuple, Protocol

from twisted.internet import interfaces
from twisted.internet.error import ConnectionAborted, ConnectionDone
from twisted.internet.interfaces import IReactorFDSet
from twisted.internet.protocol import Protocol as TwistedProtocol
from twisted.internet.protocol import connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from rocketd.common.event_loop.reactor import IReactor
from rocketd.common.logs.throttle import ThrottledLog
from rocketd.remoting.errors import FrameError
from rocketd.remoting.interfaces import IConnection
from rocketd.remoting.limits.frame_budget import FrameBudget
from rocketd.remoting.limits.limit_log import LimitLog
from rocketd.remoting.limits.unsent_budget import UnsentBudget, memory_of
from rocketd.remoting.peer import peer_of
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.remoting.wire.frame import MAX_FRAME_LENGTH, MAX_HEADER_LENGTH, Frame, FrameDecoder

OUTBOUND_LIMIT = 8 << 20
"""Unsent bytes above which requests of a connection are neither read nor handled."""

_CHUNK = 1 << 17
"""Bytes given to a transport at once: as many as Twisted's TCP transports write at once."""
_BUFFERS = 1024
"""Buffers accepted by one system call."""
_PARKED = "parked requests"

Resume = Callable[[Callable[[], None]], None]
"""Resubmits parked requests in the owner's thread. Its argument is called after them."""


def _nothing() -> None:
    """Do nothing: these requests have no waiter."""


class OwnerLane(Protocol):
    """A lane, as seen by its connections."""

    @property
    def reactor(self) -> IReactorFDSet:
        """The event loop of its transports."""

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        """Run a function in an iteration of the lane. Any thread."""

    def is_here(self) -> bool:
        """Return whether the calling thread holds the lock of the lane."""

    def admit(self, connection: "Connection") -> bool:
        """Count a connection that moves here. Return False if the lane has closed. Any thread."""

    def forget(self, connection: "Connection") -> None:
        """Count a connection no more. Any thread."""


class ConnectionLimits(NamedTuple):
    """The limits of a connection, and the budgets shared with others."""

    frame_length: int = MAX_FRAME_LENGTH
    header_length: int = MAX_HEADER_LENGTH
    unsent: int = OUTBOUND_LIMIT
    frames: FrameBudget | None = None
    all_unsent: UnsentBudget | None = None
    resume: int = 0
    """Unsent bytes at which reading resumes. 0 waits until the socket has taken everything."""
    log: LimitLog | None = None


UNSHARED = ConnectionLimits()
"""The limits of a connection without shared budgets."""


@implementer(IConnection, interfaces.IPullProducer, interfaces.IHandshakeListener)
class Connection(TwistedProtocol):
    """A peer that sends requests and, if it is a client, accepts ours.

    ``unsent_memory`` are the unsent bytes in process memory. ``handshake_began`` is the start time of a running TLS
    handshake.
    """

    transport: Any

    def __init__(
        self,
        reactor: IReactor,
        dispatch: Callable[["Connection", list[Frame]], None],
        on_lost: Callable[["Connection"], None],
        limits: ConnectionLimits = UNSHARED,
        log: ThrottledLog | None = None,
    ) -> None:
        self._log = log or ThrottledLog(Logger())
        self.address = "unknown"
        self.host = b""
        self.closed = False
        self.has_asked = False
        """Whether a whole frame has been received."""
        self.fault = ""
        """Why the connection failed, if it did."""
        self.last_active = reactor.seconds()
        self._reactor = reactor
        self._reactor_thread = get_ident()
        self.lane: OwnerLane | None = None
        """The lane that owns this connection, None if the reactor does."""
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
        self._sent_of_first = 0
        """Sent bytes of the first unsent buffer. Its memory is held, and counted, until its last byte is sent."""
        self._outbound_bytes = 0
        self._handed_over = 0
        """Bytes copied to the transport."""
        self._flushing = False
        self._closing = False
        self._pauses: set[object] = set()
        self._boards = False
        """Whether a move to a lane is under way."""
        self._aborted = False

    # ------------------------------------------------------------ the owner

    def board(self, lane: OwnerLane) -> None:
        """Move from the reactor to a lane, in the next iteration of the reactor, if it is possible then. Reactor thread."""
        if not self._boards and self._direct is not None:
            self._boards = True
            self._reactor.callFromThread(self._board, lane)

    def _board(self, lane: OwnerLane) -> None:
        self._boards = False
        with self._lock:
            is_busy = self._flushing or self._pauses or self._parked  # one of the next requests tries again
            if is_busy or self.closed or self._closing or self._aborted or self.lane is not None:
                return
            if not lane.admit(self):
                return
            self.transport.stopReading()
            self.transport.reactor = lane.reactor
            self.lane = lane
        self._later(self.transport.startReading)

    def leave(self) -> None:
        """Move from a lane to the reactor. The thread that holds the lane's lock."""
        transport = self.transport
        with self._lock:
            if self.closed:
                self.lane = None
                return
            transport.stopReading()
            transport.stopWriting()
            transport.reactor = self._reactor
            self.lane = None
        self._later(self._arrive)

    def _arrive(self) -> None:
        if not self.closed:
            if not self._pauses:
                self.transport.startReading()
            if self._flushing or self._closing:
                self.transport.startWriting()

    def _is_here(self) -> bool:
        """Return whether this is the owner's thread."""
        lane = self.lane
        return get_ident() == self._reactor_thread if lane is None else lane.is_here()

    def _call_owner(self, function: Callable[..., object], *arguments: object) -> None:
        """Call a function in the owner's thread: now if this is that thread. Any thread."""
        if self._is_here():
            function(*arguments)
        else:
            self._later(function, *arguments)

    def _later(self, function: Callable[..., object], *arguments: object) -> None:
        """Call a function in the owner's thread, in its next iteration. Any thread."""
        lane = self.lane
        call = self._reactor.callFromThread if lane is None else lane.call
        call(self._call_owner, function, *arguments)  # which calls it again if the connection has moved meanwhile

    def call_reactor(self, function: Callable[..., object], *arguments: object) -> None:
        """Call a function in the reactor thread: now if it owns the connection. The owner's thread."""
        if self.lane is None:
            function(*arguments)
        else:
            self._reactor.callFromThread(function, *arguments)

    # ------------------------------------------------------------ owner's thread: reading

    def connectionMade(self) -> None:
        """Set the peer's address and duplicate the descriptor for direct writes."""
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
                    pass  # out of descriptors: the reactor writes everything

    def handshakeCompleted(self) -> None:
        """Record the end of the TLS handshake."""
        self.handshake_began = None

    def dataReceived(self, data: bytes) -> None:
        """Cut frames and pass them on. Bytes that are not a frame close the connection with one log line."""
        self.last_active = self._reactor.seconds()
        decoder = self._decoder
        try:
            frames = decoder.feed(data)
            if decoder.held or self._held:
                self._count_held(bool(frames))
            if frames:
                self.has_asked = True
                self._dispatch(self, frames)
        except FrameError as error:
            if not error.limit or not self._reached(error.limit, "{address}: closing: {error}", error=error):
                self._log.warn("bad frame", "{address}: closing: {error}", address=self.address, error=error)
            self.fault = str(error)
            self.abandon_frame()

    def _reached(self, kind: str, line: str, **values: Any) -> bool:
        """Count a limit that was reached. Return False without a counter. Any thread."""
        if self._limits.log is None:
            return False
        self._limits.log.reached(kind, line, address=self.address, **values)
        return True

    def _count_held(self, anew: bool) -> None:
        self._held = self._decoder.held
        if self._limits.frames is not None:
            self._limits.frames.changed(self, self._held, self._decoder.missing, anew, self.last_active)

    @property
    def reading_paused(self) -> bool:
        """Whether reading from the peer is paused."""
        return bool(self._pauses)

    def abandon_frame(self) -> None:
        """Drop the partial frame and close at once. The threads that read connections."""
        self._call_owner(self._abandon_frame)

    def _abandon_frame(self) -> None:
        self._forget_frame()
        self.abort()

    def _forget_frame(self) -> None:
        self._decoder.clear()
        self._held = 0
        if self._limits.frames is not None:
            self._limits.frames.forget(self)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Drop unsent bytes and notify the server."""
        if not self.fault and not reason.check(ConnectionDone, ConnectionAborted):
            self.fault = reason.getErrorMessage()
        with self._lock:
            self.closed = True
            self._outbound.clear()
            self._outbound_bytes = self._sent_of_first = self._handed_over = 0
            self._count_unsent(-self.unsent_memory)
            self._parked.clear()
            if self._direct is not None:
                self._direct.close()
                self._direct = None
        self._forget_frame()
        if self.lane is not None:
            self.lane.forget(self)
        self.call_reactor(self._on_lost, self)

    def pause_reading(self, reason: object) -> None:
        """Pause reading until every reason is dropped. The threads that read connections."""
        self._set_pause(self._pause, reason)

    def _set_pause(self, function: Callable[[object], None], reason: object) -> None:
        """Call a function in the owner's thread. In a lane, pauses and resumptions of several threads keep their order."""
        if self.lane is None:
            self._call_owner(function, reason)
        else:
            self._later(function, reason)

    def _pause(self, reason: object) -> None:
        if not self._pauses and not self.closed:
            self.transport.pauseProducing()
        self._pauses.add(reason)

    def resume_reading(self, reason: object) -> None:
        """Drop one pause reason. Reading resumes when none is left. The threads that read connections."""
        self._set_pause(self._resume, reason)

    def _resume(self, reason: object) -> None:
        self._pauses.discard(reason)
        if not self._pauses and not self.closed:
            self.transport.resumeProducing()

    # ------------------------------------------------------------ any thread: writing

    def send(self, command: RemotingCommand) -> None:
        """Write one command."""
        self.write((command.encode(),))

    def write(self, buffers: Sequence[bytes | memoryview]) -> None:
        """Write buffers one after another. Bytes for a closed connection are dropped."""
        with self._lock:
            if self.closed:
                return
            sent = 0
            if self._direct is not None and not self._flushing:
                buffers, sent = self._send_now(self._direct, buffers)
                if not buffers:
                    return
                self._sent_of_first = sent
            before = self._outbound_bytes
            self._outbound.extend(buffers)
            self._outbound_bytes += sum(map(len, buffers)) - sent
            too_much = self._count_unsent(memory_of(buffers))
            then: Callable[[], None] | None = None
            if not self._flushing:
                self._flushing = True
                then = self._start_flushing
            elif before <= self._limits.unsent < self._outbound_bytes:
                then = self._pause_if_behind
        if then is not None:
            self._later(then)
        if too_much and self._limits.all_unsent is not None:
            self._reactor.callFromThread(self._limits.all_unsent.close_largest)

    @property
    def behind(self) -> bool:
        """Whether the peer reads too little, so its requests are not handled at present. Any thread."""
        return self._outbound_bytes > self._limits.unsent or bool(self._parked)

    def park(self, resume: Resume) -> bool:
        """Keep requests until the peer has taken its answers. Meanwhile it is not read from. Any thread.

        Return False if the peer has caught up: the caller continues. The requests of a closed connection are dropped.
        """
        with self._lock:
            if self.closed:
                return True
            if not self.behind:
                return False
            self._parked.append(resume)
        self._reached(
            "requests parked for unsent answers",
            "{address}: its requests wait: it has not read {size} bytes of answers, the limit is {limit} "
            "(serverUnsentMaxBytesPerConnection)",
            size=self._outbound_bytes,
            limit=self._limits.unsent,
        )
        self._later(self._pause, _PARKED)
        return True

    def _resume_parked(self) -> None:
        with self._lock:
            parked, self._parked = self._parked, []
        for index, resume in enumerate(parked, 1):
            resume((lambda: self._later(self._read_on)) if index == len(parked) else _nothing)

    def _read_on(self) -> None:
        if not self._parked:
            self.resume_reading(_PARKED)

    def _count_unsent(self, size: int) -> bool:
        """Count bytes of process memory. Return whether all connections together hold too many."""
        self.unsent_memory += size
        return size != 0 and self._limits.all_unsent is not None and self._limits.all_unsent.add(size)

    def _send_now(
        self, direct: socket.socket, buffers: Sequence[bytes | memoryview]
    ) -> tuple[Sequence[bytes | memoryview], int]:
        """Send as much as the socket takes. Return the rest of the buffers, and the sent bytes of the first of them."""
        try:
            if len(buffers) == 1:
                sent = direct.send(buffers[0])
                return ((), 0) if sent == len(buffers[0]) else (buffers, sent)
            sent = direct.sendmsg(buffers[:_BUFFERS])
        except BlockingIOError:
            return buffers, 0
        except OSError:
            return (), 0  # the peer is gone; the reactor finds out and closes
        for index, buffer in enumerate(buffers):
            if sent < len(buffer):
                return buffers[index:], sent
            sent -= len(buffer)
        return (), 0

    def close(self) -> None:
        """Write pending bytes, then close. Any thread."""
        self._later(self._close)

    def abort(self) -> None:
        """Close at once and drop unsent bytes. The threads that read connections."""
        self._call_owner(self._abort)

    def _abort(self) -> None:
        self._aborted = True
        if not self.closed and self.transport is not None:
            self.transport.abortConnection()

    # ------------------------------------------------------------ owner's thread: the unsent rest

    def _close(self) -> None:
        if not self.closed:
            self._closing = True
            self.transport.loseConnection()

    def _start_flushing(self) -> None:
        if not self.closed:
            self._pause_if_behind()
            self.transport.registerProducer(self, False)

    def _pause_if_behind(self) -> None:
        # Unsent bytes shrink in this thread only, and reading resumes when none is left.
        if self._outbound_bytes > self._limits.unsent and self not in self._pauses:
            self.pause_reading(self)
            self._reached(
                "connections paused for unsent answers",
                "{address}: reading is paused: it has not read {size} bytes of answers, the limit is {limit} "
                "(serverUnsentMaxBytesPerConnection)",
                size=self._outbound_bytes,
                limit=self._limits.unsent,
            )

    def resumeProducing(self) -> None:
        """Called by the transport when it has nothing to write and the socket accepts more: the peer reads."""
        with self._lock:
            if self._direct is not None:
                chunk, progress = b"", self._send_unsent(self._direct)
            else:
                chunk, progress = self._hand_over()
            done = not self._outbound and not chunk
            if done:
                self._flushing = False
        if progress:
            self.last_active = self._reactor.seconds()
        if done:
            if self._closing:
                self.transport.loseConnection()  # Twisted's TLS keeps short writes back, and would lose them now
            self.transport.unregisterProducer()
            self._go_on()
            return
        if chunk:
            self.transport.write(chunk)
        else:
            self.transport.startWriting()
        if self._pauses and self._outbound_bytes <= self._limits.resume > 0:
            self._go_on()

    def _send_unsent(self, direct: socket.socket) -> bool:
        """Send as much as the socket takes of the unsent bytes. Return whether it took anything."""
        buffers = list(islice(self._outbound, _BUFFERS))
        if not buffers:
            return False
        if self._sent_of_first:
            buffers[0] = memoryview(buffers[0])[self._sent_of_first :]
        try:
            sent = direct.sendmsg(buffers)
        except BlockingIOError:
            return False
        except OSError:
            sent = self._outbound_bytes  # the peer is gone; the reactor finds out and closes
        self._take(sent)
        return True

    def _hand_over(self) -> tuple[bytes, bool]:
        """Return a copy of the next bytes for the transport, and whether it has written its previous bytes."""
        progress = self._handed_over > 0
        self._count_unsent(-self._handed_over)
        pieces: list[memoryview] = []
        size = 0
        start = self._sent_of_first
        for buffer in self._outbound:
            piece = memoryview(buffer)[start : start + _CHUNK - size]
            pieces.append(piece)
            size += len(piece)
            start = 0
            if size == _CHUNK:
                break
        chunk = b"".join(pieces)
        self._handed_over = len(chunk)
        self._count_unsent(len(chunk))
        self._take(len(chunk))
        return chunk, progress

    def _take(self, size: int) -> None:
        """Remove sent bytes from the unsent ones."""
        self._outbound_bytes -= size
        size += self._sent_of_first
        while self._outbound and size >= len(self._outbound[0]):
            buffer = self._outbound.popleft()
            size -= len(buffer)
            self._count_unsent(-memory_of((buffer,)))
        self._sent_of_first = size

    def _go_on(self) -> None:
        self._resume_parked()
        self.resume_reading(self)

    def stopProducing(self) -> None:
        """The transport closes: connectionLost cleans up."""
