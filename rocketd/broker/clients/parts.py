"""The broker as the processors of client requests see it."""

from typing import Protocol

from rocketd.broker.clients.broker_to_client import BrokerToClient
from rocketd.broker.clients.consumers import ConsumerManager
from rocketd.broker.clients.producers import ProducerManager
from rocketd.broker.clients.queue_lock_table import RebalanceLockManager
from rocketd.broker.send.parts import SendParts
from rocketd.broker.tables.parts import QueueWatch, TableParts


class GroupParts(TableParts, Protocol):
    """The tables, and the online consumers."""

    consumers: ConsumerManager


class ClientParts(GroupParts, SendParts, Protocol):
    """Everything sends use, the online clients, and requests to them."""

    producers: ProducerManager
    locks: RebalanceLockManager
    to_clients: BrokerToClient

    @property
    def group_guard(self) -> QueueWatch:
        """The guard of consumer groups."""
