"""Clients measured from outside, and the lags of consumers, for the modules of metrics."""

from collections import defaultdict
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from twisted.internet.defer import Deferred

from rocketd.client.consumer.membership.seekable_member import SeekableMember
from rocketd.client.errors import ClientStateError, RocketMQError
from rocketd.client.faces.lifecycle import Face, engine_of
from rocketd.client.faces.pull import LitePullFace
from rocketd.client.faces.push import ConsumerFace, ProducerFace
from rocketd.client.stats import ConsumerStats, ProducerStats

Measured = ProducerFace[Any] | ConsumerFace[Any] | LitePullFace[Any]
"""The clients with ``stats()``, of any face."""


class MeasuredClients:
    """Clients to measure. They are forgotten when the application drops them. Any thread.

    The lag of a consumer is asked for in the background. A reading has the answer to the last question, and asks again.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        """Held while clients are added or copied: an iteration over a growing set fails."""
        self._clients: WeakSet[Measured] = WeakSet()
        self._lags: WeakKeyDictionary[Measured, dict[str, int]] = WeakKeyDictionary()
        self._asked: WeakSet[Measured] = WeakSet()

    def add(self, *clients: Measured) -> None:
        """Measure these clients, too."""
        with self._lock:
            self._clients.update(clients)

    def stats(self) -> list[tuple[str, ProducerStats | ConsumerStats]]:
        """Return group and numbers of each open client."""
        found: list[tuple[str, ProducerStats | ConsumerStats]] = []
        for client in self._present():
            try:
                found.append((client.group, client.stats()))
            except ClientStateError:
                continue
        return found

    def lags(self) -> dict[tuple[str, str], int]:
        """Return the last known lag by group and topic, and ask for the next one."""
        sums: defaultdict[tuple[str, str], int] = defaultdict(int)
        for client in self._present():
            if isinstance(client, ProducerFace):
                continue
            try:
                engine = _engine(client)
            except ClientStateError:
                continue
            for topic, lag in self._lags.get(client, {}).items():
                sums[client.group, topic] += lag
            if client not in self._asked:
                self._asked.add(client)
                engine.instance.reactor.callFromThread(self._ask, client, engine)
        return dict(sums)

    def _present(self) -> list[Measured]:
        """Return the clients that the application has not dropped."""
        with self._lock:
            return list(self._clients)

    def _ask(self, client: Measured, engine: SeekableMember) -> None:
        """Ask for a lag. Reactor thread."""
        asking = Deferred.fromCoroutine(self._read(client, engine))
        asking.addBoth(lambda _: self._asked.discard(client))

    async def _read(self, client: Measured, engine: SeekableMember) -> None:
        sums: defaultdict[str, int] = defaultdict(int)
        try:
            for queue, lag in (await engine.lag()).items():
                sums[queue.topic] += lag
        except RocketMQError:
            self._lags.pop(client, None)  # better none than an old one
        else:
            self._lags[client] = dict(sums)


def _engine(consumer: Face[Any]) -> SeekableMember:
    """Return the engine of an open consumer. Raises ClientStateError."""
    engine: SeekableMember = engine_of(consumer)
    return engine
