"""Waiting messages in the order of their due times: a table on disk, rebuilt from the timer topic if needed.

SQLite keeps it in one file with a write-ahead log. So memory does not grow with the number of waiting messages, and a
start need not read them all. Each statement handles many rows: SQLite releases Python's lock (the GIL) for each step,
and getting it back takes long while another thread is busy.

Counterpart: `TimerWheel`, `TimerLog` (Apache 5.x).
"""

import json
import os
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

from rocketd.broker.timer.records import Wait

VERSION = 2
_SCHEMA = f"""
    CREATE TABLE waiting(
        queue_offset INTEGER PRIMARY KEY, due_ms INTEGER NOT NULL, physical_offset INTEGER NOT NULL,
        key_hash INTEGER NOT NULL, is_delay INTEGER NOT NULL DEFAULT 0
    );
    CREATE INDEX waiting_by_due ON waiting(due_ms);
    CREATE INDEX waiting_by_key ON waiting(key_hash);
    CREATE TABLE progress(next_offset INTEGER NOT NULL, physical_offset INTEGER NOT NULL, checksum INTEGER NOT NULL);
    PRAGMA user_version = {VERSION};
"""
_FROM_VERSION_1 = f"""
    ALTER TABLE waiting ADD COLUMN is_delay INTEGER NOT NULL DEFAULT 0;
    PRAGMA user_version = {VERSION};
"""
_BLOCKS = (128, 16, 1)
"""Numbers of rows per statement. There are few, because each one needs a prepared statement."""
_COLUMNS = 5
_CACHE_KIB = 16_384


class ReadProgress(NamedTuple):
    """The progress in the topic: the next offset, and place and checksum of the record before it."""

    next_offset: int
    physical_offset: int
    checksum: int


class Row(NamedTuple):
    """One waiting message."""

    due_ms: int
    queue_offset: int
    physical_offset: int


class TimerTable:
    """The table of waiting messages.

    It belongs to one thread. Every method raises sqlite3.Error if the file is unusable.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.count = 0
        """The number of waiting messages. Any thread may read it."""
        self._database: sqlite3.Connection | None = None
        self._next_due: int | None = None
        self._next_due_known = False

    def open(self) -> ReadProgress | None:
        """Open or create the file. Return its progress in the topic; None if it is empty."""
        if self.path != ":memory:":
            os.makedirs(os.path.dirname(self.path), exist_ok=True)
        database = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
        self._database = database
        # A power loss may remove the last transactions, but only whole ones; the topic holds them.
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")
        database.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        (version,) = database.execute("PRAGMA user_version").fetchone()
        if version == 0:
            database.executescript("BEGIN;" + _SCHEMA + "COMMIT;")
        elif version == 1:
            database.executescript("BEGIN;" + _FROM_VERSION_1 + "COMMIT;")
        elif version != VERSION:
            raise sqlite3.DatabaseError(f"it has version {version}, not {VERSION}")
        (self.count,) = database.execute("SELECT count(*) FROM waiting").fetchone()
        self._next_due_known = False
        row = database.execute("SELECT next_offset, physical_offset, checksum FROM progress").fetchone()
        return None if row is None else ReadProgress(*row)

    @property
    def is_open(self) -> bool:
        """Whether the table is open."""
        return self._database is not None

    def close(self) -> None:
        """Close the file."""
        database, self._database = self._database, None
        if database is not None:
            with suppress(sqlite3.Error):
                database.close()

    def discard(self) -> None:
        """Close and remove the file, even a damaged one. Raises OSError."""
        self.close()
        self.count = 0
        for suffix in ("", "-wal", "-shm", "-journal"):
            with suppress(FileNotFoundError):
                os.remove(self.path + suffix)

    def clear(self) -> None:
        """Delete all rows."""
        self._execute("BEGIN")
        self._execute("DELETE FROM waiting")
        self._execute("DELETE FROM progress")
        self._execute("COMMIT")
        self.count = 0
        self._next_due_known = False

    def apply(self, waits: Mapping[int, Wait], gone: Iterable[int], progress: ReadProgress) -> int:
        """Insert and delete messages by queue offset and set the progress, in one transaction.

        Returns the number deleted.
        """
        self._execute("BEGIN IMMEDIATE")
        try:
            inserted = self._insert(waits)
            offsets = sorted(gone)
            removed = 0
            if offsets:
                statement = "DELETE FROM waiting WHERE queue_offset IN (SELECT value FROM json_each(?))"
                removed = self._execute(statement, (json.dumps(offsets),)).rowcount
            self._execute("DELETE FROM progress")
            self._execute("INSERT INTO progress VALUES (?, ?, ?)", progress)
            self._execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                self._execute("ROLLBACK")
            raise
        self.count += inserted - removed
        if removed:
            self._next_due_known = False
        elif waits and self._next_due_known:
            soonest = min(wait.due_ms for wait in waits.values())
            self._next_due = soonest if self._next_due is None else min(soonest, self._next_due)
        return removed

    def _insert(self, waits: Mapping[int, Wait]) -> int:
        values = [value for offset, wait in waits.items() for value in (offset, *wait)]
        inserted = at = 0
        for rows in _BLOCKS:
            width = rows * _COLUMNS
            statement = "INSERT OR IGNORE INTO waiting VALUES " + ",".join(["(?,?,?,?,?)"] * rows)
            while len(values) - at >= width:
                inserted += self._execute(statement, values[at : at + width]).rowcount
                at += width
        return inserted

    def shift_delays(self, by_ms: int) -> None:
        """Shift the times of delayed messages by a step of the wall clock."""
        self._execute("UPDATE waiting SET due_ms = due_ms + ? WHERE is_delay", (by_ms,))
        self._next_due_known = False

    def next_due(self) -> int | None:
        """Return the due time of the next message in ms; None if none waits."""
        if not self._next_due_known:
            (self._next_due,) = self._execute("SELECT min(due_ms) FROM waiting").fetchone()
            self._next_due_known = True
        return self._next_due

    def due(self, now_ms: int, limit: int) -> list[Row]:
        """Return the due messages, ordered by due time, then by queue offset."""
        where = "WHERE due_ms <= ? ORDER BY due_ms, queue_offset LIMIT ?"
        return sorted(self._rows(where, now_ms, limit))

    def oldest(self, limit: int) -> list[Row]:
        """Return the messages stored first."""
        rows = self._rows("WHERE queue_offset >= ? ORDER BY queue_offset LIMIT ?", 0, limit)
        return sorted(rows, key=lambda row: row.queue_offset)

    def with_hash(self, key_hash: int) -> list[Row]:
        """Return the messages whose identity has this hash."""
        return self._rows("WHERE key_hash = ? ORDER BY queue_offset LIMIT ?", key_hash, -1)

    def _rows(self, where: str, *parameters: int) -> list[Row]:
        one = f"SELECT due_ms, queue_offset, physical_offset FROM waiting {where}"
        statement = f"SELECT group_concat(due_ms || ' ' || queue_offset || ' ' || physical_offset, ' ') FROM ({one})"
        (text,) = self._execute(statement, parameters).fetchone()
        numbers = [int(word) for word in (text or "").split()]
        return list(map(Row, numbers[::3], numbers[1::3], numbers[2::3]))

    def _execute(self, statement: str, parameters: Iterable[int | str] = ()) -> sqlite3.Cursor:
        if self._database is None:
            raise sqlite3.OperationalError("the table is closed")
        return self._database.execute(statement, tuple(parameters))
