"""How far the slaves have come, and who waits for it; sans-io.

Answers to Apache's `GroupTransferService` and the `push2SlaveMaxOffset` of `HAService`: the furthest slave counts, and
what one slave has counts for good. A slave is usable when it is connected, not too far behind, and not lagging.

Lagging is not known to Apache. The slaves lag from the first send that waited for them in vain until one of them has
what the log had at most LAG_SECONDS before. Meanwhile sends are answered at once: a slave that hangs costs its senders
one timeout.
"""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from twisted.logger import Logger

from rocketd.store.flush import FlushCallback
from rocketd.store.message import PutStatus

_log = Logger()

LAG_SECONDS = 1.0
"""A wait in vain that was shorter than this does not make a slave lag; one that is less behind does not lag any more."""


class _Waiter(NamedTuple):
    end_offset: int
    since: float
    deadline: float
    callback: FlushCallback

    def answer(self, status: PutStatus) -> None:
        try:
            self.callback(status)
        except Exception:
            _log.failure("a callback of replication failed")


class ReplicatedOffset:
    """The offset up to which some slave has the log, and those who wait for it to grow.

    ``when_replicated`` belongs to one thread, the storage thread: ends come in order. All else belongs to the thread of
    the connections, which has to call ``settle`` after each ``when_replicated``. ``timeout_ms`` gives how long to wait,
    ``fallbehind_max`` bytes, ``seconds`` the time.
    """

    def __init__(
        self, timeout_ms: Callable[[], int], fallbehind_max: Callable[[], int], seconds: Callable[[], float]
    ) -> None:
        self.offset = 0
        self.connections = 0
        """How many slaves are connected."""
        self._timeout_ms = timeout_ms
        self._fallbehind_max = fallbehind_max
        self._seconds = seconds
        self._waiting: deque[_Waiter] = deque()
        self._wanted = 0
        self.lagging = False
        """Whether the slaves have kept a send waiting in vain, and none has caught up since. Any thread may read it."""
        self._mark = 0
        self._marked = 0.0

    def is_slave_usable(self, end_offset: int) -> bool:
        """Whether a slave can be expected to get what ends there. Any thread."""
        return self.connections > 0 and not self.lagging and end_offset - self.offset < self._fallbehind_max()

    def when_replicated(self, end_offset: int, callback: FlushCallback) -> None:
        """Call back with PUT_OK when a slave has the log up to an offset, with FLUSH_SLAVE_TIMEOUT when none has it in
        time, at once with SLAVE_NOT_AVAILABLE when none is usable.
        """
        now = self._seconds()
        waiter = _Waiter(end_offset, now, now + self._timeout_ms() / 1000, callback)
        self._wanted = end_offset
        if self.is_slave_usable(end_offset):
            self._waiting.append(waiter)
        else:
            waiter.answer(PutStatus.SLAVE_NOT_AVAILABLE)

    def reported(self, offset: int) -> None:
        """A slave has the log up to an offset."""
        self.offset = max(self.offset, offset)
        if self.lagging:
            self._look_whether_caught_up()
        self.settle()

    def settle(self) -> float | None:
        """Answer whom can be answered; returns the time at which the next waited long enough, None when nobody waits."""
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

    def _look_whether_caught_up(self) -> None:
        """End the lag when a slave has all, or has reached a mark that was the end of the log just before."""
        if self.offset < self._mark:
            return
        if self.offset < self._wanted and self._seconds() - self._marked > LAG_SECONDS:
            self._set_mark()
            return
        self.lagging = False
        _log.info("a slave has caught up, at {offset}: sends wait for it again", offset=self.offset)

    def give_up(self) -> None:
        """Answer everybody now: there are no slaves any more."""
        while self._waiting:
            self._waiting.popleft().answer(PutStatus.FLUSH_SLAVE_TIMEOUT)
