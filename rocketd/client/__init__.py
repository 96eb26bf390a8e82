"""The client for Twisted: methods return Deferreds, which coroutines can await.

The reactor is the global one, which is imported when the first client starts.
"""

from collections.abc import Sequence
from typing import Any, Self

from twisted.internet.defer import Deferred

from rocketd.acl.credentials import Credentials
from rocketd.client import admin
from rocketd.client.admin_face import AdminFace
from rocketd.client.codec import BYTES, TEXT, Codec, JsonCodec
from rocketd.client.config import ClientConfig, Duration
from rocketd.client.consumer import lite_pull_consumer, pull_consumer
from rocketd.client.consumer.flow_control import FlowLimits
from rocketd.client.consumer.options import Order
from rocketd.client.consumer.outcome import Reject, Retry
from rocketd.client.consumer.pull_consumer import DEFAULT_TIMEOUT, PullResult, PullStatus
from rocketd.client.consumer.subscription import Sql
from rocketd.client.errors import RocketMQError
from rocketd.client.face import ConsumerFace, ProducerFace
from rocketd.client.hooks import (
    ConsumeMessageContext,
    ConsumerHook,
    EndTransactionContext,
    FilterMessageContext,
    ProducerHook,
    SendMessageContext,
)
from rocketd.client.hosting.twisted_life import TwistedLife, engines
from rocketd.client.hosting.until_signal import run_twisted as run
from rocketd.client.message import Message, ReceivedMessage, SendResult, T
from rocketd.client.producer.producer import Selector
from rocketd.client.producer.selectors import (
    SelectMessageQueueByHash,
    SelectMessageQueueByMachineRoom,
    SelectMessageQueueByRandom,
)
from rocketd.client.producer.transaction import TransactionListener, TransactionSendResult, TransactionState
from rocketd.client.pull_faces import LitePullFace, PullFace
from rocketd.client.trace.records import ConsumeReturnType, MessageType
from rocketd.remoting.bodies import MessageQueue
from rocketd.remoting.interfaces import IRPCHook
from rocketd.remoting.settings import NettyClientConfig, TlsConfig

__all__ = [
    "BYTES",
    "TEXT",
    "Admin",
    "ClientConfig",
    "Codec",
    "ConsumeMessageContext",
    "ConsumeReturnType",
    "Consumer",
    "ConsumerHook",
    "Credentials",
    "EndTransactionContext",
    "FilterMessageContext",
    "FlowLimits",
    "IRPCHook",
    "JsonCodec",
    "LitePullConsumer",
    "Message",
    "MessageQueue",
    "MessageType",
    "NettyClientConfig",
    "Order",
    "Producer",
    "ProducerHook",
    "PullConsumer",
    "PullResult",
    "PullStatus",
    "ReceivedMessage",
    "Reject",
    "Retry",
    "RocketMQError",
    "SelectMessageQueueByHash",
    "SelectMessageQueueByMachineRoom",
    "SelectMessageQueueByRandom",
    "SendMessageContext",
    "SendResult",
    "Sql",
    "TlsConfig",
    "TransactionListener",
    "TransactionSendResult",
    "TransactionState",
    "run",
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
        """Send a message to ``queue``, to the one of ``key`` by its hash or by ``selector``, or to the queues in turn."""
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


class LitePullConsumer(LitePullFace[T], TwistedLife):
    """Gives messages when it is polled. Its options are described at LitePullFace and LitePullOptions."""

    def poll(self, timeout: Duration | None = None) -> Deferred[list[ReceivedMessage[T]]]:
        """Return messages of one queue; none when there are none within ``timeout``, or the consumer is closed."""
        return Deferred.fromCoroutine(self.engine.poll(timeout))

    assign = engines(lite_pull_consumer.LitePullConsumer.assign)
    seek = engines(lite_pull_consumer.LitePullConsumer.seek)
    seek_to_begin = engines(lite_pull_consumer.LitePullConsumer.seek_to_begin)
    seek_to_end = engines(lite_pull_consumer.LitePullConsumer.seek_to_end)
    commit = engines(lite_pull_consumer.LitePullConsumer.commit)
    committed = engines(lite_pull_consumer.LitePullConsumer.committed)
    offset_for_timestamp = engines(lite_pull_consumer.LitePullConsumer.offset_for_timestamp)
    topic_queues = engines(lite_pull_consumer.LitePullConsumer.topic_queues)
    watch_queues = engines(lite_pull_consumer.LitePullConsumer.watch_queues)


class PullConsumer(PullFace[T], TwistedLife):
    """Pulls from queues where it is told. Its options are described at PullFace."""

    def pull(
        self,
        queue: MessageQueue,
        wanted: str | Sql | None,
        offset: int,
        max_messages: int = 32,
        *,
        timeout: Duration = DEFAULT_TIMEOUT,
    ) -> Deferred[PullResult[T]]:
        """Ask for messages from an offset on: with tags such as ``TagA || TagB``, those an Sql selects, or all."""
        return Deferred.fromCoroutine(self.engine.pull(queue, wanted, offset, max_messages, timeout=timeout))

    def pull_block_if_not_found(
        self, queue: MessageQueue, wanted: str | Sql | None, offset: int, max_messages: int = 32
    ) -> Deferred[PullResult[T]]:
        """Ask for messages as ``pull`` does; where there are none, wait for new ones, 20 s at most."""
        return Deferred.fromCoroutine(self.engine.pull_block_if_not_found(queue, wanted, offset, max_messages))

    fetch_subscribe_queues = engines(pull_consumer.PullConsumer.fetch_subscribe_queues)
    fetch_queues_in_balance = engines(pull_consumer.PullConsumer.fetch_queues_in_balance)
    fetch_consume_offset = engines(pull_consumer.PullConsumer.fetch_consume_offset)
    persist_consume_offsets = engines(pull_consumer.PullConsumer.persist_consume_offsets)
    send_message_back = engines(pull_consumer.PullConsumer.send_message_back)


class Admin(AdminFace, TwistedLife):
    """Administers a cluster: topics, groups, offsets, and messages that are looked for."""

    brokers = engines(admin.Admin.brokers)
    topics = engines(admin.Admin.topics)
    create_topic = engines(admin.Admin.create_topic)
    delete_topic = engines(admin.Admin.delete_topic)
    fetch_publish_queues = engines(admin.Admin.fetch_publish_queues)
    fetch_subscribe_queues = engines(admin.Admin.fetch_subscribe_queues)
    max_offset = engines(admin.Admin.max_offset)
    min_offset = engines(admin.Admin.min_offset)
    search_offset = engines(admin.Admin.search_offset)
    earliest_message_time = engines(admin.Admin.earliest_message_time)
    view_message = engines(admin.Admin.view_message)
    query_message = engines(admin.Admin.query_message)
    query_message_by_unique_key = engines(admin.Admin.query_message_by_unique_key)
    create_group = engines(admin.Admin.create_group)
    delete_group = engines(admin.Admin.delete_group)
    reset_offsets = engines(admin.Admin.reset_offsets)
