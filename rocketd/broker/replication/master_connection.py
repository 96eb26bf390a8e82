"""The connection of a slave to its master: reports go out, the log comes in.

Answers to the reading and reporting of Apache's HAClient. All of it belongs to the reactor thread, but for ``waiting``.
"""

import typing
from collections import deque
from typing import Any

from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure

from rocketd.store.errors import StoreError
from rocketd.store.transfer import Transfer, TransferDecoder, TransferError, encode_report

WAITING_BYTES = 4 << 20
"""Bytes that may wait for the storage thread before reading pauses."""


class Slave(typing.Protocol):
    """What a connection needs of its side."""

    def seconds(self) -> float:
        """The time."""

    def connected(self, connection: "MasterConnection") -> None:
        """Have ``begin`` called soon."""

    def append_soon(self, connection: "MasterConnection") -> None:
        """Have what waits appended, and ``appended`` called."""

    def goes_well(self) -> None:
        """What came could be used."""

    def failed(self, connection: "MasterConnection", why: str) -> None:
        """What came cannot be used: close the connection."""

    def lost(self, connection: "MasterConnection", reason: str | None) -> None:
        """The connection is closed: by this side if there is no reason."""


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
        """What the storage thread has to append; it takes from the left."""
        self.waiting_bytes = 0
        self.append_called = False
        self._paused = False
        self.last_read = self.last_write = slave.seconds()

    def connectionMade(self) -> None:
        """Find out what to report."""
        self.transport.setTcpNoDelay(True)
        self._slave.connected(self)

    def begin(self, offset: int, end: int) -> None:
        """Make the first report, of this offset; the log ends there or later."""
        self.expected = offset or None
        self._end = end
        self.report(offset)

    def report(self, offset: int | None = None) -> None:
        """Tell the master what is here, or again what it was told last."""
        if offset is not None:
            self._reported = offset
        if not self.closed and self._reported >= 0:
            self.last_write = self._slave.seconds()
            self.transport.write(encode_report(self._reported))

    def dataReceived(self, data: bytes) -> None:
        """Hand over what is complete."""
        self.last_read = self._slave.seconds()
        if self.closed:
            return
        try:
            for transfer in self._decoder.feed(data):
                self._take(transfer)
        except StoreError as error:
            self._slave.failed(self, str(error))

    def _take(self, transfer: Transfer) -> None:
        if self.expected is not None and transfer.offset != self.expected:
            raise TransferError(
                f"the master sends from offset {transfer.offset}, this log goes on at {self.expected}: it is another log "
                "than the master's, or some of the master's is gone; move this store away and start again with an empty one"
            )
        self.useful = True
        if not transfer.body:
            self._take_heartbeat()
        else:
            self._idle_heartbeats = 0
            self.expected = transfer.offset + len(transfer.body)
            self.waiting.append(transfer)
            self.waiting_bytes += len(transfer.body)
            self._slave.append_soon(self)
            if self.waiting_bytes > WAITING_BYTES and not self._paused:
                self._paused = True
                self.transport.pauseProducing()

    def _take_heartbeat(self) -> None:
        if self.expected is None or self.expected >= self._end:
            self._slave.goes_well()
            return
        # One may come before the master has begun to send.
        self._idle_heartbeats += 1
        if self._idle_heartbeats > 1:
            raise TransferError(
                f"the master sends nothing from offset {self.expected} on, while this log ends at {self._end}: the master "
                "has lost the end of its log, or has deleted what would follow here; if this log is the right one, make "
                "this broker the master, else move this store away and start again with an empty one"
            )

    def appended(self, size: int, end: int) -> None:
        """So many bytes need not wait any more, up to there the log is the master's."""
        self.waiting_bytes -= size
        if self.closed:
            return
        self._slave.goes_well()
        if end > self._reported:
            self.report(end)
        if self._paused and self.waiting_bytes <= WAITING_BYTES // 4:
            self._paused = False
            self.transport.resumeProducing()

    def close(self) -> None:
        """Close at once."""
        if not self.closed:
            self.closed = True
            self.transport.abortConnection()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Tell the slave's side."""
        why = None if self.closed else reason.getErrorMessage()
        self.closed = True
        self._slave.lost(self, why)
