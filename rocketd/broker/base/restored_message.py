"""Rebuilds a stored message, to store it in another topic.

Pure functions.

Counterpart: `ScheduleMessageService.messageTimeup`, `TimerMessageStore.convertMessage` (Apache).
"""

from rocketd.common import properties as names
from rocketd.common.java_hash import java_string_hash
from rocketd.store.format.message import MessageInner
from rocketd.store.format.properties import index_keys
from rocketd.store.format.record import MessageExt


def restored_message(
    stored: MessageExt, topic: str, queue_id: int, table: dict[str, str], properties: bytes
) -> MessageInner:
    """Return the message for a queue.

    ``table`` holds the stored properties by name; ``properties`` is the text to write.
    """
    tags = table.get(names.TAGS)
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
        java_string_hash(tags) if tags else 0,
        index_keys(table.get(names.UNIQ_KEY), table.get(names.KEYS)),
        wait=False,
        is_accepted=True,
    )
