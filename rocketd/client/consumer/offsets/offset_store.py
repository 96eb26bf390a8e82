"""A group's offsets: the common interface of stores, and the offsets in memory.

Counterpart: `OffsetStore` and `ReadOffsetType` (Apache). ``offset_store_remote`` keeps offsets at the brokers
(clustering), ``offset_store_local`` in a file (broadcasting).
"""

from collections.abc import Iterable
from enum import Enum
from typing import Final, Protocol

from rocketd.remoting.bodies.tables import MessageQueue

NO_OFFSET: Final = -1
"""Result of a read if the group has no offset of the queue."""


class ReadOffsetType(Enum):
    """The source of an offset."""

    READ_FROM_MEMORY = "memory"
    READ_FROM_STORE = "store"
    MEMORY_FIRST_THEN_STORE = "memory, then store"


class OffsetStore(Protocol):
    """The offsets of one group.

    All methods belong to the reactor thread. An offset is that of the next message to consume.
    """

    async def load(self) -> None:
        """Read the stored offsets before the consumer begins."""

    def update(self, queue: MessageQueue, offset: int, increase_only: bool) -> None:
        """Remember an offset. With ``increase_only``, ignore it unless it is above the remembered one."""

    async def read(self, queue: MessageQueue, source: ReadOffsetType) -> int:
        """Return an offset; NO_OFFSET if there is none. An offset read from the store is remembered.

        Raises RocketMQError if the store cannot be read. Whether there is an offset is unknown then.
        """
        ...

    async def persist_all(self, queues: Iterable[MessageQueue], *, oneway: bool = True) -> list[MessageQueue]:
        """Store the remembered offsets of these queues, at least.

        Return the queues whose offsets were not stored; each was logged. Without ``oneway``, wait for confirmation.
        Until then no other offset of the queue is stored, because a broker may process the older of two concurrent
        requests last.
        """
        ...

    async def persist(self, queue: MessageQueue, *, oneway: bool = True) -> bool:
        """Store the remembered offset of one queue, if the store supports it. Return False after a failure.

        ``oneway`` is as in ``persist_all``.
        """
        ...

    def is_storing(self, queue: MessageQueue) -> bool:
        """Whether a request is under way that stores an offset of a queue."""
        ...

    def remove(self, queue: MessageQueue) -> None:
        """Forget a queue no longer consumed here, if the store belongs to the whole group."""

    def forget_deleted(self, queue: MessageQueue) -> None:
        """Forget the offset of a queue whose topic was deleted. It must not count for a topic that is recreated."""

    def clone(self, topic: str = "") -> dict[MessageQueue, int]:
        """Return the remembered offsets of one topic, or of all by default."""
        ...

    async def update_to_broker(self, queue: MessageQueue, offset: int, *, oneway: bool = True) -> None:
        """Store an offset at the queue's broker now, independently of the remembered one, if brokers keep the offsets.

        Raises RocketMQError.
        """


class OffsetTable:
    """The offsets in memory, for all stores."""

    def __init__(self) -> None:
        self._offsets: dict[MessageQueue, int] = {}

    def update(self, queue: MessageQueue, offset: int, increase_only: bool) -> None:
        """See OffsetStore."""
        if not increase_only or offset > self._offsets.get(queue, offset - 1):
            self._offsets[queue] = offset

    def is_storing(self, queue: MessageQueue) -> bool:
        """See OffsetStore. Only stores at brokers send requests."""
        return False

    def clone(self, topic: str = "") -> dict[MessageQueue, int]:
        """See OffsetStore."""
        return {queue: offset for queue, offset in self._offsets.items() if not topic.strip() or queue.topic == topic}
