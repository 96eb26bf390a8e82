"""One thread that writes changed tables to their files, so a burst of changes costs only a few writes.

Apache writes the whole file on the thread of each change. Here a change marks its table as dirty. The thread writes a
dirty table once, with all changes so far. Callers that need the result get a callback; they never block.
"""

import threading
from collections.abc import Callable
from time import monotonic, thread_time

from twisted.logger import Logger

from rocketd.common.logs.throttle import LogThrottle, ThrottledLog

COALESCE_SECONDS = 0.1
"""A change without a waiter is written at once if its table was not written for this time. Otherwise it waits, to share
a write with others.
"""
RETRY_SECONDS = 1.0
"""Delay before a failed write is repeated."""
LONGEST_REST_SECONDS = 1.0
"""Upper limit of the rest after a write. A table rests as long as its write took, so a large table with constant
changes takes at most half of the thread's time. A table with ``append`` needs no rest.
"""
WHOLE_SECONDS = 1.0
"""Delay between a change recorded by ``append`` and the write of the whole table."""
REST_FACTOR = 20
"""Writes without a waiter take at most this part of the time: the delay of the whole table is at least this many times its
last write. Other changes without a waiter wait this many times the CPU time of the last write.
"""

Written = Callable[[Exception | None], None]
"""Called with None once a state of the table at least as new as the call is on disk, or with the error."""


class TableWriter:
    """Writes tables on one thread. Methods may be called from any thread.

    Before ``start`` and after ``stop``, each change is written at once by the caller's thread.
    """

    _log = Logger()

    def __init__(self, name: str = "rocketd-tables", clock: Callable[[], float] = monotonic) -> None:
        """``clock`` returns real seconds that only increase."""
        self._name = name
        self._clock = clock
        self._changed = threading.Condition()
        self._tables: list[WrittenTable] = []
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._failures = ThrottledLog(self._log, LogThrottle(clock))

    def table(self, path: str, save: Callable[[], None], append: Callable[[], None] | None = None) -> "WrittenTable":
        """Add a table. ``save`` writes its present state to the file ``path``, or raises.

        ``append`` makes the changes since the last write durable at a lower cost, or raises. It is used while the thread
        runs. ``save`` then follows after a while, and at the stop.
        """
        table = WrittenTable(self, path, save, append)
        with self._changed:
            self._tables.append(table)
        return table

    def start(self) -> None:
        """Start the thread."""
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Write dirty tables and end the thread. Blocks: not for the reactor thread."""
        with self._changed:
            thread = self._thread
            self._stopping = True
            self._changed.notify_all()
        if thread is not None:
            thread.join()

    def mark(self, table: "WrittenTable", written: Written | None) -> None:
        """See ``WrittenTable.changed``, to be used instead."""
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
            error = self._save(table, whole=True)
            if written is not None:
                self._call(table, written, error)

    def hurry(self, only: "WrittenTable | None" = None) -> bool:
        """Write dirty tables now, or only one of them. Return whether all are written, except failing ones."""
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
            dirty = [table for table in self._tables if table.next_write is not None]
        for table in dirty:
            self._write(table)
        with self._changed:
            self._thread = None
            # Changed since the check above. Failed writes are not repeated.
            late = [table for table in self._tables if table.waiting or (table.due is not None and not table.failures)]
        for table in late:
            self._write(table)

    def _next(self) -> "WrittenTable | None":
        """Wait for a table that is due. None if the thread should end."""
        with self._changed:
            while not self._stopping:
                dirty = [table for table in self._tables if table.next_write is not None]
                if not dirty:
                    self._changed.wait()
                    continue
                table = min(dirty, key=lambda table: table.next_write or 0.0)
                wait = (table.next_write or 0.0) - self._clock()
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
            whole = self._stopping or table.append is None or (table.whole_due is not None and table.whole_due <= began)
            if whole:
                table.whole_due = None
        cpu = thread_time()
        error = self._save(table, whole=whole)
        cpu = thread_time() - cpu
        with self._changed:
            now = self._clock()
            if whole:
                table.whole_rest = REST_FACTOR * (now - began)
            elif table.whole_due is None:
                table.whole_due = now + max(table.whole_rest, WHOLE_SECONDS)
            if error is not None:
                rest = RETRY_SECONDS
            elif table.append is None:
                rest = min(now - began, LONGEST_REST_SECONDS)
            else:
                rest = 0.0
            table.rests_until = now + rest
            table.next_lazy_write = now + max(rest, COALESCE_SECONDS, REST_FACTOR * cpu)
            if error is not None:
                table.due = table.rests_until
            elif table.due is not None:
                table.due = max(table.due, table.rests_until)
        for written in waiting:
            self._call(table, written, error)
        table.is_being_written = False

    def _save(self, table: "WrittenTable", *, whole: bool) -> Exception | None:
        try:
            if whole or table.append is None:
                table.save()
            else:
                table.append()
        except Exception as error:
            table.failures += 1
            self._failures.error(
                table.path,
                "{path} cannot be written: {error}. Its changes count in memory, and are lost if the process ends before "
                "a write succeeds; it is tried again every {seconds} s",
                path=table.path,
                error=error,
                seconds=RETRY_SECONDS,
            )
            return error
        table.writes += 1
        if table.failures:
            self._log.info("{path} is written again, after {count} failures", path=table.path, count=table.failures)
            table.failures = 0
            self._failures.clear(table.path)
        return None

    def _call(self, table: "WrittenTable", written: Written, error: Exception | None) -> None:
        try:
            written(error)
        except Exception:
            self._log.failure("{path}: a callback of the write failed", path=table.path)


class WrittenTable:
    """One table of a TableWriter. Methods may be called from any thread. The other attributes belong to the writer."""

    def __init__(
        self, writer: TableWriter, path: str, save: Callable[[], None], append: Callable[[], None] | None
    ) -> None:
        self.path = path
        self.save = save
        self.append = append
        self.writes = 0
        """Number of successful writes."""
        self.due: float | None = None
        """Time of the next write of changes."""
        self.whole_due: float | None = None
        """Time of the next write of the whole table."""
        self.whole_rest = 0.0
        self.rests_until = self.next_lazy_write = 0.0
        self.waiting: list[Written] = []
        self.is_being_written = False
        self.failures = 0
        self._writer = writer

    @property
    def next_write(self) -> float | None:
        """Time of the next write of any kind."""
        return min((time for time in (self.due, self.whole_due) if time is not None), default=None)

    def changed(self, written: Written | None = None) -> None:
        """Write the table soon, or as soon as possible if ``written`` is given; ``written`` gets the result."""
        self._writer.mark(self, written)

    def hurry(self) -> None:
        """Write pending changes as soon as possible."""
        self._writer.hurry(self)
