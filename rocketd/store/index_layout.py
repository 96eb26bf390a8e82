"""Sizes of an index file; its layout is in docs/formats/index_file.md.

Answers to the constants of Apache's `IndexFile` and `IndexHeader`. Numbers only: nothing here touches the disk.
"""

from typing import Final

HEADER_SIZE: Final = 40
SLOT_SIZE: Final = 4
ENTRY_SIZE: Final = 20
DEFAULT_SLOTS: Final = 5_000_000
DEFAULT_ENTRIES: Final = 20_000_000


def index_file_size(slots: int, entries: int) -> int:
    """Bytes of a file with that many slots and entries (entry 0 is never used, but has its room)."""
    return HEADER_SIZE + slots * SLOT_SIZE + entries * ENTRY_SIZE
