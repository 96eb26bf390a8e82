"""Looks for messages: at their place, by their keys and by their unique key.

Answers to viewMessage and queryMessage of MQAdminImpl. Reactor thread. Topics are named as the application does.
"""

from datetime import datetime
from typing import Final

import msgspec
from twisted.logger import Logger

from rocketd.client.codec import BYTES
from rocketd.client.errors import BrokerError, RocketMQError, check_response, check_topic
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.client.instance.routes import MASTER
from rocketd.client.message import ReceivedMessage
from rocketd.client.namespace import with_namespace, without_namespace
from rocketd.client.queue_questions import milliseconds_of
from rocketd.client.wire_message import received_message
from rocketd.common.names import UNIQUE_KEY_QUERY
from rocketd.remoting.bodies import MessageQueue
from rocketd.remoting.codes import RequestCode, ResponseCode
from rocketd.remoting.headers import QueryMessageRequestHeader, ViewMessageRequestHeader
from rocketd.store.record import MessageExt, decode_messages

FOREVER_MS: Final = 2**63 - 1
SAME_UNIQUE_KEY: Final = 32
"""Messages that may have one unique key and are looked at: tries of one send."""

NOT_THERE: Final = "can not find message"
"""How the remark of a broker begins that has no message at a place; the code says no more than that something is wrong."""

_log = Logger()


class _Query(QueryMessageRequestHeader):
    """QUERY_MESSAGE (12) as clients send it: whether the key is the unique one."""

    unique: bool = msgspec.field(name=UNIQUE_KEY_QUERY, default=False)


async def at_place(
    instance: ClientInstance, broker_name: str, address: str, physical_offset: int
) -> ReceivedMessage[bytes] | None:
    """Return the message at an offset of a broker's log (33); None when there is none. Raises RocketMQError."""
    header = ViewMessageRequestHeader(offset=physical_offset)
    response = await instance.ask(address, RequestCode.VIEW_MESSAGE_BY_ID, header)
    if response.code == ResponseCode.SYSTEM_ERROR and (response.remark or "").startswith(NOT_THERE):
        return None
    (record,) = decode_messages(check_response(address, response).body or b"")
    return _received(instance, record, broker_name)


async def by_key(
    instance: ClientInstance, topic: str, key: str, most: int, begin: datetime | None, end: datetime | None
) -> list[ReceivedMessage[bytes]]:
    """Return messages with a key, ``most`` of each broker at most. Raises IllegalTopicError, NoRouteError, BrokerError."""
    header = _Query(
        topic=_topic(instance, topic),
        key=key,
        max_num=most,
        begin_timestamp=0 if begin is None else milliseconds_of(begin),
        end_timestamp=FOREVER_MS if end is None else milliseconds_of(end),
    )
    # Brokers look for a hash, which others may share.
    return [message for message in await _query(instance, header) if message.topic == topic and key in message.keys]


async def by_unique_key(instance: ClientInstance, topic: str, unique_key: str) -> ReceivedMessage[bytes] | None:
    """Return the message with a unique key that was stored first. Raises as ``by_key`` does."""
    header = _Query(
        topic=_topic(instance, topic),
        key=unique_key,
        max_num=SAME_UNIQUE_KEY,
        begin_timestamp=0,
        end_timestamp=FOREVER_MS,
        unique=True,
    )
    return min(
        (message for message in await _query(instance, header) if message.msg_id == unique_key),
        key=lambda message: message.store_timestamp,
        default=None,
    )


def _topic(instance: ClientInstance, topic: str) -> str:
    check_topic(topic)
    return with_namespace(instance.config.namespace, topic)


async def _query(instance: ClientInstance, header: _Query) -> list[ReceivedMessage[bytes]]:
    """Ask a server of each broker that has the topic (12); one that cannot be reached is logged."""
    route = await instance.routes.route(header.topic)
    found: list[ReceivedMessage[bytes]] = []
    for broker in sorted(route.broker_datas, key=lambda data: data.broker_name):
        address = broker.broker_addrs.get(MASTER) or next(iter(broker.broker_addrs.values()))
        try:
            response = await instance.ask(address, RequestCode.QUERY_MESSAGE, header)
            if response.code == ResponseCode.QUERY_NOT_FOUND:
                continue
            records = decode_messages(check_response(address, response).body or b"")
        except BrokerError:
            raise
        except RocketMQError as error:
            _log.warn("messages of {topic} at {address}: {error}", topic=header.topic, address=address, error=error)
            continue
        found += [_received(instance, record, broker.broker_name) for record in records]
    return found


def _received(instance: ClientInstance, record: MessageExt, broker_name: str) -> ReceivedMessage[bytes]:
    namespace = instance.config.namespace
    queue = MessageQueue(without_namespace(namespace, record.topic), broker_name, record.queue_id)
    return received_message(record, queue, BYTES, namespace)
