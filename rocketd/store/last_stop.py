"""How the store was left, and the file that tells.

Answers to the `abort` file of Apache's `DefaultMessageStore`, which exists while a store is open. Ours holds, once the
recovery is over, what tells this run of the system from the next: if it is still the same at the next start, all that
was written can be read, and only what the process was doing when it ended is in doubt. Apache's file is empty.
"""

import enum
import errno

from rocketd.store.filesystem import IFileSystem
from rocketd.store.layout import abort_path


class LastStop(enum.Enum):
    """How the store was left."""

    CLEAN = "clean"
    KILLED = "the process ended, the system went on: whatever was written is there"
    CRASHED = "the system ended, or nobody knows: what was not flushed may be there in part"


def read_last_stop(fs: IFileSystem, root: str) -> LastStop:
    """Say how a store directory was left. Raises OSError."""
    path = abort_path(root)
    if not fs.exists(path):
        return LastStop.CLEAN
    identity = fs.identity(path)
    return LastStop.KILLED if identity and fs.read_file(path) == identity.encode() else LastStop.CRASHED


def mark_in_doubt(fs: IFileSystem, root: str) -> None:
    """Have a stop from here on be taken for a crash. Raises OSError."""
    # Not empty, so that a disk that is full until then has room for what `mark_open` writes.
    _write(fs, abort_path(root), b"in doubt")
    fs.sync_dir(root)


def mark_open(fs: IFileSystem, root: str) -> None:
    """Have a mere end of the process from here on be told from a crash, if the disk has room for it. Raises OSError."""
    path = abort_path(root)
    _write(fs, path, fs.identity(path).encode())


def _write(fs: IFileSystem, path: str, content: bytes) -> None:
    try:
        fs.write_file(path, content)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        # That it is there tells of a crash.
        fs.write_file(path, b"")
