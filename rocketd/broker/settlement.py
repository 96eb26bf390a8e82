"""Names that were made on use, until they are safe: written, and known to whoever else has to know them.

No counterpart in Apache, whose senders wait for the write of the whole table. A send to a new topic is acknowledged when
the topic is safe: else a crash could leave an acknowledged message in a topic that consumers cannot find.
"""

import threading
from collections.abc import Callable, Iterable

from rocketd.store.message import PutStatus

Settled = Callable[[PutStatus], None]
Settler = Callable[[frozenset[str], Settled], None]
"""Told of new names when they are written, in the writer's thread, which it must not block. Calls back once, from any
thread: PUT_OK when its side knows the names, else the status that their senders are answered with.
"""


class _Waiter:
    __slots__ = ("callback", "names")

    def __init__(self, names: set[str], callback: Settled) -> None:
        self.names = names
        self.callback = callback


class Settlement:
    """New names and those who wait for them.

    ``begin`` and ``when_settled`` may be called from any thread, ``written`` and ``failed`` belong to the writer's. Anybody
    may read ``names`` without a lock, to find out cheaply that there is nothing to wait for.
    """

    def __init__(self, hurry: Callable[[], None] = lambda: None) -> None:
        """``hurry`` is called when somebody waits: the names are to be written soon."""
        self._hurry = hurry
        self.names: set[str] = set()
        """Names that are not safe yet. Always the same set."""
        self.settlers: list[Settler] = []
        """Asked after each write; to be filled before the broker serves."""
        self._guard = threading.Lock()
        self._unwritten: set[str] = set()
        self._waiters: list[_Waiter] = []

    def begin(self, name: str) -> None:
        """Note a new name, before it can be found in its table."""
        with self._guard:
            self.names.add(name)
            self._unwritten.add(name)

    def when_settled(self, names: Iterable[str], callback: Settled) -> None:
        """Call back once: with PUT_OK when all these names are safe, else with what went wrong for one of them."""
        with self._guard:
            missing = self.names.intersection(names)
            if missing:
                self._waiters.append(_Waiter(missing, callback))
        if missing:
            self._hurry()
        else:
            callback(PutStatus.PUT_OK)

    def unwritten(self) -> frozenset[str]:
        """Name what the next write has to contain."""
        with self._guard:
            return frozenset(self._unwritten)

    def written(self, names: frozenset[str]) -> None:
        """Go on with names that are written now: ask the settlers, or settle them."""
        with self._guard:
            self._unwritten -= names
        if not names:
            return
        if not self.settlers:
            self._finish(names, PutStatus.PUT_OK)
            return
        votes = _Votes(len(self.settlers), lambda status: self._finish(names, status))
        for settler in self.settlers:
            settler(names, votes.vote)

    def failed(self, names: frozenset[str]) -> None:
        """Answer those who wait for names that could not be written. The names stay unsafe until a write succeeds."""
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
    """Waits for several statuses, from any thread; the first that is not PUT_OK counts."""

    def __init__(self, count: int, callback: Settled) -> None:
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
