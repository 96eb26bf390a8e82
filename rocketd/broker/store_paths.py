"""Which setting names the path that an operating system's error is about.

Answers to nothing of Apache's, where such an error is a stack trace. Pure.
"""

import os

from rocketd.common.config import ConfigError
from rocketd.store.log_paths import log_paths
from rocketd.store.settings import MessageStoreConfig


def path_error(error: OSError, settings: MessageStoreConfig) -> ConfigError:
    """Put setting, path and reason of an error of the store's files into one line."""
    root, log = settings.store_path_root_dir, settings.store_path_commit_log
    paths = log_paths(settings)
    path = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else root
    # Directories are made with those above them, so what failed may also be above.
    of_log = any(_is_below(path, one) or (_is_below(one, path) and not _is_below(root, path)) for one in paths.writable)
    key, value = ("storePathCommitLog", log) if of_log else ("storePathRootDir", root)
    if any(_is_below(path, one) for one in paths.read_only):
        key, value = "readOnlyCommitLogStorePaths", settings.read_only_commit_log_store_paths or ""
    where = "" if path == value else f"{path}: "
    if isinstance(error, FileExistsError | NotADirectoryError):
        return ConfigError(f"{key} = {value}: {where}there is a file where a directory is needed")
    return ConfigError(f"{key} = {value}: {where}{error.strerror or error}")


def _is_below(path: str, directory: str) -> bool:
    """Whether a path is a directory or below it."""
    path, directory = os.path.abspath(path), os.path.abspath(directory)
    return path == directory or path.startswith(directory.rstrip(os.sep) + os.sep)
