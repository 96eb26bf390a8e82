"""A pool's queue in which connections take turns, one job each. See docs/decisions/0026.

Apache's executors handle requests in the order of arrival.
"""

from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from threading import Lock
from typing import Protocol

from rocketd.remoting.interfaces import IConnection

TurnKey = Callable[[IConnection | None], object]
"""Given a connection, or None for calls without one, returns the owner of a turn. Jobs of one key keep their order."""


def each_connection(connection: IConnection | None) -> object:
    """Give every connection its own turns."""
    return connection


def each_host(connection: IConnection | None) -> object:
    """Give all connections of one host shared turns, so requests of one connection finish before those of the next."""
    return connection.host[:-4] if connection is not None else None


class Item(Protocol):
    """A job, or a call, of a connection."""

    @property
    def connection(self) -> IConnection | None:
        """The connection that takes a turn; None for calls without one."""


class TurnQueue:
    """Like SimpleQueue, but fair between the connections of jobs. Any thread.

    None ends a thread, and comes after all items put before it.
    """

    def __init__(self, key: TurnKey) -> None:
        self._key = key
        self._tokens: SimpleQueue[bool] = SimpleQueue()
        self._lock = Lock()
        self._jobs: dict[object, deque[Item]] = {}
        """Waiting items by key. The first key has the next turn."""

    def put(self, job: Item | None) -> None:
        """Add a job, or None."""
        if job is not None:
            key = self._key(job.connection)
            with self._lock:
                self._jobs.setdefault(key, deque()).append(job)
        self._tokens.put(job is not None)

    def get(self) -> Item | None:
        """Wait for a job and return that of the next turn."""
        return self._next() if self._tokens.get() else None

    def get_nowait(self) -> Item | None:
        """Return the job of the next turn. Raises queue.Empty if there is none."""
        return self._next() if self._tokens.get_nowait() else None

    def empty(self) -> bool:
        """Whether the queue is empty."""
        return self._tokens.empty()

    def _next(self) -> Item:
        with self._lock:
            key = next(iter(self._jobs))
            jobs = self._jobs.pop(key)
            job = jobs.popleft()
            if jobs:
                self._jobs[key] = jobs
            return job
