"""Replication as the broker sees it, for every role.

Everything belongs to the reactor thread, except ``when_replicated``, ``port`` and ``table``.

Counterpart: `BrokerController.handleSlaveSynchronize`, `BrokerController.updateMasterHAServerAddr` (Apache).
"""

from secrets import token_hex

from twisted.internet import defer, threads
from twisted.logger import Logger

from rocketd.broker.replication.as_master.master import ReplicationMaster
from rocketd.broker.replication.as_master.table_changes import TableChanges
from rocketd.broker.replication.as_slave.log_follower import ReplicationSlave
from rocketd.broker.replication.as_slave.synchronize import SlaveSynchronize
from rocketd.broker.replication.group import INSTANCE, NAME, REFUSES, ROLE, BrokerGroup, Instance
from rocketd.broker.replication.ha_tls import slave_tls, wrap_slave_factory
from rocketd.broker.replication.parts import ReplicationParts
from rocketd.broker.replication.returning import ReturningMaster
from rocketd.broker.replication.single_master import SingleMaster
from rocketd.broker.replication.trusted_peers import TrustedPeers
from rocketd.common.event_loop.clocked_loop import ClockedLoop
from rocketd.common.event_loop.reactor import IReactor
from rocketd.common.logs.throttle import ThrottledLog
from rocketd.remoting.headers.client import RegisterBrokerResponseHeader
from rocketd.remoting.interfaces import IRemotingClient
from rocketd.store.interfaces import IMessageStore
from rocketd.store.log.flush import FlushCallback

_SETTING_SECONDS = 1.0


class Replication:
    """Serves slaves; on a slave, also follows the master.

    Order: ``listen``, ``start``, ``stop_following``, ``stop``.
    """

    _log = Logger()

    def __init__(self, broker: ReplicationParts, client: IRemotingClient, reactor: IReactor) -> None:
        """``client`` sends the requests to other brokers. Raises TLSConfigError."""
        self._broker = broker
        self._config = broker.settings.store
        self._client = client
        self._reactor = reactor
        self.is_slave = self._config.broker_role == "SLAVE"
        self.is_sync = self._config.broker_role == "SYNC_MASTER"
        tls = broker.settings.tls
        self._instance = Instance(broker.now_ms(), token_hex(8))
        self._peers = TrustedPeers(self._config, reactor)
        self._group = BrokerGroup(broker, client, self._instance, reactor, self._peers)
        self.master = ReplicationMaster(
            self._config,
            reactor,
            self._peers,
            wrap_slave_factory(self._config, tls, reactor),
            interface=broker.settings.server.bind_address,
        )
        self._verifies = slave_tls(self._config, tls)
        self.slave = ReplicationSlave(
            self._config, reactor, broker.dispatcher.pool("send"), self._reached, self._verifies
        )
        self.synchronize = SlaveSynchronize(broker, client, reactor)
        self.table_changes = TableChanges(broker, reactor, lambda: {slave.host for slave in self.master.slaves})
        self._single = SingleMaster(broker, self._group, self._instance, reactor)
        self._returning = ReturningMaster(broker, self._group, reactor)
        self._looked = False
        self._learnt: dict[str, RegisterBrokerResponseHeader] = {}
        self._learnt_log: str | None = None
        self._lines = ThrottledLog(self._log)
        self._setting = ClockedLoop(reactor, self._follow)

    @property
    def port(self) -> int:
        """The port for slaves; before ``listen`` the one to open, 0 for any. Any thread."""
        return self.master.port

    def listen(self) -> None:
        """Open the port for slaves. Raises ListenError."""
        self.master.listen()

    def stop_listening(self) -> None:
        """Close the port again after a failed start."""
        self.master.stop_listening()

    def start(self, store: IMessageStore) -> None:
        """Start with the open store."""
        self.master.start(store)
        self.table_changes.start()
        if self.is_sync:
            self._broker.topics.new_name_durability.confirmers.append(self.table_changes.confirm)
        if self.is_slave:
            self.slave.start(store)
            self.synchronize.start()
            # haMasterAddress may be changed while running.
            self._setting.start(_SETTING_SECONDS)

    async def before_serving(self) -> None:
        """On a master, before it serves and registers: check for another master, and adopt entries of slaves.

        Call it after ``start``. Raises SecondMasterError.
        """
        self._looked = bool(self._client.name_servers.addresses)
        members = await self._group.members()
        await self._single.before_start(members.masters)
        await self._returning.take_over(members.slaves)

    def serving(self) -> None:
        """On a master, begin to look for another one.

        If no name server was known so far, the first registration is preceded by the check.
        """
        if not self.is_slave:
            self._broker.registration.before_each = self._single.check_at
            if not self._looked:
                self._broker.registration.before_first = self._before_registering
            self._single.start()

    def _before_registering(self) -> defer.Deferred[None]:
        """Do the same as ``before_serving`` for a master that serves already: it steps down instead of failing."""

        async def look() -> None:
            members = await self._group.members()
            await self._single.before_registering(members.masters)
            if not self._single.refuses:
                await self._returning.take_over(members.slaves)

        return defer.Deferred.fromCoroutine(look()).addErrback(
            lambda failure: self._log.failure("the other brokers of this name could not be queried", failure)
        )

    def stop_following(self) -> None:
        """Stop following the master. The storage thread may still append received data."""
        if self._setting.running:
            self._setting.stop()
        self._single.stop()
        self.slave.stop()
        self.synchronize.stop()

    async def stop(self) -> None:
        """Give slaves the rest of the log, and close everything. Nothing is appended any more."""
        self.table_changes.stop()
        if self.slave.has_receiver:
            await threads.deferToThreadPool(self._reactor, self._reactor.getThreadPool(), self.slave.join)
        await self.master.stop()

    def registered(self, name_server: str, answer: RegisterBrokerResponseHeader) -> None:
        """Learn the master's addresses from a name server's answer, if the master's host is trusted.

        An answer without an address means that the master is unknown there.
        """
        if self.is_slave:
            self._learnt[name_server] = answer
            self._learn()

    def _reached(self, host: str) -> None:
        self._peers.prove(host)
        self._learn()

    def _learn(self) -> None:
        defer.Deferred.fromCoroutine(self._take_answers()).addErrback(
            lambda failure: self._log.failure("the master's addresses cannot be looked up", failure)
        )

    async def _take_answers(self) -> None:
        answers = self._answers()
        tables = [known.master_addr for known in answers if known.master_addr]
        logs = [known.ha_server_addr for known in answers if known.ha_server_addr]
        master, log = await self._first_trusted(tables), await self._first_trusted(logs)
        if answers == self._answers():
            self.synchronize.master_address = master
            # A wrong certificate ends the connection, so any address may be tried.
            self._learnt_log = next(iter(logs), None) if self._verifies else log
            self._follow()

    async def _first_trusted(self, addresses: list[str]) -> str | None:
        trusted = await self._peers.trusted(addresses)
        if addresses and not trusted and not self._verifies:
            self._lines.error(
                addresses[0],
                "name servers name {address} as the master, which is not followed: its host is not in "
                "haAllowedAddresses; if it is the master, add it to the list, or set haMasterAddress",
                address=addresses[0],
            )
        return next(iter(trusted.values()), None)

    def _answers(self) -> list[RegisterBrokerResponseHeader]:
        """Return the last answers of the name servers in use."""
        return [self._learnt[address] for address in self._client.name_servers.addresses if address in self._learnt]

    def _follow(self) -> None:
        address = self._config.ha_master_address or self._learnt_log
        if address:
            self.slave.follow(address)

    def when_replicated(self, end_offset: int, callback: FlushCallback) -> None:
        """See ReplicationMaster. Storage thread."""
        self.master.when_replicated(end_offset, callback)

    def table(self) -> dict[str, str]:
        """Return the values for brokerStatus. Any thread."""
        table = {f"haSlave_{slave.address}": str(slave.reported_offset) for slave in list(self.master.slaves)}
        if table:
            table["haSlavesBehindBytes"] = str(self.master.behind_bytes())
            table["haSlavesLagging"] = str(self.master.slaves_lag).lower()
        if self.master.admission.refused:
            table["haRefused"] = str(self.master.admission.refused)
        table |= {
            ROLE: self._config.broker_role,
            NAME: self._broker.settings.broker.broker_name,
            INSTANCE: str(self._instance),
            REFUSES: str(self._single.refuses).lower(),
        }
        if self.is_slave:
            connection = self.slave.connection
            table["haMasterAddress"] = self.slave.master_address or ""
            table["haMasterConnected"] = str(connection is not None and connection.useful).lower()
        return table
