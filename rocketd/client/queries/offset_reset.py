"""Resets the offsets of a group.

Counterpart: `resetOffsetNew` of `DefaultMQAdminExtImpl` (Apache). Reactor thread. Groups and topics have their namespace.
"""

from datetime import datetime
from typing import Final, Literal

from rocketd.client.errors import BrokerError, RocketMQError, UsageError
from rocketd.client.instance.all_of import errors_of, raise_first
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.client.messages.namespace import queue_without_namespace
from rocketd.client.queries import queues as queue_queries
from rocketd.protocol import offsets
from rocketd.remoting.bodies.admin import ResetOffsetBody
from rocketd.remoting.bodies.tables import GetConsumerListByGroupResponseBody, MessageQueue
from rocketd.remoting.headers.admin import ResetOffsetRequestHeader
from rocketd.remoting.headers.client import ConsumerGroupRequestHeader
from rocketd.remoting.wire.codes import RequestCode, ResponseCode

Target = datetime | Literal["earliest", "latest"] | int
"""The new position: messages stored at or after a time, the first existing message, the end, or an offset."""

_TIMESTAMPS: Final = {"earliest": 0, "latest": -1}
"""The protocol's timestamps for the ends of a queue."""


async def reset(
    instance: ClientInstance, group: str, topic: str, to: Target, dry_run: bool = False
) -> dict[MessageQueue, int]:
    """Reset a group at all brokers. Return the new offsets, with the application's names of topics.

    With ``dry_run`` nothing is changed. Raises:

    - UsageError: ``to`` is invalid, or is an offset while the group has consumers online.
    - NoRouteError: the topic is unknown.
    - BrokerError, BrokerUnreachableError: a broker refuses, or its master is not registered. The others are reset.
    """
    offsets, errors = await reset_each(instance, group, topic, to, dry_run)
    raise_first(errors)
    return offsets


async def reset_each(
    instance: ClientInstance, group: str, topic: str, to: Target, dry_run: bool
) -> tuple[dict[MessageQueue, int], list[RocketMQError]]:
    """Reset a group as `reset` does. Return the new offsets, and the errors of the brokers that did not take them."""
    _check_target(to)
    queues = await instance.routes.subscribe_queues(topic)
    online: dict[str, bool] = {}

    async def look(broker_name: str) -> None:
        online[broker_name] = await _is_online(instance, broker_name, group)

    silent = await errors_of(sorted({queue.broker_name for queue in queues}), look)
    if any(online.values()) and isinstance(to, int):
        raise UsageError(
            f"to={to!r}: group {group} has consumers online, and a broker moves those only to a time, to 'earliest' or to "
            "'latest'; stop them first"
        )
    offsets: dict[MessageQueue, int] = {}

    async def reset_at(broker_name: str) -> None:
        if online[broker_name] and not dry_run:
            offsets.update(await _tell_broker(instance, broker_name, group, topic, to))
            return
        for queue in queues:
            if queue.broker_name == broker_name:
                offset = await _offset_at(instance, queue, to)
                if not dry_run:
                    await _store_offset(instance, group, queue, offset)
                offsets[queue] = offset

    errors = [*silent, *await errors_of(sorted(online), reset_at)]
    namespace = instance.config.namespace
    return {queue_without_namespace(namespace, queue): offset for queue, offset in sorted(offsets.items())}, errors


def _check_target(to: Target) -> None:
    if isinstance(to, int) and not isinstance(to, bool) and 0 <= to < 2**63:
        return
    if not (isinstance(to, datetime) or to in _TIMESTAMPS):
        raise UsageError(f"to={to!r}: accepted is a datetime, 'earliest', 'latest' or an offset from 0 on")


async def _tell_broker(
    instance: ClientInstance, broker_name: str, group: str, topic: str, to: Target
) -> dict[MessageQueue, int]:
    """Let a broker reset the group and tell its consumers. Return the broker's new offsets."""
    timestamp = queue_queries.milliseconds_of(to) if isinstance(to, datetime) else _TIMESTAMPS[str(to)]
    header = ResetOffsetRequestHeader(topic=topic, group=group, timestamp=timestamp, is_force=True)
    response = await instance.ask_broker(broker_name, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
    return ResetOffsetBody.decode(response.body).offset_table


async def _is_online(instance: ClientInstance, broker_name: str, group: str) -> bool:
    header = ConsumerGroupRequestHeader(consumer_group=group)
    try:
        response = await instance.ask_broker(broker_name, RequestCode.GET_CONSUMER_LIST_BY_GROUP, header)
    except BrokerError as error:
        if error.code == ResponseCode.SYSTEM_ERROR:  # it knows no member
            return False
        raise
    return bool(GetConsumerListByGroupResponseBody.decode(response.body).consumer_id_list)


async def _offset_at(instance: ClientInstance, queue: MessageQueue, to: Target) -> int:
    if isinstance(to, datetime):
        return await queue_queries.search_offset(instance, queue, to)
    if to == "latest":
        return await queue_queries.max_offset(instance, queue)
    first = await queue_queries.min_offset(instance, queue)
    if isinstance(to, int):
        return max(first, min(to, await queue_queries.max_offset(instance, queue)))
    return first


async def _store_offset(instance: ClientInstance, group: str, queue: MessageQueue, offset: int) -> None:
    await instance.answer(queue.broker_name, offsets.commit_offset(group, queue, offset, reset=True))
