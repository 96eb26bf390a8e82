"""Limits on the topics and groups clients may create by using them: per second, per address and in total.

Without a limit, one frame could create thousands of names. Without shares, one client could use up all of the limit.
"""

import threading
from collections import Counter, deque
from collections.abc import Callable
from time import monotonic
from typing import NamedTuple

from rocketd.broker.base import problems
from rocketd.broker.base.settings import BrokerConfig
from rocketd.remoting.errors import RequestError
from rocketd.remoting.limits.limit_log import LimitLog
from rocketd.remoting.peer import peer_network

BURST_SECONDS = 5
"""After a quiet time, this many seconds' worth of names may come at once from one address, and twice as many from all."""


class SharedTokens:
    """Tokens that come back at a rate. A holder may take one if it holds fewer than are left.

    A greedy holder that is alone gets half of all tokens, and *n* greedy ones an equal part each, with as much left for
    the next one. The tokens taken first come back first. Times are seconds.
    """

    def __init__(self, now: float) -> None:
        self._since = now
        """The time up to which tokens have come back."""
        self._taken: deque[str] = deque()
        """The holder of each token, the oldest first."""
        self._held: Counter[str] = Counter()

    def take(self, holder: str, rate: int, now: float) -> bool:
        """Take a token, of ``rate`` per second, unless the holder has its share."""
        self._take_back(rate, now)
        left = 2 * BURST_SECONDS * rate - len(self._taken)
        if self._held[holder] >= left:
            return False
        self._taken.append(holder)
        self._held[holder] += 1
        return True

    def _take_back(self, rate: int, now: float) -> None:
        due = int((now - self._since) * rate)
        if due >= len(self._taken):
            self._taken.clear()
            self._held.clear()
            self._since = now
            return
        self._since += due / rate
        for _ in range(due):
            holder = self._taken.popleft()
            self._held[holder] -= 1
            if not self._held[holder]:
                del self._held[holder]


class NameBound(NamedTuple):
    """The total number of names beyond which clients add no more.

    ``kind`` names refusals in the counters. ``limit`` returns the setting, 0 for no limit. ``refusal`` builds the error
    from a name, the number of names, and the limit.
    """

    kind: str
    limit: Callable[[], int]
    refusal: Callable[[str, int, int], RequestError]


class NewNameLimit:
    """A rate of new names of one kind, shared by addresses, and a bound for their total. Thread-safe.

    ``clock`` returns monotonic seconds.
    """

    def __init__(
        self,
        kind: str,
        per_second: Callable[[], int],
        refusal: Callable[[str, int], RequestError],
        limits: LimitLog | None = None,
        clock: Callable[[], float] = monotonic,
        bound: NameBound | None = None,
    ) -> None:
        """``per_second`` returns the setting, 0 for no limit; ``refusal`` builds the error for a name beyond it.

        ``limits`` counts and logs refusals under ``kind``.
        """
        self.held: Callable[[], int] = int
        """Returns the number of names, for the bound. Set by the table."""
        self._bound = bound
        self._kind = kind
        self._per_second = per_second
        self._refusal = refusal
        self._limits = limits
        self._clock = clock
        self._guard = threading.Lock()
        self._tokens = SharedTokens(clock())

    def admits(self, name: str, address: str) -> bool:
        """Take a token for a new name of a client, ``host:port``. False if it gets none; this is counted and logged."""
        if self.is_full:
            self._log_limit(name)
            return False
        rate = self._per_second()
        if not rate:
            return True
        with self._guard:
            if self._tokens.take(peer_network(address), rate, self._clock()):
                return True
        if self._limits is not None:
            self._limits.reached(
                self._kind,
                "{address}: {name} was not created: clients may create {rate} a second, and this address has its share",
                address=address,
                name=name,
                rate=rate,
            )
        return False

    def check(self, name: str, address: str) -> None:
        """Take a token for a new name of a client, ``host:port``. Raises RequestError if it gets none."""
        if not self.admits(name, address):
            raise self.error(name)

    @property
    def is_full(self) -> bool:
        """Whether the bound is reached."""
        limit = 0 if self._bound is None else self._bound.limit()
        return 0 < limit <= self.held()

    def error(self, name: str) -> RequestError:
        """Return the error for a refused name."""
        if self._bound is not None and self.is_full:
            return self._bound.refusal(name, self.held(), self._bound.limit())
        return self._refusal(name, self._per_second())

    def _log_limit(self, name: str) -> None:
        if self._limits is not None and self._bound is not None:
            line = "{name} was not created: {found} exist, and clients create them only up to {limit}"
            self._limits.reached(self._bound.kind, line, name=name, found=self.held(), limit=self._bound.limit())


def topic_limit(
    settings: BrokerConfig, limits: LimitLog | None = None, clock: Callable[[], float] = monotonic
) -> NewNameLimit:
    """Return the limit of topics created by sends."""
    return NewNameLimit(
        "new topics refused",
        lambda: settings.max_new_topics_per_second,
        lambda name, limit: problems.NEW_TOPICS_LIMITED.error(name=name, limit=limit),
        limits,
        clock,
        NameBound(
            "topics beyond maxTopics refused",
            lambda: settings.max_topics,
            lambda name, found, limit: problems.TOPICS_EXCEEDED.error(name=name, found=found, limit=limit),
        ),
    )


def group_limit(
    settings: BrokerConfig, limits: LimitLog | None = None, clock: Callable[[], float] = monotonic
) -> NewNameLimit:
    """Return the limit of consumer groups created by heartbeats and other requests."""
    return NewNameLimit(
        "new consumer groups refused",
        lambda: settings.max_new_groups_per_second,
        lambda name, limit: problems.NEW_GROUPS_LIMITED.error(name=name, limit=limit),
        limits,
        clock,
        NameBound(
            "consumer groups beyond maxConsumerGroups refused",
            lambda: settings.max_consumer_groups,
            lambda name, found, limit: problems.GROUPS_EXCEEDED.error(name=name, found=found, limit=limit),
        ),
    )


def offset_group_limit(
    settings: BrokerConfig, limits: LimitLog | None = None, clock: Callable[[], float] = monotonic
) -> NewNameLimit:
    """Return the limit of consumer groups created by setting their offsets."""
    return NewNameLimit(
        "new consumer groups by offsets refused",
        lambda: settings.max_new_groups_by_offsets_per_second,
        lambda name, limit: problems.GROUPS_BY_OFFSETS_LIMITED.error(name=name, limit=limit),
        limits,
        clock,
    )
