"""The store's file of deleted topics, see `rocketd.store.state.deletions`.

It is replaced as a whole, so a crash leaves the old or the new content.
"""

import os

from rocketd.store.base.checked_note import read_note, write_note
from rocketd.store.base.filesystem import IFileSystem
from rocketd.store.state.deletions import Deletion, Deletions

_VERSION = 1


def deletions_path(root: str) -> str:
    """Return the path of the file."""
    return os.path.join(root, "rocketd-deletions")


def read_deletions(fs: IFileSystem, root: str) -> Deletions | None:
    """Return the recorded deletions, None if the file is damaged. Raises OSError."""
    path = deletions_path(root)
    if not fs.exists(path):
        return Deletions()
    items = read_note(fs, path, _VERSION)
    if items is None:
        return None
    (topics,) = items
    return Deletions({topic: Deletion(*deletion) for topic, deletion in topics.items()})


def write_deletions(fs: IFileSystem, root: str, deletions: Deletions) -> None:
    """Replace the deletions. They are on disk when this returns. Raises OSError."""
    write_note(fs, deletions_path(root), _VERSION, [deletions.topics])
