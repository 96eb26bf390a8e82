"""Long work of several connections in one pool thread, one step of each in turn."""

import threading
from collections import deque
from collections.abc import Callable, Generator
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from rocketd.remoting.interfaces import IConnection
from rocketd.remoting.wire.command import RemotingCommand

Steps = Generator[None, None, RemotingCommand]
"""The work on one request: it yields after each step and returns the answer."""

MAX_PER_CONNECTION = 2
"""The maximum number of requests per connection: one running, and one waiting for its end."""


class Turns:
    """The long requests in progress; those of one connection run one after the other. Any thread.

    ``call`` queues a function in the pool's thread. ``call_from_thread`` runs one in the reactor thread. ``max_bytes``
    bounds the size of all requests together.
    """

    def __init__(
        self, call: Callable[[Callable[[], None]], None], call_from_thread: Callable[..., Any], max_bytes: int
    ) -> None:
        self._call = call
        self._call_from_thread = call_from_thread
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._bytes = 0
        self._requests: dict[IConnection, deque[tuple[Steps, int, Deferred[RemotingCommand]]]] = {}

    def has(self, connection: IConnection) -> bool:
        """Whether a request of a connection is in progress."""
        return connection in self._requests

    def begin(self, connection: IConnection, steps: Steps, size: int) -> Deferred[RemotingCommand] | None:
        """Start the work on a request of ``size`` bytes; None if a limit is reached.

        The Deferred fires in the reactor thread. The caller returns it from a processor, but adds no callbacks.
        """
        done: Deferred[RemotingCommand] = Deferred()
        with self._lock:
            requests = self._requests.get(connection, ())
            if len(requests) >= MAX_PER_CONNECTION or (self._bytes and self._bytes + size > self._max_bytes):
                return None
            first = not requests
            self._bytes += size
            self._requests.setdefault(connection, deque()).append((steps, size, done))
        if first:
            self._call(partial(self._step, connection))
        return done

    def _step(self, connection: IConnection) -> None:
        steps, size, done = self._requests[connection][0]
        result: RemotingCommand | Failure
        try:
            next(steps)
        except StopIteration as end:
            result = end.value
        except Exception:
            result = Failure()
        else:
            self._call(partial(self._step, connection))
            return
        with self._lock:
            requests = self._requests[connection]
            requests.popleft()
            self._bytes -= size
            more = bool(requests)
            if not more:
                del self._requests[connection]
        if more:
            self._call(partial(self._step, connection))
        self._call_from_thread(done.callback, result)
