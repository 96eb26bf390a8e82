"""Where the commit log of a store lies, as options and arguments name it. Pure but for a look at a directory."""

import os

from rocketd.store.layout import commit_log_dir


def log_directories(root: str, commit_log: str) -> tuple[str, ...]:
    """The directories of a store's log: those that `commit_log` names, separated by commas, else that in the store's."""
    if not commit_log:
        return (commit_log_dir(os.path.abspath(root)),)
    if os.path.isdir(commit_log):
        return (os.path.abspath(commit_log),)
    return tuple(os.path.abspath(path.strip()) for path in commit_log.split(",") if path.strip())
