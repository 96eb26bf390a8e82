"""The place of a store's commit log, as options and arguments name it. Pure, apart from one check for a directory."""

import os

from rocketd.store.base.layout import commit_log_dir


def log_directories(root: str, commit_log: str) -> tuple[str, ...]:
    """Return the directories of a store's log: those in `commit_log` (comma-separated), or the default."""
    if not commit_log:
        return (commit_log_dir(os.path.abspath(root)),)
    if os.path.isdir(commit_log):
        return (os.path.abspath(commit_log),)
    return tuple(os.path.abspath(path.strip()) for path in commit_log.split(",") if path.strip())
