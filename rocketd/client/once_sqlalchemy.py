"""A store of finished keys in a database of SQLAlchemy, in one transaction with the handlers' work.

It needs ``rocketd[sqlalchemy]``.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import time

from sqlalchemy import (
    Column,
    Connection,
    Engine,
    Float,
    MetaData,
    String,
    Table,
    delete,
    insert,
    inspect,
    select,
    update,
)
from sqlalchemy.exc import DBAPIError, IntegrityError

from rocketd.client.consumer.retries.handler_results import Retry
from rocketd.client.errors import UsageError
from rocketd.client.settings.config import Duration, milliseconds

KEY_LENGTH = 255
"""Characters of the longest key."""

_PURGE_SECONDS = 60.0


class SqlAlchemyStore:
    """Keeps keys for ``keep`` in ``table``, which is created if it is missing.

    Work of a handler by ``connection`` is done together with the key, or not at all. If two handlers get the same message at
    once, the database lets one wait, with its usual timeout, or the message is delivered again.
    """

    blocks = True

    def __init__(
        self,
        engine: Engine,
        *,
        table: str = "rocketd_done",
        keep: Duration = 7 * 86_400.0,
        now: Callable[[], float] = time,
    ) -> None:
        self.table = Table(
            table,
            MetaData(),
            Column("key", String(KEY_LENGTH), primary_key=True),
            Column("done_at", Float(53), nullable=False, index=True),
        )
        """For migrations by the application."""
        self._engine = engine
        self._keep = milliseconds("keep", keep) / 1000
        self._now = now
        self._of_thread = threading.local()
        self._lock = threading.Lock()
        self._purge_at: float | None = None
        """None before the first use by any thread."""

    @property
    def connection(self) -> Connection:
        """The connection of this thread's handler, inside its transaction. Raises UsageError outside a handler.

        ``Session(bind=store.connection)`` joins the transaction, too.
        """
        found: Connection | None = getattr(self._of_thread, "connection", None)
        if found is None:
            raise UsageError("connection is for handlers while they run: elsewhere, take one of the engine")
        return found

    @contextmanager
    def transaction(self, key: str) -> Iterator[bool]:
        """See OnceStore. Raises UsageError for a key above 255 characters, and SQLAlchemy's errors."""
        if len(key) > KEY_LENGTH:
            raise UsageError(f"the key {key[:20]!r}... has {len(key)} characters, more than {KEY_LENGTH}")
        now = self._now()
        self._tidy(now)
        with self._engine.begin() as connection:
            first = self._take(connection, key, now)
            self._of_thread.connection = connection
            try:
                yield first
            finally:
                self._of_thread.connection = None

    def _take(self, connection: Connection, key: str, now: float) -> bool:
        """Mark the key as finished at this moment. Return whether it was unfinished."""
        table = self.table
        done_at = connection.scalar(select(table.c.done_at).where(table.c.key == key))
        if done_at is None:
            try:
                connection.execute(insert(table).values(key=key, done_at=now))
            except IntegrityError as error:
                raise Retry(reason=f"{key} is under way") from error
            return True
        if done_at >= now - self._keep:
            return False
        again = update(table).where(table.c.key == key, table.c.done_at == done_at).values(done_at=now)
        if connection.execute(again).rowcount != 1:
            raise Retry(reason=f"{key} is under way")
        return True

    def _tidy(self, now: float) -> None:
        """Create the table on first use, and delete old keys at intervals."""
        with self._lock:
            if self._purge_at is None:
                self._make_table()
            elif now < self._purge_at:
                return
            self._purge_at = now + _PURGE_SECONDS
        with self._engine.begin() as connection:
            connection.execute(delete(self.table).where(self.table.c.done_at < now - self._keep))

    def _make_table(self) -> None:
        try:
            self.table.create(self._engine, checkfirst=True)
        except DBAPIError:
            if not inspect(self._engine).has_table(self.table.name):  # otherwise another process was faster
                raise
