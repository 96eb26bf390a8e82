"""The parts of a broker that need neither a reactor nor sockets, wired together.

Both Broker and the broker of tests are made of them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from rocketd.broker.base.extensions import Extensions
from rocketd.broker.base.json_file import JsonFiles
from rocketd.broker.base.message_hooks import MessageHooks
from rocketd.broker.clients.broker_to_client import BrokerToClient
from rocketd.broker.clients.consumers import ConsumerManager
from rocketd.broker.clients.last_subscriptions import LastSubscriptions, LastSubscriptionWrapper
from rocketd.broker.clients.parts import ClientParts
from rocketd.broker.clients.producers import ProducerManager
from rocketd.broker.clients.queue_lock_table import RebalanceLockManager
from rocketd.broker.lag.group_guard import GroupGuard
from rocketd.broker.send.message_builder import MessageBuilder
from rocketd.broker.stats.broker_stats_manager import BrokerStatsManager
from rocketd.broker.stats.store_stats import StoreStats
from rocketd.broker.tables.filters.consumer_filter_file import ConsumerFilterWrapper
from rocketd.broker.tables.filters.consumer_filters import ConsumerFilterManager
from rocketd.broker.tables.groups import SubscriptionGroupManager
from rocketd.broker.tables.light_offsets import offset_file
from rocketd.broker.tables.new_names import group_limit, topic_limit
from rocketd.broker.tables.offsets import ConsumerOffsetManager
from rocketd.broker.tables.topics import TopicConfigManager
from rocketd.broker.timer.delay_levels import DelayLevels
from rocketd.broker.timer.parts import TimerParts
from rocketd.broker.timer.schedule import ScheduleMessageService
from rocketd.broker.timer.service import TimerMessageService
from rocketd.broker.transaction.service import TransactionService
from rocketd.common.table_writer import TableWriter
from rocketd.remoting.bodies.tables import (
    DelayOffsetSerializeWrapper,
    SubscriptionGroupWrapper,
    TopicConfigSerializeWrapper,
)
from rocketd.store.base.layout import config_dir


class PartsOwner(ClientParts, TimerParts, Protocol):
    """The broker, as some of its parts reach the others. They use it only after it is complete."""


@dataclass(frozen=True)
class BrokerParts:
    """Tables, clients, and the services over the store, of one broker."""

    delay_levels: DelayLevels
    timers: TimerMessageService
    message_builder: MessageBuilder
    topics: TopicConfigManager
    groups: SubscriptionGroupManager
    offsets: ConsumerOffsetManager
    filters: ConsumerFilterManager
    consumers: ConsumerManager
    producers: ProducerManager
    last_subscriptions: LastSubscriptions
    locks: RebalanceLockManager
    to_clients: BrokerToClient
    group_guard: GroupGuard
    schedule: ScheduleMessageService
    transactions: TransactionService
    stats: StoreStats
    broker_stats: BrokerStatsManager
    message_hooks: MessageHooks
    extensions: Extensions


def make_parts(
    broker: PartsOwner, to_clients: BrokerToClient, writer: TableWriter, clock: Callable[[], float]
) -> BrokerParts:
    """Make the parts of a broker with settings, clocks, a file system and a dispatcher, but without parts yet.

    ``writer`` writes the tables; ``clock`` returns monotonic seconds. Nothing is read or opened.
    """
    settings, limits = broker.settings, broker.dispatcher.limits
    files = JsonFiles(config_dir(settings.store.store_path_root_dir), broker.file_system)
    delay_levels = DelayLevels(settings.store.message_delay_level)
    timers = TimerMessageService(broker, clock)
    topics = TopicConfigManager(
        settings.broker,
        files.file("topics.json", TopicConfigSerializeWrapper),
        broker.now_ms,
        writer,
        topic_limit(settings.broker, limits, clock),
    )
    groups = SubscriptionGroupManager(
        settings.broker,
        files.file("subscriptionGroup.json", SubscriptionGroupWrapper),
        broker.now_ms,
        writer,
        group_limit(settings.broker, limits, clock),
    )
    if settings.store.enable_lmq:
        topics.serve_light_queues()
        groups.serve_light_queues()
    filters = ConsumerFilterManager(
        settings.broker, files.file("consumerFilter.json", ConsumerFilterWrapper), broker.now_ms, writer
    )
    consumers = ConsumerManager(broker.clock_ms)
    last_subscriptions = LastSubscriptions(
        groups, consumers, files.file("lastSubscription.json", LastSubscriptionWrapper), writer
    )
    consumers.on_group_gone(filters.unregister)
    return BrokerParts(
        delay_levels=delay_levels,
        timers=timers,
        message_builder=MessageBuilder(settings.broker.broker_cluster_name, delay_levels.delays_ms, timers.gate),
        topics=topics,
        groups=groups,
        offsets=ConsumerOffsetManager(offset_file(settings.store, files), writer),
        filters=filters,
        consumers=consumers,
        producers=ProducerManager(broker.clock_ms),
        last_subscriptions=last_subscriptions,
        locks=RebalanceLockManager(
            broker.clock_ms,
            settings.broker.rebalance_lock_max_live_time,
            lambda: settings.broker.max_queue_locks,
            limits,
        ),
        to_clients=to_clients,
        group_guard=GroupGuard(broker),
        schedule=ScheduleMessageService(
            broker, delay_levels, files.file("delayOffset.json", DelayOffsetSerializeWrapper), writer
        ),
        transactions=TransactionService(broker, clock),
        stats=StoreStats(broker.now_ms, broker.clock_ms, lambda: broker.store.messages_put),
        broker_stats=BrokerStatsManager(
            settings.broker.broker_cluster_name,
            broker.clock_ms,
            per_queue=settings.broker.enable_detail_stat,
            merge_lmq=settings.store.enable_lmq,
        ),
        message_hooks=MessageHooks(broker.dispatcher.plugin_calls),
        extensions=Extensions(broker),
    )
