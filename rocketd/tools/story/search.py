"""Finds a message by its id, also if its topic is unknown or it is not readable yet."""

from typing import Final

from rocketd.client.admin import AdminEngine
from rocketd.client.errors import BrokerError, NoRouteError
from rocketd.client.messages.message import ReceivedMessage
from rocketd.client.queries.messages import all_by_unique_key, by_key
from rocketd.common.command_line.output import complain
from rocketd.common.names import (
    DLQ_PREFIX,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    SYSTEM_TOPIC_PREFIX,
    SYSTEM_TOPICS,
    TIMER_TOPIC,
    TRACE_TOPIC,
    TRANS_HALF_TOPIC,
)

WAITING: Final = {
    SCHEDULE_TOPIC: "delayed",
    TIMER_TOPIC: "delayed",
    TRANS_HALF_TOPIC: "half",
}
"""Topics in which the broker keeps messages until they are ready to be read, and the word for such a message."""
_TRACES: Final = 64

Messages = list[ReceivedMessage[bytes]]


async def copies(admin: AdminEngine, topic: str, message_id: str) -> Messages:
    """Return the messages of a topic with an id, the oldest first; nothing if the topic is unknown."""
    try:
        return await all_by_unique_key(admin.instance, topic, message_id)
    except NoRouteError:
        return []


async def find(admin: AdminEngine, topic: str | None, message_id: str) -> Messages:
    """Return the messages with an id in one topic, or in the first topic of an application that has one."""
    if topic is not None:
        placed = await admin.view_message(topic, message_id)
        return [] if placed is None else await copies(admin, placed.topic, placed.msg_id) or [placed]
    topics = [
        name
        for name in await admin.topics()
        if name not in SYSTEM_TOPICS and not name.startswith((RETRY_PREFIX, DLQ_PREFIX, SYSTEM_TOPIC_PREFIX))
    ]
    # The id of a place tells the broker, so one topic is enough to ask; any will do.
    if topics and (placed := await _at_place(admin, topics[0], message_id)) is not None:
        return await copies(admin, placed.topic, placed.msg_id) or [placed]
    for name in topics:
        if found := await copies(admin, name, message_id):
            return found
    return []


async def _at_place(admin: AdminEngine, topic: str, message_id: str) -> ReceivedMessage[bytes] | None:
    try:
        return await admin.view_message(topic, message_id)
    except NoRouteError:
        return None


async def waiting(admin: AdminEngine, message_id: str) -> Messages:
    """Return the messages with an id in the topics for delayed, timed and half messages, the oldest first.

    Delivered ones are included.
    """
    found: Messages = []
    for topic in WAITING:
        try:
            found += await copies(admin, topic, message_id)
        except BrokerError as error:
            complain(f"{WAITING[topic]} messages cannot be searched: {error}")
    return sorted(found, key=lambda message: message.store_timestamp)


async def traces(admin: AdminEngine, message_id: str) -> list[str]:
    """Return the bodies of the trace messages about a message."""
    try:
        found = await by_key(admin.instance, TRACE_TOPIC, message_id, _TRACES, None, None)
    except NoRouteError:
        return []
    except BrokerError as error:
        complain(f"the trace cannot be read: {error}")
        return []
    return [message.body.decode("utf-8", "replace") for message in found]
