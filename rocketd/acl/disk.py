"""The directory of account files.

Counterpart: `AclUtils.writeDataObject`, and the directory walk of `AclFileWatchService` (Apache). A file is replaced as
a whole and keeps its mode, because it has secrets. A new one is readable by its owner only.
"""

import errno
import os
from contextlib import suppress

_SUFFIXES = (".yml", ".yaml")
_TOOLS_FILE = "tools.yml"
_OWNER_ONLY = 0o600


def is_account_file(path: str) -> bool:
    """Return whether a file of this name may have accounts."""
    return path.endswith(_SUFFIXES) and os.path.basename(path) != _TOOLS_FILE


def list_files(directory: str) -> list[str]:
    """Return the sorted account files of a directory and its subdirectories, none if it does not exist."""
    found = []
    for parent, _, names in os.walk(directory, followlinks=True):
        # Kubernetes keeps the real files in hidden directories beside the links to them.
        if not any(part.startswith(".") for part in os.path.relpath(parent, directory).split(os.sep) if part != "."):
            found += [os.path.join(parent, name) for name in names if is_account_file(name)]
    return sorted(found)


def read(path: str) -> bytes:
    """Read a file. Raises OSError."""
    with open(path, "rb") as file:
        return file.read()


def replace(path: str, data: bytes) -> None:
    """Replace a file's content after the new content is on disk. Raises OSError.

    A file that is a separate mount point, as in containers, cannot be replaced and is overwritten.
    """
    target = os.path.realpath(path)
    temporary = target + ".tmp"
    try:
        mode = os.stat(target).st_mode & 0o777
    except FileNotFoundError:
        mode = _OWNER_ONLY
    with suppress(FileNotFoundError):
        os.unlink(temporary)
    _write(temporary, data, os.O_CREAT | os.O_EXCL, mode)
    try:
        os.rename(temporary, target)
    except OSError as error:
        os.unlink(temporary)
        if error.errno != errno.EBUSY:
            raise
        _write(target, data, os.O_TRUNC, mode)
    directory = os.open(os.path.dirname(target), os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _write(path: str, data: bytes, flags: int, mode: int) -> None:
    """Write a whole file and wait until it is on disk. If this fails, a new file is removed."""
    descriptor = os.open(path, os.O_WRONLY | flags, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if flags & os.O_EXCL:
                os.fchmod(descriptor, mode)
            file.write(data)
            file.flush()
            os.fsync(descriptor)
    except OSError:
        if flags & os.O_EXCL:
            with suppress(OSError):
                os.unlink(path)
        raise


def others_can_read(path: str) -> bool:
    """Return whether a file is readable by others than its owner and group, False if it does not exist."""
    try:
        return bool(os.stat(path).st_mode & 0o004)
    except OSError:
        return False
