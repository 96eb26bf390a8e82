"""Sends what is ready: finds a queue, asks its broker, tries another where that may help.

Answers to sendDefaultImpl and sendKernelImpl of DefaultMQProducerImpl. Reactor thread.
"""

from collections.abc import Awaitable, Callable, Sequence
from random import Random

from twisted.internet.defer import Deferred
from twisted.internet.defer import TimeoutError as DeferredTimeoutError

from rocketd.client.config import milliseconds
from rocketd.client.errors import (
    Attempt,
    BrokerError,
    NoNameServerError,
    NoRouteError,
    RequestTimeoutError,
    RocketMQError,
    SendForbiddenError,
    UnreachableError,
    UsageError,
)
from rocketd.client.hooks import ProducerHooks, SendMessageContext
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.client.message import SEND_OK, SendResult
from rocketd.client.namespace import without_namespace
from rocketd.client.producer.faults import LatencyFaultTolerance
from rocketd.client.producer.options import ProducerOptions
from rocketd.client.producer.outgoing import OutgoingMessage, with_properties
from rocketd.client.producer.queue_choice import QueueChoice, TopicPublishInfo, write_queue_nums_of
from rocketd.common.properties import MSG_REGION, TRACE_ON, decode_properties
from rocketd.remoting.bodies import MessageQueue
from rocketd.remoting.codes import RequestCode, ResponseCode
from rocketd.remoting.command import RemotingCommand
from rocketd.remoting.headers import (
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
    read_header,
)

STORED = (
    ResponseCode.SUCCESS,
    ResponseCode.FLUSH_DISK_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE,
    ResponseCode.FLUSH_SLAVE_TIMEOUT,
)
RETRIED = (
    ResponseCode.TOPIC_NOT_EXIST,
    ResponseCode.SERVICE_NOT_AVAILABLE,
    ResponseCode.SYSTEM_ERROR,
    ResponseCode.NO_PERMISSION,
    ResponseCode.NO_BUYER_ID,
    ResponseCode.NOT_IN_CURRENT_UNIT,
)
"""Refusals after which another broker is tried."""

Select = Callable[[Sequence[MessageQueue]], MessageQueue]
"""Chooses one of a topic's queues."""


class Sender:
    """The sending half of one producer. ``hooks`` are called for each try."""

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        options: ProducerOptions,
        random: Random,
        hooks: ProducerHooks | None = None,
    ) -> None:
        self._instance = instance
        self._group = group
        self._options = options
        self._random = random
        self._hooks = hooks if hooks is not None and hooks.sending else None
        self._choice = QueueChoice(
            LatencyFaultTolerance(random.randrange(1 << 31)) if options.latency_fault_tolerance else None
        )
        self._infos: dict[str, tuple[list[MessageQueue], TopicPublishInfo]] = {}

    @property
    def send_timeout_ms(self) -> float:
        """The producer's own timeout."""
        return milliseconds("send_timeout", self._options.send_timeout)

    async def publish_queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues of a topic, which has its namespace; raises NoRouteError."""
        return await self._instance.routes.publish_queues(
            topic, self._options.create_topic_key, self._options.default_topic_queues
        )

    async def find_queues(self, topic: str, timeout_ms: float) -> list[MessageQueue]:
        """Return what ``publish_queues`` does, where there is only so much time. Raises RequestTimeoutError, too."""
        asked = Deferred.fromCoroutine(self.publish_queues(topic))
        asked.addTimeout(max(0.0, timeout_ms) / 1000, self._instance.reactor)
        try:
            return await asked
        except DeferredTimeoutError:
            text = f"finding the queues of topic {topic} took all of {timeout_ms:.0f} ms"
            if timeout_ms < self._instance.config.timeout_ms:
                raise RequestTimeoutError(text) from None
            raise NoNameServerError(f"no name server answers: {text}") from None

    async def send(
        self,
        outgoing: OutgoingMessage,
        timeout_ms: float,
        *,
        queue: MessageQueue | None = None,
        select: Select | None = None,
    ) -> SendResult:
        """Send to ``queue``, to the one that ``select`` chooses, or to the queues in turn.

        In turn, and only then, other brokers are tried: what is left of the time is shared among the tries. The error
        has all tries. Raises NoRouteError, BrokerError, UnreachableError, ConnectionLostError or RequestTimeoutError.
        """
        seconds = self._instance.reactor.seconds
        ends = seconds() + timeout_ms / 1000
        tries = 1 if queue is not None or select is not None else 1 + self._options.retries
        attempts: list[Attempt] = []
        last: RocketMQError | None = None
        result: SendResult | None = None
        broker: str | None = None
        for turn in range(tries):
            if turn and seconds() >= ends:
                break
            began = seconds()
            try:
                target = await self._target(outgoing.topic, queue, select, broker, (ends - began) * 1000)
            except RocketMQError as error:
                error.attempts = tuple(attempts)
                raise
            began = seconds()
            others = turn + 1 < tries and self._has_other_broker(outgoing.topic, target.broker_name)
            left = (ends - began) * 1000
            broker = target.broker_name
            try:
                result = await self._try(outgoing, target, left / (tries - turn) if others else left)
            except SendForbiddenError:
                raise
            except RocketMQError as error:
                last = error
                took = (seconds() - began) * 1000
                attempts.append(Attempt(broker, took, _outcome(error)))
                self._choice.update(broker, took, seconds() * 1000, isolation=True)
                if isinstance(error, BrokerError) and error.code not in RETRIED:
                    break
                continue
            self._choice.update(broker, (seconds() - began) * 1000, seconds() * 1000)
            if result.status == SEND_OK or not self._options.retry_another_broker:
                return result
            attempts.append(Attempt(broker, (seconds() - began) * 1000, f"stored, but status {result.status}"))
        if result is not None:
            return result
        if isinstance(last, BrokerError) and last.code == ResponseCode.TOPIC_NOT_EXIST:
            self._instance.routes.forget(outgoing.topic)
        else:
            self._instance.routes.doubt(outgoing.topic)
        if last is None:
            raise RequestTimeoutError(f"finding a queue of topic {outgoing.topic} took all of {timeout_ms:g} ms")
        last.attempts = tuple(attempts)
        raise last

    async def tell(
        self, outgoing: OutgoingMessage, *, queue: MessageQueue | None = None, select: Select | None = None
    ) -> None:
        """Send without an answer. Raises NoRouteError or UnreachableError; what the broker does is not known."""
        target = await self._target(outgoing.topic, queue, select, None, self.send_timeout_ms)
        address = self._instance.master(target.broker_name)

        async def tell(outgoing: OutgoingMessage) -> None:
            await self._instance.tell(address, outgoing.code, self._header(outgoing, target), outgoing.body)

        if self._hooks is None:
            await tell(outgoing)
        else:
            await self._hooked(self._hooks, tell, outgoing, target, address, oneway=True)

    # ------------------------------------------------------------ within

    async def _target(
        self,
        topic: str,
        queue: MessageQueue | None,
        select: Select | None,
        last_broker: str | None,
        timeout_ms: float,
    ) -> MessageQueue:
        if queue is None:
            return await self._choose(topic, select, last_broker, timeout_ms)
        if self._instance.routes.address_of(queue.broker_name) is None:
            await self.find_queues(topic, timeout_ms)  # the route tells where the broker is
        return queue

    async def _choose(
        self, topic: str, select: Select | None, last_broker: str | None, timeout_ms: float
    ) -> MessageQueue:
        queues = self._instance.routes.known_publish_queues(topic) or await self.find_queues(topic, timeout_ms)
        if select is not None:
            return self._selected(topic, queues, select)
        known = self._infos.get(topic)
        if known is None or known[0] is not queues:  # the route has changed
            route = await self._instance.routes.route(topic)
            known = queues, TopicPublishInfo(queues, write_queue_nums_of(route), self._random.randrange(1 << 31))
            self._infos[topic] = known
        info = known[1]
        return self._choice.select_one_message_queue(info, last_broker, self._instance.reactor.seconds() * 1000)

    def _selected(self, topic: str, queues: list[MessageQueue], select: Select) -> MessageQueue:
        """Let the application choose; it knows the topic without its namespace."""
        namespace = self._instance.config.namespace
        if namespace:
            queues = [MessageQueue(without_namespace(namespace, topic), q.broker_name, q.queue_id) for q in queues]
        chosen = select(queues)
        if not isinstance(chosen, MessageQueue):
            raise UsageError(
                f"the selector chose {chosen!r} for topic {topic}: it has to return one of the queues it gets"
            )
        return MessageQueue(topic, chosen.broker_name, chosen.queue_id) if namespace else chosen

    def _has_other_broker(self, topic: str, broker_name: str) -> bool:
        known = self._infos.get(topic)
        return known is not None and any(queue.broker_name != broker_name for queue in known[0])

    async def _try(self, outgoing: OutgoingMessage, queue: MessageQueue, timeout_ms: float) -> SendResult:
        address = self._instance.master(queue.broker_name)
        if self._hooks is None:
            return await self._send_to(address, outgoing, queue, timeout_ms)

        async def send(outgoing: OutgoingMessage) -> SendResult:
            return await self._send_to(address, outgoing, queue, timeout_ms)

        result = await self._hooked(self._hooks, send, outgoing, queue, address)
        assert result is not None
        return result

    async def _hooked(
        self,
        hooks: ProducerHooks,
        send: Callable[[OutgoingMessage], Awaitable[SendResult | None]],
        outgoing: OutgoingMessage,
        queue: MessageQueue,
        address: str,
        *,
        oneway: bool = False,
    ) -> SendResult | None:
        """Do one try with hooks before and after; they may change the properties."""
        namespace = self._instance.config.namespace
        context = SendMessageContext(
            group=without_namespace(namespace, self._group),
            messages=outgoing.messages,
            queue=MessageQueue(without_namespace(namespace, queue.topic), queue.broker_name, queue.queue_id),
            broker_address=address,
            oneway=oneway,
            properties=decode_properties(outgoing.properties),
            body_length=outgoing.body_size,
            msg_id=",".join(outgoing.unique_keys),
        )
        hooks.send_before(context)
        try:
            context.result = await send(with_properties(outgoing, context.properties))
        except Exception as error:
            context.error = error
            raise
        finally:
            hooks.send_after(context)
        return context.result

    async def _send_to(
        self, address: str, outgoing: OutgoingMessage, queue: MessageQueue, timeout_ms: float
    ) -> SendResult:
        header = self._header(outgoing, queue)
        try:
            response = await self._instance.ask(address, outgoing.code, header, outgoing.body, timeout_ms, bounded=True)
        except UnreachableError as error:
            raise UnreachableError(
                f"broker {queue.broker_name} is registered as {address} and cannot be reached from here: {error}; if that "
                "address is not the one to use, set brokerIP1 at the broker",
                broker=queue.broker_name,
            ) from error
        if response.code not in STORED:
            raise BrokerError(address, response)
        return self._result(outgoing, queue, response)

    def _header(self, outgoing: OutgoingMessage, queue: MessageQueue) -> SendMessageRequestHeader:
        return SendMessageRequestHeaderV2(
            producer_group=self._group,
            topic=outgoing.topic,
            default_topic=self._options.create_topic_key,
            default_topic_queue_nums=self._options.default_topic_queues,
            queue_id=queue.queue_id,
            sys_flag=outgoing.sys_flag,
            born_timestamp=int(self._instance.now_ms()),
            flag=outgoing.flag,
            properties=outgoing.properties,
            reconsume_times=0,
            batch=outgoing.code == RequestCode.SEND_BATCH_MESSAGE,
            bname=queue.broker_name,
        )

    def _result(self, outgoing: OutgoingMessage, queue: MessageQueue, response: RemotingCommand) -> SendResult:
        where = read_header(SendMessageResponseHeader, response)
        fields = response.ext_fields or {}
        topic = without_namespace(self._instance.config.namespace, outgoing.topic)
        return SendResult(
            response.code,
            ",".join(outgoing.unique_keys),
            where.msg_id,
            MessageQueue(topic, queue.broker_name, where.queue_id),
            where.queue_offset,
            where.transaction_id,
            fields.get(MSG_REGION, "DefaultRegion"),
            fields.get(TRACE_ON) != "false",
        )


def _outcome(error: RocketMQError) -> str:
    return f"{type(error).__name__}: {error}" if not isinstance(error, NoRouteError) else str(error)
