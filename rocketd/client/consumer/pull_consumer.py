"""Pulls from queues when and where it is told: the application keeps its own account of offsets.

Answers to DefaultMQPullConsumer, DefaultMQPullConsumerImpl and PullResult. Unlike there, nothing is shared out unless the
application asks for its share: it chooses the queues.
"""

from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Any, Generic

import msgspec
from twisted.internet.defer import Deferred, ensureDeferred

from rocketd.client import queue_questions
from rocketd.client.codec import BYTES, Codec
from rocketd.client.config import Duration, milliseconds
from rocketd.client.consumer.allocation import sort_queues
from rocketd.client.consumer.group_member import GroupMember
from rocketd.client.consumer.member_options import MemberOptions
from rocketd.client.consumer.offset_store import NO_OFFSET, ReadOffsetType
from rocketd.client.consumer.pull import PULL_TIMEOUT_MS, address_to_pull, pull, pull_header, wanted_records
from rocketd.client.consumer.pulled import AssignedQueue, Pulled
from rocketd.client.consumer.running_info import running_info
from rocketd.client.consumer.send_back import SendBack
from rocketd.client.consumer.subscription import Sql, subscription_of
from rocketd.client.errors import CommitError, UsageError, check_group, check_topic
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.client.instance.routes import MASTER
from rocketd.client.message import ReceivedMessage, T
from rocketd.client.namespace import queue_with_namespace, queue_without_namespace, with_namespace
from rocketd.client.wire_message import received_message
from rocketd.common.sysflag import PULL_SUBSCRIPTION, PULL_SUSPEND
from rocketd.remoting.admin_bodies import ConsumeMessageDirectlyResult, ConsumerRunningInfo
from rocketd.remoting.bodies import ConsumeType, MessageQueue
from rocketd.remoting.codes import ResponseCode
from rocketd.remoting.errors import RequestError
from rocketd.remoting.headers import PullMessageResponseHeader, read_header
from rocketd.store.record import MessageExt

DEFAULT_TIMEOUT = 10.0
"""Seconds that a pull may take that does not wait for messages."""


class PullStatus(Enum):
    """What came of a pull."""

    FOUND = "found"
    NO_NEW_MSG = "no new message"
    """There is nothing at the offset yet."""
    NO_MATCHED_MSG = "no matched message"
    """What there is was for others: go on from ``next_begin_offset``."""
    OFFSET_ILLEGAL = "offset illegal"
    """The offset is not there: go on from ``next_begin_offset``."""


_STATUS = {
    ResponseCode.SUCCESS: PullStatus.FOUND,
    ResponseCode.PULL_NOT_FOUND: PullStatus.NO_NEW_MSG,
    ResponseCode.PULL_RETRY_IMMEDIATELY: PullStatus.NO_MATCHED_MSG,
    ResponseCode.PULL_OFFSET_MOVED: PullStatus.OFFSET_ILLEGAL,
}


class PullResult(msgspec.Struct, Generic[T], frozen=True):
    """The answer to a pull: messages, where the next one begins, and where the queue begins and ends."""

    status: PullStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    messages: list[ReceivedMessage[T]]


class PullConsumer(GroupMember, Generic[T]):
    """A consumer of one group, between ``start`` and ``stop``. All methods belong to the reactor thread.

    Of the options it needs those of offsets, hooks and ``allocation`` only: it holds nothing. Making it raises
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
        """Store the offsets that were updated, and leave the group."""
        await self.stop_pulling()
        await self._persist()
        await self.leave()

    # ------------------------------------------------------------ pulling

    async def fetch_subscribe_queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues of a topic that can be read. Raises IllegalTopicError and NoRouteError."""
        self.check()
        return await queue_questions.subscribe_queues(self.instance, topic)

    async def fetch_queues_in_balance(self, topic: str) -> list[MessageQueue]:
        """Return this member's share of a topic's queues, as long as the group is as it is now; with ``broadcast`` all.

        Raises IllegalTopicError and NoRouteError, and AllocationError where ``allocation`` cannot share.
        """
        self.check()
        check_topic(topic)
        name = with_namespace(self._namespace, topic)
        await self.instance.routes.subscribe_queues(name)
        await self.instance.greet()  # brokers that were not known before have to count this member
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
        """Ask for messages from an offset on, and do not wait for new ones.

        ``wanted`` is tags such as ``TagA || TagB``, an Sql, or None for all. Raises UsageError, NoRouteError,
        BrokerError, RequestTimeoutError and the other errors of connections, and IllegalMessageError.
        """
        return await self._pull(queue, wanted, offset, max_messages, 0, milliseconds("timeout", timeout))

    async def pull_block_if_not_found(
        self,
        queue: MessageQueue,
        wanted: str | Sql | None,
        offset: int,
        max_messages: int = 32,
    ) -> PullResult[T]:
        """Ask for messages from an offset on; where there are none, wait for new ones, 20 s at most. As ``pull``."""
        return await self._pull(queue, wanted, offset, max_messages, PULL_SUSPEND, PULL_TIMEOUT_MS)

    async def _pull(
        self,
        bare: MessageQueue,
        wanted: str | Sql | None,
        offset: int,
        most: int,
        suspend: int,
        timeout_ms: float,
    ) -> PullResult[T]:
        self.check()
        if offset < 0 or most < 1:
            raise UsageError(
                f"offset={offset}, max_messages={most}: offsets begin with 0, and one message is the least"
            )
        queue = queue_with_namespace(self._namespace, bare)
        await self.instance.routes.subscribe_queues(queue.topic)
        # The version matters only where a group's members have to agree on an expression.
        version = int(self.instance.now_ms()) if isinstance(wanted, Sql) else 0
        subscription = subscription_of(queue.topic, wanted, version)
        broker_id = self._suggested.get(queue, MASTER)
        _, address = address_to_pull(self.instance, queue.broker_name, broker_id)
        flags = self.pull_flags | suspend
        header = pull_header(self.group, queue, subscription, offset, most, sys_flag=flags, suspend_ms=self.suspend_ms)
        response = await pull(self.instance, address, header, timeout_ms)
        told = read_header(PullMessageResponseHeader, response)
        self._suggested[queue] = told.suggest_which_broker_id
        records = wanted_records(response, subscription)
        if self.hooks.keep is not None:
            records = self.hooks.keep(queue, records)
        status = _STATUS[ResponseCode(response.code)]
        messages = [received_message(record, bare, self._codec, self._namespace) for record in records]
        if messages:
            # What becomes of them is not known here: they count as consumed, as with Apache's.
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
        """Remember how far a queue is consumed; it is stored every ``persist_interval`` and on closing."""
        self.check()
        self.offsets.update(queue_with_namespace(self._namespace, queue), offset, False)

    async def fetch_consume_offset(self, queue: MessageQueue, *, from_store: bool = False) -> int | None:
        """Return the group's offset of a queue: what is remembered here, or what is stored; None when there is none.

        Raises RocketMQError when it is not known.
        """
        self.check()
        name = queue_with_namespace(self._namespace, queue)
        await self.instance.routes.subscribe_queues(name.topic)
        source = ReadOffsetType.READ_FROM_STORE if from_store else ReadOffsetType.MEMORY_FIRST_THEN_STORE
        offset = await self.offsets.read(name, source)
        return None if offset == NO_OFFSET else offset

    async def persist_consume_offsets(self) -> None:
        """Store all that is remembered; returns when it is stored. Raises CommitError when some is not."""
        self.check()
        queues = list(self.offsets.clone())
        for topic in {queue.topic for queue in queues}:
            await self.instance.routes.subscribe_queues(topic)
        failed = await self.offsets.persist_all(queues, oneway=False)
        if failed:
            raise CommitError(f"offsets of {len(failed)} queues were not stored: the log says why; persist again")

    async def _persist(self) -> None:
        await self.offsets.persist_all(list(self.offsets.clone()), oneway=False)

    # ------------------------------------------------------------ messages that failed

    async def send_message_back(
        self, message: ReceivedMessage[Any], delay_level: int = 0, *, group: str | None = None
    ) -> None:
        """Have a message come again to ``group``, this consumer's unless given, after a delay.

        Level 0 leaves the delay to the broker, a negative one makes it a dead letter. Raises NoRouteError and BrokerError.
        """
        self.check()
        if group is not None:
            check_group(group)
        name = self.group if group is None else with_namespace(self._namespace, group)
        queue = queue_with_namespace(self._namespace, message.queue)
        await self.instance.routes.subscribe_queues(queue.topic)
        await SendBack(self.instance, name, -1).give_back(queue, message, delay_level)

    # ------------------------------------------------------------ for the instance

    def pulled(self, assigned: AssignedQueue, new: list[Pulled], took_ms: float) -> None:
        """Drop what came: no queue is pulled without being asked for."""

    def running_info(self, stacks: bool) -> ConsumerRunningInfo:
        """How it is; with the stacks of what runs, if asked for."""
        return running_info(self, stacks, {})

    def consume_directly(self, record: MessageExt, broker_name: str | None) -> Awaitable[ConsumeMessageDirectlyResult]:
        """Refuse: there is no handler. Raises RequestError."""
        raise RequestError(
            ResponseCode.SYSTEM_ERROR, f"The Consumer Group <{self.group}> has no handler in this consumer: it pulls"
        )
