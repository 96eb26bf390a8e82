"""One slave, as its master sees it: what it has, and what is sent to it.

Answers to Apache's HAConnection. The log is sent from the slave's first report on, as fast as the slave takes it: what is
appended goes out at once, and nothing is read from the log while the socket is full. All of it belongs to the reactor
thread.
"""

import typing
from typing import Any

from OpenSSL import SSL
from twisted.internet.interfaces import IPushProducer
from twisted.internet.protocol import Protocol, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from rocketd.remoting.tls import ssl_reason
from rocketd.store.message_store import MessageStore
from rocketd.store.transfer import ReportDecoder, encode_header


class Master(typing.Protocol):
    """What a connection needs of its side."""

    store: MessageStore

    def seconds(self) -> float:
        """The time."""

    def first_reported(self, slave: "SlaveConnection") -> None:
        """Have ``identified`` called if the connection is that of a slave, or close it."""

    def identified(self, slave: "SlaveConnection") -> None:
        """Count a slave."""

    def disconnected(self, slave: "SlaveConnection", fault: str | None) -> None:
        """Forget a connection. ``fault`` says what was wrong with it, if anything was."""

    def reported(self, slave: "SlaveConnection", offset: int) -> None:
        """A slave has the log up to an offset."""


@implementer(IPushProducer)
class SlaveConnection(Protocol):
    """The connection to one slave.

    ``reported_offset`` is what the slave has, -1 before its first report; ``next_offset`` is where sending goes on. Both
    stay so until the connection is identified: see `admission`.
    """

    transport: Any
    _log = Logger()

    def __init__(self, master: Master, batch_size: int, address: str = "?") -> None:
        """``batch_size`` is the most bytes of a frame, ``address`` is the peer's, ``host:port``."""
        self._master = master
        self._batch_size = batch_size
        self._decoder = ReportDecoder()
        self._paused = False
        self.address = address
        self.host = address.rpartition(":")[0]
        self.reported_offset = -1
        self.next_offset = -1
        self.last_read = self.last_write = master.seconds()
        self.closed = False
        self._is_identified = False
        self._first_report: int | None = None

    def connectionMade(self) -> None:
        """Ask to be told when the socket is full."""
        self.transport.setTcpNoDelay(True)
        self.transport.registerProducer(self, True)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Tell the master's side."""
        self.closed = True
        error = reason.value
        self._master.disconnected(self, f"TLS failed: {ssl_reason(error)}" if isinstance(error, SSL.Error) else None)

    def dataReceived(self, data: bytes) -> None:
        """Take a report: the first says where to begin."""
        self.last_read = self._master.seconds()
        offset = self._decoder.feed(data)
        if offset is None or self.closed:
            return
        if self._is_identified:
            self._take(offset)
            return
        is_first, self._first_report = self._first_report is None, offset
        if is_first:
            self._master.first_reported(self)

    @property
    def has_certificate(self) -> bool:
        """Whether the slave has shown a certificate; one that was not verified ends the connection before."""
        certificate = getattr(self.transport, "getPeerCertificate", None)
        return certificate is not None and certificate() is not None

    def identified(self) -> None:
        """Serve the slave from now on."""
        if not self.closed and self._first_report is not None:
            self._is_identified = True
            self._master.identified(self)
            self._take(self._first_report)

    def abort(self) -> None:
        """Close at once."""
        self.closed = True
        self.transport.abortConnection()

    def _take(self, offset: int) -> None:
        fault = self._fault(offset)
        if fault is not None:
            self.drop(fault)
            return
        if self.next_offset < 0:
            self.next_offset = self._first(offset)
            self._log.info(
                "slave {address} has the log up to {offset}; sending from {begin} on",
                address=self.address,
                offset=offset,
                begin=self.next_offset,
            )
        self.reported_offset = offset
        self._master.reported(self, offset)
        self.send()

    def _first(self, offset: int) -> int:
        """Where to begin: for an empty slave at the last file, as what is before is to expire soonest."""
        if offset:
            return offset
        store = self._master.store
        end = store.max_physical_offset()
        return end - end % store.config.mapped_file_size_commit_log

    def _fault(self, offset: int) -> str | None:
        """Why a slave with the log up to an offset cannot be served; None when it can."""
        store = self._master.store
        end = store.max_physical_offset()
        if not 0 <= offset <= end:
            return (
                f"it has the log up to offset {offset}, which ends at {end} here: the logs have parted, or it is the slave "
                "of another master; move the slave's store away and start it again with an empty one"
            )
        begin = store.min_physical_offset()
        if self.next_offset < 0 and 0 < offset < begin:
            return (
                f"it has the log up to offset {offset}, and what follows has expired: the log begins at {begin} here; move "
                "the slave's store away and start it again with an empty one"
            )
        return None

    def send(self) -> None:
        """Send what is new, as much as the socket takes."""
        while self.next_offset >= 0 and not self._paused and not self.closed:
            data = self._master.store.commit_log.data_from(self.next_offset)
            if data is None or not len(data):
                if self.next_offset < self._master.store.min_physical_offset():
                    self.drop(f"what follows offset {self.next_offset} has expired while it was slow")
                return
            body = data[: self._batch_size]
            self.transport.write(b"".join((encode_header(self.next_offset, len(body)), body)))
            self.next_offset += len(body)
            self.last_write = self._master.seconds()

    def heartbeat(self) -> None:
        """Tell a slave that waits for news that this master is there."""
        if self.next_offset >= 0 and not self._paused:
            self.transport.write(encode_header(self.next_offset, 0))
            self.last_write = self._master.seconds()

    def drop(self, why: str) -> None:
        """Close at once, and say why."""
        if not self.closed:
            self.closed = True
            self._log.error("slave {address} is disconnected: {why}", address=self.address, why=why)
            self.transport.abortConnection()

    # ------------------------------------------------------------ IPushProducer

    def pauseProducing(self) -> None:
        """The socket is full."""
        self._paused = True

    def resumeProducing(self) -> None:
        """The socket takes more."""
        self._paused = False
        self.send()

    def stopProducing(self) -> None:
        """The connection is lost."""
        self._paused = True
