"""One thread that writes changed tables to their files, so that a burst of changes costs a few writes.

No counterpart in Apache, which writes the whole file in the thread of each change. A change marks its table as dirty; the
thread writes a dirty table once, with everything that has changed by then. Callers that must know wait for the write by a
callback, never by blocking.
"""

import threading
from collections.abc import Callable
from time import monotonic

from twisted.logger import Logger

COALESCE_SECONDS = 0.1
"""A change that nobody waits for is written at once if its table was not written for so long; else it waits for others to
share its write.
"""
RETRY_SECONDS = 1.0
"""How soon a write that failed is tried again."""
LONGEST_REST_SECONDS = 1.0
"""After a write, its table is not written again for as long as the write took, at most this long: a large table that
changes all the time takes at most half of a thread's time.
"""
LOG_SECONDS = 60.0
"""Of the failures of one table, at most one is logged in this time."""

Written = Callable[[Exception | None], None]
"""Called with None once a state of the table at least as new as the call's is on the disk, else with the error."""


class TableWriter:
    """Writes tables in one thread. Methods may be called from any thread.

    Before ``start`` and after ``stop`` each change is written at once by the caller's thread.
    """

    _log = Logger()

    def __init__(self, name: str = "rocketd-tables", clock: Callable[[], float] = monotonic) -> None:
        """``clock`` gives real seconds that only go forward."""
        self._name = name
        self._clock = clock
        self._changed = threading.Condition()
        self._tables: list[WrittenTable] = []
        self._thread: threading.Thread | None = None
        self._stopping = False

    def table(self, path: str, save: Callable[[], None]) -> "WrittenTable":
        """Add a table: ``save`` writes its present state to the file ``path``, or raises."""
        table = WrittenTable(self, path, save)
        with self._changed:
            self._tables.append(table)
        return table

    def start(self) -> None:
        """Start the thread."""
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Write what is dirty and end the thread. Blocks: not for the reactor thread."""
        with self._changed:
            thread = self._thread
            self._stopping = True
            self._changed.notify_all()
        if thread is not None:
            thread.join()

    def mark(self, table: "WrittenTable", written: Written | None) -> None:
        """See ``WrittenTable.changed`` and ``when_written``, which are to be used instead."""
        with self._changed:
            threaded = self._thread is not None
            if threaded:
                now = self._clock()
                due = max(now, table.rests_until if written else table.next_lazy_write)
                if written is not None:
                    table.waiting.append(written)
                if table.due is None or due < table.due:
                    table.due = due
                    self._changed.notify_all()
        if not threaded:
            error = self._save(table)
            if written is not None:
                self._call(table, written, error)

    def hurry(self, only: "WrittenTable | None" = None) -> bool:
        """Have dirty tables written now, or only one of them; returns whether there were none but those that cannot be
        written.
        """
        with self._changed:
            now = self._clock()
            tables = self._tables if only is None else [only]
            dirty = [table for table in tables if table.due is not None and not table.failures]
            for table in dirty:
                table.due = max(now, table.rests_until)
            self._changed.notify_all()
            return not dirty and not any(table.is_being_written for table in tables)

    def _run(self) -> None:
        while (table := self._next()) is not None:
            self._write(table)
        with self._changed:
            dirty = [table for table in self._tables if table.due is not None]
        for table in dirty:
            self._write(table)
        with self._changed:
            self._thread = None
            # Changed since the look above; what failed there is not tried again.
            late = [table for table in self._tables if table.waiting or (table.due is not None and not table.failures)]
        for table in late:
            self._write(table)

    def _next(self) -> "WrittenTable | None":
        """Wait for a table whose time has come; None when the thread is to end."""
        with self._changed:
            while not self._stopping:
                dirty = [table for table in self._tables if table.due is not None]
                if not dirty:
                    self._changed.wait()
                    continue
                table = min(dirty, key=lambda table: table.due or 0.0)
                wait = (table.due or 0.0) - self._clock()
                if wait <= 0:
                    return table
                self._changed.wait(wait)
        return None

    def _write(self, table: "WrittenTable") -> None:
        with self._changed:
            waiting, table.waiting = table.waiting, []
            table.due = None
            table.is_being_written = True
        began = self._clock()
        error = self._save(table)
        with self._changed:
            now = self._clock()
            rest = min(now - began, LONGEST_REST_SECONDS) if error is None else RETRY_SECONDS
            table.rests_until = now + rest
            table.next_lazy_write = now + max(rest, COALESCE_SECONDS)
            if error is not None:
                table.due = table.rests_until
            elif table.due is not None:
                table.due = max(table.due, table.rests_until)
        for written in waiting:
            self._call(table, written, error)
        table.is_being_written = False

    def _save(self, table: "WrittenTable") -> Exception | None:
        try:
            table.save()
        except Exception as error:
            self._complain(table, error)
            return error
        table.writes += 1
        if table.failures:
            self._log.info("{path} is written again, after {count} failures", path=table.path, count=table.failures)
            table.failures = 0
        return None

    def _complain(self, table: "WrittenTable", error: Exception) -> None:
        table.failures += 1
        now = self._clock()
        if table.failures > 1 and now - table.complained < LOG_SECONDS:
            return
        table.complained = now
        self._log.error(
            "{path} cannot be written: {error} ({count} failures so far). Its changes count in memory, and are lost "
            "if the process ends before a write succeeds; it is tried again every {seconds} s",
            path=table.path,
            error=error,
            count=table.failures,
            seconds=RETRY_SECONDS,
        )

    def _call(self, table: "WrittenTable", written: Written, error: Exception | None) -> None:
        try:
            written(error)
        except Exception:
            self._log.failure("{path}: a function that waited for the write failed", path=table.path)


class WrittenTable:
    """One table of a TableWriter. Methods may be called from any thread; the other attributes are the writer's."""

    def __init__(self, writer: TableWriter, path: str, save: Callable[[], None]) -> None:
        self.path = path
        self.save = save
        self.writes = 0
        """Writes that succeeded."""
        self.due: float | None = None
        self.rests_until = self.next_lazy_write = 0.0
        self.waiting: list[Written] = []
        self.is_being_written = False
        self.failures = 0
        self.complained = 0.0
        self._writer = writer

    def changed(self, written: Written | None = None) -> None:
        """Have the table written: soon, or as soon as possible if ``written`` is to be told."""
        self._writer.mark(self, written)

    def hurry(self) -> None:
        """Have what has changed written as soon as possible."""
        self._writer.hurry(self)
