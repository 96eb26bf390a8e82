"""The fixed fields of many records at once, and the positions of their parts of variable length.

The layout is that of `rocketd.store.format.record`. Every position is checked before it is read. A damaged store raises
an error with the position; it never gives a column of garbage.
"""

from functools import cache, cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from typing_extensions import Buffer

from rocketd.spark.errors import SparkError, StoreFilesError
from rocketd.spark.records.arrays import LONGEST, Bytes, Positions
from rocketd.store.base.layout import MESSAGE_MAGIC
from rocketd.store.format.message import SYS_FLAG_BORN_HOST_V6, SYS_FLAG_STORE_HOST_V6
from rocketd.store.format.record import (
    HEAD_STRUCTS,
    HOST_V4,
    MIN_RECORD_SIZE,
    PROPERTIES_LENGTH_SIZE,
    TOPIC_LENGTH_SIZE,
    host_sizes,
)

_V6_FLAGS = SYS_FLAG_BORN_HOST_V6 | SYS_FLAG_STORE_HOST_V6
_LENGTHS_SIZE = TOPIC_LENGTH_SIZE + PROPERTIES_LENGTH_SIZE
_ALL = slice(None)
_WRONG_LENGTH = "its parts have another length than the record"

Rows = Any
"""A row selector: a slice or an array of indices."""


@cache
def head_type(born: int, store: int) -> np.dtype[Any]:
    """Return the numpy type of a record's fixed fields, for hosts of these sizes."""
    fields = [
        ("size", ">i4"),
        ("magic", ">i4"),
        ("body_crc", ">i4"),
        ("queue_id", ">i4"),
        ("flag", ">i4"),
        ("queue_offset", ">i8"),
        ("commit_log_offset", ">i8"),
        ("sys_flag", ">i4"),
        ("born_time", ">i8"),
        ("born_host", "u1", (born,)),
        ("store_time", ">i8"),
        ("store_host", "u1", (store,)),
        ("reconsume_times", ">i4"),
        ("prepared_transaction_offset", ">i8"),
        ("body_length", ">i4"),
    ]
    kind = np.dtype(fields)
    if kind.itemsize != HEAD_STRUCTS[born, store].size:
        raise AssertionError("the fields are not those of the record")
    return kind


def _items(data: Bytes, size: int) -> npt.NDArray[np.void]:
    """Return a view of the bytes with an item of this size at every byte position."""
    return np.ndarray((len(data) - size + 1,), f"V{size}", data, strides=(1,))


class Frames:
    """Whole records in a buffer. Raises StoreFilesError if one of the `starts` does not begin a record.

    `starts` must ascend. `where` names the buffer in errors; `base` is added to the positions in them.
    """

    def __init__(self, buffer: Buffer, starts: npt.ArrayLike, where: str = "the buffer", base: int = 0) -> None:
        given = np.asarray(starts, np.int64)
        whole = pa.py_buffer(buffer)
        self._where = where
        self._base = base
        self.count = len(given)
        self.starts: Positions = given
        self.buffer: pa.Buffer = whole
        self.data: Bytes = np.frombuffer(whole, np.uint8) if whole.size else np.zeros(0, np.uint8)
        if not self.count:
            self.sizes = np.zeros(0, np.int64)
            self.groups: list[tuple[Rows, npt.NDArray[Any]]] = []
            return
        self._check((given >= 0) & (given <= whole.size - MIN_RECORD_SIZE), "the bytes end within the record")
        heads = self._heads(given, HOST_V4, HOST_V4)
        self._check(heads["magic"] == MESSAGE_MAGIC, "the second word is not a record's")
        sizes = self.sizes = heads["size"].astype(np.int64)
        ends = given + sizes
        self._check((sizes >= MIN_RECORD_SIZE) & (ends <= whole.size), "the bytes end within the record")
        self._check(ends[:-1] <= given[1:], "the record reaches into the next one, or they do not ascend")
        first, last = int(given[0]), int(ends[-1])
        if last > LONGEST:
            # Arrow's offsets have 32 bits: count from the first record.
            if last - first > LONGEST:
                raise SparkError(f"the records of one batch are spread over {last - first} bytes, more than {LONGEST}")
            self.buffer = whole.slice(first, last - first)
            self.data = self.data[first:last]
            self.starts = given - first
            self._base += first
        self.groups = self._grouped(heads)

    def _heads(self, starts: Positions, born: int, store: int) -> npt.NDArray[Any]:
        """Return the fixed fields of the records at these starts, gathered into one array."""
        kind = head_type(born, store)
        return _items(self.data, kind.itemsize)[starts].view(kind)

    def _grouped(self, heads: npt.NDArray[Any]) -> list[tuple[Rows, npt.NDArray[Any]]]:
        """Group the rows by the sizes of their hosts."""
        bits = heads["sys_flag"].astype(np.int32) & _V6_FLAGS
        if not bits.any():
            return [(_ALL, heads)]
        groups: list[tuple[Rows, npt.NDArray[Any]]] = []
        for value in np.unique(bits):
            rows = np.flatnonzero(bits == value)
            born, store = host_sizes(int(value))
            if value:
                longest = head_type(born, store).itemsize + _LENGTHS_SIZE
                self._check(self.sizes[rows] >= longest, "the bytes end within the record", rows)
                groups.append((rows, self._heads(self.starts[rows], born, store)))
            else:
                groups.append((rows, heads[rows]))
        return groups

    def field(self, name: str, kind: Any) -> npt.NDArray[Any]:
        """Return one fixed field of all records, as numbers of this type."""
        if len(self.groups) == 1 and self.groups[0][0] is _ALL:
            return self.groups[0][1][name].astype(kind)
        values = np.empty(self.count, kind)
        for rows, heads in self.groups:
            values[rows] = heads[name]
        return values

    @cached_property
    def sys_flags(self) -> npt.NDArray[np.int32]:
        """The system flags of all records."""
        return self.field("sys_flag", np.int32)

    @cached_property
    def ends(self) -> Positions:
        """The end positions of the records."""
        return self.starts + self.sizes

    @cached_property
    def _body_begins(self) -> Positions:
        begins = self.starts.copy()
        for rows, heads in self.groups:
            begins[rows] += heads.dtype.itemsize
        return begins

    @cached_property
    def _tails(self) -> tuple[Positions, Positions, bytes | None]:
        """Return the positions of the topic length and of the properties length, and the topic if all records share it."""
        lengths = self.field("body_length", np.int64)
        topic_at = self._body_begins + lengths
        self._check((lengths >= 0) & (topic_at <= self.ends - _LENGTHS_SIZE), "its body is longer than the record")
        first = int(self.data[topic_at[0]]) if self.count else 0
        width = _LENGTHS_SIZE + first
        topic: bytes | None = None
        if self.count and topic_at[-1] + width <= len(self.data):
            # Usually all records have one topic: then the bytes after the body have the same length in every record.
            tails = _items(self.data, width)[topic_at].view(np.uint8).reshape(self.count, width)
            if (tails[:, 0] == first).all():
                properties_at = topic_at + (width - PROPERTIES_LENGTH_SIZE)
                stored = tails[:, -2].astype(np.int64) << 8 | tails[:, -1]
                if (tails[:, 1:-2] == tails[0, 1:-2]).all():
                    topic = tails[0, 1:-2].tobytes()
                self._check(properties_at + PROPERTIES_LENGTH_SIZE + stored == self.ends, _WRONG_LENGTH)
                return topic_at, properties_at, topic
        properties_at = topic_at + TOPIC_LENGTH_SIZE + self.data[topic_at]
        begins = properties_at + PROPERTIES_LENGTH_SIZE
        self._check(begins <= self.ends, "its topic is longer than the record")
        stored = self.data[properties_at].astype(np.int64) << 8 | self.data[properties_at + 1]
        self._check(begins + stored == self.ends, _WRONG_LENGTH)
        return topic_at, properties_at, None

    @property
    def bodies(self) -> tuple[Positions, Positions]:
        """The start and end positions of the bodies."""
        return self._body_begins, self._tails[0]

    @property
    def topics(self) -> tuple[Positions, Positions]:
        """The start and end positions of the topics."""
        return self._tails[0] + TOPIC_LENGTH_SIZE, self._tails[1]

    @property
    def properties(self) -> tuple[Positions, Positions]:
        """The start and end positions of the property strings."""
        return self._tails[1] + PROPERTIES_LENGTH_SIZE, self.ends

    @property
    def topic(self) -> bytes | None:
        """The topic of all records, or None if they have several."""
        return self._tails[2]

    def have_topic(self, topic: bytes) -> npt.NDArray[np.bool_]:
        """Return a mask of the records with this topic."""
        if self.topic is not None:
            return np.full(self.count, self.topic == topic)
        begins, ends = self.topics
        return np.array([self.data[a:b].tobytes() == topic for a, b in zip(begins, ends, strict=True)], np.bool_)

    def place(self, row: int) -> str:
        """Describe the place of a record, for errors."""
        return f"byte {int(self.starts[row]) + self._base} of {self._where}"

    def name(self, row: int) -> str:
        """Describe a record by topic, queue id and offset, for errors."""
        begin, end = self.topics
        topic = bytes(self.data[begin[row] : end[row]]).decode("utf-8", "replace")
        queue_id, offset = (int(self.field(name, np.int64)[row]) for name in ("queue_id", "queue_offset"))
        return f"the message with offset {offset} of queue {queue_id} of topic {topic}"

    def _check(self, right: npt.NDArray[np.bool_], fault: str, rows: npt.NDArray[Any] | None = None) -> None:
        if not right.all():
            wrong = int(np.argmin(right))
            row = wrong if rows is None else int(rows[wrong])
            raise StoreFilesError(f"no whole record at {self.place(row)}: {fault}")
