"""Counts messages into topics and out to groups, for the last minute, hour and day; sans-io.

Names, keys and samples are Apache's, and the counting is at the same places. Unlike in Apache's broker, a group of
messages is counted at once, and nothing is written to a separate log.

Counterpart: `BrokerStatsManager`, `StatsItemSet` (Apache).
"""

import threading
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from rocketd.broker.stats.names import (
    BROKER_GET_NUMS,
    BROKER_PUT_NUMS,
    COUNTED,
    GROUP_GET_LATENCY,
    GROUP_GET_NUMS,
    GROUP_GET_SIZE,
    QUEUE_GET_NUMS,
    QUEUE_GET_SIZE,
    QUEUE_PUT_NUMS,
    QUEUE_PUT_SIZE,
    SEPARATOR,
    SNDBCK_PUT_NUMS,
    TOPIC_PUT_NUMS,
    TOPIC_PUT_SIZE,
    queue_topic_group,
    topic_group,
    topic_queue,
    topic_queue_group,
)
from rocketd.broker.stats.stats_item import HOURS_MS, MINUTES_MS, StatsItem, StatsSnapshot
from rocketd.common.names import LMQ_PREFIX, SCHEDULE_TOPIC
from rocketd.store.format.message import MessageInner, PutResult

SAMPLE_SECONDS: Final = 10.0
"""The interval at which ``sample`` is to be called."""

SCHEDULE_CONSUMER: Final = "SCHEDULE_CONSUMER"
"""The group name for deliveries of delayed messages."""


class StatsOfSpans(NamedTuple):
    """One statistic of one key over the three spans."""

    minute: StatsSnapshot
    hour: StatsSnapshot
    day: StatsSnapshot


class BrokerStatsManager:
    """All statistics of a broker.

    ``count_gets`` belongs to the pull pool's thread, all other counting to the storage thread. So each item is changed
    by one thread only, and counting needs no lock. ``sample`` belongs to one thread, the rest to any.

    - ``clock_ms`` returns monotonic milliseconds.
    - ``per_queue``: keep latencies for each queue, and counts of delayed messages for each level.
    - ``merge_lmq``: count all light queues as one, because there may be very many.
    """

    def __init__(
        self, cluster_name: str, clock_ms: Callable[[], int], *, per_queue: bool = True, merge_lmq: bool = False
    ) -> None:
        self._cluster_name = cluster_name
        self._merge_lmq = merge_lmq
        self._clock_ms = clock_ms
        self._per_queue = per_queue
        self._guard = threading.RLock()
        self._tables: dict[str, dict[str, StatsItem]] = {name: {} for name in COUNTED}
        # Items counted often are cached, so that their keys are not built again.
        self._puts: dict[str, tuple[StatsItem, StatsItem, StatsItem]] = {}
        self._gets: dict[tuple[str, str, int], tuple[StatsItem, StatsItem, StatsItem, StatsItem]] = {}
        self._next_hour_sample_ms = clock_ms() + MINUTES_MS
        self._next_day_sample_ms = clock_ms() + HOURS_MS

    # ---------------------------------------------------------------- counting

    def count_sends(self, messages: Sequence[MessageInner], results: Sequence[PutResult]) -> None:
        """Count messages sent separately, with the results of their puts."""
        first = messages[0]
        topic = first.topic
        if len(messages) == 1:
            size = results[0].size
            if size:
                self._add_puts(topic, first.queue_id, 1, size, 1).value += 1
            return
        sizes = [result.size for result in results]
        if topic == SCHEDULE_TOPIC or len({message.topic for message in messages}) > 1:
            for message, size in zip(messages, sizes, strict=True):
                if size:
                    self._count_puts(message.topic, message.queue_id, 1, size, 1)
        else:
            stored = len(sizes) - sizes.count(0)
            if stored:
                self._count_puts(topic, first.queue_id, stored, sum(sizes), stored)

    def count_batch(self, messages: Sequence[MessageInner], results: Sequence[PutResult]) -> None:
        """Count messages sent together, all to one queue."""
        size = sum([result.size for result in results])
        if size:
            self._count_puts(messages[0].topic, messages[0].queue_id, len(messages), size, 1)

    def count_reply(self, topic: str, size: int) -> None:
        """Count a stored reply; ``size`` in bytes."""
        self._count_puts(topic, 0, 1, size, 1)

    def count_send_back(self, group: str, origin: str, message: MessageInner, result: PutResult) -> None:
        """Count a message a group failed to consume; ``origin`` is its first topic.

        Only a message that waits before its retry counts for its topic, as in Apache's broker.
        """
        self._item(SNDBCK_PUT_NUMS, self._key(origin, group)).add(1, 1)
        if message.topic == SCHEDULE_TOPIC:
            self._add_puts(message.topic, message.queue_id, 1, result.size, 1)

    def count_delivery(self, level: int, topic: str, size: int) -> None:
        """Count a delayed message stored in its topic; ``size`` in bytes."""
        queue_id = level - 1
        if self._per_queue:
            key = topic_queue_group(SCHEDULE_TOPIC, queue_id, SCHEDULE_CONSUMER)
            self._item(QUEUE_GET_NUMS, key).add(1, 1)
            self._item(QUEUE_GET_SIZE, key).add(size, 1)
        key = topic_group(SCHEDULE_TOPIC, SCHEDULE_CONSUMER)
        self._item(GROUP_GET_NUMS, key).add(1, 1)
        self._item(GROUP_GET_SIZE, key).add(size, 1)
        self._add_puts(topic, 0, 1, size, 1).value += 1

    def count_gets(self, group: str, topic: str, queue_id: int, messages: int, size: int, took_ms: int) -> None:
        """Count the answer to a pull; ``size`` in bytes, ``took_ms`` its duration."""
        items = self._gets.get((group, topic, queue_id))
        if items is None:
            items = self._items_of_gets(group, topic, queue_id)
        nums, sizes, latency, broker = items
        nums.value += messages
        nums.times += 1
        sizes.value += size
        sizes.times += 1
        latency.value += took_ms
        latency.times += 1
        broker.value += messages

    def _count_puts(self, topic: str, queue_id: int, messages: int, size: int, times: int) -> None:
        self._add_puts(topic, queue_id, messages, size, times).value += messages

    def _add_puts(self, topic: str, queue_id: int, messages: int, size: int, times: int) -> StatsItem:
        """Count for the topic, and return the item of the broker."""
        items = self._puts.get(topic)
        if items is None:
            with self._guard:
                items = self._puts[topic] = (
                    self._item(TOPIC_PUT_NUMS, topic),
                    self._item(TOPIC_PUT_SIZE, topic),
                    self._item(BROKER_PUT_NUMS, self._cluster_name),
                )
        nums, sizes, broker = items
        nums.value += messages
        nums.times += times
        sizes.value += size
        sizes.times += times
        if topic == SCHEDULE_TOPIC and self._per_queue:
            key = topic_queue(topic, queue_id)
            self._item(QUEUE_PUT_NUMS, key).add(messages, times)
            self._item(QUEUE_PUT_SIZE, key).add(size, times)
        return broker

    def _items_of_gets(
        self, group: str, topic: str, queue_id: int
    ) -> tuple[StatsItem, StatsItem, StatsItem, StatsItem]:
        key = self._key(topic, group)
        latency_key = queue_topic_group(queue_id, self._name(topic), self._name(group)) if self._per_queue else key
        with self._guard:
            items = (
                self._item(GROUP_GET_NUMS, key),
                self._item(GROUP_GET_SIZE, key),
                self._item(GROUP_GET_LATENCY, latency_key),
                self._item(BROKER_GET_NUMS, self._cluster_name),
            )
            self._gets[group, topic, queue_id] = items
        return items

    def _name(self, name: str) -> str:
        return LMQ_PREFIX if self._merge_lmq and name.startswith(LMQ_PREFIX) else name

    def _key(self, topic: str, group: str) -> str:
        return topic_group(self._name(topic), self._name(group))

    def _item(self, name: str, key: str) -> StatsItem:
        """Return an item, created if missing. Creation takes the lock, because others iterate over the tables."""
        table = self._tables[name]
        item = table.get(key)
        if item is None:
            with self._guard:
                item = table[key] = StatsItem()
        return item

    # ---------------------------------------------------------------- queries

    def find(self, name: str, key: str) -> StatsOfSpans | None:
        """Return a statistic; None if the name is unknown or nothing was counted for the key."""
        with self._guard:
            item = self._tables.get(name, {}).get(key)
            if item is None:
                return None
            return StatsOfSpans(item.minute.snapshot(), item.hour.snapshot(), item.day.snapshot())

    def rates(self, name: str) -> dict[str, float]:
        """Return the sums per second of the last minute by key, for one statistic."""
        with self._guard:
            return {key: item.minute.snapshot().tps for key, item in self._tables[name].items()}

    def tps_group_get_nums(self, group: str, topic: str) -> float:
        """Return the messages per second a group got of a topic in the last minute."""
        with self._guard:
            item = self._tables[GROUP_GET_NUMS].get(self._key(topic, group))
            return 0.0 if item is None else item.minute.snapshot().tps

    # ---------------------------------------------------------------- time

    def sample(self) -> None:
        """Record all totals for the minute, and if it is time for hour and day."""
        clock_ms = self._clock_ms()
        for_hour = clock_ms >= self._next_hour_sample_ms
        for_day = clock_ms >= self._next_day_sample_ms
        if for_hour:
            self._next_hour_sample_ms = _next_after(self._next_hour_sample_ms, MINUTES_MS, clock_ms)
        if for_day:
            self._next_day_sample_ms = _next_after(self._next_day_sample_ms, HOURS_MS, clock_ms)
        for table in self._tables.values():
            # One table at a time, so that counting threads do not wait for long.
            with self._guard:
                for item in table.values():
                    value, times = item.value, item.times
                    item.minute.sample(clock_ms, value, times)
                    if for_hour:
                        item.hour.sample(clock_ms, value, times)
                    if for_day:
                        item.day.sample(clock_ms, value, times)

    # ---------------------------------------------------------------- deletion

    def on_topic_deleted(self, topic: str) -> None:
        """Remove the statistics of a topic."""
        with self._guard:
            for name in (TOPIC_PUT_NUMS, TOPIC_PUT_SIZE):
                self._tables[name].pop(topic, None)
            self._remove(_OF_TOPIC, lambda key: key.startswith(topic + SEPARATOR))
            self._remove(_LATENCIES, lambda key: _topic_of_latency(key) == topic)
            self._puts.pop(topic, None)
            self._gets.clear()

    def on_group_deleted(self, group: str) -> None:
        """Remove the statistics of a group."""
        with self._guard:
            self._remove(_OF_GROUP, lambda key: key.endswith(SEPARATOR + group))
            self._gets.clear()

    def _remove(self, names: Sequence[str], is_gone: Callable[[str], bool]) -> None:
        for name in names:
            table = self._tables[name]
            for key in [key for key in table if is_gone(key)]:
                del table[key]


_LATENCIES: Final = (GROUP_GET_LATENCY,)
_OF_TOPIC: Final = (
    GROUP_GET_NUMS,
    GROUP_GET_SIZE,
    QUEUE_PUT_NUMS,
    QUEUE_PUT_SIZE,
    QUEUE_GET_NUMS,
    QUEUE_GET_SIZE,
    SNDBCK_PUT_NUMS,
)
_OF_GROUP: Final = (GROUP_GET_NUMS, GROUP_GET_SIZE, GROUP_GET_LATENCY, QUEUE_GET_NUMS, QUEUE_GET_SIZE, SNDBCK_PUT_NUMS)


def _topic_of_latency(key: str) -> str:
    """Return the topic in ``queue@topic@group``, or in ``topic@group`` if queues are not counted separately."""
    return key.split(SEPARATOR)[-2]


def _next_after(due_ms: int, interval_ms: int, clock_ms: int) -> int:
    """Return the first time after now, of the times ``interval_ms`` apart."""
    return due_ms + ((clock_ms - due_ms) // interval_ms + 1) * interval_ms
