"""Questions about a queue: its beginning and end, and the offset of a moment.

Counterpart: the offset methods of `MQAdminImpl` (Apache). Reactor thread. Queues have the application's names, without the
namespace. A name with the namespace is accepted, too.
"""

from datetime import UTC, datetime

from rocketd.client.errors import BrokerUnreachableError, check_topic
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.client.messages.namespace import queue_with_namespace, queue_without_namespace, with_namespace
from rocketd.protocol import offsets
from rocketd.protocol.question import Question, R
from rocketd.remoting.bodies.tables import MessageQueue


def milliseconds_of(moment: datetime) -> int:
    """Return a moment in Unix ms, as brokers use it."""
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
    """Return the offset of the first message stored at or after a moment. Raises RocketMQError.

    Apache's brokers return the nearest message.
    """
    question = offsets.search_offset(_named(instance, queue), milliseconds_of(moment))
    return await _answer(instance, question, queue)


async def earliest_message_time(instance: ClientInstance, queue: MessageQueue) -> datetime | None:
    """Return the store time of the first existing message; None if there is none. Raises RocketMQError."""
    timestamp = await _answer(instance, offsets.earliest_time(_named(instance, queue)), queue)
    return None if timestamp is None else datetime.fromtimestamp(timestamp / 1000, UTC)


def _named(instance: ClientInstance, queue: MessageQueue) -> MessageQueue:
    """Return the queue as its broker knows it."""
    return queue_with_namespace(instance.config.namespace, queue)


async def _answer(instance: ClientInstance, question: Question[R], queue: MessageQueue) -> R:
    """Ask a queue's master. If its address is unknown, fetch the topic's route first."""
    if instance.routes.address_of(queue.broker_name) is None:
        topic = _named(instance, queue).topic
        try:
            await instance.routes.subscribe_queues(topic)
            if instance.routes.address_of(queue.broker_name) is None:
                await instance.routes.refresh([topic])
        except BrokerUnreachableError:
            pass  # the next call raises it for this broker
    return await instance.answer(queue.broker_name, question)
