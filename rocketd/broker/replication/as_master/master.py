"""The master's side of replication: the port for slaves, their connections, and sends waiting for them.

Every broker has it, even a slave: other slaves may follow it. Everything belongs to the reactor thread, except
``when_replicated`` and ``behind_bytes``. Appended data is sent by the thread that has appended it, if the sockets of
the slaves accept it.

Counterpart: `HAService` with `AcceptSocketService` and `GroupTransferService` (Apache).
"""

from collections.abc import Callable
from typing import Any

from twisted.internet import defer
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IAddress, IDelayedCall, ILoggingContext, IProtocolFactory
from twisted.internet.protocol import Factory
from twisted.logger import Logger
from zope.interface import implementer

from rocketd.broker.replication.as_master.slave_admission import SlaveAdmission
from rocketd.broker.replication.as_master.slave_connection import SlaveConnection
from rocketd.broker.replication.trusted_peers import TrustedPeers
from rocketd.common.event_loop.clocked_loop import ClockedLoop
from rocketd.common.event_loop.reactor import IReactor
from rocketd.remoting.peer import peer_of
from rocketd.remoting.serving.server import ListenError, open_port
from rocketd.store.base.settings import MessageStoreConfig
from rocketd.store.interfaces import IMessageStore
from rocketd.store.log.flush import FlushCallback
from rocketd.store.log.replicated import ReplicatedOffset

STOP_SECONDS = 3.0
"""The time a stop waits for slaves to receive the rest of the log."""
_WATCH_SECONDS = 1.0


@implementer(ILoggingContext)
class _SlaveFactory(Factory):
    noisy = False

    def logPrefix(self) -> str:  # noqa: N802 - the name is Twisted's
        """Return the name in Twisted's line about the open port."""
        return "port for slaves"

    def __init__(self, master: "ReplicationMaster") -> None:
        self._master = master

    def buildProtocol(self, addr: IAddress | None) -> SlaveConnection:
        return self._master.accept(peer_of(addr).address)


class ReplicationMaster:
    """Serves slaves. Call ``listen``, then ``start`` with the open store, and ``stop`` at the end."""

    _log = Logger()

    def __init__(
        self,
        config: MessageStoreConfig,
        reactor: IReactor,
        peers: TrustedPeers,
        wrap: Callable[[IProtocolFactory], IProtocolFactory] | None = None,
        interface: str | None = None,
    ) -> None:
        """``peers`` tells which hosts may copy the log; ``wrap`` adds TLS to the factory of connections.

        ``interface`` is the address to listen on. The default is all addresses.
        """
        self.config = config
        self.store: IMessageStore
        self.port = config.ha_listen_port
        self.slaves: set[SlaveConnection] = set()
        """The identified connections."""
        self.admission = SlaveAdmission(config, reactor, peers)
        self._wrap = wrap
        self._interface = interface
        self._reactor = reactor
        self._listening: list[Any] = []
        self._replicated = ReplicatedOffset(
            lambda: config.slave_timeout, lambda: config.ha_slave_fallbehind_max, reactor.seconds
        )
        self._watch = ClockedLoop(reactor, self._check_connections)
        self._woken = False
        self._timed = False
        """Whether the reactor is going to look at the deadline of the first waiting send."""
        self._timer: IDelayedCall | None = None
        self._drained: defer.Deferred[None] | None = None

    # ------------------------------------------------------------ lifecycle

    def listen(self) -> None:
        """Open the port; ``port`` is then the real one. Raises ListenError."""
        try:
            factory: Any = _SlaveFactory(self)
            if self._wrap is not None:
                factory = self._wrap(factory)
            self._listening = open_port(self._reactor, self.port, factory, interface=self._interface)
        except CannotListenError as error:
            raise ListenError(self.port, error, "haListenPort") from error
        self.port = self._listening[0].getHost().port

    def stop_listening(self) -> "defer.Deferred[Any]":
        """Close the port; fires when it is closed."""
        closing = [defer.maybeDeferred(listening.stopListening) for listening in self._listening]
        self._listening.clear()
        return defer.DeferredList(closing)

    def start(self, store: IMessageStore) -> None:
        """Serve slaves from an open store."""
        self.store = store
        store.add_append_listener(self._appended)
        seconds = min(
            _WATCH_SECONDS,
            self.config.ha_send_heartbeat_interval / 4000,
            self.config.ha_housekeeping_interval / 4000,
        )
        self._watch.start(seconds, now=False)

    async def stop(self) -> None:
        """Give slaves a short time for the rest of the log, and close all connections.

        Nothing is appended any more.
        """
        if self._watch.running:
            self._watch.stop()
        await self.stop_listening()
        self.admission.stop()
        if self.slaves:
            drained = self._drained = defer.Deferred()
            limit = self._reactor.callLater(STOP_SECONDS, self._fire_drained)
            self._check_drained()
            await drained
            if limit.active():
                limit.cancel()
        for slave in list(self.slaves):
            slave.transport.abortConnection()
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._replicated.give_up()

    def _check_drained(self) -> None:
        end = self.store.max_physical_offset()
        if all(slave.reported_offset in (-1, end) for slave in self.slaves):
            self._fire_drained()

    def _fire_drained(self) -> None:
        drained, self._drained = self._drained, None
        if drained is not None:
            drained.callback(None)

    # ------------------------------------------------------------ storage thread

    def when_replicated(self, end_offset: int, callback: FlushCallback) -> None:
        """Call back when a slave has the log up to an offset, or cannot get it in time.

        The status is PUT_OK, FLUSH_SLAVE_TIMEOUT after slaveTimeout, or SLAVE_NOT_AVAILABLE. Storage thread; the
        callback runs there or in the reactor thread.
        """
        if self._replicated.when_replicated(end_offset, callback):
            self._wake()
        elif self._replicated.has_waiters and not self._timed:
            self._timed = True
            self._reactor.callFromThread(self._answer_waiters)

    def _appended(self) -> None:
        # Without slaves an append must cost nothing.
        for slave in tuple(self.slaves):
            if not slave.send_appended():
                self._wake()

    def _wake(self) -> None:
        if not self._woken:
            self._woken = True
            self._reactor.callFromThread(self._send_all)

    # ------------------------------------------------------------ slaves

    def seconds(self) -> float:
        """The reactor's time."""
        seconds: float = self._reactor.seconds()
        return seconds

    def accept(self, address: str) -> SlaveConnection:
        """Return the protocol for a connection from an address."""
        slave = SlaveConnection(self, self.config.ha_transfer_batch_size, address)
        self.admission.opened(slave)
        return slave

    def first_reported(self, slave: SlaveConnection) -> None:
        """Check the connection at its first report: is it a slave's?"""
        self.admission.reported(slave)

    def identified(self, slave: SlaveConnection) -> None:
        """Add a slave: sends may wait for it."""
        self.slaves.add(slave)
        self._replicated.connections = len(self.slaves)

    def disconnected(self, slave: SlaveConnection, fault: str | None = None) -> None:
        """Forget a connection. ``fault`` describes a problem, if there was one."""
        self.admission.closed(slave, fault)
        self.slaves.discard(slave)
        self._replicated.connections = len(self.slaves)
        if slave.reported_offset >= 0:
            self._log.warn(
                "slave {address} has disconnected; it has the log up to {offset}",
                address=slave.address,
                offset=slave.reported_offset,
            )
        if self._drained is not None:
            self._check_drained()

    def reported(self, slave: SlaveConnection, offset: int) -> None:
        """Record that a slave has the log up to an offset."""
        self._replicated.reported(offset)
        if self._drained is not None:
            self._check_drained()

    def behind_bytes(self) -> int:
        """The number of bytes of the log that no slave has. Any thread."""
        return max(0, self.store.max_physical_offset() - self._replicated.offset)

    @property
    def slaves_lag(self) -> bool:
        """Whether sends do not wait for slaves: one has waited in vain, and no slave has caught up since.

        Any thread.
        """
        return self._replicated.lagging

    def _send_all(self) -> None:
        self._woken = False
        for slave in list(self.slaves):
            slave.send()
        self._answer_waiters()

    def _answer_waiters(self) -> None:
        """Answer the sends that are due, and schedule the next call for the following timeout."""
        self._timed = False
        deadline = self._replicated.answer_waiters()
        if deadline is not None:
            self._timed = True
            if self._timer is None or not self._timer.active():
                self._timer = self._reactor.callLater(max(0.0, deadline - self.seconds()), self._answer_waiters)

    def _check_connections(self) -> None:
        self.admission.close_unidentified()
        now = self.seconds()
        silence = self.config.ha_housekeeping_interval / 1000
        idle = self.config.ha_send_heartbeat_interval / 1000
        for slave in list(self.slaves):
            if now - slave.last_read > silence:
                slave.drop(f"nothing was received from it for {now - slave.last_read:.0f} s")
            elif now - slave.last_write >= idle:
                slave.heartbeat()
