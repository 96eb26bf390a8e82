"""The file of settings changed by requests, for a daemon started without ``--config``.

A daemon with a configuration file keeps such changes in that file. Without one, Apache writes a file it never reads
again. Here the next start reads it. Its first line marks it, so a file written by Apache to the same path is left
alone. This module only reads files.
"""

import os
from collections.abc import Mapping

from rocketd.common.settings import properties_file
from rocketd.common.settings.assignments import Assignment, from_file
from rocketd.common.settings.declaration import ConfigError, Setting

MARK = "# Settings changed by request."
_HEAD = f"{MARK} Each start of rocketd reads this file; a file given with --config, and options, win over it.\n"


def read_changes(path: str, known: Mapping[str, Setting], warnings: list[str], *, expected: bool) -> list[Assignment]:
    """Read a file of changes. A missing one is empty.

    Settings that requests must not change are skipped with a warning. A file without the mark is skipped as well, with
    a warning only if changes are ``expected`` there. Raises ConfigError for an unreadable file.
    """
    if not os.path.exists(path):
        return []
    if not is_marked(_start_of(path)):
        if expected:
            warnings.append(f"{path}: not read: rocketd did not write it; give it with --config to use it")
        return []
    changes = []
    for assignment in from_file(path):
        setting = known.get(assignment.key)
        if setting is not None and not setting.remote:
            warnings.append(f"{assignment.where}: {assignment.key} is ignored: set it with --config or --option")
        else:
            changes.append(assignment)
    return changes


def is_marked(content: bytes) -> bool:
    """Return whether a file with this content was written by ``with_changes``."""
    return content.startswith(MARK.encode())


def with_changes(old: bytes, changes: Mapping[str, str]) -> bytes:
    """Return the content of a marked file with these keys set. ``old`` is its present content, empty for a new file."""
    return properties_file.edit(properties_file.decode(old) or _HEAD, changes).encode()


def _start_of(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(len(MARK))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
