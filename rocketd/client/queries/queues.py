"""Requests about a queue: its beginning and end, and the offset of a point in time.

Counterpart: the offset methods of `MQAdminImpl` (Apache). Reactor thread. Queues have the application's names, without the
namespace. A name with the namespace is accepted, too.
"""

from datetime import UTC, datetime
from typing import NamedTuple

from rocketd.client.errors import BrokerUnreachableError, check_topic
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.client.messages.namespace import queue_with_namespace, queue_without_namespace, with_namespace
from rocketd.common.names import TOOLS_GROUP
from rocketd.protocol import offsets
from rocketd.protocol.pull import everything, pull_header
from rocketd.protocol.typed_request import R, TypedRequest
from rocketd.remoting.bodies.tables import MessageQueue
from rocketd.remoting.headers.client import PullMessageResponseHeader, read_header
from rocketd.remoting.wire.codes import RequestCode, ResponseCode
from rocketd.store.format.record import MessageExt, decode_readable


def milliseconds_of(moment: datetime) -> int:
    """Return a point in time in Unix ms, as brokers use it."""
    return int(moment.timestamp() * 1000)


async def subscribe_queues(instance: ClientInstance, topic: str) -> list[MessageQueue]:
    """Return the readable queues of a topic, in order. Raises IllegalTopicError and NoRouteError."""
    check_topic(topic)
    namespace = instance.config.namespace
    queues = await instance.routes.subscribe_queues(with_namespace(namespace, topic))
    return [queue_without_namespace(namespace, queue) for queue in sorted(queues)]


async def min_offset(instance: ClientInstance, queue: MessageQueue) -> int:
    """Return the offset of the first existing message. Raises RocketMQError."""
    return await _answer(instance, offsets.min_offset(_named(instance, queue)), queue)


async def max_offset(instance: ClientInstance, queue: MessageQueue) -> int:
    """Return the offset for the next message. Raises RocketMQError."""
    return await _answer(instance, offsets.max_offset(_named(instance, queue)), queue)


async def search_offset(instance: ClientInstance, queue: MessageQueue, moment: datetime) -> int:
    """Return the offset of the first message stored at or after a time, for no consumer. Raises RocketMQError."""
    return await first_since(instance, TOOLS_GROUP, queue, milliseconds_of(moment))


async def first_since(instance: ClientInstance, group: str, queue: MessageQueue, moment_ms: int) -> int:
    """Return the offset of the first message stored at or after a time (Unix ms), or the end of the queue without one.

    Apache's brokers return the nearest message, before or after, or any of those stored in the same millisecond. So the
    messages there are looked at, with pulls of a group that may read the topic. If they cannot be read, the broker's
    offset counts. Raises RocketMQError.
    """
    queue = _named(instance, queue)
    offset = await _answer(instance, offsets.search_offset(queue, moment_ms), queue)
    found = await _look(instance, group, queue, offset)
    if not found.records:
        return offset

    async def is_since(at: int) -> bool:
        look = found if at == offset else await _look(instance, group, queue, at)
        return look.is_since(at, moment_ms)

    # Steps double until one is too long. The messages in between are halved.
    low, high, step = 0, offset, 1
    if await is_since(offset):
        while low < high and await is_since(at := max(low, high - step)):
            high, step = at, 2 * step
        low = at + 1 if low < high else low
    else:
        while not await is_since(high):
            low, high, step = high + 1, high + step, 2 * step
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if await is_since(middle) else (middle + 1, high)
    return high


class _Look(NamedTuple):
    """The answer to a pull of one message: its readable records, and the beginning of the queue."""

    records: list[MessageExt]
    begin: int

    def is_since(self, offset: int, moment_ms: int) -> bool:
        """Whether the message was stored at or after a time. So counts the end of the queue, and a damaged message."""
        if self.records:
            return self.records[0].store_timestamp >= moment_ms
        return offset >= self.begin


async def _look(instance: ClientInstance, group: str, queue: MessageQueue, offset: int) -> _Look:
    """Pull the message at an offset. Raises RocketMQError."""
    looked_at = pull_header(group, queue, everything(queue.topic), offset, 1)
    response = await instance.ask(instance.master(queue.broker_name), RequestCode.PULL_MESSAGE, looked_at)
    if response.code == ResponseCode.SUCCESS:
        return _Look(decode_readable(response.body or b"")[0], 0)
    moved = response.code == ResponseCode.PULL_OFFSET_MOVED
    return _Look([], read_header(PullMessageResponseHeader, response).min_offset if moved else 0)


async def earliest_message_time(instance: ClientInstance, queue: MessageQueue) -> datetime | None:
    """Return the store time of the first existing message; None if there is none. Raises RocketMQError."""
    timestamp = await _answer(instance, offsets.earliest_time(_named(instance, queue)), queue)
    return None if timestamp is None else datetime.fromtimestamp(timestamp / 1000, UTC)


def _named(instance: ClientInstance, queue: MessageQueue) -> MessageQueue:
    """Return the queue as its broker knows it."""
    return queue_with_namespace(instance.config.namespace, queue)


async def _answer(instance: ClientInstance, request: TypedRequest[R], queue: MessageQueue) -> R:
    """Ask a queue's master. If its address is unknown, fetch the topic's route first."""
    if instance.routes.address_of(queue.broker_name) is None:
        topic = _named(instance, queue).topic
        try:
            await instance.routes.subscribe_queues(topic)
            if instance.routes.address_of(queue.broker_name) is None:
                await instance.routes.refresh([topic])
        except BrokerUnreachableError:
            pass  # the next call raises it for this broker
    return await instance.answer(queue.broker_name, request)
