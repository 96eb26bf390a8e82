"""The progress of slaves, and the senders that wait for it. Sans-io.

Counterpart: `GroupTransferService` and `push2SlaveMaxOffset` of `HAService` (Apache). The most advanced slave counts,
and its progress is never taken back. A slave is usable if it is connected, not too far behind, and not lagging.

Lagging is our addition. Slaves lag from the first send that waited in vain until one of them reaches the log's end of
at most LAG_SECONDS ago. Meanwhile sends are answered at once, so a hanging slave costs its senders one timeout.
"""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from twisted.logger import Logger

from rocketd.store.format.message import PutStatus
from rocketd.store.log.flush import FlushCallback

_log = Logger()

LAG_SECONDS = 1.0
"""A shorter wait in vain does not count as lag. A slave less far behind than this is not lagging any more."""


class _Waiter(NamedTuple):
    end_offset: int
    since: float
    deadline: float
    callback: FlushCallback

    def answer(self, status: PutStatus) -> None:
        try:
            self.callback(status)
        except Exception:
            _log.failure("a replication callback failed")


class ReplicatedOffset:
    """The offset up to which some slave has the log, and the senders that wait for it to grow.

    ``when_replicated`` belongs to the storage thread, so ends come in order. Everything else belongs to the thread of
    the connections. It must call ``answer_waiters`` if ``when_replicated`` says so, and at the deadline of the first waiter.
    ``timeout_ms`` returns the time to wait, ``fallbehind_max`` bytes, ``seconds`` the time.
    """

    def __init__(
        self, timeout_ms: Callable[[], int], fallbehind_max: Callable[[], int], seconds: Callable[[], float]
    ) -> None:
        self.offset = 0
        self.connections = 0
        """Number of connected slaves."""
        self._timeout_ms = timeout_ms
        self._fallbehind_max = fallbehind_max
        self._seconds = seconds
        self._waiting: deque[_Waiter] = deque()
        self._wanted = 0
        self.lagging = False
        """Whether a send waited in vain and no slave has caught up since. Any thread may read it."""
        self._mark = 0
        self._marked = 0.0

    @property
    def has_waiters(self) -> bool:
        """Whether a sender waits. Any thread."""
        return bool(self._waiting)

    def is_slave_usable(self, end_offset: int) -> bool:
        """Return whether a slave is expected to get the log up to this end. Any thread."""
        return self.connections > 0 and not self.lagging and end_offset - self.offset < self._fallbehind_max()

    def when_replicated(self, end_offset: int, callback: FlushCallback) -> bool:
        """Call back with the result of replication up to an offset:

        - PUT_OK when a slave has the log up to there,
        - FLUSH_SLAVE_TIMEOUT if none has it in time,
        - SLAVE_NOT_AVAILABLE, at once, if none is usable.

        Return whether a slave has it already, or lags, so ``answer_waiters`` must be called now.
        """
        now = self._seconds()
        waiter = _Waiter(end_offset, now, now + self._timeout_ms() / 1000, callback)
        self._wanted = end_offset
        if self.is_slave_usable(end_offset):
            self._waiting.append(waiter)
            # After the append: the other thread sees the waiter if these change now.
            return self.offset >= end_offset or self.lagging
        waiter.answer(PutStatus.SLAVE_NOT_AVAILABLE)
        return False

    def reported(self, offset: int) -> None:
        """Record that a slave has the log up to an offset."""
        self.offset = max(self.offset, offset)
        if self.lagging:
            self._check_caught_up()
        self.answer_waiters()

    def answer_waiters(self) -> float | None:
        """Answer all waiters that can be answered. Return the deadline of the next one, None without waiters."""
        waiting = self._waiting
        now = self._seconds()
        while waiting:
            first = waiting[0]
            if first.end_offset <= self.offset:
                status = PutStatus.PUT_OK
            elif first.deadline <= now:
                status = PutStatus.FLUSH_SLAVE_TIMEOUT
                if now - first.since >= LAG_SECONDS and not self.lagging:
                    self._begin_to_lag(now - first.since)
            elif self.lagging:
                status = PutStatus.FLUSH_SLAVE_TIMEOUT
            else:
                return first.deadline
            waiting.popleft().answer(status)
        return None

    def _begin_to_lag(self, waited: float) -> None:
        self.lagging = True
        self._set_mark()
        _log.warn(
            "no slave has reported the log up to {end} within {waited} s, at most {offset}: sends are answered "
            "SLAVE_NOT_AVAILABLE at once until a slave has caught up",
            end=self._mark,
            waited=round(waited, 1),
            offset=self.offset,
        )

    def _set_mark(self) -> None:
        self._mark = self._wanted
        self._marked = self._seconds()

    def _check_caught_up(self) -> None:
        """End the lag if a slave has everything, or has reached a mark that was the log's end just before."""
        if self.offset < self._mark:
            return
        if self.offset < self._wanted and self._seconds() - self._marked > LAG_SECONDS:
            self._set_mark()
            return
        self.lagging = False
        _log.info("a slave has caught up, at {offset}: sends wait for it again", offset=self.offset)

    def give_up(self) -> None:
        """Answer all waiters now, because the last slave is gone."""
        while self._waiting:
            self._waiting.popleft().answer(PutStatus.FLUSH_SLAVE_TIMEOUT)
