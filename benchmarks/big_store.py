"""Makes a large store quickly, as a clean stop leaves it, and a second one that shares its bytes.

The records are copies of eight that rocketd's store wrote, with their own offsets and times. In a sparse file only the
first ones are there, and Apache's filler for the end of a file takes up the rest, so that any reader goes on in the next
one. Consume queues are whole: an entry leads for each record of a sparse file that would be there to where it would be.
Index files have the header and the length of those of such a store and no entries: a start reads no more of them.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import struct
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from rocketd.store.base.layout import (
    BLANK_MAGIC,
    CONSUME_QUEUE_ENTRY,
    DEFAULT_COMMIT_LOG_FILE_SIZE,
    DEFAULT_CONSUME_QUEUE_FILE_SIZE,
    END_OF_FILE_BLANK,
    checkpoint_path,
    commit_log_dir,
    index_dir,
    offset_to_file_name,
    queue_dir,
)
from rocketd.store.base.settings import MessageStoreConfig
from rocketd.store.format.message import MessageInner
from rocketd.store.index.layout import DEFAULT_ENTRIES, DEFAULT_SLOTS, index_file_size
from rocketd.store.index.service import index_file_name
from rocketd.store.message_store import MessageStore
from rocketd.store.state.checkpoint import StoreCheckpoint

QUEUES = 8
REAL_FILES = 10
"""Up to so many files of the log are all real; of more, only the last three, more than which no start reads."""

_SPARSE_STORE_REAL_FILES = 3
_SPARSE_FILE_ROUNDS = 8
_HOST = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"
_BODY = b"x" * 1024
_UNIQUE_KEY = "7F0000010A2B18B4AAC2000000000000"
_OFFSETS = struct.Struct(">qq")  # of a record: queue offset, physical offset
_OFFSETS_AT = 20
_TIME = struct.Struct(">q")
_STORE_TIME_AT = 56
_BLANK = struct.Struct(">ii")
_INDEX_HEADER = struct.Struct(">qqqqii")
_ROUNDS_AT_ONCE = 512
_PER_MS = 100  # records


@dataclass(frozen=True)
class BigStore:
    """What was made: files of the log, how many of them are real, records that its queues have entries for."""

    files: int
    real_files: int
    messages: int


def make_store(root: Path, topic: str, files: int) -> BigStore:
    """Make a store of so many log files of 1 GiB in a directory that must not exist. Raises OSError."""
    size = DEFAULT_COMMIT_LOG_FILE_SIZE
    records = _template(topic)
    length = len(records[0])
    rounds = (size - END_OF_FILE_BLANK) // (length * QUEUES)
    real = files if files <= REAL_FILES else _SPARSE_STORE_REAL_FILES
    begin_ms = int(time.time() * 1000) - files * rounds * QUEUES // _PER_MS - 1
    os.makedirs(commit_log_dir(str(root)))
    for number in range(files):
        path = Path(commit_log_dir(str(root)), offset_to_file_name(number * size))
        written = rounds if number >= files - real else _SPARSE_FILE_ROUNDS
        _write_log_file(path, records, number * size, number * rounds, written, begin_ms)
    _write_queues(root, topic, files, rounds, length)
    messages = files * rounds * QUEUES
    indexed_ms = _write_index(root, messages, rounds * QUEUES, length, begin_ms)
    checkpoint = StoreCheckpoint(checkpoint_path(str(root)))
    checkpoint.physic_msg_timestamp = checkpoint.logics_msg_timestamp = begin_ms + (messages - 1) // _PER_MS
    checkpoint.index_msg_timestamp = indexed_ms
    checkpoint.flush()
    return BigStore(files, real, messages)


def share_store(source: Path, target: Path) -> None:
    """Make the same store a second time; files that are full and so never written again are the same on the disk."""
    for directory, _, names in os.walk(source):
        made = target / Path(directory).relative_to(source)
        made.mkdir(parents=True)
        for name in sorted(names)[:-1]:
            os.link(Path(directory, name), made / name)
        for name in sorted(names)[-1:]:
            if made.name == "commitlog":
                os.link(Path(directory, name), made / name)  # full too
            else:
                subprocess.run(["cp", "--sparse=always", str(Path(directory, name)), str(made / name)], check=True)


def _template(topic: str) -> list[bytes]:
    """A record for each queue, as the store writes it."""
    directory = tempfile.mkdtemp(prefix="rocketd-template-")
    try:
        store = MessageStore(MessageStoreConfig(store_path_root_dir=directory), _HOST)
        store.start()
        try:
            properties = f"UNIQ_KEY\x01{_UNIQUE_KEY}\x02CLUSTER\x01DefaultCluster".encode()
            now = int(time.time() * 1000)
            results = store.put_messages(
                [
                    MessageInner(topic, queue, 0, 0, now, _HOST, 0, 0, _BODY, properties, 0, ())
                    for queue in range(QUEUES)
                ]
            )
            views = [store.commit_log.record_at(result.physical_offset) for result in results]
            return [bytes(view) for view in views if view is not None]
        finally:
            store.stop()
    finally:
        shutil.rmtree(directory)


def _write_log_file(
    path: Path, records: list[bytes], file_offset: int, first_queue_offset: int, rounds: int, begin_ms: int
) -> None:
    length = len(records[0])
    block = b"".join(records)
    chunk = bytearray(block * _ROUNDS_AT_ONCE)
    put_offsets, put_time = _OFFSETS.pack_into, _TIME.pack_into
    with path.open("wb") as file:
        for begin in range(0, rounds, _ROUNDS_AT_ONCE):
            count = min(_ROUNDS_AT_ONCE, rounds - begin)
            base = file_offset + begin * len(block)
            position = 0
            for queue_offset in range(first_queue_offset + begin, first_queue_offset + begin + count):
                stored = begin_ms + queue_offset * QUEUES // _PER_MS
                for _ in range(QUEUES):
                    put_offsets(chunk, position + _OFFSETS_AT, queue_offset, base + position)
                    put_time(chunk, position + _STORE_TIME_AT, stored)
                    position += length
            file.write(memoryview(chunk)[:position])
        rest = DEFAULT_COMMIT_LOG_FILE_SIZE - rounds * len(block)
        file.write(_BLANK.pack(rest, BLANK_MAGIC))
        file.truncate(DEFAULT_COMMIT_LOG_FILE_SIZE)


def _write_queues(root: Path, topic: str, files: int, rounds: int, length: int) -> None:
    pack = CONSUME_QUEUE_ENTRY.pack
    step = length * QUEUES
    for queue in range(QUEUES):
        directory = Path(queue_dir(str(root), topic, queue))
        directory.mkdir(parents=True)
        with contextlib.ExitStack() as opened:
            file = None
            room = end = 0
            for number in range(files):
                first = number * DEFAULT_COMMIT_LOG_FILE_SIZE + queue * length
                entries = b"".join([pack(first + at * step, length, 0) for at in range(rounds)])
                while entries:
                    if file is None or not room:
                        file = opened.enter_context((directory / offset_to_file_name(end)).open("wb"))
                        file.truncate(DEFAULT_CONSUME_QUEUE_FILE_SIZE)
                        end += DEFAULT_CONSUME_QUEUE_FILE_SIZE
                        room = DEFAULT_CONSUME_QUEUE_FILE_SIZE
                    part, entries = entries[:room], entries[room:]
                    file.write(part)
                    room -= len(part)


def _write_index(root: Path, messages: int, per_file: int, length: int, begin_ms: int) -> int:
    """Index files of a key for each message; returns up to what time they are full."""

    def offset_of(message: int) -> int:
        return message // per_file * DEFAULT_COMMIT_LOG_FILE_SIZE + message % per_file * length

    def time_of(message: int) -> int:
        return begin_ms + message // _PER_MS

    directory = Path(index_dir(str(root)))
    directory.mkdir()
    each = DEFAULT_ENTRIES - 1
    indexed_ms = 0
    for begin in range(0, messages, each):
        last = min(messages, begin + each) - 1
        count = last - begin + 2
        header = time_of(begin), time_of(last), offset_of(begin), offset_of(last), min(DEFAULT_SLOTS, count - 1), count
        with (directory / index_file_name(time_of(begin))).open("wb") as file:
            file.write(_INDEX_HEADER.pack(*header))
            file.truncate(index_file_size(DEFAULT_SLOTS, DEFAULT_ENTRIES))
        if count == DEFAULT_ENTRIES:
            indexed_ms = time_of(last)
    return indexed_ms
