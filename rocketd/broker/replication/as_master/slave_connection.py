"""One slave, as its master sees it: its reported offset, and the data sent to it.

The log is sent from the slave's first report on, as fast as the slave accepts it. Appended data goes out at once;
nothing is read from the log while the socket is full. Everything belongs to the reactor thread, except
``send_appended``.

On a plain connection, a `LogSender` writes to the socket. With TLS, the transport gets the frames.

Counterpart: `HAConnection` (Apache).
"""

import typing
from typing import Any

from OpenSSL import SSL
from twisted.internet.interfaces import IPullProducer, IPushProducer
from twisted.internet.protocol import Protocol, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from rocketd.broker.replication.as_master.log_sender import LogFrames, LogSender, duplicate_socket
from rocketd.remoting.tls.contexts import ssl_reason
from rocketd.store.base.settings import MessageStoreConfig
from rocketd.store.interfaces import IMessageStore
from rocketd.store.log.transfer import ReportDecoder, encode_header


class MasterSide(typing.Protocol):
    """The master's side, as its connections need it."""

    config: MessageStoreConfig
    store: IMessageStore

    def seconds(self) -> float:
        """The time in seconds."""

    def first_reported(self, slave: "SlaveConnection") -> None:
        """Have ``identified`` called if the connection is a slave's, or close it."""

    def identified(self, slave: "SlaveConnection") -> None:
        """Add a slave."""

    def disconnected(self, slave: "SlaveConnection", fault: str | None) -> None:
        """Forget a connection. ``fault`` describes a problem, if there was one."""

    def reported(self, slave: "SlaveConnection", offset: int) -> None:
        """Record that a slave has the log up to an offset."""


@implementer(IPushProducer, IPullProducer)
class SlaveConnection(Protocol):
    """The connection to one slave.

    ``reported_offset`` is the end of the slave's log, -1 until the connection is identified: see `admission`.
    """

    transport: Any
    _log = Logger()

    def __init__(self, master: MasterSide, batch_size: int, address: str = "?") -> None:
        """``batch_size`` is the maximum size of a frame in bytes; ``address`` is the peer's, ``host:port``."""
        self._master = master
        self._decoder = ReportDecoder()
        self._paused = False
        self.address = address
        self.host = address.rpartition(":")[0]
        self.reported_offset = -1
        self._batch_size = batch_size
        self._frames: LogFrames | None = None
        """Set with the first offset to send."""
        self._sender: LogSender | None = None
        """None if the transport sends."""
        self._flushing = False
        """Whether the reactor waits until the socket accepts more."""
        self.last_read = self.last_write = master.seconds()
        self.closed = False
        self._is_identified = False
        self._first_report: int | None = None

    def connectionMade(self) -> None:
        """Send without delay."""
        self.transport.setTcpNoDelay(True)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Inform the master's side."""
        self.closed = True
        if self._sender is not None:
            self._sender.close()
        error = reason.value
        self._master.disconnected(self, f"TLS failed: {ssl_reason(error)}" if isinstance(error, SSL.Error) else None)

    def dataReceived(self, data: bytes) -> None:
        """Handle a report. The first one says where to begin."""
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
        """Whether the slave has shown a certificate. An unverified one would have ended the connection."""
        certificate = getattr(self.transport, "getPeerCertificate", None)
        return certificate is not None and certificate() is not None

    @property
    def is_local(self) -> bool:
        """Whether it comes from an address of this machine: both of its ends have the same."""
        return bool(self.transport.getPeer().host == self.transport.getHost().host)

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
        if self._frames is None:
            self._begin(offset)
        self.reported_offset = offset
        self._master.reported(self, offset)
        self.send()

    def _begin(self, offset: int) -> None:
        """Choose the first offset to send, and the way to the socket."""
        frames = LogFrames(self._master.store, self._batch_size)
        frames.next_offset = self._first(offset)
        direct = duplicate_socket(self.transport)
        if direct is None:
            self.transport.registerProducer(self, True)
        else:
            self._sender = LogSender(direct, frames)
        self._frames = frames
        self._log.info(
            "slave {address} has the log up to {offset}; sending from {begin} on",
            address=self.address,
            offset=offset,
            begin=frames.next_offset,
        )

    def _first(self, offset: int) -> int:
        """Return the offset to begin at. For an empty slave it is the last file: older ones expire soonest."""
        if offset:
            return offset
        end = self._master.store.max_physical_offset()
        return end - end % self._master.config.mapped_file_size_commit_log

    def _fault(self, offset: int) -> str | None:
        """Return why a slave with this log end cannot be served; None if it can."""
        store = self._master.store
        end = store.max_physical_offset()
        if not 0 <= offset <= end:
            return (
                f"it has the log up to offset {offset}, but the log of this master ends at {end}: the logs have "
                "diverged, or it is the slave of another master; move the slave's store away and start it again with "
                "an empty one"
            )
        if self._frames is None and 0 < offset < (begin := store.min_physical_offset()):
            return (
                f"it has the log up to offset {offset}, but the messages after it have expired: the log of this "
                f"master begins at {begin}; move "
                "the slave's store away and start it again with an empty one"
            )
        return None

    def send(self) -> None:
        """Send new data, as much as the socket accepts."""
        frames = self._frames
        if frames is None or self.closed:
            return
        if self._sender is None:
            while not self._paused and (buffers := frames.take(1, frames.end)):
                self.transport.write(b"".join(buffers))
                self.last_write = self._master.seconds()
        elif not self._flushing and self._sender.has_work:
            self.last_write = self._master.seconds()
            if not self._sender.send():
                self._flush()
        if frames.expired:
            self.drop(f"it was too slow, and the messages after offset {frames.next_offset} have expired")

    def _flush(self) -> None:
        """Have ``resumeProducing`` called whenever the socket accepts more."""
        self._flushing = True
        self.transport.registerProducer(self, False)

    def send_appended(self) -> bool:
        """Send new data from the thread that has appended it. Return whether the reactor need not call ``send``."""
        if self._frames is None or self._flushing or self.closed:
            return True
        if self._sender is None:
            return False
        self.last_write = self._master.seconds()
        return self._sender.send_recent()

    def heartbeat(self) -> None:
        """Show an idle slave that this master is alive."""
        if self._frames is None or self._paused or self._flushing:
            return
        if self._sender is None:
            self.transport.write(encode_header(self._frames.next_offset, 0))
        elif not self._sender.send_heartbeat():
            self._flush()
        self.last_write = self._master.seconds()

    def drop(self, why: str) -> None:
        """Close at once, and log why."""
        if not self.closed:
            self.closed = True
            self._log.error("slave {address} is disconnected: {why}", address=self.address, why=why)
            self.transport.abortConnection()

    # ------------------------------------------------------------ IPushProducer and IPullProducer

    def pauseProducing(self) -> None:
        """Pause: the socket is full."""
        self._paused = True

    def resumeProducing(self) -> None:
        """Continue: the socket has space."""
        self._paused = False
        if self._sender is not None:
            self.last_write = self._master.seconds()
            if not self._sender.send():
                self.transport.startWriting()
                return
            self._flushing = False
            self.transport.unregisterProducer()
        self.send()

    def stopProducing(self) -> None:
        """Stop: the connection is lost."""
        self._paused = True
