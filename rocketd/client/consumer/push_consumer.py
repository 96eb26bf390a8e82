"""Consumes topics as one member of a group: takes its share of the queues, has their messages handled, keeps their offsets.

Answers to DefaultMQPushConsumer, DefaultMQPushConsumerImpl and RebalancePushImpl. The three faces of the client hand their
calls to it.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from random import Random
from typing import Any, Generic

from twisted.internet.defer import Deferred, ensureDeferred
from twisted.logger import Logger

from rocketd.client.codec import BYTES, Codec
from rocketd.client.config import milliseconds
from rocketd.client.consumer.concurrent import ConcurrentConsumption
from rocketd.client.consumer.direct import consume_directly
from rocketd.client.consumer.flow_control import FlowLimits
from rocketd.client.consumer.handler import Handler, Listener, Outcome
from rocketd.client.consumer.hooked import HookedConsumption
from rocketd.client.consumer.offset_store import OffsetStore
from rocketd.client.consumer.offset_store_local import DEFAULT_DIRECTORY, LocalFileOffsetStore, offsets_path
from rocketd.client.consumer.offset_store_remote import RemoteBrokerOffsetStore
from rocketd.client.consumer.options import ConsumerOptions, Order
from rocketd.client.consumer.orderly import OrderlyConsumption
from rocketd.client.consumer.pulled import AssignedQueue, Pulled
from rocketd.client.consumer.queue_locks import QueueLocks
from rocketd.client.consumer.queue_puller import QueuePuller
from rocketd.client.consumer.rebalance import Rebalance
from rocketd.client.consumer.running_info import ConsumeStatistics, running_info
from rocketd.client.consumer.send_back import SendBack
from rocketd.client.consumer.start_offset import start_offset
from rocketd.client.consumer.subscription import subscription_of
from rocketd.client.errors import (
    ClientClosedError,
    ClientStateError,
    NotStartedError,
    RocketMQError,
    UsageError,
    check_group,
    check_topic,
)
from rocketd.client.hooks import ConsumerHooks
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.client.listeners import HandlerThreads
from rocketd.client.message import T
from rocketd.client.namespace import with_namespace, without_namespace
from rocketd.client.trace.tracing import ConsumerTracing, Tracing
from rocketd.common.clocked_loop import ClockedLoop
from rocketd.common.names import retry_topic
from rocketd.remoting.admin_bodies import ConsumeMessageDirectlyResult, ConsumerRunningInfo
from rocketd.remoting.bodies import ConsumerData, ConsumeType, MessageQueue, SubscriptionData
from rocketd.store.record import MessageExt

BLOCKED_LOOK_SECONDS = 10.0
"""How often queues are looked at that one message holds back."""


class PushConsumer(Generic[T]):
    """A consumer of one group, between ``start`` and ``stop``. All methods belong to the reactor thread.

    ``subscribe`` comes before ``start``, or later. ``run_coroutine`` runs what coroutine functions of the application
    return. Making it raises IllegalGroupError.
    """

    log = Logger()

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        listener: Listener,
        *,
        options: ConsumerOptions | None = None,
        codec: Codec[T] = BYTES,  # type: ignore[assignment]
        run_coroutine: Callable[[Any], Deferred[Any]] = ensureDeferred,
    ) -> None:
        check_group(group)
        self.options = options or ConsumerOptions()
        namespace = instance.config.namespace
        self.group = with_namespace(namespace, group)
        self.instance = instance
        self.suspended = False
        self.concurrency = self.options.concurrency
        self.assigned: dict[MessageQueue, AssignedQueue] = {}
        self.subscriptions: dict[str, SubscriptionData] = {}
        self.statistics = ConsumeStatistics()
        self.threads = HandlerThreads(
            instance.reactor, f"rocketd-consume-{self.group}", self.concurrency, run_coroutine
        )
        trace = self.options.trace
        self._tracing = Tracing(instance, self.group, "CONSUME", trace, Random()) if trace else None
        self._hooks = ConsumerHooks([*self._traces(), *self.options.consume_hooks])
        timeout_ms = milliseconds("consume_timeout", self.options.consume_timeout)
        self._hooked = HookedConsumption(self._hooks, self.group, namespace, codec, timeout_ms, instance.now_ms)
        self.handler: Handler[T] = Handler(
            listener, codec, namespace, self.threads.invoke, self.options.batch > 1, self._hooked
        )
        self.send_back = SendBack(instance, self.group, self.options.max_reconsume_times)
        self.offsets: OffsetStore = self._offset_store()
        self._locks = QueueLocks(instance, self.group) if self._locks_queues else None
        self._consumption: ConcurrentConsumption | OrderlyConsumption = (
            OrderlyConsumption(self) if self.options.order is Order.QUEUE else ConcurrentConsumption(self)
        )
        self._rebalance = Rebalance(self)
        self._loops: list[ClockedLoop] = []
        self._state: type[ClientStateError] | None = NotStartedError
        self._blocked: dict[MessageQueue, int] = {}
        self.started_ms = 0

    @property
    def _locks_queues(self) -> bool:
        return self.options.order is Order.QUEUE and not self.options.broadcast

    def _traces(self) -> list[ConsumerTracing]:
        return [] if self._tracing is None else [ConsumerTracing(self._tracing)]

    def _offset_store(self) -> OffsetStore:
        instance = self.instance
        if self.options.broadcast:
            path = offsets_path(instance.client_id, self.group, self.options.offset_directory or DEFAULT_DIRECTORY)
            return LocalFileOffsetStore(path, self.threads.run)
        timeout_ms = instance.config.timeout_ms
        return RemoteBrokerOffsetStore(
            self.group,
            lambda broker, request: instance.remoting.invoke_sync(instance.master(broker), request, timeout_ms),
            lambda broker, request: instance.remoting.invoke_oneway(instance.master(broker), request, timeout_ms),
        )

    # ------------------------------------------------------------ subscriptions

    def subscribe(self, topic: str, expression: str | None = None, *, sql: bool = False) -> None:
        """Consume a topic's messages: those with a tag of ``TagA || TagB``, with ``sql`` those an SQL92 text selects.

        Without an expression all. Raises IllegalTopicError, and UsageError for sql without an expression.
        """
        check_topic(topic)
        if self._state is ClientClosedError:
            raise ClientClosedError(f"consumer {self.group} is stopped: make a new one")
        name = with_namespace(self.instance.config.namespace, topic)
        self.subscriptions[name] = subscription_of(name, expression, int(self.instance.now_ms()), sql=sql)
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

    async def start(self) -> None:
        """Join the group; returns when the first share of queues is taken.

        Raises NoRouteError when a topic is not known, GroupInUseError, UsageError without a subscription, OffsetFileError,
        and BrokerError when a broker refuses the subscription's expression.
        """
        if self._state is not NotStartedError:
            raise ClientStateError(f"consumer {self.group} was started already")
        if not self.subscriptions:
            raise UsageError(f"consumer {self.group} subscribes to nothing: call subscribe before start")
        for topic in list(self.subscriptions):
            await self.instance.routes.subscribe_queues(topic)
        await self.offsets.load()
        self.threads.start()
        self.started_ms = int(self.instance.now_ms())
        if not self.options.broadcast:
            name = retry_topic(self.group)
            self.subscriptions[name] = subscription_of(name, None, int(self.instance.now_ms()))
        self.instance.add_consumer(self)
        if self._tracing is not None:
            self._tracing.start()
        self._state = None
        await self._check_expressions()
        await self.instance.send_heartbeats()
        await self._rebalance.now()
        if self._state is not None:  # stopped meanwhile
            return
        options = self.options
        self._repeat(milliseconds("rebalance_interval", options.rebalance_interval), self._rebalance_again)
        self._repeat(milliseconds("persist_interval", options.persist_interval), self._persist)
        self._repeat(milliseconds("consume_timeout", options.consume_timeout), self._give_back_expired)
        self._repeat(BLOCKED_LOOK_SECONDS * 1000, self._look_for_blocked)
        if self._locks is not None:
            self._repeat(self._locks.RENEW_SECONDS * 1000, self._renew_locks)

    async def stop(self) -> None:
        """Pull no more, let handlers end within ``grace``, store the offsets, leave the group."""
        self._state = ClientClosedError
        for loop in self._loops:
            loop.stop()
        self._loops.clear()
        await self._rebalance.stop()
        for assigned in self.assigned.values():
            assigned.puller.stop()
        await self._consumption.stop(milliseconds("grace", self.options.grace, zero=True))
        for assigned in self.assigned.values():
            assigned.held.dropped = True
        await self.offsets.persist_all(list(self.assigned), oneway=False)
        if self._locks is not None:
            await self._locks.unlock(self.assigned)
        self.assigned.clear()
        if self._tracing is not None:
            await self._tracing.stop()
        await self.instance.remove_consumer(self)
        await self.threads.stop()

    def _repeat(self, interval_ms: float, function: Callable[[], Awaitable[None]]) -> None:
        def run() -> Deferred[None]:
            running: Deferred[None] = ensureDeferred(function())  # type: ignore[arg-type]
            return running.addErrback(lambda failure: self.log.failure("a task of the consumer failed", failure))

        loop = ClockedLoop(self.instance.reactor, run)
        loop.start(interval_ms / 1000, now=False)
        self._loops.append(loop)

    # ------------------------------------------------------------ while it runs

    @property
    def flow_limits(self) -> FlowLimits:
        """How much of a queue is held before it is pulled no further."""
        return self.options.limits

    def set_concurrency(self, concurrency: int) -> None:
        """Handle so many messages at once from now on."""
        if not isinstance(concurrency, int) or concurrency < 1:
            raise UsageError(f"concurrency={concurrency!r}: accepted is a whole number from 1 on")
        self.concurrency = concurrency
        self.threads.set_limit(concurrency)
        self._consumption.fill()

    def suspend(self) -> None:
        """Pull nothing until ``resume``; what is held is handled."""
        self.suspended = True

    def resume(self) -> None:
        """Pull again."""
        self.suspended = False
        self._consumption.resume()
        for assigned in self.assigned.values():
            self._consumption.submit(assigned, [])

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Pull these queues no more, until ``unpause``."""
        self._pause(queues, True)

    def unpause(self, queues: Iterable[MessageQueue]) -> None:
        """Pull these queues again."""
        self._pause(queues, False)

    def _pause(self, queues: Iterable[MessageQueue], paused: bool) -> None:
        namespace = self.instance.config.namespace
        for queue in queues:
            name = MessageQueue(with_namespace(namespace, queue.topic), queue.broker_name, queue.queue_id)
            if name in self.assigned:
                self.assigned[name].paused = paused

    def queues(self) -> list[MessageQueue]:
        """Return this consumer's share of the queues; retry topics are not listed."""
        namespace = self.instance.config.namespace
        return [
            MessageQueue(without_namespace(namespace, queue.topic), queue.broker_name, queue.queue_id)
            for queue in sorted(self.assigned)
            if queue.topic != retry_topic(self.group)
        ]

    # ------------------------------------------------------------ for the instance

    def consumer_data(self) -> ConsumerData:
        """What heartbeats say of this consumer."""
        return ConsumerData(
            self.group,
            ConsumeType.CONSUME_PASSIVELY,
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
                self._go_on_from(assigned, offset)

    def offsets_of(self, topic: str) -> Mapping[MessageQueue, int]:
        """How far the queues of a topic are consumed."""
        return self.offsets.clone(topic)

    def running_info(self, stacks: bool) -> ConsumerRunningInfo:
        """How it is; with the stacks of what runs, if asked for."""
        return running_info(self, stacks)

    def consume_directly(self, record: MessageExt, broker_name: str | None) -> Awaitable[ConsumeMessageDirectlyResult]:
        """Have its handler consume one message now; nothing else comes of it."""
        return consume_directly(self.handler, self.options, record, broker_name)

    # ------------------------------------------------------------ for pullers and handlers

    def may_pull(self, assigned: AssignedQueue) -> bool:
        """Whether the queue is this consumer's to read now."""
        return self._locks is None or assigned.held.locked

    def is_locked(self, assigned: AssignedQueue) -> bool:
        """Whether the queue is this consumer's alone now."""
        held = assigned.held
        return self._locks is None or (held.locked and not held.is_lock_expired(int(self.instance.now_ms())))

    async def lock(self, assigned: AssignedQueue) -> bool:
        """Ask the broker for the queue; False when another has it, or the broker does not answer."""
        if self._locks is None:
            return True
        await self._locks.lock([assigned])
        return assigned.held.locked

    def pulled(self, assigned: AssignedQueue, new: list[Pulled]) -> None:
        """Take new messages."""
        self.statistics.pulled(assigned.queue.topic, len(new))
        self._consumption.submit(assigned, new)

    def offset_moved(self, assigned: AssignedQueue, offset: int) -> None:
        """Go on from another offset: the one asked for is not there."""
        self.log.warn(
            "{queue}: offset {old} is not there, goes on from {new}",
            queue=assigned,
            old=assigned.next_offset,
            new=offset,
        )
        self._go_on_from(assigned, offset)

    def finished(self, assigned: AssignedQueue, count: int, outcome: Outcome, took_ms: float) -> None:
        """Take note that messages are finished."""
        self.statistics.consumed(assigned.queue.topic, count, outcome.verdict, took_ms)

    def stop_taking(self) -> None:
        """Take no more messages: the handler wants none."""
        self.suspend()
        self._consumption.halt()

    def _go_on_from(self, assigned: AssignedQueue, offset: int) -> None:
        """Give the queue up, with the offset that is to be, and take it anew."""
        self._drop(assigned)
        self.offsets.update(assigned.queue, offset, False)
        fresh = AssignedQueue(assigned.queue, assigned.subscription, int(self.instance.now_ms()))
        fresh.paused = assigned.paused
        if assigned.held.locked:
            fresh.held.lock(assigned.held.last_lock_ms)
        self.assigned[assigned.queue] = fresh
        self._begin(fresh, offset)
        ensureDeferred(self.offsets.persist(assigned.queue)).addErrback(
            lambda failure: self.log.failure("storing an offset", failure)
        )

    # ------------------------------------------------------------ for rebalancing

    async def take(self, queue: MessageQueue) -> bool:
        """Begin with a queue; False when that cannot be done now."""
        assigned = AssignedQueue(queue, self.subscriptions[queue.topic], int(self.instance.now_ms()))
        if not await self.lock(assigned):
            return False
        self.offsets.remove(queue)
        try:
            offset = await start_offset(self.instance, self.group, queue, self.options, self.offsets)
        except RocketMQError as error:
            self.log.warn("{queue}: where to begin is not known, tried again: {error}", queue=assigned, error=error)
            return False
        if self._state is not None or queue in self.assigned:
            return False
        self.assigned[queue] = assigned
        self._begin(assigned, offset)
        return True

    def _begin(self, assigned: AssignedQueue, offset: int) -> None:
        assigned.next_offset = offset
        assigned.puller = QueuePuller(self, assigned, self._hooked.keep if self._hooks.filtering else None)
        assigned.puller.start()

    def _drop(self, assigned: AssignedQueue) -> None:
        assigned.held.dropped = True
        assigned.puller.stop()

    async def give_up(self, queue: MessageQueue) -> None:
        """End with a queue: what handlers have of it ends, its offset is stored, others may have it."""
        assigned = self.assigned.pop(queue)
        self._drop(assigned)
        if isinstance(self._consumption, OrderlyConsumption):
            await self._consumption.finish(assigned)
        await self.offsets.persist(queue)
        self.offsets.remove(queue)
        if self._locks is not None:
            await self._locks.unlock({queue: assigned})

    # ------------------------------------------------------------ from time to time

    async def _rebalance_again(self) -> None:
        self._rebalance.soon()

    async def _persist(self) -> None:
        await self.offsets.persist_all(list(self.assigned))

    async def _renew_locks(self) -> None:
        if self._locks is not None:
            await self._locks.lock(list(self.assigned.values()))

    async def _give_back_expired(self) -> None:
        for assigned in list(self.assigned.values()):
            await self._consumption.give_back_expired(assigned)

    async def _look_for_blocked(self) -> None:
        """Say which message keeps a queue's offset where it is, once for each."""
        limit = milliseconds("blocked_after", self.options.blocked_after)
        for queue, assigned in self.assigned.items():
            blocking = assigned.held.blocking(int(self.instance.now_ms()))
            if blocking is None or blocking.waited_ms < limit or self._blocked.get(queue) == blocking.queue_offset:
                continue
            self._blocked[queue] = blocking.queue_offset
            self.log.warn(
                "{queue} is blocked by offset {offset} for {seconds:.0f} s in handler {handler}; {count} messages wait",
                queue=assigned,
                offset=blocking.queue_offset,
                seconds=blocking.waited_ms / 1000,
                handler=self.handler.name,
                count=blocking.count,
            )

    async def _check_expressions(self) -> None:
        """Have a broker of each topic check an SQL92 expression, so that a wrong one is told at once."""
        await self._rebalance.check_expressions()
