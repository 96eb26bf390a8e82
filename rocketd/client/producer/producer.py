"""Producers: single messages, batches, transactions, and requests with a reply.

Counterpart: `DefaultMQProducer`, `TransactionMQProducer` and `DefaultMQProducerImpl` (Apache). The three faces of the client
pass their calls to it.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence, Sized
from itertools import count
from random import Random
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from twisted.internet.defer import Deferred, ensureDeferred

from rocketd.client.errors import (
    ClientClosedError,
    IllegalMessageError,
    NotStartedError,
    RequestTimeoutError,
    RocketMQError,
    TooManyRequestsError,
    UsageError,
    check_group,
    check_topic,
)
from rocketd.client.hooks import ProducerHooks
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.client.messages.codec import BYTES, Codec
from rocketd.client.messages.message import Message, ReceivedMessage, SendResult, T, check_is_message
from rocketd.client.messages.namespace import with_namespace, without_namespace
from rocketd.client.producer.gatherer import MAX_GATHERED_BYTES, Gatherer
from rocketd.client.producer.options import ProducerOptions
from rocketd.client.producer.outgoing import OutgoingMessage, batch_part, outgoing_batches, outgoing_message
from rocketd.client.producer.queue_choice import TopicPublishInfo
from rocketd.client.producer.request_reply import reply_properties, request_reply
from rocketd.client.producer.selectors import SelectMessageQueueByHash
from rocketd.client.producer.sender import BegunSend, FirstTry, ProducerSender, Select
from rocketd.client.producer.tracing import ProducerTracing, Tracing
from rocketd.client.producer.transaction import ProducerTransactions, TransactionListener, TransactionSendResult
from rocketd.client.runtime.listeners import HandlerThreads
from rocketd.client.settings.config import Duration, milliseconds
from rocketd.client.stats import ProducerStats
from rocketd.common.message_properties import PGROUP, TRAN_MSG
from rocketd.remoting.bodies.tables import MessageQueue
from rocketd.remoting.errors import RemotingError
from rocketd.remoting.headers.client import CheckTransactionStateRequestHeader
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.store.format.record import MessageExt

R = TypeVar("R")

BY_HASH = SelectMessageQueueByHash()
"""The default selector for a key. Java's clients always name it explicitly."""

Selector = Callable[[Sequence[MessageQueue], Message[Any], Any], MessageQueue]
"""Chooses a queue by the message and a key of the application."""


class ProducerEngine(Generic[T]):
    """A producer of one group, between ``start`` and ``stop``. All methods belong to the reactor thread.

    ``run_coroutine`` runs the coroutines of the application's coroutine functions. The constructor raises IllegalGroupError.
    """

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        *,
        options: ProducerOptions | None = None,
        codec: Codec[T] = BYTES,  # type: ignore[assignment]
        transactions: TransactionListener[T] | None = None,
        run_coroutine: Callable[[Any], Deferred[Any]] = ensureDeferred,
        random: Random | None = None,
    ) -> None:
        check_group(group)
        self.options = options or ProducerOptions()
        self.group = with_namespace(instance.config.namespace, group)
        self.instance = instance
        self.codec = codec
        random = random or Random()
        trace = self.options.trace
        self._tracing = Tracing(instance, self.group, "PRODUCE", trace, random) if trace else None
        traces = [ProducerTracing(self._tracing)] if self._tracing is not None else []
        self.hooks = ProducerHooks([*traces, *self.options.send_hooks])
        self._sender = ProducerSender(instance, self.group, self.options, random, self.hooks, patient=True)
        self.threads = HandlerThreads(
            instance.reactor, f"rocketd-transactions-{self.group}", self.options.transaction_threads, run_coroutine
        )
        self._transactions = (
            None if transactions is None else ProducerTransactions(self, transactions, self.threads.invoke)
        )
        linger_ms = milliseconds("linger", self.options.linger, zero=True)
        self._gatherer = (
            Gatherer(instance.reactor, self._send_gathered, linger_ms / 1000, self.options.linger_messages)
            if linger_ms
            else None
        )
        self._state: type[NotStartedError] | type[ClientClosedError] | None = NotStartedError
        self._pending = 0
        self.direct: Sized = ()
        """The sends that other threads make themselves. They count as sends under way."""
        self.direct_sent: Callable[[], int] = lambda: 0
        """Returns the number of messages that other threads have sent themselves."""

    async def start(self) -> None:
        """Name the group in heartbeats from now on. Raises GroupInUseError."""
        self.instance.add_producer(self)
        if self._tracing is not None:
            self._tracing.start()
        self._state = None
        if self._transactions is not None:
            await self.instance.send_heartbeats()

    async def stop(self) -> None:
        """Tell the brokers that the group is gone. Sends under way end normally."""
        if self._state is None:
            self._state = ClientClosedError
            self._sender.stop()
            ends = None if self._transactions is None else Deferred.fromCoroutine(self._transactions.stop())
            if self._gatherer is not None:
                await self._gatherer.stop()
            if self._tracing is not None:
                await self._tracing.stop()
            await self.instance.remove_producer(self)
            if ends is not None:
                await ends
            await self.threads.stop()

    # ------------------------------------------------------------ sending

    async def send(
        self,
        message: Message[T],
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        key: object = None,
        timeout: Duration | None = None,
    ) -> SendResult:
        """Send a message to ``queue``, to a queue chosen by ``key`` (``selector`` or hash), or to the queues in turn.

        Raises:

        - IllegalMessageError, IllegalTopicError: the message or its topic is invalid.
        - UsageError: ``queue``, ``selector`` and ``key`` do not fit together.
        - NoRouteError: no broker takes messages of the topic, or no name server answers.
        - SendForbiddenError: a hook refused.
        - BrokerError: the broker refused.
        - UnreachableError: the broker cannot be reached.
        - ConnectionLostError: the connection closed before the answer.
        - RequestTimeoutError: the answer did not come in time.
        - TooManyRequestsError: too many sends are under way.
        - NotStartedError, ClientClosedError: the producer does not run.
        """
        if queue is None and selector is None and key is None:
            gathered = self.gather(message, timeout)
            if gathered is not None:
                return await gathered
            begun = self.begin(message, timeout)
            if begun is not None:
                try:
                    result = self.ended(begun, await begun.answer)
                except RemotingError as error:
                    result = self.failed(begun, error)
                finally:
                    self.try_is_over(begun)
                return result if isinstance(result, SendResult) else await self.send_again(begun, result)
        outgoing = self.outgoing(message)
        where = self.where(message, queue, selector, key)
        return await self._counted(self._sender.send(outgoing, self.timeout_ms(timeout), **where))

    def begin(self, message: Message[T], timeout: Duration | None) -> BegunSend | None:
        """Make the first try of a send to the queues in turn. None if the way is not known: use ``send``.

        The caller waits for its ``answer``, calls ``ended`` or ``failed``, then ``try_is_over``, and after a failure
        ``send_again``. Raises the errors of ``send`` about its arguments and the state.
        """
        turn = self._turn_of(message)
        if turn is None:
            return None
        outgoing = self.outgoing(message)
        begun = self._sender.begin(outgoing, turn, self.timeout_ms(timeout))
        if begun is not None:
            self._pending += 1
        return begun

    def _turn_of(self, message: Message[T]) -> TopicPublishInfo | None:
        if (
            self._gatherer is not None
            or self._state is not None
            or not isinstance(message, Message)
            or not isinstance(message.topic, str)
        ):
            return None
        return self._sender.turn_of(with_namespace(self.instance.config.namespace, message.topic))

    def ended(self, begun: BegunSend, response: RemotingCommand) -> SendResult | FirstTry:
        """Return the result of a first try."""
        return self._sender.ended(begun, response)

    def failed(self, begun: BegunSend, error: RemotingError) -> FirstTry:
        """Return the failure of a first try."""
        return self._sender.failed(begun, error)

    def gather(self, message: Message[T], timeout: Duration | None) -> Deferred[SendResult] | None:
        """Let a message wait for others, and return its result. None if it is sent alone, such as a compressed one.

        The Deferred fails with the errors of ``send``. Raises those about the arguments and the state.
        """
        gatherer = self._gatherer
        if gatherer is None:
            return None
        self._check()
        check_is_message(message)
        message.check()
        if not gatherer.takes(message):
            return None
        namespace = self.instance.config.namespace
        limit, key = self.options.max_message_size, self.instance.unique_keys.next_key()
        part = batch_part(message, self.codec, key, limit=limit, namespace=namespace)
        if part.body_size >= self.options.compress_over or len(part.entry) >= MAX_GATHERED_BYTES:
            return None
        return gatherer.add(with_namespace(namespace, message.topic), part, self.timeout_ms(timeout))

    async def _send_gathered(self, outgoing: OutgoingMessage, timeout_ms: float) -> list[SendResult]:
        return _of_each(await self._sender.send(outgoing, timeout_ms), outgoing)

    def try_is_over(self, begun: BegunSend) -> None:
        """Note that a first try is over, however it ended."""
        self._pending -= 1

    async def send_again(self, begun: BegunSend, first: FirstTry) -> SendResult:
        """Make the other tries of a send, in the time left. Raises the errors of ``send``."""
        left_ms = max(0.0, begun.deadline - self.instance.reactor.seconds()) * 1000
        return await self._counted(self._sender.send(begun.outgoing, left_ms, first=first))

    async def send_oneway(
        self,
        message: Message[T],
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        key: object = None,
    ) -> None:
        """Send a message without waiting for an answer: whether it is stored stays unknown.

        Raises the errors of ``send``.
        """
        outgoing = self.outgoing(message)
        await self._counted(self._sender.tell(outgoing, **self.where(message, queue, selector, key)))

    async def send_batch(
        self,
        messages: Sequence[Message[T]],
        *,
        queue: MessageQueue | None = None,
        timeout: Duration | None = None,
    ) -> list[SendResult]:
        """Send messages of one topic together, in as many requests as the size limit needs. Return a result for each.

        ``timeout`` applies to all of them together. Raises the errors of ``send``. ``results`` of the error has the
        results of messages already stored.
        """
        self._check()
        seconds = self.instance.reactor.seconds
        timeout_ms = self.timeout_ms(timeout)
        deadline = seconds() + timeout_ms / 1000
        if not isinstance(messages, Iterable):
            raise IllegalMessageError(f"a batch is a list of messages, {type(messages).__name__} is none")
        messages = list(messages)
        namespace = self.instance.config.namespace
        keys = (self.instance.unique_keys.next_key() for _ in count())
        batches = outgoing_batches(messages, self.codec, keys, limit=self.options.max_message_size, namespace=namespace)
        where = self.where(messages[0], queue, None, None)
        results: list[SendResult] = []
        try:
            for outgoing in batches:
                left_ms = (deadline - seconds()) * 1000
                if left_ms <= 0:
                    raise RequestTimeoutError(
                        f"{len(results)} of {len(messages)} messages to {messages[0].topic} took all of {timeout_ms:g} ms"
                    )
                whole = await self._counted(self._sender.send(outgoing, left_ms, **where))
                results.extend(_of_each(whole, outgoing))
        except RocketMQError as error:
            error.results = tuple(results)
            raise
        return results

    async def send_in_transaction(self, message: Message[T], arg: object = None) -> TransactionSendResult:
        """Send a half message, run the local transaction, and commit or roll back by its result.

        Consumers get the message only after the commit. Raises the errors of ``send``, and UsageError without a listener.
        """
        self._check()
        if self._transactions is None:
            raise UsageError("this producer has no transaction listener: give transactions=... where it is made")
        check_is_message(message)
        return await self._transactions.send(message, arg)

    async def request(
        self,
        message: Message[T],
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        key: object = None,
        timeout: Duration | None = None,
    ) -> ReceivedMessage[T]:
        """Send a message and wait for a consumer's reply. ``timeout`` applies to both together.

        Raises RequestTimeoutError if no reply comes in time, and the errors of ``send``.
        """
        self._check()
        check_is_message(message)
        message.check()
        where = self.where(message, queue, selector, key)
        return await self._counted(request_reply(self, message, where, self.timeout_ms(timeout)))

    async def reply(self, request: ReceivedMessage[Any], body: T, *, timeout: Duration | None = None) -> SendResult:
        """Send the reply to a request.

        It goes to the broker of the request first, because the requester is connected to that one. Raises
        IllegalMessageError if the message is not a request, and the errors of ``send``.
        """
        topic, more = reply_properties(request)
        where = {"broker": request.queue.broker_name}
        return await self._counted(self.send_with(Message(topic, body), more, self.timeout_ms(timeout), where))

    async def publish_queues(self, topic: str) -> list[MessageQueue]:
        """Return the writable queues of a topic. Raises NoRouteError."""
        self._check()
        check_topic(topic)
        namespace = self.instance.config.namespace
        queues = await self._sender.publish_queues(with_namespace(namespace, topic))
        return [MessageQueue(without_namespace(namespace, q.topic), q.broker_name, q.queue_id) for q in queues]

    # ------------------------------------------------------------ for transactions and requests

    async def find_queues(self, topic: str, timeout_ms: float) -> None:
        """Get the route of a topic, with its brokers. Raises NoRouteError and RequestTimeoutError."""
        await self._sender.find_queues(with_namespace(self.instance.config.namespace, topic), timeout_ms)

    async def send_with(
        self, message: Message[T], more: dict[str, str], timeout_ms: float, where: dict[str, Any]
    ) -> SendResult:
        """Send a message with properties set only by clients."""
        return await self._sender.send(self.outgoing(message, more), timeout_ms, **where)

    async def send_half(self, message: Message[T]) -> SendResult:
        """Send the half message of a transaction."""
        return await self._counted(
            self.send_with(message, {TRAN_MSG: "true", PGROUP: self.group}, self.timeout_ms(None), {})
        )

    def check_transaction(self, address: str, header: CheckTransactionStateRequestHeader, record: MessageExt) -> None:
        """Find out the state of a half message, and tell the broker at ``address``."""
        if self._transactions is not None:
            self._transactions.check(address, header, record)

    # ------------------------------------------------------------ for first tries in other threads

    async def send_encoded(
        self, outgoing: OutgoingMessage, timeout_ms: float, where: dict[str, Any], first: FirstTry | None
    ) -> SendResult:
        """Send a message encoded by ``outgoing``, after a failed first try if there was one. Reactor thread.

        Raises the errors of ``send``.
        """
        self._check()
        return await self._counted(self._sender.send(outgoing, timeout_ms, first=first, **where))

    def publish_info(self, topic: str, queues: list[MessageQueue]) -> TopicPublishInfo | None:
        """Return the round-robin over a topic's queues. None if there is none yet, or one of other queues. Any thread."""
        return self._sender.publish_info(topic, queues)

    def send_fields(self, outgoing: OutgoingMessage, queue: MessageQueue) -> dict[str, str]:
        """Return the fields of a request to send a message. Any thread."""
        return self._sender.fields(outgoing, queue)

    def send_result(self, outgoing: OutgoingMessage, queue: MessageQueue, response: RemotingCommand) -> SendResult:
        """Return the result from a broker's answer. Any thread."""
        return self._sender.result(outgoing, queue, response)

    def stats(self) -> ProducerStats:
        """Return the numbers since the start. Any thread."""
        sender = self._sender
        sent = sender.sent_count + self.direct_sent()
        return ProducerStats(sent, sender.failed_count, sender.retry_count, self._under_way())

    # ------------------------------------------------------------ within

    def _check(self) -> None:
        if self._state is NotStartedError:
            raise NotStartedError(f"producer {self.group} is not started: start it, or use it in a with block")
        if self._state is not None:
            raise ClientClosedError(f"producer {self.group} is stopped: make a new one")
        pending = self._under_way()
        if pending >= self.options.max_pending:
            raise TooManyRequestsError(
                f"{pending} sends of producer {self.group} are under way, as many as max_pending allows: wait for some"
            )

    def _under_way(self) -> int:
        pending = self._pending + len(self.direct)
        return pending if self._gatherer is None else pending + self._gatherer.pending

    async def _counted(self, sending: Awaitable[R]) -> R:
        self._pending += 1
        try:
            return await sending
        finally:
            self._pending -= 1

    def outgoing(
        self,
        message: Message[T],
        more: Mapping[str, str] = MappingProxyType({}),
        unique_key: str | None = None,
    ) -> OutgoingMessage:
        """Check and encode a message, with a new key unless one is given. Any thread, if it gives a key."""
        self._check()
        check_is_message(message)
        message.check()
        return outgoing_message(
            message,
            self.codec,
            self.instance.unique_keys.next_key() if unique_key is None else unique_key,
            limit=self.options.max_message_size,
            compress_over=self.options.compress_over,
            compression=self.options.compression,
            namespace=self.instance.config.namespace,
            more=more,
        )

    def where(
        self, message: Message[T], queue: MessageQueue | None, selector: Selector | None, key: object
    ) -> dict[str, Any]:
        """Return the arguments of the sender that choose the queue. Any thread. Raises UsageError."""
        if queue is not None:
            if selector is not None or key is not None:
                raise UsageError(
                    "queue= says where the message goes: give it without selector= and key=, or only these"
                )
            if not isinstance(queue, MessageQueue):
                raise UsageError(f"queue={queue!r}: accepted is a MessageQueue")
            if queue.topic != message.topic:
                raise UsageError(f"the message is of topic {message.topic}, the queue of topic {queue.topic}")
            topic = with_namespace(self.instance.config.namespace, queue.topic)
            return {"queue": MessageQueue(topic, queue.broker_name, queue.queue_id)}
        if selector is None:
            if key is None:
                return {}
            selector = BY_HASH
        if not callable(selector):
            raise UsageError(f"selector={selector!r}: accepted is a function of queues, message and key")
        chosen = selector
        select: Select = lambda queues: chosen(queues, message, key)  # noqa: E731
        return {"select": select}

    def timeout_ms(self, timeout: Duration | None) -> float:
        """Return the timeout of a send in ms. Any thread. Raises IllegalOptionError."""
        return self._sender.send_timeout_ms if timeout is None else milliseconds("timeout", timeout)


def _of_each(whole: SendResult, outgoing: OutgoingMessage) -> list[SendResult]:
    """Split the result of a batch: its messages are in one queue, one after the other."""
    offset_ids = whole.offset_msg_id.split(",")
    return [
        SendResult(
            whole.status,
            key,
            offset_ids[place] if place < len(offset_ids) else "",
            whole.queue,
            whole.queue_offset + place,
            None,
            whole.region_id,
            whole.trace_on,
        )
        for place, key in enumerate(outgoing.unique_keys)
    ]
