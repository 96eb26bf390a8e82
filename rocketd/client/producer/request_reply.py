"""Requests whose replies come back as messages.

Counterpart: the request methods of `DefaultMQProducerImpl`, and `MessageUtil.createReplyMessage` (Apache).
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol
from uuid import uuid4

from twisted.internet.defer import Deferred
from twisted.internet.defer import TimeoutError as DeferredTimeoutError

from rocketd.client.errors import IllegalMessageError, RequestTimeoutError, RocketMQError
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.client.messages.codec import Codec
from rocketd.client.messages.message import Message, ReceivedMessage, SendResult, T
from rocketd.client.messages.namespace import with_namespace, without_namespace
from rocketd.client.messages.received import unpack
from rocketd.common import message_properties as props
from rocketd.common.message_properties import decode_properties
from rocketd.common.names import reply_topic
from rocketd.remoting.bodies.tables import MessageQueue
from rocketd.remoting.headers.client import ReplyMessageRequestHeader

REPLY = "reply"
CREATE_REPLY_MESSAGE = 10007
"""Apache's error code for a reply to a message other than a request."""

GREETING_SHARE = 3
"""Divisor of the remaining time: the share of it in which brokers must note the requester. Slower brokers may not delay
the answer of the others.
"""
LOOK_SECONDS = 30.0
"""Interval at which a cluster's reply topic is looked up again, if it was not found."""


class Asker(Protocol[T]):
    """The producer of a request."""

    instance: ClientInstance
    codec: Codec[T]

    async def find_queues(self, topic: str, timeout_ms: float) -> object:
        """Wait until a queue of the topic is known."""

    async def send_with(
        self, message: Message[T], more: dict[str, str], timeout_ms: float, where: dict[str, Any]
    ) -> SendResult:
        """Send a message with further properties."""


async def request_reply(
    producer: Asker[T], message: Message[T], where: dict[str, Any], timeout_ms: float
) -> ReceivedMessage[T]:
    """Send a request and return its reply. ``timeout_ms`` applies to everything. See ``Producer.request``."""
    instance = producer.instance
    seconds: Callable[[], float] = instance.reactor.seconds
    deadline = seconds() + timeout_ms / 1000

    def left_ms() -> float:
        return max(0.0, (deadline - seconds()) * 1000)

    correlation_id = str(uuid4())
    more = {
        props.CORRELATION_ID: correlation_id,
        props.REPLY_TO_CLIENT: instance.client_id,
        props.TTL: str(int(timeout_ms)),
    }
    reply: Deferred[tuple[ReplyMessageRequestHeader, bytes]] = instance.replies.expect(correlation_id)
    try:
        # Brokers find the way back by the producers' heartbeats.
        await producer.find_queues(message.topic, left_ms())
        await _find_repliers(instance, message.topic, left_ms() / GREETING_SHARE)
        await instance.greet(left_ms() / GREETING_SHARE)
        await producer.send_with(message, more, left_ms(), where)
        reply.addTimeout(left_ms() / 1000, instance.reactor)
        header, body = await reply
    except DeferredTimeoutError:
        raise RequestTimeoutError(
            f"no reply to the request to {message.topic} within {timeout_ms:g} ms (correlation id {correlation_id})"
        ) from None
    finally:
        reply.addErrback(lambda _: None)
        reply.cancel()
    return _reply_of(header, body, producer)


async def _find_repliers(instance: ClientInstance, topic: str, wait_ms: float) -> None:
    """Learn the brokers with the reply topic of a topic's clusters: Apache's clients reply by any of them.

    Failures are ignored, because rocketd's clients reply by the broker of the request.
    """
    now = instance.reactor.seconds()
    route = await instance.routes.route(with_namespace(instance.config.namespace, topic))
    for cluster in sorted({broker.cluster for broker in route.broker_datas}):
        if now - instance.replies.looked_up.get(cluster, -LOOK_SECONDS) < LOOK_SECONDS:
            continue
        instance.replies.looked_up[cluster] = now
        looking = Deferred.fromCoroutine(instance.routes.subscribe_queues(reply_topic(cluster)))
        looking.addTimeout(wait_ms / 1000, instance.reactor)
        with suppress(RocketMQError, DeferredTimeoutError):
            await looking


def _reply_of(header: ReplyMessageRequestHeader, packed: bytes, producer: Asker[T]) -> ReceivedMessage[T]:
    """Return a reply as the application's message. Raises IllegalMessageError if its body is unreadable."""
    table = decode_properties(header.properties)
    topic = without_namespace(producer.instance.config.namespace, header.topic)
    try:
        body = producer.codec.decode(unpack(packed, header.sys_flag))
    except ValueError as error:
        raise IllegalMessageError(
            f"the reply with correlation id {table.get(props.CORRELATION_ID)} cannot be read: {error}"
        ) from error
    return ReceivedMessage(
        topic=topic,
        body=body,
        properties=table,
        msg_id=table.get(props.UNIQ_KEY, ""),
        offset_msg_id="",
        queue=MessageQueue(topic, "", header.queue_id),
        queue_offset=0,
        physical_offset=0,
        flag=header.flag,
        sys_flag=header.sys_flag,
        born_timestamp=header.born_timestamp,
        store_timestamp=header.store_timestamp,
        born_host=header.born_host,
        store_host=header.store_host,
        store_size=0,
        reconsume_times=header.reconsume_times or 0,
    )


def reply_properties(request: ReceivedMessage[Any]) -> tuple[str, dict[str, str]]:
    """Return the topic of replies to a request, and the properties for the way back to the requester.

    Raises IllegalMessageError if the message is not a request.
    """
    if not isinstance(request, ReceivedMessage):
        raise IllegalMessageError(f"{type(request).__name__} is not a request: a reply needs the message that asks")
    table = request.properties
    cluster = table.get(props.CLUSTER)
    if cluster is None or props.CORRELATION_ID not in table:
        raise IllegalMessageError(
            f"message {request.msg_id} is not a request: it has no {props.CLUSTER} or {props.CORRELATION_ID}",
            code=CREATE_REPLY_MESSAGE,
        )
    more = {props.MSG_TYPE: REPLY}
    for name in (props.CORRELATION_ID, props.REPLY_TO_CLIENT, props.TTL):
        if name in table:
            more[name] = table[name]
    return reply_topic(cluster), more
