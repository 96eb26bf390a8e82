"""The client for Twisted: methods return Deferreds, which coroutines can await.

The reactor is the global one, which is imported when the first client starts.
"""

from collections.abc import Sequence
from typing import Any, Self

from twisted.internet.defer import Deferred

from rocketd.acl.credentials import Credentials
from rocketd.client.codec import BYTES, TEXT, Codec, JsonCodec
from rocketd.client.config import ClientConfig, Duration
from rocketd.client.consumer.options import Order
from rocketd.client.consumer.outcome import Reject, Retry
from rocketd.client.errors import RocketMQError
from rocketd.client.face import ConsumerFace, ProducerFace, Sql
from rocketd.client.hosting.twisted_life import TwistedLife
from rocketd.client.message import Message, ReceivedMessage, SendResult, T
from rocketd.client.producer.producer import Selector
from rocketd.client.producer.selectors import (
    SelectMessageQueueByHash,
    SelectMessageQueueByMachineRoom,
    SelectMessageQueueByRandom,
)
from rocketd.client.producer.transaction import TransactionListener, TransactionSendResult, TransactionState
from rocketd.remoting.bodies import MessageQueue

__all__ = [
    "BYTES",
    "TEXT",
    "ClientConfig",
    "Codec",
    "Consumer",
    "Credentials",
    "JsonCodec",
    "Message",
    "MessageQueue",
    "Order",
    "Producer",
    "ReceivedMessage",
    "Reject",
    "Retry",
    "RocketMQError",
    "SelectMessageQueueByHash",
    "SelectMessageQueueByMachineRoom",
    "SelectMessageQueueByRandom",
    "SendResult",
    "Sql",
    "TransactionListener",
    "TransactionSendResult",
    "TransactionState",
]


class Producer(ProducerFace[T], TwistedLife):
    """Sends messages. Its options are described at ProducerFace and ProducerOptions."""

    def send(
        self,
        message: Message[T],
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        key: Any = None,
        timeout: Duration | None = None,
    ) -> Deferred[SendResult]:
        """Send a message to ``queue``, to the one that ``selector`` chooses by ``key``, or to the queues in turn."""
        return Deferred.fromCoroutine(
            self.engine.send(message, queue=queue, selector=selector, key=key, timeout=timeout)
        )

    def send_oneway(
        self,
        message: Message[T],
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        key: Any = None,
    ) -> Deferred[None]:
        """Send a message and do not wait for an answer: whether it is stored is not known."""
        return Deferred.fromCoroutine(self.engine.send_oneway(message, queue=queue, selector=selector, key=key))

    def send_batch(
        self, messages: Sequence[Message[T]], *, queue: MessageQueue | None = None, timeout: Duration | None = None
    ) -> Deferred[list[SendResult]]:
        """Send messages of one topic together, in as many requests as the size limit needs."""
        return Deferred.fromCoroutine(self.engine.send_batch(messages, queue=queue, timeout=timeout))

    def send_in_transaction(self, message: Message[T], arg: Any = None) -> Deferred[TransactionSendResult]:
        """Send a half message, do the local transaction, and commit or roll back as it ended."""
        return Deferred.fromCoroutine(self.engine.send_in_transaction(message, arg))

    def request(
        self,
        message: Message[T],
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        key: Any = None,
        timeout: Duration | None = None,
    ) -> Deferred[ReceivedMessage[T]]:
        """Send a message and wait for a consumer's reply; ``timeout`` is for both together."""
        return Deferred.fromCoroutine(
            self.engine.request(message, queue=queue, selector=selector, key=key, timeout=timeout)
        )

    def reply(self, request: ReceivedMessage[Any], body: T, *, timeout: Duration | None = None) -> Deferred[SendResult]:
        """Send the reply to a request."""
        return Deferred.fromCoroutine(self.engine.reply(request, body, timeout=timeout))

    def publish_queues(self, topic: str) -> Deferred[list[MessageQueue]]:
        """Return the queues of a topic that can be written."""
        return Deferred.fromCoroutine(self.engine.publish_queues(topic))


class Consumer(ConsumerFace[T], TwistedLife):
    """Consumes messages. Its options are described at ConsumerFace and ConsumerOptions."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage[T]:
        message = await self.next_arrival()
        if message is None:
            raise StopAsyncIteration
        return message
