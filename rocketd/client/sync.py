"""The client for scripts, web workers and all that has no loop: methods block, and may be called from any thread.

All clients of a process live in one thread in the background, which begins when the first one starts.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Self, TypeVar

from rocketd.client.config import Duration
from rocketd.client.face import ConsumerFace, ProducerFace
from rocketd.client.hosting.sync_life import SyncLife, in_thread
from rocketd.client.message import Message, ReceivedMessage, SendResult, T
from rocketd.client.producer.producer import Selector
from rocketd.client.producer.transaction import TransactionSendResult
from rocketd.remoting.bodies import MessageQueue

R = TypeVar("R")


class Producer(ProducerFace[T], SyncLife):
    """Sends messages. Its options are described at ProducerFace and ProducerOptions."""

    def _call(self, function: Callable[..., Awaitable[R]], *arguments: Any, **keywords: Any) -> R:
        return self._host.call(partial(function, **keywords), *arguments)

    def send(
        self,
        message: Message[T],
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        key: Any = None,
        timeout: Duration | None = None,
    ) -> SendResult:
        """Send a message to ``queue``, to the one that ``selector`` chooses by ``key``, or to the queues in turn."""
        return self._call(self.engine.send, message, queue=queue, selector=selector, key=key, timeout=timeout)

    def send_oneway(
        self,
        message: Message[T],
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        key: Any = None,
    ) -> None:
        """Send a message and do not wait for an answer: whether it is stored is not known."""
        return self._call(self.engine.send_oneway, message, queue=queue, selector=selector, key=key)

    def send_batch(
        self, messages: Sequence[Message[T]], *, queue: MessageQueue | None = None, timeout: Duration | None = None
    ) -> list[SendResult]:
        """Send messages of one topic together, in as many requests as the size limit needs."""
        return self._call(self.engine.send_batch, messages, queue=queue, timeout=timeout)

    def send_in_transaction(self, message: Message[T], arg: Any = None) -> TransactionSendResult:
        """Send a half message, do the local transaction, and commit or roll back as it ended."""
        return self._call(self.engine.send_in_transaction, message, arg)

    def request(
        self,
        message: Message[T],
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        key: Any = None,
        timeout: Duration | None = None,
    ) -> ReceivedMessage[T]:
        """Send a message and wait for a consumer's reply; ``timeout`` is for both together."""
        return self._call(self.engine.request, message, queue=queue, selector=selector, key=key, timeout=timeout)

    def reply(self, request: ReceivedMessage[Any], body: T, *, timeout: Duration | None = None) -> SendResult:
        """Send the reply to a request."""
        return self._call(self.engine.reply, request, body, timeout=timeout)

    def publish_queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues of a topic that can be written."""
        return self._call(self.engine.publish_queues, topic)


class Consumer(ConsumerFace[T], SyncLife):
    """Consumes messages. Its options are described at ConsumerFace and ConsumerOptions."""

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ReceivedMessage[T]:
        message = self._host.call(self.next_arrival)
        if message is None:
            raise StopIteration
        return message

    subscribe = in_thread(ConsumerFace.subscribe)
    unsubscribe = in_thread(ConsumerFace.unsubscribe)
    queues = in_thread(ConsumerFace.queues)
    suspend = in_thread(ConsumerFace.suspend)
    resume = in_thread(ConsumerFace.resume)
    pause = in_thread(ConsumerFace.pause)
    unpause = in_thread(ConsumerFace.unpause)
    set_concurrency = in_thread(ConsumerFace.set_concurrency)
