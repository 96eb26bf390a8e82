"""The records of consecutive queue entries as views of the log: the work of a read for every single message.

Counterpart: the loop of `DefaultMessageStore.getMessage` (Apache), for reads without a filter or with one of tags. Pure
functions, compiled if a C compiler is present. `MessageReader` uses them only then: uncompiled, its own loop is faster.
"""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING, Final

from rocketd.store.base.layout import CONSUME_QUEUE_UNIT, FILLER_SIZE, MESSAGE_MAGIC
from rocketd.store.format.message import SYS_FLAG_BORN_HOST_V6, SYS_FLAG_STORE_HOST_V6
from rocketd.store.format.record import HEAD_STRUCTS, HOST_V4, HOST_V6, MIN_RECORD_SIZE, SYS_FLAG_POSITION

if TYPE_CHECKING:
    from mypy_extensions import i64

COMPILED: Final = not __file__.endswith(".py")

_UNIT: Final = CONSUME_QUEUE_UNIT
_FILLER: Final = FILLER_SIZE
"""The greatest signed number: greater ones are negative sizes."""
_MAGIC: Final = MESSAGE_MAGIC & 0xFFFFFFFF
_LEAST: Final = MIN_RECORD_SIZE
_FLAGS_AT: Final = SYS_FLAG_POSITION + 3
_BORN_V6: Final = SYS_FLAG_BORN_HOST_V6
_STORE_V6: Final = SYS_FLAG_STORE_HOST_V6
_HEAD_SIZE: Final = HEAD_STRUCTS[HOST_V4, HOST_V4].size
_LONGEST_HEAD: Final = HEAD_STRUCTS[HOST_V6, HOST_V6].size
"""Most bytes from the start of a record to the end of its body length: those with addresses of IPv6."""
_V6_MORE: Final = HOST_V6 - HOST_V4
_NO_HASH: Final = 1 << 40
_DENSE_SIZE: Final = 1 << 16
"""Most bytes of the log copied at once to check the heads of its records."""


def record_run(
    entries: bytes,
    topic: bytes,
    queue_id: int,
    queue_offset: int,
    log: mmap.mmap,
    view: memoryview,
    log_from: int,
    begin: int,
    end: int,
    max_messages: int,
    max_bytes: int,
    tags_codes: frozenset[int] | None = None,
    left_out: set[int] | None = None,
) -> tuple[list[memoryview], int, int, int] | None:
    """Return (views of the records, adjacent ones in one view; their number; their bytes; the queue offset after them).

    `entries` are those from `queue_offset` on. They end with the queue file, or after as many as a read may look at: with
    `tags_codes` as many as it says itself, otherwise one after `max_messages`. `log` and its `view` are the file whose
    first byte has the offset `log_from`. Records are served between its positions `begin`, which may be negative, and
    `end`. One record is served even if it is above the limits. With `tags_codes`, only records with one of these hashes
    are served, and the others are not read. With `left_out`, all other hashes must be in this set.

    Each record is compared with its entry, and its topic with `topic`, which has its length in front as in a record. None
    if the read needs a decision by the caller: a record is elsewhere, does not match its entry or topic, or is not behind
    the record before it, or an entry has an unknown hash.
    """
    entries_end: i64 = len(entries)
    file_from: i64 = log_from
    least_position: i64 = begin if begin > 0 else 0
    log_end: i64 = end
    expected_id: i64 = queue_id & 0xFFFFFFFF
    expected_offset: i64 = queue_offset
    topic_size: i64 = len(topic)
    short_head: i64 = _HEAD_SIZE
    longest_head: i64 = _LONGEST_HEAD
    flags_at: i64 = _FLAGS_AT
    v6_flags: i64 = _BORN_V6 | _STORE_V6
    count_limit: i64 = max_messages
    bytes_limit: i64 = max_bytes
    views: list[memoryview] = []
    total: i64 = 0
    count: i64 = 0
    run_begin: i64 = 0
    run_end: i64 = -1
    last: i64 = -1
    heads = b""
    if tags_codes is None:
        heads = _copy_of_dense(entries, count_limit, log, file_from, least_position, log_end)
    heads_size: i64 = len(heads)
    is_dense = heads_size > 0
    heads_from: i64 = _eight_bytes(entries, 0) - file_from if is_dense else 0
    at: i64 = 0
    while at < entries_end:
        position: i64 = _eight_bytes(entries, at) - file_from
        size: i64 = _four_bytes(entries, at + 8)
        if size >= _FILLER or position < least_position:
            return None
        if count > 0 and (count >= count_limit or total + size > bytes_limit):
            break
        if position <= last or position >= log_end:
            return None
        last = position
        if tags_codes is not None:
            code = _tags_code(entries, at + 12)
            if code == _NO_HASH:
                return None
            tag: object = code  # one object for both sets
            if tag not in tags_codes if left_out is None else tag in left_out:
                expected_offset += 1
                at += _UNIT
                continue
            if left_out is not None and tag not in tags_codes:
                return None
        record_end: i64 = position + size
        if size < _LEAST or record_end > log_end or position < run_end:
            return None
        if not is_dense:
            heads = log[position : position + longest_head]
            heads_size = len(heads)
            heads_from = position
        head: i64 = position - heads_from
        if (
            head + short_head > heads_size
            or _four_bytes(heads, head) != size
            or _four_bytes(heads, head + 4) != _MAGIC
            or _four_bytes(heads, head + 12) != expected_id
            or _eight_bytes(heads, head + 20) != expected_offset
        ):
            return None
        head_size: i64 = short_head
        flags: i64 = heads[head + flags_at]
        if flags & v6_flags:
            head_size = _head_size(heads, head, flags)
            if head_size < 0:
                return None
        topic_at: i64 = head + head_size + _four_bytes(heads, head + head_size - 4)
        if topic_at + topic_size <= heads_size:
            if heads[topic_at : topic_at + topic_size] != topic:
                return None
        elif log[heads_from + topic_at : heads_from + topic_at + topic_size] != topic:
            return None
        if position != run_end:
            if run_end > 0:
                views.append(view[run_begin:run_end])
            run_begin = position
        run_end = record_end
        total += size
        count += 1
        expected_offset += 1
        at += _UNIT
    if count > 0:
        views.append(view[run_begin:run_end])
    return views, count, total, expected_offset


def _copy_of_dense(entries: bytes, count_limit: i64, log: mmap.mmap, file_from: i64, begin: i64, end: i64) -> bytes:
    """Return a copy of the log from the first record to the end of the last one if that is short, otherwise nothing.

    One copy is cheaper than one for each record, and the socket then reads from the cache.
    """
    last: i64 = len(entries) - _UNIT
    if last > (count_limit - 1) * _UNIT:
        last = (count_limit - 1) * _UNIT
    if last < 0:
        return b""
    first_position: i64 = _eight_bytes(entries, 0) - file_from
    last_position: i64 = _eight_bytes(entries, last) - file_from
    last_end: i64 = last_position + _four_bytes(entries, last + 8)
    is_short = first_position <= last_position and last_end <= first_position + _DENSE_SIZE
    if not is_short or first_position < begin or last_end > end:
        return b""
    return log[first_position:last_end]


def _head_size(heads: bytes, head: i64, flags: i64) -> i64:
    """Return the bytes from the start of a record to its body, -1 if they are not all there."""
    size: i64 = _HEAD_SIZE
    more: i64 = _V6_MORE
    born: i64 = _BORN_V6
    store: i64 = _STORE_V6
    if flags & born:
        size += more
    if flags & store:
        size += more
    return size if head + size <= len(heads) else -1


def _tags_code(entries: bytes, at: i64) -> i64:
    """Return a tags code, or `_NO_HASH` if it is not the hash of a tag but a time, or an address in an extension."""
    above: i64 = _four_bytes(entries, at)
    code: i64 = _four_bytes(entries, at + 4)
    if code <= 0x7FFFFFFF:
        return code if above == 0 else _NO_HASH
    return code - 0x100000000 if above == 0xFFFFFFFF else _NO_HASH


def _four_bytes(data: bytes, at: i64) -> i64:
    """Return an unsigned number of four bytes."""
    value: i64 = data[at]
    value = value << 8 | data[at + 1]
    value = value << 8 | data[at + 2]
    return value << 8 | data[at + 3]


def _eight_bytes(data: bytes, at: i64) -> i64:
    """Return a number of eight bytes. It is negative only in compiled code: both ways, it is not a valid offset then."""
    value: i64 = _four_bytes(data, at)
    return value << 32 | _four_bytes(data, at + 4)
