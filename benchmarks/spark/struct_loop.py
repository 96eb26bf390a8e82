"""What the vectorised parser is compared with: a loop over the messages with `struct`, as careful Python has it.

It makes the same columns from the same files, in Arrow batches of the same size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

import pyarrow as pa

from rocketd.common.message_properties import decode_properties, find_property
from rocketd.common.record_host import host_text, offset_message_id
from rocketd.spark.columns import arrow_schema
from rocketd.store.base.layout import CONSUME_QUEUE_ENTRY
from rocketd.store.format.properties import dispatch_properties
from rocketd.store.format.record import HEAD_STRUCTS, HOST_V4

_HEAD = HEAD_STRUCTS[HOST_V4, HOST_V4]
_BATCH_ROWS = 8192


def tuples(log: memoryview, entries: bytes) -> Iterator[tuple[object, ...]]:
    """The fields of the records that entries lead to: the head's, topic, properties, body."""
    unpack = _HEAD.unpack_from
    head_size = _HEAD.size
    for offset, size, _ in CONSUME_QUEUE_ENTRY.iter_unpack(entries):
        head = unpack(log, offset)
        begin = offset + head_size
        topic_at = begin + head[14]
        properties_at = topic_at + 3 + log[topic_at]
        yield (
            head,
            str(log[topic_at + 1 : properties_at - 2], "utf-8"),
            bytes(log[properties_at : offset + size]),
            bytes(log[begin:topic_at]),
        )


def batches(log: memoryview, entries: bytes, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The same as Arrow batches."""
    schema = arrow_schema(columns)
    rows = tuples(log, entries)
    while some := list(islice(rows, _BATCH_ROWS)):
        made = _columns(some)
        arrays = [pa.array(made[field.name](), field.type) for field in schema]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _columns(rows: list[tuple[Any, ...]]) -> dict[str, Callable[[], Sequence[Any]]]:
    """Ways to make the columns of some rows."""
    heads, topics, properties, bodies = zip(*rows, strict=True)
    fields = list(zip(*heads, strict=True))
    return {
        "broker": lambda: ["broker-a"] * len(rows),
        "topic": lambda: topics,
        "queue_id": lambda: fields[3],
        "queue_offset": lambda: fields[5],
        "commit_log_offset": lambda: fields[6],
        "store_size": lambda: fields[0],
        "body_crc": lambda: fields[2],
        "flag": lambda: fields[4],
        "sys_flag": lambda: fields[7],
        "born_time": lambda: [time * 1000 for time in fields[8]],
        "born_host": lambda: [host_text(host) for host in fields[9]],
        "store_time": lambda: [time * 1000 for time in fields[10]],
        "store_host": lambda: [host_text(host) for host in fields[11]],
        "reconsume_times": lambda: fields[12],
        "prepared_transaction_offset": lambda: fields[13],
        "msg_id": lambda: [offset_message_id(host, at) for host, at in zip(fields[11], fields[6], strict=True)],
        "uniq_key": lambda: [find_property(text, b"UNIQ_KEY") for text in properties],
        "tags": lambda: [find_property(text, b"TAGS") for text in properties],
        "keys": lambda: [find_property(text, b"KEYS") for text in properties],
        "tag_hash": lambda: [dispatch_properties(text)[0] for text in properties],
        "properties": lambda: [list(decode_properties(text.decode()).items()) for text in properties],
        "properties_raw": lambda: properties,
        "body": lambda: bodies,
    }
