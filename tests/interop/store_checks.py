"""Checks of a store directory, written by either broker: log, queues and index agree."""

import base64
import zlib
from collections import Counter
from pathlib import Path

from tests.support.store_directory import (
    COMPRESSED,
    Record,
    index_hash,
    java_hash,
    queues_of,
    read_index,
    read_queues,
)

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"

DUE_SLACK_MS = 0
"""rocketd counts a delay from when it takes the message, Apache from the store time in the record a moment later."""


def check_log(records: list[Record]) -> None:
    """Check that the numbers of each queue have no gap and no double, in the order of the log, and the bodies."""
    for queue, messages in queues_of(records).items():
        assert [m.queue_offset for m in messages] == list(range(len(messages))), queue
    times = [record.store_timestamp for record in records]
    assert times == sorted(times)
    for record in records:
        assert record.body_crc == zlib.crc32(record.body) & 0x7FFFFFFF, record.physical_offset


def tags_code(record: Record, delays_ms: list[int]) -> int:
    """Return the last eight bytes of the queue's entry."""
    if record.topic == SCHEDULE_TOPIC:
        return record.store_timestamp + delays_ms[int(record.properties["DELAY"]) - 1]
    return java_hash(record.properties.get("TAGS", ""))


def same_entries(one: list[tuple[int, int, int]], other: list[tuple[int, int, int]], topic: str) -> bool:
    """Return whether two queues are the same; due times of delayed messages may be some ms less in the first."""
    slack = DUE_SLACK_MS if topic == SCHEDULE_TOPIC else 0
    return len(one) == len(other) and all(
        entry[:2] == wanted[:2] and 0 <= wanted[2] - entry[2] <= slack for entry, wanted in zip(one, other, strict=True)
    )


def check_queues(store: Path, records: list[Record], delays_ms: list[int], complete: bool) -> None:
    """Every entry leads to its record; ``complete``: and every record has its entry."""
    stored = read_queues(store)
    wanted = {
        queue: [(m.physical_offset, len(m.raw), tags_code(m, delays_ms)) for m in messages]
        for queue, messages in queues_of(records).items()
    }
    for queue in wanted.keys() | stored.keys():
        there, entries = stored.get(queue, []), wanted.get(queue, [])
        if not complete:
            entries = entries[: len(there)]
        assert same_entries(there, entries, queue[0]), (queue, there, entries)


def check_index(store: Path, slots: int, records: list[Record], once: bool) -> None:
    """Every key of every record is found through its slot's chain; ``once``: in one entry, and there are no others."""
    found: Counter[tuple[int, int]] = Counter()
    for number, file in enumerate(read_index(store, slots)):
        assert file.end_timestamp >= file.begin_timestamp > 0, number
        heads = {}
        for at, (key_hash, offset, _, previous) in enumerate(file.entries, 1):
            assert previous == heads.get(key_hash % slots, 0), (number, at)
            heads[key_hash % slots] = at
            found[key_hash, offset] += 1
        for slot in range(slots):
            at = 40 + 4 * slot
            assert int.from_bytes(file.used[at : at + 4], "big") == heads.get(slot, 0), (number, slot)
        assert file.used_slots >= len(heads), number
    wanted = Counter((index_hash(r.topic, key), r.physical_offset) for r in records for key in r.index_keys)
    if once:
        assert found == wanted
    else:
        assert found.keys() == wanted.keys()


def as_java_sees(record: Record) -> dict:
    """A record in the fields that the Java program prints of a message."""
    body = zlib.decompress(record.body) if record.sys_flag & COMPRESSED else record.body
    return {
        "topic": record.topic,
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
        "physicalOffset": record.physical_offset,
        "storeSize": len(record.raw),
        "msgId": record.properties.get("UNIQ_KEY", record.offset_msg_id),
        "offsetMsgId": record.offset_msg_id,
        "flag": record.flag,
        "sysFlag": record.sys_flag,
        "bodyCrc": record.body_crc,
        "bornTimestamp": record.born_timestamp,
        "bornHost": record.born_host.hex(),
        "storeTimestamp": record.store_timestamp,
        "storeHost": record.store_host.hex(),
        "reconsumeTimes": record.reconsume_times,
        "preparedTransactionOffset": record.prepared_transaction_offset,
        "properties": record.properties,
        "body": base64.b64encode(body).decode(),
    }
