"""Files that exist completely or not at all, whenever the machine stops."""

import os
import uuid


def sync_folder(path: str) -> None:
    """Bring created, renamed and removed entries of a folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(path: str) -> None:
    """Create a folder and its parents, and bring them to the disk."""
    missing = []
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for each in reversed(missing):
        os.makedirs(each, exist_ok=True)
        sync_folder(os.path.dirname(each))


def replace_durably(path: str, data: bytes) -> None:
    """Write a file's new content: after a crash, the file has the old content or the new one."""
    os.replace(_written_beside(path, data), path)
    sync_folder(os.path.dirname(path))


def create_durably(path: str, data: bytes) -> None:
    """Write a file that does not exist. If another process creates it first, its content stays."""
    temporary = _written_beside(path, data)
    try:
        os.link(temporary, path)
    except FileExistsError:
        pass
    finally:
        os.remove(temporary)
    sync_folder(os.path.dirname(path))


def _written_beside(path: str, data: bytes) -> str:
    temporary = f"{path}.{uuid.uuid4().hex[:8]}.tmp"
    with open(temporary, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return temporary
