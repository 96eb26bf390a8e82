"""Finds the setting behind the path in an operating system's error.

Pure functions.
"""

import os

from rocketd.common.settings.declaration import ConfigError
from rocketd.store.base.settings import MessageStoreConfig
from rocketd.store.log.log_paths import log_paths


def path_error(error: OSError, settings: MessageStoreConfig) -> ConfigError:
    """Return an error of one line with setting, path and reason."""
    root, log = settings.store_path_root_dir, settings.store_path_commit_log
    paths = log_paths(settings)
    path = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else root
    # Directories are created together with their parents, so the failing path may be a parent.
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
