"""The base of all consumers of a group: subscriptions, a share of the queues, offsets, joining and leaving.

Counterpart: the common parts of `DefaultMQPushConsumerImpl` and `DefaultLitePullConsumerImpl`, with `RebalancePushImpl` and
`RebalanceLitePullImpl` (Apache).
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping
from math import inf
from typing import Any, ClassVar

from twisted.internet.defer import CancelledError, Deferred, ensureDeferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketd.client.consumer.handling.hook_calls import MemberHooks
from rocketd.client.consumer.membership.group_beginning import GroupBeginning
from rocketd.client.consumer.membership.missing_topics import MissingTopics
from rocketd.client.consumer.membership.rebalance import Rebalance
from rocketd.client.consumer.membership.rebalance_listener import RebalanceListener
from rocketd.client.consumer.membership.same_group import warn_of_other_subscriptions
from rocketd.client.consumer.offsets.early_commits import EarlyCommits
from rocketd.client.consumer.offsets.offset_store import OffsetStore
from rocketd.client.consumer.offsets.offset_store_remote import RemoteBrokerOffsetStore
from rocketd.client.consumer.offsets.start_offset import start_offset
from rocketd.client.consumer.options.flow_limits import FlowControl
from rocketd.client.consumer.options.member_options import MemberOptions, consume_from_where, message_model
from rocketd.client.consumer.options.subscription import Sql, subscription_of
from rocketd.client.consumer.pulling.assigned_queue import AssignedQueue, PulledMessage
from rocketd.client.consumer.pulling.queue_puller import QueuePuller
from rocketd.client.errors import (
    ClientClosedError,
    ClientStateError,
    NotStartedError,
    RequestTimeoutError,
    RocketMQError,
    UnreachableError,
    check_consumer_group,
    check_group,
    check_topic,
)
from rocketd.client.instance.all_of import all_of
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.client.messages.codec import Codec
from rocketd.client.messages.namespace import queue_with_namespace, queue_without_namespace, with_namespace
from rocketd.client.queries.queues import first_since
from rocketd.client.runtime.listeners import HandlerThreads
from rocketd.client.settings.config import milliseconds
from rocketd.common.event_loop import timers
from rocketd.common.names import retry_topic
from rocketd.remoting.bodies.admin import ConsumeMessageDirectlyResult, ConsumerRunningInfo
from rocketd.remoting.bodies.tables import ConsumerData, ConsumeType, MessageQueue, SubscriptionData
from rocketd.store.format.record import MessageExt

LOCK_SECONDS = 1.0
"""Time after which a queue is tried again that another member has locked. Its handler may still run."""


class GroupMember(ABC):
    """A consumer of one group. All methods belong to the reactor thread.

    ``thread_limit`` is the number of application functions running at once. ``run_coroutine`` runs the coroutines of its
    coroutine functions; ``run_listener`` those of the functions for a rebalance, if it is another one. From
    ``handling_timeout_ms`` on, hooks are told of a timeout. The constructor raises IllegalGroupError.
    """

    log = Logger()
    consume_type: ClassVar[ConsumeType]
    pull_flags: int
    suspend_ms: int
    in_order = False
    """Whether the messages of each queue are handled one after the other."""

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        options: MemberOptions,
        codec: Codec[Any],
        thread_limit: int,
        run_coroutine: Callable[[Any], Deferred[Any]],
        handling_timeout_ms: float = inf,
        run_listener: Callable[[Any], Deferred[Any]] | None = None,
    ) -> None:
        check_group(group)
        self.options = options
        self.group = with_namespace(instance.config.namespace, group)
        check_consumer_group(self.group)
        self.instance = instance
        self.suspended = False
        self.assigned: dict[MessageQueue, AssignedQueue] = {}
        self.subscriptions: dict[str, SubscriptionData] = {}
        self.threads = HandlerThreads(instance.reactor, f"rocketd-consume-{self.group}", thread_limit, run_coroutine)
        self.listener = RebalanceListener(instance, self.group, options, run_listener or run_coroutine)
        self.hooks = MemberHooks(instance, self.group, options, codec, handling_timeout_ms)
        self._files: HandlerThreads | None = None
        if options.broadcast:
            # Handlers may block all their threads, some for ever. So the offset file has a separate thread.
            self._files = HandlerThreads(instance.reactor, f"rocketd-offsets-{self.group}", 1, run_coroutine)
        self.offsets: OffsetStore = self._offset_store()
        self.missing = MissingTopics(self)
        self._beginning = GroupBeginning(self)
        self._rebalance = Rebalance(self)
        self._early_commits = EarlyCommits(instance.reactor, self._persist_each)
        self._loops: list[timers.ClockedLoop] = []
        self._state: type[ClientStateError] | None = NotStartedError
        self.started_ms = 0
        self.newest_ms: dict[MessageQueue, int] = {}

    def _offset_store(self) -> OffsetStore:
        instance = self.instance
        if self._files is not None:
            # Not at the top: only broadcasting consumers have files.
            from rocketd.client.consumer.offsets.offset_store_local import (
                DEFAULT_DIRECTORY,
                LocalFileOffsetStore,
                offsets_path,
            )

            path = offsets_path(instance.client_id, self.group, self.options.offset_directory or DEFAULT_DIRECTORY)
            return LocalFileOffsetStore(path, self._files.run)
        timeout_ms = instance.config.timeout_ms
        return RemoteBrokerOffsetStore(
            self.group,
            lambda broker, request: instance.remoting.invoke_sync(instance.group_broker(broker), request, timeout_ms),
            lambda broker, request: instance.remoting.invoke_oneway(instance.group_broker(broker), request, timeout_ms),
            instance.outages.covers,
        )

    # ------------------------------------------------------------ subscriptions

    def subscribe(self, topic: str, wanted: str | Sql | None = None) -> None:
        """Subscribe to a topic: messages with a tag of ``TagA || TagB``, those selected by an Sql, or all.

        Raises:

        - IllegalTopicError: the topic name is invalid.
        - UsageError: the Sql is empty.
        - ClientClosedError: the consumer is stopped.
        """
        check_topic(topic)
        if self._state is ClientClosedError:
            raise ClientClosedError(f"consumer {self.group} is stopped: make a new one")
        name = with_namespace(self.instance.config.namespace, topic)
        self.subscriptions[name] = subscription_of(name, wanted, int(self.instance.now_ms()))
        if self._state is None:
            self._beginning.add(name)
            ensureDeferred(self._announce(name)).addErrback(self._not_subscribed, name)

    def unsubscribe(self, topic: str) -> None:
        """Stop consuming a topic, from the next rebalance on, which begins soon."""
        name = with_namespace(self.instance.config.namespace, topic)
        self.subscriptions.pop(name, None)
        self.missing.forget(name)
        self._beginning.forget(name)
        self.rebalance_soon()

    async def _announce(self, topic: str) -> None:
        try:
            await self.missing.find([topic])
        finally:
            await self._beginning.ask([topic])
        await self.instance.send_heartbeats()
        self.rebalance_soon()

    def _not_subscribed(self, failure: Failure, topic: str) -> None:
        if failure.check(RocketMQError):
            self.log.warn(
                "group {group} subscribes to {topic}: {error}", group=self.group, topic=topic, error=failure.value
            )
            self.rebalance_soon()
        elif not failure.check(CancelledError):
            self.log.failure("subscribing", failure)

    async def topics_found(self, topics: list[str]) -> None:
        """Begin with topics that were missing."""
        if self._state is not None:
            return
        try:
            await self._rebalance.check_expressions(topics)
        except RocketMQError as error:
            self.log.error("group {group}: {error}", group=self.group, error=error)
        await self.instance.send_heartbeats()
        self.rebalance_soon()

    # ------------------------------------------------------------ start and stop

    @abstractmethod
    async def start(self) -> None:
        """Start: ``join``, and the rest for the kind of consumer."""

    @abstractmethod
    async def stop(self) -> None:
        """Stop, also after a failed start: ``stop_pulling`` and ``leave``."""

    def check(self) -> None:
        """Raise NotStartedError or ClientClosedError unless the consumer runs, or calls ``on_revoked`` before its end."""
        if self.listener.is_calling:
            return
        if self._state is NotStartedError:
            raise NotStartedError(f"consumer {self.group} is not started: start it, or use it in a with block")
        if self._state is not None:
            raise ClientClosedError(f"consumer {self.group} is stopped: make a new one")

    async def join(self) -> bool:
        """Join the group and take a first share of the queues. Return False if the consumer was stopped meanwhile.

        Raises:

        - NoRouteError: a topic is unknown, with ``missing="raise"``, or the addresses of the name servers are wrong.
        - GroupInUseError: another consumer of the group has this client id.
        - OffsetFileError: the offset file cannot be read.
        - BrokerError: a broker refuses the expression of a subscription.
        - ClientStateError: the consumer was started before.
        """
        if self._state is not NotStartedError:
            raise ClientStateError(f"consumer {self.group} was started already")
        await self.missing.find(
            # The broker creates the retry topic.
            [topic for topic in self.subscriptions if topic != retry_topic(self.group)]
        )
        if self._is_stopped():
            return False
        await self.offsets.load()
        if self._is_stopped():
            return False
        for topic in self.subscriptions:
            self._beginning.add(topic)
        await self._beginning.ask(list(self.subscriptions))
        if self._is_stopped():
            return False
        self.started_ms = int(self.instance.now_ms())
        self.instance.add_consumer(self)
        warn_of_other_subscriptions(self, self.instance)
        self._state = None
        self.hooks.start()
        await self._rebalance.check_expressions(self.subscriptions)
        await self.instance.send_heartbeats()
        await self._rebalance.now()
        if self._is_stopped():
            return False
        self.repeat(milliseconds("rebalance_interval", self.options.rebalance_interval), self._rebalance_again)
        self.repeat(milliseconds("persist_interval", self.options.persist_interval), self._persist)
        return True

    def _is_stopped(self) -> bool:
        return self._state is ClientClosedError

    async def stop_pulling(self) -> None:
        """Stop pulling and all timers."""
        self._state = ClientClosedError
        for loop in self._loops:
            loop.stop()
        self._loops.clear()
        self._early_commits.stop()
        self.missing.stop()
        await self._rebalance.stop()
        for assigned in self.assigned.values():
            assigned.puller.stop()

    async def leave(self) -> None:
        """Store the offsets, release the queues and leave the group, after ``stop_pulling``."""
        await self._release(self.assigned.values())
        await self.hooks.stop()
        for assigned in self.assigned.values():
            assigned.held.dropped = True
        await self.offsets.persist_all(list(self.assigned), oneway=False)
        await self.unlock(self.assigned)
        self.assigned.clear()
        await self.instance.remove_consumer(self)
        if self._files is not None:
            await self._files.stop()
        await self.listener.stop()
        await self.threads.stop()

    def repeat(self, interval_ms: float, function: Callable[[], Awaitable[None]]) -> None:
        """Call a coroutine function at this interval until the consumer stops."""

        def run() -> Deferred[None]:
            running: Deferred[None] = ensureDeferred(function())  # type: ignore[arg-type]
            return running.addErrback(lambda failure: self.log.failure("a task of the consumer failed", failure))

        loop = timers.ClockedLoop(self.instance.reactor, run)
        loop.start(interval_ms / 1000, now=False)
        self._loops.append(loop)

    # ------------------------------------------------------------ while it runs

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Stop pulling these queues until ``unpause``. Messages already pulled are handled."""
        self._pause(queues, True)

    def unpause(self, queues: Iterable[MessageQueue]) -> None:
        """Pull these queues again."""
        self._pause(queues, False)

    def _pause(self, queues: Iterable[MessageQueue], paused: bool) -> None:
        for queue in queues:
            assigned = self.assigned.get(queue_with_namespace(self.instance.config.namespace, queue))
            if assigned is not None:
                assigned.paused = paused
                if paused:
                    assigned.puller.interrupt()

    def holdings(self) -> tuple[int, int]:
        """Return the numbers of held messages and of queues, those without retry topics. Any thread."""
        assigned = list(self.assigned.values())
        retry = retry_topic(self.group)
        return sum(each.held.count for each in assigned), sum(each.queue.topic != retry for each in assigned)

    def queues(self) -> list[MessageQueue]:
        """Return this consumer's share of the queues, without retry topics."""
        namespace = self.instance.config.namespace
        return [
            queue_without_namespace(namespace, queue)
            for queue in sorted(self.assigned)
            if queue.topic != retry_topic(self.group)
        ]

    # ------------------------------------------------------------ for the instance

    def consumer_data(self) -> ConsumerData:
        """Return the entry of this consumer in heartbeats."""
        return ConsumerData(
            self.group,
            self.consume_type,
            message_model(self.options),
            consume_from_where(self.options),
            list(self.subscriptions.values()),
        )

    def rebalance_soon(self) -> None:
        """Start a rebalance. If one is running, another follows it."""
        if self._state is None:
            self._rebalance.soon()

    def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Continue from these offsets, chosen by an administrator."""
        for queue, offset in offsets.items():
            assigned = self.assigned.get(queue)
            if assigned is None or queue.topic != topic:
                continue
            if assigned.given_up:
                assigned.is_reset = True
                assigned.position = None
                self.drop(assigned)
                self.offsets.update(queue, offset, False)
            else:
                self.log.info("{queue}: the offset was reset, continuing from {offset}", queue=assigned, offset=offset)
                self.go_on_from(assigned, offset)

    def offsets_of(self, topic: str) -> Mapping[MessageQueue, int]:
        """Return the offsets of the queues of a topic."""
        return self.offsets.clone(topic)

    # ------------------------------------------------------------ for pullers

    def may_pull(self, assigned: AssignedQueue) -> bool:
        """Whether this consumer may read the queue now."""
        return True

    def holds_enough(self, assigned: AssignedQueue) -> FlowControl | str | None:
        """Return the reason to hold the next pull back; None if it may begin."""
        limits = self.options.limits
        topic = assigned.queue.topic
        queues = sum(queue.topic == topic for queue in self.assigned) if limits.of_topics else 1
        return assigned.held.flow_control(limits.of_queue(max(1, queues), in_order=self.in_order))

    def offset_to_commit(self, queue: MessageQueue) -> int:
        """Return the offset to commit with a pull from the master; 0 for none."""
        return 0

    @abstractmethod
    def pulled(self, assigned: AssignedQueue, new: list[PulledMessage], took_ms: float) -> None:
        """Accept new messages. ``took_ms`` is the duration of the pull."""

    @abstractmethod
    def running_info(self, stacks: bool) -> ConsumerRunningInfo:
        """Return the state of the consumer, with the stacks of all threads if ``stacks``."""

    @abstractmethod
    def consume_directly(self, record: MessageExt, broker_name: str | None) -> Awaitable[ConsumeMessageDirectlyResult]:
        """Have the handler consume one message now."""

    def skipped(self, assigned: AssignedQueue, offset: int) -> None:
        """Note that all messages before ``offset`` were filtered out, and none is held."""
        # The group need not read them again.
        self.offsets.update(assigned.queue, offset, True)

    def ran_empty(self, assigned: AssignedQueue) -> None:
        """Store the offset of a queue soon, because all messages held are finished."""
        if not self.options.broadcast and self._state is None and self.assigned.get(assigned.queue) is assigned:
            self._early_commits.add(assigned.queue)

    async def offset_moved(self, assigned: AssignedQueue, offset: int, end: int) -> None:
        """Continue from another offset, because the requested one does not exist. ``end`` is that of the queue.

        Raises RocketMQError.
        """
        found = await self._place_after_move(assigned, offset, end)
        if self.assigned.get(assigned.queue) is not assigned or assigned.is_ending:
            return
        self.log.warn(
            "{queue}: offset {old} is not available, continuing from {new}",
            queue=assigned,
            old=assigned.next_offset,
            new=found,
        )
        self.move(assigned, found)

    def move(self, assigned: AssignedQueue, offset: int) -> None:
        """Continue from another offset, after the broker refused the requested one."""
        self.go_on_from(assigned, offset)

    async def _place_after_move(self, assigned: AssignedQueue, offset: int, end: int) -> int:
        """Return the place for a requested offset that does not exist: by default that of the broker.

        If a queue ends before a pulled message, its topic was recreated, or it has lost its last messages. Then the place is
        the first message stored at or after the store time of the last one pulled.
        """
        newest_ms = self.newest_ms.get(assigned.queue)
        if newest_ms is None or assigned.next_offset <= end:
            return offset
        return min(end, await first_since(self.instance, self.group, assigned.queue, newest_ms))

    def topic_deleted(self, assigned: AssignedQueue) -> None:
        """End with a queue whose topic was deleted at the broker.

        The next rebalance gives it up, and takes it again if the topic is recreated: its offsets start afresh.
        """
        self.log.warn("{queue}: its topic was deleted, and its offset is forgotten", queue=assigned)
        assigned.is_deleted = True
        assigned.position = None
        self.drop(assigned)
        self.offsets.forget_deleted(assigned.queue)

    def go_on_from(self, assigned: AssignedQueue, offset: int) -> None:
        """Drop a queue, take it again from an offset, and store the offset."""
        self.replace(assigned, offset)
        self.offsets.update(assigned.queue, offset, False)
        ensureDeferred(self.offsets.persist(assigned.queue, oneway=False)).addErrback(
            lambda failure: self.log.failure("storing an offset", failure)
        )

    def replace(self, assigned: AssignedQueue, offset: int) -> AssignedQueue:
        """Drop a queue and take it again from an offset. Return the new AssignedQueue."""
        self.drop(assigned)
        fresh = AssignedQueue(assigned.queue, assigned.subscription, int(self.instance.clock_ms()))
        fresh.paused = assigned.paused
        fresh.announced = assigned.announced
        fresh.is_successor = True
        if assigned.held.locked:
            fresh.held.lock(assigned.held.last_lock_ms)
        self.assigned[assigned.queue] = fresh
        self._begin(fresh, offset)
        return fresh

    # ------------------------------------------------------------ for rebalancing

    def chosen(self, topic: str) -> set[MessageQueue] | None:
        """Return the queues chosen by the application; None if the group shares them."""
        return None

    async def lock(self, assigned: AssignedQueue) -> bool:
        """Ask the broker for the queue. Return False if another consumer has it or the broker does not answer."""
        return True

    async def unlock(self, assigned: Mapping[MessageQueue, AssignedQueue]) -> None:  # noqa: B027 - only locked ones need it
        """Release queues for other consumers."""

    async def let_end(self, queues: list[AssignedQueue]) -> None:  # noqa: B027 - only handlers can run
        """Start no more handlers for queues, and wait a moment for the running ones, so that their results count."""

    async def finish(self, assigned: AssignedQueue) -> None:  # noqa: B027 - only orderly ones wait
        """Wait for the handlers of a dropped queue, if the next consumer must wait for them."""

    async def take(self, queue: MessageQueue) -> bool:
        """Begin with a queue. Return False if this is impossible now, or its topic no longer subscribed.

        Raises RequestTimeoutError and UnreachableError if its broker does not answer.
        """
        subscription = self.subscriptions.get(queue.topic)
        if subscription is None:
            return False
        assigned = AssignedQueue(queue, subscription, int(self.instance.clock_ms()))
        assigned.is_successor = True  # a handler may run from before the queue was lost
        if not await self.lock(assigned):
            self._rebalance.later(LOCK_SECONDS)
            return False
        self.offsets.remove(queue)
        try:
            offset = await start_offset(
                self.instance,
                self.group,
                queue,
                self.offsets,
                lambda: self._beginning.place_of(queue.topic),
                broadcast=self.options.broadcast,
            )
        except (RequestTimeoutError, UnreachableError):
            raise
        except RocketMQError as error:
            self.log.warn("{queue}: the start offset is not known, trying again: {error}", queue=assigned, error=error)
            return False
        if self._state is not None or queue in self.assigned:
            return False
        self.assigned[queue] = assigned
        assigned.announced = not self.listener.present
        self._begin(assigned, offset)
        return True

    async def announce(self) -> None:
        """Call ``on_assigned`` for new queues, and then begin to pull them."""
        new = [assigned for assigned in self.assigned.values() if not assigned.announced]
        if not new:
            return
        await self.listener.assigned(new)
        for one in new:
            assigned = self.assigned.get(one.queue)  # another one after a seek
            if assigned is not None:
                assigned.announced = True
                assigned.puller.start()

    def rebalanced(self, topics: Iterable[str]) -> None:
        """Note that a rebalance of these topics is over."""
        self._beginning.rebalanced(topics)

    async def give_up(self, queues: list[MessageQueue]) -> None:
        """End with queues: stop their work, store their offsets, and release them for others.

        If it is cancelled while ``on_revoked`` or ``on_lost`` runs, it still ends with all queues.
        """
        cancelled: CancelledError | None = None
        given_up = [self.assigned[queue] for queue in queues]
        try:
            await self._release(given_up)
            await self.let_end(given_up)
        except CancelledError as error:
            cancelled = error
        for queue in queues:
            assigned = self.assigned.pop(queue)
            assigned.given_up = True
            self.drop(assigned)
            await self.finish(assigned)
            # After the unlock the next member reads the offset, which the broker must have by then.
            await self.offsets.persist(queue, oneway=not self.in_order)
            self.offsets.remove(queue)
            await self.unlock({queue: assigned})
        if cancelled is not None:
            raise cancelled

    async def _release(self, queues: Iterable[AssignedQueue]) -> None:
        """Call ``on_revoked`` or ``on_lost`` after no further handlers start. Queues in order have no handler then."""
        if not self.listener.present:
            return
        known = [assigned for assigned in queues if assigned.announced and not assigned.given_up]
        for assigned in known:
            assigned.given_up = True
            assigned.puller.stop()
            self.withdraw(assigned)
        for assigned in known:
            await self.finish(assigned)
        # The next member may begin before a slow listener ends.
        await all_of(self.offsets.persist(assigned.queue) for assigned in known)
        lost = [assigned for assigned in known if not self.is_locked(assigned)]
        await self.listener.lost(lost)
        await self.listener.revoked(assigned for assigned in known if assigned not in lost)

    def withdraw(self, assigned: AssignedQueue) -> None:  # noqa: B027 - only handlers can be withheld
        """Start no more handlers for a queue."""

    def is_locked(self, assigned: AssignedQueue) -> bool:
        """Whether this consumer has the queue exclusively now, or needs no lock."""
        return True

    def _begin(self, assigned: AssignedQueue, offset: int) -> None:
        assigned.next_offset = offset
        assigned.puller = QueuePuller(self, assigned, self.hooks.keep)
        if assigned.announced:
            assigned.puller.start()

    def drop(self, assigned: AssignedQueue) -> None:
        """Stop pulling a queue and handling its messages. Handlers still running no longer count."""
        assigned.held.dropped = True
        assigned.puller.stop()

    # ------------------------------------------------------------ timers

    async def _rebalance_again(self) -> None:
        self._rebalance.soon()

    async def _persist_each(self, queues: Iterable[MessageQueue]) -> None:
        await all_of(self.offsets.persist(queue, oneway=False) for queue in queues if queue in self.assigned)

    async def _persist(self) -> None:
        await self.offsets.persist_all(list(self.assigned), oneway=False)
