"""Keeps a group's offsets at the brokers of its queues.

Counterpart: `RemoteBrokerOffsetStore` (Apache). Unlike Apache, a broker's refusal does not mean "no offset": the queue would
be consumed from its end or its beginning then.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from twisted.internet.defer import DeferredLock
from twisted.logger import Logger

from rocketd.client.consumer.offsets.offset_store import NO_OFFSET, OffsetStore, OffsetTable, ReadOffsetType
from rocketd.client.errors import RocketMQError, of_remoting
from rocketd.client.instance.all_of import all_of
from rocketd.protocol import offsets
from rocketd.remoting.bodies.tables import MessageQueue
from rocketd.remoting.errors import RemotingError
from rocketd.remoting.wire.command import RemotingCommand

Ask = Callable[[str, RemotingCommand], Awaitable[RemotingCommand]]
"""Sends a request to the broker of this name and returns its answer. Raises RocketMQError or RemotingError."""

Tell = Callable[[str, RemotingCommand], Awaitable[Any]]
"""Sends a oneway request to the broker of this name. Raises RocketMQError or RemotingError."""


class RemoteBrokerOffsetStore(OffsetTable, OffsetStore):
    """The offsets of one group in the clustering model. All methods belong to the reactor thread.

    ``covers`` gets a failure, and returns whether it is logged as an outage of the broker.
    """

    log = Logger()

    def __init__(
        self, group: str, ask: Ask, tell: Tell, covers: Callable[[str, Exception], bool] | None = None
    ) -> None:
        super().__init__()
        self._group = group
        self._ask = ask
        self._tell = tell
        self._covers = covers
        self._locks: defaultdict[MessageQueue, DeferredLock] = defaultdict(DeferredLock)

    async def load(self) -> None:
        """Do nothing: each queue's offset is read when it is needed."""

    async def read(self, queue: MessageQueue, source: ReadOffsetType) -> int:
        """See OffsetStore. The store is the broker."""
        if source is not ReadOffsetType.READ_FROM_STORE and queue in self._offsets:
            return self._offsets[queue]
        if source is ReadOffsetType.READ_FROM_MEMORY:
            return NO_OFFSET
        offset = await self._query(queue)
        if offset != NO_OFFSET:
            if source is ReadOffsetType.READ_FROM_STORE:
                self._offsets[queue] = offset
            else:
                # If it was set meanwhile, memory comes first.
                offset = self._offsets.setdefault(queue, offset)
        return offset

    async def persist_all(self, queues: Iterable[MessageQueue], *, oneway: bool = True) -> list[MessageQueue]:
        """See OffsetStore. All brokers are asked at once; offsets of other queues are forgotten.

        Without ``oneway``, a broker gets one queue per topic first, and the topic's other queues after its answer. Otherwise
        Apache's broker may lose one of two offsets if it has none of the group and topic yet.
        """
        wanted = set(queues)
        if not wanted:
            return []
        for queue in self._offsets.keys() - wanted:
            self.remove(queue)
        known = sorted(wanted & self._offsets.keys())
        first = known if oneway else list({(queue.broker_name, queue.topic): queue for queue in known}.values())
        failed: list[MessageQueue] = []
        for turn in (first, [queue for queue in known if queue not in first]):
            stored = await all_of(self.persist(queue, oneway=oneway) for queue in turn)
            failed += [queue for queue, done in zip(turn, stored, strict=True) if not done]
        return sorted(failed)

    async def persist(self, queue: MessageQueue, *, oneway: bool = True) -> bool:
        """See OffsetStore."""
        lock = self._locks[queue]
        await lock.acquire()
        try:
            return await self._store(queue, oneway=oneway)
        finally:
            lock.release()

    def is_storing(self, queue: MessageQueue) -> bool:
        """See OffsetStore."""
        return queue in self._locks and bool(self._locks[queue].locked)

    async def _store(self, queue: MessageQueue, *, oneway: bool) -> bool:
        offset = self._offsets.get(queue)
        if offset is None:
            return True
        try:
            await self.update_to_broker(queue, offset, oneway=oneway)
        except RocketMQError as error:
            if self._covers is not None and self._covers(f"storing an offset of group {self._group}", error):
                return False
            self.log.warn(
                "group {group}: the offset {offset} of {queue} was not stored: {error}",
                group=self._group,
                offset=offset,
                queue=queue,
                error=error,
            )
            return False
        self.log.debug("group {group}: {queue} stored at {offset}", group=self._group, queue=queue, offset=offset)
        return True

    def remove(self, queue: MessageQueue) -> None:
        """See OffsetStore."""
        if self._offsets.pop(queue, None) is not None:
            self.log.debug("group {group}: {queue} is no longer remembered", group=self._group, queue=queue)

    def forget_deleted(self, queue: MessageQueue) -> None:
        """See OffsetStore. Brokers delete the offsets of a topic with it."""
        self.remove(queue)

    async def update_to_broker(self, queue: MessageQueue, offset: int, *, oneway: bool = True) -> None:
        """See OffsetStore (request code 15). With ``oneway``, return when the request is handed to the connection."""
        request = offsets.commit_offset(self._group, queue, offset)
        try:
            if oneway:
                await self._tell(queue.broker_name, request.command())
            else:
                request.result(queue.broker_name, await self._ask(queue.broker_name, request.command()))
        except RemotingError as error:
            raise of_remoting(error, queue.broker_name) from error

    async def _query(self, queue: MessageQueue) -> int:
        request = offsets.group_offset(self._group, queue)
        try:
            response = await self._ask(queue.broker_name, request.command())
            offset = request.result(queue.broker_name, response)
            return NO_OFFSET if offset is None else offset
        except RemotingError as error:
            raise of_remoting(error, queue.broker_name) from error
