"""One configuration file in JSON, readable after a crash at any moment.

It has Apache's three names: the file, ``.tmp`` during a write, ``.bak`` for the previous content. Unlike in Apache's
broker:

- new content is on disk before it replaces the file,
- a damaged file never replaces its good ``.bak``,
- two unreadable files are an error, not an empty table.

See docs/decisions/0008. A large table gets changes of single entries in a journal beside the file (docs/decisions/0030).

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
from rocketd.store.base.table_journal import TableJournal, read_journal

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
        self._journal = TableJournal(file_system, path)
        self.has_journal = False
        """Whether the content returned by the last ``load`` has changes that are only in the journal."""
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
        content = fastjson.decode(data, self._type)
        changes = read_journal(self._file_system, self.path, data)
        for text in changes:
            content = _merged(content, fastjson.decode(text, self._type))
        self.has_journal = bool(changes)
        return content

    def save(self, snapshot: Callable[[], tuple[int, T]]) -> None:
        """Store the result of ``snapshot``: a number that grows with every change, and the content.

        After the return, the content at the time of the call, or a later one, is on disk: waiting threads share one
        write. Raises OSError; the files are unchanged then.
        """
        with self._lock:
            self._save(snapshot)

    def _save(self, snapshot: Callable[[], tuple[int, T]]) -> None:
        number, content = snapshot()
        if number == self._written and not self._journal.size:
            return
        data = fastjson.dumps_pretty(content, self._kept)
        self._journal.close()
        replace_file(self._file_system, self.path, data, keep_old=not self._damaged)
        self._journal.begin(data)
        self._damaged = False
        self._written = number

    def append(self, changes: Callable[[int], tuple[int, T] | None], snapshot: Callable[[], tuple[int, T]]) -> None:
        """Store the changes since the last call: in the journal if possible, otherwise like ``save``.

        They are on disk after the return. ``changes`` gets the number stored last. It returns the present number, and a
        content with only the new and replaced entries of its tables. It returns None if it cannot tell them, or if
        entries were removed. Raises OSError.
        """
        with self._lock:
            found = changes(self._written) if self._written is not None and self._journal.is_open else None
            if found is None:
                self._save(snapshot)
            elif found[0] != self._written:
                self._journal.append(fastjson.dumps(found[1]))
                self._written = found[0]


def _merged(older: T, newer: T) -> T:
    """Return ``newer``, whose tables have only some entries, with the other entries of the older one."""
    tables = {
        name: {**table, **getattr(newer, name)}
        for name in older.__struct_fields__
        if isinstance(table := getattr(older, name), dict)
    }
    return msgspec.structs.replace(newer, **tables)


class JsonFiles:
    """The configuration files of one directory."""

    def __init__(self, directory: str, file_system: IFileSystem) -> None:
        self._directory = directory
        self._file_system = file_system

    def file(self, name: str, content_type: type[T]) -> JsonFile[T]:
        """Return the file with this name and content type."""
        return JsonFile(os.path.join(self._directory, name), content_type, self._file_system)
