"""The event for operators: a consumer asked for an offset outside the queue.

Counterpart: `PullMessageProcessor.generateOffsetMovedEvent`, `OffsetMovedEvent` (Apache).
"""

from rocketd.broker.pull.parts import PullParts
from rocketd.common import message_properties as props
from rocketd.common.message_properties import encode_properties
from rocketd.common.names import OFFSET_MOVED_EVENT
from rocketd.remoting.fastjson import dialect as fastjson
from rocketd.remoting.headers.client import PullMessageRequestHeader
from rocketd.store.format.message import MessageInner
from rocketd.store.format.properties import dispatch_properties


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
    properties = encode_properties({props.KEYS: group, props.DELAY: "0", props.TAGS: group}).encode()
    tags_code, keys = dispatch_properties(properties)
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
        properties,
        tags_code,
        keys,
    )
