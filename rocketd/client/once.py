"""Idempotent handlers: a message delivered several times is handled once. Finished keys are kept in a store.

A handler that fails, or returns a Retry or Reject, has not finished. Exactly-once needs a store that writes the key in the
same transaction as the handler's work, such as SqliteStore. Otherwise, a process killed between the two handles the message
again.
"""

import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from inspect import isawaitable, iscoroutine
from time import time
from typing import Any, Protocol, TypeVar, cast

from rocketd.client.consumer.retries.handler_results import Reject, Retry
from rocketd.client.errors import UsageError
from rocketd.client.messages.message import ReceivedMessage
from rocketd.client.runtime.listeners import is_coroutine_function
from rocketd.client.settings.config import Duration, milliseconds

H = TypeVar("H", bound=Callable[..., Any])
Key = Callable[[ReceivedMessage[Any]], str | None]


class OnceStore(Protocol):
    """A store of finished keys. Handlers of several threads use it at once."""

    @property
    def blocks(self) -> bool:
        """Whether it may wait for a file or a server. Coroutine functions must not use such a store."""

    def transaction(self, key: str) -> AbstractContextManager[bool]:
        """Return the context for a handler. Its value is True if the key was unfinished.

        The key is then finished on leaving it, but not if an exception leaves it. Entering raises Retry if another
        handler is working on the key, unless the store waits for it.
        """
        ...


def _unique_key(message: ReceivedMessage[Any]) -> str:
    return message.msg_id


def once(store: OnceStore, *, key: Key = _unique_key) -> Callable[[H], H]:
    """Make a handler of single messages idempotent: it skips messages with a finished key.

    ``key`` returns the key of a message, by default its unique key. A message with key None is always handled. If two
    handlers get a message at once, it is delivered again to one of them.
    """

    def decorate(handler: H) -> H:
        if not is_coroutine_function(handler):

            @wraps(handler)
            def handle(message: ReceivedMessage[Any]) -> None:
                with _transaction(store, key, message) as first:
                    if first:
                        _refuse(handler(message))

            return cast("H", handle)

        if store.blocks:
            raise UsageError(f"{type(store).__name__} blocks, so it is for handlers that are plain functions")

        @wraps(handler)
        async def handle_in_loop(message: ReceivedMessage[Any]) -> None:
            with _transaction(store, key, message) as first:
                if first:
                    _refuse(await handler(message))

        return cast("H", handle_in_loop)

    return decorate


@contextmanager
def _transaction(store: OnceStore, key: Key, message: ReceivedMessage[Any]) -> Iterator[bool]:
    if not isinstance(message, ReceivedMessage):
        raise UsageError("once is for handlers of single messages: leave batch at 1")
    made = key(message)
    if made is None:
        yield True
        return
    with store.transaction(made) as first:
        yield first


def _refuse(answer: object) -> None:
    """Raise a Retry or Reject returned by the handler."""
    if isinstance(answer, Retry | Reject):
        raise answer
    if isawaitable(answer):
        if iscoroutine(answer):
            answer.close()
        raise UsageError("the handler returned an awaitable, so its work is not done: make it a coroutine function")


class MemoryStore:
    """Keeps the last ``limit`` keys, for the life of the process."""

    blocks = False

    def __init__(self, limit: int = 100_000) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._done: OrderedDict[str, bool] = OrderedDict()
        """True: finished. False: being handled."""

    @contextmanager
    def transaction(self, key: str) -> Iterator[bool]:
        """See OnceStore."""
        with self._lock:
            done = self._done.get(key)
            if done is False:
                raise Retry(reason=f"{key} is under way")
            if done is None:
                self._done[key] = False
        if done:
            yield False
            return
        try:
            yield True
        except BaseException:
            with self._lock:
                del self._done[key]
            raise
        with self._lock:
            self._done[key] = True
            self._done.move_to_end(key)
            while len(self._done) > self._limit:
                self._done.popitem(last=False)


class SqliteStore:
    """Keeps keys in the table ``table`` of an SQLite database for ``keep``. Other processes on this machine may share it.

    Work of a handler by ``connection`` is done together with the key, or not at all. SQLite allows one writer at a time, so
    handlers run one after the other. A handler waiting longer than ``timeout`` gets its message again.
    """

    blocks = True

    def __init__(
        self,
        path: str,
        *,
        table: str = "rocketd_done",
        keep: Duration = 7 * 86_400.0,
        timeout: Duration = 60.0,
        now: Callable[[], float] = time,
    ) -> None:
        if not table.isidentifier():
            raise UsageError(f"table={table!r}: accepted is a name of letters, digits and underscores")
        self._path = path
        self._table = table
        self._keep = milliseconds("keep", keep) / 1000
        self._timeout = milliseconds("timeout", timeout) / 1000
        self._now = now
        self._of_thread = threading.local()
        self._lock = threading.Lock()
        self._connections: list[sqlite3.Connection] = []

    @property
    def connection(self) -> sqlite3.Connection:
        """The calling thread's connection. In a handler, it is inside the transaction of the message."""
        found: sqlite3.Connection | None = getattr(self._of_thread, "connection", None)
        return self._connect() if found is None else found

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, self._timeout, isolation_level=None, check_same_thread=False)
        with self._lock:
            self._connections.append(connection)
        table = self._table
        connection.execute(
            f"CREATE TABLE IF NOT EXISTS {table} (key TEXT PRIMARY KEY, done_at REAL NOT NULL) WITHOUT ROWID"
        )
        connection.execute(f"CREATE INDEX IF NOT EXISTS {table}_done_at ON {table} (done_at)")
        self._of_thread.connection = connection
        return connection

    @contextmanager
    def transaction(self, key: str) -> Iterator[bool]:
        """See OnceStore."""
        connection, table, now = self.connection, self._table, self._now()
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.execute(f"DELETE FROM {table} WHERE done_at < ?", (now - self._keep,))
            first = connection.execute(f"INSERT OR IGNORE INTO {table} VALUES (?, ?)", (key, now)).rowcount == 1
            yield first
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")

    def close(self) -> None:
        """Close the connections of all threads. No handler may run any more."""
        with self._lock:
            connections, self._connections = self._connections, []
        for connection in connections:
            connection.close()
        self._of_thread = threading.local()
