"""Which consumer of an ordered group may take messages from which queue.

Answers to Apache's RebalanceLockManager: a lock lives for 60 s (``rocketmq.broker.rebalance.lockMaxLiveTime``) after its
owner last asked for it, and the owner alone can give it back.
"""

import threading
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from twisted.logger import Logger

Q = TypeVar("Q", bound=Hashable)


@dataclass(slots=True)
class _Lock:
    client_id: str
    last_update: int


class RebalanceLockManager:
    """Locks of queues by group, in memory only. All methods may be called from any thread.

    A queue may be anything hashable that identifies it. ``now_ms`` tells milliseconds, ``max_live_time`` is in them too.
    """

    _log = Logger()

    def __init__(self, now_ms: Callable[[], int], max_live_time: int = 60_000) -> None:
        self._now_ms = now_ms
        self._max_live_time = max_live_time
        self._guard = threading.Lock()
        self._groups: dict[str, dict[Hashable, _Lock]] = {}

    def lock_batch(self, group: str, queues: Iterable[Q], client_id: str) -> list[Q]:
        """Lock the queues for a client, or renew its locks; returns those that are now its own, in the order given."""
        mine = []
        now = self._now_ms()
        with self._guard:
            locks = self._groups.setdefault(group, {})
            for queue in queues:
                lock = locks.get(queue)
                if lock is None:
                    locks[queue] = _Lock(client_id, now)
                    self._tell("locked", group, queue, client_id)
                elif lock.client_id == client_id:
                    lock.last_update = now
                elif now - lock.last_update > self._max_live_time:
                    self._tell("taken over, its lock has expired,", group, queue, client_id, lock.client_id)
                    locks[queue] = _Lock(client_id, now)
                else:
                    continue
                mine.append(queue)
            if not locks:
                del self._groups[group]
        return mine

    def unlock_batch(self, group: str, queues: Iterable[Hashable], client_id: str) -> None:
        """Give locks back; those of other clients stay."""
        with self._guard:
            locks = self._groups.get(group)
            if locks is None:
                return
            for queue in queues:
                lock = locks.get(queue)
                if lock is not None and lock.client_id == client_id:
                    del locks[queue]
                    self._tell("unlocked", group, queue, client_id)
            if not locks:
                del self._groups[group]

    def _tell(self, what: str, group: str, queue: Hashable, client_id: str, old: str | None = None) -> None:
        self._log.info(
            "group {group}: queue {queue} {what} by {client_id}{before}",
            group=group,
            queue=queue,
            what=what,
            client_id=client_id,
            before=f", before by {old}" if old else "",
        )
