"""One reactor timer for many deadlines that are rarely reached, such as those of answers.

A reactor timer costs more than most other parts of a request, especially on asyncio. Here a deadline that is not
reached costs an entry in a heap.
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import count

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

_LEFT_OVER = 1024


class Deadline:
    """One deadline. Call ``cancel`` when it is not needed any more."""

    __slots__ = ("_deadlines", "reached")

    def __init__(self, deadlines: "Deadlines", reached: Callable[[], object]) -> None:
        self._deadlines = deadlines
        self.reached: Callable[[], object] | None = reached

    def cancel(self) -> None:
        """Cancel the call. Does nothing if the deadline was reached or cancelled before."""
        if self.reached is not None:
            self.reached = None
            self._deadlines.forget_one()


class Deadlines:
    """Calls functions at given times of the reactor's clock. All methods belong to the reactor thread."""

    _log = Logger()

    def __init__(self, reactor: IReactorTime) -> None:
        self._reactor = reactor
        self._heap: list[tuple[float, int, Deadline]] = []
        self._numbers = count()
        self._live = 0
        self._timer: IDelayedCall | None = None
        self._timer_at = 0.0

    def __len__(self) -> int:
        return self._live

    def add(self, seconds: float, reached: Callable[[], object]) -> Deadline:
        """Call `reached` after `seconds`."""
        at = self._reactor.seconds() + max(0.0, seconds)
        deadline = Deadline(self, reached)
        heappush(self._heap, (at, next(self._numbers), deadline))
        self._live += 1
        if self._timer is None or at < self._timer_at:
            self._set_timer(at)
        return deadline

    def forget_one(self) -> None:
        """Count a cancelled deadline. If most entries of the heap are cancelled, they are removed."""
        self._live -= 1
        if len(self._heap) > 2 * self._live + _LEFT_OVER:
            self._heap = [entry for entry in self._heap if entry[2].reached is not None]
            heapify(self._heap)

    def stop(self) -> None:
        """Cancel all calls."""
        for _, _, deadline in self._heap:
            deadline.reached = None
        self._heap.clear()
        self._live = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        # Time passes meanwhile, and reactors reject a negative delay.
        self._timer = self._reactor.callLater(max(0.0, at - self._reactor.seconds()), self._look)

    def _look(self) -> None:
        self._timer = None
        heap, now = self._heap, self._reactor.seconds()
        reached = []
        while heap and (heap[0][0] <= now or heap[0][2].reached is None):
            deadline = heappop(heap)[2]
            if deadline.reached is not None:
                reached.append(deadline)
        if heap:
            self._set_timer(heap[0][0])
        for deadline in reached:
            function = deadline.reached
            if function is not None:  # another function may have cancelled it
                deadline.reached = None
                self._live -= 1
                try:
                    function()
                except Exception:  # the others are still due
                    self._log.failure("the function of a deadline failed")
