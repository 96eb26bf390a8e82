"""The property string of a message: names and values, each followed by a control character.

Counterpart: the property half of `MessageDecoder` (Apache). Pure functions, compiled if a C compiler is present. The
decoder accepts strings with and without the last separator, because clients differ. The encoder leaves it out, like
Apache 4.9.7.
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

DEAD_LETTER_EXCEPTION: Final = "DEAD_LETTER_EXCEPTION"
"""In a dead letter of rocketd's client, the class of the handler's exception, with its module."""

# Delivery at any time, as in RocketMQ 5.x. Properties set by senders begin with TIMER_PREFIX.
TIMER_PREFIX: Final = "TIMER_DE"
TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
TIMER_DEL_UNIQKEY: Final = "TIMER_DEL_UNIQKEY"
TIMERS: Final = frozenset({TIMER_DELIVER_MS, TIMER_DELAY_MS, TIMER_DELAY_SEC, TIMER_DEL_UNIQKEY})
"""Properties with which a sender asks for a delivery time, or cancels one."""
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
"""Names not allowed for users' properties."""


def decode_properties(text: str | None) -> dict[str, str]:
    """Parse a property string. Entries without a name or a value are skipped; the last of equal names wins."""
    table: dict[str, str] = {}
    if text:
        for entry in text.split(PROPERTY_SEPARATOR):
            name, _, value = entry.partition(NAME_VALUE_SEPARATOR)
            if name and value:
                table[name] = value
    return table


def encode_properties(table: Mapping[str, str]) -> str:
    """Return a property string without the last separator, unless it would end in a zero: such a record looks torn."""
    return _join([f"{name}{NAME_VALUE_SEPARATOR}{value}" for name, value in table.items()])


def property_entries(text: str) -> dict[str, str]:
    """Parse a property string like ``decode_properties``, but keep each entry as text.

    The result maps each name to its name, separator and value.
    """
    entries: dict[str, str] = {}
    for entry in text.split(PROPERTY_SEPARATOR):
        at = entry.find(NAME_VALUE_SEPARATOR)
        if 0 < at < len(entry) - 1:
            entries[entry[:at]] = entry
    return entries


def join_entries(entries: dict[str, str]) -> str:
    """Return the property string of ``property_entries``, like ``encode_properties``."""
    return _join(list(entries.values()))


def _join(entries: list[str]) -> str:
    text = PROPERTY_SEPARATOR.join(entries)
    return text + PROPERTY_SEPARATOR if text.endswith("\0") else text


def find_property(properties: bytes, name: bytes) -> bytes | None:
    """Find one value in a UTF-8 property string without parsing the others: the last non-empty one of that name.

    Return None if there is none.
    """
    wanted = name + b"\x01"
    end = len(properties)
    while (at := properties.rfind(wanted, 0, end)) >= 0:
        if at == 0 or properties[at - 1] == 2:
            begin = at + len(wanted)
            stop = properties.find(b"\x02", begin)
            if value := properties[begin:] if stop < 0 else properties[begin:stop]:
                return value
        # The name of the next match may overlap this one's, except for its separator.
        end = at + len(wanted) - 1
    return None
