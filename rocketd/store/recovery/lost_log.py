"""Refuses to start a store if its commit log, or the begin of it, is gone although other files show that it was there.

Counterpart: the branch of `CommitLog.recoverNormally` for an empty log (Apache), which deletes all consume queues. A
log directory may also be empty because its disk is not mounted or its path is mistyped, so nothing is deleted here.
"""

import os
import re
from collections.abc import Iterator, Sequence

from rocketd.store.base.errors import StoreBeginLostError, StoreLogMissingError
from rocketd.store.base.filesystem import IFileSystem
from rocketd.store.base.layout import (
    checkpoint_path,
    config_dir,
    consume_queue_dir,
    consume_queue_ext_dir,
    index_dir,
    is_mapped_file_name,
)
from rocketd.store.state.checkpoint import StoreCheckpoint
from rocketd.store.upkeep.log_begin import read_log_begin

_PROGRESS_FILES = ("consumerOffset.json", "lmqConsumerOffset.json", "delayOffset.json")
_OFFSET = re.compile(rb'[{,]\s*"?\d+"?\s*:\s*[1-9]')
"""An offset above 0 of a queue id or delay level, in the JSON of such a file."""


def refuse_lost_log(fs: IFileSystem, root: str, log_directories: Sequence[str], *, is_slave: bool = False) -> None:
    """Raise StoreLogMissingError if no log directory has a file with bytes, but the store shows that it had messages.

    Changes nothing. Consumer offsets of a slave do not count: they come from the master, before its messages.
    """
    if any(_log_files(fs, directory) for directory in log_directories):
        return
    signs = [os.path.relpath(path, root) for path in _signs_of_messages(fs, root, is_slave)]
    if signs:
        looked_at = [(directory, fs.exists(directory)) for directory in log_directories]
        raise StoreLogMissingError(root, looked_at, signs)


def refuse_lost_begin(fs: IFileSystem, root: str, log_directories: Sequence[str]) -> None:
    """Raise StoreBeginLostError if the log begins after its noted begin. Changes nothing.

    Without this, queue and index files would be deleted up to there. If another program has stored data since, the note
    is not trusted: that program may have deleted log files.
    """
    noted = read_log_begin(fs, root) if StoreCheckpoint(checkpoint_path(root), fs).files_noted else None
    if noted is None:
        return
    looked_at = [(directory, _log_files(fs, directory)) for directory in log_directories]
    begin = min((offset for _, offsets in looked_at for offset in offsets), default=-1)
    if begin > noted.offset:
        counts = [(directory, len(offsets)) for directory, offsets in looked_at]
        raise StoreBeginLostError(root, *noted, begin, counts)


def _log_files(fs: IFileSystem, directory: str) -> list[int]:
    """Return the offsets of the files with bytes."""
    return [
        int(name)
        for name in _names(fs, directory)
        if is_mapped_file_name(name) and fs.file_size(os.path.join(directory, name))
    ]


def _signs_of_messages(fs: IFileSystem, root: str, is_slave: bool) -> Iterator[str]:
    """Yield the paths of files found only in a store that had messages."""
    for directory in (consume_queue_dir(root), consume_queue_ext_dir(root)):
        if _has_queues(fs, directory):
            yield directory
    if any(name.isascii() and name.isdigit() for name in _names(fs, index_dir(root))):
        yield index_dir(root)
    checkpoint = StoreCheckpoint(checkpoint_path(root), fs)
    if max(checkpoint.physic_msg_timestamp, checkpoint.logics_msg_timestamp, checkpoint.index_msg_timestamp) > 0:
        yield checkpoint.path
    if is_slave or fs.exists(checkpoint.path):
        # The checkpoint is more reliable: a client may commit any offset, even for a queue without messages.
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
