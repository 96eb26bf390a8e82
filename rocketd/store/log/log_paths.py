"""The directories of the commit log: existing files, and the place of the next one.

Counterpart: the paths of `MultiPathMappedFileQueue` (Apache), with the same settings. Pure functions.
"""

import os.path
from collections.abc import Collection
from typing import NamedTuple

from rocketd.store.base.settings import MessageStoreConfig


class LogPaths(NamedTuple):
    """Directories of the log.

    `text` is storePathCommitLog. New files are created in `writable`, sorted as Apache sorts them. Files in `read_only`
    are only read, and deleted when they expire.
    """

    text: str
    writable: tuple[str, ...]
    read_only: tuple[str, ...] = ()

    @property
    def all(self) -> tuple[str, ...]:
        """All directories with files."""
        return self.writable + self.read_only

    def place(self, number: int, full: Collection[str] = ()) -> str:
        """Return the directory of a file by its number, the file's offset divided by the file size.

        Directories in `full` are skipped unless all are full.
        """
        usable = [path for path in self.writable if path not in full] or self.writable
        return usable[number % len(usable)]


def log_paths(config: MessageStoreConfig) -> LogPaths:
    """Return the directories named by the settings. `writable` is empty if all of several are read-only.

    As with Apache, a single directory is taken unchanged, and readOnlyCommitLogStorePaths counts only beside several.
    """
    text = config.store_path_commit_log
    if not _are_several(config):
        return LogPaths(text, (text,))
    named = _split(text, config.multi_path_splitter)
    read_only = _split(config.read_only_commit_log_store_paths or "", config.multi_path_splitter)
    kept = {os.path.normpath(path) for path in read_only}
    # By UTF-16, as Java compares strings.
    writable = sorted(
        (path for path in named if os.path.normpath(path) not in kept), key=lambda path: path.encode("utf-16-be")
    )
    return LogPaths(text, tuple(writable), tuple(read_only))


def named_paths(config: MessageStoreConfig) -> tuple[str, ...]:
    """Return the directories named by storePathCommitLog itself, in its order."""
    text = config.store_path_commit_log
    return tuple(_split(text, config.multi_path_splitter)) if _are_several(config) else (text,)


def _are_several(config: MessageStoreConfig) -> bool:
    # The default is one directory, even if the name of the store contains the splitter.
    text, default = config.store_path_commit_log, config.store_path_root_dir + "/commitlog"
    return bool(config.multi_path_splitter) and config.multi_path_splitter in text and text != default


def _split(text: str, splitter: str) -> list[str]:
    """Return the paths of a list without duplicates and surrounding blanks."""
    found: dict[str, str] = {}
    for path in (part.strip() for part in text.split(splitter)):
        if path:
            found.setdefault(os.path.normpath(path), path)
    return list(found.values())
