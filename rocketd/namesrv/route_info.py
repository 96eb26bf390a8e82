"""The name server's tables: which topic is on which broker, and which broker is alive at which address.

Answers to Apache's RouteInfoManager and BrokerLiveInfo. Sans-io: times are passed in, connections are only compared and
closed. Any thread may call any public method: one lock guards all tables, is held for one call only, and never while a
connection is closed. What is returned is a snapshot that no later call changes. ``revision`` grows with every change
that a route query could see, so that encoded answers may be kept until then.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any, Final

import msgspec
from twisted.logger import Logger

from rocketd.common import permission
from rocketd.common.log_throttle import LogThrottle, ThrottledLog
from rocketd.common.sysflag import TOPIC_UNIT, TOPIC_UNIT_SUB
from rocketd.namesrv.topic_queues import TopicQueues
from rocketd.remoting.bodies import (
    BrokerData,
    ClusterInfo,
    DataVersion,
    TopicConfig,
    TopicList,
    TopicRouteData,
)

MASTER_ID: Final = 0
BROKER_EXPIRY_MS: Final = 120_000
"""A broker that neither registered nor asked for its data version for longer than this is gone."""
NAMED_IN_LOG: Final = 20
"""Topics named in the log line of a registration; a broker may have ten thousands."""


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """Who a broker says it is; ``address`` is the ``host:port`` that clients are sent to."""

    cluster: str
    name: str
    broker_id: int
    address: str

    def __str__(self) -> str:
        return f"{self.name} id {self.broker_id} of cluster {self.cluster} at {self.address}"


@dataclass(frozen=True, slots=True)
class MasterAddresses:
    """What a slave learns by registering: where its master serves clients, and where it serves replicas."""

    master_address: str | None = None
    ha_server_address: str | None = None


@dataclass(frozen=True, slots=True)
class _Alive:
    """A broker's last sign of life."""

    last_update_ms: int
    data_version: DataVersion
    connection: Any
    ha_server_address: str


class RouteInfoManager:
    """The tables and all that changes or reads them. Any thread."""

    _log = Logger()

    def __init__(self) -> None:
        self.revision = 0
        self._peer_log = ThrottledLog(self._log, LogThrottle(kinds=100))
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
        connection: Any,
        now_ms: int,
    ) -> MasterAddresses:
        """Take a broker's registration: a sign of life, and from a master its topics when they are new.

        Topics count if this address is new to the broker's name or ``data_version`` differs from the last one.
        ``filter_servers`` None leaves those known, an empty list removes them.
        """
        with self._lock:
            is_new = self._put_address(broker)
            if broker.broker_id == MASTER_ID and (is_new or self._is_changed(broker.address, data_version)):
                self._put_topics(broker.name, topics.values())
            if broker.address not in self._alive:
                self._peer_log.info(
                    f"new {broker.name}",
                    "broker {broker} is new, HA address {ha}",
                    broker=str(broker),
                    ha=ha_server_address,
                )
            self._alive[broker.address] = _Alive(now_ms, data_version, connection, ha_server_address)
            self._put_filter_servers(broker.address, filter_servers)
            return self._master_of(broker)

    def _put_address(self, broker: BrokerIdentity) -> bool:
        """Note where a broker is; tell whether nothing was known under its name and id."""
        self._clusters.setdefault(broker.cluster, set()).add(broker.name)
        known = self._brokers.get(broker.name)
        if known is None:
            self._brokers[broker.name] = BrokerData(
                cluster=broker.cluster, broker_name=broker.name, broker_addrs={broker.broker_id: broker.address}
            )
            self.revision += 1
            return True
        addresses = known.broker_addrs
        # A slave that became master, or the other way round: one address has one id only.
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

    def _put_topics(self, broker_name: str, configs: Iterable[TopicConfig]) -> None:
        changed = self._topics.put(broker_name, configs)
        if changed:
            self.revision += 1
            self._peer_log.info(
                f"topics {broker_name}",
                "broker {name} has {count} topics new or changed: {topics}",
                name=broker_name,
                count=len(changed),
                topics=", ".join(changed[:NAMED_IN_LOG]) + (", ..." if len(changed) > NAMED_IN_LOG else ""),
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
        """Find the master of a slave; nothing for a master, or while none is alive."""
        if broker.broker_id != MASTER_ID:
            address = self._brokers[broker.name].broker_addrs.get(MASTER_ID)
            alive = self._alive.get(address) if address is not None else None
            if alive is not None:
                return MasterAddresses(address, alive.ha_server_address)
        return MasterAddresses()

    def unregister(self, broker: BrokerIdentity) -> None:
        """Forget a broker that stops. An address that meanwhile took its id is left alone."""
        with self._lock:
            self._peer_log.info(f"unregisters {broker.name}", "broker {broker} unregisters", broker=str(broker))
            self._forget(broker.address)

    def on_connection_closed(self, connection: Any) -> None:
        """Forget the brokers whose last registration came over this connection."""
        with self._lock:
            for address in [a for a, alive in self._alive.items() if alive.connection is connection]:
                self._peer_log.warn(
                    f"closed {address}", "broker at {address} is gone: its connection closed", address=address
                )
                self._forget(address)

    def scan_inactive(self, now_ms: int) -> int:
        """Forget the brokers that were silent for too long and close their connections; return how many there were."""
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
        """Remove an address everywhere, and with a broker's last address its name and topics."""
        self._alive.pop(address, None)
        self._put_filter_servers(address, [])
        for name, broker in list(self._brokers.items()):
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
        """Tell a broker whether its topics changed since it registered, and which version is known, if any.

        Being unchanged counts as a sign of life, since such a broker saves itself the registration.
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
        """Let nobody write to a broker's topics, until it registers them anew; return how many it has."""
        return self._set_perms(broker_name, lambda perm: perm & ~permission.WRITE)

    def add_write_perm(self, broker_name: str) -> int:
        """Let everybody read and write all of a broker's topics; return how many it has."""
        return self._set_perms(broker_name, lambda _: permission.READ | permission.WRITE)

    def _set_perms(self, broker_name: str, new_perm: Callable[[int], int]) -> int:
        with self._lock:
            count = self._topics.set_perms(broker_name, new_perm)
            self.revision += 1
            return count

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Forget a topic, on all brokers or on those of one cluster; a broker that still has it may bring it back."""
        with self._lock:
            if self._topics.delete(topic, self._clusters.get(cluster, ()) if cluster else None):
                self.revision += 1
                self._log.info("topic {topic} is deleted in {cluster}", topic=topic, cluster=cluster or "all clusters")

    # ------------------------------------------------------------ queries

    def pick_topic_route(self, topic: str) -> TopicRouteData | None:
        """Return where a topic is, without ordered-topic configuration; None when no known broker has it."""
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
        """Return all brokers with their addresses, and the clusters they form."""
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
        """Return the topics that any broker of a cluster has; none for an unknown cluster."""
        with self._lock:
            return TopicList(topic_list=self._topics.names_at(self._clusters.get(cluster, set())))

    def unit_topics(self) -> TopicList:
        """Return the topics that live in a unit."""
        return self._topics_by_flag(lambda flag: bool(flag & TOPIC_UNIT))

    def unit_sub_topics(self) -> TopicList:
        """Return the topics that units subscribe to."""
        return self._topics_by_flag(lambda flag: bool(flag & TOPIC_UNIT_SUB))

    def unit_sub_ununit_topics(self) -> TopicList:
        """Return the topics that units subscribe to but that live in none."""
        return self._topics_by_flag(lambda flag: flag & (TOPIC_UNIT | TOPIC_UNIT_SUB) == TOPIC_UNIT_SUB)

    def _topics_by_flag(self, wanted: Callable[[int], bool]) -> TopicList:
        with self._lock:
            return TopicList(topic_list=self._topics.names_by_flag(wanted))


def _copy_of(broker: BrokerData) -> BrokerData:
    return msgspec.structs.replace(broker, broker_addrs=dict(broker.broker_addrs))
