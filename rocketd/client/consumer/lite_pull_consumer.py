"""Gives messages when it is asked for them: of a share of the queues, or of queues that the application names.

Answers to DefaultLitePullConsumer, DefaultLitePullConsumerImpl and AssignedMessageQueue. Unlike there, the offset of a
message that ``poll`` gave is committed by itself only when the next ones are asked for, or the consumer is closed.
"""

from collections import deque
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import Any, Generic

from twisted.internet.defer import Deferred, ensureDeferred
from twisted.internet.defer import TimeoutError as WaitedEnough
from twisted.logger import Logger

from rocketd.client import queue_questions
from rocketd.client.codec import BYTES, Codec
from rocketd.client.config import Duration, milliseconds
from rocketd.client.consumer.flow_control import FlowControl
from rocketd.client.consumer.group_member import GroupMember
from rocketd.client.consumer.offset_store import NO_OFFSET, ReadOffsetType
from rocketd.client.consumer.options import LitePullOptions
from rocketd.client.consumer.pulled import AssignedQueue, Pulled
from rocketd.client.consumer.running_info import running_info
from rocketd.client.consumer.subscription import Sql, subscription_of
from rocketd.client.errors import CommitError, IllegalMessageError, UsageError, check_topic
from rocketd.client.hooks import ConsumeMessageContext
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.client.message import ReceivedMessage, T
from rocketd.client.namespace import queue_with_namespace, queue_without_namespace, with_namespace
from rocketd.client.wire_message import received_message
from rocketd.common.sysflag import PULL_LITE, PULL_SUBSCRIPTION, PULL_SUSPEND
from rocketd.remoting.admin_bodies import ConsumeMessageDirectlyResult, ConsumerRunningInfo
from rocketd.remoting.bodies import ConsumerData, ConsumeType, MessageQueue
from rocketd.remoting.codes import ResponseCode
from rocketd.remoting.errors import RequestError
from rocketd.store.record import MessageExt

QueueListener = Callable[[str, list[MessageQueue]], Any]
"""Gets a topic and its queues, when they are others than before; may be a coroutine function."""


class LitePullConsumer(GroupMember, Generic[T]):
    """A consumer of one group, between ``start`` and ``stop``. All methods belong to the reactor thread.

    Either ``subscribe`` or ``assign`` says what it reads, before ``start`` or later. Making it raises IllegalGroupError.
    """

    log = Logger()
    consume_type = ConsumeType.CONSUME_ACTIVELY
    pull_flags = PULL_SUSPEND | PULL_SUBSCRIPTION | PULL_LITE
    suspend_ms = 20_000
    options: LitePullOptions

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        *,
        options: LitePullOptions | None = None,
        codec: Codec[T] = BYTES,  # type: ignore[assignment]
        run_coroutine: Callable[[Any], Deferred[Any]] = ensureDeferred,
    ) -> None:
        options = options or LitePullOptions()
        super().__init__(instance, group, options, codec, 1, run_coroutine)
        self._codec = codec
        self._namespace = instance.config.namespace
        self._chosen: set[MessageQueue] | None = None
        self._ready: deque[tuple[AssignedQueue, list[Pulled]]] = deque()
        self._asking: deque[Deferred[None]] = deque()
        self._moved: set[MessageQueue] = set()
        self._out: ConsumeMessageContext | None = None
        self._watched: dict[str, tuple[QueueListener, list[MessageQueue]]] = {}

    # ------------------------------------------------------------ what it reads

    def subscribe(self, topic: str, wanted: str | Sql | None = None) -> None:
        """Read a share of a topic's queues. Raises UsageError after ``assign``, and as GroupMember does."""
        if self._chosen is not None:
            raise UsageError(f"consumer {self.group} has queues assigned: it cannot subscribe, too")
        super().subscribe(topic, wanted)

    async def assign(self, queues: Collection[MessageQueue], wanted: str | Sql | None = None) -> None:
        """Read these queues from now on and no others, whoever else does; before the start, from then on.

        ``wanted`` is as that of ``subscribe``. Raises UsageError after ``subscribe``, and for no queues.
        """
        if self._chosen is None and self.subscriptions:
            raise UsageError(f"consumer {self.group} subscribes to topics: it cannot be assigned queues, too")
        if not queues:
            raise UsageError("assign needs queues: unsubscribe or close to read nothing more")
        for queue in queues:
            check_topic(queue.topic)
        chosen = {queue_with_namespace(self._namespace, queue) for queue in queues}
        version = int(self.instance.now_ms())
        subscriptions = {topic: subscription_of(topic, wanted, version) for topic in {queue.topic for queue in chosen}}
        self._chosen = chosen
        self.subscriptions = subscriptions
        if self._state is None:
            await self._rebalance.now()

    def chosen(self, topic: str) -> set[MessageQueue] | None:
        """Return the queues that were assigned; None where the group shares them."""
        if self._chosen is None:
            return None
        return {queue for queue in self._chosen if queue.topic == topic}

    def unsubscribe(self, topic: str) -> None:
        """Read a topic no more."""
        if self._chosen is not None:
            name = with_namespace(self._namespace, topic)
            self._chosen = {queue for queue in self._chosen if queue.topic != name}
        super().unsubscribe(topic)

    def consumer_data(self) -> ConsumerData:
        """What heartbeats say of this consumer: assigned queues are nobody else's matter."""
        data = super().consumer_data()
        if self._chosen is not None:
            data.subscription_data_set = []
        return data

    # ------------------------------------------------------------ start and stop

    async def start(self) -> None:
        """Join the group; returns when the first share of queues is taken. Raises as ``join`` does."""
        if await self.join():
            self.repeat(milliseconds("watch_interval", self.options.watch_interval), self._look_at_watched)

    async def stop(self, *, consumed: bool = True) -> None:
        """Pull no more, store the offsets, leave the group.

        With ``auto_commit`` that is what ``poll`` has given, unless ``consumed`` says that the last of it was not consumed.
        """
        await self.stop_pulling()
        self._ready.clear()
        for asking in list(self._asking):
            self._wake(asking)
        if self.options.auto_commit and consumed:
            self._commit_positions()
        self._handled(consumed)
        await self.leave()

    # ------------------------------------------------------------ messages

    async def poll(self, timeout: Duration | None = None) -> list[ReceivedMessage[T]]:
        """Return messages of one queue; none when there are none within the timeout, or the consumer is stopped.

        Raises NotStartedError and ClientClosedError, and IllegalMessageError for a message of which ``codec`` can make no
        value: the next call goes on behind it.
        """
        self.check()
        milli = milliseconds("timeout", self.options.poll_timeout if timeout is None else timeout, zero=True)
        if self.options.auto_commit:
            self._commit_positions()
        self._handled(True)
        reactor = self.instance.reactor
        ends = reactor.seconds() + milli / 1000
        while self._state is None:
            while self._ready:
                assigned, pulled = self._ready.popleft()
                if not assigned.held.dropped:
                    return self._give(assigned, pulled)
            left = ends - reactor.seconds()
            if left <= 0:
                break
            await self._arrival(left)
        return []

    def _give(self, assigned: AssignedQueue, pulled: list[Pulled]) -> list[ReceivedMessage[T]]:
        messages: list[ReceivedMessage[T]] = []
        bare = queue_without_namespace(self._namespace, assigned.queue)
        done = len(pulled)
        error = None
        for place, one in enumerate(pulled):
            try:
                messages.append(received_message(one.record, bare, self._codec, self._namespace))
            except IllegalMessageError as illegal:
                # The good ones before it come first.
                error, done = (None, place) if messages else (illegal, place + 1)
                self._ready.appendleft((assigned, pulled[done:]))
                break
        position = assigned.held.remove(pulled[:done], int(self.instance.clock_ms()))
        if position is not None:
            self._move(assigned, position)
        assigned.puller.wake()
        if error is not None:
            raise error
        self._out = self.hooks.consumption.begin(assigned.queue, messages)
        return messages

    def _handled(self, consumed: bool) -> None:
        """Tell hooks that the application has done with what it got last."""
        out, self._out = self._out, None
        self.hooks.consumption.end(out, consumed, None)

    async def _arrival(self, seconds: float) -> None:
        """Return when there may be messages, or after the time."""
        asking: Deferred[None] = Deferred()
        self._asking.append(asking)
        asking.addTimeout(seconds, self.instance.reactor)
        try:
            await asking
        except WaitedEnough:
            pass
        finally:
            if asking in self._asking:
                self._asking.remove(asking)

    def _wake(self, asking: Deferred[None]) -> None:
        self._asking.remove(asking)
        asking.callback(None)

    def pulled(self, assigned: AssignedQueue, new: list[Pulled], took_ms: float) -> None:
        """Keep new messages for ``poll``."""
        self._ready.append((assigned, new))
        if self._asking:
            self._wake(self._asking[0])

    def skipped(self, assigned: AssignedQueue, offset: int) -> None:
        """Take note that all before an offset was for others, and nothing waits for ``poll``."""
        if assigned.position is None or offset > assigned.position:
            self._move(assigned, offset)

    def offset_moved(self, assigned: AssignedQueue, offset: int) -> None:
        """Pull from another offset: the one asked for is not there."""
        self.log.warn(
            "{queue}: offset {old} is not there, goes on from {new}",
            queue=assigned,
            old=assigned.next_offset,
            new=offset,
        )
        assigned.next_offset = offset

    def holds_enough(self, assigned: AssignedQueue) -> FlowControl | str | None:
        """Why the queue is pulled no further now; None where it is."""
        held = sum(one.held.count for one in self.assigned.values())
        if held > self.options.max_held:
            return f"{held} messages of all queues wait for poll, more than the {self.options.max_held} allowed"
        return super().holds_enough(assigned)

    # ------------------------------------------------------------ offsets

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on from an offset. Raises UsageError when the queue is not read here, or has no such offset."""
        assigned = self._assigned(queue)
        first = await queue_questions.min_offset(self.instance, assigned.queue)
        behind = await queue_questions.max_offset(self.instance, assigned.queue)
        if not first <= offset <= behind:
            raise UsageError(f"{assigned} has offsets from {first} to {behind}, not {offset}")
        self._seek(queue, offset)

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Go on from the first message there is. Raises as ``seek`` does."""
        self._seek(queue, await queue_questions.min_offset(self.instance, self._assigned(queue).queue))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Go on with the next message that is sent. Raises as ``seek`` does."""
        self._seek(queue, await queue_questions.max_offset(self.instance, self._assigned(queue).queue))

    def _seek(self, queue: MessageQueue, offset: int) -> None:
        self._move(self.replace(self._assigned(queue), offset), offset)

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Store these offsets, or without any how far ``poll`` has given messages; returns when they are stored.

        Raises CommitError when some are not stored, and UsageError for a queue that is not read here.
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

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return the group's offset of a queue, None when there is none. Raises RocketMQError when it is not known."""
        self.check()
        name = queue_with_namespace(self._namespace, queue)
        await self.instance.routes.subscribe_queues(name.topic)
        offset = await self.offsets.read(name, ReadOffsetType.MEMORY_FIRST_THEN_STORE)
        return None if offset == NO_OFFSET else offset

    async def offset_for_timestamp(self, queue: MessageQueue, moment: datetime) -> int:
        """Return the offset of the first message stored at a moment or later; the queue's end when there is none."""
        self.check()
        return await queue_questions.search_offset(self.instance, queue_with_namespace(self._namespace, queue), moment)

    def _commit_positions(self) -> None:
        for queue in self._moved:
            assigned = self.assigned.get(queue)
            if assigned is not None and assigned.position is not None:
                self.offsets.update(queue, assigned.position, False)
        self._moved.clear()

    def _move(self, assigned: AssignedQueue, offset: int) -> None:
        assigned.position = offset
        self._moved.add(assigned.queue)

    def _assigned(self, queue: MessageQueue) -> AssignedQueue:
        self.check()
        assigned = self.assigned.get(queue_with_namespace(self._namespace, queue))
        if assigned is None:
            raise UsageError(
                f"queue {queue.queue_id} of {queue.topic} at {queue.broker_name} is not read by this consumer: it is not "
                "assigned, or it is another's share now"
            )
        return assigned

    # ------------------------------------------------------------ topics

    async def topic_queues(self, topic: str) -> list[MessageQueue]:
        """Return all queues of a topic that can be read. Raises NoRouteError."""
        self.check()
        return await queue_questions.subscribe_queues(self.instance, topic)

    async def watch_queues(self, topic: str, listener: QueueListener) -> None:
        """Have ``listener`` called when a topic has other queues than now. Raises NoRouteError."""
        self._watched[topic] = (listener, await self.topic_queues(topic))

    async def _look_at_watched(self) -> None:
        for topic, (listener, known) in list(self._watched.items()):
            await self.instance.routes.refresh([with_namespace(self._namespace, topic)])
            queues = await self.topic_queues(topic)
            if set(queues) != set(known):
                self._watched[topic] = (listener, queues)
                try:
                    await self.threads.invoke(listener, topic, queues)
                except Exception:
                    self.log.failure("the listener of the queues of {topic} failed", topic=topic)

    # ------------------------------------------------------------ for the instance

    def running_info(self, stacks: bool) -> ConsumerRunningInfo:
        """How it is; with the stacks of what runs, if asked for."""
        return running_info(self, stacks, {"autoCommit": str(self.options.auto_commit).lower()})

    async def consume_directly(self, record: MessageExt, broker_name: str | None) -> ConsumeMessageDirectlyResult:
        """Refuse: there is no handler. Raises RequestError."""
        raise RequestError(
            ResponseCode.SYSTEM_ERROR, f"The Consumer Group <{self.group}> has no handler in this consumer: it polls"
        )
