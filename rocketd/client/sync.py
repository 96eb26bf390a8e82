"""The client for scripts, web workers and other programs without a loop: methods block. Any thread may call them.

All clients of a process live in one background thread, which begins when the first one starts.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self, TypeVar

from rocketd.client.consumer import lite_pull_consumer, pull_consumer, push_consumer
from rocketd.client.consumer.options.subscription import Sql
from rocketd.client.consumer.pull_consumer import DEFAULT_TIMEOUT, PullResult
from rocketd.client.errors import ClientClosedError
from rocketd.client.faces.direct_sender import DirectSender, direct_sender
from rocketd.client.faces.lifecycle import RunCoroutine
from rocketd.client.faces.pull import LitePullFace, PullFace
from rocketd.client.faces.push import ConsumerFace, ProducerFace
from rocketd.client.faces.sync_lifecycle import SyncLifecycle, engines, in_thread, soon
from rocketd.client.faces.until_signal import run_blocking as run
from rocketd.client.faces.wrong_use import explained, refused
from rocketd.client.messages.message import Message, ReceivedMessage, SendResult, T
from rocketd.client.producer.producer import Selector
from rocketd.client.producer.transaction import TransactionSendResult
from rocketd.client.settings.config import Duration
from rocketd.common.event_loop.reactor import IReactor
from rocketd.common.lazy_names import lazy_names
from rocketd.remoting.bodies.tables import MessageQueue

if TYPE_CHECKING:
    from rocketd.client.consumer.retries.dead_letter_reader import DeadLetter
    from rocketd.client.consumer.retries.redrive import RedriveResult, RedriveTarget
    from rocketd.client.faces.sync_admin import Admin
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "rocketd.client.consumer.retries.dead_letter_reader": ("DeadLetter",),
            "rocketd.client.consumer.retries.redrive": ("RedriveResult", "RedriveTarget"),
            "rocketd.client.faces.sync_admin": ("Admin",),
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

R = TypeVar("R")


class Producer(ProducerFace[T], SyncLifecycle):
    """A producer. Its options are described at ProducerFace and ProducerOptions."""

    _direct: DirectSender[T] | None = None

    async def _bring_up(self, reactor: IReactor, run_coroutine: RunCoroutine) -> None:
        """Start the engine, and let calling threads send. Reactor thread."""
        await super()._bring_up(reactor, run_coroutine)
        self._direct = direct_sender(self._engine, self._host)

    async def _bring_down(self) -> bool:
        """Release the engine, and then the connections of calling threads. Return whether it was up. Reactor thread."""
        direct, self._direct = self._direct, None
        try:
            return await super()._bring_down()
        finally:
            if direct is not None:
                direct.close()

    @explained
    def send(
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
        engine, direct = self._engine, self._direct
        if direct is not None and selector is None:
            self._warn_in_loop()
            return direct.send(message, queue, key, timeout)
        return self._call(engine.send, message, queue=queue, selector=selector, key=key, timeout=timeout)

    @explained
    def send_oneway(
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
        return self._call(self._engine.send_oneway, message, queue=queue, selector=selector, key=key)

    @explained
    def send_batch(
        self, messages: Sequence[Message[T]], *, queue: MessageQueue | None = None, timeout: Duration | None = None
    ) -> list[SendResult]:
        """Send messages of one topic together, in as many requests as the size limit needs.

        ``timeout`` applies to all of them together. Raises the errors of ``send``. ``results`` of the error has the
        results of messages already stored.
        """
        return self._call(self._engine.send_batch, messages, queue=queue, timeout=timeout)

    @explained
    def send_in_transaction(self, message: Message[T], arg: object = None) -> TransactionSendResult:
        """Send a half message, run the local transaction, and commit or roll back by its result.

        Consumers get the message only after the commit. Raises the errors of ``send``, and UsageError without a listener.
        """
        return self._call(self._engine.send_in_transaction, message, arg)

    @explained
    def request(
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
        return self._call(self._engine.request, message, queue=queue, selector=selector, key=key, timeout=timeout)

    def reply(self, request: ReceivedMessage[Any], body: T, *, timeout: Duration | None = None) -> SendResult:
        """Send the reply to a request.

        Raises IllegalMessageError if the message is not a request, and the errors of ``send``.
        """
        return self._call(self._engine.reply, request, body, timeout=timeout)

    def publish_queues(self, topic: str) -> list[MessageQueue]:
        """Return the writable queues of a topic. Raises NoRouteError."""
        return self._call(self._engine.publish_queues, topic)


class Consumer(ConsumerFace[T], SyncLifecycle):
    """A consumer with a handler, or to iterate over. Its options are described at ConsumerFace and ConsumerOptions."""

    if not TYPE_CHECKING:  # a type checker refuses the statement itself
        __aiter__ = refused("async for", "use 'for', or rocketd.client.aio")

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ReceivedMessage[T]:
        message = self.receive()
        if message is None:
            raise StopIteration
        return message

    def receive(self, timeout: Duration | None = None) -> ReceivedMessage[T] | None:
        """Return the next message, as an iteration does; None after ``timeout`` or the end.

        The message returned before is consumed then. Raises UsageError if there is a handler.
        """
        if not self._life.begun:
            self._check_iterated()
            self._life.check()
        return None if self._life.ended else self._call(self._receive, timeout)

    seek = engines(push_consumer.PushConsumerEngine.seek)
    seek_to_begin = engines(push_consumer.PushConsumerEngine.seek_to_begin)
    seek_to_end = engines(push_consumer.PushConsumerEngine.seek_to_end)
    commit = engines(push_consumer.PushConsumerEngine.commit)
    committed = engines(push_consumer.PushConsumerEngine.committed)
    lag = engines(push_consumer.PushConsumerEngine.lag)
    offset_for_timestamp = engines(push_consumer.PushConsumerEngine.offset_for_timestamp)
    subscribe = in_thread(ConsumerFace.subscribe)
    unsubscribe = in_thread(ConsumerFace.unsubscribe)
    queues = in_thread(ConsumerFace.queues)
    position = in_thread(ConsumerFace.position)
    suspend = in_thread(ConsumerFace.suspend)
    resume = in_thread(ConsumerFace.resume)
    pause = in_thread(ConsumerFace.pause)
    unpause = in_thread(ConsumerFace.unpause)
    set_concurrency = in_thread(ConsumerFace.set_concurrency)
    finish = soon(ConsumerFace._check_iterated, ConsumerFace.finish)


class LitePullConsumer(LitePullFace[T], SyncLifecycle):
    """A consumer with ``poll``, or to iterate over. Its options are described at LitePullFace and LitePullOptions."""

    if not TYPE_CHECKING:  # a type checker refuses the statement itself
        __aiter__ = refused("async for", "use 'for', or rocketd.client.aio")

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ReceivedMessage[T]:
        try:
            message = self._call(self._engine.next_message)
        except ClientClosedError:
            message = None
        if message is None:
            raise StopIteration
        return message

    def poll(self, timeout: Duration | None = None) -> list[ReceivedMessage[T]]:
        """Return messages of one queue; an empty list after ``timeout`` or if the consumer is closed."""
        return self._call(self._engine.poll, timeout)

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
    subscribe = in_thread(LitePullFace.subscribe)
    unsubscribe = in_thread(LitePullFace.unsubscribe)
    queues = in_thread(LitePullFace.queues)
    position = in_thread(LitePullFace.position)
    pause = in_thread(LitePullFace.pause)
    unpause = in_thread(LitePullFace.unpause)


class PullConsumer(PullFace[T], SyncLifecycle):
    """A consumer pulling only on request. Its options are described at PullFace."""

    def pull(
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
        return self._call(self._engine.pull, queue, wanted, offset, max_messages, timeout=timeout)

    def pull_block_if_not_found(
        self, queue: MessageQueue, wanted: str | Sql | None, offset: int, max_messages: int = 32
    ) -> PullResult[T]:
        """Pull messages from an offset on, and wait for new ones, 20 s at most. Raises the errors of ``pull``."""
        return self._call(self._engine.pull_block_if_not_found, queue, wanted, offset, max_messages)

    fetch_subscribe_queues = engines(pull_consumer.PullConsumerEngine.fetch_subscribe_queues)
    fetch_queues_in_balance = engines(pull_consumer.PullConsumerEngine.fetch_queues_in_balance)
    fetch_consume_offset = engines(pull_consumer.PullConsumerEngine.fetch_consume_offset)
    persist_consume_offsets = engines(pull_consumer.PullConsumerEngine.persist_consume_offsets)
    send_message_back = engines(pull_consumer.PullConsumerEngine.send_message_back)
    update_consume_offset = in_thread(PullFace.update_consume_offset)
