"""The client for asyncio: methods are coroutines.

A client belongs to the loop that runs when it starts.
"""

from collections.abc import Sequence
from typing import Any, Self

from rocketd.client.config import Duration
from rocketd.client.face import ConsumerFace, ProducerFace
from rocketd.client.hosting.aio_life import AioLife
from rocketd.client.hosting.asyncio_host import to_future
from rocketd.client.message import Message, ReceivedMessage, SendResult, T
from rocketd.client.producer.producer import Selector
from rocketd.client.producer.transaction import TransactionSendResult
from rocketd.remoting.bodies import MessageQueue


class Producer(ProducerFace[T], AioLife):
    """Sends messages. Its options are described at ProducerFace and ProducerOptions."""

    async def send(
        self,
        message: Message[T],
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        key: Any = None,
        timeout: Duration | None = None,
    ) -> SendResult:
        """Send a message to ``queue``, to the one that ``selector`` chooses by ``key``, or to the queues in turn."""
        return await to_future(self.engine.send(message, queue=queue, selector=selector, key=key, timeout=timeout))

    async def send_oneway(
        self,
        message: Message[T],
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        key: Any = None,
    ) -> None:
        """Send a message and do not wait for an answer: whether it is stored is not known."""
        return await to_future(self.engine.send_oneway(message, queue=queue, selector=selector, key=key))

    async def send_batch(
        self, messages: Sequence[Message[T]], *, queue: MessageQueue | None = None, timeout: Duration | None = None
    ) -> list[SendResult]:
        """Send messages of one topic together, in as many requests as the size limit needs."""
        return await to_future(self.engine.send_batch(messages, queue=queue, timeout=timeout))

    async def send_in_transaction(self, message: Message[T], arg: Any = None) -> TransactionSendResult:
        """Send a half message, do the local transaction, and commit or roll back as it ended."""
        return await to_future(self.engine.send_in_transaction(message, arg))

    async def request(
        self,
        message: Message[T],
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        key: Any = None,
        timeout: Duration | None = None,
    ) -> ReceivedMessage[T]:
        """Send a message and wait for a consumer's reply; ``timeout`` is for both together."""
        return await to_future(self.engine.request(message, queue=queue, selector=selector, key=key, timeout=timeout))

    async def reply(self, request: ReceivedMessage[Any], body: T, *, timeout: Duration | None = None) -> SendResult:
        """Send the reply to a request."""
        return await to_future(self.engine.reply(request, body, timeout=timeout))

    async def publish_queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues of a topic that can be written."""
        return await to_future(self.engine.publish_queues(topic))


class Consumer(ConsumerFace[T], AioLife):
    """Consumes messages. Its options are described at ConsumerFace and ConsumerOptions."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage[T]:
        message = await to_future(self.next_arrival())
        if message is None:
            raise StopAsyncIteration
        return message
