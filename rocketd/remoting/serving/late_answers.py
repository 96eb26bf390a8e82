"""Requests that are answered after their processor has returned: they count until the answer."""

from collections import Counter
from collections.abc import Callable
from threading import Lock
from typing import Any, Protocol

from rocketd.remoting.limits.limit_log import LimitLog
from rocketd.remoting.serving.pools import Pausable

_REASON = "too many requests that are answered later"


class LateRequest(Protocol):
    """A request, as seen by ``LateAnswers``, which alone changes its flags."""

    @property
    def connection(self) -> Pausable:
        """The connection that it came from."""

    is_counted: bool
    is_answered: bool


class LateAnswers:
    """Counts these requests of each connection, and pauses the reading of connections with too many.

    Reading resumes at half of ``max_per_connection``. Any thread may use it.
    """

    def __init__(self, call_from_thread: Callable[..., Any], limits: LimitLog) -> None:
        self.max_per_connection = 10_000
        self._call_from_thread = call_from_thread
        self._limits = limits
        self._lock = Lock()
        self._counts: Counter[Pausable] = Counter()
        self._paused: set[Pausable] = set()

    def kept(self, request: LateRequest) -> None:
        """Count a request whose processor has returned without a response, unless another thread has answered it."""
        connection = request.connection
        with self._lock:
            if request.is_answered:
                return
            request.is_counted = True
            self._counts[connection] += 1
            count = self._counts[connection]
            if count <= self.max_per_connection or connection in self._paused:
                return
            self._paused.add(connection)
            self._call_from_thread(connection.pause_reading, _REASON)
        self._limits.reached(
            "connections paused for unanswered requests",
            "{address}: reading is paused: {requests} of its requests have no answer yet, the limit is {limit} "
            "(serverMaxUnansweredRequests)",
            address=connection.address,
            requests=count,
            limit=self.max_per_connection,
        )

    def answered(self, request: LateRequest) -> None:
        """Count a request no more, because it is answered."""
        with self._lock:
            was_counted, request.is_counted = request.is_counted, False
            request.is_answered = True
        if was_counted:
            self.forget(request.connection)

    def forget(self, connection: Pausable) -> None:
        """Count one request of a connection less."""
        with self._lock:
            self._counts[connection] -= 1
            count = self._counts[connection]
            if not count:
                del self._counts[connection]
            if connection in self._paused and count * 2 <= self.max_per_connection:
                self._paused.discard(connection)
                self._call_from_thread(connection.resume_reading, _REASON)
