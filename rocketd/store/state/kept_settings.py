"""Writes settings changed by a request to a file for the next start.

Counterpart: `Configuration.persist` (Apache). Apache writes all settings; this writes only the changed ones.
"""

from collections.abc import Mapping

from twisted.logger import Logger

from rocketd.common.settings import properties_file
from rocketd.common.settings.kept_changes import is_marked, with_changes
from rocketd.store.base.filesystem import IFileSystem
from rocketd.store.base.small_file import replace_file

_log = Logger()


def keep_settings(
    file_system: IFileSystem, path: str, changes: Mapping[str, str], *, given: bool, beside: str | None = None
) -> None:
    """Write changed settings to a file and keep its other lines. Blocks.

    ``given`` tells that the operator named the file with ``--config``. If not, the file is rocketd's own, and a foreign
    file at that path is renamed to ``.old``. ``beside`` is rocketd's own file, which a start without ``--config``
    reads: keys present in it get the new values, and a failure to do so is only logged.

    Raises OSError, or ValueError if the file is not text.
    """
    if not changes:
        return
    old = file_system.read_file(path) if given or file_system.exists(path) else b""
    if given:
        content = properties_file.edit(properties_file.decode(old), changes).encode()
    else:
        if old and not is_marked(old):
            _keep_old(file_system, path)
            old = b""
        content = with_changes(old, changes)
    replace_file(file_system, path, content)
    if given and beside is not None:
        try:
            _change_older(file_system, beside, changes)
        except (OSError, ValueError) as error:
            _log.error(
                "{path} may have older values of {keys}; a start without --config uses it: {error}",
                path=beside,
                keys=", ".join(changes),
                error=error,
            )


def _change_older(file_system: IFileSystem, path: str, changes: Mapping[str, str]) -> None:
    old = file_system.read_file(path) if file_system.exists(path) else b""
    if is_marked(old):
        keys = {entry.key for entry in properties_file.parse(properties_file.decode(old))}
        newer = {key: value for key, value in changes.items() if key in keys}
        if newer:
            replace_file(file_system, path, with_changes(old, newer))


def _keep_old(file_system: IFileSystem, path: str) -> None:
    aside = path + ".old"
    number = 1
    while file_system.exists(aside):
        number += 1
        aside = f"{path}.old{number}"
    file_system.rename(path, aside)
