"""A disk that tells the names a power cut may still take."""

import os
from pathlib import Path

from rocketd.store.base.filesystem import RealFileSystem


class NamesOnDisk(RealFileSystem):
    """The real disk."""

    def __init__(self) -> None:
        self._safe: set[str] = set()

    def sync_dir(self, path: str) -> None:
        """Like the real one."""
        there = os.listdir(path)
        super().sync_dir(path)
        self._safe |= {os.path.join(path, name) for name in there}

    def unsafe(self, top: str) -> set[str]:
        """Return the paths of a directory, its files and its directories whose names may be lost."""
        return {top, *map(str, Path(top).rglob("*"))} - self._safe
