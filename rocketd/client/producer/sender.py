"""Sends encoded messages: chooses a queue, asks its broker, and tries another broker if this may help.

Counterpart: `sendDefaultImpl` and `sendKernelImpl` of `DefaultMQProducerImpl` (Apache). Reactor thread.
"""

from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import NamedTuple

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.defer import TimeoutError as DeferredTimeoutError

from rocketd.client.errors import (
    Attempt,
    BrokerError,
    NoBrokerError,
    NoNameServerError,
    NoRouteError,
    RequestTimeoutError,
    RocketMQError,
    SendForbiddenError,
    TooManyRequestsError,
    UnreachableError,
    UsageError,
    of_remoting,
)
from rocketd.client.hooks import ProducerHooks, SendMessageContext
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.client.messages.message import SendResult
from rocketd.client.messages.namespace import without_namespace
from rocketd.client.producer.faults import LatencyFaultTolerance
from rocketd.client.producer.options import ProducerOptions
from rocketd.client.producer.outgoing import OutgoingMessage, with_properties
from rocketd.client.producer.queue_choice import QueueChoice, TopicPublishInfo, write_queue_nums_of
from rocketd.client.settings.config import milliseconds
from rocketd.common.event_loop import timers
from rocketd.common.message_properties import MSG_REGION, TRACE_ON, decode_properties
from rocketd.protocol.send import SEND_STATUS, STORED, SendStatus, send_fields
from rocketd.remoting.bodies.tables import MessageQueue
from rocketd.remoting.errors import RemotingError
from rocketd.remoting.headers.client import (
    SendMessageResponseHeader,
    read_header,
)
from rocketd.remoting.wire.codes import RequestCode, ResponseCode
from rocketd.remoting.wire.command import RemotingCommand

RETRIED = (
    ResponseCode.TOPIC_NOT_EXIST,
    ResponseCode.SERVICE_NOT_AVAILABLE,
    ResponseCode.SYSTEM_ERROR,
    ResponseCode.NO_PERMISSION,
    ResponseCode.NO_BUYER_ID,
    ResponseCode.NOT_IN_CURRENT_UNIT,
)
"""Refusals after which another broker is tried."""

FIRST_PAUSE_SECONDS = 0.05
"""Pause before the first broker is tried again. It doubles each time."""

MAX_PAUSE_SECONDS = 1.0

MAX_ATTEMPTS = 16
"""Maximum number of tries that an error lists: the first and the last ones."""

Select = Callable[[Sequence[MessageQueue]], MessageQueue]
"""Chooses one of a topic's queues."""


class FirstTry(NamedTuple):
    """A failed first try of a send, made elsewhere: the broker, the time it took, and the error."""

    broker_name: str
    took_ms: float
    error: RocketMQError


class BegunSend:
    """A first try under way. ``answer`` fires with the response, or fails with a RemotingError."""

    __slots__ = ("address", "answer", "began", "deadline", "outgoing", "queue")

    def __init__(
        self,
        outgoing: OutgoingMessage,
        queue: MessageQueue,
        address: str,
        answer: Deferred[RemotingCommand],
        began: float,
        deadline: float,
    ) -> None:
        self.outgoing = outgoing
        self.queue = queue
        self.address = address
        self.answer = answer
        self.began = began
        self.deadline = deadline


class ProducerSender:
    """The sending half of one producer. ``hooks`` are called for each try.

    If ``patient``, brokers and name servers that cannot be reached are tried until the timeout. Nothing was sent to them, so
    the message cannot be stored twice.
    """

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        options: ProducerOptions,
        random: Random,
        hooks: ProducerHooks | None = None,
        *,
        patient: bool = False,
    ) -> None:
        self._instance = instance
        self._group = group
        self._options = options
        self._random = random
        self._hooks = hooks if hooks is not None and hooks.sending else None
        self._choice = QueueChoice(
            LatencyFaultTolerance(random.randrange(1 << 31)) if options.latency_fault_tolerance else None
        )
        self._plain = self._hooks is None and self._choice.faults is None
        self._infos: dict[str, tuple[list[MessageQueue], TopicPublishInfo]] = {}
        self._patient = patient and options.retries > 0
        self._pausing: set[Deferred[bool]] = set()
        self._stopped = False
        self.sent_count = self.failed_count = self.retry_count = 0

    def stop(self) -> None:
        """End the sends that pause before another try, with the error of their last one."""
        self._stopped = True
        for pausing in list(self._pausing):
            pausing.cancel()

    @property
    def send_timeout_ms(self) -> float:
        """The default timeout of the producer."""
        return milliseconds("send_timeout", self._options.send_timeout)

    async def publish_queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues of a topic, given with its namespace. Raises NoRouteError."""
        return await self._instance.routes.publish_queues(
            topic, self._options.create_topic_key, self._options.default_topic_queues
        )

    async def find_queues(self, topic: str, timeout_ms: float) -> list[MessageQueue]:
        """Return the result of ``publish_queues`` within a time. Raises its errors and RequestTimeoutError."""
        asked = Deferred.fromCoroutine(self.publish_queues(topic))
        asked.addTimeout(max(0.0, timeout_ms) / 1000, self._instance.reactor)
        try:
            return await asked
        except DeferredTimeoutError:
            text = f"finding the queues of topic {topic} took all of {timeout_ms:.0f} ms"
            if timeout_ms < self._instance.config.timeout_ms:
                raise RequestTimeoutError(text) from None
            raise NoNameServerError(f"no name server answers: {text}") from None

    def turn_of(self, topic: str) -> TopicPublishInfo | None:
        """Return the round-robin over the queues of a topic if ``begin`` may send to it."""
        if not self._plain or self._options.retry_another_broker:
            return None
        queues = self._instance.routes.known_publish_queues(topic)
        return None if queues is None else self.publish_info(topic, queues)

    def begin(self, outgoing: OutgoingMessage, turn: TopicPublishInfo, timeout_ms: float) -> BegunSend | None:
        """Make the first try of ``send`` without its detours. None if there is no address of the broker."""
        queue = turn.select_one_message_queue()
        try:
            address = self._instance.master(queue.broker_name)
        except NoRouteError:
            return None
        began = self._instance.reactor.seconds()
        share = timeout_ms / (1 + self._options.retries) if turn.several_brokers else timeout_ms
        request = RemotingCommand(outgoing.code, self.fields(outgoing, queue), outgoing.body)
        answer = self._instance.remoting.invoke_async(address, request, share)
        return BegunSend(outgoing, queue, address, answer, began, began + timeout_ms / 1000)

    def ended(self, begun: BegunSend, response: RemotingCommand) -> SendResult | FirstTry:
        """Return the result of a first try."""
        if response.code in STORED:
            self.sent_count += 1
            return self.result(begun.outgoing, begun.queue, response)
        return self._first_try(begun, BrokerError(begun.address, response))

    def failed(self, begun: BegunSend, error: RemotingError) -> FirstTry:
        """Return the failure of a first try without an answer."""
        failure = of_remoting(error, begun.address)
        if isinstance(failure, UnreachableError):
            failure = _unreachable(begun.queue, begun.address, failure)
        return self._first_try(begun, failure)

    def _first_try(self, begun: BegunSend, failure: RocketMQError) -> FirstTry:
        took_ms = (self._instance.reactor.seconds() - begun.began) * 1000
        return FirstTry(begun.queue.broker_name, took_ms, failure)

    async def send(
        self,
        outgoing: OutgoingMessage,
        timeout_ms: float,
        *,
        queue: MessageQueue | None = None,
        select: Select | None = None,
        first: FirstTry | None = None,
        broker: str | None = None,
    ) -> SendResult:
        """Send to ``queue``, to the queue chosen by ``select``, or to the queues in turn.

        Only in turn, other brokers are tried: the tries share the remaining time. The error lists the tries. ``first`` is
        a try that was made already, and counts as one of them. Before a broker is tried again, there is a pause.
        ``broker`` is tried before the queues in turn, if it has the topic.

        Raises:

        - NoRouteError: no broker takes messages of the topic, or no name server answers.
        - SendForbiddenError: a hook refused.
        - BrokerError: the broker refused.
        - UnreachableError, ConnectionLostError: the connection failed.
        - RequestTimeoutError: the answer did not come in time.
        """
        try:
            result = await self._send(outgoing, timeout_ms, queue, select, first, broker)
        except BaseException:
            self.failed_count += len(outgoing.unique_keys)
            raise
        self.sent_count += len(outgoing.unique_keys)
        return result

    async def _send(
        self,
        outgoing: OutgoingMessage,
        timeout_ms: float,
        queue: MessageQueue | None,
        select: Select | None,
        first: FirstTry | None,
        preferred: str | None,
    ) -> SendResult:
        seconds = self._instance.reactor.seconds
        deadline = seconds() + timeout_ms / 1000
        tries = 1 if queue is not None or select is not None else 1 + self._options.retries
        attempts: list[Attempt] = []
        unreached: set[str] = set()
        last: RocketMQError | None = None
        result: SendResult | None = None
        broker: str | None = None
        made = 0
        pause = FIRST_PAUSE_SECONDS
        if first is not None:
            broker, took, last = first
            attempts.append(_attempt(broker, took, last))
            made += self._counts(last)
            if not made:
                unreached.add(broker)
            if isinstance(last, BrokerError) and last.code not in RETRIED:
                made = tries
        while made < tries:
            began = seconds()
            if attempts and began >= deadline:
                break
            try:
                target = await self._target(outgoing.topic, queue, select, broker, (deadline - began) * 1000)
            except RocketMQError as error:
                error.attempts = tuple(attempts)
                left = deadline - seconds()
                if left <= FIRST_PAUSE_SECONDS or not self._is_outage(error):
                    raise
                if not await self._pause(min(pause, left / 2)):
                    raise
                pause = min(2 * pause, MAX_PAUSE_SECONDS)
                continue
            if preferred is not None and not attempts:
                target = self._queue_of(preferred, outgoing.topic) or target
            if target.broker_name in unreached:
                left = deadline - seconds()
                if left <= FIRST_PAUSE_SECONDS:
                    break
                self._instance.routes.doubt(outgoing.topic)
                if not await self._pause(min(pause, left / 2)):
                    break
                pause = min(2 * pause, MAX_PAUSE_SECONDS)
                unreached.clear()
                continue
            began = seconds()
            others = made + 1 < tries and self._has_other_broker(outgoing.topic, target.broker_name)
            left = (deadline - began) * 1000
            broker = target.broker_name
            self.retry_count += bool(attempts)
            try:
                result = await self._try(outgoing, target, left / (tries - made) if others else left)
            except SendForbiddenError:
                raise
            except RocketMQError as error:
                last = error
                took = (seconds() - began) * 1000
                _note(attempts, _attempt(broker, took, error))
                if result is None and not self._counts(error):
                    unreached.add(broker)
                else:
                    made += 1
                self._choice.update(broker, took, seconds() * 1000, isolation=True)
                if isinstance(error, BrokerError) and error.code not in RETRIED:
                    break
                continue
            made += 1
            self._choice.update(broker, (seconds() - began) * 1000, seconds() * 1000)
            if result.status is SendStatus.SEND_OK or not self._options.retry_another_broker:
                return result
            _note(attempts, Attempt(broker, (seconds() - began) * 1000, f"stored, but {result.status.name}", True))
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
        """Send oneway. Raises NoRouteError or UnreachableError. The result at the broker is unknown."""
        target = await self._target(outgoing.topic, queue, select, None, self.send_timeout_ms)
        address = self._instance.master(target.broker_name)

        async def tell(outgoing: OutgoingMessage) -> None:
            await self._instance.tell(address, outgoing.code, self.fields(outgoing, target), outgoing.body)

        if self._hooks is None:
            await tell(outgoing)
        else:
            await self._hooked(self._hooks, tell, outgoing, target, address, oneway=True)
        self.sent_count += 1

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
            await self.find_queues(topic, timeout_ms)  # the route has the broker's address
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

    def _queue_of(self, broker_name: str, topic: str) -> MessageQueue | None:
        """Return a queue of a topic at a broker, None if it has none."""
        queues = self._instance.routes.known_publish_queues(topic) or ()
        own = [queue for queue in queues if queue.broker_name == broker_name]
        return self._random.choice(own) if own else None

    def _selected(self, topic: str, queues: list[MessageQueue], select: Select) -> MessageQueue:
        """Let the application choose. It knows the topic without its namespace."""
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

    def _is_outage(self, error: RocketMQError) -> bool:
        """Whether no queue was found only because servers are away, and the send waits for them."""
        away = isinstance(error, NoNameServerError | NoBrokerError)
        return self._patient and away and not self._instance.is_misled(error)

    def _counts(self, error: RocketMQError) -> bool:
        """Whether a failed try is one of the limited number."""
        return not (self._patient and isinstance(error, UnreachableError))

    async def _pause(self, duration: float) -> bool:
        """Wait before another try. Return False if the producer is stopped."""
        if self._stopped:
            return False
        pausing: Deferred[bool] = timers.deferLater(self._instance.reactor, duration, lambda: True)
        self._pausing.add(pausing)
        try:
            return await pausing
        except CancelledError:
            if self._stopped:
                return False
            raise
        finally:
            self._pausing.discard(pausing)

    def publish_info(self, topic: str, queues: list[MessageQueue]) -> TopicPublishInfo | None:
        """Return the round-robin over a topic's queues. None if there is none yet, or one of other queues. Any thread."""
        known = self._infos.get(topic)
        return known[1] if known is not None and known[0] is queues else None

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
        """Do one try with hooks before and after. Hooks may change the properties."""
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
        fields = self.fields(outgoing, queue)
        try:
            response = await self._instance.ask(address, outgoing.code, fields, outgoing.body, timeout_ms, bounded=True)
        except UnreachableError as error:
            raise _unreachable(queue, address, error) from error
        if response.code not in STORED:
            raise BrokerError(address, response)
        return self.result(outgoing, queue, response)

    def fields(self, outgoing: OutgoingMessage, queue: MessageQueue) -> dict[str, str]:
        """Return the fields of a request to send a message. Any thread."""
        return send_fields(
            self._group,
            outgoing.topic,
            queue,
            outgoing.properties,
            born_ms=int(self._instance.now_ms()),
            flag=outgoing.flag,
            sys_flag=outgoing.sys_flag,
            batch=outgoing.code == RequestCode.SEND_BATCH_MESSAGE,
            template=self._options.create_topic_key,
            max_queues=self._options.default_topic_queues,
        )

    def result(self, outgoing: OutgoingMessage, queue: MessageQueue, response: RemotingCommand) -> SendResult:
        """Return the result from a broker's answer. Any thread."""
        fields = response.ext_fields or {}
        where = _place_of(fields) or read_header(SendMessageResponseHeader, response)
        topic = without_namespace(self._instance.config.namespace, outgoing.topic)
        return SendResult(
            SEND_STATUS[response.code],
            ",".join(outgoing.unique_keys),
            where.msg_id,
            MessageQueue(topic, queue.broker_name, where.queue_id),
            where.queue_offset,
            where.transaction_id,
            fields.get(MSG_REGION, "DefaultRegion"),
            fields.get(TRACE_ON) != "false",
        )


def _unreachable(queue: MessageQueue, address: str, error: RocketMQError) -> UnreachableError:
    return UnreachableError(
        f"broker {queue.broker_name} is registered as {address} and cannot be reached from here: {error}; if that "
        "address is not the one to use, set brokerIP1 at the broker",
        broker=queue.broker_name,
    )


def _place_of(fields: dict[str, str]) -> SendMessageResponseHeader | None:
    """Return the header of an answer in the usual form, None for any other."""
    queue_id, queue_offset = fields.get("queueId", ""), fields.get("queueOffset", "")
    if "msgId" not in fields or not _is_number(queue_id) or len(queue_id) > 9:
        return None
    if not _is_number(queue_offset) or len(queue_offset) > 18:
        return None
    return SendMessageResponseHeader(fields["msgId"], int(queue_id), int(queue_offset), fields.get("transactionId"))


def _note(attempts: list[Attempt], attempt: Attempt) -> None:
    """Add a try. If there are too many, one of the middle is dropped, if possible one that stored nothing."""
    if len(attempts) >= MAX_ATTEMPTS:
        middle = range(MAX_ATTEMPTS // 2, len(attempts))
        del attempts[next((index for index in middle if not attempts[index].may_be_stored), middle[0])]
    attempts.append(attempt)


def _attempt(broker: str, milliseconds: float, error: RocketMQError) -> Attempt:
    if isinstance(error, BrokerError):
        may_be_stored = error.code == ResponseCode.SYSTEM_ERROR
    else:
        may_be_stored = not isinstance(error, UnreachableError | NoRouteError | TooManyRequestsError)
    return Attempt(broker, milliseconds, _outcome(error), may_be_stored)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _outcome(error: RocketMQError) -> str:
    return f"{type(error).__name__}: {error}" if not isinstance(error, NoRouteError) else str(error)
