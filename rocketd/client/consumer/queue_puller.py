"""Pulls one queue as long as it is assigned: long polls one after the other, held back where much is held.

Answers to PullMessageService and the pull half of DefaultMQPushConsumerImpl. Reactor thread.
"""

from collections.abc import Callable
from typing import Any, Protocol

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import deferLater
from twisted.logger import Logger

from rocketd.client.config import milliseconds
from rocketd.client.consumer.flow_control import FLOW_CONTROL_DELAY_MS
from rocketd.client.consumer.member_options import MemberOptions
from rocketd.client.consumer.pull import address_to_pull, pull, pull_header, wanted_records
from rocketd.client.consumer.pulled import AssignedQueue, Pulled
from rocketd.client.errors import BrokerError, RocketMQError
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.client.instance.routes import MASTER
from rocketd.common.sysflag import PULL_COMMIT_OFFSET
from rocketd.remoting.bodies import MessageQueue
from rocketd.remoting.codes import ResponseCode
from rocketd.remoting.command import RemotingCommand
from rocketd.remoting.errors import RemotingError
from rocketd.remoting.headers import PullMessageResponseHeader, read_header
from rocketd.store.errors import RecordError
from rocketd.store.record import MessageExt

ERROR_DELAY_SECONDS = 3.0
"""How long to wait after a pull that failed; less after the first few in a row, for what is only a moment's trouble."""

FIRST_ERROR_DELAY_SECONDS = 0.1
PAUSED_SECONDS = 1.0
TELL_SECONDS = 60.0


class Pulls(Protocol):
    """The consumer, as a puller needs it."""

    instance: ClientInstance
    group: str
    suspended: bool
    pull_flags: int
    """The sysFlag of its pulls."""
    suspend_ms: int
    """How long a broker may hold a pull for which there is nothing."""

    @property
    def options(self) -> MemberOptions:
        """What it was told."""

    def holds_enough(self, assigned: AssignedQueue) -> object | None:
        """Why the queue is pulled no further now; None where it is."""

    def offset_to_commit(self, queue: MessageQueue) -> int:
        """What a pull from the master commits on its way; 0 for nothing."""

    def may_pull(self, assigned: AssignedQueue) -> bool:
        """Whether the queue is this consumer's to read now."""

    def pulled(self, assigned: AssignedQueue, new: list[Pulled], took_ms: float) -> None:
        """Take new messages, for which the broker took this time."""

    def offset_moved(self, assigned: AssignedQueue, offset: int) -> None:
        """Go on from another offset: the one asked for is not there."""

    def skipped(self, assigned: AssignedQueue, offset: int) -> None:
        """Take note that all before an offset was for others, and nothing is held."""


Keep = Callable[[MessageQueue, list[MessageExt]], list[MessageExt]]
"""Returns those of a queue's records that are to be handed out."""


class QueuePuller:
    """Pulls ``assigned`` from its ``next_offset`` on, until ``stop``; of what comes, what ``keep`` keeps."""

    log = Logger()

    def __init__(self, consumer: Pulls, assigned: AssignedQueue, keep: Keep | None = None) -> None:
        self._consumer = consumer
        self._assigned = assigned
        self._keep = keep
        self._stopped = False
        self._waiting: Deferred[Any] | None = None
        self._broker_id = MASTER
        self._run: Deferred[None] | None = None
        self._held_back = False
        self._told_at = float("-inf")

    def start(self) -> None:
        """Begin to pull."""
        self._run = Deferred.fromCoroutine(self._pull_all())
        self._run.addErrback(lambda failure: self.log.failure("pulling {queue} ended", failure, queue=self._assigned))

    def stop(self) -> None:
        """Pull no more; a pull that waits at the broker is given up."""
        self._stopped = True
        if self._waiting is not None:
            self._waiting.cancel()

    def wake(self) -> None:
        """Look again whether there is room, now that something is finished."""
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
                self._tell(reason)
                await self._sleep(FLOW_CONTROL_DELAY_MS / 1000)
                continue
            self._held_back = False
            try:
                await self._pull()
            except CancelledError:
                continue
            except (RocketMQError, RemotingError, RecordError) as error:
                if self._stopped:
                    return
                if not getattr(consumer.instance.reactor, "running", True):
                    return  # the process ends, and its connections with it
                self.log.warn("pulling {queue}: {error}", queue=self._assigned, error=error)
                if isinstance(error, BrokerError) and error.code == ResponseCode.SUBSCRIPTION_NOT_EXIST:
                    # It has forgotten the group with its last connection: no need to wait for the next heartbeat.
                    await consumer.instance.greet()
                await self._sleep(error_delay)
                error_delay = min(error_delay * 2, ERROR_DELAY_SECONDS)
            else:
                error_delay = FIRST_ERROR_DELAY_SECONDS
            if pause:
                await self._sleep(pause)

    def _tell(self, reason: object) -> None:
        """Say why the queue is not pulled, once in a while: a fast producer makes it so all the time."""
        now = self._consumer.instance.reactor.seconds()
        if now - self._told_at >= TELL_SECONDS:
            self._told_at = now
            self.log.info("{queue}: {reason}", queue=self._assigned, reason=reason)

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
            self._consumer.offset_moved(assigned, header.next_begin_offset)
            return
        new: list[Pulled] = []
        if response.code == ResponseCode.SUCCESS:
            records = wanted_records(response, assigned.subscription)
            if self._keep is not None:
                records = self._keep(assigned.queue, records)
            new = assigned.held.put(map(Pulled, records), header.max_offset)
        assigned.next_offset = header.next_begin_offset
        if new:
            self._consumer.pulled(assigned, new, took_ms)
        elif not assigned.held.count:
            self._consumer.skipped(assigned, header.next_begin_offset)

    async def _ask(self, offset: int) -> RemotingCommand:
        consumer, queue = self._consumer, self._assigned.queue
        broker_id, address = address_to_pull(consumer.instance, queue.broker_name, self._broker_id)
        committed = consumer.offset_to_commit(queue)
        # Only where nothing is under way: a broker may come to a pull after it stored a later offset, and would go back to
        # this one. With nothing under way, later offsets can only come of this pull's own answer.
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
        """Wait; ends early when stopped or woken."""
        if self._stopped:
            return
        try:
            await self._interruptible(deferLater(self._consumer.instance.reactor, seconds, lambda: None))
        except CancelledError:
            return

    async def _interruptible(self, waiting: Deferred[Any]) -> Any:
        self._waiting = waiting
        try:
            return await waiting
        finally:
            self._waiting = None
