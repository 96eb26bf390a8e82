"""Walks the records of a piece of the log and makes the dispatch request of each.

Counterpart: `CommitLog.checkMessageAndReturnSize` (Apache). Used by recovery and by a dispatcher that has fallen
behind; normally the append passes the same requests on without parsing. Reads memory only.
"""

import enum
import struct
from collections.abc import Callable
from typing import NamedTuple

from rocketd.store.base.layout import BLANK_MAGIC, MESSAGE_MAGIC, SCHEDULE_TOPIC
from rocketd.store.base.search import positions_of
from rocketd.store.format.message import (
    SYS_FLAG_BORN_HOST_V6,
    SYS_FLAG_STORE_HOST_V6,
    SYS_FLAG_TRANSACTION_MASK,
    SYS_FLAG_TRANSACTION_ROLLBACK,
    DispatchRequest,
)
from rocketd.store.format.properties import delay_level_of, dispatch_properties
from rocketd.store.format.record import MAGIC, MAGIC_POSITION, body_crc, host_sizes

DelayTimeOf = Callable[[int, int], int]
"""Function of a delay level (1 and up) and a store time in ms. Returns the delivery time in ms."""

_BEGIN = struct.Struct(">ii")
# Like record.HEAD_STRUCTS, but the hosts are skipped: dispatch does not need them.
_HEADS = {(born, store): struct.Struct(f">iiiiiqqiq{born}xq{store}xiqi") for born in (8, 20) for store in (8, 20)}
_HEAD_V4 = _HEADS[8, 8]
_Parts = tuple[tuple[int, ...], int, int, int]
"""A whole record: its fixed fields, and the positions of its topic, its properties and its end."""

_V6_FLAGS = SYS_FLAG_BORN_HOST_V6 | SYS_FLAG_STORE_HOST_V6


class ScanEnd(enum.Enum):
    """Reason why a scan stopped."""

    MORE = "as many records as were asked for"
    LIMIT = "the end of the bytes, between two records"
    END_OF_FILE = "the filler that ends a file"
    BROKEN = "bytes that are not a whole record"


class Scan(NamedTuple):
    """Requests of the records found, the position after the last record, and why the scan stopped there."""

    requests: list[DispatchRequest]
    position: int
    end: ScanEnd


class RecordScanner:
    """Parses records into dispatch requests. Used by one thread at a time, because it caches the topics it has seen."""

    def __init__(self, delay_time_of: DelayTimeOf | None = None) -> None:
        self._delay_time_of = delay_time_of
        self._topics: dict[bytes, str] = {}

    def scan(
        self,
        view: memoryview,
        position: int,
        limit: int,
        file_from_offset: int,
        check_crc: bool,
        max_records: int = 1024,
    ) -> Scan:
        """Scan from `position` to at most `limit` in the bytes of a file that starts at `file_from_offset`.

        A record counts if its magic number, its lengths and its own offset are right. With `check_crc`, its CRC must be
        right as well.
        """
        requests: list[DispatchRequest] = []
        while len(requests) < max_records:
            if position == limit:
                return Scan(requests, position, ScanEnd.LIMIT)
            parts = _parse(view, position, limit, file_from_offset, check_crc)
            if parts is None:
                return Scan(requests, position, _why_no_record(view, position, limit))
            requests.append(self._request(view, position, parts))
            position = parts[3]
        return Scan(requests, position, ScanEnd.MORE)

    def skip(
        self, view: memoryview, position: int, limit: int, file_from_offset: int, check_crc: bool, torn: bool = False
    ) -> Scan:
        """Walk as `scan` does, to the end and without making requests. With `torn`, the last write may be incomplete."""
        while (parts := _parse(view, position, limit, file_from_offset, check_crc)) is not None:
            following = parts[3]
            if torn and _is_torn(view, parts[2], following, limit):
                return Scan([], position, ScanEnd.BROKEN)
            position = following
        return Scan([], position, _why_no_record(view, position, limit))

    def is_record(self, view: memoryview, position: int, file_from_offset: int, check_crc: bool = True) -> bool:
        """Return whether a whole record is at a position of a file, with the right CRC if `check_crc`."""
        return _parse(view, position, len(view), file_from_offset, check_crc) is not None

    def next_record(
        self, view: memoryview, begin: int, end: int, file_from_offset: int, check_crc: bool = True
    ) -> int | None:
        """Return the position of the first whole record in a part of a file, None if there is none.

        The record begins at `begin` or later, and its first 8 bytes end at `end` or before.
        """
        for magic_at in positions_of(MAGIC, view, begin + MAGIC_POSITION, end):
            position = magic_at - MAGIC_POSITION
            if self.is_record(view, position, file_from_offset, check_crc):
                return position
        return None

    def _request(self, view: memoryview, position: int, parts: _Parts) -> DispatchRequest:
        fields, topic_at, properties_at, end = parts
        name = bytes(view[topic_at : properties_at - 2])
        topic = self._topics.get(name)
        if topic is None:
            topic = self._topics[name] = name.decode("utf-8", "replace")
        properties = bytes(view[properties_at:end])
        _, _, _, queue_id, _, queue_offset, physical_offset, sys_flag, _, stored, _, prepared, _ = fields
        tags_code, index_keys = dispatch_properties(properties)
        if topic == SCHEDULE_TOPIC and self._delay_time_of is not None:
            level = delay_level_of(properties)
            if level > 0:
                tags_code = self._delay_time_of(level, stored)
        if sys_flag & SYS_FLAG_TRANSACTION_MASK == SYS_FLAG_TRANSACTION_ROLLBACK:
            index_keys = ()
        return DispatchRequest(
            topic,
            queue_id,
            physical_offset,
            end - position,
            tags_code,
            stored,
            queue_offset,
            index_keys,
            sys_flag,
            prepared,
            properties,
        )


def _why_no_record(view: memoryview, position: int, limit: int) -> ScanEnd:
    """Return why a walk ended at a position without a record."""
    if position == limit:
        return ScanEnd.LIMIT
    if position + _BEGIN.size <= limit and _BEGIN.unpack_from(view, position)[1] == BLANK_MAGIC:
        return ScanEnd.END_OF_FILE
    return ScanEnd.BROKEN


def _is_torn(view: memoryview, properties_at: int, end: int, limit: int) -> bool:
    """Return whether the record is the last and lacks the end of its properties, which no checksum covers."""
    return view[end - 1] == 0 and properties_at < end and not any(view[end : min(end + 8, limit)])


def _parse(view: memoryview, position: int, limit: int, file_from_offset: int, check_crc: bool) -> _Parts | None:
    """Return the record at a position. None if it is not whole, has another offset, or fails its CRC."""
    head = _HEAD_V4
    if position + head.size > limit:
        return None
    fields = head.unpack_from(view, position)
    if fields[1] != MESSAGE_MAGIC:
        return None
    end = position + fields[0]
    if fields[7] & _V6_FLAGS:
        head = _HEADS[host_sizes(fields[7])]
        if position + head.size > limit:
            return None
        fields = head.unpack_from(view, position)
    body_at = position + head.size
    body_size = fields[12]
    topic_at = body_at + body_size + 1
    # The lengths of the topic (1 byte) and of the properties (2 bytes) must be within the record as well.
    if body_size < 0 or end > limit or topic_at + 2 > end or fields[6] != file_from_offset + position:
        return None
    properties_at = topic_at + view[topic_at - 1] + 2
    if (
        properties_at > end
        or (view[properties_at - 2] << 8 | view[properties_at - 1]) != end - properties_at
        or (check_crc and body_crc(view[body_at : topic_at - 1]) != fields[2])
    ):
        return None
    return fields, topic_at, properties_at, end
