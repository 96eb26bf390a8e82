"""Early commits: the offsets of queues that have run empty are stored before the next regular time.

The messages behind a stored offset are handled again if the queue moves to another member or the consumer crashes.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from rocketd.common.event_loop.reactor import IReactor
from rocketd.remoting.bodies.tables import MessageQueue

COMMIT_SECONDS: Final = 0.5
"""Least time between two rounds of early commits."""


class EarlyCommits:
    """Calls ``store`` with the queues noted since its last call. Reactor thread.

    The first call comes at once, each further one after the end of the last and COMMIT_SECONDS after its start.
    """

    _log = Logger()

    def __init__(self, reactor: IReactor, store: Callable[[Iterable[MessageQueue]], Awaitable[Any]]) -> None:
        self._reactor = reactor
        self._store = store
        self._queues: set[MessageQueue] = set()
        self._last = -COMMIT_SECONDS
        self._later: IDelayedCall | None = None
        self._storing = False
        self._stopped = False

    def add(self, queue: MessageQueue) -> None:
        """Note a queue that has run empty."""
        self._queues.add(queue)
        self._arm()

    def stop(self) -> None:
        """Store nothing more. A call under way continues."""
        self._stopped = True
        self._queues.clear()
        if self._later is not None:
            self._later.cancel()
            self._later = None

    def _arm(self) -> None:
        if self._queues and self._later is None and not self._storing and not self._stopped:
            wait = max(0.0, self._last + COMMIT_SECONDS - self._reactor.seconds())
            self._later = self._reactor.callLater(wait, self._begin)

    def _begin(self) -> None:
        self._later = None
        self._last = self._reactor.seconds()
        self._storing = True
        queues, self._queues = self._queues, set()
        storing = Deferred.fromCoroutine(self._run(queues))
        storing.addErrback(lambda failure: self._log.failure("storing offsets of empty queues", failure))
        storing.addCallback(self._ended)

    async def _run(self, queues: set[MessageQueue]) -> None:
        await self._store(sorted(queues))

    def _ended(self, _: object) -> None:
        self._storing = False
        self._arm()
