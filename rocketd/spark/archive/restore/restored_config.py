"""The configuration and the checkpoint of a restored store."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rocketd.spark.archive.format.durable import make_dirs, replace
from rocketd.spark.archive.restore.checking import QueueRestored
from rocketd.store.base.layout import SCHEDULE_TOPIC, checkpoint_path
from rocketd.store.state.checkpoint import StoreCheckpoint

_READ_WRITE = 6
"""Permission of a topic, if its configuration is unknown."""


def write_config(store: str, config: Mapping[str, Any], queues: Iterable[QueueRestored]) -> None:
    """Write the broker's tables of topics and of consumer offsets; `config` holds the archive's facts about the broker."""
    restored = list(queues)
    topics = {one.queue.topic for one in restored}
    ends = {(one.queue.topic, one.queue.queue_id): one.last + 1 for one in restored}
    directory = os.path.join(store, "config")
    make_dirs(directory)
    version = {"counter": 1, "timestamp": 0}
    _write(directory, "topics", {"dataVersion": version, "topicConfigTable": dict(_topics(config, topics, ends))})
    table = {}
    for key, offsets in config.get("consumerOffset", {}).items():
        topic = key.partition("@")[0]
        if topic in topics:
            table[key] = _within(offsets, topic, ends)
    if table:
        _write(directory, "consumerOffset", {"offsetTable": table})
    delayed = config.get("delayOffset", {})
    if delayed and SCHEDULE_TOPIC in topics:
        done = {level: min(at, ends.get((SCHEDULE_TOPIC, int(level) - 1), 0)) for level, at in delayed.items()}
        _write(directory, "delayOffset", {"offsetTable": done})


def _topics(
    config: Mapping[str, Any], topics: set[str], ends: Mapping[tuple[str, int], int]
) -> Iterator[tuple[str, Any]]:
    known, counts = config.get("topics", {}), config.get("queues", {})
    for topic in sorted(topics):
        highest = max(queue_id for name, queue_id in ends if name == topic) + 1
        count = max(highest, counts.get(topic, 0))
        yield (
            topic,
            known.get(topic)
            or {
                "order": False,
                "perm": _READ_WRITE,
                "readQueueNums": count,
                "topicFilterType": "SINGLE_TAG",
                "topicName": topic,
                "topicSysFlag": 0,
                "writeQueueNums": count,
            },
        )


def _within(offsets: Mapping[str, int], topic: str, ends: Mapping[tuple[str, int], int]) -> dict[str, int]:
    """Limit a group's offsets to the end of the restored messages: a queue without messages begins at 0 again."""
    return {queue: min(offset, ends.get((topic, int(queue)), 0)) for queue, offset in offsets.items()}


def _write(directory: str, name: str, value: object) -> None:
    replace(os.path.join(directory, f"{name}.json"), json.dumps(value, indent=2).encode())


def write_checkpoint(store: str, last_time: int, *, indexed: bool) -> None:
    """Record that log, queues and index are on the disk up to a store time (ms)."""
    checkpoint = StoreCheckpoint(checkpoint_path(store))
    checkpoint.physic_msg_timestamp = checkpoint.logics_msg_timestamp = last_time
    checkpoint.index_msg_timestamp = last_time if indexed else 0
    checkpoint.flush()
