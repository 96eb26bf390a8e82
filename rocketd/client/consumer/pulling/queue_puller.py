"""Pulls one queue while it is assigned: long polls one after the other, with flow control.

Counterpart: `PullMessageService` and the pull half of `DefaultMQPushConsumerImpl` (Apache). Reactor thread.
"""

from collections.abc import Callable
from typing import Any, Protocol

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger

from rocketd.client.consumer.options.flow_limits import FLOW_CONTROL_DELAY_MS
from rocketd.client.consumer.options.member_options import MemberOptions
from rocketd.client.consumer.pulling.assigned_queue import AssignedQueue, PulledMessage
from rocketd.client.consumer.pulling.pull import address_to_pull, pull, wanted_records
from rocketd.client.errors import BrokerError, RocketMQError
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.client.settings.config import milliseconds
from rocketd.common.event_loop import timers
from rocketd.common.logs.throttle import LogThrottle, ThrottledLog
from rocketd.common.sysflag import PULL_COMMIT_OFFSET
from rocketd.protocol.cluster import MASTER
from rocketd.protocol.pull import pull_header
from rocketd.remoting.bodies.tables import MessageQueue
from rocketd.remoting.errors import RemotingError
from rocketd.remoting.headers.client import PullMessageResponseHeader, read_header
from rocketd.remoting.wire.codes import ResponseCode
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.store.format.record import MessageExt

ERROR_DELAY_SECONDS = 3.0
"""Delay after a failed pull. It is shorter after the first failures in a row, which are often temporary."""

FIRST_ERROR_DELAY_SECONDS = 0.1
_UNANNOUNCED = (ResponseCode.SUBSCRIPTION_NOT_EXIST, ResponseCode.SUBSCRIPTION_NOT_LATEST)
"""Refusals of a broker without a heartbeat of this member. It does not know the group, or only members with an older
version of the subscription.
"""

PAUSED_SECONDS = 1.0


class Pulls(Protocol):
    """The methods of a consumer needed by a puller."""

    instance: ClientInstance
    group: str
    suspended: bool
    pull_flags: int
    """The sysFlag of its pulls."""
    newest_ms: dict[MessageQueue, int]
    """The store time of the last record pulled from each queue, in Unix milliseconds."""
    suspend_ms: int
    """Time for which a broker may hold a pull without messages."""

    @property
    def options(self) -> MemberOptions:
        """The options of the consumer."""

    def holds_enough(self, assigned: AssignedQueue) -> object | None:
        """Return the reason to hold the next pull back; None if it may begin."""

    def offset_to_commit(self, queue: MessageQueue) -> int:
        """Return the offset to commit with a pull from the master; 0 for none."""

    def may_pull(self, assigned: AssignedQueue) -> bool:
        """Whether this consumer may read the queue now."""

    def pulled(self, assigned: AssignedQueue, new: list[PulledMessage], took_ms: float) -> None:
        """Accept new messages. ``took_ms`` is the duration of the pull."""

    async def offset_moved(self, assigned: AssignedQueue, offset: int, end: int) -> None:
        """Continue from another offset, because the requested one does not exist. ``end`` is that of the queue.

        Raises RocketMQError.
        """

    def topic_deleted(self, assigned: AssignedQueue) -> None:
        """End with a queue whose topic was deleted at the broker."""

    def skipped(self, assigned: AssignedQueue, offset: int) -> None:
        """Note that all messages before ``offset`` were filtered out, and none is held."""


Keep = Callable[[MessageQueue, list[MessageExt]], list[MessageExt]]
"""Returns the records of a queue to hand out."""


class QueuePuller:
    """Pulls ``assigned`` from its ``next_offset`` on, until ``stop``. ``keep`` filters the records."""

    log = Logger()

    def __init__(self, consumer: Pulls, assigned: AssignedQueue, keep: Keep | None = None) -> None:
        self._consumer = consumer
        self._assigned = assigned
        self._keep = keep
        self._stopped = False
        self._waiting: Deferred[Any] | None = None
        self._broker_id = self._asked_broker = MASTER
        self._run: Deferred[None] | None = None
        self._held_back = False
        self._reasons = ThrottledLog(self.log, LogThrottle(consumer.instance.reactor.seconds))
        """Why the queue is not pulled. With a fast producer this happens all the time."""

    def start(self) -> None:
        """Start pulling."""
        self._run = Deferred.fromCoroutine(self._pull_all())
        self._run.addErrback(lambda failure: self.log.failure("pulling {queue} ended", failure, queue=self._assigned))

    def stop(self) -> None:
        """Stop pulling. A pull waiting at the broker is abandoned."""
        self._stopped = True
        if self._waiting is not None:
            self._waiting.cancel()

    def interrupt(self) -> None:
        """Abandon the pull that waits at the broker, because the queue is paused now. Its messages come again later."""
        if self._waiting is not None:
            self._waiting.cancel()

    def wake(self) -> None:
        """Check the limits again after messages are finished."""
        if self._held_back and self._waiting is not None and self._consumer.holds_enough(self._assigned) is None:
            self._waiting.cancel()

    # ------------------------------------------------------------ within

    async def _pull_all(self) -> None:
        consumer, held = self._consumer, self._assigned.held
        error_delay = FIRST_ERROR_DELAY_SECONDS
        pause = milliseconds("pull_interval", consumer.options.pull_interval, zero=True) / 1000
        while not self._stopped and not held.dropped:
            held.pulled(int(consumer.instance.clock_ms()))
            if consumer.suspended or self._assigned.paused:
                await self._sleep(PAUSED_SECONDS)
                continue
            if not consumer.may_pull(self._assigned):
                await self._sleep(ERROR_DELAY_SECONDS)
                continue
            reason = consumer.holds_enough(self._assigned)
            if reason is not None:
                self._held_back = True
                self._reasons.info("held back", "{queue}: {reason}", queue=self._assigned, reason=reason)
                await self._sleep(FLOW_CONTROL_DELAY_MS / 1000)
                continue
            self._held_back = False
            try:
                await self._pull()
            except CancelledError:
                continue
            except (RocketMQError, RemotingError) as error:
                if self._stopped:
                    return
                if not getattr(consumer.instance.reactor, "running", True):
                    return  # the process ends, and its connections with it
                if not consumer.instance.outages.covers(f"pulling {self._assigned}", error):
                    self.log.warn("pulling {queue}: {error}", queue=self._assigned, error=error)
                if isinstance(error, BrokerError) and error.code in _UNANNOUNCED:
                    # It dropped the member with its connection: announce it now, not with the next heartbeat.
                    await consumer.instance.greet()
                elif (
                    isinstance(error, BrokerError)
                    and error.code == ResponseCode.TOPIC_NOT_EXIST
                    and self._asked_broker == MASTER  # a slave may not have the topic yet
                ):
                    consumer.topic_deleted(self._assigned)
                    return
                await self._sleep(error_delay)
                error_delay = min(error_delay * 2, ERROR_DELAY_SECONDS)
            else:
                error_delay = FIRST_ERROR_DELAY_SECONDS
            if pause:
                await self._sleep(pause)

    async def _pull(self) -> None:
        assigned = self._assigned
        asked_for = assigned.next_offset
        began_ms = self._consumer.instance.clock_ms()
        response = await self._ask(asked_for)
        took_ms = self._consumer.instance.clock_ms() - began_ms
        if self._stopped or assigned.held.dropped or assigned.next_offset != asked_for:
            return
        header = read_header(PullMessageResponseHeader, response)
        self._broker_id = header.suggest_which_broker_id
        if response.code == ResponseCode.PULL_OFFSET_MOVED:
            await self._consumer.offset_moved(assigned, header.next_begin_offset, header.max_offset)
            return
        new: list[PulledMessage] = []
        if response.code == ResponseCode.SUCCESS:
            records = wanted_records(response, assigned.subscription, str(assigned))
            if records:
                self._consumer.newest_ms[assigned.queue] = records[-1].store_timestamp
            if self._keep is not None:
                records = self._keep(assigned.queue, records)
            new = assigned.held.put(map(PulledMessage, records))
        assigned.next_offset = header.next_begin_offset
        if new:
            self._consumer.pulled(assigned, new, took_ms)
        elif not assigned.held.count:
            self._consumer.skipped(assigned, header.next_begin_offset)

    async def _ask(self, offset: int) -> RemotingCommand:
        consumer, queue = self._consumer, self._assigned.queue
        broker_id, address = address_to_pull(consumer.instance, queue.broker_name, self._broker_id)
        self._asked_broker = broker_id
        if consumer.instance.is_forgotten_by(address):
            # The other members share the queues without this one until its next heartbeat.
            await self._interruptible(Deferred.fromCoroutine(consumer.instance.greet_again(address)))
        committed = consumer.offset_to_commit(queue)
        # Only if nothing is under way. A broker may process a pull after it stored a later offset, and would go back to
        # this one. With nothing under way, later offsets can only come from the answer to this pull.
        commit = 0 < committed == offset and broker_id == MASTER
        header = pull_header(
            consumer.group,
            queue,
            self._assigned.subscription,
            offset,
            consumer.options.pull_batch,
            sys_flag=consumer.pull_flags | (PULL_COMMIT_OFFSET if commit else 0),
            suspend_ms=consumer.suspend_ms,
            commit_offset=committed,
        )
        response: RemotingCommand = await self._interruptible(
            Deferred.fromCoroutine(pull(consumer.instance, address, header))
        )
        return response

    async def _sleep(self, seconds: float) -> None:
        """Sleep. Return early if stopped or woken."""
        if self._stopped:
            return
        try:
            await self._interruptible(timers.deferLater(self._consumer.instance.reactor, seconds, lambda: None))
        except CancelledError:
            return

    async def _interruptible(self, waiting: Deferred[Any]) -> Any:
        self._waiting = waiting
        try:
            return await waiting
        finally:
            self._waiting = None
