"""The clients of Twisted programs, except administration. Programs import them from ``rocketd.client``."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

from twisted.internet.defer import Deferred

from rocketd.client.consumer import lite_pull_consumer, pull_consumer, push_consumer
from rocketd.client.consumer.options.subscription import Sql
from rocketd.client.consumer.pull_consumer import DEFAULT_TIMEOUT, PullResult
from rocketd.client.errors import ClientClosedError
from rocketd.client.faces.pull import LitePullFace, PullFace
from rocketd.client.faces.push import ConsumerFace, ProducerFace
from rocketd.client.faces.twisted_lifecycle import TwistedLifecycle, engines
from rocketd.client.faces.until_signal import run_twisted as run
from rocketd.client.faces.wrong_use import explained, refused
from rocketd.client.messages.message import Message, ReceivedMessage, SendResult, T
from rocketd.client.producer.producer import Selector
from rocketd.client.producer.transaction import TransactionSendResult
from rocketd.client.settings.config import Duration
from rocketd.remoting.bodies.tables import MessageQueue

__all__ = ["Consumer", "LitePullConsumer", "Producer", "PullConsumer", "run"]


class Producer(ProducerFace[T], TwistedLifecycle):
    """A producer. Its options are described at ProducerFace and ProducerOptions."""

    __module__ = "rocketd.client"  # from which programs import it

    @explained
    def send(
        self,
        message: Message[T],
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        key: object = None,
        timeout: Duration | None = None,
    ) -> Deferred[SendResult]:
        """Send a message to ``queue``, to a queue chosen by ``key`` (``selector`` or hash), or to the queues in turn.

        For the errors see `rocketd.client.producer.producer.ProducerEngine.send`.
        """
        return Deferred.fromCoroutine(
            self._engine.send(message, queue=queue, selector=selector, key=key, timeout=timeout)
        )

    @explained
    def send_oneway(
        self,
        message: Message[T],
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        key: object = None,
    ) -> Deferred[None]:
        """Send a message without waiting for an answer: whether it is stored stays unknown.

        Raises the errors of ``send``.
        """
        return Deferred.fromCoroutine(self._engine.send_oneway(message, queue=queue, selector=selector, key=key))

    @explained
    def send_batch(
        self, messages: Sequence[Message[T]], *, queue: MessageQueue | None = None, timeout: Duration | None = None
    ) -> Deferred[list[SendResult]]:
        """Send messages of one topic together, in as many requests as the size limit needs.

        ``timeout`` applies to all of them together. Raises the errors of ``send``. ``results`` of the error has the
        results of messages already stored.
        """
        return Deferred.fromCoroutine(self._engine.send_batch(messages, queue=queue, timeout=timeout))

    @explained
    def send_in_transaction(self, message: Message[T], arg: object = None) -> Deferred[TransactionSendResult]:
        """Send a half message, run the local transaction, and commit or roll back by its result.

        Consumers get the message only after the commit. Raises the errors of ``send``, and UsageError without a listener.
        """
        return Deferred.fromCoroutine(self._engine.send_in_transaction(message, arg))

    @explained
    def request(
        self,
        message: Message[T],
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        key: object = None,
        timeout: Duration | None = None,
    ) -> Deferred[ReceivedMessage[T]]:
        """Send a message and wait for a consumer's reply. ``timeout`` applies to both together.

        Raises RequestTimeoutError if no reply comes in time, and the errors of ``send``.
        """
        return Deferred.fromCoroutine(
            self._engine.request(message, queue=queue, selector=selector, key=key, timeout=timeout)
        )

    def reply(self, request: ReceivedMessage[Any], body: T, *, timeout: Duration | None = None) -> Deferred[SendResult]:
        """Send the reply to a request.

        Raises IllegalMessageError if the message is not a request, and the errors of ``send``.
        """
        return Deferred.fromCoroutine(self._engine.reply(request, body, timeout=timeout))

    def publish_queues(self, topic: str) -> Deferred[list[MessageQueue]]:
        """Return the writable queues of a topic. Raises NoRouteError."""
        return Deferred.fromCoroutine(self._engine.publish_queues(topic))


class Consumer(ConsumerFace[T], TwistedLifecycle):
    """A consumer with a handler, or to iterate over. Its options are described at ConsumerFace and ConsumerOptions."""

    __module__ = "rocketd.client"  # from which programs import it

    if not TYPE_CHECKING:  # a type checker refuses the statement itself
        __iter__ = refused("for", "use 'async for' in a coroutine, or rocketd.client.sync")

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage[T]:
        message = await self._next_arrival()
        if message is None:
            raise StopAsyncIteration
        return message

    def receive(self, timeout: Duration | None = None) -> Deferred[ReceivedMessage[T] | None]:
        """Return the next message, as an iteration does; None after ``timeout`` or the end.

        The message returned before is consumed then. Raises UsageError if there is a handler.
        """
        return Deferred.fromCoroutine(self._receive(timeout))

    seek = engines(push_consumer.PushConsumerEngine.seek)
    seek_to_begin = engines(push_consumer.PushConsumerEngine.seek_to_begin)
    seek_to_end = engines(push_consumer.PushConsumerEngine.seek_to_end)
    commit = engines(push_consumer.PushConsumerEngine.commit)
    committed = engines(push_consumer.PushConsumerEngine.committed)
    lag = engines(push_consumer.PushConsumerEngine.lag)
    offset_for_timestamp = engines(push_consumer.PushConsumerEngine.offset_for_timestamp)


class LitePullConsumer(LitePullFace[T], TwistedLifecycle):
    """A consumer with ``poll``, or to iterate over. Its options are described at LitePullFace and LitePullOptions."""

    __module__ = "rocketd.client"  # from which programs import it

    if not TYPE_CHECKING:  # a type checker refuses the statement itself
        __iter__ = refused("for", "use 'async for' in a coroutine, or rocketd.client.sync")

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage[T]:
        try:
            message = await self._engine.next_message()
        except ClientClosedError:
            message = None
        if message is None:
            raise StopAsyncIteration
        return message

    def poll(self, timeout: Duration | None = None) -> Deferred[list[ReceivedMessage[T]]]:
        """Return messages of one queue; an empty list after ``timeout`` or if the consumer is closed."""
        return Deferred.fromCoroutine(self._engine.poll(timeout))

    assign = engines(lite_pull_consumer.LitePullConsumerEngine.assign)
    seek = engines(lite_pull_consumer.LitePullConsumerEngine.seek)
    seek_to_begin = engines(lite_pull_consumer.LitePullConsumerEngine.seek_to_begin)
    seek_to_end = engines(lite_pull_consumer.LitePullConsumerEngine.seek_to_end)
    commit = engines(lite_pull_consumer.LitePullConsumerEngine.commit)
    committed = engines(lite_pull_consumer.LitePullConsumerEngine.committed)
    lag = engines(lite_pull_consumer.LitePullConsumerEngine.lag)
    offset_for_timestamp = engines(lite_pull_consumer.LitePullConsumerEngine.offset_for_timestamp)
    topic_queues = engines(lite_pull_consumer.LitePullConsumerEngine.topic_queues)
    watch_queues = engines(lite_pull_consumer.LitePullConsumerEngine.watch_queues)


class PullConsumer(PullFace[T], TwistedLifecycle):
    """A consumer pulling only on request. Its options are described at PullFace."""

    __module__ = "rocketd.client"  # from which programs import it

    def pull(
        self,
        queue: MessageQueue,
        wanted: str | Sql | None,
        offset: int,
        max_messages: int = 32,
        *,
        timeout: Duration = DEFAULT_TIMEOUT,
    ) -> Deferred[PullResult[T]]:
        """Pull messages from an offset on: with tags such as ``TagA || TagB``, those selected by an Sql, or all.

        For the errors see `rocketd.client.consumer.pull_consumer.PullConsumerEngine.pull`.
        """
        return Deferred.fromCoroutine(self._engine.pull(queue, wanted, offset, max_messages, timeout=timeout))

    def pull_block_if_not_found(
        self, queue: MessageQueue, wanted: str | Sql | None, offset: int, max_messages: int = 32
    ) -> Deferred[PullResult[T]]:
        """Pull messages from an offset on, and wait for new ones, 20 s at most. Raises the errors of ``pull``."""
        return Deferred.fromCoroutine(self._engine.pull_block_if_not_found(queue, wanted, offset, max_messages))

    fetch_subscribe_queues = engines(pull_consumer.PullConsumerEngine.fetch_subscribe_queues)
    fetch_queues_in_balance = engines(pull_consumer.PullConsumerEngine.fetch_queues_in_balance)
    fetch_consume_offset = engines(pull_consumer.PullConsumerEngine.fetch_consume_offset)
    persist_consume_offsets = engines(pull_consumer.PullConsumerEngine.persist_consume_offsets)
    send_message_back = engines(pull_consumer.PullConsumerEngine.send_message_back)
