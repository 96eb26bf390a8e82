"""What all consumers of a group have in common: subscriptions, a share of the queues, offsets, and joining and leaving.

Answers to what DefaultMQPushConsumerImpl and DefaultLitePullConsumerImpl do alike, and to RebalancePushImpl and
RebalanceLitePullImpl.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping
from math import inf
from typing import Any, ClassVar

from twisted.internet.defer import Deferred, ensureDeferred
from twisted.internet.task import deferLater
from twisted.logger import Logger

from rocketd.client.codec import Codec
from rocketd.client.config import milliseconds
from rocketd.client.consumer.flow_control import FlowControl
from rocketd.client.consumer.hooked import MemberHooks
from rocketd.client.consumer.member_options import MemberOptions
from rocketd.client.consumer.offset_store import OffsetStore
from rocketd.client.consumer.offset_store_local import DEFAULT_DIRECTORY, LocalFileOffsetStore, offsets_path
from rocketd.client.consumer.offset_store_remote import RemoteBrokerOffsetStore
from rocketd.client.consumer.pulled import AssignedQueue, Pulled
from rocketd.client.consumer.queue_puller import QueuePuller
from rocketd.client.consumer.rebalance import Rebalance
from rocketd.client.consumer.same_group import warn_of_other_subscriptions
from rocketd.client.consumer.start_offset import start_offset
from rocketd.client.consumer.subscription import Sql, subscription_of
from rocketd.client.errors import (
    ClientClosedError,
    ClientStateError,
    NotStartedError,
    RequestTimeoutError,
    RocketMQError,
    TopicNotFoundError,
    UnreachableError,
    check_group,
    check_topic,
)
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.client.listeners import HandlerThreads
from rocketd.client.namespace import queue_with_namespace, queue_without_namespace, with_namespace
from rocketd.common.clocked_loop import ClockedLoop
from rocketd.common.names import retry_topic
from rocketd.remoting.admin_bodies import ConsumeMessageDirectlyResult, ConsumerRunningInfo
from rocketd.remoting.bodies import ConsumerData, ConsumeType, MessageQueue, SubscriptionData
from rocketd.store.record import MessageExt

ROUTE_LOOKS = 5
"""How often a start looks again for a topic that no name server knows."""

ROUTE_LOOK_SECONDS = 0.1


class GroupMember(ABC):
    """A consumer of one group. All methods belong to the reactor thread.

    ``thread_limit`` is how many functions of the application run at once, ``run_coroutine`` runs what its coroutine
    functions return; from ``handling_timeout_ms`` on, hooks are told that handling took too long. Making it raises
    IllegalGroupError.
    """

    log = Logger()
    consume_type: ClassVar[ConsumeType]
    pull_flags: int
    suspend_ms: int
    in_order = False
    """Whether each queue's messages are handled one after the other."""

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        options: MemberOptions,
        codec: Codec[Any],
        thread_limit: int,
        run_coroutine: Callable[[Any], Deferred[Any]],
        handling_timeout_ms: float = inf,
    ) -> None:
        check_group(group)
        self.options = options
        self.group = with_namespace(instance.config.namespace, group)
        self.instance = instance
        self.suspended = False
        self.assigned: dict[MessageQueue, AssignedQueue] = {}
        self.subscriptions: dict[str, SubscriptionData] = {}
        self.threads = HandlerThreads(instance.reactor, f"rocketd-consume-{self.group}", thread_limit, run_coroutine)
        self.hooks = MemberHooks(instance, self.group, options, codec, handling_timeout_ms)
        self._files: HandlerThreads | None = None
        if options.broadcast:
            # Handlers may keep all of their threads busy, some for ever: their files have one of its own.
            self._files = HandlerThreads(instance.reactor, f"rocketd-offsets-{self.group}", 1, run_coroutine)
        self.offsets: OffsetStore = self._offset_store()
        self._rebalance = Rebalance(self)
        self._loops: list[ClockedLoop] = []
        self._state: type[ClientStateError] | None = NotStartedError
        self.started_ms = 0

    def _offset_store(self) -> OffsetStore:
        instance = self.instance
        if self._files is not None:
            path = offsets_path(instance.client_id, self.group, self.options.offset_directory or DEFAULT_DIRECTORY)
            return LocalFileOffsetStore(path, self._files.run)
        timeout_ms = instance.config.timeout_ms
        return RemoteBrokerOffsetStore(
            self.group,
            lambda broker, request: instance.remoting.invoke_sync(instance.master(broker), request, timeout_ms),
            lambda broker, request: instance.remoting.invoke_oneway(instance.master(broker), request, timeout_ms),
        )

    # ------------------------------------------------------------ subscriptions

    def subscribe(self, topic: str, wanted: str | Sql | None = None) -> None:
        """Consume a topic's messages: those with a tag of ``TagA || TagB``, those an Sql selects, or all.

        Raises IllegalTopicError, and UsageError for an Sql without a text.
        """
        check_topic(topic)
        if self._state is ClientClosedError:
            raise ClientClosedError(f"consumer {self.group} is stopped: make a new one")
        name = with_namespace(self.instance.config.namespace, topic)
        self.subscriptions[name] = subscription_of(name, wanted, int(self.instance.now_ms()))
        if self._state is None:
            ensureDeferred(self._announce()).addErrback(lambda failure: self.log.failure("subscribing", failure))

    def unsubscribe(self, topic: str) -> None:
        """Consume a topic no more, from the next rebalancing on, which is soon."""
        self.subscriptions.pop(with_namespace(self.instance.config.namespace, topic), None)
        self.rebalance_soon()

    async def _announce(self) -> None:
        await self.instance.send_heartbeats()
        self.rebalance_soon()

    # ------------------------------------------------------------ start and stop

    @abstractmethod
    async def start(self) -> None:
        """Begin: ``join``, and what else the kind of consumer needs."""

    @abstractmethod
    async def stop(self) -> None:
        """End, also after a start that failed: ``stop_pulling`` and ``leave``."""

    def check(self) -> None:
        """Raise NotStartedError or ClientClosedError unless it runs."""
        if self._state is NotStartedError:
            raise NotStartedError(f"consumer {self.group} is not started: start it, or use it in a with block")
        if self._state is not None:
            raise ClientClosedError(f"consumer {self.group} is stopped: make a new one")

    async def join(self) -> bool:
        """Join the group and take a first share of the queues; False when it was stopped meanwhile.

        Raises NoRouteError when a topic is not known, GroupInUseError, OffsetFileError, and BrokerError when a broker
        refuses a subscription's expression.
        """
        if self._state is not NotStartedError:
            raise ClientStateError(f"consumer {self.group} was started already")
        for topic in list(self.subscriptions):
            if topic != retry_topic(self.group):  # the broker makes that one
                await self._find(topic)
        if self._is_stopped():
            return False
        await self.offsets.load()
        if self._is_stopped():
            return False
        self.started_ms = int(self.instance.now_ms())
        self.instance.add_consumer(self)
        warn_of_other_subscriptions(self, self.instance)
        self._state = None
        self.hooks.start()
        await self._rebalance.check_expressions()
        await self.instance.send_heartbeats()
        await self._rebalance.now()
        if self._is_stopped():
            return False
        self.repeat(milliseconds("rebalance_interval", self.options.rebalance_interval), self._rebalance_again)
        self.repeat(milliseconds("persist_interval", self.options.persist_interval), self._persist)
        return True

    async def _find(self, topic: str) -> None:
        """Wait for a topic's route a moment: one that its first message has just made is not registered at once."""
        for _ in range(ROUTE_LOOKS):
            try:
                await self.instance.routes.subscribe_queues(topic)
                return
            except TopicNotFoundError:
                await deferLater(self.instance.reactor, ROUTE_LOOK_SECONDS, lambda: None)
        await self.instance.routes.subscribe_queues(topic)

    def _is_stopped(self) -> bool:
        return self._state is ClientClosedError

    async def stop_pulling(self) -> None:
        """Pull no more, and do nothing more from time to time."""
        self._state = ClientClosedError
        for loop in self._loops:
            loop.stop()
        self._loops.clear()
        await self._rebalance.stop()
        for assigned in self.assigned.values():
            assigned.puller.stop()

    async def leave(self) -> None:
        """Store the offsets, let the queues go and leave the group, after ``stop_pulling``."""
        await self.hooks.stop()
        for assigned in self.assigned.values():
            assigned.held.dropped = True
        await self.offsets.persist_all(list(self.assigned), oneway=False)
        await self.unlock(self.assigned)
        self.assigned.clear()
        await self.instance.remove_consumer(self)
        if self._files is not None:
            await self._files.stop()
        await self.threads.stop()

    def repeat(self, interval_ms: float, function: Callable[[], Awaitable[None]]) -> None:
        """Call a coroutine function again and again until it is stopped."""

        def run() -> Deferred[None]:
            running: Deferred[None] = ensureDeferred(function())  # type: ignore[arg-type]
            return running.addErrback(lambda failure: self.log.failure("a task of the consumer failed", failure))

        loop = ClockedLoop(self.instance.reactor, run)
        loop.start(interval_ms / 1000, now=False)
        self._loops.append(loop)

    # ------------------------------------------------------------ while it runs

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Pull these queues no more, until ``unpause``."""
        self._pause(queues, True)

    def unpause(self, queues: Iterable[MessageQueue]) -> None:
        """Pull these queues again."""
        self._pause(queues, False)

    def _pause(self, queues: Iterable[MessageQueue], paused: bool) -> None:
        for queue in queues:
            assigned = self.assigned.get(queue_with_namespace(self.instance.config.namespace, queue))
            if assigned is not None:
                assigned.paused = paused

    def queues(self) -> list[MessageQueue]:
        """Return this consumer's share of the queues; retry topics are not listed."""
        namespace = self.instance.config.namespace
        return [
            queue_without_namespace(namespace, queue)
            for queue in sorted(self.assigned)
            if queue.topic != retry_topic(self.group)
        ]

    # ------------------------------------------------------------ for the instance

    def consumer_data(self) -> ConsumerData:
        """What heartbeats say of this consumer."""
        return ConsumerData(
            self.group,
            self.consume_type,
            self.options.message_model,
            self.options.consume_from_where,
            list(self.subscriptions.values()),
        )

    def rebalance_soon(self) -> None:
        """Share the queues anew; once more when that is under way."""
        if self._state is None:
            self._rebalance.soon()

    def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Go on from these offsets, which an administrator has chosen."""
        for queue, offset in offsets.items():
            assigned = self.assigned.get(queue)
            if assigned is not None and queue.topic == topic:
                self.log.info("{queue}: goes on from {offset}, as it was reset", queue=assigned, offset=offset)
                self.go_on_from(assigned, offset)

    def offsets_of(self, topic: str) -> Mapping[MessageQueue, int]:
        """How far the queues of a topic are consumed."""
        return self.offsets.clone(topic)

    # ------------------------------------------------------------ for pullers

    def may_pull(self, assigned: AssignedQueue) -> bool:
        """Whether the queue is this consumer's to read now."""
        return True

    def holds_enough(self, assigned: AssignedQueue) -> FlowControl | str | None:
        """Why the queue is pulled no further now; None where it is."""
        limits = self.options.limits
        topic = assigned.queue.topic
        queues = sum(queue.topic == topic for queue in self.assigned) if limits.of_topics else 1
        return assigned.held.flow_control(limits.of_queue(max(1, queues), in_order=self.in_order))

    def offset_to_commit(self, queue: MessageQueue) -> int:
        """What a pull from the master commits on its way; 0 for nothing."""
        return 0

    @abstractmethod
    def pulled(self, assigned: AssignedQueue, new: list[Pulled], took_ms: float) -> None:
        """Take new messages, for which the broker took this time."""

    @abstractmethod
    def running_info(self, stacks: bool) -> ConsumerRunningInfo:
        """How it is; with the stacks of what runs, if asked for."""

    @abstractmethod
    def consume_directly(self, record: MessageExt, broker_name: str | None) -> Awaitable[ConsumeMessageDirectlyResult]:
        """Have its handler consume one message now."""

    def skipped(self, assigned: AssignedQueue, offset: int) -> None:
        """Take note that all before an offset was for others, and nothing is held."""
        # The group need not look at it again.
        self.offsets.update(assigned.queue, offset, True)

    def offset_moved(self, assigned: AssignedQueue, offset: int) -> None:
        """Go on from another offset: the one asked for is not there."""
        self.log.warn(
            "{queue}: offset {old} is not there, goes on from {new}",
            queue=assigned,
            old=assigned.next_offset,
            new=offset,
        )
        self.go_on_from(assigned, offset)

    def go_on_from(self, assigned: AssignedQueue, offset: int) -> None:
        """Give a queue up, take it anew from an offset, and store that."""
        self.replace(assigned, offset)
        self.offsets.update(assigned.queue, offset, False)
        ensureDeferred(self.offsets.persist(assigned.queue, oneway=False)).addErrback(
            lambda failure: self.log.failure("storing an offset", failure)
        )

    def replace(self, assigned: AssignedQueue, offset: int) -> AssignedQueue:
        """Give a queue up and take it anew from an offset."""
        self._drop(assigned)
        fresh = AssignedQueue(assigned.queue, assigned.subscription, int(self.instance.clock_ms()))
        fresh.paused = assigned.paused
        if assigned.held.locked:
            fresh.held.lock(assigned.held.last_lock_ms)
        self.assigned[assigned.queue] = fresh
        self._begin(fresh, offset)
        return fresh

    # ------------------------------------------------------------ for rebalancing

    def chosen(self, topic: str) -> set[MessageQueue] | None:
        """Return the queues that the application has chosen itself; None where the group shares them."""
        return None

    async def lock(self, assigned: AssignedQueue) -> bool:
        """Ask the broker for the queue; False when another has it, or the broker does not answer."""
        return True

    async def unlock(self, assigned: Mapping[MessageQueue, AssignedQueue]) -> None:  # noqa: B027 - only locked ones need it
        """Let queues go, so that others get them."""

    async def finish(self, assigned: AssignedQueue) -> None:  # noqa: B027 - only orderly ones wait
        """Return when what is under way of a queue that was given up has ended, where others must wait for that."""

    async def take(self, queue: MessageQueue) -> bool:
        """Begin with a queue; False when that cannot be done now.

        Raises RequestTimeoutError and UnreachableError when its broker does not answer.
        """
        assigned = AssignedQueue(queue, self.subscriptions[queue.topic], int(self.instance.clock_ms()))
        if not await self.lock(assigned):
            return False
        self.offsets.remove(queue)
        try:
            offset = await start_offset(self.instance, self.group, queue, self.options, self.offsets)
        except (RequestTimeoutError, UnreachableError):
            raise
        except RocketMQError as error:
            self.log.warn("{queue}: where to begin is not known, tried again: {error}", queue=assigned, error=error)
            return False
        if self._state is not None or queue in self.assigned:
            return False
        self.assigned[queue] = assigned
        self._begin(assigned, offset)
        return True

    async def give_up(self, queue: MessageQueue) -> None:
        """End with a queue: what is under way of it ends, its offset is stored, others may have it."""
        assigned = self.assigned.pop(queue)
        self._drop(assigned)
        await self.finish(assigned)
        await self.offsets.persist(queue)
        self.offsets.remove(queue)
        await self.unlock({queue: assigned})

    def _begin(self, assigned: AssignedQueue, offset: int) -> None:
        assigned.next_offset = offset
        assigned.puller = QueuePuller(self, assigned, self.hooks.keep)
        assigned.puller.start()

    def _drop(self, assigned: AssignedQueue) -> None:
        assigned.held.dropped = True
        assigned.puller.stop()

    # ------------------------------------------------------------ from time to time

    async def _rebalance_again(self) -> None:
        self._rebalance.soon()

    async def _persist(self) -> None:
        await self.offsets.persist_all(list(self.assigned), oneway=False)
