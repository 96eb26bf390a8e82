"""Sends messages: one by one, in batches, in transactions, and with a reply to wait for.

Answers to DefaultMQProducer, TransactionMQProducer and DefaultMQProducerImpl. The three faces of the client hand their
calls to it.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import count
from random import Random
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from twisted.internet.defer import Deferred, ensureDeferred

from rocketd.client.codec import BYTES, Codec
from rocketd.client.config import Duration, milliseconds
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
from rocketd.client.listeners import HandlerThreads
from rocketd.client.message import Message, ReceivedMessage, SendResult, T, check_is_message
from rocketd.client.namespace import with_namespace, without_namespace
from rocketd.client.producer.options import ProducerOptions
from rocketd.client.producer.outgoing import OutgoingMessage, outgoing_batches, outgoing_message
from rocketd.client.producer.request_reply import reply_properties, request_reply
from rocketd.client.producer.selectors import SelectMessageQueueByHash
from rocketd.client.producer.sender import Select, Sender
from rocketd.client.producer.transaction import TransactionListener, Transactions, TransactionSendResult
from rocketd.client.trace.tracing import ProducerTracing, Tracing
from rocketd.common.properties import PGROUP, TRAN_MSG
from rocketd.remoting.bodies import MessageQueue
from rocketd.remoting.headers import CheckTransactionStateRequestHeader
from rocketd.store.record import MessageExt

R = TypeVar("R")

BY_HASH = SelectMessageQueueByHash()
"""How a key chooses a queue where nothing else is said: as in Java's clients, which always name it."""

Selector = Callable[[Sequence[MessageQueue], Message[Any], Any], MessageQueue]
"""Chooses a queue by the message and a key of the application's."""


class Producer(Generic[T]):
    """A producer of one group, between ``start`` and ``stop``. All methods belong to the reactor thread.

    ``run_coroutine`` runs what coroutine functions of the application return. Making it raises IllegalGroupError.
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
        self._sender = Sender(instance, self.group, self.options, random, self.hooks)
        self.threads = HandlerThreads(
            instance.reactor, f"rocketd-transactions-{self.group}", self.options.transaction_threads, run_coroutine
        )
        self._transactions = None if transactions is None else Transactions(self, transactions, self.threads.invoke)
        self._state: type[NotStartedError] | type[ClientClosedError] | None = NotStartedError
        self._pending = 0

    async def start(self) -> None:
        """Name the group in heartbeats from now on. Raises GroupInUseError."""
        self.instance.add_producer(self)
        if self._tracing is not None:
            self._tracing.start()
        self._state = None
        if self._transactions is not None:
            await self.instance.send_heartbeats()

    async def stop(self) -> None:
        """Tell the brokers that the group has gone; what is under way ends as it does."""
        if self._state is None:
            self._state = ClientClosedError
            if self._tracing is not None:
                await self._tracing.stop()
            await self.instance.remove_producer(self)
            await self.threads.stop()

    # ------------------------------------------------------------ sending

    async def send(
        self,
        message: Message[T],
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        key: Any = None,
        timeout: Duration | None = None,
    ) -> SendResult:
        """Send a message to ``queue``, to the one of ``key`` by its hash or by ``selector``, or to the queues in turn.

        Raises IllegalMessageError, IllegalTopicError, NoRouteError, BrokerError, UnreachableError, ConnectionLostError,
        RequestTimeoutError, TooManyRequestsError, NotStartedError or ClientClosedError.
        """
        outgoing = self._outgoing(message)
        where = self._where(message, queue, selector, key)
        return await self._counted(self._sender.send(outgoing, self._timeout_ms(timeout), **where))

    async def send_oneway(
        self,
        message: Message[T],
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        key: Any = None,
    ) -> None:
        """Send a message and do not wait for an answer: whether it is stored is not known. Raises as ``send`` does."""
        outgoing = self._outgoing(message)
        await self._counted(self._sender.tell(outgoing, **self._where(message, queue, selector, key)))

    async def send_batch(
        self,
        messages: Sequence[Message[T]],
        *,
        queue: MessageQueue | None = None,
        timeout: Duration | None = None,
    ) -> list[SendResult]:
        """Send messages of one topic together, in as many requests as the size limit needs; each gets its result.

        ``timeout`` is for all of them together. Raises as ``send`` does; the error has the results of those messages that
        are stored all the same, in ``results``.
        """
        self._check()
        seconds = self.instance.reactor.seconds
        timeout_ms = self._timeout_ms(timeout)
        ends = seconds() + timeout_ms / 1000
        if not isinstance(messages, Iterable):
            raise IllegalMessageError(f"a batch is a list of messages, {type(messages).__name__} is none")
        messages = list(messages)
        namespace = self.instance.config.namespace
        keys = (self.instance.unique_keys.next_key() for _ in count())
        batches = outgoing_batches(messages, self.codec, keys, limit=self.options.max_message_size, namespace=namespace)
        where = self._where(messages[0], queue, None, None)
        results: list[SendResult] = []
        try:
            for outgoing in batches:
                left_ms = (ends - seconds()) * 1000
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

    async def send_in_transaction(self, message: Message[T], arg: Any = None) -> TransactionSendResult:
        """Send a half message, do the local transaction, and commit or roll back as it ended.

        Consumers get the message only when it is committed. Raises as ``send`` does, and UsageError without a listener.
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
        key: Any = None,
        timeout: Duration | None = None,
    ) -> ReceivedMessage[T]:
        """Send a message and wait for a consumer's reply; ``timeout`` is for both together.

        Raises RequestTimeoutError when none comes in time, and as ``send`` does.
        """
        self._check()
        check_is_message(message)
        message.check()
        where = self._where(message, queue, selector, key)
        return await self._counted(request_reply(self, message, where, self._timeout_ms(timeout)))

    async def reply(self, request: ReceivedMessage[Any], body: T, *, timeout: Duration | None = None) -> SendResult:
        """Send the reply to a request. Raises IllegalMessageError when that message is none, and as ``send`` does."""
        topic, more = reply_properties(request)
        return await self._counted(self.send_with(Message(topic, body), more, self._timeout_ms(timeout), {}))

    async def publish_queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues of a topic that can be written. Raises NoRouteError."""
        self._check()
        check_topic(topic)
        namespace = self.instance.config.namespace
        queues = await self._sender.publish_queues(with_namespace(namespace, topic))
        return [MessageQueue(without_namespace(namespace, q.topic), q.broker_name, q.queue_id) for q in queues]

    # ------------------------------------------------------------ for transactions and requests

    async def find_queues(self, topic: str, timeout_ms: float) -> None:
        """Have the route of a topic, and with it its brokers. Raises NoRouteError and RequestTimeoutError."""
        await self._sender.find_queues(with_namespace(self.instance.config.namespace, topic), timeout_ms)

    async def send_with(
        self, message: Message[T], more: dict[str, str], timeout_ms: float, where: dict[str, Any]
    ) -> SendResult:
        """Send a message with properties that only clients set."""
        return await self._sender.send(self._outgoing(message, more), timeout_ms, **where)

    async def send_half(self, message: Message[T]) -> SendResult:
        """Send the half message of a transaction."""
        return await self._counted(
            self.send_with(message, {TRAN_MSG: "true", PGROUP: self.group}, self._timeout_ms(None), {})
        )

    def check_transaction(self, address: str, header: CheckTransactionStateRequestHeader, record: MessageExt) -> None:
        """Find out what became of a half message, and tell the broker at ``address``."""
        if self._transactions is not None:
            self._transactions.check(address, header, record)

    # ------------------------------------------------------------ within

    def _check(self) -> None:
        if self._state is NotStartedError:
            raise NotStartedError(f"producer {self.group} is not started: start it, or use it in a with block")
        if self._state is not None:
            raise ClientClosedError(f"producer {self.group} is stopped: make a new one")
        if self._pending >= self.options.max_pending:
            raise TooManyRequestsError(
                f"{self._pending} sends of producer {self.group} are under way, as many as max_pending allows: wait for some"
            )

    async def _counted(self, sending: Awaitable[R]) -> R:
        self._pending += 1
        try:
            return await sending
        finally:
            self._pending -= 1

    def _outgoing(self, message: Message[T], more: Mapping[str, str] = MappingProxyType({})) -> OutgoingMessage:
        self._check()
        check_is_message(message)
        message.check()
        return outgoing_message(
            message,
            self.codec,
            self.instance.unique_keys.next_key(),
            limit=self.options.max_message_size,
            compress_over=self.options.compress_over,
            namespace=self.instance.config.namespace,
            more=more,
        )

    def _where(
        self, message: Message[T], queue: MessageQueue | None, selector: Selector | None, key: Any
    ) -> dict[str, Any]:
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

    def _timeout_ms(self, timeout: Duration | None) -> float:
        return self._sender.send_timeout_ms if timeout is None else milliseconds("timeout", timeout)


def _of_each(whole: SendResult, outgoing: OutgoingMessage) -> list[SendResult]:
    """Take the answer to a batch apart: its messages stand in one queue, one behind the other."""
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
