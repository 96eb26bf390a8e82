# ruff: noqa: N802, N815 - the names are OpenMessaging's
"""The client under the names of OpenMessaging 0.3: access point, producer, push consumer, pull consumer.

Counterpart: the openmessaging module (Apache), on the blocking face. Its KeyValue is a dict of texts here, its Future is
that of ``concurrent.futures``, and errors are those of the client. As in Apache's module, queues are topics, and a
consumer's id is its group.
"""

import re
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from queue import Empty, SimpleQueue
from threading import Event
from types import MappingProxyType
from typing import Self

from rocketd.client import sync
from rocketd.client.consumer.retries.handler_results import Retry
from rocketd.client.errors import IllegalOptionError, StopConsuming, UsageError
from rocketd.client.messages.message import Message, ReceivedMessage
from rocketd.client.settings.config import ClientConfig

DESTINATION, MESSAGE_ID, START_TIME, SEARCH_KEYS = "DESTINATION", "MESSAGE_ID", "START_TIME", "SEARCH_KEYS"
CONSUMER_ID, OPERATION_TIMEOUT = "CONSUMER_ID", "OPERATION_TIMEOUT"
PRODUCER_GROUP, MESSAGE_CONSUME_TIMEOUT = "rmq.producer.group", "rmq.message.consume.timeout"
MAX_CONSUME_THREADS = "rmq.max.consume.thread.nums"
CONSUME_FROM = "rmq.consume.from"
"""Only in rocketd: ``latest`` or ``earliest``, the start of a new group."""

Attributes = Mapping[str, str]
NONE: Attributes = MappingProxyType({})
SEND_THREADS = 4
_URL = re.compile(r"oms:rocketmq://(?:[^@/]*@)?(?P<hosts>[^@/]+)/[^:/]*(?::(?P<namespace>[^:/]*))?")


@dataclass
class BytesMessage:
    """A body, the headers of OpenMessaging, and those of the application, which are the properties of RocketMQ."""

    body: bytes
    sysHeaders: dict[str, str] = field(default_factory=dict)
    userHeaders: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class SendResult:
    """The id of a sent message."""

    messageId: str


class MessagingAccessPoint:
    """A cluster, named by ``oms:rocketmq://host:port[,host:port]/region[:namespace]``. The region is ignored.

    ``attributes`` are defaults for everything it creates. Raises IllegalOptionError. Like Apache's module,
    it has no streaming consumer.
    """

    def __init__(self, url: str, attributes: Attributes = NONE) -> None:
        found = _URL.fullmatch(url)
        if found is None:
            raise IllegalOptionError(f"{url!r} is not an access point: oms:rocketmq://host:port/region is the form")
        space = found["namespace"] or ""
        self._config = ClientConfig(namesrv=found["hosts"].split(","), namespace="" if space == "default" else space)
        self.attributes = dict(attributes)

    def startup(self) -> None:
        """Do nothing, like ``shutdown``: producers and consumers are started one by one."""

    shutdown = startup

    def createProducer(self, attributes: Attributes = NONE) -> "Producer":
        """Create a producer."""
        return Producer(self._config, {**self.attributes, **attributes})

    def createPushConsumer(self, attributes: Attributes = NONE) -> "PushConsumer":
        """Create a consumer that calls listeners. CONSUMER_ID must be among its attributes."""
        return PushConsumer(self._config, {**self.attributes, **attributes})

    def createPullConsumer(self, attributes: Attributes = NONE) -> "PullConsumer":
        """Create a consumer with ``receive``. CONSUMER_ID must be among its attributes."""
        return PullConsumer(self._config, {**self.attributes, **attributes})


class Producer:
    """A producer. Any thread may use it between ``startup`` and ``shutdown``."""

    def __init__(self, config: ClientConfig, attributes: Attributes) -> None:
        group = attributes.get(PRODUCER_GROUP, "__OMS_PRODUCER_DEFAULT_GROUP")
        timeout = float(attributes.get(OPERATION_TIMEOUT, 5000)) / 1000
        self._producer = sync.Producer[bytes](group, config, send_timeout=timeout)
        self._pool = ThreadPoolExecutor(SEND_THREADS, "oms-producer")
        self.startup = self._producer.open

    def shutdown(self) -> None:
        """Wait for sends under way, and stop."""
        self._pool.shutdown()
        self._producer.close()

    def createBytesMessage(self, queue: str, body: bytes) -> BytesMessage:
        """Create a message for a topic."""
        return BytesMessage(body, {DESTINATION: queue})

    def send(self, message: BytesMessage) -> SendResult:
        """Send a message. Return its id, which also becomes a header. Raises the errors of the client's ``send``."""
        message.sysHeaders[MESSAGE_ID] = self._producer.send(_sent(message)).msg_id
        return SendResult(message.sysHeaders[MESSAGE_ID])

    def sendAsync(self, message: BytesMessage) -> "Future[SendResult]":
        """Send a message without waiting for the result."""
        return self._pool.submit(self.send, message)

    def sendOneway(self, message: BytesMessage) -> None:
        """Send a message without waiting for an answer."""
        self._producer.send_oneway(_sent(message))


class Context(Event):
    """Passed to a listener with each message. Call ``ack`` when it is consumed, from any thread, even later."""

    stopped = False
    ack = Event.set


class _Consumer:
    """The common part of both consumers: a message is consumed when it is acknowledged; otherwise it is delivered again."""

    def __init__(self, config: ClientConfig, attributes: Attributes) -> None:
        if CONSUMER_ID not in attributes:
            raise IllegalOptionError(f"a consumer needs the attribute {CONSUMER_ID}, its group")
        self._listeners: dict[str, Callable[[BytesMessage, Context], None]] = {}
        self._open: set[Context] = set()
        self._stopping = False
        self._patience = float(attributes.get(MESSAGE_CONSUME_TIMEOUT, 15)) * 60
        self._consumer = sync.Consumer[bytes](
            attributes[CONSUMER_ID],
            config,
            handler=self._handle,
            begin=attributes.get(CONSUME_FROM, "latest"),
            concurrency=int(attributes.get(MAX_CONSUME_THREADS, 20)),
        )
        self.startup, self.suspend, self.resume = self._consumer.open, self._consumer.suspend, self._consumer.resume

    def shutdown(self) -> None:
        """Stop. Unacknowledged messages are delivered again to the next consumer."""
        self._stopping = True
        for context in list(self._open):
            context.stopped = not context.is_set()
            context.ack()
        self._consumer.close()

    def detachQueue(self, queue: str) -> Self:
        """Stop consuming a topic."""
        self._consumer.unsubscribe(queue)
        return self

    def _attach(self, queue: str, listener: Callable[[BytesMessage, Context], None]) -> Self:
        self._listeners[queue] = listener
        self._consumer.subscribe(queue)
        return self

    def _handle(self, message: ReceivedMessage) -> None:
        context = Context()
        self._open.add(context)
        try:
            if not self._stopping:
                self._listeners[message.topic](_received(message), context)
                if not context.wait(self._patience):
                    raise Retry(reason="it was not acknowledged in time")
            if self._stopping and (context.stopped or not context.is_set()):
                raise StopConsuming
        finally:
            self._open.discard(context)


class PushConsumer(_Consumer):
    """A consumer that calls listeners in separate threads."""

    def attachQueue(self, queue: str, listener: Callable[[BytesMessage, Context], None]) -> Self:
        """Consume a topic. ``listener`` gets each message, and acknowledges it."""
        return self._attach(queue, listener)


class PullConsumer(_Consumer):
    """A consumer with ``receive``, for any thread."""

    def __init__(self, config: ClientConfig, attributes: Attributes) -> None:
        super().__init__(config, attributes)
        self._arrived: SimpleQueue[BytesMessage] = SimpleQueue()
        self._out: dict[str, Context] = {}

    def attachQueue(self, queue: str) -> Self:
        """Consume a topic."""
        return self._attach(queue, self._arrive)

    def _arrive(self, message: BytesMessage, context: Context) -> None:
        self._out[message.sysHeaders[MESSAGE_ID]] = context
        self._arrived.put(message)

    def receive(self, timeout: float = 5.0) -> BytesMessage | None:
        """Return a message; None if none comes within ``timeout`` seconds."""
        try:
            return self._arrived.get(timeout=timeout)
        except Empty:
            return None

    def ack(self, message_id: str) -> None:
        """Acknowledge a message as consumed. Raises UsageError if no message with this id is out."""
        context = self._out.pop(message_id, None)
        if context is None:
            raise UsageError(f"no message {message_id} waits to be acknowledged")
        context.ack()


def _sent(message: BytesMessage) -> Message:
    headers = message.sysHeaders
    start = datetime.fromtimestamp(int(headers[START_TIME]) / 1000, UTC) if START_TIME in headers else None
    keys = headers.get(SEARCH_KEYS, "").split()
    return Message(headers[DESTINATION], message.body, keys=keys, properties=message.userHeaders, deliver_at=start)


def _received(message: ReceivedMessage) -> BytesMessage:
    headers = {DESTINATION: message.topic, MESSAGE_ID: message.msg_id, SEARCH_KEYS: " ".join(message.keys)}
    for name in ("born_host", "born_timestamp", "store_host", "store_timestamp"):
        headers[name.upper()] = str(getattr(message, name))
    return BytesMessage(message.body, headers, message.properties)
