"""The records of the timer topic: waiting messages, cancellations, and notes of delivery.

Pure functions over bytes. The records are the whole state; everything else can be derived from them. Notes are an
addition of rocketd.

Counterpart: `TimerMessageStore.convert` (Apache 5.x), for delivered messages.
"""

import struct
import zlib
from collections.abc import Sequence
from typing import NamedTuple

from rocketd.broker.base.restored_message import restored_message
from rocketd.common import message_properties as props
from rocketd.common.message_properties import MAX_LENGTH, encode_properties, find_property
from rocketd.common.names import TIMER_TOPIC, TRANS_HALF_TOPIC
from rocketd.store.base.errors import RecordError
from rocketd.store.format.message import MessageInner
from rocketd.store.format.record import decode_message, properties_of

TIMER_DONE = "TIMER_DONE"
"""The property of a note: the number of queue offsets in its body, 8 bytes each."""

_OUT_MS = props.TIMER_OUT_MS.encode()
_DEL_UNIQKEY = props.TIMER_DEL_UNIQKEY.encode()
_REAL_TOPIC = props.REAL_TOPIC.encode()
_UNIQ_KEY = props.UNIQ_KEY.encode()
_DONE = TIMER_DONE.encode()
_DELAYS = (props.TIMER_DELAY_SEC.encode(), props.TIMER_DELAY_MS.encode())


class Wait(NamedTuple):
    """A waiting message.

    ``due_ms`` is in ms, by the wall clock at the time its record was stored. ``key_hash`` is the hash of the identity
    used in cancellations. ``is_delay`` is true if the sender gave a delay, not a time.
    """

    due_ms: int
    physical_offset: int
    key_hash: int
    is_delay: bool = False


class Cancellation(NamedTuple):
    """The cancellation of an earlier message, by its identity."""

    identity: str


class Done(NamedTuple):
    """A note: the messages at these queue offsets were delivered or stored again."""

    queue_offsets: tuple[int, ...]


def identity_of(topic: str, unique_key: str, *, names_topic: bool = False) -> str:
    """Return the identity of a message as in Apache's cancellations: ``topic+key``.

    With ``names_topic`` the key may already contain the topic, as in 5.1 and later. 5.0 sends the key alone.
    """
    if names_topic and "+" in unique_key:
        return unique_key
    return f"{topic}+{unique_key}"


def hash_of(identity: str) -> int:
    """Hash an identity. Different identities may have the same hash."""
    return zlib.crc32(identity.encode())


def identity_in(record: memoryview) -> str:
    """Return the identity of a record's waiting message; empty without a unique key.

    Raises RecordError without a topic.
    """
    properties = properties_of(record)
    return _identity(properties, find_property(properties, _UNIQ_KEY))


def _identity(properties: bytes, unique_key: bytes | None) -> str:
    topic = find_property(properties, _REAL_TOPIC)
    if topic is None:
        raise RecordError("it has no topic to be delivered to")
    if unique_key is None:
        return ""
    return identity_of(topic.decode("utf-8", "replace"), unique_key.decode("utf-8", "replace"))


def read_event(record: memoryview, physical_offset: int) -> Wait | Cancellation | Done:
    """Parse a record of the topic. Raises RecordError or ValueError if it has none of the three forms."""
    properties = properties_of(record)
    due = find_property(properties, _OUT_MS)
    if due is None:
        if find_property(properties, _DONE) is None:
            raise RecordError(f"it has neither {props.TIMER_OUT_MS} nor {TIMER_DONE}")
        body = decode_message(record).body
        if len(body) % 8:
            raise RecordError(f"its list of offsets has {len(body)} bytes, not a multiple of 8")
        return Done(struct.unpack(f">{len(body) // 8}q", body))
    cancels = find_property(properties, _DEL_UNIQKEY)
    if cancels is not None:
        topic = find_property(properties, _REAL_TOPIC) or b""
        key = cancels.decode("utf-8", "replace")
        return Cancellation(identity_of(topic.decode("utf-8", "replace"), key, names_topic=True))
    due_ms = int(due)
    if not -(2**63) <= due_ms < 2**63:
        raise ValueError(f"its property {props.TIMER_OUT_MS} is {due_ms}, which is not a time")
    key_hash = hash_of(_identity(properties, find_property(properties, _UNIQ_KEY)))
    is_delay = any(find_property(properties, name) is not None for name in _DELAYS)
    return Wait(due_ms, physical_offset, key_hash, is_delay)


def message_to_deliver(record: memoryview, now_ms: int) -> MessageInner:
    """Build the message for its real topic.

    As in 5.x, the properties of its destination are removed; the times of entering and leaving the timer topic are
    added. Raises RecordError or ValueError if it cannot be delivered.
    """
    stored = decode_message(record)
    table = stored.properties_map()
    topic = table.pop(props.REAL_TOPIC, "")
    queue_id = int(table.pop(props.REAL_QID, 0))
    if not topic or topic in (TRANS_HALF_TOPIC, TIMER_TOPIC):
        raise RecordError(f"it has no topic to be delivered to, but {topic!r:.100}")
    plain = encode_properties(table).encode()
    table.setdefault(props.TIMER_ENQUEUE_MS, str(stored.store_timestamp))
    table[props.TIMER_DEQUEUE_MS] = str(now_ms)
    return restored_message(stored, topic, queue_id, _fitting_properties(encode_properties(table).encode(), plain))


def message_to_roll(record: memoryview, due_ms: int) -> MessageInner:
    """Build the copy that continues to wait until ``due_ms``.

    Raises RecordError or ValueError if the record is damaged.
    """
    stored = decode_message(record)
    table = stored.properties_map()
    # The due time of a delayed message changes if the clock was set.
    table[props.TIMER_OUT_MS] = str(due_ms)
    table.setdefault(props.TIMER_ENQUEUE_MS, str(stored.store_timestamp))
    table[props.TIMER_ROLL_TIMES] = str(int(table.get(props.TIMER_ROLL_TIMES, 0)) + 1)
    properties = _fitting_properties(encode_properties(table).encode(), stored.properties)
    return restored_message(stored, TIMER_TOPIC, 0, properties)


def _fitting_properties(properties: bytes, plain: bytes) -> bytes:
    """Drop the broker's additions if they make the properties too long: the message must remain storable."""
    return properties if len(properties) <= MAX_LENGTH else plain


def note_done(queue_offsets: Sequence[int], born_host: bytes, now_ms: int) -> MessageInner:
    """Build the note that these messages no longer wait."""
    properties = encode_properties({TIMER_DONE: str(len(queue_offsets))}).encode()
    body = struct.pack(f">{len(queue_offsets)}q", *queue_offsets)
    return MessageInner(TIMER_TOPIC, 0, 0, 0, now_ms, born_host, 0, 0, body, properties, 0, (), wait=False)
