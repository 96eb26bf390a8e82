"""A table of the broker with Apache's version: its entries by name, their changes, and their file.

A change takes effect in memory at once. The table's writer stores it together with other waiting changes.

Counterpart: `TopicConfigManager` and `SubscriptionGroupManager` (Apache).
"""

import abc
import threading
from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar

from rocketd.broker.base.json_file import JsonFile
from rocketd.broker.tables.change_history import ChangeHistory
from rocketd.broker.tables.change_news import ChangeNews, NamesListener
from rocketd.common.table_writer import TableWriter
from rocketd.remoting.bodies.tables import DataVersion, SubscriptionGroupWrapper, TopicConfigSerializeWrapper

Entry = TypeVar("Entry")
Content = TypeVar("Content", bound=TopicConfigSerializeWrapper | SubscriptionGroupWrapper)
"""What the file holds: all entries and the version."""


class VersionedTable(abc.ABC, Generic[Entry, Content]):
    """Entries by name. Any thread.

    An entry is never changed, only replaced. The dict of entries is changed in place and never emptied, so a look-up
    needs no lock. Every change is made under ``_guard``. A change of this broker ends with ``_count_change``; a copy of
    the master's table takes the master's version.
    """

    def __init__(
        self,
        entries: dict[str, Entry],
        file: JsonFile[Content],
        news: ChangeNews,
        now_ms: Callable[[], int],
        writer: TableWriter | None,
    ) -> None:
        """Take the preset entries, which the file may replace.

        ``now_ms`` returns Unix milliseconds. Without a ``writer``, each change is written in the calling thread.
        """
        self._table = entries
        self._file = file
        file.keep_texts()
        self._news = news
        self._now_ms = now_ms
        self._guard = threading.Lock()
        self._history = ChangeHistory()
        self._version = DataVersion(counter=0, timestamp=now_ms())
        self._saved = (writer or TableWriter()).table(
            file.path, partial(self._write, self.persist), partial(self._write, self._append)
        )

    @staticmethod
    @abc.abstractmethod
    def _pack(entries: dict[str, Entry], version: DataVersion) -> Content:
        """Return the content with these entries."""

    @staticmethod
    @abc.abstractmethod
    def _unpack(content: Content) -> dict[str, Entry]:
        """Return the entries of a content."""

    # ---------------------------------------------------------------- file

    def load(self) -> None:
        """Read the file; its entries take precedence over the preset ones. Raises JsonFileError."""
        stored = self._file.load()
        if stored is not None:
            with self._guard:
                self._table.update(self._unpack(stored))
                self._version = stored.data_version
        if self._file.has_journal:
            self._saved.changed()

    def persist(self) -> None:
        """Write the file now. Raises OSError."""
        self._file.save(self.numbered_snapshot)

    def _append(self) -> None:
        self._file.append(self.changes_since, self.numbered_snapshot)

    def _write(self, store: Callable[[], None]) -> None:
        """Store the table and announce the changes since the last write, even if the disk is full."""
        news = self._news.take()
        try:
            store()
        finally:
            self._news.tell(news)

    def on_names(self, listener: NamesListener) -> None:
        """Register a listener for the names of entries created, changed or deleted.

        It is called after each write of the table.
        """
        self._news.listeners.append(listener)

    # ---------------------------------------------------------------- version and changes

    @property
    def data_version(self) -> DataVersion:
        """The version of the table; a new object for each change."""
        return self._version

    def snapshot(self) -> Content:
        """Copy the table with its version, as in registrations and in the answers to codes 21 and 201."""
        return self.numbered_snapshot()[1]

    def numbered_snapshot(self) -> tuple[int, Content]:
        """Like ``snapshot``, with the number of the last change before it."""
        with self._guard:
            return self._history.number, self._pack(dict(self._table), self._version)

    def changes_since(self, number: int) -> tuple[int, Content] | None:
        """Return the entries added or changed after change ``number``, with the number of the last change.

        Returns None if entries were removed since, or if there were too many changes.
        """
        with self._guard:
            changed = self._history.since(number)
            if changed is None:
                return None
            entries = {name: self._table[name] for name in changed}
            return self._history.number, self._pack(entries, self._version)

    def _put(self, name: str, entry: Entry) -> None:
        self._table[name] = entry
        self._count_change(name)

    def _remove(self, name: str) -> bool:
        """Remove an entry and return whether it existed."""
        found = self._table.pop(name, None) is not None
        if found:
            self._count_change()
            self._news.add(name, "was deleted")
        return found

    def _count_change(self, name: str | None = None) -> None:
        """Count a change: of the entry with this name only, or without a name of anything."""
        self._history.add(name)
        self._version = self._version.next_version(self._time_of_change())

    def _time_of_change(self) -> int:
        return self._now_ms()

    # ---------------------------------------------------------------- replication

    def replace_all(self, master: Content) -> None:
        """Replace the table with the master's copy if its version differs."""
        with self._guard:
            if not self._replace(master):
                return
        self._saved.changed()

    def _replace(self, master: Content) -> bool:
        """Replace the entries and return whether the version differed."""
        if master.data_version == self._version:
            return False
        theirs = self._unpack(master)
        self._table.update(theirs)
        for name in self._table.keys() - theirs.keys():
            del self._table[name]
        self._history.add()
        self._version = master.data_version
        self._news.add("", f"the {self._news.many} of the master were copied")
        return True

    def adopt(self, slave: Content) -> int:
        """Add the entries of a slave if this master lacks them; return their number.

        The slave's table must have changed later than this one. If this one was never changed, it adopts every
        differing entry. Raises OSError if the file cannot be written.
        """
        with self._guard:
            is_new = not self._version.counter
            theirs, own = slave.data_version, self._version
            if not is_new and (theirs.timestamp, theirs.counter) <= (own.timestamp, own.counter):
                return 0
            taken = {
                name: entry
                for name, entry in self._unpack(slave).items()
                if (name not in self._table or is_new) and self._table.get(name) != entry
            }
            if not taken:
                return 0
            self._table.update(taken)
            self._count_change()
        self.persist()
        return len(taken)
