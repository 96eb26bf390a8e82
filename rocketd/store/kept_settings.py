"""Keeps settings that a request has changed, for the next start.

Counterpart: `Configuration.persist` (Apache), which writes all settings rather than those that were changed.
"""

from collections.abc import Mapping

from rocketd.common import properties_file
from rocketd.common.kept_changes import is_marked, with_changes
from rocketd.store.filesystem import IFileSystem
from rocketd.store.small_file import replace_file


def keep_settings(file_system: IFileSystem, path: str, changes: Mapping[str, str], *, given: bool) -> None:
    """Write changed settings to a file, whose other lines stay. Blocks. Raises OSError.

    ``given`` says that the operator gave the file with ``--config``. If not, the file is rocketd's own: a file of
    somebody else at that path is put aside as ``.old``.
    """
    if not changes:
        return
    old = file_system.read_file(path) if given or file_system.exists(path) else b""
    if given:
        content = properties_file.edit(properties_file.decode(old), changes).encode()
    else:
        if old and not is_marked(old):
            _put_aside(file_system, path)
            old = b""
        content = with_changes(old, changes)
    replace_file(file_system, path, content)


def _put_aside(file_system: IFileSystem, path: str) -> None:
    aside = path + ".old"
    number = 1
    while file_system.exists(aside):
        number += 1
        aside = f"{path}.old{number}"
    file_system.rename(path, aside)
