"""Statistics and progress: 208, 303, 308, 315, 317.

- 315: one statistic. 208, 317: progress of one group, of all. 303: store times. 308: least offsets.

Unlike in Apache's broker, 308 keeps the offsets of the ignored groups. For a group without an offset, 303 measures the
delay from the first message, not from 1970.

Counterpart: these requests of `AdminBrokerProcessor` (Apache).
"""

from collections.abc import Callable, Iterable
from datetime import datetime

from twisted.logger import Logger
from zope.interface import implementer

from rocketd.broker.admin.parts import AdminParts
from rocketd.broker.stats.stats_item import StatsSnapshot
from rocketd.broker.tables.offsets import SEPARATOR
from rocketd.common.logs.throttle import event_log
from rocketd.remoting.bodies.admin import (
    BrokerStatsData,
    BrokerStatsItem,
    ConsumeStats,
    ConsumeStatsList,
    OffsetWrapper,
    QueryConsumeTimeSpanBody,
    QueryCorrectionOffsetBody,
    QueueTimeSpan,
)
from rocketd.remoting.bodies.tables import Body, MessageQueue, TopicConfig
from rocketd.remoting.errors import RequestError
from rocketd.remoting.headers.admin import (
    GetConsumeStatsInBrokerHeader,
    GetConsumeStatsRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
    QueryCorrectionOffsetHeader,
    ViewBrokerStatsDataRequestHeader,
)
from rocketd.remoting.headers.client import read_header
from rocketd.remoting.interfaces import IRequestContext, IRequestProcessor
from rocketd.remoting.wire.codes import RequestCode, ResponseCode
from rocketd.remoting.wire.command import RemotingCommand


@implementer(IRequestProcessor)
class StatisticsProcessor:
    """Reads statistics, offsets and store. ``process`` may run in several threads at once."""

    _log = Logger()

    def __init__(self, broker: AdminParts) -> None:
        self._broker = broker
        self._events = event_log(self._log)
        self._broker_name: str = broker.settings.broker.broker_name
        self._methods: dict[int, Callable[[RemotingCommand], Body]] = {
            RequestCode.GET_CONSUME_STATS: self._consume_stats,
            RequestCode.QUERY_CONSUME_TIME_SPAN: self._time_spans,
            RequestCode.QUERY_CORRECTION_OFFSET: self._least_offsets,
            RequestCode.VIEW_BROKER_STATS_DATA: self._statistic,
            RequestCode.GET_BROKER_CONSUME_STATS: self._all_consume_stats,
        }

    def process(self, request: RemotingCommand, context: IRequestContext) -> RemotingCommand:
        """Handle one request; see IRequestProcessor."""
        return RemotingCommand.response(body=self._methods[request.code](request).encode())

    # ---------------------------------------------------------------- 315

    def _statistic(self, request: RemotingCommand) -> BrokerStatsData:
        header = read_header(ViewBrokerStatsDataRequestHeader, request)
        spans = self._broker.broker_stats.find(header.stats_name, header.stats_key)
        if spans is None:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, f"The stats <{header.stats_name}> <{header.stats_key}> not exist"
            )
        return BrokerStatsData(_item(spans.minute), _item(spans.hour), _item(spans.day))

    # ---------------------------------------------------------------- 208, 317

    def _consume_stats(self, request: RemotingCommand) -> ConsumeStats:
        header = read_header(GetConsumeStatsRequestHeader, request)
        group, topic = header.consumer_group, header.topic
        topics = [topic] if topic and topic.strip() else sorted(self._broker.offsets.topics_of(group))
        stats = ConsumeStats(offset_table={})
        for config in self._topics_of_group(group, topics):
            self._add_progress(stats, group, config.topic_name, config.read_queue_nums)
        return stats

    def _all_consume_stats(self, request: RemotingCommand) -> ConsumeStatsList:
        only_ordered = read_header(GetConsumeStatsInBrokerHeader, request).is_order
        listed: list[dict[str, list[ConsumeStats]]] = []
        total = 0
        for group in list(self._broker.groups.snapshot().subscription_group_table):
            of_group = []
            for config in self._topics_of_group(group, sorted(self._broker.offsets.topics_of(group))):
                if only_ordered and not config.order:
                    continue
                stats = ConsumeStats(offset_table={})
                self._add_progress(stats, group, config.topic_name, config.write_queue_nums)
                total += sum(queue.broker_offset - queue.consumer_offset for queue in stats.offset_table.values())
                of_group.append(stats)
            listed.append({group: of_group})
        return ConsumeStatsList(listed, self._broker.address, total)

    def _topics_of_group(self, group: str, topics: Iterable[str]) -> Iterable[TopicConfig]:
        """Yield existing topics. If the group is online, only those it subscribes to."""
        online = self._broker.consumers.find(group)
        for topic in topics:
            config: TopicConfig | None = self._broker.topics.select(topic)
            if config is None:
                self._events.warn(
                    "unknown", "group {group} has offsets of {topic}, which does not exist", group=group, topic=topic
                )
            elif online is not None and online.subscriptions and online.find_subscription(topic) is None:
                self._events.warn(
                    "not subscribed",
                    "group {group} has offsets of {topic}, to which it does not subscribe",
                    group=group,
                    topic=topic,
                )
            else:
                yield config

    def _add_progress(self, stats: ConsumeStats, group: str, topic: str, queues: int) -> None:
        store, offsets = self._broker.store, self._broker.offsets
        for queue_id in range(queues):
            consumed = max(0, offsets.query(group, topic, queue_id))
            last_timestamp = store.get_store_time(topic, queue_id, consumed - 1) if consumed else 0
            stats.offset_table[MessageQueue(topic, self._broker_name, queue_id)] = OffsetWrapper(
                broker_offset=max(0, store.get_max_offset(topic, queue_id)),
                consumer_offset=consumed,
                last_timestamp=max(0, last_timestamp),
            )
        stats.consume_tps += self._broker.broker_stats.tps_group_get_nums(group, topic)

    # ---------------------------------------------------------------- 303

    def _time_spans(self, request: RemotingCommand) -> QueryConsumeTimeSpanBody:
        header = read_header(QueryConsumeTimeSpanRequestHeader, request)
        topic = header.topic
        config = self._broker.topics.select(topic)
        if config is None:
            raise RequestError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        return QueryConsumeTimeSpanBody(
            [self._time_span(header.group, topic, queue_id) for queue_id in range(config.write_queue_nums)]
        )

    def _time_span(self, group: str, topic: str, queue_id: int) -> QueueTimeSpan:
        store = self._broker.store
        end = store.get_max_offset(topic, queue_id)
        earliest = store.get_earliest_time(topic, queue_id)
        latest = store.get_store_time(topic, queue_id, end - 1)
        committed = self._broker.offsets.query(group, topic, queue_id)
        consumed = store.get_store_time(topic, queue_id, committed - 1) if committed > 0 else earliest
        delay_ms = 0
        following = max(committed, store.get_min_offset(topic, queue_id))
        if following < end:
            delay_ms = max(0, self._broker.now_ms() - store.get_store_time(topic, queue_id, following))
        return QueueTimeSpan(
            message_queue=MessageQueue(topic, self._broker_name, queue_id),
            min_time_stamp=earliest,
            max_time_stamp=latest,
            consume_time_stamp=consumed,
            delay_time=delay_ms,
            min_time_stamp_str=time_text(earliest),
            max_time_stamp_str=time_text(latest),
            consume_time_stamp_str=time_text(consumed),
        )

    # ---------------------------------------------------------------- 308

    def _least_offsets(self, request: RemotingCommand) -> QueryCorrectionOffsetBody:
        """Return the least committed offset of each queue whose message still exists, over all groups.

        The group to compare with is ignored: Apache's broker looks up its offsets under a wrong key, and finds none.
        """
        header = read_header(QueryCorrectionOffsetHeader, request)
        broker, topic = self._broker, header.topic
        ignored = (header.filter_groups or "").split(",")
        least: dict[int, int] = {}
        for key, queues in broker.offsets.snapshot().offset_table.items():
            name, _, group = key.partition(SEPARATOR)
            if name != topic or group in ignored:
                continue
            for queue_id, offset in queues.items():
                if offset >= broker.store.get_min_offset(topic, queue_id):
                    least[queue_id] = min(offset, least.get(queue_id, offset))
        return QueryCorrectionOffsetBody(dict(sorted(least.items())))


def time_text(timestamp_ms: int) -> str:
    """Return a time in this machine's zone as Apache's beans do: ``2026-11-21#22:35:00:000``."""
    time = datetime.fromtimestamp(timestamp_ms // 1000)
    return f"{time:%Y-%m-%d#%H:%M:%S}:{timestamp_ms % 1000:03}"


def _item(snapshot: StatsSnapshot) -> BrokerStatsItem:
    return BrokerStatsItem(snapshot.sum, snapshot.tps, snapshot.avgpt)
