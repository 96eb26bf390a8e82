"""Kombu's channel on RocketMQ: queues are topics, and acknowledgements are offsets.

Counterpart: `kombu.transport.virtual.Channel`, whose methods with an underscore are implemented here.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from queue import Empty
from typing import Any
from uuid import uuid4

from kombu.log import get_logger
from kombu.transport import virtual
from kombu.utils.json import dumps, loads

from rocketd.client import Message, ReceivedMessage
from rocketd.client.errors import (
    BrokerError,
    BrokerUnreachableError,
    NoRouteError,
    RocketMQError,
    TopicNotFoundError,
)
from rocketd.kombu.delays import LONGEST_TIMER, eta_of, level_within
from rocketd.kombu.group_reader import GroupReader
from rocketd.kombu.names import group_of, topic_of

logger = get_logger(__name__)

WAIT_SECONDS = 0.5
"""Longest wait for a message of one queue, without a look at signals and at other channels."""

WAIT_OF_SEVERAL_SECONDS = 0.05
"""Wait for a message of each of several queues."""

GET_SECONDS = 1.0
"""Wait of ``basic_get`` for a message."""

QUEUES = 8
"""Queues of a new topic at each broker: as many workers can share it."""


MILLISECOND = timedelta(milliseconds=1)
"""Times of delivery are truncated to ms. A task delivered early waits for a timer of Celery."""


class PriorityError(ValueError):
    """A message or a queue with priorities: RocketMQ has none."""

    def __init__(self, found: str) -> None:
        super().__init__(f"{found}: RocketMQ has no priorities. Leave it out, and use one queue for each priority.")


class RocketMQQoS(virtual.QoS):
    """Messages delivered and not yet acknowledged, up to the prefetch count."""

    def ack(self, delivery_tag: str) -> None:
        """Acknowledge a message. Any thread."""
        super().ack(delivery_tag)
        self.channel.acknowledge(delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Drop a message, or store it again. Any thread."""
        super().reject(delivery_tag, requeue=requeue)
        self.channel.acknowledge(delivery_tag)

    def restore_unacked(self) -> list[tuple[BaseException, Any]]:
        """Store all unacknowledged messages again. Return the errors; these messages stay unacknowledged."""
        self._flush()
        errors: list[tuple[BaseException, Any]] = []
        for delivery_tag, message in list(self._delivered.items()):
            try:
                self.channel._restore(message)
            except RocketMQError as error:
                errors.append((error, message))
            else:
                self.ack(delivery_tag)
        return errors


class RocketMQChannel(virtual.Channel):
    """A channel. All methods belong to the thread of its connection, except acknowledgements."""

    QoS = RocketMQQoS
    do_restore = False
    """Whether Kombu stores messages again when it closes. The reader of a queue does this, if it is necessary."""

    supports_fanout = False

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
        self._readers: dict[str, GroupReader] = {}
        self._cancelled: set[str] = set()
        self._taken: dict[str, tuple[str, ReceivedMessage[bytes]]] = {}
        """Delivery tag: queue and message."""

    # ------------------------------------------------------------ queues

    def _new_queue(self, queue: str, arguments: Mapping[str, object] | None = None, **kwargs: object) -> None:
        """Create the topic if no broker has it. Raises PriorityError, RocketMQError and the errors of ``topic_of``."""
        if "x-max-priority" in (arguments or {}):
            raise PriorityError(f"queue {queue!r} has x-max-priority")
        topic = topic_of(queue)
        if topic in self.connection.known_topics:
            return
        if not self._has_queue(queue):
            queues = self.connection.client.transport_options.get("queues", QUEUES)
            try:
                self.connection.clients.admin.create_topic(topic, queues=queues)
            except BrokerUnreachableError:  # a broker without a master gets it later
                if not self._has_queue(queue):
                    raise
        self.connection.known_topics.add(topic)

    def _has_queue(self, queue: str, **kwargs: object) -> bool:
        """Whether brokers have the topic."""
        try:
            self.connection.clients.admin.topic_route(topic_of(queue))
        except TopicNotFoundError:
            return False
        return True

    def _size(self, queue: str) -> int:
        """Return the number of unacknowledged messages."""
        admin, topic = self.connection.clients.admin, topic_of(queue)
        progress = admin.group_progress(group_of(queue), topic)
        if progress:
            return sum(one.behind for one in progress.values())
        try:
            return sum(ends.max_offset - ends.min_offset for ends in admin.topic_stats(topic).values())
        except NoRouteError:
            return 0

    def _purge(self, queue: str) -> int:
        """Skip all messages of a queue. Return their number."""
        size = self._size(queue)
        self.connection.clients.admin.reset_offsets(group_of(queue), topic_of(queue), "latest")
        return size

    def _delete(self, queue: str, *args: object, **kwargs: object) -> None:
        """Delete the topic and its group."""
        self._close_reader(queue)
        admin, topic = self.connection.clients.admin, topic_of(queue)
        admin.delete_topic(topic)
        admin.delete_group(group_of(queue), remove_offsets=True)
        self.connection.known_topics.discard(topic)

    # ------------------------------------------------------------ messages out

    def prepare_message(
        self, body: object, priority: int | None = None, *args: object, **kwargs: object
    ) -> dict[str, Any]:
        """Return a message for ``_put``. Raises PriorityError."""
        if priority:
            raise PriorityError(f"priority={priority!r}")
        prepared: dict[str, Any] = super().prepare_message(body, None, *args, **kwargs)
        return prepared

    def _put(self, queue: str, message: dict[str, Any], **kwargs: object) -> None:
        """Store a message. Raises RocketMQError and the errors of ``topic_of``."""
        headers, properties = message.get("headers") or {}, message["properties"]
        words = (headers.get("id"), properties.get("correlation_id"))
        keys = dict.fromkeys(word for word in words if isinstance(word, str) and word and " " not in word)
        self._send(Message(topic_of(queue), dumps(message).encode(), keys=list(keys)), eta_of(headers))

    def _send(self, message: Message[bytes], eta: datetime | None) -> None:
        """Send a message, to be delivered at ``eta`` if the broker has a timer, else at once."""
        producer = self.connection.clients.producer
        now = datetime.now(UTC)
        if eta is not None and eta > now:
            try:
                message.deliver_at = min(eta, now + LONGEST_TIMER) + MILLISECOND
                producer.send(message)
                return
            except BrokerError:  # its timer is switched off, or has a lower limit
                message.deliver_at, message.delay_level = None, level_within(eta - now)
        producer.send(message)

    def _resend(self, message: ReceivedMessage[bytes], level: int = 0) -> None:
        """Store a message again. Raises RocketMQError."""
        producer = self.connection.clients.producer
        producer.send(Message(message.topic, message.body, keys=message.keys, delay_level=level))

    # ------------------------------------------------------------ messages in

    def _get(self, queue: str, timeout: float = GET_SECONDS) -> dict[str, Any]:
        """Return the next message of a queue. Raises Empty, and RocketMQError."""
        reader = self._reader(queue)
        while (message := reader.take(timeout)) is not None:
            try:
                payload = self._payload_of(message.body)
            except Exception as error:  # anyone may have sent anything
                logger.error(
                    "queue %r: message %s is skipped, since Kombu has not sent it: %r", queue, message.msg_id, error
                )
                reader.acknowledge(message)
                continue
            eta = eta_of(payload["headers"])
            rest = timedelta() if eta is None else eta - datetime.now(UTC)
            if level := level_within(rest):
                # The broker has no timer, or not for so long: the message waits there, level by level.
                self._resend(message, level)
                reader.acknowledge(message)
                continue
            self._taken[payload["properties"]["delivery_tag"]] = queue, message
            return payload
        raise Empty

    def _payload_of(self, body: bytes) -> dict[str, Any]:
        """Return a message of Kombu, with a new delivery tag. Raises any exception for another body."""
        payload: dict[str, Any] = loads(body)
        payload["properties"]["delivery_tag"] = uuid4().hex
        self.Message(payload, channel=self)  # Kombu would fail in its loop, again and again
        if not isinstance(payload["headers"], dict) or not isinstance(payload["properties"]["delivery_info"], dict):
            raise TypeError("the headers or the delivery_info are not a mapping")
        return payload

    def _reader(self, queue: str) -> GroupReader:
        self._cancelled.discard(queue)
        reader = self._own_reader(queue)
        if reader is None:
            self._new_queue(queue)
            reader = self._readers[queue] = GroupReader(
                self.connection.clients.config, topic_of(queue), group_of(queue), self._resend
            )
        return reader

    def _poll(
        self, cycle: object, callback: Callable[[dict[str, Any], str], None], timeout: float | None = None
    ) -> None:
        """Deliver a message of one of the consumed queues. Raises Empty if none comes soon."""
        queues = list(dict.fromkeys(self._active_queues))
        wait = WAIT_SECONDS if len(queues) == 1 else WAIT_OF_SEVERAL_SECONDS
        if timeout is not None:
            wait = min(wait, timeout)
        for queue in queues:
            try:
                message = self._get(queue, wait)
            except Empty:
                continue
            # The next poll begins behind this queue, so that a full one does not hold the others up.
            self._active_queues.remove(queue)
            self._active_queues.append(queue)
            callback(message, queue)
            return
        raise Empty

    def basic_consume(
        self,
        queue: str,
        no_ack: bool,
        callback: Callable[[virtual.Message], object],
        consumer_tag: str,
        **kwargs: object,
    ) -> None:
        """Consume from a queue."""

        def acknowledge_and_call(message: virtual.Message) -> object:
            self.acknowledge(message.delivery_tag)
            return callback(message)

        super().basic_consume(queue, no_ack, acknowledge_and_call if no_ack else callback, consumer_tag, **kwargs)

    def basic_get(self, queue: str, no_ack: bool = False, **kwargs: object) -> virtual.Message | None:
        """Return the next message of a queue; None without one."""
        message = super().basic_get(queue, no_ack, **kwargs)
        if message is not None and no_ack:
            self.acknowledge(message.delivery_tag)
        return message

    def basic_cancel(self, consumer_tag: str) -> None:
        """Stop consuming. The group gets the queue's messages once all delivered ones are acknowledged."""
        queue = self._tag_to_queue.get(consumer_tag)
        super().basic_cancel(consumer_tag)
        if queue is not None and queue not in self._active_queues:
            self._cancelled.add(queue)
            self._close_if_idle(queue)

    def acknowledge(self, delivery_tag: str) -> None:
        """Commit the acknowledgement of a message. Any thread."""
        taken = self._taken.pop(delivery_tag, None)
        if taken is None:
            return
        queue, message = taken
        reader = self._own_reader(queue)
        if reader is not None:
            reader.acknowledge(message)
        self._close_if_idle(queue)

    def _close_if_idle(self, queue: str) -> None:
        reader = self._own_reader(queue)
        if queue in self._cancelled and reader is not None and reader.idle:
            self._cancelled.discard(queue)
            self._close_reader(queue)

    def _close_reader(self, queue: str) -> None:
        reader = self._own_reader(queue)
        self._readers.pop(queue, None)
        if reader is not None:
            reader.close()

    def _own_reader(self, queue: str) -> GroupReader | None:
        """Return the reader of a queue. A reader of the parent process does not count: it goes on there."""
        reader = self._readers.get(queue)
        return reader if reader is not None and reader.is_of_this_process else None

    def close(self) -> None:
        """Leave all groups. Unacknowledged messages come again."""
        transport, readers = self.connection, list(self._readers)
        if transport is None:
            return
        for queue in readers:
            try:
                self._close_reader(queue)
            except RocketMQError:
                logger.warning("queue %r was not given up in order: its messages may come again", queue, exc_info=True)
        self._readers.clear()
        self._taken.clear()
        super().close()
