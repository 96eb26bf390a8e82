"""The slave's side of replication: follows the log of its master.

Answers to Apache's HAClient. The slave reports what it has, appends what comes in the storage thread, and reports again.
While the disk is slower than the network, it reads no more. A connection that is lost, or on which nothing is heard, is
made again. All of it belongs to the reactor thread unless a method says otherwise.
"""

from typing import Any

from twisted.internet.abstract import isIPAddress
from twisted.internet.endpoints import TCP4ClientEndpoint, TCP6ClientEndpoint
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.internet.protocol import Factory
from twisted.logger import Logger
from twisted.protocols.tls import TLSMemoryBIOFactory
from twisted.python.failure import Failure

from rocketd.broker.replication.master_connection import MasterConnection
from rocketd.common.clocked_loop import ClockedLoop
from rocketd.remoting.channel_table import split_address
from rocketd.remoting.errors import RemotingConnectError
from rocketd.remoting.host_endpoint import HostEndpoint
from rocketd.remoting.pools import Pool
from rocketd.remoting.tls import ClientTLS
from rocketd.store.errors import StoreError
from rocketd.store.message_store import MessageStore
from rocketd.store.settings import MessageStoreConfig

RECONNECT_SECONDS = 5.0
CONNECT_SECONDS = 5.0
_WATCH_SECONDS = 1.0


class ReplicationSlave:
    """Follows a master, whose address may change: ``follow``. ``storage`` is the pool of the storage thread."""

    _log = Logger()

    def __init__(self, config: MessageStoreConfig, reactor: Any, storage: Pool, tls: ClientTLS | None = None) -> None:
        """With ``tls`` connections are encrypted."""
        self._config = config
        self._tls = tls
        self._reactor = reactor
        self._storage = storage
        self._store: MessageStore
        self.master_address: str | None = None
        self.connection: MasterConnection | None = None
        self._attempt: Any = None
        self._retry: Any = None
        self._running = False
        self._trouble = ""
        self._watch = ClockedLoop(reactor, self._look_after)

    def start(self, store: MessageStore) -> None:
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
        """Follow no more. What has come may still be appended."""
        self._running = False
        if self._watch.running:
            self._watch.stop()
        self._disconnect()

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

        def done(result: Any) -> None:
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
        """Ask the storage thread, behind all that it has to append, where to begin."""
        self.connection = connection

        def begin() -> None:
            offset = self._store.begin_replica()
            self._reactor.callFromThread(self._begin, connection, offset, self._store.max_physical_offset())

        self._storage.call(begin)

    def _begin(self, connection: MasterConnection, offset: int, end: int) -> None:
        self._log.info("following the master at {address} from {offset} on", address=self.master_address, offset=end)
        connection.begin(offset, end)

    def lost(self, connection: MasterConnection, reason: str | None) -> None:
        """A connection is lost: make another at once if it was of use, else after a while."""
        if connection is self.connection:
            self.connection = None
            if connection.useful:
                self._complain(f"the connection to the master at {self.master_address} is lost")
            elif reason is not None:
                self._complain(
                    f"the connection to the master at {self.master_address} was closed before the master sent anything "
                    f"({reason}): its log says why; see its haAllowedAddresses and haTlsMode"
                )
            self._connect_later(0.0 if connection.useful else RECONNECT_SECONDS)

    def failed(self, connection: MasterConnection, why: str) -> None:
        """What came on a connection cannot be used; another attempt may find the cause gone."""
        connection.useful = False
        self._complain(f"cannot follow the master at {self.master_address}: {why}")
        connection.close()

    def goes_well(self) -> None:
        """What a connection brought could be used."""
        if self._trouble:
            self._trouble = ""
            self._log.info("the master at {address} is followed again", address=self.master_address)

    def _complain(self, trouble: str) -> None:
        """Log once what is wrong, though it is met again with each attempt."""
        if trouble != self._trouble:
            self._trouble = trouble
            self._log.error("{trouble}", trouble=trouble)

    def _look_after(self) -> None:
        connection, now = self.connection, self.seconds()
        if connection is None or connection.closed:
            return
        if now - connection.last_read > self._config.ha_housekeeping_interval / 1000:
            connection.useful = False
            self._complain(f"nothing was heard of the master at {self.master_address} for too long: connecting again")
            connection.close()
        elif now - connection.last_write >= self._config.ha_send_heartbeat_interval / 1000:
            connection.report()

    # ------------------------------------------------------------ storage thread

    def append_soon(self, connection: MasterConnection) -> None:
        """Have the storage thread append what waits. Reactor thread."""
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
            # They follow on each other: that was checked when they came.
            confirmed = self._store.append_replica(transfers[0].offset, data)
        except Exception as error:
            if not isinstance(error, StoreError):
                self._log.failure("what the master sent could not be appended")
            waiting.clear()
            self._reactor.callFromThread(self.failed, connection, str(error))
        else:
            self._reactor.callFromThread(connection.appended, len(data), confirmed)
