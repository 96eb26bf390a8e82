"""Replacing and reading a small file so that a crash leaves the old or the new one, never half of either.

Answers to Apache's MixAll.string2File and to the fallback of ConfigManager.load: the new text is written to ``.tmp``, the
old one is kept as ``.bak``, then the new one takes its name.
"""

import os
from collections.abc import Iterator

from rocketd.store.filesystem import IFileSystem, make_durable_dir


def replace_file(file_system: IFileSystem, path: str, data: bytes, *, keep_old: bool = True) -> None:
    """Write a file's new content; with `keep_old` the old one is then in ``path + ".bak"``. Raises OSError."""
    directory = os.path.dirname(os.path.abspath(path))
    make_durable_dir(file_system, directory)
    file_system.write_file(path + ".tmp", data)
    if keep_old and file_system.exists(path):
        # A copy, so that there is no moment without the file.
        file_system.write_file(path + ".bak", file_system.read_file(path))
    file_system.rename(path + ".tmp", path)
    file_system.sync_dir(directory)


def candidates(file_system: IFileSystem, path: str) -> Iterator[tuple[str, bytes]]:
    """Yield path and content of what may be loaded: the file, then its backup; those that exist and are not empty."""
    for name in (path, path + ".bak"):
        if file_system.exists(name):
            content = file_system.read_file(name)
            if content.strip():
                yield name, content
