"""Has a group go on from other offsets.

Answers to resetOffsetNew of DefaultMQAdminExtImpl. Reactor thread. Groups and topics are named with their namespace.
"""

from datetime import datetime
from typing import Final, Literal

from rocketd.client import queue_questions
from rocketd.client.errors import BrokerError, UsageError
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.client.namespace import queue_without_namespace
from rocketd.remoting.admin_bodies import ResetOffsetBody
from rocketd.remoting.admin_headers import ResetOffsetRequestHeader
from rocketd.remoting.bodies import GetConsumerListByGroupResponseBody, MessageQueue
from rocketd.remoting.codes import RequestCode, ResponseCode
from rocketd.remoting.headers import ConsumerGroupRequestHeader, UpdateConsumerOffsetRequestHeader

Target = datetime | Literal["earliest", "latest"]
"""Where to go on: with what was stored at a moment or later, from the first message there is, or from the end."""

_TIMESTAMPS: Final = {"earliest": 0, "latest": -1}
"""What brokers take for the ends of a queue."""


async def reset(instance: ClientInstance, group: str, topic: str, to: Target) -> dict[MessageQueue, int]:
    """Reset a group, broker by broker; return the new offsets, with topics named as the application does.

    Raises UsageError, NoRouteError and BrokerError.
    """
    if not (isinstance(to, datetime) or to in _TIMESTAMPS):
        raise UsageError(f"to={to!r}: accepted is a datetime, 'earliest' or 'latest'")
    timestamp = queue_questions.milliseconds_of(to) if isinstance(to, datetime) else _TIMESTAMPS[to]
    header = ResetOffsetRequestHeader(topic=topic, group=group, timestamp=timestamp, is_force=True)
    queues = await instance.routes.subscribe_queues(topic)
    offsets: dict[MessageQueue, int] = {}
    for broker_name in sorted({queue.broker_name for queue in queues}):
        if await _is_online(instance, broker_name, group):
            response = await instance.ask_broker(broker_name, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
            offsets.update(ResetOffsetBody.decode(response.body).offset_table)
            continue
        for queue in queues:
            if queue.broker_name == broker_name:
                offsets[queue] = await _store_offset(instance, group, queue, to)
    namespace = instance.config.namespace
    return {queue_without_namespace(namespace, queue): offset for queue, offset in sorted(offsets.items())}


async def _is_online(instance: ClientInstance, broker_name: str, group: str) -> bool:
    header = ConsumerGroupRequestHeader(consumer_group=group)
    try:
        response = await instance.ask_broker(broker_name, RequestCode.GET_CONSUMER_LIST_BY_GROUP, header)
    except BrokerError as error:
        if error.code == ResponseCode.SYSTEM_ERROR:  # it knows nobody
            return False
        raise
    return bool(GetConsumerListByGroupResponseBody.decode(response.body).consumer_id_list)


async def _store_offset(instance: ClientInstance, group: str, queue: MessageQueue, to: Target) -> int:
    if isinstance(to, datetime):
        offset = await queue_questions.search_offset(instance, queue, to)
    elif to == "earliest":
        offset = await queue_questions.min_offset(instance, queue)
    else:
        offset = await queue_questions.max_offset(instance, queue)
    header = UpdateConsumerOffsetRequestHeader(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        commit_offset=offset,
        bname=queue.broker_name,
    )
    await instance.ask_broker(queue.broker_name, RequestCode.UPDATE_CONSUMER_OFFSET, header)
    return offset
