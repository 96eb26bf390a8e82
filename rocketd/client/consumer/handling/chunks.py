"""Chunks: messages of one queue for one thread, which calls the handler for one after the other.

A hand-off between threads costs more than a short handler. Fast handlers therefore get chunks, slow ones single messages.
The reactor thread can take back the messages that the thread has not begun.
"""

from collections import deque
from collections.abc import Callable, Sequence
from inspect import isasyncgen, isawaitable, isgenerator
from time import monotonic
from typing import Any, Final

from twisted.python.failure import Failure

from rocketd.client.consumer.pulling.assigned_queue import PulledMessage

MAX_CHUNK: Final = 32
"""Maximum number of messages in a chunk."""

CHUNK_SECONDS: Final = 0.001
"""Expected time of a whole chunk. A handler that takes longer gets single messages."""

CHUNK_CHECK_SECONDS: Final = 0.005
"""Interval at which chunks are checked for slow handlers."""

_FASTER: Final = 0.3
_SLOWER: Final = 0.05


class ChunkSize:
    """Chooses the number of messages in a chunk by the duration of the last handlers. Reactor thread.

    It starts with 1.
    """

    def __init__(self) -> None:
        self._mean: float | None = None

    @property
    def size(self) -> int:
        """The number of messages for the next chunk."""
        if self._mean is None:
            return 1
        if self._mean * MAX_CHUNK <= CHUNK_SECONDS:
            return MAX_CHUNK
        return max(1, int(CHUNK_SECONDS / self._mean))

    def add(self, count: int, seconds: float) -> None:
        """Note that ``count`` handlers took ``seconds`` together."""
        each = seconds / count
        if self._mean is None:
            self._mean = each
        elif each < self._mean:
            self._mean += (each - self._mean) * _FASTER
        else:
            # A thread that waits for the GIL makes single handlers look slow.
            self._mean += (each - self._mean) * min(0.5, _SLOWER * count)

    def add_endless(self, seconds: float) -> None:
        """Note that a handler has run for so long already. The next chunks have one message."""
        self._mean = max(self._mean or 0.0, seconds, CHUNK_SECONDS)


class Chunk:
    """Messages for ``handle``, each with its pulled message.

    ``work_off`` runs in a thread of the handlers, everything else in the reactor thread.
    """

    __slots__ = ("_done", "_handle", "_left", "_running", "_taken")

    def __init__(self, handle: Callable[[Any], Any], messages: Sequence[tuple[Any, PulledMessage]]) -> None:
        self._handle = handle
        self._left = deque(messages)
        self._done: deque[tuple[PulledMessage, Any, float]] = deque()
        self._running: tuple[PulledMessage, float] | None = None
        self._taken: PulledMessage | None = None

    def work_off(self) -> None:
        """Handle the messages. The first result with consequences, such as an error or a Retry, is the last one."""
        handle, left, done = self._handle, self._left, self._done
        began = monotonic()
        while left:
            try:
                message, pulled = left.popleft()
            except IndexError:  # the reactor thread took it back meanwhile
                return
            self._running = pulled, began
            try:
                result = handle(message)
            except BaseException:
                result = Failure()
            ended = monotonic()
            last = result is not None and has_consequences(result)
            done.append((pulled, result, ended - began))
            del message, pulled, result  # the traceback of a failure refers to this frame
            if last:
                return
            began = ended

    def results(self) -> list[tuple[PulledMessage, Any, float]]:
        """Return the new results: message, value or Failure, and seconds."""
        done = self._done
        results = [done.popleft() for _ in range(len(done))]
        if results:
            self._taken = results[-1][0]
        return results

    def running(self) -> tuple[PulledMessage, float] | None:
        """Return the message in the handler with the seconds since its start, after ``results``. It may have ended now."""
        running = self._running
        return None if running is None or running[0] is self._taken else (running[0], self.now() - running[1])

    def now(self) -> float:
        """The time in seconds by which handlers are measured. Any thread."""
        return monotonic()

    @property
    def has_more(self) -> bool:
        """Whether messages are not begun."""
        return bool(self._left)

    def take_back(self) -> list[PulledMessage]:
        """Return the messages not begun, which the thread no longer gets."""
        left = self._left
        taken = []
        while left:
            try:
                taken.append(left.pop()[1])
            except IndexError:  # the thread has begun it meanwhile
                break
        taken.reverse()
        return taken


def has_consequences(result: object) -> bool:
    """Whether the result of a handler may mean anything but success."""
    return is_failure(result) or isgenerator(result) or isasyncgen(result) or isawaitable(result)


def is_failure(result: object) -> bool:
    """Whether the result of a handler is an exception. A class of exceptions counts as well, as with ``raise``."""
    return isinstance(result, BaseException | Failure) or (
        isinstance(result, type) and issubclass(result, BaseException)
    )
