"""Checks the addresses in a queue's extension, which entries may hold in place of a tags code.

See `rocketd.store.queue.consume_queue_ext`. If a unit is lost, a filter must read the message instead, and nothing else
is lost. A unit with wrong content hides the message from readers. Reads only.
"""

import os
import struct
from collections.abc import Iterator

from rocketd.spark.jobs.stopped_store.files import map_file
from rocketd.spark.jobs.stopped_store.log_scan import Longs
from rocketd.store.base.findings import Disorder, Finding, Remedy, Severity
from rocketd.store.base.layout import CONSUME_QUEUE_UNIT, consume_queue_ext_dir, is_mapped_file_name

ADDRESS_BASE = -(1 << 63)
"""The address of the first byte of an extension."""

_UNIT = struct.Struct(">hqqh")


def wrong_units(
    root: str, key: tuple[str, int], indexes: Longs, addresses: Longs, tags_codes: Longs, store_times: Longs
) -> Iterator[Finding]:
    """Yield the findings about the units of one queue's entries, given the values from their records."""
    topic, queue_id = key
    directory = os.path.join(consume_queue_ext_dir(root), topic, str(queue_id))
    try:
        names = sorted(filter(is_mapped_file_name, os.listdir(directory)))
    except (FileNotFoundError, NotADirectoryError):
        names = []
    files = [(int(name), os.path.join(directory, name)) for name in names]
    maps: dict[str, memoryview] = {}
    for index, address, tags_code, store_time in zip(
        indexes.tolist(), addresses.tolist(), tags_codes.tolist(), store_times.tolist(), strict=True
    ):
        place = address - ADDRESS_BASE
        offset, path = next((file for file in reversed(files) if file[0] <= place), (0, ""))
        data = maps.setdefault(path, map_file(path)) if path else memoryview(b"")
        unit = _unit_at(data, place - offset)
        if unit is None:
            text = f"entry {index} leads to {place} in the extension of the queue, and no unit begins there"
            severity, remedy = Severity.NOTE, Remedy.NONE
        elif unit != (tags_code, store_time):
            text = (
                f"the unit at {place} says tags code {unit[0]} and store time {unit[1]}, the record of entry {index} "
            )
            text += f"{tags_code} and {store_time}"
            severity, remedy = Severity.DAMAGE, Remedy.REPAIR
        else:
            continue
        where = path or os.path.join(directory, f"{index * CONSUME_QUEUE_UNIT:020d}")
        yield Finding(severity, Disorder.QUEUE_TAGS, remedy, where, place - offset, text, queue=key)


def _unit_at(data: memoryview, position: int) -> tuple[int, int] | None:
    """Return tags code and store time (ms) of the unit at a position, or None without a whole unit."""
    if position < 0 or position + _UNIT.size > len(data):
        return None
    size, tags_code, store_time, bitmap = _UNIT.unpack_from(data, position)
    if bitmap < 0 or size != _UNIT.size + bitmap or position + size > len(data) or store_time <= 0:
        return None
    return tags_code, store_time
