"""Refuses to start a store whose commit log is gone while other files show that it had messages.

Counterpart: the branch of Apache's `CommitLog.recoverNormally` for an empty log, which deletes all consume queues. A log
directory may be empty because its disk is not mounted or its path is mistyped, so nothing is deleted on that ground.
"""

import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence

from rocketd.store.checkpoint import StoreCheckpoint
from rocketd.store.errors import StoreDirectoryLostError, StoreLogMissingError
from rocketd.store.file_notes import NotedLogDirectory
from rocketd.store.filesystem import IFileSystem
from rocketd.store.layout import (
    checkpoint_path,
    config_dir,
    consume_queue_dir,
    consume_queue_ext_dir,
    index_dir,
    is_mapped_file_name,
)

_PROGRESS_FILES = ("consumerOffset.json", "lmqConsumerOffset.json", "delayOffset.json")
_OFFSET = re.compile(rb'[{,]\s*"?\d+"?\s*:\s*[1-9]')
"""An offset above 0 of a queue id or delay level, in the JSON of such a file."""


def refuse_lost_log(fs: IFileSystem, root: str, log_directories: Sequence[str], *, is_slave: bool = False) -> None:
    """Raise StoreLogMissingError if no log directory has a file with bytes, but the store shows that it had messages.

    Changes nothing. Consumer offsets of a slave do not count: they come from the master, before its messages.
    """
    if any(_has_log(fs, directory) for directory in log_directories):
        return
    signs = [os.path.relpath(path, root) for path in _signs_of_messages(fs, root, is_slave)]
    if signs:
        looked_at = [(directory, fs.exists(directory)) for directory in log_directories]
        raise StoreLogMissingError(root, looked_at, signs)


def refuse_lost_directory(
    noted: Sequence[NotedLogDirectory], directories: Collection[str], paths: Iterable[str], *, clean: bool
) -> None:
    """Raise StoreDirectoryLostError if one of the log's directories is noted to have files, but has none of `paths`.

    Without this, the log would seem to begin later, and queues would be cleaned up to there. After another stop than a
    `clean` one, the last file of a directory may have expired behind the notes.
    """
    there = {os.path.dirname(path) for path in paths}
    for path, first, last, count in noted:
        if path in directories and path not in there and (clean or count > 1):
            raise StoreDirectoryLostError(path, first, last, count)


def _has_log(fs: IFileSystem, directory: str) -> bool:
    return any(
        is_mapped_file_name(name) and fs.file_size(os.path.join(directory, name)) for name in _names(fs, directory)
    )


def _signs_of_messages(fs: IFileSystem, root: str, is_slave: bool) -> Iterator[str]:
    """Yield the paths of what only a store that had messages has."""
    for directory in (consume_queue_dir(root), consume_queue_ext_dir(root)):
        if _has_queues(fs, directory):
            yield directory
    if any(name.isascii() and name.isdigit() for name in _names(fs, index_dir(root))):
        yield index_dir(root)
    checkpoint = StoreCheckpoint(checkpoint_path(root), fs)
    if max(checkpoint.physic_msg_timestamp, checkpoint.logics_msg_timestamp, checkpoint.index_msg_timestamp) > 0:
        yield checkpoint.path
    if is_slave or fs.exists(checkpoint.path):
        # The checkpoint knows better: a client may commit any offset, even of a queue without messages.
        return
    for name in _PROGRESS_FILES:
        path = os.path.join(config_dir(root), name)
        if fs.exists(path) and _OFFSET.search(fs.read_file(path)):
            yield path


def _has_queues(fs: IFileSystem, directory: str) -> bool:
    return any(
        is_mapped_file_name(name)
        for topic in _names(fs, directory)
        for queue in _names(fs, os.path.join(directory, topic))
        for name in _names(fs, os.path.join(directory, topic, queue))
    )


def _names(fs: IFileSystem, directory: str) -> list[str]:
    try:
        return fs.listdir(directory)
    except NotADirectoryError:
        return []
