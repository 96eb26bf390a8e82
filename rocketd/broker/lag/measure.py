"""The lag of consumer groups: in wanted messages, and in time.

Apache's GET_CONSUME_STATS also counts unwanted messages, and its numbers may be negative; these never are. For an
offline group, its last known subscriptions are used.
"""

from rocketd.broker.base import problems
from rocketd.broker.clients.last_subscriptions import GroupSubscription, LastSubscriptions
from rocketd.broker.clients.parts import GroupParts
from rocketd.broker.lag.counter import LagCounter
from rocketd.broker.pull.pull_check import ALL, TagFilter
from rocketd.broker.tables.filters.expression_filter import ConsumerFilter
from rocketd.broker.tables.filters.subscriptions import SubscriptionError, build_subscription, is_tag_type
from rocketd.remoting.bodies.lag import ConsumerLag, QueueLag, TopicFilter
from rocketd.remoting.bodies.tables import MessageModel, TopicConfig
from rocketd.remoting.errors import RequestError
from rocketd.remoting.wire.codes import ResponseCode
from rocketd.store.format.message import MessageFilter


class LagMeter:
    """Measures the lag of groups. It belongs to one thread, because it may take seconds."""

    def __init__(self, broker: GroupParts, last: LastSubscriptions) -> None:
        self._broker = broker
        self._last = last
        self._counter = LagCounter(broker.store)

    def of_group(self, group: str, topic: str | None = None) -> ConsumerLag:
        """Measure the lag of a group, in one topic or in all it reads.

        Raises RequestError if the group or topic does not exist, or the members keep their offsets themselves.
        """
        online = self._broker.consumers.find(group)
        if online is not None and online.message_model is MessageModel.BROADCASTING:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"the members of the consumer group[{group}] keep their offsets themselves (BROADCASTING); ask each "
                "of them, with mqadmin consumerStatus",
            )
        lag = ConsumerLag(
            group, online is not None, None if online is None else online.message_model, filters={}, queues=[]
        )
        self._counter.begin_question()
        for name in self._topics(group, topic):
            self._add_topic(lag, name, is_current=online is not None and name in online.subscriptions)
        lag.total_messages = sum(queue.messages for queue in lag.queues)
        lag.max_delay_millis = max((queue.delay_millis for queue in lag.queues), default=0)
        return lag

    def _topics(self, group: str, topic: str | None) -> list[str]:
        broker = self._broker
        online = broker.consumers.find(group)
        # A group does not want topics to which it no longer subscribes.
        read = set(online.subscriptions) if online is not None else self._last.topics_of(group)
        read = read or broker.offsets.topics_of(group)
        if not read and group not in broker.groups.snapshot().subscription_group_table:
            raise problems.GROUP_NOT_EXIST.error(group=group)
        if topic:
            if broker.topics.select(topic) is None:
                raise RequestError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
            return [topic]
        return sorted(name for name in read if broker.topics.select(name) is not None)

    def _add_topic(self, lag: ConsumerLag, topic: str, *, is_current: bool) -> None:
        group = lag.consumer_group
        wanted = self._wanted(group, topic, is_current=is_current)
        if wanted is not None:
            lag.filters[topic] = TopicFilter(wanted.expression_type, wanted.sub_string, is_current)
        message_filter = self._filter_of(group, topic, wanted)
        key = None if wanted is None else (wanted.expression_type, wanted.sub_string)
        config: TopicConfig | None = self._broker.topics.select(topic)
        for queue_id in range(0 if config is None else config.read_queue_nums):  # it may be deleted meanwhile
            lag.queues.append(self._of_queue(group, topic, queue_id, message_filter, key))

    def _wanted(self, group: str, topic: str, *, is_current: bool) -> GroupSubscription | None:
        if not is_current:
            return self._last.find(group, topic)
        online = self._broker.consumers.find(group)
        subscription = None if online is None else online.find_subscription(topic)
        return (
            None if subscription is None else GroupSubscription(subscription.expression_type, subscription.sub_string)
        )

    def _filter_of(self, group: str, topic: str, wanted: GroupSubscription | None) -> MessageFilter:
        if wanted is None:
            return ALL
        if not is_tag_type(wanted.expression_type):
            known: ConsumerFilter | None = self._broker.filters.get(topic, group)
            return ALL if known is None else known
        try:
            subscription = build_subscription(topic, wanted.sub_string)
        except SubscriptionError:
            return ALL
        return TagFilter(frozenset(subscription.code_set)) if subscription.code_set else ALL

    def _of_queue(self, group: str, topic: str, queue_id: int, wanted: MessageFilter, key: object) -> QueueLag:
        store = self._broker.store
        committed = self._broker.offsets.query(group, topic, queue_id)
        lowest, highest = store.get_min_offset(topic, queue_id), store.get_max_offset(topic, queue_id)
        lag = QueueLag(topic, queue_id, lowest, highest, committed)
        begin = max(committed, lowest)
        if begin >= highest:
            return lag
        if wanted.tags_codes is None and wanted.matches is None:
            lag.messages, first = highest - begin, begin
        else:
            found = self._counter.count(group, topic, queue_id, begin, highest, wanted, key)
            lag.messages, first, lag.exact = found.number, found.first, found.exact
        if lag.messages:
            stored_ms = store.get_store_time(topic, queue_id, first)
            lag.delay_millis = max(0, self._broker.now_ms() - stored_ms) if stored_ms > 0 else 0
        return lag
