"""What the index stores of a group of dispatched messages.

Answers to the key half of Apache's `IndexService.buildIndex` and to `IndexFile.indexKeyHashMethod`. Pure functions. Compiled
where a C compiler is.
"""

from collections.abc import Iterable
from typing import Any, Final, TypeAlias

from rocketd.common.java_hash import PrefixedHasher
from rocketd.store.message import SYS_FLAG_TRANSACTION_MASK, SYS_FLAG_TRANSACTION_ROLLBACK, DispatchRequest

IndexEntry: TypeAlias = tuple[int, int, int]
"""What is stored of one key: its hash as `index_key_hash` gives it, physical offset in bytes, store time in ms."""

KEY_SEPARATOR: Final = "#"
_MAX_INT: Final = 0x7FFFFFFF


def index_key_hash(unsigned_hash: int) -> int:
    """Absolute value of a Java hash given as its unsigned 32 bits; 0 for -2^31, which has none in Java."""
    return -unsigned_hash & _MAX_INT if unsigned_hash > _MAX_INT else unsigned_hash


def index_entries(requests: Iterable[DispatchRequest], indexed_to: int, hasher: PrefixedHasher) -> list[IndexEntry]:
    """Entries of messages given in the order of the log: one for each of their keys.

    Left out is a message that begins before `indexed_to`, the last one's offset, which was put already, and one that was
    rolled back.
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
