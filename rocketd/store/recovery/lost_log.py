"""Refuses to start a store if its commit log, or the beginning of it, is gone although other files show that it was there.

Counterpart: the branch of `CommitLog.recoverNormally` for an empty log (Apache), which deletes all consume queues. A
log directory may also be empty because its disk is not mounted or its path is mistyped, so nothing is deleted here.
"""

import os
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence

from rocketd.store.base.errors import StoreBeginLostError, StoreLogMissingError
from rocketd.store.base.filesystem import IFileSystem
from rocketd.store.base.layout import (
    CONSUME_QUEUE_ENTRY,
    CONSUME_QUEUE_UNIT,
    FILLER_SIZE,
    MESSAGE_MAGIC,
    checkpoint_path,
    config_dir,
    consume_queue_dir,
    consume_queue_ext_dir,
    index_dir,
    is_mapped_file_name,
    offset_to_file_name,
)
from rocketd.store.format.record import MIN_RECORD_SIZE, store_timestamp_of
from rocketd.store.index.layout import HEADER
from rocketd.store.state.checkpoint import StoreCheckpoint
from rocketd.store.upkeep.clean import HOUR_MS
from rocketd.store.upkeep.log_begin import read_log_begin

_PROGRESS_FILES = ("consumerOffset.json", "lmqConsumerOffset.json", "delayOffset.json")
_MAGIC = MESSAGE_MAGIC.to_bytes(4, "big", signed=True)
_OFFSET = re.compile(rb'[{,]\s*"?\d+"?\s*:\s*[1-9]')
"""An offset above 0 of a queue id or delay level, in the JSON of such a file."""


def refuse_lost_log(fs: IFileSystem, root: str, log_directories: Sequence[str], *, is_slave: bool = False) -> None:
    """Raise StoreLogMissingError if no log directory has a file with bytes, but the store shows that it had messages.

    Changes nothing. Consumer offsets of a slave do not count: they come from the master, before its messages.
    """
    if any(_log_files(fs, directory) for directory in log_directories):
        return
    signs = [os.path.relpath(path, root) for path in _signs_of_messages(fs, root, is_slave)]
    if signs:
        looked_at = [(directory, fs.exists(directory)) for directory in log_directories]
        raise StoreLogMissingError(root, looked_at, signs)


def refuse_lost_begin(
    fs: IFileSystem, root: str, log_directories: Sequence[str], reserved_hours: int, now_ms: int
) -> None:
    """Raise StoreBeginLostError if the oldest files of the log are missing. Changes nothing.

    They are missing if the note of the beginning, a queue or the index knows messages before the log's first byte. If
    another program has stored data since the note, it may have deleted expired files. This explains the beginning if the
    first message was stored at least `reserved_hours` before `now_ms`, a time in Unix ms: the files before it are older.
    """
    looked_at = [(directory, _log_files(fs, directory)) for directory in log_directories]
    begin = min((offset for _, offsets in looked_at for offset in offsets), default=-1)
    noted = read_log_begin(fs, root)
    if begin <= 0 or (noted is not None and begin <= noted.offset):
        return
    checkpoint = StoreCheckpoint(checkpoint_path(root), fs)
    if noted is None or not checkpoint.files_noted:
        stored_ms = _first_stored_ms(fs, [path for path, offsets in looked_at if begin in offsets], begin, checkpoint)
        if stored_ms + reserved_hours * HOUR_MS <= now_ms:
            return
    if noted is not None:
        known, sign = noted.offset, f"it began at {noted.offset}, with files in {', '.join(noted.directories)}"
    else:
        path, known = next(_known_before(fs, root, begin), ("", -1))
        if known < 0:
            return
        sign = (
            f"{path} knows the message at {known}, and files before the begin have not expired, because its first "
            f"message is younger than fileReservedTime={reserved_hours} h"
        )
    counts = [(directory, len(offsets)) for directory, offsets in looked_at]
    raise StoreBeginLostError(root, known, sign, begin, counts)


def _first_stored_ms(fs: IFileSystem, directories: Sequence[str], begin: int, checkpoint: StoreCheckpoint) -> int:
    """Return the store time in ms of the log's first message. If its first file has none, that of its last message."""
    for directory in directories:
        head = fs.read_at(os.path.join(directory, offset_to_file_name(begin)), 0, MIN_RECORD_SIZE)
        if len(head) == MIN_RECORD_SIZE and head[4:8] == _MAGIC:
            return store_timestamp_of(head)
    return checkpoint.physic_msg_timestamp


def _known_before(fs: IFileSystem, root: str, begin: int) -> Iterator[tuple[str, int]]:
    """Yield files of queues and index that name a message before an offset of the log, with the message's offset."""
    for directory, names in _queues(fs, consume_queue_dir(root)):
        path = os.path.join(directory, names[0])
        known = _first_known(fs, path)
        if 0 <= known < begin:
            yield path, known
    for name in _index_files(fs, root)[:1]:
        path = os.path.join(index_dir(root), name)
        head = fs.read_at(path, 0, HEADER.size)
        if len(head) == HEADER.size:
            _, _, known, _, _, count = HEADER.unpack(head)
            if count > 1 and 0 <= known < begin:
                yield path, known


def _first_known(fs: IFileSystem, path: str) -> int:
    """Return the offset of the first record with an entry in a queue file, -1 without one. Fillers may come before it."""

    def entry(number: int) -> tuple[int, int, int]:
        offset, size, tags_code = CONSUME_QUEUE_ENTRY.unpack(
            fs.read_at(path, number * CONSUME_QUEUE_UNIT, CONSUME_QUEUE_UNIT)
        )
        return offset, size, tags_code

    count = fs.file_size(path) // CONSUME_QUEUE_UNIT
    first = bisect_left(range(count), True, key=lambda number: entry(number)[1] != FILLER_SIZE)
    if first == count:
        return -1
    offset, size, _ = entry(first)
    return offset if size > 0 else -1


def _log_files(fs: IFileSystem, directory: str) -> list[int]:
    """Return the offsets of the files with bytes."""
    return [
        int(name)
        for name in _names(fs, directory)
        if is_mapped_file_name(name) and fs.file_size(os.path.join(directory, name))
    ]


def _signs_of_messages(fs: IFileSystem, root: str, is_slave: bool) -> Iterator[str]:
    """Yield the paths of files found only in a store that had messages."""
    for directory in (consume_queue_dir(root), consume_queue_ext_dir(root)):
        if any(_queues(fs, directory)):
            yield directory
    if _index_files(fs, root):
        yield index_dir(root)
    checkpoint = StoreCheckpoint(checkpoint_path(root), fs)
    if max(checkpoint.physic_msg_timestamp, checkpoint.logics_msg_timestamp, checkpoint.index_msg_timestamp) > 0:
        yield checkpoint.path
    if is_slave or fs.exists(checkpoint.path):
        # The checkpoint is more reliable: a client may commit any offset, even for a queue without messages.
        return
    for name in _PROGRESS_FILES:
        path = os.path.join(config_dir(root), name)
        if fs.exists(path) and _OFFSET.search(fs.read_file(path)):
            yield path


def _queues(fs: IFileSystem, directory: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the directory of each queue that has files, and their names."""
    for topic in _names(fs, directory):
        for queue in _names(fs, os.path.join(directory, topic)):
            path = os.path.join(directory, topic, queue)
            names = [name for name in _names(fs, path) if is_mapped_file_name(name)]
            if names:
                yield path, names


def _index_files(fs: IFileSystem, root: str) -> list[str]:
    return [name for name in _names(fs, index_dir(root)) if name.isascii() and name.isdigit()]


def _names(fs: IFileSystem, directory: str) -> list[str]:
    try:
        return fs.listdir(directory)
    except NotADirectoryError:
        return []
