"""Auto-created topics, until they are durable: written to the disk, and on a synchronous master also known to a slave.

A send to a new topic is acknowledged only when the topic is durable. Otherwise a crash could leave an acknowledged message
in a topic that consumers cannot find.
"""

import threading
from collections.abc import Callable, Iterable

from rocketd.store.format.message import PutStatus

DurabilityCallback = Callable[[PutStatus], None]
Confirmer = Callable[[frozenset[str], DurabilityCallback], None]
"""Called with new names after their write, in the writer's thread, which it must not block.

It calls back once, from any thread: with PUT_OK when its side knows the names, otherwise with the status to answer
their senders with.
"""


class _Waiter:
    __slots__ = ("callback", "names")

    def __init__(self, names: set[str], callback: DurabilityCallback) -> None:
        self.names = names
        self.callback = callback


class NewNameDurability:
    """New names and their waiters.

    ``begin`` and ``when_durable`` may be called from any thread; ``written`` and ``failed`` belong to the writer's. Any
    thread may read ``names`` without a lock, as a cheap test whether there is anything to wait for.
    """

    def __init__(self, hurry: Callable[[], None] = lambda: None) -> None:
        """``hurry`` is called if there is a waiter: the names should be written soon."""
        self._hurry = hurry
        self.names: set[str] = set()
        """Names that are not durable yet. Always the same set."""
        self.confirmers: list[Confirmer] = []
        """Called after each write. Fill it before the broker serves."""
        self._guard = threading.Lock()
        self._unwritten: set[str] = set()
        self._waiters: list[_Waiter] = []

    def begin(self, name: str) -> None:
        """Add a new name. Call it before the name can be found in its table."""
        with self._guard:
            self.names.add(name)
            self._unwritten.add(name)

    def when_durable(self, names: Iterable[str], callback: DurabilityCallback) -> None:
        """Call back once: with PUT_OK when all these names are durable, otherwise with the first failure."""
        with self._guard:
            missing = self.names.intersection(names)
            if missing:
                self._waiters.append(_Waiter(missing, callback))
        if missing:
            self._hurry()
        else:
            callback(PutStatus.PUT_OK)

    def unwritten(self) -> frozenset[str]:
        """Return the names that the next write has to contain."""
        with self._guard:
            return frozenset(self._unwritten)

    def written(self, names: frozenset[str]) -> None:
        """Ask the confirmers about the names just written. Without confirmers, the names are durable now."""
        with self._guard:
            self._unwritten -= names
        if not names:
            return
        if not self.confirmers:
            self._finish(names, PutStatus.PUT_OK)
            return
        votes = _Votes(len(self.confirmers), lambda status: self._finish(names, status))
        for confirmer in self.confirmers:
            confirmer(names, votes.vote)

    def failed(self, names: frozenset[str]) -> None:
        """Answer the waiters of names that could not be written. They are not durable until a write succeeds."""
        self._answer(names, PutStatus.FLUSH_DISK_TIMEOUT)

    def _finish(self, names: frozenset[str], status: PutStatus) -> None:
        with self._guard:
            self.names -= names - self._unwritten
        self._answer(names, status)

    def _answer(self, names: frozenset[str], status: PutStatus) -> None:
        ready = []
        with self._guard:
            waiting = []
            for waiter in self._waiters:
                if waiter.names.isdisjoint(names):
                    waiting.append(waiter)
                    continue
                waiter.names -= names
                if waiter.names and status is PutStatus.PUT_OK:
                    waiting.append(waiter)
                else:
                    ready.append(waiter)
            self._waiters = waiting
        for waiter in ready:
            waiter.callback(status)


class _Votes:
    """Combines several statuses from any threads. The first one other than PUT_OK is the result."""

    def __init__(self, count: int, callback: DurabilityCallback) -> None:
        self._left = count
        self._status = PutStatus.PUT_OK
        self._callback = callback
        self._guard = threading.Lock()

    def vote(self, status: PutStatus) -> None:
        with self._guard:
            self._left -= 1
            if self._status is PutStatus.PUT_OK:
                self._status = status
            last = not self._left
        if last:
            self._callback(self._status)
