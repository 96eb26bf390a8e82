"""Reads the directory of a stopped store with a few lines that share no code with the store under test.

Any difference from the layout of Apache 4.9.7 raises an AssertionError that names file and offset.
"""

import json
import re
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

MESSAGE_MAGIC = 0xDAA320A7
BLANK_MAGIC = 0xCBD43194
FILLER_SIZE = 8
CHECKPOINT_SIZE = 4096

COMPRESSED = 0x1
BORN_HOST_V6 = 0x10
STORE_HOST_V6 = 0x20

_ENTRY = struct.Struct(">qiq")
_INDEX_HEADER = struct.Struct(">qqqqii")
_INDEX_ENTRY = struct.Struct(">iqii")


@dataclass(frozen=True)
class Record:
    """One record of the log; times in ms, hosts are address and 4-byte port."""

    physical_offset: int
    raw: bytes

    @cached_property
    def _fields(self) -> tuple:
        (flags,) = struct.unpack_from(">i", self.raw, 36)
        born, store = (20 if flags & bit else 8 for bit in (BORN_HOST_V6, STORE_HOST_V6))
        head = struct.Struct(f">iIiiiqqiq{born}sq{store}siqi")
        fields = head.unpack_from(self.raw)
        topic_at = head.size + fields[-1]
        properties_at = topic_at + 1 + self.raw[topic_at]
        (length,) = struct.unpack_from(">H", self.raw, properties_at)
        where = f"record at {self.physical_offset}"
        assert fields[0] == len(self.raw) == properties_at + 2 + length, where
        assert fields[6] == self.physical_offset, where
        body, topic = self.raw[head.size : topic_at], self.raw[topic_at + 1 : properties_at].decode()
        return (*fields, body, topic, self.raw[properties_at + 2 :].decode())

    body_crc = property(lambda self: self._fields[2])
    queue_id = property(lambda self: self._fields[3])
    flag = property(lambda self: self._fields[4])
    queue_offset = property(lambda self: self._fields[5])
    sys_flag = property(lambda self: self._fields[7])
    born_timestamp = property(lambda self: self._fields[8])
    born_host = property(lambda self: self._fields[9])
    store_timestamp = property(lambda self: self._fields[10])
    store_host = property(lambda self: self._fields[11])
    reconsume_times = property(lambda self: self._fields[12])
    prepared_transaction_offset = property(lambda self: self._fields[13])
    body = property(lambda self: self._fields[15])
    topic = property(lambda self: self._fields[16])

    @cached_property
    def properties(self) -> dict[str, str]:
        pairs = (pair.split("\x01") for pair in self._fields[17].split("\x02") if pair)
        return dict(pairs)

    @property
    def offset_msg_id(self) -> str:
        """The message id for clients."""
        return (self.store_host + self.physical_offset.to_bytes(8, "big")).hex().upper()

    @property
    def index_keys(self) -> list[str]:
        """Return the keys of the record in the index, in their order."""
        unique = self.properties.get("UNIQ_KEY")
        return ([unique] if unique else []) + self.properties.get("KEYS", "").split()


@dataclass(frozen=True)
class IndexContent:
    """One index file; the times are of its first and last message, ``used`` is the part that holds something."""

    begin_timestamp: int
    end_timestamp: int
    begin_offset: int
    end_offset: int
    used_slots: int
    entries: list[tuple[int, int, int, int]]
    used: bytes


def java_hash(text: str) -> int:
    """``String.hashCode``."""
    value = 0
    units = text.encode("utf-16-be")
    for (unit,) in struct.iter_unpack(">H", units):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def index_hash(topic: str, key: str) -> int:
    """The hash of an index entry."""
    value = abs(java_hash(f"{topic}#{key}"))
    return 0 if value >> 31 else value


def _is_whole(record: Record) -> bool:
    try:
        return bool(record.topic) and zlib.crc32(record.body) & 0x7FFFFFFF == record.body_crc
    except (AssertionError, struct.error, IndexError, UnicodeDecodeError):
        return False


def read_log(store: Path, torn: bool = False) -> list[Record]:
    """Return all records, in order; between them are only fillers that end a file, behind them only zeros. The files
    may lie in several directories with names beginning with `commitlog`.

    `torn`: a process killed in the middle of a write may have left the first part of the record.
    """
    records = []
    expected = None
    ended = False
    files = [file for directory in store.glob("commitlog*") for file in directory.iterdir()]
    for file in sorted(files, key=lambda file: file.name):
        data = file.read_bytes()
        base = int(file.name)
        assert expected in (None, base), f"{file} should begin at {expected}"
        expected = base + len(data)
        if ended:
            assert not any(data), f"{file} has bytes behind the end of the log"
            continue
        position = 0
        while position < len(data):
            size, magic = struct.unpack_from(">iI", data, position)
            where = f"{file} at {position}"
            if magic == BLANK_MAGIC:
                assert size == len(data) - position >= FILLER_SIZE, where
                break
            if size == 0:
                assert not any(data[position:]), f"{where}: bytes behind the end of the log"
                ended = True
                break
            record = Record(base + position, data[position : position + size])
            if torn and not (magic == MESSAGE_MAGIC and len(record.raw) == size and _is_whole(record)):
                assert data.find(struct.pack(">I", MESSAGE_MAGIC), position + 8) < 0, f"{where}: broken before others"
                ended = True
                break
            assert magic == MESSAGE_MAGIC, where
            assert position + size + FILLER_SIZE <= len(data), where
            records.append(record)
            position += size
    return records


def read_queues(store: Path) -> dict[tuple[str, int], list[tuple[int, int, int]]]:
    """The entries (physical offset, size, tags code) of each topic and queue."""
    queues = {}
    for directory in sorted((store / "consumequeue").glob("*/*")):
        data = b"".join(file.read_bytes() for file in sorted(directory.iterdir()))
        entries = list(_ENTRY.iter_unpack(data))
        count = next((number for number, entry in enumerate(entries) if entry[1] == 0), len(entries))
        assert not any(data[count * _ENTRY.size :]), f"{directory} has bytes behind entry {count}"
        queues[directory.parent.name, int(directory.name)] = entries[:count]
    return queues


def read_index(store: Path, slots: int) -> list[IndexContent]:
    """The index files in their order."""
    directory = store / "index"
    return [_read_index_file(file, slots) for file in sorted(directory.iterdir())] if directory.exists() else []


def _read_index_file(file: Path, slots: int) -> IndexContent:
    data = file.read_bytes()
    *header, count = _INDEX_HEADER.unpack_from(data)
    count = max(1, count)
    entries_at = _INDEX_HEADER.size + 4 * slots
    entries = [_INDEX_ENTRY.unpack_from(data, entries_at + n * _INDEX_ENTRY.size) for n in range(1, count)]
    return IndexContent(*header, entries, data[: entries_at + count * _INDEX_ENTRY.size])


def read_checkpoint(store: Path) -> tuple[int, int, int]:
    """Return the store times up to which log, queues and index are on the disk, as Apache's broker reads them."""
    data = (store / "checkpoint").read_bytes()
    assert len(data) == CHECKPOINT_SIZE
    return struct.unpack_from(">qqq", data)


def read_table(store: Path, name: str) -> dict:
    """A table of ``config``; Apache writes numeric keys without quotation marks."""
    text = (store / "config" / f"{name}.json").read_text()
    return json.loads(re.sub(r"([{,]\s*)(\d+)(\s*:)", r'\1"\2"\3', text))


def queues_of(records: list[Record]) -> dict[tuple[str, int], list[Record]]:
    """Records by topic and queue."""
    queues: dict[tuple[str, int], list[Record]] = {}
    for record in records:
        queues.setdefault((record.topic, record.queue_id), []).append(record)
    return queues


def split_records(data: bytes) -> Iterator[bytes]:
    """The records of a pulled body."""
    position = 0
    while position < len(data):
        (size,) = struct.unpack_from(">i", data, position)
        assert 0 < size <= len(data) - position
        yield data[position : position + size]
        position += size
