"""The locks of consumers of ordered groups on queues.

A lock lives for 60 s (``rocketmq.broker.rebalance.lockMaxLiveTime``) after its owner's last request, and only its owner
can release it. Unlike in Apache's broker, expired locks leave the table, and the table has a limit.

Counterpart: `RebalanceLockManager` (Apache).
"""

import threading
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from twisted.logger import Logger

from rocketd.common.logs.throttle import event_log
from rocketd.remoting.limits.limit_log import LimitLog

NAMED_LIMIT = 8
"""The maximum number of queues named in the log line of a batch."""

Q = TypeVar("Q", bound=Hashable)


@dataclass(slots=True)
class _Lock:
    client_id: str
    last_update: int


class RebalanceLockManager:
    """Queue locks by group, in memory only. Any thread.

    A queue is identified by any hashable value. ``now_ms`` returns milliseconds; ``max_live_time`` is in ms too.
    """

    _log = Logger()

    def __init__(
        self,
        now_ms: Callable[[], int],
        max_live_time: int = 60_000,
        max_locks: Callable[[], int] = lambda: 0,
        limits: LimitLog | None = None,
    ) -> None:
        """``max_locks`` returns the number of locks from which new ones on unknown names are refused, 0 for no limit.

        ``limits`` counts and logs refusals.
        """
        self._now_ms = now_ms
        self._max_live_time = max_live_time
        self._max_locks = max_locks
        self._limits = limits
        self._events = event_log(self._log)
        self._count = 0
        self._guard = threading.Lock()
        self._groups: dict[str, dict[Hashable, _Lock]] = {}

    def lock_batch(self, group: str, queues: Iterable[Q], client_id: str, *, known: bool = True) -> list[Q]:
        """Lock queues for a client, or renew its locks; return the queues it now holds, in the given order.

        If group and queues are not ``known``, new locks beyond the limit are refused: clients can invent names.
        """
        mine = []
        new = refused = 0
        expired: list[Hashable] = []
        now = self._now_ms()
        limit = self._max_locks()
        with self._guard:
            locks = self._groups.setdefault(group, {})
            for queue in queues:
                lock = locks.get(queue)
                if lock is None:
                    if not known and limit and self._count >= limit:
                        refused += 1
                        continue
                    locks[queue] = _Lock(client_id, now)
                    self._count += 1
                    new += 1
                elif lock.client_id == client_id:
                    lock.last_update = now
                elif now - lock.last_update > self._max_live_time:
                    locks[queue] = _Lock(client_id, now)
                    expired.append(queue)
                else:
                    continue
                mine.append(queue)
            if not locks:
                del self._groups[group]
        if new:
            self._tell("locked", group, mine, client_id)
        if expired:
            self._tell("took over, as their locks had expired,", group, expired, client_id)
        if refused and self._limits is not None:
            self._limits.reached(
                "queue locks refused",
                "{client} of group {group} gets no locks of {refused} unknown queues: maxQueueLocks is {limit}",
                refused,
                client=client_id,
                group=group,
                refused=refused,
                limit=limit,
            )
        return mine

    def drop_expired(self) -> None:
        """Remove the locks not renewed in time. Call it every few seconds."""
        earliest = self._now_ms() - self._max_live_time
        dropped = 0
        with self._guard:
            for group, locks in list(self._groups.items()):
                gone = [queue for queue, lock in locks.items() if lock.last_update < earliest]
                for queue in gone:
                    del locks[queue]
                dropped += len(gone)
                if not locks:
                    del self._groups[group]
            self._count -= dropped
        if dropped:
            self._events.info("expired", "{count} locks of queues have expired", count=dropped)

    def __len__(self) -> int:
        return self._count

    def unlock_batch(self, group: str, queues: Iterable[Hashable], client_id: str) -> None:
        """Release locks; those of other clients stay."""
        with self._guard:
            locks = self._groups.get(group)
            if locks is None:
                return
            gone = []
            for queue in queues:
                lock = locks.get(queue)
                if lock is not None and lock.client_id == client_id:
                    del locks[queue]
                    gone.append(queue)
            self._count -= len(gone)
            if not locks:
                del self._groups[group]
        if gone:
            self._tell("unlocked", group, gone, client_id)

    def _tell(self, what: str, group: str, queues: Sequence[Hashable], client_id: str) -> None:
        """Log one line for a batch."""
        self._events.info(
            what,
            "group {group}: {client_id} {what} {count} queues: {queues}{rest}",
            group=group,
            what=what,
            client_id=client_id,
            count=len(queues),
            queues=", ".join(str(queue) for queue in queues[:NAMED_LIMIT]),
            rest=", ..." if len(queues) > NAMED_LIMIT else "",
        )
