"""The columns of a write, and the treatment of columns that only reads have.

A frame can be written as it was read: columns about the place of a message are ignored, and so are properties set by
brokers. Any other column is an error.
"""

from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from rocketd.common import message_properties as props
from rocketd.common.suggest import did_you_mean
from rocketd.spark.columns import COLUMNS
from rocketd.spark.errors import OptionError
from rocketd.spark.sink.message import SEQUENCE, TRANSACTION
from rocketd.spark.sink.options import BY_COLUMN, BY_KEY, WriteOptions


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return _is_text(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind)


def _is_words(kind: pa.DataType) -> bool:
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    return _is_text(kind) or (is_list and _is_text(kind.value_type))


def _is_moment(kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind) and kind.tz is not None


def _is_table(kind: pa.DataType) -> bool:
    return pa.types.is_map(kind) and _is_text(kind.key_type) and _is_text(kind.item_type)


_KINDS: Final = {
    "body": (_is_bytes, "binary or string"),
    "topic": (_is_text, "string"),
    "tags": (_is_text, "string"),
    "keys": (_is_words, "string or array<string>"),
    "uniq_key": (_is_text, "string"),
    "properties": (_is_table, "map<string,string>"),
    "flag": (pa.types.is_integer, "int"),
    "delay_level": (pa.types.is_integer, "int"),
    "deliver_time": (_is_moment, "timestamp, which has a zone as timestamp_ntz has not"),
    "queue_key": (_is_text, "string"),
    "queue_id": (pa.types.is_integer, "int"),
    "broker": (_is_text, "string"),
    "sys_flag": (pa.types.is_integer, "int"),
    "body_crc": (pa.types.is_integer, "int"),
}

USED_COLUMNS: Final = frozenset(_KINDS)
"""All columns used by a write. The other columns of a read do not affect the message."""

WRITE_COLUMNS: Final[Mapping[str, str]] = {
    "body": "body; a string is sent in UTF-8; null or empty is an error",
    "topic": "topic, without the option topic",
    "tags": "tag; null means the one in properties",
    "keys": "keys, separated by spaces or as an array; null means those in properties",
    "uniq_key": "unique key; null means the one in properties, or else a new one",
    "properties": "properties of the application; also TAGS, KEYS, UNIQ_KEY and DELAY of messages from a read",
    "flag": "the producer's flag",
    "delay_level": "delay level; 0 or null means none",
    "deliver_time": "time of delivery; Apache's brokers before 5.0 deliver at once",
    "queue_key": "key for choosing the queue, with queueSelector=key",
    "queue_id": "queue id, with queueSelector=column; otherwise ignored",
    "broker": "broker of the queue, with queueSelector=column; otherwise ignored",
}
"""The columns of a write, with their meaning."""

SET_BY_OTHERS: Final = frozenset(
    {
        props.WAIT, props.TRAN_MSG, props.PGROUP, props.TRAN_PREPARED_QUEUE_OFFSET, props.TRANSACTION_CHECK_TIMES,
        props.CHECK_IMMUNITY_TIME_IN_SECONDS, props.REAL_TOPIC, props.REAL_QID, props.RETRY_TOPIC, props.MIN_OFFSET,
        props.MAX_OFFSET, props.TRANSFER_FLAG, props.CORRECTION_FLAG, props.MQ2_FLAG, props.RECONSUME_TIME,
        props.MAX_RECONSUME_TIMES, props.CONSUME_START_TIME, props.MSG_REGION, props.TRACE_ON, props.CLUSTER,
        props.ARRIVE_TIME, props.PUSH_REPLY_TIME, props.MSG_TYPE, props.REPLY_TO_CLIENT, props.TTL,
        props.INNER_MULTI_QUEUE_OFFSET, SEQUENCE, TRANSACTION,
    }
)  # fmt: skip
"""Properties not copied from the column `properties`: brokers, consumers and writers set them."""


def check_columns(schema: pa.Schema, options: WriteOptions) -> None:
    """Raise OptionError that names columns which are unknown, missing or of a wrong type."""
    known = [*WRITE_COLUMNS, *(name for name in COLUMNS if name not in WRITE_COLUMNS)]
    unknown = [name for name in schema.names if name not in known]
    if unknown:
        hint = did_you_mean(unknown[0], WRITE_COLUMNS) if len(unknown) == 1 else ""
        raise OptionError(
            f"a write has no column {', '.join(map(repr, unknown))}{hint}; it takes {', '.join(WRITE_COLUMNS)} and passes "
            "over the others of a frame that was read; put values of your own into column properties or body"
        )
    for position, name in enumerate(schema.names):
        if name in schema.names[:position]:
            raise OptionError(f"column {name!r} is there twice")
        is_right, accepted = _KINDS.get(name, (None, ""))
        kind = schema.field(name).type
        # A frame may have a column of nulls; its type in Spark is void.
        if is_right is not None and not is_right(kind) and not pa.types.is_null(kind):
            raise OptionError(f"column {name!r} is of type {kind}; accepted is {accepted}")
    if "body" not in schema.names:
        raise OptionError("a write needs a column 'body', binary or string")
    if not options.topic and "topic" not in schema.names:
        raise OptionError("option topic must be given, or a column 'topic'")
    if options.queue_selector == BY_COLUMN and "queue_id" not in schema.names:
        raise OptionError("queueSelector=column needs a column 'queue_id'")
    if options.queue_selector == BY_KEY and not {"queue_key", "keys"} & {*schema.names}:
        raise OptionError("queueSelector=key needs a column 'queue_key' or 'keys'")
