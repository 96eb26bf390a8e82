"""The filters of consumer groups: what each has subscribed to by SQL92, and the bitmaps made of them.

Answers to Apache's ConsumerFilterManager and CommitLogDispatcherCalcBitMap, and keeps its file,
``config/consumerFilter.json``. A group that is gone keeps its filter for ``filterDataCleanTimeSpan``, so that messages
stored meanwhile have its bit when it comes back.
"""

import threading
from collections.abc import Callable, Collection, Mapping, Sequence

from twisted.logger import Logger

from rocketd.broker.consumer_filter_file import (
    BloomFilterData,
    ConsumerFilterData,
    ConsumerFilterWrapper,
    FilterDataMapByTopic,
)
from rocketd.broker.expression_filter import ConsumerFilter
from rocketd.broker.json_file import JsonFile
from rocketd.broker.settings import BrokerConfig
from rocketd.broker.subscriptions import is_tag_type
from rocketd.common.log_throttle import LogThrottle, ThrottledLog
from rocketd.common.properties import decode_properties
from rocketd.common.table_writer import TableWriter
from rocketd.filter.bloom import BloomFilter
from rocketd.filter.expressions import SelectorError
from rocketd.filter.selector import compile_selector
from rocketd.remoting.bodies import SubscriptionData
from rocketd.store.message import DispatchRequest

GONE_BEFORE_START_MS = 30_000
"""Groups of the file count as gone for so long when it is read, but not for longer than there are."""


class ConsumerFilterManager:
    """Filters by topic and group. Methods may be called from any thread.

    ``bloom`` says where groups have their bits; ``now_ms`` tells Unix milliseconds.
    """

    _log = Logger()

    def __init__(
        self,
        config: BrokerConfig,
        file: JsonFile[ConsumerFilterWrapper],
        now_ms: Callable[[], int],
        writer: TableWriter | None = None,
    ) -> None:
        """Without a ``writer``, ``save`` writes in the thread that calls it."""
        self.bloom = BloomFilter(config.max_error_rate_of_bloom_filter, config.expect_consumer_num_use_filter)
        self._config = config
        self._file = file
        self._now_ms = now_ms
        self._peer_log = ThrottledLog(self._log, LogThrottle(kinds=100))
        self._guard = threading.Lock()
        self._changes = 0
        # The inner tables are replaced, never changed: who reads one needs no lock.
        self._topics: dict[str, dict[str, ConsumerFilter]] = {}
        self._saved = (writer or TableWriter()).table(file.path, self.persist)

    # ---------------------------------------------------------------- asking

    def get(self, topic: str, group: str) -> ConsumerFilter | None:
        """Return a group's filter for a topic, None when it has none that can be used."""
        return self._topics.get(topic, {}).get(group)

    def stored_form(self, topic: str, group: str) -> ConsumerFilterData | None:
        """Return a group's filter for a topic as the file has it."""
        known = self.get(topic, group)
        return None if known is None else _stored(known)

    def make_bitmaps(self, requests: Sequence[DispatchRequest]) -> None:
        """Note of messages to topics with filters which groups' filters they match, if that is switched on."""
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

    # ---------------------------------------------------------------- coming and going

    def register_group(self, group: str, subscriptions: Collection[SubscriptionData]) -> None:
        """Take in all that a group subscribes to; its filters for other topics count as gone from now on."""
        for subscription in subscriptions:
            if not is_tag_type(subscription.expression_type) and subscription.sub_string:
                self.register(group, subscription)
        topics = {subscription.topic for subscription in subscriptions}
        self._bury(group, [topic for topic in list(self._topics) if topic not in topics])

    def register(self, group: str, subscription: SubscriptionData) -> None:
        """Take in what a group subscribes to by an expression, unless a newer version is known.

        A new expression that is none takes the place of the old one: the group then has no filter, and is told so when
        it pulls.
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
        """Tell of an expression of which only the beginning counts: it selects other messages than its author meant."""
        end = len(new.expression) if new.selector is None else new.selector.end
        if end < len(new.expression):
            self._log.warn(
                "group {group}: of its filter of {topic} only {read!r:.200} is read, not what follows: {unread!r:.200}",
                group=new.group,
                topic=new.topic,
                read=new.expression[:end].rstrip(),
                unread=new.expression[end:],
            )

    def unregister(self, group: str) -> None:
        """Note that nobody of a group is there any more."""
        self._bury(group, list(self._topics))

    def forget_topic(self, topic: str) -> None:
        """Drop the filters that groups without members have of a topic; a group with members needs its own."""
        self._forget(lambda known: known.topic == topic)

    def forget_group(self, group: str) -> None:
        """Drop all filters of a group, unless it has members."""
        self._forget(lambda known: known.group == group)

    def _forget(self, is_gone: Callable[[ConsumerFilter], bool]) -> None:
        with self._guard:
            filters = [known for groups in self._topics.values() for known in groups.values()]
            for known in filters:
                if known.is_dead and is_gone(known):
                    self._drop(known)

    def _bury(self, group: str, topics: Collection[str]) -> None:
        for topic in topics:
            if self.get(topic, group) is None:
                continue
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
        """Read the file. What was made for bitmaps of another size is left behind. Raises JsonFileError."""
        stored = self._file.load()
        if stored is None:
            return
        loaded: dict[str, dict[str, ConsumerFilter]] = {}
        for topic, of_topic in stored.filter_data_by_topic.items():
            for group, data in of_topic.group_filter_data.items():
                bloom = data.bloom_filter_data
                if bloom is None or not self.bloom.is_valid(bloom.bit_pos, bloom.bit_num):
                    self._log.warn(
                        "the stored filters are for bitmaps of another size than {bits} bits: groups register anew",
                        bits=self.bloom.bits,
                    )
                    return
                loaded.setdefault(topic, {})[group] = self._revived(data, bloom)
        with self._guard:
            self._topics = loaded

    def _revived(self, data: ConsumerFilterData, bloom: BloomFilterData) -> ConsumerFilter:
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
        """Have ``persist`` called by the writer."""
        self._saved.changed()

    def persist(self) -> None:
        """Forget the filters of groups that are gone for too long, and write the file if anything has changed.

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
        self._changes += 1

    def _drop(self, known: ConsumerFilter) -> None:
        left = {group: other for group, other in self._topics[known.topic].items() if group != known.group}
        if left:
            self._topics[known.topic] = left
        else:
            del self._topics[known.topic]
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
