"""The entries of queues and index for the records of a log, as columns of many records at once.

The rules are those of `rocketd.store.format.record_scanner` (its dispatching half) and of `further` in
`rocketd.store.queue.multi_dispatch`. Reads memory only; imports neither PySpark nor Twisted.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from rocketd.common.java_hash import PrefixedHasher
from rocketd.common.message_properties import INNER_MULTI_DISPATCH, INNER_MULTI_QUEUE_OFFSET, find_property
from rocketd.common.names import BROKER_ONLY_TOPICS, LMQ_PREFIX
from rocketd.spark.jobs.stopped_store.index_keys import KEYED, Keyed, Texts, keyed
from rocketd.spark.jobs.stopped_store.log_scan import Block, Bools, Longs
from rocketd.spark.records.parse import Frames, topics_of
from rocketd.spark.records.properties import Properties
from rocketd.store.base.layout import SCHEDULE_TOPIC
from rocketd.store.base.search import positions_of
from rocketd.store.format.message import SYS_FLAG_TRANSACTION_PREPARED, DispatchRequest
from rocketd.store.format.properties import delay_level_of
from rocketd.store.format.record import properties_of
from rocketd.store.index.entries import index_entries
from rocketd.store.state.deletions import Deletions

_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_LONGEST_AWAY = 1_000
_NAMES = INNER_MULTI_DISPATCH.encode()
_OFFSETS = INNER_MULTI_QUEUE_OFFSET.encode()

QueueKey = tuple[str, int]
"""Topic and queue id."""


@dataclass(frozen=True, slots=True)
class DispatchRules:
    """The dispatch rules of a broker: ms of each delay level, whether it had light queues, and the deleted topics."""

    delays_ms: tuple[int, ...] = ()
    light_queues: bool = True
    deletions: Deletions = Deletions()

    def deliver_ms(self, level: int, stored_ms: int) -> int:
        """Return the due time (ms) of a message of this level stored at this time. An unknown level waits a second."""
        return stored_ms + (self.delays_ms[level - 1] if 0 < level <= len(self.delays_ms) else _LONGEST_AWAY)


def delays_of(text: str) -> tuple[int, ...]:
    """Return the delays of ``messageDelayLevel`` in ms. Raises ValueError for an invalid word."""
    found = []
    for word in text.split():
        if word[-1] not in _UNIT_MS or not word[:-1].isdecimal():
            raise ValueError(f"{word!r} is not a time; write a number and s, m, h or d")
        found.append(int(word[:-1]) * _UNIT_MS[word[-1]])
    return tuple(found)


@dataclass(slots=True)
class Dispatched:
    """Records by column, in the order of the log. `topic` holds indices of `topics`.

    Times are in ms, `queue_offset` in messages. `in_queue` is false for half and rolled back messages, and for messages
    of deleted topics. `keyed` holds the keys to index, also in the order of the log.
    """

    topics: list[str]
    topic: Longs
    queue_id: Longs
    queue_offset: Longs
    offset: Longs
    size: Longs
    tags_code: Longs
    store_time: Longs
    in_queue: Bools
    keyed: Keyed

    def __len__(self) -> int:
        return len(self.offset)

    def groups(self) -> Iterator[tuple[QueueKey, Longs]]:
        """Yield topic and queue id of each queue that gets records, and their rows in the order of the log."""
        rows = np.flatnonzero(self.in_queue)
        if not len(rows):
            return
        codes = self.topic[rows] << 32 | (self.queue_id[rows] & 0xFFFFFFFF)
        order = np.argsort(codes, kind="stable")
        codes = codes[order]
        begins = np.flatnonzero(np.diff(codes, prepend=-1))
        for begin, end in zip(begins.tolist(), [*begins[1:].tolist(), len(codes)], strict=True):
            group = rows[order[begin:end]]
            first = group[0]
            yield (self.topics[self.topic[first]], int(self.queue_id[first])), group

    def request(self, row: int) -> DispatchRequest:
        """Return one record in the form of the store's code, without keys and properties."""
        return DispatchRequest(
            self.topics[self.topic[row]],
            int(self.queue_id[row]),
            int(self.offset[row]),
            int(self.size[row]),
            int(self.tags_code[row]),
            int(self.store_time[row]),
            int(self.queue_offset[row]),
            (),
            0 if self.in_queue[row] else SYS_FLAG_TRANSACTION_PREPARED,
            0,
            b"",
        )


def dispatched(data: memoryview, block: Block, rules: DispatchRules, *, indexed: bool = True) -> Dispatched:
    """Return the entries of the records in a block, which lie in `data`; without `indexed`, no keys."""
    frames = Frames(data, block.starts)
    properties = Properties(frames)
    topic = topics_of(frames).dictionary_encode()
    tags_code = np.asarray(properties.tag_hashes()).astype(np.int64)
    codes = np.asarray(topic.indices).astype(np.int64)
    topics: list[str] = topic.dictionary.to_pylist()
    if SCHEDULE_TOPIC in topics and rules.delays_ms:
        for row in np.flatnonzero(codes == topics.index(SCHEDULE_TOPIC)).tolist():
            level = delay_level_of(_properties(data, block, row))
            if level > 0:
                tags_code[row] = rules.deliver_ms(level, int(block.store_time[row]))
    return Dispatched(
        topics,
        codes,
        block.queue_id,
        block.queue_offset,
        block.offset,
        block.size,
        tags_code,
        block.store_time,
        ~(block.is_prepared | _deleted(rules.deletions, topics, codes, block.offset, block.store_time)),
        keyed(
            topic,
            Texts(*properties.every("UNIQ_KEY")),
            Texts(*properties.every("KEYS")),
            block.offset,
            block.store_time,
            block.is_rolled_back,
        )
        if indexed
        else np.empty(0, KEYED),
    )


def _deleted(deletions: Deletions, topics: list[str], codes: Longs, offsets: Longs, times: Longs) -> Bools:
    """Return a mask of the records that were deleted with their topic."""
    found: Bools = np.zeros(len(codes), np.bool_)
    for topic in deletions.topics.keys() & set(topics):
        deletion = deletions.topics[topic]
        found |= (codes == topics.index(topic)) & (offsets < deletion.offset) & (times <= deletion.stored_ms)
    return found


def _properties(data: memoryview, block: Block, row: int) -> bytes:
    begin = int(block.starts[row])
    return properties_of(data[begin : begin + int(block.size[row])])


def dispatched_requests(requests: Sequence[DispatchRequest], rules: DispatchRules) -> Dispatched:
    """Return the entries of requests that were made one by one."""
    topics = list(dict.fromkeys(request.topic for request in requests))
    codes = {topic: code for code, topic in enumerate(topics)}

    def column(values: list[int]) -> Longs:
        return np.array(values, np.int64)

    entries = index_entries(requests, 0, PrefixedHasher())
    found = np.array(entries, KEYED) if entries else np.empty(0, KEYED)
    return Dispatched(
        topics,
        column([codes[request.topic] for request in requests]),
        column([request.queue_id for request in requests]),
        column([request.queue_offset for request in requests]),
        column([request.physical_offset for request in requests]),
        column([request.size for request in requests]),
        column([request.tags_code for request in requests]),
        column([request.store_timestamp for request in requests]),
        column(
            [
                request.sys_flag & SYS_FLAG_TRANSACTION_PREPARED
                or rules.deletions.include(request.topic, request.physical_offset, request.store_timestamp)
                for request in requests
            ]
        )
        == 0,
        found,
    )


def light_rows(
    data: memoryview, block: Block, columns: Dispatched, rules: DispatchRules
) -> list[tuple[QueueKey, int, int]]:
    """Return the entries of light queues for a block: topic and queue id, the offset there, and the row of the record."""
    if not rules.light_queues or not len(block):
        return []
    begin, end = int(block.starts[0]), int(block.starts[-1] + block.size[-1])
    # One quick search in all bytes: hardly any log has such messages.
    if next(positions_of(_NAMES, data, begin, end), None) is None:
        return []
    rows: list[tuple[QueueKey, int, int]] = []
    allowed = np.array([name not in BROKER_ONLY_TOPICS for name in columns.topics], np.bool_)
    for row in np.flatnonzero(columns.in_queue & allowed[columns.topic]).tolist():
        properties = _properties(data, block, row)
        if _NAMES in properties:
            rows += _light(properties, row)
    return rows


def light_requests(requests: Sequence[DispatchRequest], rules: DispatchRules) -> list[tuple[QueueKey, int, int]]:
    """Return the entries of light queues for single requests; the row is the place in `requests`."""
    if not rules.light_queues:
        return []
    return [
        place
        for row, request in enumerate(requests)
        if _NAMES in request.properties
        and request.topic not in BROKER_ONLY_TOPICS
        and not request.sys_flag & SYS_FLAG_TRANSACTION_PREPARED
        for place in _light(request.properties, row)
    ]


def _light(properties: bytes, row: int) -> Iterator[tuple[QueueKey, int, int]]:
    names, offsets = _texts(properties, _NAMES), _texts(properties, _OFFSETS)
    if len(names) == len(offsets) and all(offset.isdecimal() for offset in offsets):
        for name, offset in zip(names, offsets, strict=True):
            # Other names were stored without a permission check, so they give no right to that queue.
            if name.startswith(LMQ_PREFIX):
                yield (name, 0), int(offset), row


def _texts(properties: bytes, name: bytes) -> list[str]:
    value = find_property(properties, name)
    return [] if value is None else value.decode("utf-8", "replace").split(",")
