"""The forms of a transactional message: half, committed, checked again, given up; and its op message.

Pure functions. Unlike in Apache's broker, a half message that is stored again keeps its flag and its retry count.

Counterpart: the message building of `TransactionalMessageBridge`, `EndTransactionProcessor` and
`DefaultTransactionalMessageCheckListener` (Apache).
"""

from rocketd.broker.base.restored_message import restored_message
from rocketd.common import message_properties as props
from rocketd.common.java_hash import java_string_hash
from rocketd.common.message_properties import (
    MAX_LENGTH,
    NAME_VALUE_SEPARATOR,
    PROPERTY_SEPARATOR,
    decode_properties,
    encode_properties,
)
from rocketd.common.names import TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC, is_storable
from rocketd.common.sysflag import TRANSACTION_COMMIT, TRANSACTION_NOT, reset_transaction_value
from rocketd.store.format.message import MessageInner, PutResult
from rocketd.store.format.properties import dispatch_properties
from rocketd.store.format.record import MessageExt, encode_record

QUEUE_ID = 0
"""The one queue of each of the three topics: half messages, op messages, and half messages given up."""
END_TAG = "d"
_END_PROPERTIES = PROPERTY_SEPARATOR.join(
    (f"{props.WAIT}{NAME_VALUE_SEPARATOR}true", f"{props.TAGS}{NAME_VALUE_SEPARATOR}{END_TAG}")
).encode()


def is_transactional(table: dict[str, str], reconsume_times: int) -> bool:
    """Whether a send with these properties is a half message.

    Consumers before 4.6.1 leave the transaction mark on messages they send back for a retry; those are not half
    messages.
    """
    if table.get(props.TRAN_MSG, "").lower() != "true":
        return False
    return reconsume_times <= 0 or table.get(props.DELAY, "0") in ("", "0")


def turn_into_half(message: MessageInner, sent_properties: str, topic: str, queue_id: int) -> None:
    """Turn a built message into a half message, invisible to consumers until its commit.

    ``topic`` and ``queue_id`` are its destination, ``sent_properties`` the properties of the request.
    """
    table = decode_properties(message.properties.decode())
    wait = decode_properties(sent_properties).get(props.WAIT)
    if wait is not None:
        table[props.WAIT] = wait  # ordinary messages are stored without WAIT
    table[props.REAL_TOPIC] = topic
    table[props.REAL_QID] = str(queue_id)
    message.topic = TRANS_HALF_TOPIC
    message.queue_id = QUEUE_ID
    message.sys_flag = reset_transaction_value(message.sys_flag, TRANSACTION_NOT)
    message.properties = encode_properties(table).encode()
    message.tags_code, message.index_keys = dispatch_properties(message.properties)


def committed(half: MessageExt, table: dict[str, str]) -> MessageInner:
    """Build the message for consumers from a half message and its properties.

    The properties keep the names of topic and queue, as in Apache's broker: consumers recognize transactional messages
    by them. Raises ValueError if they do not name a valid destination.
    """
    message = _again(half, table)
    message.topic, message.queue_id = destination(table)
    message.sys_flag = reset_transaction_value(half.sys_flag, TRANSACTION_COMMIT)
    message.prepared_transaction_offset = half.physical_offset
    return message


def renewed(half: MessageExt, table: dict[str, str]) -> MessageInner:
    """Build the copy of a half message, with these properties, to append at the end of its queue."""
    return _again(half, table)


def given_up(half: MessageExt, table: dict[str, str]) -> MessageInner:
    """Build the message that preserves a half message after the last check of its producer."""
    message = _again(half, table)
    message.topic, message.queue_id = TRANS_CHECK_MAX_TIME_TOPIC, QUEUE_ID
    return message


def end_mark(half_queue_offset: int, now_ms: int, store_host: bytes) -> MessageInner:
    """Build the op message: the half message at this queue offset was committed or rolled back."""
    return MessageInner(
        TRANS_OP_HALF_TOPIC,
        QUEUE_ID,
        0,
        0,
        now_ms,
        store_host,
        0,
        0,
        str(half_queue_offset).encode(),
        _END_PROPERTIES,
        java_string_hash(END_TAG),
        (),
        wait=False,
    )


def check_record(half: MessageExt, table: dict[str, str], result: PutResult) -> bytes:
    """Encode the record sent to a producer with a check: the message as sent, at the place of its new copy.

    Raises ValueError if the properties do not name a valid destination.
    """
    topic, queue_id = destination(table)
    message = _again(half, {**table, props.WAIT: "false"})
    if len(message.properties) > MAX_LENGTH:
        message = _again(half, table)
    message.topic, message.queue_id = topic, queue_id
    return encode_record(message, half.store_host, result.queue_offset, result.physical_offset, half.store_timestamp)


def destination(table: dict[str, str]) -> tuple[str, int]:
    """Return the topic and queue a half message was sent to.

    Raises ValueError if the properties do not hold valid ones.
    """
    topic = table.get(props.REAL_TOPIC, "")
    if not is_storable(topic):
        raise ValueError(f"its property {props.REAL_TOPIC} is {topic!r:.200}")
    queue_id = int(table.get(props.REAL_QID, ""))
    if not 0 <= queue_id < 2**31:
        raise ValueError(f"its property {props.REAL_QID} is {queue_id}")
    return topic, queue_id


def _again(half: MessageExt, table: dict[str, str]) -> MessageInner:
    return restored_message(half, half.topic, half.queue_id, encode_properties(table).encode())
