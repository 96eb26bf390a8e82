"""Requests whose replies come back as messages.

Answers to the request methods of DefaultMQProducerImpl, and to MessageUtil.createReplyMessage.
"""

from collections.abc import Callable
from typing import Any
from uuid import uuid4

from twisted.internet.defer import Deferred
from twisted.internet.defer import TimeoutError as DeferredTimeoutError

from rocketd.client.errors import IllegalMessageError, RequestTimeoutError
from rocketd.client.message import Message, ReceivedMessage, T
from rocketd.client.namespace import without_namespace
from rocketd.client.wire_message import unpack
from rocketd.common import properties as names
from rocketd.common.names import reply_topic
from rocketd.common.properties import decode_properties
from rocketd.remoting.bodies import MessageQueue
from rocketd.remoting.headers import ReplyMessageRequestHeader

REPLY = "reply"
CREATE_REPLY_MESSAGE = 10007
"""Apache's code of a reply to what is no request."""

GREETING_SHARE = 3
"""The part of the time left, one in so many, that brokers have to take note of who asks; those that need longer may not
keep the others' answer waiting.
"""


async def request_reply(
    producer: Any, message: Message[T], where: dict[str, Any], timeout_ms: float
) -> ReceivedMessage[T]:
    """Send a request and return its reply; ``timeout_ms`` is for all of it. See ``Producer.request``."""
    instance = producer.instance
    seconds: Callable[[], float] = instance.reactor.seconds
    ends = seconds() + timeout_ms / 1000

    def left_ms() -> float:
        return max(0.0, (ends - seconds()) * 1000)

    correlation_id = str(uuid4())
    more = {
        names.CORRELATION_ID: correlation_id,
        names.REPLY_TO_CLIENT: instance.client_id,
        names.TTL: str(int(timeout_ms)),
    }
    reply: Deferred[tuple[ReplyMessageRequestHeader, bytes]] = instance.replies.expect(correlation_id)
    try:
        # Brokers find the way back by the producers' heartbeats.
        await producer.find_queues(message.topic, left_ms())
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


def _reply_of(header: ReplyMessageRequestHeader, packed: bytes, producer: Any) -> ReceivedMessage[Any]:
    """Make the application's message of a reply. Raises IllegalMessageError when its body cannot be read."""
    table = decode_properties(header.properties)
    topic = without_namespace(producer.instance.config.namespace, header.topic)
    try:
        body = producer.codec.decode(unpack(packed, header.sys_flag))
    except ValueError as error:
        raise IllegalMessageError(
            f"the reply with correlation id {table.get(names.CORRELATION_ID)} cannot be read: {error}"
        ) from error
    return ReceivedMessage(
        topic=topic,
        body=body,
        properties=table,
        msg_id=table.get(names.UNIQ_KEY, ""),
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
    """Return the topic of replies to a request, and the properties that bring one back to who asked.

    Raises IllegalMessageError when the message is no request.
    """
    if not isinstance(request, ReceivedMessage):
        raise IllegalMessageError(f"{type(request).__name__} is no request: a reply needs the message that asks")
    table = request.properties
    cluster = table.get(names.CLUSTER)
    if cluster is None or names.CORRELATION_ID not in table:
        raise IllegalMessageError(
            f"message {request.msg_id} is no request: it has no {names.CLUSTER} or {names.CORRELATION_ID}",
            code=CREATE_REPLY_MESSAGE,
        )
    more = {names.MSG_TYPE: REPLY}
    for name in (names.CORRELATION_ID, names.REPLY_TO_CLIENT, names.TTL):
        if name in table:
            more[name] = table[name]
    return reply_topic(cluster), more
