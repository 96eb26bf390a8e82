"""The connection of a slave to its master: reports go out, the log comes in.

Everything belongs to the reactor thread, except ``waiting``. On a plain connection, reading belongs to the thread of a
`LogReceiver` from ``begin`` on.

Counterpart: the reading and reporting of `HAClient` (Apache).
"""

import typing
from collections import deque
from typing import Any

from twisted.internet.interfaces import IHandshakeListener
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer

from rocketd.broker.replication.as_master.log_sender import duplicate_socket
from rocketd.broker.replication.as_slave.log_receiver import LogReceiver
from rocketd.store.base.errors import StoreError
from rocketd.store.log.transfer import Transfer, TransferDecoder, TransferError, encode_report

WAITING_BYTES = 4 << 20
"""The number of bytes waiting for the storage thread above which reading pauses."""


class Slave(typing.Protocol):
    """The slave's side, as its connection needs it."""

    def seconds(self) -> float:
        """The time in seconds."""

    def connected(self, connection: "MasterConnection") -> None:
        """Arrange a call of ``begin``."""

    def verified(self, connection: "MasterConnection") -> None:
        """Take note that the master has shown its certificate."""

    def append_soon(self, connection: "MasterConnection") -> None:
        """Have the waiting data appended, and ``appended`` called."""

    def append(self, offset: int, data: bytes) -> int:
        """Append contiguous data now. Return the offset up to which this log equals the master's.

        Thread of the receiver. Raises StoreError.
        """

    def dispatch(self) -> None:
        """Make the appended messages visible. Thread of the receiver."""

    def receiver_ended(self, connection: "MasterConnection", failure: Exception | None) -> None:
        """Go on after the end of the receiver. Its thread."""

    def mark_usable(self) -> None:
        """Record that the received data was usable. Any thread."""

    def failed(self, connection: "MasterConnection", why: str) -> None:
        """Close the connection because the received data is unusable."""

    def lost(self, connection: "MasterConnection", reason: str | None) -> None:
        """Record that the connection is closed: by this side if ``reason`` is None."""


@implementer(IHandshakeListener)
class MasterConnection(Protocol):
    """The connection to the master. ``expected`` is the offset of its next frame, None while this log is empty."""

    transport: Any

    def __init__(self, slave: Slave) -> None:
        self._slave = slave
        self._decoder = TransferDecoder()
        self._reported = -1
        self._end = 0
        self._idle_heartbeats = 0
        self.expected: int | None = None
        self.closed = False
        self.useful = False
        self.waiting: deque[Transfer] = deque()
        """The transfers to append; the storage thread takes from the left."""
        self.waiting_bytes = 0
        self.append_called = False
        self._paused = False
        self._read_early = False
        self.receiver: LogReceiver | None = None
        self.last_read = self.last_write = slave.seconds()

    def connectionMade(self) -> None:
        """Ask for the offset to report first."""
        self.transport.setTcpNoDelay(True)
        self._slave.connected(self)

    def handshakeCompleted(self) -> None:
        """Tell that the certificate is verified: a wrong one has ended the connection."""
        self._slave.verified(self)

    def begin(self, offset: int, end: int) -> None:
        """Send the first report, with this offset. The log ends at ``end`` or later."""
        self.expected = offset or None
        self._end = end
        # Bytes that arrived before the first report are handled already, and so are all others then.
        direct = None if self.closed or self._read_early else duplicate_socket(self.transport)
        if direct is not None:
            self.transport.pauseProducing()
            self.receiver = LogReceiver(
                direct,
                self._received,
                self._slave.dispatch,
                lambda failure: self._slave.receiver_ended(self, failure),
            )
        self.report(offset)
        if self.receiver is not None:
            self.receiver.start()

    def report(self, offset: int | None = None) -> None:
        """Report an offset to the master, or repeat the last report."""
        if offset is not None:
            self._reported = offset
        if not self.closed and self._reported >= 0:
            self.last_write = self._slave.seconds()
            if self.receiver is None:
                self.transport.write(encode_report(self._reported))
            else:
                self.receiver.reports.send(self._reported)

    @property
    def has_unsent_report(self) -> bool:
        """Whether the socket was full at the last report."""
        return self.receiver is not None and self.receiver.reports.unsent

    def dataReceived(self, data: bytes) -> None:
        """Hand over complete frames."""
        self.last_read = self._slave.seconds()
        self._read_early = True
        if self.closed:
            return
        try:
            for transfer in self._decoder.feed(data):
                self._take(transfer)
        except StoreError as error:
            self._slave.failed(self, str(error))

    def _take(self, transfer: Transfer) -> None:
        if self._is_data(transfer):
            self.waiting.append(transfer)
            self.waiting_bytes += len(transfer.body)
            self._slave.append_soon(self)
            if self.waiting_bytes > WAITING_BYTES and not self._paused:
                self._paused = True
                self.transport.pauseProducing()

    def _is_data(self, transfer: Transfer) -> bool:
        """Check the next frame. Return whether it has data. Raises TransferError."""
        if self.expected is not None and transfer.offset != self.expected:
            raise TransferError(
                f"the master sends from offset {transfer.offset}, but this log goes on at {self.expected}: the two "
                "logs differ, or the master has lost a part of its log; move this store away and start again with an "
                "empty one"
            )
        self.useful = True
        if not transfer.body:
            self._take_heartbeat()
            return False
        self._idle_heartbeats = 0
        self.expected = transfer.offset + len(transfer.body)
        return True

    def _take_heartbeat(self) -> None:
        if self.expected is None or self.expected >= self._end:
            self._slave.mark_usable()
            return
        # One may arrive before the master has begun to send.
        self._idle_heartbeats += 1
        if self._idle_heartbeats > 1:
            raise TransferError(
                f"the master sends nothing from offset {self.expected} on, but this log ends at {self._end}: the "
                "master has lost the end of its log, or has deleted the messages after it; if this log is the right "
                "one, make this broker the master, otherwise move this store away and start again with an empty one"
            )

    def appended(self, size: int, end: int) -> None:
        """Record that ``size`` bytes are appended, and that the log equals the master's up to ``end``."""
        self.waiting_bytes -= size
        if self.closed:
            return
        self._slave.mark_usable()
        if end > self._reported:
            self.report(end)
        if self._paused and self.waiting_bytes <= WAITING_BYTES // 4:
            self._paused = False
            self.transport.resumeProducing()

    def _received(self, data: bytes) -> None:
        """Append the data of complete frames, and report. Thread of the receiver."""
        self.last_read = self._slave.seconds()
        bodies: list[Transfer] = []
        try:
            bodies.extend(filter(self._is_data, self._decoder.feed(data)))
        finally:  # also the data before a frame that is not valid
            if bodies and not self.closed:
                self._append(bodies)

    def _append(self, bodies: list[Transfer]) -> None:
        data = bodies[0].body if len(bodies) == 1 else b"".join([transfer.body for transfer in bodies])
        end = self._slave.append(bodies[0].offset, data)
        self._slave.mark_usable()
        if end > self._reported:
            self.report(end)

    def read_on(self) -> None:
        """Have the reactor read again after the end of the receiver: it finds the end of the connection."""
        if not self.closed:
            self.transport.resumeProducing()

    def close(self) -> None:
        """Close at once."""
        if not self.closed:
            self.closed = True
            self._stop_receiver()
            self.transport.abortConnection()

    def _stop_receiver(self) -> None:
        if self.receiver is not None:
            self.receiver.stop()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Inform the slave's side."""
        why = None if self.closed else reason.getErrorMessage()
        self.closed = True
        self._stop_receiver()
        self._slave.lost(self, why)
