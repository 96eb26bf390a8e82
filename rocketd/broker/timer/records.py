"""The records of the timer topic: messages that wait, cancellations, and notes of what is done.

Answers to TimerMessageStore.convert of Apache's 5.x for what is delivered; the notes are ours. Pure functions over bytes.
Together the records are the whole state: everything else can be made from them.
"""

import struct
import zlib
from collections.abc import Sequence
from typing import NamedTuple

from rocketd.broker.restored import restored_message
from rocketd.common import properties as names
from rocketd.common.names import TIMER_TOPIC, TRANS_HALF_TOPIC
from rocketd.common.properties import MAX_LENGTH, encode_properties, find_property
from rocketd.store.errors import RecordError
from rocketd.store.message import MessageInner
from rocketd.store.record import decode_message, properties_of

TIMER_DONE = "TIMER_DONE"
"""Property of a note: how many queue offsets of the topic its body lists, 8 bytes each."""

_OUT_MS = names.TIMER_OUT_MS.encode()
_DEL_UNIQKEY = names.TIMER_DEL_UNIQKEY.encode()
_REAL_TOPIC = names.REAL_TOPIC.encode()
_UNIQ_KEY = names.UNIQ_KEY.encode()
_DONE = TIMER_DONE.encode()


class Wait(NamedTuple):
    """A message that waits: when it is due (ms), where its record is, and a hash of what it can be cancelled by."""

    due_ms: int
    physical_offset: int
    key_hash: int


class Cancellation(NamedTuple):
    """What takes back an earlier message, by its identity."""

    identity: str


class Done(NamedTuple):
    """A note that messages, by their queue offsets, have been delivered or stored anew."""

    queue_offsets: tuple[int, ...]


def identity_of(topic: str, unique_key: str, *, names_topic: bool = False) -> str:
    """Name a message by topic and unique key, as Apache's cancellations do: ``topic+key``.

    With ``names_topic`` the key may name the topic itself already, as in 5.1 and later; 5.0 sends the key alone.
    """
    if names_topic and "+" in unique_key:
        return unique_key
    return f"{topic}+{unique_key}"


def hash_of(identity: str) -> int:
    """Hash an identity: a hint, as others may have the same."""
    return zlib.crc32(identity.encode())


def identity_in(record: memoryview) -> str:
    """The identity of the waiting message of a record, empty without a unique key. Raises RecordError without a topic."""
    properties = properties_of(record)
    return _identity(properties, find_property(properties, _UNIQ_KEY))


def _identity(properties: bytes, unique_key: bytes | None) -> str:
    topic = find_property(properties, _REAL_TOPIC)
    if topic is None:
        raise RecordError("it has no topic to go to")
    if unique_key is None:
        return ""
    return identity_of(topic.decode("utf-8", "replace"), unique_key.decode("utf-8", "replace"))


def read_event(record: memoryview, physical_offset: int) -> Wait | Cancellation | Done:
    """What a record of the topic says. Raises RecordError or ValueError when it says nothing."""
    properties = properties_of(record)
    due = find_property(properties, _OUT_MS)
    if due is None:
        if find_property(properties, _DONE) is None:
            raise RecordError(f"it has neither {names.TIMER_OUT_MS} nor {TIMER_DONE}")
        body = decode_message(record).body
        if len(body) % 8:
            raise RecordError(f"it lists offsets of 8 bytes in {len(body)}")
        return Done(struct.unpack(f">{len(body) // 8}q", body))
    cancels = find_property(properties, _DEL_UNIQKEY)
    if cancels is not None:
        topic = find_property(properties, _REAL_TOPIC) or b""
        key = cancels.decode("utf-8", "replace")
        return Cancellation(identity_of(topic.decode("utf-8", "replace"), key, names_topic=True))
    due_ms = int(due)
    if not -(2**63) <= due_ms < 2**63:
        raise ValueError(f"its property {names.TIMER_OUT_MS} is {due_ms}, which is no time")
    return Wait(due_ms, physical_offset, hash_of(_identity(properties, find_property(properties, _UNIQ_KEY))))


def message_to_deliver(record: memoryview, now_ms: int) -> MessageInner:
    """Make the message for its own topic.

    As 5.x, it loses the names of where it was to go, and gains when it began to wait and when it stopped. Raises RecordError
    or ValueError when it cannot be delivered.
    """
    stored = decode_message(record)
    table = stored.properties_map()
    topic = table.pop(names.REAL_TOPIC, "")
    queue_id = int(table.pop(names.REAL_QID, 0))
    if not topic or topic in (TRANS_HALF_TOPIC, TIMER_TOPIC):
        raise RecordError(f"it has no topic to go to, but {topic!r:.100}")
    plain = encode_properties(table).encode()
    table.setdefault(names.TIMER_ENQUEUE_MS, str(stored.store_timestamp))
    table[names.TIMER_DEQUEUE_MS] = str(now_ms)
    return restored_message(stored, topic, queue_id, table, _at_most(encode_properties(table).encode(), plain))


def message_to_roll(record: memoryview) -> MessageInner:
    """Make the message that goes on waiting in a new record. Raises RecordError or ValueError when it is damaged."""
    stored = decode_message(record)
    table = stored.properties_map()
    table.setdefault(names.TIMER_ENQUEUE_MS, str(stored.store_timestamp))
    table[names.TIMER_ROLL_TIMES] = str(int(table.get(names.TIMER_ROLL_TIMES, 0)) + 1)
    properties = _at_most(encode_properties(table).encode(), stored.properties)
    return restored_message(stored, TIMER_TOPIC, 0, table, properties)


def _at_most(properties: bytes, plain: bytes) -> bytes:
    """What the broker adds must not be why a message cannot be stored."""
    return properties if len(properties) <= MAX_LENGTH else plain


def note_done(queue_offsets: Sequence[int], born_host: bytes, now_ms: int) -> MessageInner:
    """Make the note that these messages wait no more."""
    properties = encode_properties({TIMER_DONE: str(len(queue_offsets))}).encode()
    body = struct.pack(f">{len(queue_offsets)}q", *queue_offsets)
    return MessageInner(TIMER_TOPIC, 0, 0, 0, now_ms, born_host, 0, 0, body, properties, 0, (), wait=False)
