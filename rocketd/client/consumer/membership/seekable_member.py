"""Positions of a consumer in its queues: to read, to change, to store, and the messages behind them.

Counterpart: `seek`, `commitSync` and `committed` of `DefaultLitePullConsumer` (Apache), whose push consumer has none of
them. Reactor thread.
"""

from abc import abstractmethod
from collections.abc import Mapping
from datetime import datetime
from typing import Literal

from rocketd.client.consumer.membership.group_member import GroupMember
from rocketd.client.consumer.offsets.offset_store import NO_OFFSET, ReadOffsetType
from rocketd.client.consumer.pulling.assigned_queue import AssignedQueue
from rocketd.client.errors import CommitError, UsageError
from rocketd.client.instance.all_of import all_of
from rocketd.client.messages.namespace import queue_with_namespace, queue_without_namespace
from rocketd.client.queries import queues as queue_queries
from rocketd.common.names import retry_topic
from rocketd.remoting.bodies.tables import MessageQueue

Position = int | Literal["earliest", "latest"] | datetime
"""A place in a queue: an offset, its first message, its end, or the first message stored at or after a time."""


class SeekableMember(GroupMember):
    """A consumer with positions."""

    async def seek(self, queue: MessageQueue, offset: Position) -> None:
        """Continue from an offset, from the ``earliest`` message, the ``latest`` end, or the first message since a datetime.

        Raises UsageError if the queue is not read here, is being given up or has no such offset, and RocketMQError.
        """
        where = await self._offset_at(self._assigned(queue), offset)
        assigned = self._assigned(queue)
        if assigned.given_up:
            raise UsageError(f"{assigned} is being given up: it cannot seek any more")
        await self._continue_from(assigned, where)

    async def _offset_at(self, assigned: AssignedQueue, position: Position) -> int:
        """Return the offset of a position."""
        first = await queue_queries.min_offset(self.instance, assigned.queue)
        behind = await queue_queries.max_offset(self.instance, assigned.queue)
        if isinstance(position, datetime):
            moment_ms = queue_queries.milliseconds_of(position)
            found = await queue_queries.first_since(self.instance, self.group, assigned.queue, moment_ms)
            return min(max(first, found), behind)
        if position == "earliest":
            return first
        if position == "latest":
            return behind
        if isinstance(position, bool) or not isinstance(position, int):
            raise UsageError(f"seek to {position!r}: accepted is an offset, 'earliest', 'latest' or a datetime")
        if not first <= position <= behind:
            raise UsageError(f"{assigned} has offsets from {first} to {behind}, not {position}")
        return position

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Continue from the first existing message. Raises the errors of ``seek``."""
        await self.seek(queue, "earliest")

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Continue from the end of the queue. Raises the errors of ``seek``."""
        await self.seek(queue, "latest")

    @abstractmethod
    async def _continue_from(self, assigned: AssignedQueue, offset: int) -> None:
        """Drop the messages held of a queue, and continue from an offset."""

    def position(self, queue: MessageQueue) -> int:
        """Return the offset of the first message of a queue that is not handled, or not polled, yet.

        Raises UsageError if the queue is not read here.
        """
        return _position(self._assigned(queue))

    async def lag(self) -> dict[MessageQueue, int]:
        """Return the number of messages between the position and the end of each queue, without retry topics.

        Messages of other tags count, too. Raises RocketMQError if a broker does not answer.
        """
        self.check()
        assigned = [one for one in self.assigned.values() if one.queue.topic != retry_topic(self.group)]
        ends = await all_of(queue_queries.max_offset(self.instance, one.queue) for one in assigned)
        namespace = self.instance.config.namespace
        return {
            queue_without_namespace(namespace, one.queue): max(0, end - _position(self.assigned.get(one.queue, one)))
            for one, end in zip(assigned, ends, strict=True)
        }

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Store these offsets, or by default those behind the handled or polled messages. Return after they are stored.

        Raises CommitError if some are not stored, and UsageError for a queue not read here.
        """
        self.check()
        named: dict[MessageQueue, int] | None = None
        if offsets is None:
            self._commit_positions()
        else:
            named = {self._assigned(queue).queue: offset for queue, offset in offsets.items()}
            for queue, offset in named.items():
                self.offsets.update(queue, offset, False)
        if named is None or self.options.broadcast:
            failed = await self.offsets.persist_all(list(self.assigned), oneway=False)
        else:
            failed = [queue for queue in named if not await self.offsets.persist(queue, oneway=False)]
        if failed:
            names = ", ".join(str(self.assigned.get(queue, queue)) for queue in failed)
            raise CommitError(f"offsets of {names} were not stored: the log says why; commit again")

    def _commit_positions(self) -> None:
        """Remember the positions as offsets to store."""

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return the group's offset of a queue; None if none is stored. Raises RocketMQError if it cannot be read."""
        self.check()
        name = queue_with_namespace(self.instance.config.namespace, queue)
        await self.instance.routes.subscribe_queues(name.topic)
        return await self._committed(name)

    async def _committed(self, queue: MessageQueue) -> int | None:
        offset = await self.offsets.read(queue, ReadOffsetType.MEMORY_FIRST_THEN_STORE)
        return None if offset == NO_OFFSET else offset

    async def offset_for_timestamp(self, queue: MessageQueue, moment: datetime) -> int:
        """Return the offset of the first message stored at or after a time; the end of the queue if there is none."""
        self.check()
        name = queue_with_namespace(self.instance.config.namespace, queue)
        moment_ms = queue_queries.milliseconds_of(moment)
        return await queue_queries.first_since(self.instance, self.group, name, moment_ms)

    def _assigned(self, queue: MessageQueue) -> AssignedQueue:
        self.check()
        assigned = self.assigned.get(queue_with_namespace(self.instance.config.namespace, queue))
        if assigned is None:
            raise UsageError(
                f"queue {queue.queue_id} of {queue.topic} at {queue.broker_name} is not read by this consumer: it is not "
                "assigned, or it is another's share now"
            )
        return assigned


def _position(assigned: AssignedQueue) -> int:
    lowest = assigned.held.lowest_offset
    return assigned.next_offset if lowest is None else lowest
