"""Replication as the broker sees it: its part, whatever its role is.

Answers to what Apache's BrokerController does by role: handleSlaveSynchronize and updateMasterHAServerAddr. All of it
belongs to the reactor thread but for ``when_replicated``, ``port`` and ``table``.
"""

from secrets import token_hex
from typing import Any

from rocketd.broker.replication.group import INSTANCE, NAME, REFUSES, ROLE, BrokerGroup, Instance
from rocketd.broker.replication.ha_tls import slave_tls, wrap_slave_factory
from rocketd.broker.replication.known_brokers import KnownBrokers
from rocketd.broker.replication.master import ReplicationMaster
from rocketd.broker.replication.returning import ReturningMaster
from rocketd.broker.replication.single_master import SingleMaster
from rocketd.broker.replication.slave import ReplicationSlave
from rocketd.broker.replication.synchronize import SlaveSynchronize
from rocketd.broker.replication.table_changes import TableChanges
from rocketd.common.clocked_loop import ClockedLoop
from rocketd.remoting.headers import RegisterBrokerResponseHeader
from rocketd.store.flush import FlushCallback
from rocketd.store.message_store import MessageStore

_SETTING_SECONDS = 1.0


class Replication:
    """Serves slaves; on a slave, follows the master too. ``listen``, ``start``, ``stop_following``, ``stop``."""

    def __init__(self, broker: Any, client: Any, reactor: Any) -> None:
        """``client`` is the RemotingClient for requests to other brokers. Raises TLSConfigError."""
        self._broker = broker
        self._config = broker.settings.store
        self._client = client
        self.is_slave = self._config.broker_role == "SLAVE"
        self.is_sync = self._config.broker_role == "SYNC_MASTER"
        tls = broker.settings.tls
        self.master = ReplicationMaster(
            self._config,
            reactor,
            KnownBrokers(broker, client, reactor),
            wrap_slave_factory(self._config, tls, reactor),
        )
        self.slave = ReplicationSlave(
            self._config, reactor, broker.dispatcher.pool("send"), slave_tls(self._config, tls)
        )
        self.synchronize = SlaveSynchronize(broker, client, reactor)
        self.table_changes = TableChanges(broker, reactor, lambda: bool(self.master.slaves))
        self._instance = Instance(broker.now_ms(), token_hex(8))
        self._group = BrokerGroup(broker, client, self._instance)
        self._single = SingleMaster(broker, self._group, self._instance, reactor)
        self._returning = ReturningMaster(broker, self._group, reactor)
        self._learnt: dict[str, RegisterBrokerResponseHeader] = {}
        self._setting = ClockedLoop(reactor, self._follow)

    @property
    def port(self) -> int:
        """The port for slaves; before ``listen`` the one that is to be opened, 0 for any. Any thread."""
        return self.master.port

    def listen(self) -> None:
        """Open the port for slaves. Raises ListenError."""
        self.master.listen()

    def stop_listening(self) -> None:
        """Close it again, when the start has failed."""
        self.master.stop_listening()

    def start(self, store: MessageStore) -> None:
        """Begin, with the open store."""
        self.master.start(store)
        self.table_changes.start()
        if self.is_sync:
            self._broker.topics.settlement.settlers.append(self.table_changes.settle)
        if self.is_slave:
            self.slave.start(store)
            self.synchronize.start()
            # haMasterAddress may be changed while running.
            self._setting.start(_SETTING_SECONDS)

    async def before_serving(self) -> None:
        """On a master, before it serves and registers: see that there is no other, and take from slaves what they have.

        ``start`` comes before. Raises SecondMasterError.
        """
        members = await self._group.members()
        await self._single.before_start(members.masters)
        await self._returning.take_over(members.slaves)

    def serving(self) -> None:
        """On a master: look for another from now on."""
        if not self.is_slave:
            self._broker.registration.before_repeat = self._single.check
            self._single.start()

    def stop_following(self) -> None:
        """Take no more from the master; the storage thread may still append what has come."""
        if self._setting.running:
            self._setting.stop()
        self._single.stop()
        self.slave.stop()
        self.synchronize.stop()

    async def stop(self) -> None:
        """Let slaves get what they lack, and close everything. Nothing is appended any more."""
        self.table_changes.stop()
        await self.master.stop()

    def registered(self, name_server: str, answer: RegisterBrokerResponseHeader) -> None:
        """Learn from a name server's answer where the master is; one without is that of a name server that knows none."""
        if not self.is_slave:
            return
        self._learnt[name_server] = answer
        self.synchronize.master_address = next(
            (known.master_addr for known in self._answers() if known.master_addr), None
        )
        self._follow()

    def _answers(self) -> list[RegisterBrokerResponseHeader]:
        """What the name servers in use have said last."""
        return [self._learnt[address] for address in self._client.name_servers.addresses if address in self._learnt]

    def _follow(self) -> None:
        address = self._config.ha_master_address
        if not address:
            address = next((known.ha_server_addr for known in self._answers() if known.ha_server_addr), None)
        if address:
            self.slave.follow(address)

    def when_replicated(self, end_offset: int, callback: FlushCallback) -> None:
        """See ReplicationMaster. Storage thread."""
        self.master.when_replicated(end_offset, callback)

    def table(self) -> dict[str, str]:
        """Describe it for brokerStatus. Any thread."""
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
