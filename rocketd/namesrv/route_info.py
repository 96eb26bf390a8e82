"""The name server's tables: brokers of topics, and living brokers with their addresses.

Counterpart: `RouteInfoManager` and `BrokerLiveInfo` (Apache). Sans-io: times are arguments, connections are only
compared and closed. Any thread may call any public method. One lock guards all tables. It is held for one call only,
and never while a connection is closed. Results are snapshots. ``revision`` grows with every change visible to route
queries, so encoded answers may be kept until then.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from threading import Lock
from typing import Final

import msgspec
from twisted.logger import Logger

from rocketd.common import permission
from rocketd.common.logs.throttle import LogThrottle, ThrottledLog, event_log
from rocketd.common.sysflag import TOPIC_UNIT, TOPIC_UNIT_SUB
from rocketd.namesrv.topic_queues import TopicQueues, queues_of
from rocketd.remoting.bodies.tables import (
    BrokerData,
    ClusterInfo,
    DataVersion,
    QueueData,
    TopicConfig,
    TopicList,
    TopicRouteData,
)
from rocketd.remoting.interfaces import IConnection

MASTER_ID: Final = 0
BROKER_EXPIRY_MS: Final = 120_000
"""A broker that neither registered nor asked for its data version for longer than this is gone."""
NAMED_IN_LOG: Final = 20
"""Topics named in the log line of a registration. A broker may have tens of thousands."""


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """Identity of a broker. ``address`` is the ``host:port`` given to clients."""

    cluster: str
    name: str
    broker_id: int
    address: str

    def __str__(self) -> str:
        return f"{self.name} id {self.broker_id} of cluster {self.cluster} at {self.address}"


@dataclass(frozen=True, slots=True)
class MasterAddresses:
    """Addresses of the master, for clients and for replication. A slave learns them at registration."""

    master_address: str | None = None
    ha_server_address: str | None = None


def _age(version: DataVersion) -> tuple[int, int]:
    """Return what is larger for the later of two versions of one table."""
    return version.timestamp, version.counter


@dataclass(frozen=True, slots=True)
class _Alive:
    """A broker's last heartbeat."""

    last_update_ms: int
    data_version: DataVersion
    connection: IConnection
    ha_server_address: str


class RouteInfoManager:
    """The tables, and all their readers and writers. Any thread."""

    _log = Logger()

    def __init__(self) -> None:
        self.revision = 0
        self._peer_log = ThrottledLog(self._log, LogThrottle(kinds=100))
        self._events = event_log(self._log)
        self._lock = Lock()
        self._topics = TopicQueues()
        self._brokers: dict[str, BrokerData] = {}
        self._clusters: dict[str, set[str]] = {}
        self._alive: dict[str, _Alive] = {}
        self._filter_servers: dict[str, list[str]] = {}

    # ------------------------------------------------------------ brokers come and go

    def register(
        self,
        broker: BrokerIdentity,
        ha_server_address: str,
        data_version: DataVersion,
        topics: Mapping[str, TopicConfig],
        filter_servers: list[str] | None,
        connection: IConnection,
        now_ms: int,
        *,
        has_all_topics: bool = False,
        is_part: bool = False,
    ) -> MasterAddresses:
        """Accept a broker's registration: a heartbeat, and a master's topics if they are new.

        Topics count if this address is new to the broker's name, or if ``data_version`` differs from the last one.
        ``has_all_topics`` is whether the broker has no other topics: the others are removed, unless the registration is
        older than the last one. ``is_part`` is whether it has others that are not in ``topics``. If such a broker is new,
        its next registration counts, even one of the same version. ``filter_servers`` None keeps the known ones, an
        empty list removes them.
        """
        queues = queues_of(broker.name, topics.values()) if broker.broker_id == MASTER_ID else {}
        with self._lock:
            known = self._alive.get(broker.address)
            is_new = self._put_address(broker)
            if broker.broker_id == MASTER_ID and (is_new or self._is_changed(broker.address, data_version)):
                is_newer = known is None or _age(known.data_version) < _age(data_version)
                self._put_topics(broker.name, queues, replaces_all=has_all_topics and is_newer)
            if known is None:
                self._peer_log.info(
                    f"new {broker.name}",
                    "broker {broker} is new, HA address {ha}",
                    broker=str(broker),
                    ha=ha_server_address,
                )
            version = DataVersion() if is_part and (is_new or known is None) else data_version
            self._alive[broker.address] = _Alive(now_ms, version, connection, ha_server_address)
            self._put_filter_servers(broker.address, filter_servers)
            return self._master_of(broker)

    def _put_address(self, broker: BrokerIdentity) -> bool:
        """Record a broker's address. Return whether its name and id were unknown.

        A broker that had another name at this address is gone.
        """
        self._remove_address(broker.address, kept_name=broker.name)
        self._clusters.setdefault(broker.cluster, set()).add(broker.name)
        known = self._brokers.get(broker.name)
        if known is None:
            self._brokers[broker.name] = BrokerData(
                cluster=broker.cluster, broker_name=broker.name, broker_addrs={broker.broker_id: broker.address}
            )
            self.revision += 1
            return True
        addresses = known.broker_addrs
        # A slave that became master, or the reverse: an address has only one id.
        for broker_id in [i for i, address in addresses.items() if address == broker.address and i != broker.broker_id]:
            del addresses[broker_id]
            self.revision += 1
        before = addresses.get(broker.broker_id)
        if before != broker.address:
            addresses[broker.broker_id] = broker.address
            self.revision += 1
            if before is not None:
                self._peer_log.warn(
                    f"moved {broker.name}",
                    "broker {name} id {id} moved from {before} to {after}: if both run, give each its own "
                    "brokerName or brokerId",
                    name=broker.name,
                    id=broker.broker_id,
                    before=before,
                    after=broker.address,
                )
        return before is None

    def _put_topics(self, broker_name: str, queues: Mapping[str, QueueData], *, replaces_all: bool) -> None:
        if replaces_all:
            self._topics_changed(broker_name, "less", self._topics.forget_broker(broker_name, but=queues))
        self._topics_changed(broker_name, "new or changed", self._topics.put(broker_name, queues))

    def _topics_changed(self, broker_name: str, how: str, topics: list[str]) -> None:
        if topics:
            self.revision += 1
            self._peer_log.info(
                f"topics {how} {broker_name}",
                "broker {name} has {count} topics {how}: {topics}",
                name=broker_name,
                count=len(topics),
                how=how,
                topics=", ".join(topics[:NAMED_IN_LOG]) + (", ..." if len(topics) > NAMED_IN_LOG else ""),
            )

    def _put_filter_servers(self, address: str, filter_servers: list[str] | None) -> None:
        if filter_servers is None or filter_servers == self._filter_servers.get(address, []):
            return
        if filter_servers:
            self._filter_servers[address] = filter_servers
        else:
            del self._filter_servers[address]
        self.revision += 1

    def _master_of(self, broker: BrokerIdentity) -> MasterAddresses:
        """Return the master of a slave, empty for a master or if none is alive."""
        if broker.broker_id != MASTER_ID:
            address = self._brokers[broker.name].broker_addrs.get(MASTER_ID)
            alive = self._alive.get(address) if address is not None else None
            if alive is not None:
                return MasterAddresses(address, alive.ha_server_address)
        return MasterAddresses()

    def unregister(self, broker: BrokerIdentity) -> None:
        """Remove a stopping broker. An address that took its id meanwhile is kept."""
        with self._lock:
            self._peer_log.info(f"unregisters {broker.name}", "broker {broker} unregisters", broker=str(broker))
            self._forget(broker.address)

    def on_connection_closed(self, connection: IConnection) -> None:
        """Remove the brokers whose last registration came over this connection."""
        with self._lock:
            for address in [a for a, alive in self._alive.items() if alive.connection is connection]:
                self._peer_log.warn(
                    f"closed {address}", "broker at {address} is gone: its connection closed", address=address
                )
                self._forget(address)

    def scan_inactive(self, now_ms: int) -> int:
        """Remove brokers silent for too long and close their connections. Return their number."""
        self._peer_log.flush()
        oldest = now_ms - BROKER_EXPIRY_MS
        with self._lock:
            expired = {address: alive for address, alive in self._alive.items() if alive.last_update_ms < oldest}
            for address in expired:
                self._log.warn(
                    "broker at {address} is gone: it sent no registration for {seconds} s",
                    address=address,
                    seconds=BROKER_EXPIRY_MS // 1000,
                )
                self._forget(address)
        for alive in expired.values():
            alive.connection.close()
        return len(expired)

    def _forget(self, address: str) -> None:
        """Remove an address everywhere. With a broker's last address, remove its name and topics."""
        self._alive.pop(address, None)
        self._put_filter_servers(address, [])
        self._remove_address(address)

    def _remove_address(self, address: str, kept_name: str | None = None) -> None:
        """Remove an address from all names but one. A name without an address goes, with its topics."""
        for name, broker in list(self._brokers.items()):
            if name == kept_name:
                continue
            for broker_id in [i for i, known in broker.broker_addrs.items() if known == address]:
                del broker.broker_addrs[broker_id]
                self.revision += 1
            if not broker.broker_addrs:
                del self._brokers[name]
                self._forget_name(name)

    def _forget_name(self, name: str) -> None:
        for cluster, names in list(self._clusters.items()):
            names.discard(name)
            if not names:
                del self._clusters[cluster]
        self._topics.forget_broker(name)

    # ------------------------------------------------------------ data versions

    def query_data_version(
        self, address: str, data_version: DataVersion, now_ms: int
    ) -> tuple[bool, DataVersion | None]:
        """Return (whether a broker's topics changed since it registered, the known version if any).

        An unchanged version counts as a heartbeat, because such a broker skips the registration.
        """
        with self._lock:
            changed = self._is_changed(address, data_version)
            alive = self._alive.get(address)
            if alive is None:
                return True, None
            if not changed:
                self._alive[address] = replace(alive, last_update_ms=now_ms)
            return changed, alive.data_version

    def _is_changed(self, address: str, data_version: DataVersion) -> bool:
        alive = self._alive.get(address)
        return alive is None or alive.data_version != data_version

    # ------------------------------------------------------------ topics

    def wipe_write_perm(self, broker_name: str) -> int:
        """Forbid writing to all topics of a broker. Return their number.

        It ends for a topic when `register` accepts the topic from this broker again.
        """
        return self._set_perms(broker_name, lambda perm: perm & ~permission.WRITE)

    def add_write_perm(self, broker_name: str) -> int:
        """Allow reading and writing of all topics of a broker. Return their number."""
        return self._set_perms(broker_name, lambda _: permission.READ | permission.WRITE)

    def _set_perms(self, broker_name: str, new_perm: Callable[[int], int]) -> int:
        with self._lock:
            count = self._topics.set_perms(broker_name, new_perm)
            self.revision += 1
            return count

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Remove a topic, on all brokers or those of one cluster. A broker that still has it may bring it back."""
        with self._lock:
            if self._topics.delete(topic, self._clusters.get(cluster, ()) if cluster else None):
                self.revision += 1
                where = cluster or "all clusters"
                self._events.info("topics deleted", "topic {topic} is deleted in {cluster}", topic=topic, cluster=where)

    # ------------------------------------------------------------ queries

    def pick_topic_route(self, topic: str) -> TopicRouteData | None:
        """Return the route of a topic, None if no known broker has it. The ordered-topic configuration is not included."""
        with self._lock:
            queues = self._topics.of(topic)
            names = [queue.broker_name for queue in queues]
            brokers = [_copy_of(self._brokers[name]) for name in names if name in self._brokers]
            if not brokers:
                return None
            addresses = [address for broker in brokers for address in broker.broker_addrs.values()]
            return TopicRouteData(
                queue_datas=queues,
                broker_datas=brokers,
                filter_server_table={a: self._filter_servers[a] for a in addresses if a in self._filter_servers},
            )

    def cluster_info(self) -> ClusterInfo:
        """Return all brokers with their addresses, and their clusters."""
        with self._lock:
            return ClusterInfo(
                broker_addr_table={name: _copy_of(broker) for name, broker in self._brokers.items()},
                cluster_addr_table={cluster: set(names) for cluster, names in self._clusters.items()},
            )

    def all_topics(self) -> TopicList:
        """Return the names of all topics."""
        with self._lock:
            return TopicList(topic_list=self._topics.names())

    def system_topics(self) -> TopicList:
        """Return the topics named after clusters and brokers, and any broker's address to ask for the rest."""
        with self._lock:
            names = dict.fromkeys(name for cluster, brokers in self._clusters.items() for name in (cluster, *brokers))
            addresses = [address for broker in self._brokers.values() for address in broker.broker_addrs.values()]
            return TopicList(topic_list=list(names), broker_addr=addresses[0] if addresses else None)

    def topics_of_cluster(self, cluster: str) -> TopicList:
        """Return the topics of a cluster's brokers, none for an unknown cluster."""
        with self._lock:
            return TopicList(topic_list=self._topics.names_at(self._clusters.get(cluster, set())))

    def unit_topics(self) -> TopicList:
        """Return the topics that belong to a unit."""
        return self._topics_by_flag(lambda flag: bool(flag & TOPIC_UNIT))

    def unit_sub_topics(self) -> TopicList:
        """Return the topics subscribed to by units."""
        return self._topics_by_flag(lambda flag: bool(flag & TOPIC_UNIT_SUB))

    def unit_sub_ununit_topics(self) -> TopicList:
        """Return the topics subscribed to by units but not belonging to one."""
        return self._topics_by_flag(lambda flag: flag & (TOPIC_UNIT | TOPIC_UNIT_SUB) == TOPIC_UNIT_SUB)

    def _topics_by_flag(self, wanted: Callable[[int], bool]) -> TopicList:
        with self._lock:
            return TopicList(topic_list=self._topics.names_by_flag(wanted))


def _copy_of(broker: BrokerData) -> BrokerData:
    return msgspec.structs.replace(broker, broker_addrs=dict(broker.broker_addrs))
