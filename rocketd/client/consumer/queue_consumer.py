"""Pulls one queue, hands its messages over one after the other, and keeps its offset.

Answers to the pull half of DefaultMQPushConsumerImpl, to ProcessQueue and RemoteBrokerOffsetStore, for one queue.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import deferLater
from twisted.logger import Logger

from rocketd.client.consumer.subscription import wants
from rocketd.client.errors import BrokerError, ClientError, NoRouteError, StopConsuming, check_response
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.client.message import ReceivedMessage
from rocketd.common.names import RETRY_PREFIX
from rocketd.common.properties import TAGS, decode_properties
from rocketd.remoting.bodies import ConsumeFromWhere, MessageQueue, SubscriptionData
from rocketd.remoting.codes import RequestCode, ResponseCode
from rocketd.remoting.command import RemotingCommand
from rocketd.remoting.errors import RemotingError
from rocketd.remoting.headers import (
    ConsumerSendMsgBackRequestHeader,
    OffsetResponseHeader,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueueRequestHeader,
    UpdateConsumerOffsetRequestHeader,
    read_header,
    write_header,
)
from rocketd.store.errors import RecordError
from rocketd.store.record import MessageExt, decode_messages

PULL_BATCH = 32
SUSPEND_MS = 15_000
PULL_TIMEOUT_MS = 30_000
TIMEOUT_MS = 5000
ERROR_DELAY_SECONDS = 3.0
RETRY_HERE_SECONDS = 5.0

_COMMIT_OFFSET = 1
_SUSPEND = 2

MessageListener = Callable[[ReceivedMessage], Awaitable[Any] | None]
"""Consumes one message, in the reactor thread; what it raises, now or later, means that the message comes again.

After StopConsuming the message is not given back: the group finds it where it was.
"""


class QueueConsumer:
    """The consumer of one queue, from ``start`` to ``stop``. All methods belong to the reactor thread."""

    log = Logger()

    def __init__(
        self,
        client: ClientInstance,
        group: str,
        queue: MessageQueue,
        subscription: SubscriptionData,
        from_where: ConsumeFromWhere,
        listener: MessageListener,
    ) -> None:
        self.queue = queue
        self.offset: int | None = None
        self._client = client
        self._group = group
        self._subscription = subscription
        self._from_where = from_where
        self._listener = listener
        self._stored: int | None = None
        self._stopped = False
        self._run: Deferred[None] | None = None
        self._waiting: Deferred[Any] | None = None

    def start(self) -> None:
        """Begin to pull."""
        self._run = Deferred.fromCoroutine(self._pull_all())
        self._run.addErrback(lambda failure: self.log.failure("consuming {queue} ended", failure, queue=self.queue))

    def halt(self) -> None:
        """Hand over no more messages, from now on."""
        self._stopped = True
        if self._waiting is not None:
            self._waiting.cancel()

    async def stop(self) -> None:
        """Halt, wait for the message that is being consumed, and store the offset."""
        self.halt()
        if self._run is not None:
            await self._run
        await self.store_offset()

    async def store_offset(self) -> None:
        """Tell the broker how far the queue is consumed (15), when that has changed."""
        offset = self.offset
        if offset is None or offset == self._stored:
            return
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group=self._group,
            topic=self.queue.topic,
            queue_id=self.queue.queue_id,
            commit_offset=offset,
            bname=self.queue.broker_name,
        )
        try:
            check_response(*await self._ask(RequestCode.UPDATE_CONSUMER_OFFSET, header, TIMEOUT_MS))
            self._stored = offset
        except (RemotingError, ClientError) as error:
            self.log.warn("the offset of {queue} was not stored: {error}", queue=self.queue, error=error)

    # ------------------------------------------------------------ pulling

    async def _pull_all(self) -> None:
        while not self._stopped:
            try:
                if self.offset is None:
                    self.offset = self._stored = await self._first_offset()
                    continue  # it may have been halted meanwhile
                await self._pull(self.offset)
            except CancelledError:
                continue
            except (RemotingError, ClientError, RecordError) as error:
                if not self._stopped:
                    self.log.warn("pulling {queue}: {error}", queue=self.queue, error=error)
                    await self._pause()

    async def _pull(self, offset: int) -> None:
        header = PullMessageRequestHeader(
            consumer_group=self._group,
            topic=self.queue.topic,
            queue_id=self.queue.queue_id,
            queue_offset=offset,
            max_msg_nums=PULL_BATCH,
            sys_flag=_SUSPEND | (_COMMIT_OFFSET if offset > 0 else 0),
            commit_offset=offset,
            suspend_timeout_millis=SUSPEND_MS,
            sub_version=self._subscription.sub_version,
            expression_type=self._subscription.expression_type,
            bname=self.queue.broker_name,
        )
        address, response = await self._ask(RequestCode.PULL_MESSAGE, header, PULL_TIMEOUT_MS, give_up=True)
        if response.code not in (
            ResponseCode.SUCCESS,
            ResponseCode.PULL_NOT_FOUND,
            ResponseCode.PULL_RETRY_IMMEDIATELY,
            ResponseCode.PULL_OFFSET_MOVED,
        ):
            raise BrokerError(address, response)
        if response.code == ResponseCode.SUCCESS:
            for record in decode_messages(response.body or b""):
                if self._stopped:
                    return
                await self._consume(record)
                self.offset = record.queue_offset + 1
        if not self._stopped:
            self.offset = read_header(PullMessageResponseHeader, response).next_begin_offset

    async def _consume(self, record: MessageExt) -> None:
        """Have one message consumed; it is done with when the listener has it or the broker took it back."""
        tag = decode_properties(record.properties.decode("utf-8", "replace")).get(TAGS)
        if not wants(self._subscription, tag):
            return None
        while True:
            try:
                consumed = self._listener(ReceivedMessage.of_record(record, self.queue))
                if consumed is not None:
                    await consumed
                return None
            except StopConsuming:
                self._stopped = True
                raise CancelledError() from None
            except Exception as error:
                self.log.warn("{queue} {offset}: {error!r}", queue=self.queue, offset=record.queue_offset, error=error)
            try:
                return await self._send_back(record)
            except (RemotingError, ClientError) as error:
                self.log.warn("{queue}: not sent back: {error}", queue=self.queue, error=error)
            await self._sleep(RETRY_HERE_SECONDS)

    async def _send_back(self, record: MessageExt) -> None:
        """Give a message back to the broker, which delivers it again later (36)."""
        header = ConsumerSendMsgBackRequestHeader(
            offset=record.physical_offset,
            group=self._group,
            delay_level=0,
            origin_topic=record.topic,
            bname=self.queue.broker_name,
        )
        check_response(*await self._ask(RequestCode.CONSUMER_SEND_MSG_BACK, header, TIMEOUT_MS))

    # ------------------------------------------------------------ offsets

    async def _first_offset(self) -> int:
        """Return where the group has got to; for a queue new to it, where it is to begin."""
        header = QueryConsumerOffsetRequestHeader(
            consumer_group=self._group,
            topic=self.queue.topic,
            queue_id=self.queue.queue_id,
            bname=self.queue.broker_name,
        )
        address, response = await self._ask(RequestCode.QUERY_CONSUMER_OFFSET, header, TIMEOUT_MS)
        if response.code != ResponseCode.QUERY_NOT_FOUND:
            return read_header(OffsetResponseHeader, check_response(address, response)).offset
        first = self._from_where is not ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
        if first or self.queue.topic.startswith(RETRY_PREFIX):
            return 0
        header_of_queue = QueueRequestHeader(topic=self.queue.topic, queue_id=self.queue.queue_id)
        answer = check_response(*await self._ask(RequestCode.GET_MAX_OFFSET, header_of_queue, TIMEOUT_MS))
        return read_header(OffsetResponseHeader, answer).offset

    # ------------------------------------------------------------ within

    async def _ask(
        self, code: int, header: Any, timeout_ms: float, give_up: bool = False
    ) -> tuple[str, RemotingCommand]:
        """Ask the queue's broker; ``give_up``: stopping does not wait for the answer."""
        address = self._client.routes.address_of(self.queue.broker_name)
        if address is None:
            raise NoRouteError(f"no address of broker {self.queue.broker_name} is known")
        asked = self._client.remoting.invoke_sync(address, RemotingCommand(code, write_header(header)), timeout_ms)
        return address, await (self._interruptible(asked) if give_up else asked)

    async def _pause(self) -> None:
        try:
            await self._sleep(ERROR_DELAY_SECONDS)
        except CancelledError:
            self.log.debug("{queue}: halted while waiting", queue=self.queue)

    async def _sleep(self, seconds: float) -> None:
        """Wait; raises CancelledError when halted."""
        if self._stopped:
            raise CancelledError()
        await self._interruptible(deferLater(self._client.reactor, seconds, lambda: None))

    async def _interruptible(self, waiting: Deferred[Any]) -> Any:
        self._waiting = waiting
        try:
            return await waiting
        finally:
            self._waiting = None
