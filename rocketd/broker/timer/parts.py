"""The broker as the delivery of delayed and timed messages sees it."""

from typing import Protocol

from rocketd.broker.stats.broker_stats_manager import BrokerStatsManager
from rocketd.broker.tables.parts import TableParts


class TimerParts(TableParts, Protocol):
    """The tables and the statistics."""

    broker_stats: BrokerStatsManager
