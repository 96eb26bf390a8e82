"""A consumer pulling only on request. The application keeps its offsets.

Counterpart: `DefaultMQPullConsumer`, `DefaultMQPullConsumerImpl` and `PullResult` (Apache). Unlike Apache, queues are shared
only if the application asks for its share: it chooses the queues.
"""

from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Any, Generic

import msgspec
from twisted.internet.defer import Deferred, ensureDeferred

from rocketd.client.consumer.allocation import sort_queues
from rocketd.client.consumer.membership.group_member import GroupMember
from rocketd.client.consumer.membership.running_info import running_info
from rocketd.client.consumer.offsets.offset_store import NO_OFFSET, ReadOffsetType
from rocketd.client.consumer.options.member_options import MemberOptions
from rocketd.client.consumer.options.subscription import Sql, subscription_of
from rocketd.client.consumer.pulling.assigned_queue import AssignedQueue, PulledMessage
from rocketd.client.consumer.pulling.pull import PULL_TIMEOUT_MS, address_to_pull, pull, wanted_records
from rocketd.client.consumer.retries.send_back import SendBack
from rocketd.client.errors import CommitError, UsageError, check_consumer_group, check_group, check_topic
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.client.messages.codec import BYTES, Codec
from rocketd.client.messages.message import ReceivedMessage, T
from rocketd.client.messages.namespace import queue_with_namespace, queue_without_namespace, with_namespace
from rocketd.client.messages.received import received_message
from rocketd.client.queries import queues as queue_queries
from rocketd.client.settings.config import Duration, milliseconds
from rocketd.common.sysflag import PULL_SUBSCRIPTION, PULL_SUSPEND
from rocketd.protocol.cluster import MASTER
from rocketd.protocol.pull import pull_header
from rocketd.remoting.bodies.admin import ConsumeMessageDirectlyResult, ConsumerRunningInfo
from rocketd.remoting.bodies.tables import ConsumeType, MessageQueue
from rocketd.remoting.errors import RequestError
from rocketd.remoting.headers.client import PullMessageResponseHeader, read_header
from rocketd.remoting.wire.codes import ResponseCode
from rocketd.store.format.record import MessageExt

DEFAULT_TIMEOUT = 10.0
"""Default timeout in seconds of a pull without waiting for messages."""


class PullStatus(Enum):
    """The result of a pull."""

    FOUND = "found"
    NO_NEW_MSG = "no new message"
    """The queue has no message at the offset yet."""
    NO_MATCHED_MSG = "no matched message"
    """The messages did not match the subscription: continue from ``next_begin_offset``."""
    OFFSET_ILLEGAL = "offset illegal"
    """The offset does not exist: continue from ``next_begin_offset``."""


_STATUS = {
    ResponseCode.SUCCESS: PullStatus.FOUND,
    ResponseCode.PULL_NOT_FOUND: PullStatus.NO_NEW_MSG,
    ResponseCode.PULL_RETRY_IMMEDIATELY: PullStatus.NO_MATCHED_MSG,
    ResponseCode.PULL_OFFSET_MOVED: PullStatus.OFFSET_ILLEGAL,
}


class PullResult(msgspec.Struct, Generic[T], frozen=True):
    """The answer to a pull: messages, the offset for the next pull, and the beginning and end of the queue."""

    status: PullStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    messages: list[ReceivedMessage[T]]


class PullConsumerEngine(GroupMember, Generic[T]):
    """A pulling consumer of one group, between ``start`` and ``stop``. All methods belong to the reactor thread.

    It uses only the options for offsets, hooks and ``allocation``, because it holds no messages. The constructor raises
    IllegalGroupError.
    """

    consume_type = ConsumeType.CONSUME_ACTIVELY
    pull_flags = PULL_SUBSCRIPTION
    suspend_ms = 20_000

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        *,
        options: MemberOptions | None = None,
        codec: Codec[T] = BYTES,  # type: ignore[assignment]
        run_coroutine: Callable[[Any], Deferred[Any]] = ensureDeferred,
    ) -> None:
        super().__init__(instance, group, options or MemberOptions(), codec, 1, run_coroutine)
        self._codec = codec
        self._namespace = instance.config.namespace
        self._suggested: dict[MessageQueue, int] = {}

    async def start(self) -> None:
        """Name the group in heartbeats from now on. Raises GroupInUseError and OffsetFileError."""
        await self.join()

    async def stop(self) -> None:
        """Store the updated offsets and leave the group."""
        await self.stop_pulling()
        await self._persist()
        await self.leave()

    # ------------------------------------------------------------ pulling

    async def fetch_subscribe_queues(self, topic: str) -> list[MessageQueue]:
        """Return the readable queues of a topic. Raises IllegalTopicError and NoRouteError."""
        self.check()
        return await queue_queries.subscribe_queues(self.instance, topic)

    async def fetch_queues_in_balance(self, topic: str) -> list[MessageQueue]:
        """Return this member's share of a topic's queues for the current members; with ``broadcast`` all queues.

        Raises:

        - IllegalTopicError: the topic name is invalid.
        - NoRouteError: the topic is unknown.
        - AllocationError: ``allocation`` cannot share these queues.
        """
        self.check()
        check_topic(topic)
        name = with_namespace(self._namespace, topic)
        await self.instance.routes.subscribe_queues(name)
        await self.instance.greet()  # newly found brokers must count this member
        share = await self._rebalance.share_of(name)
        return [queue_without_namespace(self._namespace, queue) for queue in sort_queues(share or ())]

    async def pull(
        self,
        queue: MessageQueue,
        wanted: str | Sql | None,
        offset: int,
        max_messages: int = 32,
        *,
        timeout: Duration = DEFAULT_TIMEOUT,
    ) -> PullResult[T]:
        """Pull messages from an offset on, without waiting for new ones.

        ``wanted`` is tags such as ``TagA || TagB``, an Sql, or None for all.

        Raises:

        - UsageError: the offset is negative, ``max_messages`` is below 1, or the Sql is empty.
        - NoRouteError: the topic or its broker is unknown.
        - BrokerError: the broker refuses.
        - RequestTimeoutError and other errors of connections.
        - IllegalMessageError: a message is unreadable.
        """
        return await self._pull(queue, wanted, offset, max_messages, 0, milliseconds("timeout", timeout))

    async def pull_block_if_not_found(
        self,
        queue: MessageQueue,
        wanted: str | Sql | None,
        offset: int,
        max_messages: int = 32,
    ) -> PullResult[T]:
        """Pull messages from an offset on, and wait for new ones, 20 s at most. Raises the errors of ``pull``."""
        return await self._pull(queue, wanted, offset, max_messages, PULL_SUSPEND, PULL_TIMEOUT_MS)

    async def _pull(
        self,
        bare: MessageQueue,
        wanted: str | Sql | None,
        offset: int,
        limit: int,
        suspend: int,
        timeout_ms: float,
    ) -> PullResult[T]:
        self.check()
        if offset < 0 or limit < 1:
            raise UsageError(f"offset={offset}, max_messages={limit}: an offset is 0 or more, max_messages 1 or more")
        queue = queue_with_namespace(self._namespace, bare)
        await self.instance.routes.subscribe_queues(queue.topic)
        # The version matters only if the members of a group must agree on an expression.
        version = int(self.instance.now_ms()) if isinstance(wanted, Sql) else 0
        subscription = subscription_of(queue.topic, wanted, version)
        broker_id = self._suggested.get(queue, MASTER)
        _, address = address_to_pull(self.instance, queue.broker_name, broker_id)
        flags = self.pull_flags | suspend
        header = pull_header(self.group, queue, subscription, offset, limit, sys_flag=flags, suspend_ms=self.suspend_ms)
        response = await pull(self.instance, address, header, timeout_ms)
        told = read_header(PullMessageResponseHeader, response)
        self._suggested[queue] = told.suggest_which_broker_id
        records = wanted_records(response, subscription, f"{queue.topic} at {queue.broker_name}")
        if self.hooks.keep is not None:
            records = self.hooks.keep(queue, records)
        status = _STATUS[ResponseCode(response.code)]
        messages = [received_message(record, bare, self._codec, self._namespace) for record in records]
        if messages:
            # The result of their handling is unknown here: they count as consumed, as in Apache's client.
            self.hooks.consumption.end(self.hooks.consumption.begin(queue, messages), True, None)
        return PullResult(
            PullStatus.NO_MATCHED_MSG if status is PullStatus.FOUND and not records else status,
            told.next_begin_offset,
            told.min_offset,
            told.max_offset,
            messages,
        )

    # ------------------------------------------------------------ offsets

    def update_consume_offset(self, queue: MessageQueue, offset: int) -> None:
        """Remember the offset of a queue. It is stored every ``persist_interval`` and on closing."""
        self.check()
        self.offsets.update(queue_with_namespace(self._namespace, queue), offset, False)

    async def fetch_consume_offset(self, queue: MessageQueue, *, from_store: bool = False) -> int | None:
        """Return the group's offset of a queue, remembered here or stored; None if there is none.

        Raises RocketMQError if it cannot be read.
        """
        self.check()
        name = queue_with_namespace(self._namespace, queue)
        await self.instance.routes.subscribe_queues(name.topic)
        source = ReadOffsetType.READ_FROM_STORE if from_store else ReadOffsetType.MEMORY_FIRST_THEN_STORE
        offset = await self.offsets.read(name, source)
        return None if offset == NO_OFFSET else offset

    async def persist_consume_offsets(self) -> None:
        """Store all remembered offsets. Return after they are stored. Raises CommitError if some are not."""
        self.check()
        queues = list(self.offsets.clone())
        for topic in {queue.topic for queue in queues}:
            await self.instance.routes.subscribe_queues(topic)
        failed = await self.offsets.persist_all(queues, oneway=False)
        if failed:
            raise CommitError(f"offsets of {len(failed)} queues were not stored: the log says why; persist again")

    async def _persist(self) -> None:
        await self.offsets.persist_all(list(self.offsets.clone()), oneway=False)

    # ------------------------------------------------------------ failed messages

    async def send_message_back(
        self, message: ReceivedMessage[Any], delay_level: int = 0, *, group: str | None = None
    ) -> None:
        """Have a message delivered again to ``group``, by default this consumer's, after a delay.

        With level 0 the broker chooses the delay; a negative level makes it a dead letter. Raises NoRouteError and
        BrokerError.
        """
        self.check()
        name = self.group
        if group is not None:
            check_group(group)
            name = with_namespace(self._namespace, group)
            check_consumer_group(name)
        queue = queue_with_namespace(self._namespace, message.queue)
        await self.instance.routes.subscribe_queues(queue.topic)
        await SendBack(self.instance, name, -1).give_back(queue, message, delay_level)

    # ------------------------------------------------------------ for the instance

    def pulled(self, assigned: AssignedQueue, new: list[PulledMessage], took_ms: float) -> None:
        """Drop the messages: queues are pulled only on request."""

    def running_info(self, stacks: bool) -> ConsumerRunningInfo:
        """Return the state of the consumer, with the stacks of all threads if ``stacks``."""
        return running_info(self, stacks, {})

    def consume_directly(self, record: MessageExt, broker_name: str | None) -> Awaitable[ConsumeMessageDirectlyResult]:
        """Refuse, because a pulling consumer has no handler. Raises RequestError."""
        raise RequestError(
            ResponseCode.SYSTEM_ERROR, f"The Consumer Group <{self.group}> has no handler in this consumer: it pulls"
        )
