"""Reads messages of a topic without a consumer group of the user's, and without leaving anything at the brokers.

The pulls are in the name of TOOLS_CONSUMER, a group of every broker from its first start. They store no offset. Bodies stay
compressed in lists, so that small bodies that unpack to very much cost nothing.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

import msgspec

from rocketd.client.consumer.pulling.pull import address_to_pull, pull, wanted_records
from rocketd.client.errors import check_response
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.client.messages.codec import BYTES
from rocketd.client.messages.message import ReceivedMessage
from rocketd.client.messages.received import received_message
from rocketd.client.messages.records import readable_records
from rocketd.client.queries.messages import FOREVER_MS, LAST_MS
from rocketd.client.queries.queues import milliseconds_of
from rocketd.common.names import TOOLS_GROUP
from rocketd.common.sysflag import COMPRESSED
from rocketd.console.cluster import ConsoleCluster
from rocketd.console.errors import ConsoleError
from rocketd.protocol.cluster import MASTER
from rocketd.protocol.pull import everything, pull_header
from rocketd.remoting.bodies.tables import MessageQueue
from rocketd.remoting.headers.client import PullMessageResponseHeader, QueryMessageRequestHeader, read_header
from rocketd.remoting.wire.codes import RequestCode, ResponseCode
from rocketd.store.format.record import MessageExt

MAX_QUEUES: Final = 64
"""Queues that one page reads."""
_BATCH: Final = 32
_MAX_PULLS: Final = 4
"""Pulls of one queue for a page."""


@dataclass(frozen=True, slots=True)
class Found:
    """Messages in the order of storing. ``more`` tells that there may be others."""

    messages: list[ReceivedMessage[bytes]]
    more: bool


async def newest(cluster: ConsoleCluster, topic: str, limit: int) -> Found:
    """Return the newest messages of a topic, the newest first."""
    queues, more = await _queues(cluster, topic)
    found: list[ReceivedMessage[bytes]] = []
    for queue in queues:
        first, end = await cluster.admin.min_offset(queue), await cluster.admin.max_offset(queue)
        offset = max(first, end - limit)
        more = more or offset > first
        for _ in range(_MAX_PULLS):
            if offset >= end:
                break
            messages, offset = await _pull(cluster.client, queue, offset, limit)
            found += messages
    found.sort(key=_stored, reverse=True)
    return Found(found[:limit], more or len(found) > limit)


async def between(cluster: ConsoleCluster, topic: str, begin: datetime, until: datetime | None, limit: int) -> Found:
    """Return the first messages of a topic stored from a time on, and before another one."""
    queues, more = await _queues(cluster, topic)
    begin_ms = milliseconds_of(begin)
    until_ms = None if until is None else milliseconds_of(until)
    found: list[ReceivedMessage[bytes]] = []
    for queue in queues:
        offset, end = await cluster.admin.search_offset(queue, begin), await cluster.admin.max_offset(queue)
        of_queue: list[ReceivedMessage[bytes]] = []
        over = False
        for _ in range(_MAX_PULLS):
            if offset >= end or over or len(of_queue) >= limit:
                break
            messages, offset = await _pull(cluster.client, queue, offset, limit)
            for message in messages:
                over = over or (until_ms is not None and message.store_timestamp >= until_ms)
                # A clock may have been set back.
                if not over and message.store_timestamp >= begin_ms:
                    of_queue.append(message)
        more = more or (offset < end and not over)
        found += of_queue
    found.sort(key=_stored)
    return Found(found[:limit], more or len(found) > limit)


async def by_key(
    cluster: ConsoleCluster, topic: str, key: str, begin: datetime | None, until: datetime | None, limit: int
) -> Found:
    """Return messages of a topic with a key stored from a time to another, ``limit`` of each broker at most."""
    begin_ms = 0 if begin is None else milliseconds_of(begin)
    until_ms = FOREVER_MS if until is None else milliseconds_of(until)
    route = await cluster.admin.topic_route(topic)
    header = QueryMessageRequestHeader(
        topic=topic,
        key=key,
        max_num=limit,
        begin_timestamp=max(0, begin_ms - LAST_MS),
        end_timestamp=until_ms,
    )
    found: list[ReceivedMessage[bytes]] = []
    for broker in sorted(route.broker_datas, key=lambda data: data.broker_name)[:MAX_QUEUES]:
        address = cluster.client.master(broker.broker_name)
        response = await cluster.client.ask(address, RequestCode.QUERY_MESSAGE, header)
        if response.code == ResponseCode.QUERY_NOT_FOUND:
            continue
        for record in readable_records(check_response(address, response).body, f"{topic} at {broker.broker_name}"):
            message = _packed(record, MessageQueue(record.topic, broker.broker_name, record.queue_id))
            # Brokers search by a hash, which other keys may share.
            wanted = message.queue.topic == topic and key in message.keys
            if wanted and begin_ms <= message.store_timestamp <= until_ms:
                found.append(message)
    found.sort(key=_stored)
    return Found(found[:limit], len(found) >= limit)


async def _queues(cluster: ConsoleCluster, topic: str) -> tuple[list[MessageQueue], bool]:
    """Return the queues to read, and whether there are others. Raises ConsoleError if none may be read."""
    queues = sorted(await cluster.admin.fetch_subscribe_queues(topic))
    if not queues:
        raise ConsoleError(f"Topic {topic} may not be read: its permission has no read.")
    return queues[:MAX_QUEUES], len(queues) > MAX_QUEUES


async def _pull(
    client: ClientInstance, queue: MessageQueue, offset: int, limit: int
) -> tuple[list[ReceivedMessage[bytes]], int]:
    """Return messages from an offset on, and the next offset."""
    _, address = address_to_pull(client, queue.broker_name, MASTER)
    subscription = everything(queue.topic)
    header = pull_header(TOOLS_GROUP, queue, subscription, offset, min(limit, _BATCH))
    response = await pull(client, address, header)
    records = wanted_records(response, subscription, f"{queue.topic} at {queue.broker_name}")
    messages = [_packed(record, queue) for record in records]
    following = read_header(PullMessageResponseHeader, response).next_begin_offset
    if following <= offset:
        following = 2**63 - 1 if response.code != ResponseCode.SUCCESS else offset + len(records)
    return messages, following


def _packed(record: MessageExt, queue: MessageQueue) -> ReceivedMessage[bytes]:
    """Return the message of a record. A compressed body stays so."""
    message = received_message(msgspec.structs.replace(record, sys_flag=record.sys_flag & ~COMPRESSED), queue, BYTES)
    message.sys_flag = record.sys_flag
    return message


def _stored(message: ReceivedMessage[bytes]) -> tuple[int, str, int, int]:
    queue = message.queue
    return message.store_timestamp, queue.broker_name, queue.queue_id, message.queue_offset
