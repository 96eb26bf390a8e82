"""The file `abort`, and how the store was left.

Counterpart: the `abort` file of `DefaultMessageStore` (Apache), present while a store is open. Apache's is empty. Ours
holds the boot id once recovery is over. If the id is unchanged at the next start, all written bytes can be read, and
only the last actions of the process are in doubt.
"""

import enum
import errno

from rocketd.store.base.filesystem import IFileSystem
from rocketd.store.base.layout import abort_path


class LastStop(enum.Enum):
    """How the store was left."""

    CLEAN = "clean"
    KILLED = "the process ended, the system went on: all written data is there"
    CRASHED = "the system ended, or this is unknown: data not flushed may be incomplete"


def read_last_stop(fs: IFileSystem, root: str) -> LastStop:
    """Return how a store directory was left. Raises OSError."""
    path = abort_path(root)
    if not fs.exists(path):
        return LastStop.CLEAN
    identity = fs.identity(path)
    return LastStop.KILLED if identity and fs.read_file(path) == identity.encode() else LastStop.CRASHED


def mark_in_doubt(fs: IFileSystem, root: str) -> None:
    """Make any end of the process from here on count as a system crash. Raises OSError."""
    # Not empty, so `mark_open` has space for its content even if the disk fills up in between.
    _write(fs, abort_path(root), b"in doubt")
    fs.sync_dir(root)


def mark_open(fs: IFileSystem, root: str) -> None:
    """Record the boot id, so the next start can tell a process exit from a system crash. Raises OSError.

    If the disk is full, the file stays without the id.
    """
    path = abort_path(root)
    _write(fs, path, fs.identity(path).encode())


def _write(fs: IFileSystem, path: str, content: bytes) -> None:
    try:
        fs.write_file(path, content)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        # The mere presence of the file means a crash.
        fs.write_file(path, b"")
