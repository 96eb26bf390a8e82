"""The broker as send processors see it."""

from typing import Protocol

from rocketd.broker.replication.service import Replication
from rocketd.broker.send.message_builder import MessageBuilder
from rocketd.broker.stats.broker_stats_manager import BrokerStatsManager
from rocketd.broker.stats.store_stats import StoreStats
from rocketd.broker.tables.parts import TableParts


class SendParts(TableParts, Protocol):
    """Tables, statistics, replication and the message builder."""

    message_builder: MessageBuilder
    replication: Replication
    stats: StoreStats
    broker_stats: BrokerStatsManager
