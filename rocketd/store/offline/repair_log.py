"""Changes bytes of a stopped store's log so it can be walked to its end, and keeps the old bytes aside.

Readable data is not overwritten. Damaged bytes are replaced by an ordinary record or filler, so every broker gets past
them.
"""

import os
import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from rocketd.common.message_properties import REAL_QID, REAL_TOPIC, TAGS, encode_properties
from rocketd.store.base.filesystem import IFileSystem
from rocketd.store.base.layout import BLANK_MAGIC, END_OF_FILE_BLANK
from rocketd.store.format.message import (
    SYS_FLAG_TRANSACTION_PREPARED,
    SYS_FLAG_TRANSACTION_ROLLBACK,
    DispatchRequest,
    MessageInner,
)
from rocketd.store.format.record import (
    HEAD_STRUCTS,
    HOST_V4,
    MIN_RECORD_SIZE,
    SYS_FLAG_POSITION,
    TOPIC_LENGTH_SIZE,
    encode_record,
    host_sizes,
)
from rocketd.store.offline.repair_queues import write_all
from rocketd.store.offline.stopped_store import QueueReader

DAMAGED_TAG = "ROCKETD_DAMAGED"
"""Tag of the messages that replace damaged ones, and topic of bytes unknown to all queues."""

_BLANK = struct.Struct(">ii")
_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")
_QUEUE_ID_POSITION = 12
_QUEUE_OFFSET_POSITION = 20
_CHUNK = 1 << 20
_NO_HOST = bytes(HOST_V4)
_TEXT = b"The message that was stored here is damaged; rocketd store repair has put this one in its place. "


class SetAside:
    """The directory for data replaced by a repair. Created when first used."""

    def __init__(self, fs: IFileSystem, root: str, name: str) -> None:
        self.directory = os.path.join(root, name)
        self._root = root
        self._fs = fs

    def path_of(self, path: str) -> str:
        """Return where the repair keeps the file that it replaces at `path`."""
        inside = os.path.relpath(path, self._root)
        return os.path.join(self.directory, os.path.basename(path) if inside.startswith(os.pardir) else inside)

    def new_path_of(self, path: str) -> str:
        """Return the place where the replacement of a path is built."""
        return os.path.join(self.directory, "new", os.path.relpath(path, self._root))

    def _free(self, path: str) -> str:
        while self._fs.exists(path):
            path += "+"
        return path

    def save_bytes(self, path: str, position: int, size: int) -> None:
        """Copy bytes of a file into a file named after it and the position. Raises OSError."""
        target = self._free(f"{self.path_of(path)}.{position}")
        self._fs.makedirs(os.path.dirname(target))
        source = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fd = self._fs.open(target, size)
            try:
                done = 0
                while done < size and (data := os.pread(source, min(_CHUNK, size - done), position + done)):
                    write_all(self._fs, fd, data, done)
                    done += len(data)
                self._fs.fdatasync(fd)
            finally:
                self._fs.close(fd)
        finally:
            os.close(source)
        self._fs.sync_dir(os.path.dirname(target))

    def replace(self, path: str, new: str | None) -> None:
        """Move a file or directory aside, if it exists, and move another one to its place. Raises OSError."""
        parents = {os.path.dirname(path)}
        if self._fs.exists(path):
            target = self._free(self.path_of(path))
            self._fs.makedirs(os.path.dirname(target))
            self._fs.rename(path, target)
            parents.add(os.path.dirname(target))
        if new is not None:
            self._fs.makedirs(os.path.dirname(path))
            self._fs.rename(new, path)
        for parent in parents:
            self._fs.sync_dir(parent)


def cut_tail(fs: IFileSystem, aside: SetAside, path: str, position: int, size: int) -> None:
    """Zero `size` bytes at the end of a log file."""
    aside.save_bytes(path, position, size)
    fd = fs.open(path)
    try:
        fs.clear_from(fd, position)
        fs.fdatasync(fd)
    finally:
        fs.close(fd)


def extend_to_length(fs: IFileSystem, path: str, size: int) -> None:
    """Extend a cut or missing log file to its full length with zeros."""
    fd = fs.open(path, size)
    try:
        fs.fdatasync(fd)
    finally:
        fs.close(fd)
    fs.sync_dir(os.path.dirname(path))


def write_filler(fs: IFileSystem, path: str, position: int, file_size: int) -> None:
    """End a log file at a position with a filler."""
    if file_size - position >= END_OF_FILE_BLANK:
        _overwrite(fs, path, position, [_BLANK.pack(file_size - position, BLANK_MAGIC)])


class Piece(NamedTuple):
    """Part of a damaged range of the log, and the queue place of its former message, None if unknown."""

    begin: int
    end: int
    place: tuple[str, int, int] | None


def pieces(begin: int, end: int, queues: Iterable[QueueReader], record: DispatchRequest | None) -> list[Piece]:
    """Split a damaged range into the records known to the queues, and the bytes between them.

    `record` is the record in the range if it is readable except for its CRC.
    """
    known: list[Piece] = []
    for queue in queues:
        for index in range(queue.first_from(begin, queue.end), queue.end):
            entry = queue.entry(index)
            if entry is None or entry[0] >= end:
                break
            if entry[0] >= begin and entry[1] >= MIN_RECORD_SIZE and entry[0] + entry[1] <= end:
                known.append(Piece(entry[0], entry[0] + entry[1], (queue.topic, queue.queue_id, index)))
    found: list[Piece] = []
    at = begin
    for piece in sorted(known):
        gap = piece.begin - at
        if gap < 0 or 0 < gap < MIN_RECORD_SIZE:
            # The entries contradict each other: treat the bytes as unknown.
            continue
        if gap:
            found += _unknown(at, piece.begin)
        found.append(piece)
        at = piece.end
    if 0 < end - at < MIN_RECORD_SIZE and found:
        last = found.pop()
        found.append(Piece(last.begin, end, last.place))
    elif at < end:
        if (
            at == begin
            and record is not None
            and record.size == end - begin
            and not record.sys_flag & SYS_FLAG_TRANSACTION_PREPARED
        ):
            return [Piece(begin, end, (record.topic, record.queue_id, record.queue_offset))]
        found += _unknown(at, end)
    return found


def _unknown(begin: int, end: int) -> Iterator[Piece]:
    """Yield parts of suitable length for a write, each long enough for a record."""
    while end - begin > 2 * _CHUNK:
        yield Piece(begin, begin + _CHUNK, None)
        begin += _CHUNK
    yield Piece(begin, end, None)


def placeholder(piece: Piece, store_timestamp: int) -> bytes:
    """Return a record of the piece's length. Raises ValueError if the piece is too short.

    If the place is known, the record is a message with the tag ROCKETD_DAMAGED. Otherwise it counts as rolled back, so
    queues and index ignore it.
    """
    properties = encode_properties({TAGS: DAMAGED_TAG, REAL_TOPIC: DAMAGED_TAG, REAL_QID: "0"}).encode()
    topic, queue_id, index = piece.place or (DAMAGED_TAG, 0, 0)
    size = piece.end - piece.begin
    for name, text in ((topic, properties), (topic, b""), ("", b"")):
        room = size - MIN_RECORD_SIZE - len(name.encode()) - len(text)
        if room >= 0 and (name or piece.place is None):
            message = MessageInner(
                topic=name,
                queue_id=queue_id,
                flag=0,
                sys_flag=0 if piece.place else SYS_FLAG_TRANSACTION_ROLLBACK,
                born_timestamp=store_timestamp,
                born_host=_NO_HOST,
                reconsume_times=0,
                prepared_transaction_offset=0,
                body=_TEXT[:room].ljust(room),
                properties=text,
                tags_code=0,
            )
            return encode_record(message, _NO_HOST, index, piece.begin, store_timestamp)
    raise ValueError(f"{size} bytes at {piece.begin} are too few for a record")


def write_place(fs: IFileSystem, aside: SetAside, path: str, position: int, place: tuple[str, int, int]) -> None:
    """Set topic (of the same length), queue id and queue offset of a whole record, and make it visible to queues."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        head = bytearray(os.pread(fd, MIN_RECORD_SIZE, position))
        (size,) = _INT.unpack_from(head)
        (sys_flag,) = _INT.unpack_from(head, SYS_FLAG_POSITION)
        head_size = HEAD_STRUCTS[host_sizes(sys_flag)].size
        (body_length,) = _INT.unpack(os.pread(fd, 4, position + head_size - 4))
    finally:
        os.close(fd)
    topic, queue_id, index = place
    _INT.pack_into(head, _QUEUE_ID_POSITION, queue_id)
    _LONG.pack_into(head, _QUEUE_OFFSET_POSITION, index)
    _INT.pack_into(head, SYS_FLAG_POSITION, sys_flag & ~SYS_FLAG_TRANSACTION_PREPARED)
    aside.save_bytes(path, position, size)
    _overwrite(fs, path, position, [bytes(head[: SYS_FLAG_POSITION + 4])])
    _overwrite(fs, path, position + head_size + body_length + TOPIC_LENGTH_SIZE, [topic.encode()])


def replace_bytes(
    fs: IFileSystem, aside: SetAside, path: str, position: int, size: int, records: Iterable[bytes]
) -> None:
    """Keep damaged bytes of a log file aside and overwrite them with records."""
    aside.save_bytes(path, position, size)
    _overwrite(fs, path, position, records)


def _overwrite(fs: IFileSystem, path: str, position: int, parts: Iterable[bytes]) -> None:
    fd = fs.open(path)
    try:
        for part in parts:
            write_all(fs, fd, part, position)
            position += len(part)
        fs.fdatasync(fd)
    finally:
        fs.close(fd)
