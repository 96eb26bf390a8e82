"""Keeps a group's offsets at the brokers of its queues.

Answers to RemoteBrokerOffsetStore. Unlike there, a broker's refusal is not taken for a queue without offset, which would
be consumed from its end or its beginning then.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from twisted.internet.defer import DeferredLock
from twisted.logger import Logger

from rocketd.client.consumer.offset_store import NO_OFFSET, OffsetStore, OffsetTable, ReadOffsetType
from rocketd.client.errors import RocketMQError, check_response, of_remoting
from rocketd.client.gathering import all_of
from rocketd.remoting.bodies import MessageQueue
from rocketd.remoting.codes import RequestCode, ResponseCode
from rocketd.remoting.command import RemotingCommand
from rocketd.remoting.errors import RemotingError
from rocketd.remoting.headers import (
    OffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
    read_header,
    write_header,
)

Ask = Callable[[str, RemotingCommand], Awaitable[RemotingCommand]]
"""Sends a request to a broker of this name and returns its answer. Raises RocketMQError or RemotingError."""

Tell = Callable[[str, RemotingCommand], Awaitable[Any]]
"""Sends a request to a broker of this name that it does not answer. Raises RocketMQError or RemotingError."""


class RemoteBrokerOffsetStore(OffsetTable, OffsetStore):
    """The offsets of one group in the clustering model. All methods belong to the reactor thread."""

    log = Logger()

    def __init__(self, group: str, ask: Ask, tell: Tell) -> None:
        super().__init__()
        self._group = group
        self._ask = ask
        self._tell = tell
        self._locks: defaultdict[MessageQueue, DeferredLock] = defaultdict(DeferredLock)

    async def load(self) -> None:
        """Read nothing: each queue's offset is asked for when it is needed."""

    async def read(self, queue: MessageQueue, source: ReadOffsetType) -> int:
        """See OffsetStore. The broker is asked for what is to come from the store."""
        if source is not ReadOffsetType.READ_FROM_STORE and queue in self._offsets:
            return self._offsets[queue]
        if source is ReadOffsetType.READ_FROM_MEMORY:
            return NO_OFFSET
        offset = await self._query(queue)
        if offset != NO_OFFSET:
            if source is ReadOffsetType.READ_FROM_STORE:
                self._offsets[queue] = offset
            else:
                # Set meanwhile, it is what memory says first.
                offset = self._offsets.setdefault(queue, offset)
        return offset

    async def persist_all(self, queues: Iterable[MessageQueue], *, oneway: bool = True) -> list[MessageQueue]:
        """See OffsetStore. All brokers are told at once; offsets of other queues are forgotten.

        Without ``oneway`` a broker is told of one queue of a topic first, and of the topic's others when it has answered:
        told of two at once, Apache's broker may forget one where it knows no offset of the group and topic yet.
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

    async def _store(self, queue: MessageQueue, *, oneway: bool) -> bool:
        offset = self._offsets.get(queue)
        if offset is None:
            return True
        try:
            await self.update_to_broker(queue, offset, oneway=oneway)
        except RocketMQError as error:
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

    async def update_to_broker(self, queue: MessageQueue, offset: int, *, oneway: bool = True) -> None:
        """See OffsetStore (15). Oneway it returns when the request is handed to the connection."""
        request = RemotingCommand(
            RequestCode.UPDATE_CONSUMER_OFFSET,
            write_header(
                UpdateConsumerOffsetRequestHeader(
                    consumer_group=self._group,
                    topic=queue.topic,
                    queue_id=queue.queue_id,
                    commit_offset=offset,
                    bname=queue.broker_name,
                )
            ),
        )
        try:
            if oneway:
                await self._tell(queue.broker_name, request)
            else:
                check_response(queue.broker_name, await self._ask(queue.broker_name, request))
        except RemotingError as error:
            raise of_remoting(error, queue.broker_name) from error

    async def _query(self, queue: MessageQueue) -> int:
        request = RemotingCommand(
            RequestCode.QUERY_CONSUMER_OFFSET,
            write_header(
                QueryConsumerOffsetRequestHeader(
                    consumer_group=self._group,
                    topic=queue.topic,
                    queue_id=queue.queue_id,
                    bname=queue.broker_name,
                )
            ),
        )
        try:
            response = await self._ask(queue.broker_name, request)
            if response.code == ResponseCode.QUERY_NOT_FOUND:
                return NO_OFFSET
            return read_header(OffsetResponseHeader, check_response(queue.broker_name, response)).offset
        except RemotingError as error:
            raise of_remoting(error, queue.broker_name) from error
