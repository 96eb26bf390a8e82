"""The master's side of replication: the port for slaves, their connections, and the sends that wait for them.

Answers to Apache's HAService with its AcceptSocketService and GroupTransferService. Every broker has it, a slave too: other
slaves may follow it. All of it belongs to the reactor thread but for ``when_replicated`` and ``behind_bytes``.
"""

from collections.abc import Callable
from typing import Any

from twisted.internet import defer
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IAddress, IProtocolFactory
from twisted.internet.protocol import Factory
from twisted.logger import Logger

from rocketd.broker.replication.admission import Admission, Brokers
from rocketd.broker.replication.slave_connection import SlaveConnection
from rocketd.common.clocked_loop import ClockedLoop
from rocketd.remoting.peer import peer_of
from rocketd.remoting.server import ListenError, open_port
from rocketd.store.flush import FlushCallback
from rocketd.store.message_store import MessageStore
from rocketd.store.replicated import ReplicatedOffset
from rocketd.store.settings import MessageStoreConfig

STOP_SECONDS = 3.0
"""How long a stop waits for slaves to get what they lack."""
_WATCH_SECONDS = 1.0


class _SlaveFactory(Factory):
    noisy = False

    def __init__(self, master: "ReplicationMaster") -> None:
        self._master = master

    def buildProtocol(self, addr: IAddress | None) -> SlaveConnection | None:
        return self._master.accept(peer_of(addr).address)


class ReplicationMaster:
    """Serves slaves. ``listen``, then ``start`` with the open store, at last ``stop``."""

    _log = Logger()

    def __init__(
        self,
        config: MessageStoreConfig,
        reactor: Any,
        brokers: Brokers,
        wrap: Callable[[IProtocolFactory], IProtocolFactory] | None = None,
    ) -> None:
        """``brokers`` are the other brokers of this name; ``wrap`` puts TLS around the factory of connections."""
        self.config = config
        self.store: MessageStore
        self.port = config.ha_listen_port
        self.slaves: set[SlaveConnection] = set()
        """Those that have identified themselves."""
        self.admission = Admission(config, reactor, brokers)
        self._wrap = wrap
        self._reactor = reactor
        self._listening: list[Any] = []
        self._replicated = ReplicatedOffset(
            lambda: config.slave_timeout, lambda: config.ha_slave_fallbehind_max, reactor.seconds
        )
        self._watch = ClockedLoop(reactor, self._look_after)
        self._woken = False
        self._timer: Any = None
        self._drained: defer.Deferred[None] | None = None

    # ------------------------------------------------------------ life

    def listen(self) -> None:
        """Open the port; ``port`` is then the real one. Raises ListenError."""
        try:
            factory: Any = _SlaveFactory(self)
            if self._wrap is not None:
                factory = self._wrap(factory)
            self._listening = open_port(self._reactor, self.port, factory)
        except CannotListenError as error:
            raise ListenError(self.port, error, "haListenPort") from error
        self.port = self._listening[0].getHost().port

    def stop_listening(self) -> "defer.Deferred[Any]":
        """Close the port; fires when it is closed."""
        closing = [defer.maybeDeferred(listening.stopListening) for listening in self._listening]
        self._listening.clear()
        return defer.DeferredList(closing)

    def start(self, store: MessageStore) -> None:
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
        """Let the slaves get what they lack, if they are quick, and close all connections. Nothing is appended any
        more.
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
        """Call back with PUT_OK when a slave has the log up to an offset, FLUSH_SLAVE_TIMEOUT after slaveTimeout, or
        SLAVE_NOT_AVAILABLE. Storage thread; the callback comes from there or from the reactor thread.
        """
        self._replicated.when_replicated(end_offset, callback)
        self._wake()

    def _appended(self) -> None:
        # Without slaves an append is to cost nothing.
        if self.slaves:
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

    def accept(self, address: str) -> SlaveConnection | None:
        """Make the protocol of a connection from an address; None if it has to be closed."""
        slave = SlaveConnection(self, self.config.ha_transfer_batch_size, address)
        return slave if self.admission.opened(slave) else None

    def first_reported(self, slave: SlaveConnection) -> None:
        """A connection has said what it has: find out whether it is that of a slave."""
        self.admission.reported(slave)

    def identified(self, slave: SlaveConnection) -> None:
        """Count a slave: sends may wait for it."""
        self.slaves.add(slave)
        self._replicated.connections = len(self.slaves)

    def disconnected(self, slave: SlaveConnection, fault: str | None = None) -> None:
        """Forget a connection. ``fault`` says what was wrong with it, if anything was."""
        self.admission.closed(slave, fault)
        self.slaves.discard(slave)
        self._replicated.connections = len(self.slaves)
        if slave.reported_offset >= 0:
            self._log.warn(
                "slave {address} is gone, with the log up to {offset}",
                address=slave.address,
                offset=slave.reported_offset,
            )
        if self._drained is not None:
            self._check_drained()

    def reported(self, slave: SlaveConnection, offset: int) -> None:
        """A slave has the log up to an offset."""
        self._replicated.reported(offset)
        if self._drained is not None:
            self._check_drained()

    def behind_bytes(self) -> int:
        """Bytes of the log that no slave has. Any thread."""
        return max(0, self.store.max_physical_offset() - self._replicated.offset)

    @property
    def slaves_lag(self) -> bool:
        """Whether sends do not wait for slaves, as one has waited in vain and no slave has caught up since. Any thread."""
        return self._replicated.lagging

    def _send_all(self) -> None:
        self._woken = False
        for slave in list(self.slaves):
            slave.send()
        self._settle()

    def _settle(self) -> None:
        """Answer whom can be answered, and come back when the next has waited long enough."""
        deadline = self._replicated.settle()
        if deadline is not None and (self._timer is None or not self._timer.active()):
            self._timer = self._reactor.callLater(max(0.0, deadline - self.seconds()), self._settle)

    def _look_after(self) -> None:
        self.admission.look_after()
        now = self.seconds()
        silence = self.config.ha_housekeeping_interval / 1000
        idle = self.config.ha_send_heartbeat_interval / 1000
        for slave in list(self.slaves):
            if now - slave.last_read > silence:
                slave.drop(f"nothing was heard from it for {now - slave.last_read:.0f} s")
            elif now - slave.last_write >= idle:
                slave.heartbeat()
