"""One configuration file in JSON, readable after a crash at any moment.

It has Apache's three names: the file, ``.tmp`` during a write, ``.bak`` for the previous content. Unlike in Apache's
broker:

- new content is on disk before it replaces the file,
- a damaged file never replaces its good ``.bak``,
- two unreadable files are an error, not an empty table.

See docs/decisions/0008.

Counterpart: `ConfigManager` (Apache).
"""

import os
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec
from twisted.logger import Logger

from rocketd.remoting.fastjson import dialect as fastjson
from rocketd.store.base.filesystem import IFileSystem
from rocketd.store.base.small_file import replace_file

T = TypeVar("T", bound=msgspec.Struct)


class JsonFileError(Exception):
    """Neither the file nor its ``.bak`` can be read. The text is one line for the operator, with both paths."""


class JsonFile(Generic[T]):
    """Loads and stores one value of one type. Any thread; calls are serialized."""

    _log = Logger()

    def __init__(self, path: str, content_type: type[T], file_system: IFileSystem) -> None:
        self.path = path
        self._type = content_type
        self._file_system = file_system
        self._lock = threading.Lock()
        self._written: int | None = None
        self._damaged = False
        self._kept: fastjson.KeptTexts | None = None
        self.used_backup = False
        """Whether the last ``load`` returned the content of the ``.bak``."""

    def keep_texts(self) -> None:
        """From now on keep the text of each entry, and encode only new ones.

        The content is one table, whose entries are replaced, never changed.
        """
        self._kept = fastjson.KeptTexts()

    @property
    def backup_path(self) -> str:
        """The path of the content before the last ``save``."""
        return self.path + ".bak"

    def load(self) -> T | None:
        """Read the file, or its ``.bak`` if the file is missing or damaged; that is logged.

        Returns None if neither exists. Raises JsonFileError if neither is readable.
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
                self.used_backup = path != self.path
                if self.used_backup:
                    self._log.warn(
                        "{path} is {state}: using {backup}, the version before it",
                        path=self.path,
                        state="damaged" if faults else "missing",
                        backup=path,
                    )
                return content
        if faults:
            raise JsonFileError(
                f"cannot read {' nor '.join(faults)}: put a good copy there, or move the file away to start without it"
            )
        return None

    def _read(self, path: str) -> T:
        data = self._file_system.read_file(path)
        if not data:
            raise fastjson.FastJSONError("it is empty")
        return fastjson.decode(data, self._type)

    def save(self, snapshot: Callable[[], tuple[int, T]]) -> None:
        """Store the result of ``snapshot``: a number that grows with every change, and the content.

        After the return, the content at the time of the call, or a later one, is on disk: waiting threads share one
        write. Raises OSError; the files are unchanged then.
        """
        with self._lock:
            number, content = snapshot()
            if number == self._written:
                return
            data = fastjson.dumps_pretty(content, self._kept)
            replace_file(self._file_system, self.path, data, keep_old=not self._damaged)
            self._damaged = False
            self._written = number


class JsonFiles:
    """The configuration files of one directory."""

    def __init__(self, directory: str, file_system: IFileSystem) -> None:
        self._directory = directory
        self._file_system = file_system

    def file(self, name: str, content_type: type[T]) -> JsonFile[T]:
        """Return the file with this name and content type."""
        return JsonFile(os.path.join(self._directory, name), content_type, self._file_system)
