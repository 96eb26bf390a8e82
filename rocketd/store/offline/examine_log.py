"""Walks the whole log of a stopped store, past damaged parts.

Apache's walk ends at the first record that is not whole. After damage, this walk continues at the next record with the
right offset, or at a filler up to the end of its file.
"""

import mmap
import struct
from collections.abc import Iterator
from typing import NamedTuple

from rocketd.store.base.errors import RecordError
from rocketd.store.base.findings import Disorder
from rocketd.store.base.layout import BLANK_MAGIC, MESSAGE_MAGIC
from rocketd.store.base.search import positions_of
from rocketd.store.format.message import DispatchRequest
from rocketd.store.format.record import MAGIC_POSITION, MIN_RECORD_SIZE, decode_message
from rocketd.store.format.record_scanner import DelayTimeOf, RecordScanner, ScanEnd
from rocketd.store.offline.stopped_store import LogReader, Segment

_WORD = struct.Struct(">i")
_BEGIN = struct.Struct(">ii")
_PHYSICAL_OFFSET = struct.Struct(">q")
_PHYSICAL_OFFSET_POSITION = 28
_BLANK = _WORD.pack(BLANK_MAGIC)


class Records(NamedTuple):
    """Adjacent whole records of one file."""

    segment: Segment
    requests: list[DispatchRequest]


class Damaged(NamedTuple):
    """A damaged part of one file, from `begin` to `end` in the log.

    It contains no whole record, and the log does not end before `end`. `request` is the record if only its CRC is wrong,
    otherwise None.
    """

    segment: Segment
    problem: Disorder
    begin: int
    end: int
    text: str
    request: DispatchRequest | None = None

    @property
    def to_end_of_file(self) -> bool:
        """Whether no record follows in the file."""
        return self.end == self.segment.end

    def is_zero(self, log: LogReader) -> bool:
        """Return whether all bytes are zero."""
        data = memoryview(log.bytes_of(self.segment))
        return is_zero(data, self.begin - self.segment.offset, self.end - self.segment.offset)


class Missing(NamedTuple):
    """A missing file between others of the log."""

    path: str
    begin: int
    end: int


class WrongFiller(NamedTuple):
    """The filler at the end of a file gives a wrong length."""

    segment: Segment
    position: int
    claimed: int


class ExaminedEnd(NamedTuple):
    """The log ends at `offset`. Up to `dirty_end` (exclusive) there are bytes without records.

    `segment` is the file with the offset, None if there is no file at all.
    """

    segment: Segment | None
    offset: int
    dirty_end: int
    text: str


Event = Records | Damaged | Missing | WrongFiller | ExaminedEnd


class LogWalk:
    """One walk over the records of a log, checking CRCs."""

    def __init__(self, log: LogReader, delay_time_of: DelayTimeOf | None, abnormal: bool) -> None:
        """`abnormal`: the store was not stopped cleanly, so a last record with a wrong CRC may be torn."""
        self._log = log
        self._scanner = RecordScanner(delay_time_of)
        self._abnormal = abnormal

    def events(self, begin: int = 0) -> Iterator[Event]:
        """Yield the parts from an offset (that of a record, or 0 for all) to the end. The last one is an ExaminedEnd."""
        segments = self._used()
        if not segments:
            first = self._log.segments[0] if self._log.segments else None
            yield ExaminedEnd(first, first.offset if first else 0, first.offset if first else 0, "")
            return
        last = segments[-1]
        end: ExaminedEnd | None = None
        for number, segment in enumerate(segments):
            if segment.end <= begin:
                continue
            if number:
                yield from self._missing(segments[number - 1], segment)
            for event in self._walk(segment, max(0, begin - segment.offset), segment is last):
                if isinstance(event, ExaminedEnd):
                    end = event
                else:
                    yield event
        yield end or ExaminedEnd(last, last.end, last.end, "")

    def _used(self) -> list[Segment]:
        """Return the files up to the last one with a record, at least the first."""
        segments = self._log.segments
        for count in range(len(segments), 1, -1):
            segment = segments[count - 1]
            if self._next(segment, 0, segment.size) is not None:
                return segments[:count]
        return segments[:1]

    def _missing(self, before: Segment, segment: Segment) -> Iterator[Missing]:
        size = self._log.file_size
        for offset in range(before.offset + size, segment.offset, size):
            yield Missing(f"{before.path[:-20]}{offset:020d}", offset, offset + size)

    def _walk(self, segment: Segment, position: int, is_last: bool) -> Iterator[Event]:
        view = memoryview(self._log.bytes_of(segment))
        limit = segment.size
        while True:
            scan = self._scanner.scan(view, position, limit, segment.offset, True)
            requests, position = scan.requests, scan.position
            if is_last and requests and self._is_torn(segment, view, requests[-1]):
                position -= requests.pop().size
            if requests:
                yield Records(segment, requests)
            if position < scan.position:
                text = "a record whose topic or properties end in zeros"
                yield ExaminedEnd(segment, segment.offset + position, segment.offset + scan.position, text)
                return
            if scan.end is ScanEnd.END_OF_FILE:
                claimed = _WORD.unpack_from(view, position)[0]
                if claimed == limit - position or self._next(segment, position + 1, limit) is None:
                    if claimed != limit - position:
                        yield WrongFiller(segment, position, claimed)
                    return
            elif scan.end is ScanEnd.LIMIT:
                return
            elif scan.end is ScanEnd.MORE:
                continue
            damaged, more = self._damaged(segment, position, view)
            if is_last and not more:
                end = damaged.begin
                if damaged.request is not None and not self._abnormal:
                    yield damaged
                    end = damaged.end
                dirty_end = max(end, segment.offset + self._log.data_end(segment))
                yield ExaminedEnd(segment, end, dirty_end, damaged.text)
                return
            yield damaged
            position = damaged.end - segment.offset

    def _is_torn(self, segment: Segment, view: memoryview, request: DispatchRequest) -> bool:
        """Return whether a record is the last and lacks the end of its topic or properties.

        No checksum covers these.
        """
        end = request.physical_offset - segment.offset + request.size
        return (
            self._abnormal
            and view[end - 1] == 0
            and (request.properties != b"" or request.topic.endswith("\0"))
            and not any(view[end : end + 8])
            and self._next(segment, end, segment.size) is None
        )

    def _damaged(self, segment: Segment, position: int, view: memoryview) -> tuple[Damaged, bool]:
        """Return the damage at a position without a valid record, and whether the file continues with one."""
        begin = segment.offset + position
        found = self._scanner.scan(view, position, segment.size, segment.offset, False, 1).requests
        if found:
            end = position + found[0].size
            text = f"the record of {found[0].size} bytes at {begin}: {_why(view, position, segment)}"
            damaged = Damaged(segment, Disorder.BODY_CRC, begin, segment.offset + end, text, found[0])
            return damaged, self._next(segment, end, segment.size) is not None
        following = self._next(segment, position + 1, segment.size)
        end = segment.size if following is None else following
        if self._log.data_end(segment) <= position or is_zero(view, position, end):
            text = f"{end - position} bytes from {begin} are zero, where a record should begin"
        else:
            text = f"{end - position} bytes from {begin} are not a record: {_why(view, position, segment)}"
        return Damaged(segment, Disorder.RECORD, begin, segment.offset + end, text), following is not None

    def _next(self, segment: Segment, position: int, limit: int) -> int | None:
        """Return the position of the next record or last filler, None if the file has none."""
        data = self._log.bytes_of(segment)
        if not isinstance(data, mmap.mmap):
            return None
        view = memoryview(data)
        limit = min(limit, self._log.data_end(segment))
        found = self._scanner.next_record(view, position, limit, segment.offset, check_crc=False)
        if found is not None:
            limit = found + MAGIC_POSITION
        for at in positions_of(_BLANK, view, position + MAGIC_POSITION, limit):
            begin = at - MAGIC_POSITION
            if _WORD.unpack_from(view, begin)[0] == segment.size - begin:
                return begin
        return found


def is_zero(view: memoryview, begin: int, end: int) -> bool:
    """Return whether all bytes from `begin` to `end` are zero."""
    step = 1 << 20
    nothing = bytes(step)
    return all(view[at : min(at + step, end)] == nothing[: min(step, end - at)] for at in range(begin, end, step))


def _why(view: memoryview, position: int, segment: Segment) -> str:
    """Return in words why the bytes at a position are not a record."""
    if position + MIN_RECORD_SIZE > segment.size:
        return "too few bytes are left in the file"
    size, magic = _BEGIN.unpack_from(view, position)
    if magic != MESSAGE_MAGIC:
        return f"the second word is 0x{magic & 0xFFFFFFFF:08x} instead of 0x{MESSAGE_MAGIC & 0xFFFFFFFF:08x}"
    (own,) = _PHYSICAL_OFFSET.unpack_from(view, position + _PHYSICAL_OFFSET_POSITION)
    if own != segment.offset + position:
        return f"it says that it begins at {own}"
    if size <= 0 or position + size > segment.size:
        return f"it claims a length of {size} bytes"
    try:
        decode_message(view[position : position + size])
    except RecordError as error:
        return str(error)
    return "it is not whole"
