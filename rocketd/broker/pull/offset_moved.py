"""The event for operators: a consumer asked for an offset outside the queue.

Counterpart: `PullMessageProcessor.generateOffsetMovedEvent`, `OffsetMovedEvent` (Apache).
"""

from rocketd.broker.pull.parts import PullParts
from rocketd.common import properties as names
from rocketd.common.java_hash import java_string_hash
from rocketd.common.names import OFFSET_MOVED_EVENT
from rocketd.common.properties import encode_properties
from rocketd.remoting.fastjson import dialect as fastjson
from rocketd.remoting.headers.client import PullMessageRequestHeader
from rocketd.store.format.message import MessageInner


def offset_moved_event(broker: PullParts, header: PullMessageRequestHeader, new_offset: int) -> MessageInner:
    """Build the event message. Its tag and key are the consumer group."""
    group = header.consumer_group
    event = {
        "consumerGroup": group,
        "messageQueue": {
            "brokerName": broker.settings.broker.broker_name,
            "queueId": header.queue_id,
            "topic": header.topic,
        },
        "offsetNew": new_offset,
        "offsetRequest": header.queue_offset,
    }
    table = {names.KEYS: group, names.DELAY: "0", names.TAGS: group}
    return MessageInner(
        OFFSET_MOVED_EVENT,
        0,
        0,
        0,
        broker.now_ms(),
        broker.store_host,
        0,
        0,
        fastjson.dumps(event),
        encode_properties(table).encode(),
        java_string_hash(group),
        (group,),
    )
