"""The directories of the commit log: where files may lie, and where the next one is made.

Counterpart: the paths of `MultiPathMappedFileQueue` (Apache), by the same settings. Pure.
"""

import os.path
from collections.abc import Collection
from typing import NamedTuple

from rocketd.store.settings import MessageStoreConfig


class LogPaths(NamedTuple):
    """`text` is storePathCommitLog. New files are made in `writable`, sorted as Apache sorts them; `read_only` are
    directories whose files are only read, and deleted when they expire.
    """

    text: str
    writable: tuple[str, ...]
    read_only: tuple[str, ...] = ()

    @property
    def all(self) -> tuple[str, ...]:
        """Every directory that may have files."""
        return self.writable + self.read_only

    def place(self, number: int, full: Collection[str] = ()) -> str:
        """Directory of the file of this number, which is its offset by the file size.

        Directories in `full` are passed over, unless all are full.
        """
        usable = [path for path in self.writable if path not in full] or self.writable
        return usable[number % len(usable)]


def log_paths(config: MessageStoreConfig) -> LogPaths:
    """The directories that the settings name. `writable` is empty if each of several is read-only.

    As Apache's broker does, one directory is taken as it is, and readOnlyCommitLogStorePaths counts beside several only.
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
    """The directories that storePathCommitLog itself names, in its order."""
    text = config.store_path_commit_log
    return tuple(_split(text, config.multi_path_splitter)) if _are_several(config) else (text,)


def _are_several(config: MessageStoreConfig) -> bool:
    # The default is one directory, whatever the name of the store's is.
    text, default = config.store_path_commit_log, config.store_path_root_dir + "/commitlog"
    return bool(config.multi_path_splitter) and config.multi_path_splitter in text and text != default


def _split(text: str, splitter: str) -> list[str]:
    """The paths in a list, each once, without the blanks around them."""
    found: dict[str, str] = {}
    for path in (part.strip() for part in text.split(splitter)):
        if path:
            found.setdefault(os.path.normpath(path), path)
    return list(found.values())
