"""Which setting names the path that an operating system's error is about.

Answers to nothing of Apache's, where such an error is a stack trace. Pure.
"""

import os

from rocketd.common.config import ConfigError
from rocketd.store.settings import MessageStoreConfig


def path_error(error: OSError, settings: MessageStoreConfig) -> ConfigError:
    """Put setting, path and reason of an error of the store's files into one line."""
    root, log = settings.store_path_root_dir, settings.store_path_commit_log
    path = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else root
    # Directories are made with those above them, so what failed may also be above.
    of_log = _is_below(path, log) or (_is_below(log, path) and not _is_below(root, path))
    key, value = ("storePathCommitLog", log) if of_log else ("storePathRootDir", root)
    where = "" if path == value else f"{path}: "
    if isinstance(error, FileExistsError | NotADirectoryError):
        return ConfigError(f"{key} = {value}: {where}there is a file where a directory is needed")
    return ConfigError(f"{key} = {value}: {where}{error.strerror or error}")


def _is_below(path: str, directory: str) -> bool:
    """Whether a path is a directory or below it."""
    path, directory = os.path.abspath(path), os.path.abspath(directory)
    return path == directory or path.startswith(directory.rstrip(os.sep) + os.sep)
