"""Names and sizes of the store directory.

Answers to Apache's `StorePathConfigHelper` and the constants of `CommitLog` and `ConsumeQueue`. Pure functions and
numbers: nothing here touches the disk.
"""

import os.path
import struct

FILE_NAME_DIGITS = 20
"""A mapped file is named after the offset of its first byte, zero padded to this many digits."""

MESSAGE_MAGIC = -626843481
"""Second word of a commit-log record (0xDAA320A7)."""

BLANK_MAGIC = -875286124
"""Second word of the filler that ends a commit-log file (0xCBD43194)."""

END_OF_FILE_BLANK = 8
"""Bytes that every commit-log file keeps for the filler: its length and BLANK_MAGIC."""

CONSUME_QUEUE_ENTRY = struct.Struct(">qiq")
"""A consume-queue entry: physical offset, record size, tags code."""
CONSUME_QUEUE_UNIT = CONSUME_QUEUE_ENTRY.size
"""Its bytes."""

FILLER_SIZE = 0x7FFFFFFF
"""Record size of a consume-queue entry that only takes up room: there is no message with its offset."""

MAX_EXT_ADDRESS = -(1 << 31) - 1
"""What an entry holds in the place of its tags code is an address of the queue's extension up to this; above begin the
numbers that are tags codes: hashes of 32 bits, and times.
"""

DEFAULT_COMMIT_LOG_FILE_SIZE = 1024 * 1024 * 1024
DEFAULT_CONSUME_QUEUE_FILE_SIZE = 300_000 * CONSUME_QUEUE_UNIT

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
"""Where delayed messages wait: its queue entries hold the delivery time in the place of the tags code."""

LOCK_CONTENT = b"lock"


def offset_to_file_name(offset: int) -> str:
    """Name of the mapped file whose first byte has this offset."""
    return f"{offset:020d}"


def is_mapped_file_name(name: str) -> bool:
    """Whether a directory entry is a mapped file, rather than something else that lies there."""
    return len(name) == FILE_NAME_DIGITS and name.isascii() and name.isdigit()


def commit_log_dir(root: str) -> str:
    """Directory of the commit log."""
    return os.path.join(root, "commitlog")


def consume_queue_dir(root: str) -> str:
    """Directory of all consume queues: one directory for each topic, in it one for each queue id."""
    return os.path.join(root, "consumequeue")


def queue_dir(root: str, topic: str, queue_id: int) -> str:
    """Directory of the consume queue of one topic and queue id."""
    return os.path.join(root, "consumequeue", topic, str(queue_id))


def consume_queue_ext_dir(root: str) -> str:
    """Directory of the extensions of all consume queues, laid out as that of the queues."""
    return os.path.join(root, "consumequeue_ext")


def index_dir(root: str) -> str:
    """Directory of the index files."""
    return os.path.join(root, "index")


def config_dir(root: str) -> str:
    """Directory of the broker's tables: topics, groups, offsets."""
    return os.path.join(root, "config")


def checkpoint_path(root: str) -> str:
    """File of the three time stamps up to which everything is on the disk."""
    return os.path.join(root, "checkpoint")


def abort_path(root: str) -> str:
    """Empty file that exists while the store is open; found at the next start, it means the last stop was not clean."""
    return os.path.join(root, "abort")


def lock_path(root: str) -> str:
    """File whose first byte is locked by the process that has the store open."""
    return os.path.join(root, "lock")
