"""A stored message made anew, to be stored once more in another topic.

Answers to ScheduleMessageService.messageTimeup and to TimerMessageStore.convertMessage. Pure functions.
"""

from rocketd.common import properties as names
from rocketd.common.java_hash import java_string_hash
from rocketd.store.message import MessageInner
from rocketd.store.properties import index_keys
from rocketd.store.record import MessageExt


def restored_message(
    stored: MessageExt, topic: str, queue_id: int, table: dict[str, str], properties: bytes
) -> MessageInner:
    """Make the message for a queue. ``table`` has the stored properties by name, ``properties`` is what is written."""
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
