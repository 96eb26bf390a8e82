"""The directory of account files.

Answers to AclUtils.writeDataObject and the walking of Apache's AclFileWatchService. A file is replaced as a whole and keeps
its mode, as it holds secrets; a new one can be read by its owner alone.
"""

import errno
import os
from contextlib import suppress

_SUFFIXES = (".yml", ".yaml")
_TOOLS_FILE = "tools.yml"
_OWNER_ONLY = 0o600


def is_account_file(path: str) -> bool:
    """Whether a file of this name is looked for accounts in."""
    return path.endswith(_SUFFIXES) and os.path.basename(path) != _TOOLS_FILE


def list_files(directory: str) -> list[str]:
    """List the account files of a directory and those below it, sorted; none where it does not exist."""
    found = []
    for parent, _, names in os.walk(directory, followlinks=True):
        # Kubernetes keeps the files themselves in hidden directories beside the links to them.
        if not any(part.startswith(".") for part in os.path.relpath(parent, directory).split(os.sep) if part != "."):
            found += [os.path.join(parent, name) for name in names if is_account_file(name)]
    return sorted(found)


def read(path: str) -> bytes:
    """Read a file. Raises OSError."""
    with open(path, "rb") as file:
        return file.read()


def replace(path: str, data: bytes) -> None:
    """Put a file's new content in the place of the old, after it is on the disk. Raises OSError.

    A file that is a mount point of its own, as containers have them, cannot be replaced: that one is written over.
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
    """Write a whole file and wait until it is on the disk; of a new one nothing is left when that fails."""
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
    """Whether a file can be read by more than its owner and group; False where there is none."""
    try:
        return bool(os.stat(path).st_mode & 0o004)
    except OSError:
        return False
