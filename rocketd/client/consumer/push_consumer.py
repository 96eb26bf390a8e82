"""A consumer with a handler: takes its share of a group's queues, has messages handled, stores offsets.

Counterpart: `DefaultMQPushConsumer`, `DefaultMQPushConsumerImpl` and `RebalancePushImpl` (Apache). The three faces of the
client pass their calls to it.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Generic

from twisted.internet.defer import Deferred, ensureDeferred
from twisted.logger import Logger

from rocketd.client.consumer.handling.concurrent import ConcurrentConsumption
from rocketd.client.consumer.handling.consume_directly import consume_directly
from rocketd.client.consumer.handling.handler import Handler, Listener, Outcome, Verdict
from rocketd.client.consumer.handling.orderly import OrderlyConsumption
from rocketd.client.consumer.membership.rebalance import HANDOVER_SECONDS
from rocketd.client.consumer.membership.running_info import ConsumeStatistics, running_info
from rocketd.client.consumer.membership.seekable_member import SeekableMember
from rocketd.client.consumer.options.kind_options import MAX_CONCURRENCY, ConsumerOptions, Order
from rocketd.client.consumer.options.option_checks import check_number
from rocketd.client.consumer.options.subscription import subscription_of
from rocketd.client.consumer.pulling.assigned_queue import AssignedQueue, PulledMessage
from rocketd.client.consumer.pulling.queue_locks import QueueLocks
from rocketd.client.consumer.retries.send_back import SendBack
from rocketd.client.errors import UsageError
from rocketd.client.instance.all_of import all_of
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.client.messages.codec import BYTES, Codec
from rocketd.client.messages.message import T
from rocketd.client.settings.config import milliseconds
from rocketd.client.stats import ConsumerStats
from rocketd.common.names import retry_topic
from rocketd.common.sysflag import PULL_SUSPEND
from rocketd.protocol import offsets
from rocketd.remoting.bodies.admin import ConsumeMessageDirectlyResult, ConsumerRunningInfo
from rocketd.remoting.bodies.tables import ConsumeType, MessageQueue
from rocketd.store.format.record import MessageExt

LET_END_SECONDS = 0.6 * HANDOVER_SECONDS
"""Maximum time for which queues that go to another member wait for their handlers. The rest is for the offsets."""

BLOCKED_LOOK_SECONDS = 10.0
"""Interval of the check for queues held back by one message."""


class PushConsumerEngine(SeekableMember, Generic[T]):
    """A consumer of one group with a handler, between ``start`` and ``stop``. All methods belong to the reactor thread.

    Call ``subscribe`` before ``start``, or later again. ``run_coroutine`` runs the coroutines of the application's coroutine
    functions; ``run_listener`` those of the functions for a rebalance, if it is another one. The constructor raises
    IllegalGroupError.
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
        run_listener: Callable[[Any], Deferred[Any]] | None = None,
    ) -> None:
        options = options or ConsumerOptions()
        timeout_ms = milliseconds("consume_timeout", options.consume_timeout)
        super().__init__(instance, group, options, codec, options.concurrency, run_coroutine, timeout_ms, run_listener)
        namespace = instance.config.namespace
        self.concurrency = options.concurrency
        self.in_order = options.order is Order.QUEUE
        self.statistics = ConsumeStatistics(instance.reactor.seconds)
        self._handled = self._failed = 0
        self._handler_ms = 0.0
        self.handler: Handler[T] = Handler(
            listener,
            codec,
            namespace,
            self.threads,
            self.options.batch > 1,
            self.hooks.consumption,
            self.group,
            self.options.on_error,
            instance.clock_ms,
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
        """Join the group. Return after the first share of queues is taken.

        Raises:

        - UsageError: it has no subscription.
        - NoRouteError: a topic is unknown.
        - GroupInUseError: another consumer of the group has this client id.
        - OffsetFileError: the offset file cannot be read.
        - BrokerError: a broker refuses the expression of a subscription.
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
        """Stop pulling, let handlers end within ``grace``, store the offsets, leave the group."""
        self.handler.stopping = True
        await self.stop_pulling()
        await self._consumption.stop(milliseconds("grace", self.options.grace, zero=True))
        await self.leave()

    # ------------------------------------------------------------ while it runs

    def set_concurrency(self, concurrency: int) -> None:
        """Handle up to ``concurrency`` messages at once from now on. Raises IllegalOptionError for an invalid number."""
        check_number("concurrency", concurrency, 1, MAX_CONCURRENCY)
        self.concurrency = concurrency
        self.threads.set_limit(concurrency)
        self._consumption.take_concurrency(self.assigned.values())

    def suspend(self) -> None:
        """Stop pulling until ``resume``. Messages already held are handled."""
        self.suspended = True
        for assigned in self.assigned.values():
            assigned.puller.interrupt()

    def resume(self) -> None:
        """Pull again."""
        self.suspended = False
        self._consumption.resume()
        for assigned in self.assigned.values():
            self._consumption.submit(assigned, [])

    async def _continue_from(self, assigned: AssignedQueue, offset: int) -> None:
        """Continue from an offset, which is stored at once. Running handlers no longer count."""
        self.replace(assigned, offset)
        self.offsets.update(assigned.queue, offset, False)
        await self.offsets.persist(assigned.queue, oneway=False)

    async def _committed(self, queue: MessageQueue) -> int | None:
        """Return the stored offset: the one in memory moves on with each handled message."""
        if self.options.broadcast:
            return await super()._committed(queue)
        return await self.instance.answer_for_group(queue.broker_name, offsets.group_offset(self.group, queue))

    # ------------------------------------------------------------ for the instance

    def running_info(self, stacks: bool) -> ConsumerRunningInfo:
        """Return the state of the consumer, with the stacks of all threads if ``stacks``."""
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
        """Have the handler consume one message now, without any other effect."""
        return consume_directly(self.handler, self.options, record, broker_name)

    # ------------------------------------------------------------ for pullers and handlers

    def may_pull(self, assigned: AssignedQueue) -> bool:
        """Whether this consumer may read the queue now."""
        return self._locks is None or assigned.held.locked

    def is_locked(self, assigned: AssignedQueue) -> bool:
        """Whether this consumer has the queue exclusively now."""
        held = assigned.held
        return self._locks is None or (held.locked and not held.is_lock_expired(int(self.instance.clock_ms())))

    async def lock(self, assigned: AssignedQueue) -> bool:
        """Ask the broker for the queue. Return False if another consumer has it or the broker does not answer."""
        if self._locks is None:
            return True
        if self.listener.present and self.assigned.get(assigned.queue) is assigned:
            await self._lose([assigned])
            return False
        await self._locks.lock([assigned])
        return self.is_locked(assigned)

    def pulled(self, assigned: AssignedQueue, new: list[PulledMessage], took_ms: float) -> None:
        """Accept new messages. ``took_ms`` is the duration of the pull."""
        self.statistics.pulled(assigned.queue.topic, len(new), took_ms)
        self._consumption.submit(assigned, new)

    def finished(self, assigned: AssignedQueue, count: int, outcome: Outcome, took_ms: float, calls: int = 1) -> None:
        """Count the messages of ended handlers."""
        if outcome.verdict is not Verdict.LEFT:
            consumed = count if outcome.verdict is Verdict.CONSUMED else outcome.done
            self.statistics.handled(assigned.queue.topic, consumed, count - consumed, took_ms, calls)
            self._handled += consumed
            self._failed += count - consumed
            self._handler_ms += took_ms

    def stats(self) -> ConsumerStats:
        """Return the numbers since the start. Any thread."""
        return ConsumerStats(self._handled, self._failed, self._handler_ms / 1000, *self.holdings())

    def stop_taking(self) -> None:
        """Take no more messages, on the handler's request."""
        self.suspend()
        self._consumption.halt()

    def offset_to_commit(self, queue: MessageQueue) -> int:
        """Return the offset to commit with a pull from the master; 0 for none."""
        # A broker may process the older of two concurrent requests last.
        if self.options.broadcast or self.offsets.is_storing(queue):
            return 0
        return self.offsets.clone(queue.topic).get(queue, 0)

    # ------------------------------------------------------------ for rebalancing

    def drop(self, assigned: AssignedQueue) -> None:
        """Stop pulling a queue and handling its messages. Handlers still running no longer count."""
        self.withdraw(assigned)
        super().drop(assigned)

    def withdraw(self, assigned: AssignedQueue) -> None:
        """Start no more handlers for a queue. The results so far still count."""
        self._consumption.withdraw(assigned)

    async def _lose(self, queues: Iterable[AssignedQueue]) -> None:
        """End with queues whose lock was lost, and tell the application. A rebalance may take them again."""
        lost = [assigned for assigned in queues if not assigned.given_up and not self.is_locked(assigned)]
        for assigned in lost:
            self.log.warn("{queue}: its lock was lost", queue=assigned)
            del self.assigned[assigned.queue]
            self.drop(assigned)
            self.offsets.remove(assigned.queue)
        await self.listener.lost(lost)

    async def let_end(self, queues: list[AssignedQueue]) -> None:
        """Start no more handlers for queues, and wait a moment for the running ones, so that their results count.

        Members with other clients may take the queues at once. So the offsets so far are stored before the wait.
        """
        if isinstance(self._consumption, OrderlyConsumption):
            return  # ``finish`` waits, and others wait for the lock
        for assigned in queues:
            assigned.given_up = True
            assigned.puller.stop()
            self.withdraw(assigned)
        stored = all_of(self.offsets.persist(assigned.queue) for assigned in queues)
        await all_of([stored, self._consumption.let_end(queues, LET_END_SECONDS)])

    async def finish(self, assigned: AssignedQueue) -> None:
        """Wait for the handler of a queue consumed in order."""
        if isinstance(self._consumption, OrderlyConsumption):
            await self._consumption.finish(assigned)

    async def unlock(self, assigned: Mapping[MessageQueue, AssignedQueue]) -> None:
        """Release the brokers' locks."""
        if self._locks is not None:
            await self._locks.unlock(assigned)

    # ------------------------------------------------------------ timers

    async def _renew_locks(self) -> None:
        if self._locks is not None:
            await self._locks.lock(list(self.assigned.values()))
            if self.listener.present:
                await self._lose(list(self.assigned.values()))

    async def _give_back_expired(self) -> None:
        for assigned in list(self.assigned.values()):
            await self._consumption.give_back_expired(assigned)

    async def _look_for_blocked(self) -> None:
        """Log each message holding its queue's offset for too long, once."""
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
