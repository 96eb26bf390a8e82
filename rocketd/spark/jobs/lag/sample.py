"""Takes samples of committed offsets and queue bounds, at brokers or in the files of a store.

Only reads. Times are those of the broker's clock, or for a store's files those of this machine.
"""

import os
import re
import time
from collections.abc import Mapping
from typing import Protocol

from rocketd.remoting.bodies.tables import ConsumerOffsetSerializeWrapper
from rocketd.remoting.fastjson import dialect as fastjson
from rocketd.spark.errors import ClusterError, StoreFilesError
from rocketd.spark.jobs.lag.table import QueueSample
from rocketd.spark.ranges import Queue, QueueRange, ReadPlan
from rocketd.spark.store.tree import StoreTree
from rocketd.spark.wire.admin import brokers, runtime_info, topic_state
from rocketd.spark.wire.cluster import ClusterClient
from rocketd.spark.wire.faults import PASSING, UnknownTopicError
from rocketd.spark.wire.offsets import all_group_offsets, peek
from rocketd.store.format.record import store_timestamp_of

GroupTopics = Mapping[str, Mapping[int, int]]
"""Committed offsets of groups: ``topic@group`` to queue id to offset."""

_PARTS = re.compile(r"(\d+) (day|hour|minute|second)")
_SECONDS = {"day": 86_400, "hour": 3_600, "minute": 60, "second": 1}


class Sampler(Protocol):
    """A source of samples."""

    def sample(self, wanted: frozenset[str], topics: frozenset[str], *, aged: bool) -> list[QueueSample]:
        """Take a sample of these groups and topics (empty: all). `aged` also asks for the first unconsumed message."""
        ...


def group_topics(table: GroupTopics, groups: frozenset[str], topics: frozenset[str]) -> list[tuple[str, str]]:
    """Return the requested pairs of group and topic, sorted."""
    found = []
    for key in table:
        topic, at, group = key.rpartition("@")
        if at and (not groups or group in groups) and (not topics or topic in topics):
            found.append((group, topic))
    return sorted(found)


def broker_time_ms(info: Mapping[str, str]) -> int:
    """Return a broker's clock in ms, to the second, from its start time and uptime.

    Raises ClusterError if it reports none.
    """
    try:
        boot = int(info["bootTimestamp"])
        passed = sum(int(count) * _SECONDS[unit] for count, unit in _PARTS.findall(info["runtime"]))
    except (KeyError, ValueError) as error:
        raise ClusterError(f"the broker does not tell its time: {error}") from None
    return boot + passed * 1000


class ClusterSampler:
    """Asks every master of a cluster. Topics and groups unknown to a broker are skipped."""

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster

    def sample(self, wanted: frozenset[str], topics: frozenset[str], *, aged: bool) -> list[QueueSample]:
        """See `Sampler`. Raises ClusterError."""
        found = []
        for broker in brokers(self._cluster):
            found += self._of_broker(broker, wanted, topics, aged)
        return found

    def _of_broker(self, broker: str, wanted: frozenset[str], topics: frozenset[str], aged: bool) -> list[QueueSample]:
        cluster = self._cluster
        table = all_group_offsets(cluster, broker)
        some = group_topics(table, wanted, topics)
        states = {}
        for topic in sorted({topic for _, topic in some}):
            try:
                states[topic] = topic_state(cluster, topic, broker)
            except UnknownTopicError:
                continue
            except ClusterError as error:
                if error.code is None or error.code in PASSING or error.retriable:
                    raise
                # The topic was deleted, and its offsets were left.
                continue
        at_ms, seconds = broker_time_ms(runtime_info(cluster, broker)), time.monotonic()
        found = []
        for group, topic in some:
            committed = table[f"{topic}@{group}"]
            for queue, state in states.get(topic, {}).items():
                offset = committed.get(queue.queue_id)
                sample = QueueSample(group, queue, at_ms, seconds, state.start, state.end, offset)
                if aged and sample.behind:
                    first = self._stored(queue, max(state.start, offset or 0))
                    sample = QueueSample(group, queue, at_ms, seconds, state.start, state.end, offset, first)
                found.append(sample)
        return found

    def _stored(self, queue: Queue, offset: int) -> int | None:
        _, records = peek(self._cluster, queue, offset)
        return store_timestamp_of(records) if records else None


class StoreSampler:
    """Reads the files of a store, which a broker may be writing meanwhile."""

    def __init__(self, store: StoreTree) -> None:
        self._store = store

    def sample(self, wanted: frozenset[str], topics: frozenset[str], *, aged: bool) -> list[QueueSample]:
        """See `Sampler`. Raises StoreFilesError."""
        table = self._offsets()
        found = []
        for group, topic in group_topics(table, wanted, topics):
            committed = table[f"{topic}@{group}"]
            for queue in self._store.queues(topic):
                start, end = self._store.bounds(queue)
                at_ms, seconds = time.time_ns() // 1_000_000, time.monotonic()
                offset = committed.get(queue.queue_id)
                sample = QueueSample(group, queue, at_ms, seconds, start, end, offset)
                if aged and sample.behind:
                    first = self._stored(queue, max(start, offset or 0))
                    sample = QueueSample(group, queue, at_ms, seconds, start, end, offset, first)
                found.append(sample)
        return found

    def _offsets(self) -> GroupTopics:
        path = os.path.join(self._store.root, "config", "consumerOffset.json")
        fault: Exception | None = None
        for name in (path, path + ".bak"):
            try:
                with open(name, "rb") as file:
                    return fastjson.decode(file.read(), ConsumerOffsetSerializeWrapper).offset_table
            except FileNotFoundError:
                continue
            except (OSError, fastjson.FastJSONError) as error:
                fault = error
        if fault is not None:
            raise StoreFilesError(f"{path} cannot be read: {fault}")
        return {}

    def _stored(self, queue: Queue, offset: int) -> int | None:
        part = QueueRange(queue, offset, offset + 1)
        for batch in self._store.read(part, ReadPlan(("store_time",)), lambda _: None):
            if batch.num_rows:
                stored: int | None = batch.column(0).cast("int64")[0].as_py()
                return None if stored is None else stored // 1000
        return None
