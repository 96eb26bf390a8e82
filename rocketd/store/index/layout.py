"""Sizes and structures of an index file. Its layout is in docs/formats/index_file.md.

Counterpart: the constants of `IndexFile` and `IndexHeader` (Apache). No access to the disk.
"""

import struct
from typing import Final, Protocol

HEADER: Final = struct.Struct(">qqqqii")
"""Store times in ms of the first and the last message, their offsets in the log, used slots, number of the next entry."""
HEADER_SIZE: Final = HEADER.size
SLOT_SIZE: Final = 4
ENTRY_SIZE: Final = 20
SLOT: Final = struct.Struct(">i")
ENTRY: Final = struct.Struct(">iqii")
"""Hash of the key, physical offset, seconds since the start of the file, number of the previous entry of the slot."""
DEFAULT_SLOTS: Final = 5_000_000
DEFAULT_ENTRIES: Final = 20_000_000


def index_file_size(slots: int, entries: int) -> int:
    """Return the bytes of a file with these slots and entries. Entry 0 has space but is never used."""
    return HEADER_SIZE + slots * SLOT_SIZE + entries * ENTRY_SIZE


class IndexCounts(Protocol):
    """The fields of an `IndexFile` that each entry needs or changes."""

    slots: int
    hash_slot_count: int
    index_count: int
    begin_timestamp: int
    begin_physical_offset: int
