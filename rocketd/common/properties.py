"""The property string of a message: names and values with one control character after each.

Answers to the property half of Apache's MessageDecoder. Pure functions, compiled where a C compiler is. The decoder takes
strings with and without the last separator, since clients differ in that; the encoder leaves it out, as Apache 4.9.7 does.
"""

from collections.abc import Mapping
from typing import Final

NAME_VALUE_SEPARATOR: Final = "\x01"
PROPERTY_SEPARATOR: Final = "\x02"
MAX_LENGTH: Final = 32767
"""Greatest length of a property string in bytes."""

KEYS: Final = "KEYS"
TAGS: Final = "TAGS"
WAIT: Final = "WAIT"
DELAY: Final = "DELAY"
RETRY_TOPIC: Final = "RETRY_TOPIC"
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QID: Final = "REAL_QID"
TRAN_MSG: Final = "TRAN_MSG"
PGROUP: Final = "PGROUP"
MIN_OFFSET: Final = "MIN_OFFSET"
MAX_OFFSET: Final = "MAX_OFFSET"
BUYER_ID: Final = "BUYER_ID"
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
TRANSFER_FLAG: Final = "TRANSFER_FLAG"
CORRECTION_FLAG: Final = "CORRECTION_FLAG"
MQ2_FLAG: Final = "MQ2_FLAG"
RECONSUME_TIME: Final = "RECONSUME_TIME"
MSG_REGION: Final = "MSG_REGION"
TRACE_ON: Final = "TRACE_ON"
UNIQ_KEY: Final = "UNIQ_KEY"
MAX_RECONSUME_TIMES: Final = "MAX_RECONSUME_TIMES"
CONSUME_START_TIME: Final = "CONSUME_START_TIME"
TRAN_PREPARED_QUEUE_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
TRANSACTION_CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
CHECK_IMMUNITY_TIME_IN_SECONDS: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
INSTANCE_ID: Final = "INSTANCE_ID"
CORRELATION_ID: Final = "CORRELATION_ID"
REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
TTL: Final = "TTL"
ARRIVE_TIME: Final = "ARRIVE_TIME"
PUSH_REPLY_TIME: Final = "PUSH_REPLY_TIME"
CLUSTER: Final = "CLUSTER"
MSG_TYPE: Final = "MSG_TYPE"
INNER_MULTI_DISPATCH: Final = "INNER_MULTI_DISPATCH"
INNER_MULTI_QUEUE_OFFSET: Final = "INNER_MULTI_QUEUE_OFFSET"

# Delivery at any time, as in RocketMQ 5.x; what senders set begins with TIMER_PREFIX.
TIMER_PREFIX: Final = "TIMER_DE"
TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
TIMER_DEL_UNIQKEY: Final = "TIMER_DEL_UNIQKEY"
TIMER_OUT_MS: Final = "TIMER_OUT_MS"
TIMER_ENQUEUE_MS: Final = "TIMER_ENQUEUE_MS"
TIMER_DEQUEUE_MS: Final = "TIMER_DEQUEUE_MS"
TIMER_ROLL_TIMES: Final = "TIMER_ROLL_TIMES"

RESERVED: Final = frozenset(
    {
        TRACE_ON, MSG_REGION, KEYS, TAGS, WAIT, DELAY, RETRY_TOPIC, REAL_TOPIC, REAL_QID, TRAN_MSG, PGROUP, MIN_OFFSET,
        MAX_OFFSET, BUYER_ID, ORIGIN_MESSAGE_ID, TRANSFER_FLAG, CORRECTION_FLAG, MQ2_FLAG, RECONSUME_TIME, UNIQ_KEY,
        MAX_RECONSUME_TIMES, CONSUME_START_TIME, INSTANCE_ID, CORRELATION_ID, REPLY_TO_CLIENT, TTL, ARRIVE_TIME,
        PUSH_REPLY_TIME, CLUSTER, MSG_TYPE, INNER_MULTI_QUEUE_OFFSET,
    }
)  # fmt: skip
"""Names that users may not give to properties of their own."""


def decode_properties(text: str | None) -> dict[str, str]:
    """Read a property string; entries without a name or a value are left out, the last of equal names wins."""
    table: dict[str, str] = {}
    if text:
        for entry in text.split(PROPERTY_SEPARATOR):
            name, _, value = entry.partition(NAME_VALUE_SEPARATOR)
            if name and value:
                table[name] = value
    return table


def encode_properties(table: Mapping[str, str]) -> str:
    """Write a property string, without the last separator, unless it would end in a zero: a record that does looks torn."""
    return _join([f"{name}{NAME_VALUE_SEPARATOR}{value}" for name, value in table.items()])


def property_entries(text: str) -> dict[str, str]:
    """Read a property string as ``decode_properties`` does, but keep each name together with its value: name, separator
    and value by name.
    """
    entries: dict[str, str] = {}
    for entry in text.split(PROPERTY_SEPARATOR):
        at = entry.find(NAME_VALUE_SEPARATOR)
        if 0 < at < len(entry) - 1:
            entries[entry[:at]] = entry
    return entries


def join_entries(entries: dict[str, str]) -> str:
    """Write the property string of what ``property_entries`` gave, as ``encode_properties`` does."""
    return _join(list(entries.values()))


def _join(entries: list[str]) -> str:
    text = PROPERTY_SEPARATOR.join(entries)
    return text + PROPERTY_SEPARATOR if text.endswith("\0") else text


def find_property(properties: bytes, name: bytes) -> bytes | None:
    """Find one value in a property string in UTF-8 without reading the others: the last of that name that is not empty.

    Returns None where there is none.
    """
    wanted = name + b"\x01"
    end = len(properties)
    while (at := properties.rfind(wanted, 0, end)) >= 0:
        if at == 0 or properties[at - 1] == 2:
            begin = at + len(wanted)
            stop = properties.find(b"\x02", begin)
            if value := properties[begin:] if stop < 0 else properties[begin:stop]:
                return value
        # The name of the next match may overlap this one's by all but its separator.
        end = at + len(wanted) - 1
    return None
