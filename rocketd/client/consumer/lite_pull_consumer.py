"""A consumer with ``poll``, for a share of the queues or for queues named by the application.

Counterpart: `DefaultLitePullConsumer`, `DefaultLitePullConsumerImpl` and `AssignedMessageQueue` (Apache). Unlike Apache,
auto-commit covers a polled message only after the next ``poll``, or on closing.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable
from typing import Any, Generic

from twisted.internet.defer import Deferred, ensureDeferred
from twisted.internet.defer import TimeoutError as WaitedEnough
from twisted.logger import Logger

from rocketd.client.consumer.membership.running_info import running_info
from rocketd.client.consumer.membership.seekable_member import SeekableMember
from rocketd.client.consumer.options.flow_limits import FlowControl
from rocketd.client.consumer.options.kind_options import LitePullOptions
from rocketd.client.consumer.options.subscription import Sql, subscription_of
from rocketd.client.consumer.pulling.assigned_queue import AssignedQueue, PulledMessage
from rocketd.client.errors import ClientClosedError, IllegalMessageError, UsageError, check_topic
from rocketd.client.hooks import ConsumeMessageContext
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.client.messages.codec import BYTES, Codec
from rocketd.client.messages.message import ReceivedMessage, T
from rocketd.client.messages.namespace import queue_with_namespace, queue_without_namespace, with_namespace
from rocketd.client.messages.received import received_message
from rocketd.client.queries import queues as queue_queries
from rocketd.client.settings.config import Duration, milliseconds
from rocketd.client.stats import ConsumerStats
from rocketd.common.sysflag import PULL_LITE, PULL_SUBSCRIPTION, PULL_SUSPEND
from rocketd.remoting.bodies.admin import ConsumeMessageDirectlyResult, ConsumerRunningInfo
from rocketd.remoting.bodies.tables import ConsumerData, ConsumeType, MessageQueue
from rocketd.remoting.errors import RequestError
from rocketd.remoting.wire.codes import ResponseCode
from rocketd.store.format.record import MessageExt

QueueListener = Callable[[str, list[MessageQueue]], Any]
"""Gets a topic and its queues after they have changed. May be a coroutine function."""


class LitePullConsumerEngine(SeekableMember, Generic[T]):
    """A polling consumer of one group, between ``start`` and ``stop``. All methods belong to the reactor thread.

    Call either ``subscribe`` or ``assign``, before ``start`` or later. The constructor raises IllegalGroupError.
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
        self._ready: deque[tuple[AssignedQueue, list[PulledMessage]]] = deque()
        self._asking: deque[Deferred[None]] = deque()
        self._moved: set[MessageQueue] = set()
        self._out: ConsumeMessageContext | None = None
        self._given: tuple[AssignedQueue, list[PulledMessage], int | None, ReceivedMessage[T]] | None = None
        """The messages polled last: their queue, its position before, and the first as it was given."""
        self._polled = 0
        self._watched: dict[str, tuple[QueueListener, list[MessageQueue]]] = {}

    # ------------------------------------------------------------ what it reads

    def subscribe(self, topic: str, wanted: str | Sql | None = None) -> None:
        """Read a share of a topic's queues. Raises UsageError after ``assign``, and the errors of GroupMember."""
        if self._chosen is not None:
            raise UsageError(f"consumer {self.group} has queues assigned: it cannot subscribe, too")
        super().subscribe(topic, wanted)

    async def assign(self, queues: Collection[MessageQueue], wanted: str | Sql | None = None) -> None:
        """Read exactly these queues from now on, independently of other members.

        Before ``start``, it takes effect at the start. ``wanted`` is as in ``subscribe``. Raises UsageError after
        ``subscribe``, or if ``queues`` is empty.
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
        """Return the assigned queues; None if the group shares them."""
        if self._chosen is None:
            return None
        return {queue for queue in self._chosen if queue.topic == topic}

    def unsubscribe(self, topic: str) -> None:
        """Stop reading a topic."""
        if self._chosen is not None:
            name = with_namespace(self._namespace, topic)
            self._chosen = {queue for queue in self._chosen if queue.topic != name}
        super().unsubscribe(topic)

    def consumer_data(self) -> ConsumerData:
        """Return the entry in heartbeats. Assigned queues are left out, because the group does not share them."""
        data = super().consumer_data()
        if self._chosen is not None:
            data.subscription_data_set = []
        return data

    # ------------------------------------------------------------ start and stop

    async def start(self) -> None:
        """Join the group. Return after the first share of queues is taken. Raises the errors of ``join``."""
        if await self.join():
            self.repeat(milliseconds("watch_interval", self.options.watch_interval), self._look_at_watched)

    async def stop(self, *, consumed: bool = True) -> None:
        """Stop pulling, store the offsets, leave the group.

        With ``auto_commit``, all polled messages are committed, unless ``consumed`` is False: the last ones were not
        consumed.
        """
        await self.stop_pulling()
        self._ready.clear()
        for asking in list(self._asking):
            self._wake(asking)
        if not consumed:
            self._moved.clear()  # else a ``commit`` in on_revoked would cover them
        elif self.options.auto_commit:
            self._commit_positions()
        self._handled(consumed)
        await self.leave()

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Stop pulling these queues, and giving out their messages, until ``unpause``."""
        super().pause(queues)

    def unpause(self, queues: Iterable[MessageQueue]) -> None:
        """Pull these queues again."""
        super().unpause(queues)
        if self._ready and self._asking:
            self._wake(self._asking[0])

    # ------------------------------------------------------------ messages

    async def poll(self, timeout: Duration | None = None) -> list[ReceivedMessage[T]]:
        """Return messages of one queue; an empty list after the timeout or if the consumer is stopped.

        Raises:

        - NotStartedError, ClientClosedError: the consumer does not run.
        - IllegalMessageError: ``codec`` cannot decode a message. The next call continues after it.
        """
        self.check()
        milli = milliseconds("timeout", self.options.poll_timeout if timeout is None else timeout, zero=True)
        self._consumed()
        reactor = self.instance.reactor
        ends = reactor.seconds() + milli / 1000
        while self._state is None:
            if messages := self._take_ready():
                return messages
            left = ends - reactor.seconds()
            if left <= 0:
                break
            await self._arrival(left)
        return []

    async def next_message(self) -> ReceivedMessage[T] | None:
        """Return the next message of an iteration, however long that takes; None after the consumer was stopped.

        Raises UsageError if another call waits for messages, and the errors of ``poll``.
        """
        if self._state is ClientClosedError:
            return None
        self.check()
        if self._asking:
            raise UsageError("another call already waits for messages: one task at a time polls or iterates")
        self._consumed()
        while self._state is None:
            if messages := self._take_ready(1):
                return messages[0]
            await self._arrival()
        return None

    def _consumed(self) -> None:
        """Note that the messages given out before are consumed."""
        self._given = None
        if self.options.auto_commit:
            self._commit_positions()
        self._handled(True)

    def _take_ready(self, limit: int | None = None) -> list[ReceivedMessage[T]]:
        """Return messages of one queue, ``limit`` of those pulled together; an empty list if there are none."""
        if any(assigned.is_ending for assigned, _ in self._ready):
            self._ready = deque(entry for entry in self._ready if not entry[0].is_ending)
        for place, (assigned, pulled) in enumerate(self._ready):
            if assigned.paused:
                continue
            del self._ready[place]
            if limit is not None and len(pulled) > limit:
                self._ready.insert(place, (assigned, pulled[limit:]))
            return self._give(assigned, pulled[:limit])
        return []

    def _give(self, assigned: AssignedQueue, pulled: list[PulledMessage]) -> list[ReceivedMessage[T]]:
        messages: list[ReceivedMessage[T]] = []
        bare = queue_without_namespace(self._namespace, assigned.queue)
        done = len(pulled)
        error = None
        for place, one in enumerate(pulled):
            try:
                messages.append(received_message(one.record, bare, self._codec, self._namespace))
            except IllegalMessageError as illegal:
                # The good messages before it come first.
                error, done = (None, place) if messages else (illegal, place + 1)
                if pulled[done:]:
                    self._ready.appendleft((assigned, pulled[done:]))
                break
        before = assigned.position
        position = assigned.held.remove(pulled[:done], int(self.instance.clock_ms()))
        if position is not None:
            self._move(assigned, position)
        assigned.puller.wake()
        if error is not None:
            raise error
        self._out = self.hooks.consumption.begin(assigned.queue, messages)
        self._polled += len(messages)
        self._given = assigned, pulled[:done], before, messages[0]
        return messages

    def put_back(self, messages: list[ReceivedMessage[T]]) -> None:
        """Give the messages polled last out again, because their caller was cancelled before it got them."""
        given, self._given = self._given, None
        if given is None or not messages:
            return
        assigned, pulled, position, first = given
        if first is not messages[0] or assigned.is_ending:
            return
        assigned.held.put(pulled)
        assigned.position = position
        self._polled -= len(messages)
        self._handled(False)
        self._ready.appendleft((assigned, pulled))
        if self._asking:
            self._wake(self._asking[0])

    def stats(self) -> ConsumerStats:
        """Return the numbers since the start. Any thread."""
        return ConsumerStats(self._polled, 0, 0.0, *self.holdings())

    def _handled(self, consumed: bool) -> None:
        """Tell the hooks the result of the last polled messages."""
        out, self._out = self._out, None
        self.hooks.consumption.end(out, consumed, None)

    async def _arrival(self, seconds: float | None = None) -> None:
        """Wait until messages may be there, or until the time is over, if there is a limit."""
        asking: Deferred[None] = Deferred()
        self._asking.append(asking)
        if seconds is not None:
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

    def pulled(self, assigned: AssignedQueue, new: list[PulledMessage], took_ms: float) -> None:
        """Keep new messages for ``poll``."""
        self._ready.append((assigned, new))
        if self._asking:
            self._wake(self._asking[0])

    def skipped(self, assigned: AssignedQueue, offset: int) -> None:
        """Note that all messages before ``offset`` were filtered out, and none waits for ``poll``."""
        if assigned.position is None or offset > assigned.position:
            self._move(assigned, offset)

    def move(self, assigned: AssignedQueue, offset: int) -> None:
        """Pull from another offset, after the broker refused the requested one. Messages that wait for ``poll`` stay."""
        assigned.next_offset = offset

    def holds_enough(self, assigned: AssignedQueue) -> FlowControl | str | None:
        """Return the reason to hold the next pull back; None if it may begin."""
        held = sum(one.held.count for one in self.assigned.values())
        if held > self.options.max_held:
            return f"{held} messages of all queues wait for poll, more than the {self.options.max_held} allowed"
        return super().holds_enough(assigned)

    # ------------------------------------------------------------ offsets

    async def _continue_from(self, assigned: AssignedQueue, offset: int) -> None:
        self._move(self.replace(assigned, offset), offset)

    def _commit_positions(self) -> None:
        for queue in self._moved:
            assigned = self.assigned.get(queue)
            if assigned is not None and assigned.position is not None:
                self.offsets.update(queue, assigned.position, False)
        self._moved.clear()

    def _move(self, assigned: AssignedQueue, offset: int) -> None:
        assigned.position = offset
        self._moved.add(assigned.queue)

    # ------------------------------------------------------------ topics

    async def topic_queues(self, topic: str) -> list[MessageQueue]:
        """Return all readable queues of a topic. Raises NoRouteError."""
        self.check()
        return await queue_queries.subscribe_queues(self.instance, topic)

    async def watch_queues(self, topic: str, listener: QueueListener) -> None:
        """Call ``listener`` whenever the queues of a topic change. Raises NoRouteError."""
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
        """Return the state of the consumer, with the stacks of all threads if ``stacks``."""
        return running_info(self, stacks, {"autoCommit": str(self.options.auto_commit).lower()})

    async def consume_directly(self, record: MessageExt, broker_name: str | None) -> ConsumeMessageDirectlyResult:
        """Refuse, because a polling consumer has no handler. Raises RequestError."""
        raise RequestError(
            ResponseCode.SYSTEM_ERROR, f"The Consumer Group <{self.group}> has no handler in this consumer: it polls"
        )
