"""What brokers are asked about a queue: where it begins and ends, and which offset a moment has.

Answers to the offset methods of MQAdminImpl. Reactor thread. Queues are named as the application does, without the
namespace; one that has it already stays as it is.
"""

from datetime import UTC, datetime

from rocketd.client.errors import BrokerUnreachableError, check_topic
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.client.namespace import queue_with_namespace, queue_without_namespace, with_namespace
from rocketd.remoting.bodies import MessageQueue
from rocketd.remoting.codes import RequestCode
from rocketd.remoting.command import RemotingCommand
from rocketd.remoting.headers import (
    Header,
    OffsetResponseHeader,
    QueueRequestHeader,
    SearchOffsetRequestHeader,
    TimestampResponseHeader,
    read_header,
)


def milliseconds_of(moment: datetime) -> int:
    """Return a moment as brokers know it, in Unix ms."""
    return int(moment.timestamp() * 1000)


async def subscribe_queues(instance: ClientInstance, topic: str) -> list[MessageQueue]:
    """Return the queues of a topic that can be read, in order. Raises IllegalTopicError and NoRouteError."""
    check_topic(topic)
    namespace = instance.config.namespace
    queues = await instance.routes.subscribe_queues(with_namespace(namespace, topic))
    return [queue_without_namespace(namespace, queue) for queue in sorted(queues)]


async def min_offset(instance: ClientInstance, queue: MessageQueue) -> int:
    """Return the offset of the first message there is. Raises RocketMQError."""
    return await _offset(instance, queue, RequestCode.GET_MIN_OFFSET)


async def max_offset(instance: ClientInstance, queue: MessageQueue) -> int:
    """Return the offset that the next message gets. Raises RocketMQError."""
    return await _offset(instance, queue, RequestCode.GET_MAX_OFFSET)


async def search_offset(instance: ClientInstance, queue: MessageQueue, moment: datetime) -> int:
    """Return the offset of the first message stored at a moment or later, as its broker finds it. Raises RocketMQError."""
    name = queue_with_namespace(instance.config.namespace, queue)
    header = SearchOffsetRequestHeader(
        topic=name.topic, queue_id=name.queue_id, timestamp=milliseconds_of(moment), bname=name.broker_name
    )
    response = await _ask(instance, name, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)
    return read_header(OffsetResponseHeader, response).offset


async def earliest_message_time(instance: ClientInstance, queue: MessageQueue) -> datetime | None:
    """Return when the first message there is was stored, None when there is none. Raises RocketMQError."""
    response = await _about(instance, queue, RequestCode.GET_EARLIEST_MSG_STORETIME)
    timestamp = read_header(TimestampResponseHeader, response).timestamp
    return datetime.fromtimestamp(timestamp / 1000, UTC) if timestamp >= 0 else None


async def _offset(instance: ClientInstance, queue: MessageQueue, code: RequestCode) -> int:
    return read_header(OffsetResponseHeader, await _about(instance, queue, code)).offset


async def _about(instance: ClientInstance, queue: MessageQueue, code: RequestCode) -> RemotingCommand:
    name = queue_with_namespace(instance.config.namespace, queue)
    header = QueueRequestHeader(topic=name.topic, queue_id=name.queue_id, bname=name.broker_name)
    return await _ask(instance, name, code, header)


async def _ask(instance: ClientInstance, queue: MessageQueue, code: RequestCode, header: Header) -> RemotingCommand:
    """Ask a queue's master, whose address its topic's route may tell first."""
    if instance.routes.address_of(queue.broker_name) is None:
        try:
            await instance.routes.subscribe_queues(queue.topic)
            if instance.routes.address_of(queue.broker_name) is None:
                await instance.routes.refresh([queue.topic])
        except BrokerUnreachableError:
            pass  # what comes next says it of this broker
    return await instance.ask_broker(queue.broker_name, code, header)
