"""Rebuilds a stored message, to store it again: delayed messages, messages with a delivery time, half messages.

Pure functions.

Counterpart: `ScheduleMessageService.messageTimeup`, `TimerMessageStore.convertMessage`,
`TransactionalMessageBridge.renewHalfMessageInner` (Apache).
"""

from rocketd.store.format.message import MessageInner
from rocketd.store.format.properties import dispatch_properties
from rocketd.store.format.record import MessageExt


def restored_message(stored: MessageExt, topic: str, queue_id: int, properties: bytes) -> MessageInner:
    """Return the message for a queue, with these properties. Its sender was answered long ago."""
    tags_code, keys = dispatch_properties(properties)
    return MessageInner(
        topic,
        queue_id,
        stored.flag,
        stored.sys_flag,
        stored.born_timestamp,
        stored.born_host,
        stored.reconsume_times,
        0,
        stored.body,
        properties,
        tags_code,
        keys,
        wait=False,
        is_accepted=True,
    )
