"""Pulls one queue as long as it is assigned: long polls one after the other, held back where much is held.

Answers to PullMessageService and the pull half of DefaultMQPushConsumerImpl. Reactor thread.
"""

from collections.abc import Callable
from typing import Any, Protocol

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import deferLater
from twisted.logger import Logger

from rocketd.client.config import milliseconds
from rocketd.client.consumer.flow_control import FLOW_CONTROL_DELAY_MS, FlowControl, FlowLimits
from rocketd.client.consumer.offset_store import OffsetStore
from rocketd.client.consumer.options import ConsumerOptions
from rocketd.client.consumer.pulled import AssignedQueue, Pulled
from rocketd.client.consumer.subscription import wants
from rocketd.client.errors import BrokerError, BrokerUnreachableError, RocketMQError
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.client.instance.routes import MASTER
from rocketd.common.properties import TAGS
from rocketd.common.sysflag import PULL_COMMIT_OFFSET, PULL_SUSPEND
from rocketd.remoting.bodies import MessageQueue
from rocketd.remoting.codes import RequestCode, ResponseCode
from rocketd.remoting.command import RemotingCommand
from rocketd.remoting.errors import RemotingError
from rocketd.remoting.headers import PullMessageRequestHeader, PullMessageResponseHeader, read_header
from rocketd.store.errors import RecordError
from rocketd.store.record import MessageExt, decode_messages

SUSPEND_MS = 15_000
"""How long a broker may hold a pull for which there is nothing."""

PULL_TIMEOUT_MS = 30_000
ERROR_DELAY_SECONDS = 3.0
PAUSED_SECONDS = 1.0
TELL_SECONDS = 60.0
_FOUND_NOTHING = (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY)


class Pulls(Protocol):
    """The consumer, as a puller needs it."""

    instance: ClientInstance
    group: str
    options: ConsumerOptions
    offsets: OffsetStore
    suspended: bool

    @property
    def flow_limits(self) -> FlowLimits:
        """How much of a queue may be held."""

    def may_pull(self, assigned: AssignedQueue) -> bool:
        """Whether the queue is this consumer's to read now."""

    def pulled(self, assigned: AssignedQueue, new: list[Pulled]) -> None:
        """Take new messages."""

    def offset_moved(self, assigned: AssignedQueue, offset: int) -> None:
        """Go on from another offset: the one asked for is not there."""


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
        if self._held_back and self._waiting is not None:
            self._waiting.cancel()

    # ------------------------------------------------------------ within

    async def _pull_all(self) -> None:
        consumer, held = self._consumer, self._assigned.held
        pause = milliseconds("pull_interval", consumer.options.pull_interval, zero=True) / 1000
        while not self._stopped and not held.dropped:
            held.pulled(int(consumer.instance.now_ms()))
            if consumer.suspended or self._assigned.paused:
                await self._sleep(PAUSED_SECONDS)
                continue
            if not consumer.may_pull(self._assigned):
                await self._sleep(ERROR_DELAY_SECONDS)
                continue
            control = held.flow_control(consumer.flow_limits)
            if control is not None:
                self._held_back = True
                self._tell(control)
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
                self.log.warn("pulling {queue}: {error}", queue=self._assigned, error=error)
                await self._sleep(ERROR_DELAY_SECONDS)
            if pause:
                await self._sleep(pause)

    def _tell(self, control: FlowControl) -> None:
        """Say why the queue is not pulled, once in a while: a fast producer makes it so all the time."""
        now = self._consumer.instance.reactor.seconds()
        if now - self._told_at >= TELL_SECONDS:
            self._told_at = now
            self.log.info("{queue}: {control}", queue=self._assigned, control=control)

    async def _pull(self) -> None:
        assigned = self._assigned
        asked_for = assigned.next_offset
        response = await self._ask(asked_for)
        if self._stopped or assigned.held.dropped or assigned.next_offset != asked_for:
            return
        header = read_header(PullMessageResponseHeader, response)
        self._broker_id = header.suggest_which_broker_id
        if response.code == ResponseCode.PULL_OFFSET_MOVED:
            self._consumer.offset_moved(assigned, header.next_begin_offset)
            return
        new: list[Pulled] = []
        if response.code == ResponseCode.SUCCESS:
            records = list(filter(self._wants, decode_messages(response.body or b"")))
            if self._keep is not None:
                records = self._keep(assigned.queue, records)
            new = assigned.held.put(map(Pulled, records), header.max_offset)
        assigned.next_offset = header.next_begin_offset
        if new:
            self._consumer.pulled(assigned, new)
        elif not assigned.held.count:
            # All up to there was for others: the group need not look at it again.
            self._consumer.offsets.update(assigned.queue, header.next_begin_offset, True)

    def _wants(self, record: MessageExt) -> bool:
        subscription = self._assigned.subscription
        return not subscription.tags_set or wants(subscription, record.properties_map().get(TAGS))

    async def _ask(self, offset: int) -> RemotingCommand:
        consumer, queue = self._consumer, self._assigned.queue
        found = consumer.instance.routes.address_to_read(queue.broker_name, self._broker_id)
        if found is None:
            raise BrokerUnreachableError(f"no address of broker {queue.broker_name} is known", broker=queue.broker_name)
        broker_id, address = found
        committed = 0 if consumer.options.broadcast else consumer.offsets.clone(queue.topic).get(queue, 0)
        commit = committed > 0 and broker_id == MASTER
        subscription = self._assigned.subscription
        header = PullMessageRequestHeader(
            consumer_group=consumer.group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=offset,
            max_msg_nums=consumer.options.pull_batch,
            sys_flag=PULL_SUSPEND | (PULL_COMMIT_OFFSET if commit else 0),
            commit_offset=committed,
            suspend_timeout_millis=SUSPEND_MS,
            sub_version=subscription.sub_version,
            expression_type=subscription.expression_type,
            bname=queue.broker_name,
        )
        asked = consumer.instance.ask(address, RequestCode.PULL_MESSAGE, header, timeout_ms=PULL_TIMEOUT_MS)
        response: RemotingCommand = await self._interruptible(Deferred.fromCoroutine(asked))
        if response.code not in (ResponseCode.SUCCESS, ResponseCode.PULL_OFFSET_MOVED, *_FOUND_NOTHING):
            raise BrokerError(address, response)
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
