"""Replace and read a small file, so a crash leaves the old or the new content but never a mixture.

Counterpart: `MixAll.string2File` and the fallback of `ConfigManager.load` (Apache). The new text is written to
``.tmp``, the old file is copied to ``.bak``, then the new file takes the name.
"""

import os
from collections.abc import Iterator

from rocketd.store.base.filesystem import IFileSystem, make_durable_dir


def replace_file(file_system: IFileSystem, path: str, data: bytes, *, keep_old: bool = True) -> None:
    """Write the new content of a file. With `keep_old`, the old content is kept in ``path + ".bak"``. Raises OSError."""
    directory = os.path.dirname(os.path.abspath(path))
    make_durable_dir(file_system, directory)
    file_system.write_file(path + ".tmp", data)
    if keep_old and file_system.exists(path):
        # A copy, so the file exists at every moment.
        file_system.write_file(path + ".bak", file_system.read_file(path))
    file_system.rename(path + ".tmp", path)
    file_system.sync_dir(directory)


def candidates(file_system: IFileSystem, path: str) -> Iterator[tuple[str, bytes]]:
    """Yield path and content of the file and of its backup, skipping those missing or empty."""
    for name in (path, path + ".bak"):
        if file_system.exists(name):
            content = file_system.read_file(name)
            if content.strip():
                yield name, content
