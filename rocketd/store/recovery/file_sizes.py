"""Compares the file sizes of a store with settings, without opening the store. Any thread; blocks."""

import os
from collections.abc import Iterator

from rocketd.store.base.errors import StoreFileSizeError
from rocketd.store.base.filesystem import IFileSystem
from rocketd.store.base.layout import (
    consume_queue_dir,
    consume_queue_ext_dir,
    consume_queue_file_size,
    is_mapped_file_name,
)
from rocketd.store.base.settings import MessageStoreConfig
from rocketd.store.log.log_paths import log_paths


def check_file_sizes(fs: IFileSystem, now: MessageStoreConfig, tried: MessageStoreConfig) -> None:
    """Raise StoreFileSizeError if files of a store that is open with settings `now` do not fit `tried`. Also OSError.

    Only files whose size differs in the two settings are checked. The others were checked when the store was opened.
    """
    queue_size = consume_queue_file_size(tried.mapped_file_size_consume_queue)
    if tried.mapped_file_size_commit_log != now.mapped_file_size_commit_log:
        for directory in log_paths(tried).all:
            _check(fs, directory, tried.mapped_file_size_commit_log)
    if queue_size != consume_queue_file_size(now.mapped_file_size_consume_queue):
        for directory in _queues(fs, consume_queue_dir(tried.store_path_root_dir)):
            _check(fs, directory, queue_size)
    if tried.mapped_file_size_consume_queue_ext != now.mapped_file_size_consume_queue_ext:
        for directory in _queues(fs, consume_queue_ext_dir(tried.store_path_root_dir)):
            _check(fs, directory, tried.mapped_file_size_consume_queue_ext)


def _check(fs: IFileSystem, directory: str, expected: int) -> None:
    for name in _names(fs, directory):
        if is_mapped_file_name(name):
            path = os.path.join(directory, name)
            size = fs.file_size(path)
            if size not in (0, expected):  # an empty file is being created
                raise StoreFileSizeError(path, size, expected)


def _queues(fs: IFileSystem, directory: str) -> Iterator[str]:
    """Yield the directories of all queues below one."""
    for topic in _names(fs, directory):
        for queue_id in _names(fs, os.path.join(directory, topic)):
            yield os.path.join(directory, topic, queue_id)


def _names(fs: IFileSystem, directory: str) -> list[str]:
    try:
        return fs.listdir(directory)
    except (FileNotFoundError, NotADirectoryError):
        return []
