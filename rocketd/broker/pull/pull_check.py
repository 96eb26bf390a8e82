"""Checks a pull before the store is read, and builds its message filter.

One thread at a time: the holder of the guard of held pulls. Unlike in Apache's broker, a pull with an invalid filter
expression in the request is refused; it does not receive all messages.

Counterpart: the checks of `PullMessageProcessor`, and `ExpressionMessageFilter` for tags (Apache).
"""

from rocketd.broker.base import problems
from rocketd.broker.pull.parts import PullParts
from rocketd.broker.pull.slow_readers import SlowReaders
from rocketd.broker.tables.filters.expression_filter import ConsumerFilter, RetryFilter
from rocketd.broker.tables.filters.subscriptions import ANY_TAG, TAG, SubscriptionError, build_subscription, is_tag_type
from rocketd.broker.tables.implied_topics import ImpliedTopics
from rocketd.common.names import RETRY_PREFIX
from rocketd.common.permission import is_readable
from rocketd.common.sysflag import PULL_SUBSCRIPTION
from rocketd.filter.expressions import SelectorError
from rocketd.filter.selector import compile_selector
from rocketd.remoting.bodies.tables import SubscriptionData, SubscriptionGroupConfig
from rocketd.remoting.headers.client import PullMessageRequestHeader
from rocketd.store.format.message import MessageFilter, PropertiesFilter, UnitFilter

_CACHE_LIMIT = 10_000


class TagFilter:
    """Accepts messages by the hash of their tag; None accepts all. The client compares the tags themselves."""

    __slots__ = ("matches", "matches_unit", "tags_codes")

    def __init__(self, tags_codes: frozenset[int] | None) -> None:
        self.tags_codes = tags_codes
        self.matches_unit: UnitFilter | None = None
        self.matches: PropertiesFilter | None = None


ALL = TagFilter(None)


class PullCheck:
    """Refuses invalid pulls and builds the filters of the others."""

    def __init__(self, broker: PullParts) -> None:
        self._broker = broker
        self._settings = broker.settings.broker
        self._guard = broker.group_guard
        self._slow_readers = SlowReaders(broker)
        self.check_slow_readers = self._slow_readers.check
        """To be called every second."""
        # A slave may receive the end of the log before the tables.
        is_slave = broker.settings.store.broker_role == "SLAVE"
        self._implied = ImpliedTopics(broker) if is_slave else None
        self._filters: dict[int, tuple[SubscriptionData, TagFilter]] = {}

    def check(self, header: PullMessageRequestHeader, address: str) -> tuple[SubscriptionGroupConfig, MessageFilter]:
        """Return the group's configuration and the filter. Raises RequestError."""
        broker, settings = self._broker, self._settings
        if not is_readable(settings.broker_permission):
            raise problems.BROKER_FORBIDDEN.error(
                broker=broker.advertised_host, action="pulling message", perm=settings.broker_permission
            )
        group: SubscriptionGroupConfig | None = broker.groups.find(header.consumer_group, address)
        if group is None:
            raise problems.PULL_GROUP_NOT_EXIST.error(group=header.consumer_group)
        if not group.consume_enable:
            raise problems.GROUP_FORBIDDEN.error(group=header.consumer_group)
        topic = broker.topics.select(header.topic)
        if topic is None and self._implied is not None:
            self._implied.make_again()
            topic = broker.topics.select(header.topic)
        if topic is None:
            raise problems.PULL_TOPIC_NOT_EXIST.error(topic=header.topic)
        if not is_readable(topic.perm):
            raise problems.TOPIC_FORBIDDEN.error(topic=header.topic, action="pulling message", perm=topic.perm)
        if not 0 <= header.queue_id < topic.read_queue_nums:
            raise problems.PULL_QUEUE_ID_ILLEGAL.error(
                queue_id=header.queue_id, topic=header.topic, read=topic.read_queue_nums, consumer=address
            )
        flags = header.sys_flag
        if flags & PULL_SUBSCRIPTION and header.subscription == ANY_TAG and header.expression_type == TAG:
            wanted = self._retry_filter(header, ALL)
        else:
            wanted = self._filter(header, group)
        self._guard.queue_used(header.consumer_group, header.topic, header.queue_id)
        self._slow_readers.reads(header)
        return group, wanted

    def _filter(self, header: PullMessageRequestHeader, group: SubscriptionGroupConfig) -> MessageFilter:
        """Return the filter of the request's subscription, or of the group's. Raises RequestError."""
        wanted: MessageFilter
        of_request = header.sys_flag & PULL_SUBSCRIPTION
        if of_request:
            subscription = self._subscription_of_request(header)
        else:
            subscription = self._subscription_of_group(header, group)
        if is_tag_type(subscription.expression_type):
            return self._retry_filter(header, self._tags_of(subscription))
        if of_request:
            wanted = self._expression_of_request(header, subscription)
        else:
            wanted = self._expression_of_group(header)
        if not self._settings.enable_property_filter:
            raise problems.FILTER_NOT_SUPPORTED.error(kind=subscription.expression_type)
        return wanted

    def _subscription_of_request(self, header: PullMessageRequestHeader) -> SubscriptionData:
        try:
            return build_subscription(header.topic, header.subscription, header.expression_type)
        except SubscriptionError as error:
            raise problems.SUBSCRIPTION_PARSE_FAILED.error(found=error) from error

    def _subscription_of_group(
        self, header: PullMessageRequestHeader, group: SubscriptionGroupConfig
    ) -> SubscriptionData:
        online = self._broker.consumers.find(header.consumer_group)
        if online is None:
            raise problems.GROUP_NOT_ONLINE.error(group=header.consumer_group)
        if not group.consume_broadcast_enable and online.message_model == "BROADCASTING":
            raise problems.BROADCAST_FORBIDDEN.error(group=header.consumer_group)
        subscription: SubscriptionData | None = online.find_subscription(header.topic)
        if subscription is None:
            raise problems.SUBSCRIPTION_NOT_EXIST.error(group=header.consumer_group, topic=header.topic)
        if subscription.sub_version < header.sub_version:
            raise problems.SUBSCRIPTION_NOT_LATEST.error(known=subscription.sub_version, asked=header.sub_version)
        return subscription

    def _expression_of_request(self, header: PullMessageRequestHeader, subscription: SubscriptionData) -> MessageFilter:
        kind, expression = subscription.expression_type, subscription.sub_string
        try:
            selector = compile_selector(kind, expression)
        except SelectorError as error:
            raise problems.SUBSCRIPTION_PARSE_FAILED.error(found=error) from error
        return ConsumerFilter(
            group=header.consumer_group,
            topic=header.topic,
            kind=kind,
            expression=expression,
            selector=selector,
            born_time=self._broker.now_ms(),
            client_version=header.sub_version,
        )

    def _expression_of_group(self, header: PullMessageRequestHeader) -> MessageFilter:
        known: ConsumerFilter | None = self._broker.filters.get(header.topic, header.consumer_group)
        if known is None:
            raise problems.FILTER_DATA_NOT_EXIST.error(group=header.consumer_group, topic=header.topic)
        if known.client_version < header.sub_version:
            raise problems.FILTER_DATA_NOT_LATEST.error(known=known.client_version, asked=header.sub_version)
        return known

    def _retry_filter(self, header: PullMessageRequestHeader, wanted: TagFilter) -> MessageFilter:
        """Return a filter that also uses the expressions of retried messages, if that is set and the topic has such."""
        if self._settings.filter_support_retry and header.topic.startswith(RETRY_PREFIX):
            group = header.topic.removeprefix(RETRY_PREFIX)
            return RetryFilter(wanted.tags_codes, lambda topic: self._broker.filters.get(topic, group))
        return wanted

    def _tags_of(self, subscription: SubscriptionData) -> TagFilter:
        """Return the tag filter of a subscription, built once per subscription object."""
        if subscription.sub_string == ANY_TAG:
            return ALL
        cached = self._filters.get(id(subscription))
        if cached is not None and cached[0] is subscription:
            return cached[1]
        if len(self._filters) >= _CACHE_LIMIT:
            self._filters.clear()
        made = TagFilter(frozenset(subscription.code_set or ()))
        self._filters[id(subscription)] = (subscription, made)
        return made
