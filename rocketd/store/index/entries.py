"""Index entries of a group of dispatched messages.

Counterpart: the key half of `IndexService.buildIndex`, `IndexFile.indexKeyHashMethod`, and the loop of
`IndexFile.putKey` (Apache). Compiled if a C compiler is present.
"""

from collections.abc import Iterable, Sequence
from mmap import mmap
from typing import Any, Final, TypeAlias

from rocketd.common.java_hash import PrefixedHasher
from rocketd.store.format.message import SYS_FLAG_TRANSACTION_MASK, SYS_FLAG_TRANSACTION_ROLLBACK, DispatchRequest
from rocketd.store.index.layout import ENTRY, ENTRY_SIZE, HEADER_SIZE, SLOT, SLOT_SIZE, IndexCounts

IndexEntry: TypeAlias = tuple[int, int, int]
"""Entry of one key: its hash from `index_key_hash`, physical offset in bytes, store time in ms."""

KEY_SEPARATOR: Final = "#"
_MAX_INT: Final = 0x7FFFFFFF


def index_key_hash(unsigned_hash: int) -> int:
    """Return the absolute value of a Java hash, given as unsigned 32 bits. Return 0 for -2^31, which has none in Java."""
    return -unsigned_hash & _MAX_INT if unsigned_hash > _MAX_INT else unsigned_hash


def index_entries(requests: Iterable[DispatchRequest], indexed_to: int, hasher: PrefixedHasher) -> list[IndexEntry]:
    """Return the entries of messages in log order, one for each key.

    Skipped are messages before `indexed_to`, the offset of the last indexed message, and rolled-back messages.
    """
    mask: int = SYS_FLAG_TRANSACTION_MASK
    rollback: int = SYS_FLAG_TRANSACTION_ROLLBACK
    entries: list[IndexEntry] = []
    topic = prefix = ""
    for request in requests:
        keys: tuple[str, ...] = request.index_keys
        if not keys:
            continue
        sys_flag: int = request.sys_flag
        offset: Any = request.physical_offset
        physical_offset: int = offset
        if physical_offset < indexed_to or sys_flag & mask == rollback:
            continue
        indexed_to = physical_offset
        timestamp: Any = request.store_timestamp
        this_topic: str = request.topic
        if this_topic != topic or not prefix:
            topic = this_topic
            prefix = topic + KEY_SEPARATOR
        for key in keys:
            key_hash = hasher.hash_unsigned(prefix, key)
            if key_hash > _MAX_INT:
                key_hash = index_key_hash(key_hash)
            entries.append((key_hash, offset, timestamp))
    return entries


def write_entries(file: IndexCounts, mapped: mmap, group: Sequence[IndexEntry], start: int, stop: int) -> None:
    """Write `group[start:stop]` into the mapping of an `IndexFile` that has space for them, and count them.

    Readers may run at the same time: an entry is written before the slot that points to it, and counted last.
    """
    header_size: int = HEADER_SIZE
    slot_size: int = SLOT_SIZE
    entry_size: int = ENTRY_SIZE
    max_seconds: int = _MAX_INT
    read_slot: Any = SLOT.unpack_from
    write_slot: Any = SLOT.pack_into
    write_entry: Any = ENTRY.pack_into
    slots: int = file.slots
    count: int = file.index_count
    begin: int = file.begin_timestamp
    used: int = file.hash_slot_count
    entry_at = header_size + slots * slot_size + count * entry_size
    diff_of = -1
    diff = 0
    try:
        for number in range(start, stop):
            entry = group[number]
            key_hash = entry[0]
            timestamp = entry[2]
            if timestamp != diff_of:
                diff = min(max(0, (timestamp - begin) // 1000), max_seconds) if begin > 0 else 0
                diff_of = timestamp
            slot_at = header_size + key_hash % slots * slot_size
            found: tuple[int] = read_slot(mapped, slot_at)
            previous = found[0]
            if not 0 < previous <= count:
                previous = 0
                used += 1
            write_entry(mapped, entry_at, key_hash, entry[1], diff, previous)
            write_slot(mapped, slot_at, count)
            if count <= 1:
                # Only now: the first entry's time difference refers to the end of the previous file.
                file.begin_physical_offset = entry[1]
                file.begin_timestamp = begin = timestamp
                diff_of = -1
            count += 1
            file.index_count = count
            entry_at += entry_size
    finally:
        file.hash_slot_count = used
