"""The SQL92 filters of consumer groups, and the bitmaps computed from them.

They are kept in Apache's file, ``config/consumerFilter.json``. The filter of an offline group is kept for
``filterDataCleanTimeSpan``, so messages stored meanwhile have its bit when the group returns.

Counterpart: `ConsumerFilterManager`, `CommitLogDispatcherCalcBitMap` (Apache).
"""

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from twisted.logger import Logger

from rocketd.broker.base.json_file import JsonFile
from rocketd.broker.base.settings import BrokerConfig
from rocketd.broker.tables.filters.consumer_filter_file import (
    BloomFilterData,
    ConsumerFilterData,
    ConsumerFilterWrapper,
    FilterDataMapByTopic,
)
from rocketd.broker.tables.filters.expression_filter import ConsumerFilter
from rocketd.broker.tables.filters.subscriptions import is_tag_type
from rocketd.common.logs.throttle import LogThrottle, ThrottledLog
from rocketd.common.message_properties import decode_properties
from rocketd.common.table_writer import TableWriter
from rocketd.filter.bloom import BloomFilter
from rocketd.filter.expressions import SelectorError
from rocketd.filter.selector import compile_selector
from rocketd.remoting.bodies.tables import SubscriptionData
from rocketd.store.format.message import DispatchRequest

GONE_BEFORE_START_MS = 30_000
"""The time for which groups in the file count as offline at a start, at most the age of their filter."""

STEP = 50
"""The number of expressions compiled before other work gets its turn."""


class ConsumerFilterManager:
    """Filters by topic and group. Any thread.

    ``bloom`` assigns bits to groups; ``now_ms`` returns Unix milliseconds.
    """

    _log = Logger()

    def __init__(
        self,
        config: BrokerConfig,
        file: JsonFile[ConsumerFilterWrapper],
        now_ms: Callable[[], int],
        writer: TableWriter | None = None,
    ) -> None:
        """Without a ``writer``, ``save`` writes in the calling thread."""
        self.bloom = BloomFilter(config.max_error_rate_of_bloom_filter, config.expect_consumer_num_use_filter)
        self._config = config
        self._file = file
        self._now_ms = now_ms
        self._peer_log = ThrottledLog(self._log, LogThrottle(kinds=100))
        self._guard = threading.Lock()
        self._changes = 0
        # The inner tables are replaced, never changed; so readers need no lock.
        self._topics: dict[str, dict[str, ConsumerFilter]] = {}
        self._topics_of: dict[str, set[str]] = {}
        """The topics of each group with a filter."""
        self._saved = (writer or TableWriter()).table(file.path, self.persist)

    # ---------------------------------------------------------------- queries

    def get(self, topic: str, group: str) -> ConsumerFilter | None:
        """Return a group's filter for a topic; None if it has no usable one."""
        return self._topics.get(topic, {}).get(group)

    def stored_form(self, topic: str, group: str) -> ConsumerFilterData | None:
        """Return a group's filter for a topic in the form of the file."""
        known = self.get(topic, group)
        return None if known is None else _stored(known)

    def make_bitmaps(self, requests: Sequence[DispatchRequest]) -> None:
        """Set the bitmap of each message: the groups whose filter it matches. Does nothing unless it is switched on."""
        if self._config.enable_calc_filter_bit_map and self._topics:
            for request in requests:
                filters = self._topics.get(request.topic)
                if filters:
                    request.bitmap = self._bitmap_of(request, filters)

    def _bitmap_of(self, request: DispatchRequest, filters: Mapping[str, ConsumerFilter]) -> bytes:
        mask = 0
        properties = decode_properties(request.properties.decode("utf-8", "replace"))
        for consumer_filter in filters.values():
            selector = consumer_filter.selector
            if selector is not None and selector.is_true(properties):
                mask |= consumer_filter.mask
        return self.bloom.bitmap(mask)

    # ---------------------------------------------------------------- registration

    def register_group(self, group: str, subscriptions: Collection[SubscriptionData]) -> None:
        """Record all subscriptions of a group. Its filters for other topics count as offline from now on."""
        for _ in self.register_in_steps(group, subscriptions):
            pass

    def register_in_steps(self, group: str, subscriptions: Collection[SubscriptionData]) -> Iterator[None]:
        """Do the same as ``register_group``, but yield after every STEP expressions."""
        count = 0
        for subscription in subscriptions:
            if not is_tag_type(subscription.expression_type) and subscription.sub_string:
                self.register(group, subscription)
                count += 1
                if count % STEP == 0:
                    yield
        topics = {subscription.topic for subscription in subscriptions}
        self._mark_dead(group, topics)

    def register(self, group: str, subscription: SubscriptionData) -> None:
        """Record a group's subscription by an expression, unless a newer version is known.

        An invalid new expression replaces the old one too: the group then has no filter, and its pulls are refused.
        """
        topic, version = subscription.topic, subscription.sub_version
        with self._guard:
            old = self.get(topic, group)
            if old is not None and version <= old.client_version:
                if version == old.client_version and old.is_dead:
                    self._put(old.replaced(dead_time=0))
                return
            if old is not None and old.is_for(subscription.expression_type, subscription.sub_string):
                self._put(old.replaced(client_version=version, dead_time=0))
                return
            try:
                new = self._build(group, subscription)
            except SelectorError as error:
                self._peer_log.error(
                    f"unusable {group}",
                    "group {group}: the filter of {topic} cannot be used: {error}",
                    group=group,
                    topic=topic,
                    error=error,
                )
                if old is not None:
                    self._drop(old)
                return
            self._put(new)
        self._peer_log.info(
            f"filters {group}", "group {group} filters {topic} by {new}", group=group, topic=topic, new=new.expression
        )
        self._warn_of_rest(new)

    def _warn_of_rest(self, new: ConsumerFilter) -> None:
        """Warn of an expression with an unread rest: it selects other messages than its author meant."""
        end = len(new.expression) if new.selector is None else new.selector.end
        if end < len(new.expression):
            self._peer_log.warn(
                f"partly read filter {new.group}",
                "group {group}: only the first part of its filter of {topic} is used, {read!r:.200}; the rest is "
                "ignored: {unread!r:.200}",
                group=new.group,
                topic=new.topic,
                read=new.expression[:end].rstrip(),
                unread=new.expression[end:],
            )

    def unregister(self, group: str) -> None:
        """Record that a group has no members any more."""
        self._mark_dead(group, ())

    def forget_topic(self, topic: str) -> None:
        """Remove the filters of offline groups for a topic. Online groups need theirs."""
        self._forget(lambda known: known.topic == topic)

    def forget_group(self, group: str) -> None:
        """Remove all filters of a group, unless it is online."""
        self._forget(lambda known: known.group == group)

    def _forget(self, is_gone: Callable[[ConsumerFilter], bool]) -> None:
        with self._guard:
            filters = [known for groups in self._topics.values() for known in groups.values()]
            for known in filters:
                if known.is_dead and is_gone(known):
                    self._drop(known)

    def _mark_dead(self, group: str, subscribed: Collection[str]) -> None:
        """Count a group as offline for all topics except the ``subscribed`` ones."""
        with self._guard:
            topics = self._topics_of.get(group, set()).difference(subscribed)
        for topic in topics:
            with self._guard:
                known = self.get(topic, group)
                if known is not None and not known.is_dead:
                    self._put(known.replaced(dead_time=self._now_ms()))

    def _build(self, group: str, subscription: SubscriptionData) -> ConsumerFilter:
        kind, expression = subscription.expression_type, subscription.sub_string
        selector = compile_selector(kind, expression)
        positions = self.bloom.positions(f"{group}#{subscription.topic}")
        return ConsumerFilter(
            group=group,
            topic=subscription.topic,
            kind=kind,
            expression=expression,
            selector=selector,
            born_time=self._now_ms(),
            client_version=subscription.sub_version,
            positions=tuple(positions),
            bits=self.bloom.bits,
        )

    # ---------------------------------------------------------------- the file

    def load(self) -> None:
        """Read the file. If its bitmaps have another size, all filters are dropped. Raises JsonFileError."""
        stored = self._file.load()
        if stored is None:
            return
        loaded: dict[str, dict[str, ConsumerFilter]] = {}
        for topic, of_topic in stored.filter_data_by_topic.items():
            for group, data in of_topic.group_filter_data.items():
                bloom = data.bloom_filter_data
                if bloom is None or not self.bloom.is_valid(bloom.bit_pos, bloom.bit_num):
                    self._log.warn(
                        "the stored filters are for bitmaps of another size than {bits} bits: groups register their "
                        "filters again",
                        bits=self.bloom.bits,
                    )
                    return
                loaded.setdefault(topic, {})[group] = self._restored_filter(data, bloom)
        with self._guard:
            self._topics = loaded
            self._topics_of = {}
            for topic, groups in loaded.items():
                for group in groups:
                    self._topics_of.setdefault(group, set()).add(topic)

    def _restored_filter(self, data: ConsumerFilterData, bloom: BloomFilterData) -> ConsumerFilter:
        try:
            selector = compile_selector(data.expression_type, data.expression)
        except SelectorError as error:
            self._log.error(
                "group {group}: the stored filter of {topic} cannot be used: {error}",
                group=data.consumer_group,
                topic=data.topic,
                error=error,
            )
            selector = None
        dead_time = data.dead_time or max(data.born_time, self._now_ms() - GONE_BEFORE_START_MS)
        return ConsumerFilter(
            group=data.consumer_group,
            topic=data.topic,
            kind=data.expression_type,
            expression=data.expression,
            selector=selector,
            born_time=data.born_time,
            client_version=data.client_version,
            positions=bloom.bit_pos,
            bits=bloom.bit_num,
            dead_time=dead_time,
        )

    def save(self) -> None:
        """Schedule ``persist`` in the writer."""
        self._saved.changed()

    def persist(self) -> None:
        """Remove the filters of groups offline for too long, and write the file if anything has changed.

        Raises OSError.
        """
        self._clean()
        self._file.save(self._numbered_snapshot)

    def _clean(self) -> None:
        latest = self._now_ms() - self._config.filter_data_clean_time_span
        self._forget(lambda known: known.dead_time <= latest)

    def _numbered_snapshot(self) -> tuple[int, ConsumerFilterWrapper]:
        with self._guard:
            tables = {
                topic: FilterDataMapByTopic({group: _stored(known) for group, known in groups.items()}, topic)
                for topic, groups in self._topics.items()
            }
            return self._changes, ConsumerFilterWrapper(tables)

    # ---------------------------------------------------------------- with the lock held

    def _put(self, new: ConsumerFilter) -> None:
        self._topics[new.topic] = {**self._topics.get(new.topic, {}), new.group: new}
        self._topics_of.setdefault(new.group, set()).add(new.topic)
        self._changes += 1

    def _drop(self, known: ConsumerFilter) -> None:
        left = {group: other for group, other in self._topics[known.topic].items() if group != known.group}
        if left:
            self._topics[known.topic] = left
        else:
            del self._topics[known.topic]
        topics = self._topics_of[known.group]
        topics.discard(known.topic)
        if not topics:
            del self._topics_of[known.group]
        self._changes += 1


def _stored(known: ConsumerFilter) -> ConsumerFilterData:
    return ConsumerFilterData(
        bloom_filter_data=BloomFilterData(known.bits, known.positions),
        born_time=known.born_time,
        client_version=known.client_version,
        consumer_group=known.group,
        dead=known.is_dead,
        dead_time=known.dead_time,
        expression=known.expression,
        expression_type=known.kind,
        topic=known.topic,
    )
