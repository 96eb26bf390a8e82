"""The client for asyncio: methods are coroutines.

A client belongs to the loop that runs when it starts.
"""

from collections.abc import Sequence
from typing import Any, Self

from rocketd.client import admin
from rocketd.client.admin_face import AdminFace
from rocketd.client.config import Duration
from rocketd.client.consumer import lite_pull_consumer, pull_consumer
from rocketd.client.consumer.pull_consumer import DEFAULT_TIMEOUT, PullResult
from rocketd.client.consumer.subscription import Sql
from rocketd.client.face import ConsumerFace, ProducerFace
from rocketd.client.hosting.aio_life import AioLife, engines
from rocketd.client.hosting.asyncio_host import to_future
from rocketd.client.hosting.until_signal import run_aio as run
from rocketd.client.message import Message, ReceivedMessage, SendResult, T
from rocketd.client.producer.producer import Selector
from rocketd.client.producer.transaction import TransactionSendResult
from rocketd.client.pull_faces import LitePullFace, PullFace
from rocketd.remoting.bodies import MessageQueue

__all__ = [
    "Admin",
    "Consumer",
    "LitePullConsumer",
    "Message",
    "MessageQueue",
    "Producer",
    "PullConsumer",
    "PullResult",
    "ReceivedMessage",
    "SendResult",
    "Sql",
    "TransactionSendResult",
    "run",
]


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
        """Send a message to ``queue``, to the one of ``key`` by its hash or by ``selector``, or to the queues in turn."""
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

    def check_iterated(self) -> None:
        """Raise UsageError where there is a handler, ForkedClientError, and ClientStateError in another loop."""
        super().check_iterated()
        if self._life.begun:
            self._check_caller()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage[T]:
        if self._life.begun:
            self._check_caller()
        message = await to_future(self.next_arrival())
        if message is None:
            raise StopAsyncIteration
        return message


class LitePullConsumer(LitePullFace[T], AioLife):
    """Gives messages when it is polled. Its options are described at LitePullFace and LitePullOptions."""

    async def poll(self, timeout: Duration | None = None) -> list[ReceivedMessage[T]]:
        """Return messages of one queue; none when there are none within ``timeout``, or the consumer is closed."""
        return await to_future(self.engine.poll(timeout))

    assign = engines(lite_pull_consumer.LitePullConsumer.assign)
    seek = engines(lite_pull_consumer.LitePullConsumer.seek)
    seek_to_begin = engines(lite_pull_consumer.LitePullConsumer.seek_to_begin)
    seek_to_end = engines(lite_pull_consumer.LitePullConsumer.seek_to_end)
    commit = engines(lite_pull_consumer.LitePullConsumer.commit)
    committed = engines(lite_pull_consumer.LitePullConsumer.committed)
    offset_for_timestamp = engines(lite_pull_consumer.LitePullConsumer.offset_for_timestamp)
    topic_queues = engines(lite_pull_consumer.LitePullConsumer.topic_queues)
    watch_queues = engines(lite_pull_consumer.LitePullConsumer.watch_queues)


class PullConsumer(PullFace[T], AioLife):
    """Pulls from queues where it is told. Its options are described at PullFace."""

    async def pull(
        self,
        queue: MessageQueue,
        wanted: str | Sql | None,
        offset: int,
        max_messages: int = 32,
        *,
        timeout: Duration = DEFAULT_TIMEOUT,
    ) -> PullResult[T]:
        """Ask for messages from an offset on: with tags such as ``TagA || TagB``, those an Sql selects, or all."""
        return await to_future(self.engine.pull(queue, wanted, offset, max_messages, timeout=timeout))

    async def pull_block_if_not_found(
        self, queue: MessageQueue, wanted: str | Sql | None, offset: int, max_messages: int = 32
    ) -> PullResult[T]:
        """Ask for messages as ``pull`` does; where there are none, wait for new ones, 20 s at most."""
        return await to_future(self.engine.pull_block_if_not_found(queue, wanted, offset, max_messages))

    fetch_subscribe_queues = engines(pull_consumer.PullConsumer.fetch_subscribe_queues)
    fetch_queues_in_balance = engines(pull_consumer.PullConsumer.fetch_queues_in_balance)
    fetch_consume_offset = engines(pull_consumer.PullConsumer.fetch_consume_offset)
    persist_consume_offsets = engines(pull_consumer.PullConsumer.persist_consume_offsets)
    send_message_back = engines(pull_consumer.PullConsumer.send_message_back)


class Admin(AdminFace, AioLife):
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
