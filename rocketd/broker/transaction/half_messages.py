"""The forms that a transactional message takes: half, committed, asked about again, given up; and the mark of its end.

Answers to the message building of Apache's TransactionalMessageBridge, EndTransactionProcessor and
DefaultTransactionalMessageCheckListener. Pure functions. Unlike there, a half message that is stored again keeps its flag
and its retry count.
"""

from rocketd.common import properties as names
from rocketd.common.java_hash import java_string_hash
from rocketd.common.names import TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC, is_storable
from rocketd.common.properties import (
    MAX_LENGTH,
    NAME_VALUE_SEPARATOR,
    PROPERTY_SEPARATOR,
    decode_properties,
    encode_properties,
)
from rocketd.common.sysflag import TRANSACTION_COMMIT, TRANSACTION_NOT, reset_transaction_value
from rocketd.store.message import MessageInner, PutResult
from rocketd.store.properties import index_keys
from rocketd.store.record import MessageExt, encode_record

QUEUE_ID = 0
"""Half messages, their ends and those given up have one queue each."""
END_TAG = "d"
_END_PROPERTIES = PROPERTY_SEPARATOR.join(
    (f"{names.WAIT}{NAME_VALUE_SEPARATOR}true", f"{names.TAGS}{NAME_VALUE_SEPARATOR}{END_TAG}")
).encode()


def is_transactional(table: dict[str, str], reconsume_times: int) -> bool:
    """Whether a send with these properties is a half message.

    Consumers before 4.6.1 leave the mark on what they send back to be tried again later.
    """
    if table.get(names.TRAN_MSG, "").lower() != "true":
        return False
    return reconsume_times <= 0 or table.get(names.DELAY, "0") in ("", "0")


def turn_into_half(message: MessageInner, sent_properties: str, topic: str, queue_id: int) -> None:
    """Make a built message, which was sent to this queue with these properties, the half message of it: nobody sees it
    before its commit.
    """
    table = decode_properties(message.properties.decode())
    wait = decode_properties(sent_properties).get(names.WAIT)
    if wait is not None:
        table[names.WAIT] = wait  # ordinary messages are stored without
    table[names.REAL_TOPIC] = topic
    table[names.REAL_QID] = str(queue_id)
    message.topic = TRANS_HALF_TOPIC
    message.queue_id = QUEUE_ID
    message.sys_flag = reset_transaction_value(message.sys_flag, TRANSACTION_NOT)
    message.tags_code = _tags_code(table)
    message.properties = encode_properties(table).encode()


def committed(half: MessageExt, table: dict[str, str]) -> MessageInner:
    """Build the message that consumers get, of a half message and its properties.

    Its properties still name its topic and queue, as Apache's do: consumers tell a transactional message by them. Raises
    ValueError when they do not.
    """
    message = _again(half, table)
    message.topic, message.queue_id = destination(table)
    message.sys_flag = reset_transaction_value(half.sys_flag, TRANSACTION_COMMIT)
    message.prepared_transaction_offset = half.physical_offset
    message.is_accepted = True
    return message


def renewed(half: MessageExt, table: dict[str, str]) -> MessageInner:
    """Build the half message that is stored once more, at the end of its queue, with these properties."""
    return _again(half, table)


def given_up(half: MessageExt, table: dict[str, str]) -> MessageInner:
    """Build what is kept of a half message whose producer has been asked often enough."""
    message = _again(half, table)
    message.topic, message.queue_id = TRANS_CHECK_MAX_TIME_TOPIC, QUEUE_ID
    return message


def end_mark(half_queue_offset: int, now_ms: int, store_host: bytes) -> MessageInner:
    """Build the op message that says of a half message that it has been committed or rolled back."""
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


def question(half: MessageExt, table: dict[str, str], result: PutResult) -> bytes:
    """Encode the record that a producer is asked about: as it was sent, at the place where it was stored again.

    Raises ValueError when the properties do not say where it was sent.
    """
    topic, queue_id = destination(table)
    message = _again(half, {**table, names.WAIT: "false"})
    if len(message.properties) > MAX_LENGTH:
        message = _again(half, table)
    message.topic, message.queue_id = topic, queue_id
    return encode_record(message, half.store_host, result.queue_offset, result.physical_offset, half.store_timestamp)


def destination(table: dict[str, str]) -> tuple[str, int]:
    """Return topic and queue that a half message was sent to. Raises ValueError when they cannot be."""
    topic = table.get(names.REAL_TOPIC, "")
    if not is_storable(topic):
        raise ValueError(f"its property {names.REAL_TOPIC} is {topic!r:.200}")
    queue_id = int(table.get(names.REAL_QID, ""))
    if not 0 <= queue_id < 2**31:
        raise ValueError(f"its property {names.REAL_QID} is {queue_id}")
    return topic, queue_id


def _again(half: MessageExt, table: dict[str, str]) -> MessageInner:
    return MessageInner(
        half.topic,
        half.queue_id,
        half.flag,
        half.sys_flag,
        half.born_timestamp,
        half.born_host,
        half.reconsume_times,
        0,
        half.body,
        encode_properties(table).encode(),
        _tags_code(table),
        index_keys(table.get(names.UNIQ_KEY), table.get(names.KEYS)),
        wait=False,
    )


def _tags_code(table: dict[str, str]) -> int:
    tags = table.get(names.TAGS)
    return java_string_hash(tags) if tags else 0
