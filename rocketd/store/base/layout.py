"""Names and sizes of the files in a store directory.

Counterpart: `StorePathConfigHelper`, and the constants of `CommitLog` and `ConsumeQueue` (Apache). Pure functions and
numbers, without access to the disk.
"""

import os.path
import struct

FILE_NAME_DIGITS = 20
"""A mapped file is named by the offset of its first byte, zero padded to this many digits."""

MESSAGE_MAGIC = -626843481
"""Second word of a commit-log record (0xDAA320A7)."""

BLANK_MAGIC = -875286124
"""Second word of the filler at the end of a commit-log file (0xCBD43194)."""

END_OF_FILE_BLANK = 8
"""Bytes reserved for the filler in every commit-log file: its length and BLANK_MAGIC."""

CONSUME_QUEUE_ENTRY = struct.Struct(">qiq")
"""A consume-queue entry: physical offset, record size, tags code."""
CONSUME_QUEUE_UNIT = CONSUME_QUEUE_ENTRY.size
"""Size of a consume-queue entry in bytes."""

FILLER_SIZE = 0x7FFFFFFF
"""Record size of a consume-queue entry without a message: the entry only fills its place."""

MAX_EXT_ADDRESS = -(1 << 31) - 1
"""Greatest value of an entry's tags code field that is an address in the queue's extension. Greater values are tags
codes: 32-bit hashes and times.
"""

DEFAULT_COMMIT_LOG_FILE_SIZE = 1024 * 1024 * 1024
DEFAULT_CONSUME_QUEUE_FILE_SIZE = 300_000 * CONSUME_QUEUE_UNIT

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
"""Topic of waiting delayed messages. Its queue entries hold the delivery time instead of the tags code."""

LOCK_CONTENT = b"lock"


def offset_to_file_name(offset: int) -> str:
    """Return the name of the mapped file whose first byte has this offset."""
    return f"{offset:020d}"


def is_mapped_file_name(name: str) -> bool:
    """Return whether a directory entry is named like a mapped file."""
    return len(name) == FILE_NAME_DIGITS and name.isascii() and name.isdigit()


def commit_log_dir(root: str) -> str:
    """Return the directory of the commit log."""
    return os.path.join(root, "commitlog")


def consume_queue_dir(root: str) -> str:
    """Return the directory of all consume queues. It has a directory for each topic, and in it one for each queue id."""
    return os.path.join(root, "consumequeue")


def queue_dir(root: str, topic: str, queue_id: int) -> str:
    """Return the directory of the consume queue of one topic and queue id."""
    return os.path.join(root, "consumequeue", topic, str(queue_id))


def consume_queue_ext_dir(root: str) -> str:
    """Return the directory of all consume-queue extensions, arranged like the consume queues."""
    return os.path.join(root, "consumequeue_ext")


def index_dir(root: str) -> str:
    """Return the directory of the index files."""
    return os.path.join(root, "index")


def consume_queue_file_size(wanted: int) -> int:
    """Return the size of a consume-queue file: the setting in bytes, rounded up to whole entries."""
    return -(-wanted // CONSUME_QUEUE_UNIT) * CONSUME_QUEUE_UNIT


def config_dir(root: str) -> str:
    """Return the directory of the broker's tables: topics, groups, offsets."""
    return os.path.join(root, "config")


def audit_path(root: str) -> str:
    """Return the file of changes by administrators."""
    return os.path.join(config_dir(root), "audit.log")


def checkpoint_path(root: str) -> str:
    """Return the file of the three timestamps up to which all data is on disk."""
    return os.path.join(root, "checkpoint")


def abort_path(root: str) -> str:
    """Return the file `abort`, present while the store is open. If a start finds it, the last stop was not clean."""
    return os.path.join(root, "abort")


def lock_path(root: str) -> str:
    """Return the file `lock`. The process that has the store open locks its first byte."""
    return os.path.join(root, "lock")
