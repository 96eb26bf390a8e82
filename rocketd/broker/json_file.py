"""One configuration file in JSON, kept so that a crash at any moment leaves a readable one.

Answers to Apache's ConfigManager, with the same three names: the file, ``.tmp`` while it is written, ``.bak`` for the one
before. Unlike Apache, new content is on the disk before it takes the file's place, a damaged file never replaces its good
``.bak``, and two unreadable files are an error instead of an empty table.
"""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec
from twisted.logger import Logger

from rocketd.remoting import fastjson
from rocketd.store.filesystem import IFileSystem
from rocketd.store.small_file import replace_file

T = TypeVar("T", bound=msgspec.Struct)


class JsonFileError(Exception):
    """Neither the file nor its ``.bak`` can be read; the text is one line for the operator that names both."""


class JsonFile(Generic[T]):
    """Loads and stores one value of one type. May be used from any thread: calls wait for each other."""

    _log = Logger()

    def __init__(self, path: str, content_type: type[T], file_system: IFileSystem) -> None:
        self.path = path
        self._type = content_type
        self._file_system = file_system
        self._lock = threading.Lock()
        self._written: int | None = None
        self._damaged = False

    @property
    def backup_path(self) -> str:
        """Where the content before the last ``save`` is."""
        return self.path + ".bak"

    def load(self) -> T | None:
        """Read the file, or its ``.bak`` where the file is missing or damaged, which is logged.

        Returns None when neither exists. Raises JsonFileError when there is something, but nothing readable.
        """
        with self._lock:
            faults = []
            for path in (self.path, self.backup_path):
                try:
                    content = self._read(path)
                except FileNotFoundError:
                    continue
                except (OSError, fastjson.FastJSONError) as error:
                    faults.append(f"{path} ({error})")
                    self._damaged = self._damaged or path == self.path
                    continue
                if path != self.path:
                    self._log.warn(
                        "{path} is {state}: using {backup}, which holds what was stored before it",
                        path=self.path,
                        state="damaged" if faults else "missing",
                        backup=path,
                    )
                return content
        if faults:
            raise JsonFileError(
                f"cannot read {' nor '.join(faults)}: put a good copy there, or move what is there away to start without"
            )
        return None

    def _read(self, path: str) -> T:
        data = self._file_system.read_file(path)
        if not data:
            raise fastjson.FastJSONError("it is empty")
        return fastjson.decode(data, self._type)

    def save(self, snapshot: Callable[[], tuple[int, T]]) -> None:
        """Store what ``snapshot`` returns: a number that grows with every change, and the content.

        When it returns, the content of the time of the call, or a later one, is on the disk: threads that wait for each
        other here share one write. Raises OSError; the files are then as they were before.
        """
        with self._lock:
            number, content = snapshot()
            if number == self._written:
                return
            replace_file(self._file_system, self.path, fastjson.dumps_pretty(content), keep_old=not self._damaged)
            self._damaged = False
            self._written = number
