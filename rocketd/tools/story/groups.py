"""What a consumer group did with a message, and the reason if it has not consumed it.

Counterpart: `messageTrackDetail` of `DefaultMQAdminExtImpl` (Apache), which looks at offsets and subscriptions alone.
"""

from dataclasses import dataclass
from typing import Final

from rocketd.client.admin import AdminEngine
from rocketd.client.consumer.retries.dead_letter_reason import ATTEMPTS, EXCEPTION, REASON
from rocketd.client.errors import check_response
from rocketd.client.messages.message import ReceivedMessage
from rocketd.client.queries.inspection import QueueProgress
from rocketd.common.message_properties import REAL_TOPIC
from rocketd.common.names import dlq_topic, retry_topic
from rocketd.remoting.bodies.admin import ConsumerConnection
from rocketd.remoting.bodies.tables import MessageModel, MessageQueue, SubscriptionData
from rocketd.remoting.headers.client import ConsumerGroupRequestHeader
from rocketd.remoting.wire.codes import RequestCode, ResponseCode
from rocketd.tools.messages.message_text import time_text
from rocketd.tools.story.search import Messages, copies

_ALL: Final = "*"


@dataclass(frozen=True)
class GroupStory:
    """A group, a word for its state, and a sentence about it."""

    group: str
    state: str
    detail: str


async def group_story(admin: AdminEngine, group: str, message: ReceivedMessage[bytes], kept: Messages) -> GroupStory:
    """Return the story of a group. ``kept`` are the copies that wait for a later delivery. Raises RocketMQError."""
    if letters := await copies(admin, dlq_topic(group), message.msg_id):
        return GroupStory(group, "dead letter", _death(letters[-1]))
    progress = await admin.group_progress(group)
    attempts = await copies(admin, retry_topic(group), message.msg_id)
    later = [each for each in kept if each.properties.get(REAL_TOPIC) == retry_topic(group)]
    if later and (not attempts or later[-1].store_timestamp > attempts[-1].store_timestamp):
        count = later[-1].reconsume_times
        return GroupStory(group, "retry", f"failed {_times(count)}; a delay has begun {_time(later[-1])}")
    if attempts:
        last = attempts[-1]
        if _is_behind(progress, last):
            return GroupStory(group, "consumed", f"at attempt {last.reconsume_times + 1}")
        return GroupStory(
            group, "retry", f"failed {_times(last.reconsume_times)}; the next attempt is ready to be read"
        )
    connection = await _connection(admin, group, message.queue)
    if connection is not None and connection.message_model is MessageModel.BROADCASTING:
        return GroupStory(group, "broadcast", "each member reads all messages; brokers do not know how far")
    subscription = None if connection is None else connection.subscription_table.get(message.topic)
    if connection is not None and subscription is None:
        return GroupStory(group, "not subscribed", f"its members do not read topic {message.topic}")
    return GroupStory(group, *_main_queue(progress, message, subscription, connection is not None))


def _main_queue(
    progress: dict[MessageQueue, QueueProgress],
    message: ReceivedMessage[bytes],
    subscription: SubscriptionData | None,
    online: bool,
) -> tuple[str, str]:
    """Return the state and sentence for a group without any retry of the message."""
    if _is_behind(progress, message):
        if subscription is not None and not _wants(subscription, message):
            wanted = subscription.sub_string
            return "filtered", f"its tag is {message.tags or 'missing'}, and the group wants {wanted}"
        known = "" if online else "; no member is online, so its filter is unknown"
        return "consumed", f"the group is at offset {progress[message.queue].consumed} of the queue{known}"
    if message.queue not in progress:
        return "waiting", "the group has no offset in this queue" + ("" if online else ", and no member is online")
    before = message.queue_offset - progress[message.queue].consumed
    reason = f"{before} messages of the queue are before it"
    return "waiting", reason if online else f"no member is online; {reason}"


def _is_behind(progress: dict[MessageQueue, QueueProgress], message: ReceivedMessage[bytes]) -> bool:
    """Return whether a group's offset is behind a message."""
    found = progress.get(message.queue)
    return found is not None and found.consumed > message.queue_offset


def _wants(subscription: SubscriptionData, message: ReceivedMessage[bytes]) -> bool:
    """Return whether a subscription by tags selects a message. Others cannot be told here."""
    if subscription.expression_type != "TAG" or subscription.sub_string in ("", _ALL):
        return True
    return (message.tags or "") in subscription.tags_set


def _death(letter: ReceivedMessage[bytes]) -> str:
    exception, reason = letter.properties.get(EXCEPTION), letter.properties.get(REASON)
    attempts = letter.properties.get(ATTEMPTS, letter.reconsume_times)
    cause = ": ".join(text for text in (exception, reason) if text)
    return f"since {_time(letter)}, after {attempts} attempts" + (f"; {cause}" if cause else "")


def _times(number: int) -> str:
    return "1 time" if number == 1 else f"{number} times"


def _time(message: ReceivedMessage[bytes]) -> str | int:
    return time_text(message.store_timestamp)


async def _connection(admin: AdminEngine, group: str, queue: MessageQueue) -> ConsumerConnection | None:
    """Return the members and subscriptions of a group at the broker of a queue; None if it is offline."""
    address = admin.instance.master(queue.broker_name)
    header = ConsumerGroupRequestHeader(consumer_group=group)
    response = await admin.instance.ask(address, RequestCode.GET_CONSUMER_CONNECTION_LIST, header)
    if response.code == ResponseCode.CONSUMER_NOT_ONLINE:
        return None
    return ConsumerConnection.decode(check_response(address, response).body)
