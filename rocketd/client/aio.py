"""The client for asyncio: methods are coroutines.

A client belongs to the loop running when it starts.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

from rocketd.client.consumer import lite_pull_consumer, pull_consumer, push_consumer
from rocketd.client.consumer.options.subscription import Sql
from rocketd.client.consumer.pull_consumer import DEFAULT_TIMEOUT, PullResult
from rocketd.client.errors import ClientClosedError
from rocketd.client.faces.aio_lifecycle import AioLifecycle, engines
from rocketd.client.faces.pull import LitePullFace, PullFace
from rocketd.client.faces.push import ConsumerFace, ProducerFace
from rocketd.client.faces.until_signal import run_aio as run
from rocketd.client.faces.wrong_use import explained, refused
from rocketd.client.messages.message import Message, ReceivedMessage, SendResult, T
from rocketd.client.producer.producer import ProducerEngine, Selector
from rocketd.client.producer.sender import BegunSend
from rocketd.client.producer.transaction import TransactionSendResult
from rocketd.client.runtime.asyncio_host import answer_to_future, received, to_future
from rocketd.client.settings.config import Duration
from rocketd.common.lazy_names import lazy_names
from rocketd.remoting.bodies.tables import MessageQueue
from rocketd.remoting.errors import RemotingError

if TYPE_CHECKING:
    from rocketd.client.consumer.retries.dead_letter_reader import DeadLetter
    from rocketd.client.consumer.retries.redrive import RedriveResult, RedriveTarget
    from rocketd.client.faces.aio_admin import Admin
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "rocketd.client.consumer.retries.dead_letter_reader": ("DeadLetter",),
            "rocketd.client.consumer.retries.redrive": ("RedriveResult", "RedriveTarget"),
            "rocketd.client.faces.aio_admin": ("Admin",),
        },
    )

__all__ = [
    "Admin",
    "Consumer",
    "DeadLetter",
    "LitePullConsumer",
    "Message",
    "MessageQueue",
    "Producer",
    "PullConsumer",
    "PullResult",
    "ReceivedMessage",
    "RedriveResult",
    "RedriveTarget",
    "SendResult",
    "Sql",
    "TransactionSendResult",
    "run",
]


class Producer(ProducerFace[T], AioLifecycle):
    """A producer. Its options are described at ProducerFace and ProducerOptions."""

    @explained
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

        For the errors see `rocketd.client.producer.producer.ProducerEngine.send`.
        """
        engine = self._engine
        if queue is None and selector is None and key is None:
            gathered = engine.gather(message, timeout)
            if gathered is not None:
                return await answer_to_future(gathered)
            begun = engine.begin(message, timeout)
            if begun is not None:
                return await self._end(engine, begun)
        return await to_future(engine.send(message, queue=queue, selector=selector, key=key, timeout=timeout))

    async def _end(self, engine: ProducerEngine[T], begun: BegunSend) -> SendResult:
        """Wait for the first try of a send, in the task of the caller. Only the other tries need coroutines of Twisted."""
        try:
            result = engine.ended(begun, await answer_to_future(begun.answer))
        except RemotingError as error:
            result = engine.failed(begun, error)
        finally:
            engine.try_is_over(begun)
        return result if isinstance(result, SendResult) else await to_future(engine.send_again(begun, result))

    @explained
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
        return await to_future(self._engine.send_oneway(message, queue=queue, selector=selector, key=key))

    @explained
    async def send_batch(
        self, messages: Sequence[Message[T]], *, queue: MessageQueue | None = None, timeout: Duration | None = None
    ) -> list[SendResult]:
        """Send messages of one topic together, in as many requests as the size limit needs.

        ``timeout`` applies to all of them together. Raises the errors of ``send``. ``results`` of the error has the
        results of messages already stored.
        """
        return await to_future(self._engine.send_batch(messages, queue=queue, timeout=timeout))

    @explained
    async def send_in_transaction(self, message: Message[T], arg: object = None) -> TransactionSendResult:
        """Send a half message, run the local transaction, and commit or roll back by its result.

        Consumers get the message only after the commit. Raises the errors of ``send``, and UsageError without a listener.
        """
        return await to_future(self._engine.send_in_transaction(message, arg))

    @explained
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
        return await to_future(self._engine.request(message, queue=queue, selector=selector, key=key, timeout=timeout))

    async def reply(self, request: ReceivedMessage[Any], body: T, *, timeout: Duration | None = None) -> SendResult:
        """Send the reply to a request.

        Raises IllegalMessageError if the message is not a request, and the errors of ``send``.
        """
        return await to_future(self._engine.reply(request, body, timeout=timeout))

    async def publish_queues(self, topic: str) -> list[MessageQueue]:
        """Return the writable queues of a topic. Raises NoRouteError."""
        return await to_future(self._engine.publish_queues(topic))


class Consumer(ConsumerFace[T], AioLifecycle):
    """A consumer with a handler, or to iterate over. Its options are described at ConsumerFace and ConsumerOptions."""

    def _check_iterated(self) -> None:
        """Raise UsageError if there is a handler, ForkedClientError, and ClientStateError in another loop."""
        super()._check_iterated()
        if self._life.begun:
            self._check_caller()

    if not TYPE_CHECKING:  # a type checker refuses the statement itself
        __iter__ = refused("for", "use 'async for', or rocketd.client.sync")

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage[T]:
        message = await self.receive()
        if message is None:
            raise StopAsyncIteration
        return message

    async def receive(self, timeout: Duration | None = None) -> ReceivedMessage[T] | None:
        """Return the next message, as an iteration does; None after ``timeout`` or the end.

        The message returned before is consumed then. Raises UsageError if there is a handler.
        """
        if self._life.begun:
            self._check_caller()
        return await received(self._receive(timeout), self._put_back)

    seek = engines(push_consumer.PushConsumerEngine.seek)
    seek_to_begin = engines(push_consumer.PushConsumerEngine.seek_to_begin)
    seek_to_end = engines(push_consumer.PushConsumerEngine.seek_to_end)
    commit = engines(push_consumer.PushConsumerEngine.commit)
    committed = engines(push_consumer.PushConsumerEngine.committed)
    lag = engines(push_consumer.PushConsumerEngine.lag)
    offset_for_timestamp = engines(push_consumer.PushConsumerEngine.offset_for_timestamp)


class LitePullConsumer(LitePullFace[T], AioLifecycle):
    """A consumer with ``poll``, or to iterate over. Its options are described at LitePullFace and LitePullOptions."""

    if not TYPE_CHECKING:  # a type checker refuses the statement itself
        __iter__ = refused("for", "use 'async for', or rocketd.client.sync")

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage[T]:
        try:
            engine = self._engine
            message = await received(
                engine.next_message(), lambda given: engine.put_back([] if given is None else [given])
            )
        except ClientClosedError:
            message = None
        if message is None:
            raise StopAsyncIteration
        return message

    async def poll(self, timeout: Duration | None = None) -> list[ReceivedMessage[T]]:
        """Return messages of one queue; an empty list after ``timeout`` or if the consumer is closed."""
        engine = self._engine
        return await received(engine.poll(timeout), engine.put_back)

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


class PullConsumer(PullFace[T], AioLifecycle):
    """A consumer pulling only on request. Its options are described at PullFace."""

    async def pull(
        self,
        queue: MessageQueue,
        wanted: str | Sql | None,
        offset: int,
        max_messages: int = 32,
        *,
        timeout: Duration = DEFAULT_TIMEOUT,
    ) -> PullResult[T]:
        """Pull messages from an offset on: with tags such as ``TagA || TagB``, those selected by an Sql, or all.

        For the errors see `rocketd.client.consumer.pull_consumer.PullConsumerEngine.pull`.
        """
        return await to_future(self._engine.pull(queue, wanted, offset, max_messages, timeout=timeout))

    async def pull_block_if_not_found(
        self, queue: MessageQueue, wanted: str | Sql | None, offset: int, max_messages: int = 32
    ) -> PullResult[T]:
        """Pull messages from an offset on, and wait for new ones, 20 s at most. Raises the errors of ``pull``."""
        return await to_future(self._engine.pull_block_if_not_found(queue, wanted, offset, max_messages))

    fetch_subscribe_queues = engines(pull_consumer.PullConsumerEngine.fetch_subscribe_queues)
    fetch_queues_in_balance = engines(pull_consumer.PullConsumerEngine.fetch_queues_in_balance)
    fetch_consume_offset = engines(pull_consumer.PullConsumerEngine.fetch_consume_offset)
    persist_consume_offsets = engines(pull_consumer.PullConsumerEngine.persist_consume_offsets)
    send_message_back = engines(pull_consumer.PullConsumerEngine.send_message_back)
