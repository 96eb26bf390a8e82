"""The slave's side of replication: follows the log of its master.

The slave reports the end of its log, appends received data, and reports again. While the disk is slower than the
network, it pauses reading. A lost or silent connection is replaced. Everything belongs to the reactor thread unless a
method says otherwise.

The storage thread appends data from TLS connections. The thread of a `LogReceiver` does everything for a plain
connection. Only one of them appends: the storage thread waits for the end of the last receiver before it begins.

Counterpart: `HAClient` (Apache).
"""

from collections.abc import Callable
from typing import Any

from twisted.internet.abstract import isIPAddress
from twisted.internet.endpoints import TCP4ClientEndpoint, TCP6ClientEndpoint
from twisted.internet.interfaces import IDelayedCall, IStreamClientEndpoint
from twisted.internet.protocol import Factory
from twisted.logger import Logger
from twisted.protocols.tls import TLSMemoryBIOFactory
from twisted.python.failure import Failure

from rocketd.broker.replication.as_slave.log_receiver import LogReceiver
from rocketd.broker.replication.as_slave.master_connection import MasterConnection
from rocketd.common.event_loop.clocked_loop import ClockedLoop
from rocketd.common.event_loop.reactor import IReactor
from rocketd.remoting.calling.channel_table import split_address
from rocketd.remoting.calling.host_endpoint import HostEndpoint
from rocketd.remoting.errors import RemotingConnectError
from rocketd.remoting.serving.pools import Pool
from rocketd.remoting.tls.contexts import ClientTLS
from rocketd.store.base.errors import StoreError
from rocketd.store.base.settings import MessageStoreConfig
from rocketd.store.interfaces import IMessageStore

RECONNECT_SECONDS = 5.0
CONNECT_SECONDS = 5.0
_WATCH_SECONDS = 1.0


class ReplicationSlave:
    """Follows a master, whose address may change: ``follow``. ``storage`` is the pool of the storage thread."""

    _log = Logger()

    def __init__(
        self,
        config: MessageStoreConfig,
        reactor: IReactor,
        storage: Pool,
        reached: Callable[[str], None],
        tls: ClientTLS | None = None,
    ) -> None:
        """With ``tls``, connections are encrypted, and the master shows a certificate.

        ``reached`` is called with the host of a master after it has shown it, or if it has the address of haMasterAddress.
        """
        self._config = config
        self._reached = reached
        self._tls = tls
        self._reactor = reactor
        self._storage = storage
        self._store: IMessageStore
        self.master_address: str | None = None
        self.connection: MasterConnection | None = None
        self._receiver: LogReceiver | None = None
        """The last one, which may have ended."""
        self._attempt: Any = None
        self._retry: IDelayedCall | None = None
        self._running = False
        self._trouble = ""
        self._watch = ClockedLoop(reactor, self._check_connection)

    def start(self, store: IMessageStore) -> None:
        """Begin to follow."""
        self._store = store
        self._running = True
        seconds = min(
            _WATCH_SECONDS,
            self._config.ha_send_heartbeat_interval / 4000,
            self._config.ha_housekeeping_interval / 4000,
        )
        self._watch.start(seconds, now=False)
        self._connect()

    def stop(self) -> None:
        """Stop following. Received data may still be appended."""
        self._running = False
        if self._watch.running:
            self._watch.stop()
        self._disconnect()

    @property
    def has_receiver(self) -> bool:
        """Whether a thread appends, or has appended."""
        return self._receiver is not None

    def join(self) -> None:
        """Wait until the last thread that appends has ended. Not in the reactor thread."""
        if self._receiver is not None:
            self._receiver.join()

    def follow(self, address: str) -> None:
        """Follow the master whose replication port has this address."""
        if address != self.master_address:
            self._log.info("the master's log is at {address} (was: {old})", address=address, old=self.master_address)
            self.master_address = address
            self._trouble = ""
            self._disconnect()
            self._connect()

    def seconds(self) -> float:
        """The reactor's time."""
        seconds: float = self._reactor.seconds()
        return seconds

    # ------------------------------------------------------------ connections

    def _connect(self) -> None:
        if not self._running or self.master_address is None or self.connection is not None or self._attempt is not None:
            return
        address = self.master_address
        try:
            host, port = split_address(address)
            endpoint = self._endpoint(host, port)
        except RemotingConnectError as error:
            self._complain(f"cannot connect to the master: {error}")
            return
        factory: Any = Factory.forProtocol(lambda: MasterConnection(self))
        factory.noisy = False
        if self._tls is not None:
            factory = TLSMemoryBIOFactory(self._tls.connection_creator(host), True, factory, clock=self._reactor)
        attempt = self._attempt = endpoint.connect(factory)

        def done(result: object) -> None:
            if self._attempt is attempt:
                self._attempt = None
            if isinstance(result, Failure) and self._running and address == self.master_address:
                self._complain(f"cannot connect to the master at {address}: {result.getErrorMessage()}")
                self._connect_later(RECONNECT_SECONDS)

        attempt.addBoth(done)

    def _endpoint(self, host: str, port: int) -> IStreamClientEndpoint:
        if ":" in host:
            return TCP6ClientEndpoint(self._reactor, host, port, CONNECT_SECONDS)
        if isIPAddress(host):
            return TCP4ClientEndpoint(self._reactor, host, port, CONNECT_SECONDS)
        return HostEndpoint(self._reactor, host, port, CONNECT_SECONDS)

    def _connect_later(self, seconds: float) -> None:
        if self._running and (self._retry is None or not self._retry.active()):
            self._retry = self._reactor.callLater(seconds, self._connect)

    def _disconnect(self) -> None:
        if self._retry is not None and self._retry.active():
            self._retry.cancel()
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            attempt.cancel()
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close()

    def connected(self, connection: MasterConnection) -> None:
        """Ask the storage thread for the offset to begin at, behind all data waiting there."""
        self.connection = connection
        if self._tls is None and self.master_address == self._config.ha_master_address:
            self.verified(connection)

        def begin() -> None:
            self.join()
            offset = self._store.begin_replica()
            self._reactor.callFromThread(self._begin, connection, offset, self._store.max_physical_offset())

        self._storage.call(begin)

    def verified(self, connection: MasterConnection) -> None:
        """Tell the host of a connection whose other end is the master of this name, and no stranger."""
        self._reached(connection.transport.getPeer().host)

    def _begin(self, connection: MasterConnection, offset: int, end: int) -> None:
        self._log.info("following the master at {address} from {offset} on", address=self.master_address, offset=end)
        connection.begin(offset, end)
        self._receiver = connection.receiver or self._receiver

    def lost(self, connection: MasterConnection, reason: str | None) -> None:
        """Replace a lost connection: at once if it was useful, otherwise after a while."""
        if connection is self.connection:
            self.connection = None
            if connection.useful:
                self._complain(f"the connection to the master at {self.master_address} is lost")
            elif reason is not None:
                self._complain(
                    f"the connection to the master at {self.master_address} was closed before the master sent "
                    f"anything ({reason}): see the master's log, its haAllowedAddresses and haTlsMode"
                )
            self._connect_later(0.0 if connection.useful else RECONNECT_SECONDS)

    def failed(self, connection: MasterConnection, why: str) -> None:
        """Close a connection with unusable data. Another attempt may find the cause gone."""
        connection.useful = False
        self._complain(f"cannot follow the master at {self.master_address}: {why}")
        connection.close()

    def mark_usable(self) -> None:
        """Record that the data of a connection was usable. Any thread."""
        if self._trouble:
            self._trouble = ""
            self._log.info("the master at {address} is followed again", address=self.master_address)

    def _complain(self, trouble: str) -> None:
        """Log a problem once, although every attempt meets it again."""
        if trouble != self._trouble:
            self._trouble = trouble
            self._log.error("{trouble}", trouble=trouble)

    def _check_connection(self) -> None:
        connection, now = self.connection, self.seconds()
        if connection is None or connection.closed:
            return
        if now - connection.last_read > self._config.ha_housekeeping_interval / 1000:
            connection.useful = False
            self._complain(
                f"nothing was received from the master at {self.master_address} for too long: connecting again",
            )
            connection.close()
        elif (
            connection.has_unsent_report
            or now - connection.last_write >= self._config.ha_send_heartbeat_interval / 1000
        ):
            connection.report()

    # ------------------------------------------------------------ storage thread

    def append_soon(self, connection: MasterConnection) -> None:
        """Have the storage thread append the waiting data. Reactor thread."""
        if not connection.append_called:
            connection.append_called = True
            self._storage.call(lambda: self._append(connection))

    def _append(self, connection: MasterConnection) -> None:
        connection.append_called = False
        waiting = connection.waiting
        transfers = [waiting.popleft() for _ in range(len(waiting))]
        if not transfers:
            return
        data = b"".join([transfer.body for transfer in transfers])
        try:
            # They are contiguous: this was checked at their arrival.
            confirmed = self._store.append_replica(transfers[0].offset, data)
        except Exception as error:
            if not isinstance(error, StoreError):
                self._log.failure("the master's data could not be appended")
            waiting.clear()
            self._reactor.callFromThread(self.failed, connection, str(error))
        else:
            self._reactor.callFromThread(connection.appended, len(data), confirmed)

    # ------------------------------------------------------------ thread of a receiver

    def append(self, offset: int, data: bytes) -> int:
        """Append contiguous data. Raises StoreError."""
        return self._store.append_replica(offset, data)

    def dispatch(self) -> None:
        """Make the appended messages visible."""
        self._store.release_dispatch(True)

    def receiver_ended(self, connection: MasterConnection, failure: Exception | None) -> None:
        """Have the reactor find the end of the connection, or close it after a failure."""
        if failure is None:
            self._reactor.callFromThread(connection.read_on)
            return
        if not isinstance(failure, StoreError):
            self._log.failure("the master's data could not be appended", Failure(failure))
        self._reactor.callFromThread(self.failed, connection, str(failure))
