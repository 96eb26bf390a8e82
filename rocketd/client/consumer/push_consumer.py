"""Consumes topics as one member of a group: takes its share of the queues, has their messages handled, keeps their offsets.

Answers to DefaultMQPushConsumer, DefaultMQPushConsumerImpl and RebalancePushImpl. The three faces of the client hand their
calls to it.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Generic

from twisted.internet.defer import Deferred, ensureDeferred
from twisted.logger import Logger

from rocketd.client.codec import BYTES, Codec
from rocketd.client.config import milliseconds
from rocketd.client.consumer.concurrent import ConcurrentConsumption
from rocketd.client.consumer.direct import consume_directly
from rocketd.client.consumer.group_member import GroupMember
from rocketd.client.consumer.handler import Handler, Listener, Outcome, Verdict
from rocketd.client.consumer.option_checks import check_number
from rocketd.client.consumer.options import MAX_CONCURRENCY, ConsumerOptions, Order
from rocketd.client.consumer.orderly import OrderlyConsumption
from rocketd.client.consumer.pulled import AssignedQueue, Pulled
from rocketd.client.consumer.queue_locks import QueueLocks
from rocketd.client.consumer.running_info import ConsumeStatistics, running_info
from rocketd.client.consumer.send_back import SendBack
from rocketd.client.consumer.subscription import subscription_of
from rocketd.client.errors import UsageError
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.client.message import T
from rocketd.common.names import retry_topic
from rocketd.common.sysflag import PULL_SUSPEND
from rocketd.remoting.admin_bodies import ConsumeMessageDirectlyResult, ConsumerRunningInfo
from rocketd.remoting.bodies import ConsumeType, MessageQueue
from rocketd.store.record import MessageExt

BLOCKED_LOOK_SECONDS = 10.0
"""How often queues are looked at that one message holds back."""


class PushConsumer(GroupMember, Generic[T]):
    """A consumer of one group, between ``start`` and ``stop``. All methods belong to the reactor thread.

    ``subscribe`` comes before ``start``, or later. ``run_coroutine`` runs what coroutine functions of the application
    return. Making it raises IllegalGroupError.
    """

    log = Logger()
    consume_type = ConsumeType.CONSUME_PASSIVELY
    pull_flags = PULL_SUSPEND
    suspend_ms = 15_000
    options: ConsumerOptions

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
        options = options or ConsumerOptions()
        timeout_ms = milliseconds("consume_timeout", options.consume_timeout)
        super().__init__(instance, group, options, codec, options.concurrency, run_coroutine, timeout_ms)
        namespace = instance.config.namespace
        self.concurrency = options.concurrency
        self.in_order = options.order is Order.QUEUE
        self.statistics = ConsumeStatistics(instance.reactor.seconds)
        self.handler: Handler[T] = Handler(
            listener, codec, namespace, self.threads.caller(listener), self.options.batch > 1, self.hooks.consumption
        )
        self.send_back = SendBack(instance, self.group, self.options.max_reconsume_times)
        self._locks = QueueLocks(instance, self.group) if self._locks_queues else None
        self._consumption: ConcurrentConsumption | OrderlyConsumption = (
            OrderlyConsumption(self) if self.in_order else ConcurrentConsumption(self)
        )
        self._blocked: dict[MessageQueue, int] = {}

    @property
    def _locks_queues(self) -> bool:
        return self.in_order and not self.options.broadcast

    # ------------------------------------------------------------ start and stop

    async def start(self) -> None:
        """Join the group; returns when the first share of queues is taken.

        Raises NoRouteError when a topic is not known, GroupInUseError, UsageError without a subscription, OffsetFileError,
        and BrokerError when a broker refuses the subscription's expression.
        """
        if not self.subscriptions:
            raise UsageError(f"consumer {self.group} subscribes to nothing: call subscribe before start")
        if not self.options.broadcast:
            name = retry_topic(self.group)
            self.subscriptions[name] = subscription_of(name, None, int(self.instance.now_ms()))
        if not await self.join():
            return
        self.repeat(milliseconds("consume_timeout", self.options.consume_timeout), self._give_back_expired)
        self.repeat(BLOCKED_LOOK_SECONDS * 1000, self._look_for_blocked)
        if self._locks is not None:
            self.repeat(self._locks.RENEW_SECONDS * 1000, self._renew_locks)

    async def stop(self) -> None:
        """Pull no more, let handlers end within ``grace``, store the offsets, leave the group."""
        self.handler.stopping = True
        await self.stop_pulling()
        await self._consumption.stop(milliseconds("grace", self.options.grace, zero=True))
        await self.leave()

    # ------------------------------------------------------------ while it runs

    def set_concurrency(self, concurrency: int) -> None:
        """Handle so many messages at once from now on. Raises IllegalOptionError as the option does."""
        check_number("concurrency", concurrency, 1, MAX_CONCURRENCY)
        self.concurrency = concurrency
        self.threads.set_limit(concurrency)
        self._consumption.take_concurrency(self.assigned.values())

    def suspend(self) -> None:
        """Pull nothing until ``resume``; what is held is handled."""
        self.suspended = True

    def resume(self) -> None:
        """Pull again."""
        self.suspended = False
        self._consumption.resume()
        for assigned in self.assigned.values():
            self._consumption.submit(assigned, [])

    # ------------------------------------------------------------ for the instance

    def running_info(self, stacks: bool) -> ConsumerRunningInfo:
        """How it is; with the stacks of what runs, if asked for."""
        options = self.options
        more = {
            "PROP_THREADPOOL_CORE_SIZE": str(self.concurrency),
            "PROP_CONSUMEORDERLY": "true" if self.in_order else "false",
            "handler": self.handler.name,
            "consumeMessageBatchMaxSize": str(options.batch),
            "consumeThreadMax": str(self.concurrency),
            "maxReconsumeTimes": str(options.max_reconsume_times),
            "pullThresholdForTopic": str(options.limits.topic_messages or -1),
            "pullThresholdSizeForTopic": str(options.limits.topic_size_mib or -1),
        }
        return running_info(self, stacks, more, self.statistics)

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
        return self._locks is None or (held.locked and not held.is_lock_expired(int(self.instance.clock_ms())))

    async def lock(self, assigned: AssignedQueue) -> bool:
        """Ask the broker for the queue; False when another has it, or the broker does not answer."""
        if self._locks is None:
            return True
        await self._locks.lock([assigned])
        return assigned.held.locked

    def pulled(self, assigned: AssignedQueue, new: list[Pulled], took_ms: float) -> None:
        """Take new messages, for which the broker took this time."""
        self.statistics.pulled(assigned.queue.topic, len(new), took_ms)
        self._consumption.submit(assigned, new)

    def finished(self, assigned: AssignedQueue, count: int, outcome: Outcome, took_ms: float) -> None:
        """Take note that a handler has ended with messages."""
        if outcome.verdict is not Verdict.LEFT:
            consumed = count if outcome.verdict is Verdict.CONSUMED else outcome.done
            self.statistics.handled(assigned.queue.topic, consumed, count - consumed, took_ms)

    def stop_taking(self) -> None:
        """Take no more messages: the handler wants none."""
        self.suspend()
        self._consumption.halt()

    def offset_to_commit(self, queue: MessageQueue) -> int:
        """What a pull from the master commits on its way; 0 for nothing."""
        return 0 if self.options.broadcast else self.offsets.clone(queue.topic).get(queue, 0)

    # ------------------------------------------------------------ for rebalancing

    async def finish(self, assigned: AssignedQueue) -> None:
        """Return when its handler has ended, where the queue is consumed in order."""
        if isinstance(self._consumption, OrderlyConsumption):
            await self._consumption.finish(assigned)

    async def unlock(self, assigned: Mapping[MessageQueue, AssignedQueue]) -> None:
        """Let the brokers' locks go."""
        if self._locks is not None:
            await self._locks.unlock(assigned)

    # ------------------------------------------------------------ from time to time

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
            blocking = assigned.held.blocking(int(self.instance.clock_ms()))
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
