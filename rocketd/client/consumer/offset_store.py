"""How far a group has consumed its queues: what is remembered, and what every place of keeping it offers.

Answers to OffsetStore and ReadOffsetType. ``offset_store_remote`` keeps offsets at the brokers (clustering),
``offset_store_local`` in a file (broadcasting).
"""

from collections.abc import Iterable
from enum import Enum
from typing import Final, Protocol

from rocketd.remoting.bodies import MessageQueue

NO_OFFSET: Final = -1
"""What reading returns for a queue that the group has no offset of."""


class ReadOffsetType(Enum):
    """Where an offset is read."""

    READ_FROM_MEMORY = "memory"
    READ_FROM_STORE = "store"
    MEMORY_FIRST_THEN_STORE = "memory, then store"


class OffsetStore(Protocol):
    """The offsets of one group. All methods belong to the reactor thread; an offset is the next message's to consume."""

    async def load(self) -> None:
        """Read what is kept, before the consumer begins."""

    def update(self, queue: MessageQueue, offset: int, increase_only: bool) -> None:
        """Remember an offset; with ``increase_only`` only one above that which is remembered."""

    async def read(self, queue: MessageQueue, source: ReadOffsetType) -> int:
        """Return an offset, NO_OFFSET when there is none. What was read from the store is remembered.

        Raises RocketMQError when the store cannot be read: then it is not known whether there is one.
        """
        ...

    async def persist_all(self, queues: Iterable[MessageQueue], *, oneway: bool = True) -> list[MessageQueue]:
        """Store what is remembered of these queues; does nothing when there are none.

        Returns the queues whose offsets were not stored, each of which was logged. Without ``oneway`` it waits until
        they are known to be stored; until then no other offset of the queue is stored: of two requests that are under
        way a broker may come to the older one last.
        """
        ...

    async def persist(self, queue: MessageQueue, *, oneway: bool = True) -> bool:
        """Store what is remembered of one queue, where the store can do so; returns whether nothing failed.

        ``oneway`` is as that of ``persist_all``.
        """
        ...

    def remove(self, queue: MessageQueue) -> None:
        """Forget a queue that is no longer consumed here, where the store belongs to the whole group."""

    def clone(self, topic: str = "") -> dict[MessageQueue, int]:
        """Return what is remembered, of one topic or, without a name, of all."""
        ...

    async def update_to_broker(self, queue: MessageQueue, offset: int, *, oneway: bool = True) -> None:
        """Have the queue's broker store an offset now, whatever is remembered, where brokers keep them.

        Raises RocketMQError.
        """


class OffsetTable:
    """What all stores remember in memory."""

    def __init__(self) -> None:
        self._offsets: dict[MessageQueue, int] = {}

    def update(self, queue: MessageQueue, offset: int, increase_only: bool) -> None:
        """See OffsetStore."""
        if not increase_only or offset > self._offsets.get(queue, offset - 1):
            self._offsets[queue] = offset

    def clone(self, topic: str = "") -> dict[MessageQueue, int]:
        """See OffsetStore."""
        return {queue: offset for queue, offset in self._offsets.items() if not topic.strip() or queue.topic == topic}
