"""Clients measured from outside, and the lags of consumers, for the modules of metrics."""

from collections import defaultdict
from dataclasses import astuple
from threading import Lock
from typing import Any, Protocol
from weakref import WeakKeyDictionary, WeakSet

from twisted.internet.defer import Deferred

from rocketd.client.consumer.membership.seekable_member import SeekableMember
from rocketd.client.errors import ClientClosedError, ClientStateError, ForkedClientError, RocketMQError
from rocketd.client.faces.lifecycle import Face, engine_of
from rocketd.client.faces.pull import LitePullFace
from rocketd.client.faces.push import ConsumerFace, ProducerFace
from rocketd.client.stats import ConsumerStats, ProducerStats

Measured = ProducerFace[Any] | ConsumerFace[Any] | LitePullFace[Any]
"""The clients with ``stats()``, of any face."""


class Counting(Protocol):
    """The view of an engine in this module."""

    def stats(self) -> ProducerStats | ConsumerStats:
        """Return the numbers since the start, also after the stop. Any thread."""


Numbers = list[tuple[str, ProducerStats | ConsumerStats]]
"""Groups and numbers."""


class MeasuredClients:
    """Clients to measure. An open one is forgotten when it is closed, any other when the application drops it. Any thread.

    The last numbers of closed clients stay, added up by group, if a reading has found the client open.
    The lag of a consumer is asked for in the background. A reading has the answer to the last question, and asks again.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        """Held while clients are added or read: an iteration over a growing set fails."""
        self._clients: WeakSet[Measured] = WeakSet()
        self._engines: dict[Face[Any], Counting] = {}
        """The engines of open clients. They have the last numbers of a client that closes."""
        self._closed: dict[tuple[type, str], ProducerStats | ConsumerStats] = {}
        self._lags: WeakKeyDictionary[Measured, dict[str, int]] = WeakKeyDictionary()
        self._asked: WeakSet[Measured] = WeakSet()

    def add(self, *clients: Measured) -> None:
        """Measure these clients, too."""
        with self._lock:
            self._clients.update(clients)
            self._look()

    def stats(self) -> Numbers:
        """Return group and numbers of each open client."""
        return self.stats_and_sums()[0]

    def stats_and_sums(self) -> tuple[Numbers, Numbers]:
        """Return group and numbers of each open client, and the sums of closed ones by group."""
        with self._lock:
            self._look()
            measured = [(client.group, engine.stats()) for client, engine in self._engines.items()]
            return measured, [(group, sums) for (_, group), sums in self._closed.items()]

    def _look(self) -> None:
        """Find the engines of open clients, and add up the numbers of those that have closed since. With the lock."""
        clients: list[Face[Any]] = list(self._clients)
        for client in clients:
            try:
                self._engines[client] = engine_of(client)
            except (ClientClosedError, ForkedClientError):
                engine = self._engines.pop(client, None)
                if engine is not None:
                    self._keep(client.group, engine.stats())
            except ClientStateError:  # not open yet, or read in another event loop
                continue

    def _keep(self, group: str, last: ProducerStats | ConsumerStats) -> None:
        kind = type(last)
        before = self._closed.get((kind, group))
        if before is not None:
            last = kind(*(one + other for one, other in zip(astuple(before), astuple(last), strict=True)))
        self._closed[kind, group] = last

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
