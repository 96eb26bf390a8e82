"""Searches for messages: by place, by key and by unique key.

Counterpart: `viewMessage` and `queryMessage` of `MQAdminImpl` (Apache). Reactor thread. Topics have the application's names.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Final

import msgspec
from twisted.logger import Logger

from rocketd.client.errors import BrokerError, IllegalMessageError, RocketMQError, check_response, check_topic
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.client.messages.codec import BYTES
from rocketd.client.messages.message import ReceivedMessage
from rocketd.client.messages.namespace import with_namespace, without_namespace
from rocketd.client.messages.received import received_message
from rocketd.client.messages.records import log_damaged, readable_records
from rocketd.client.queries.queues import milliseconds_of
from rocketd.common.names import UNIQUE_KEY_QUERY
from rocketd.protocol.cluster import MASTER
from rocketd.remoting.bodies.tables import MessageQueue
from rocketd.remoting.headers.client import QueryMessageRequestHeader, ViewMessageRequestHeader
from rocketd.remoting.wire.codes import RequestCode, ResponseCode
from rocketd.store.base.errors import RecordError
from rocketd.store.format.record import MessageExt, decode_message

FOREVER_MS: Final = 2**63 - 1
SAME_UNIQUE_KEY: Final = 32
"""Messages inspected for one unique key, at most. Several tries of one send have the same key."""

MAX_PAGES: Final = 64
"""Answers of a broker read for one unique key, at most."""

LAST_MS: Final = 999
"""Apache's brokers know the time of a key in whole seconds, so messages may be this much later than a query's start."""

NOT_THERE: Final = "can not find message"
"""Beginning of a broker's remark if it has no message at a place. The response code alone is ambiguous."""

_log = Logger()


class _Query(QueryMessageRequestHeader):
    """QUERY_MESSAGE (request code 12) as sent by clients, with a field for unique keys."""

    unique: bool = msgspec.field(name=UNIQUE_KEY_QUERY, default=False)


async def at_place(
    instance: ClientInstance, broker_name: str, address: str, physical_offset: int
) -> ReceivedMessage[bytes] | None:
    """Return the message at an offset of a broker's log (request code 33); None if there is none.

    Raises IllegalMessageError if it is damaged, and RocketMQError.
    """
    header = ViewMessageRequestHeader(offset=physical_offset)
    response = await instance.ask(address, RequestCode.VIEW_MESSAGE_BY_ID, header)
    if response.code == ResponseCode.SYSTEM_ERROR and (response.remark or "").startswith(NOT_THERE):
        return None
    body = check_response(address, response).body or b""
    try:
        record = decode_message(body)
    except RecordError as error:
        raise IllegalMessageError(f"the message at {physical_offset} of {broker_name} is damaged: {error}") from error
    return _received(instance, record, broker_name)


async def by_key(
    instance: ClientInstance, topic: str, key: str, limit: int, begin: datetime | None, end: datetime | None
) -> list[ReceivedMessage[bytes]]:
    """Return messages with a key stored from ``begin`` to ``end``, ``limit`` of each broker at most.

    Raises:

    - IllegalTopicError: the topic name is invalid.
    - NoRouteError: the topic is unknown.
    - BrokerError: a broker refuses.
    """
    begin_ms = 0 if begin is None else milliseconds_of(begin)
    end_ms = FOREVER_MS if end is None else milliseconds_of(end)
    header = _Query(
        topic=_topic(instance, topic),
        key=key,
        max_num=limit,
        begin_timestamp=max(0, begin_ms - LAST_MS),
        end_timestamp=end_ms,
    )
    # Brokers search by a hash, which other keys may share.
    return [
        message
        for message in await _query(instance, header)
        if message.topic == topic and key in message.keys and begin_ms <= message.store_timestamp <= end_ms
    ]


async def by_unique_key(instance: ClientInstance, topic: str, unique_key: str) -> ReceivedMessage[bytes] | None:
    """Return the first message stored with a unique key; None if there is none. Raises the errors of ``by_key``."""
    return next(iter(await all_by_unique_key(instance, topic, unique_key)), None)


async def all_by_unique_key(instance: ClientInstance, topic: str, unique_key: str) -> list[ReceivedMessage[bytes]]:
    """Return the messages with a unique key, the oldest first: tries of one send, or attempts of one group.

    There are at most ``SAME_UNIQUE_KEY`` of each broker. Raises the errors of ``by_key``.
    """
    header = _Query(
        topic=_topic(instance, topic),
        key=unique_key,
        max_num=SAME_UNIQUE_KEY,
        begin_timestamp=0,
        end_timestamp=FOREVER_MS,
        unique=True,
    )
    found = [message for message in await _query(instance, header) if message.msg_id == unique_key]
    return sorted(found, key=lambda message: message.store_timestamp)


async def has_copy(
    instance: ClientInstance, topic: str, unique_key: str, begin_ms: int, accepts: Callable[[MessageExt], bool]
) -> bool:
    """Return whether ``accepts`` does so for a record with a unique key, stored from a time on.

    The topic is given with its namespace. Bodies stay as they are stored. Other keys may have the same hash, so a record
    may have another unique key. All masters with the topic must answer.

    Raises:

    - TopicNotFoundError: no broker has the topic.
    - RocketMQError: a broker has more messages with the key than can be read.
    - the errors of ``ask``.
    """
    for broker in (await instance.routes.route(topic)).broker_datas:
        address = instance.master(broker.broker_name)
        header = _Query(
            topic=topic,
            key=unique_key,
            max_num=SAME_UNIQUE_KEY,
            begin_timestamp=begin_ms,
            end_timestamp=FOREVER_MS,
            unique=True,
        )
        if await _is_any(instance, address, header, accepts):
            return True
    return False


async def _is_any(
    instance: ClientInstance, address: str, header: _Query, accepts: Callable[[MessageExt], bool]
) -> bool:
    """Search the records of a broker, newest first, page after page. The broker limits a page by number and by size.

    The next page begins at the time of the oldest record seen, and has this record again. Apache's brokers know times to
    the second. The last page has nothing new.
    """
    seen: set[int] = set()
    for _ in range(MAX_PAGES):
        response = await instance.ask(address, RequestCode.QUERY_MESSAGE, header)
        if response.code == ResponseCode.QUERY_NOT_FOUND:
            return False
        records = readable_records(check_response(address, response).body, f"{header.topic} at {address}")
        fresh = [record for record in records if record.physical_offset not in seen]
        if any(map(accepts, fresh)):
            return True
        if not fresh:
            if len(records) < SAME_UNIQUE_KEY:
                return False
            break  # all of the page were stored within a second, so older ones cannot be asked for
        seen.update(record.physical_offset for record in fresh)
        header.end_timestamp = min(record.store_timestamp for record in records)
    raise RocketMQError(
        f"broker {address} has more messages of topic {header.topic} with the unique key {header.key} than the "
        f"{len(seen)} that were read: whether one of the others is sought is not known",
        broker=address,
    )


def _topic(instance: ClientInstance, topic: str) -> str:
    check_topic(topic)
    return with_namespace(instance.config.namespace, topic)


async def _query(instance: ClientInstance, header: _Query) -> list[ReceivedMessage[bytes]]:
    """Ask one server of each broker with the topic (request code 12). An unreachable one is logged."""
    route = await instance.routes.route(header.topic)
    found: list[ReceivedMessage[bytes]] = []
    for broker in sorted(route.broker_datas, key=lambda data: data.broker_name):
        address = broker.broker_addrs.get(MASTER) or next(iter(broker.broker_addrs.values()))
        try:
            response = await instance.ask(address, RequestCode.QUERY_MESSAGE, header)
            if response.code == ResponseCode.QUERY_NOT_FOUND:
                continue
            records = readable_records(check_response(address, response).body, f"{header.topic} at {address}")
        except BrokerError:
            raise
        except RocketMQError as error:
            _log.warn("messages of {topic} at {address}: {error}", topic=header.topic, address=address, error=error)
            continue
        for record in records:
            try:
                found.append(_received(instance, record, broker.broker_name))
            except IllegalMessageError as error:
                log_damaged(str(error))
    return found


def _received(instance: ClientInstance, record: MessageExt, broker_name: str) -> ReceivedMessage[bytes]:
    namespace = instance.config.namespace
    queue = MessageQueue(without_namespace(namespace, record.topic), broker_name, record.queue_id)
    return received_message(record, queue, BYTES, namespace)
