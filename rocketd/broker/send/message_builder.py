"""Builds messages for the store from send requests.

Pure functions and one small class, used in the storage thread. Compiled if a C compiler was present at installation
(docs/decisions/0012).

Counterpart: the message building of `SendMessageProcessor`, `CommitLog`'s redirection of delayed messages, and
`MessageDecoder.decodeMessages` (Apache).
"""

import re
from struct import Struct
from typing import Any, Final

from rocketd.broker.base import problems
from rocketd.broker.base.parts import Timing
from rocketd.broker.send.message_check import Destination
from rocketd.common import message_properties as props
from rocketd.common.java_hash import java_string_hash
from rocketd.common.message_properties import (
    NAME_VALUE_SEPARATOR,
    PROPERTY_SEPARATOR,
    TIMERS,
    decode_properties,
    encode_properties,
    join_entries,
    property_entries,
)
from rocketd.common.names import DLQ_PREFIX, SCHEDULE_TOPIC
from rocketd.common.sysflag import TRANSACTION_PREPARED
from rocketd.remoting.headers.client import SendMessageRequestHeader
from rocketd.store.format.message import MessageInner
from rocketd.store.format.properties import dispatch_properties, index_keys

_BATCH_HEAD = Struct(">i8xii")
"""The head of a message in a batch: total size, flag word, body size. Magic and CRC are skipped."""

_TAG_CACHE_LIMIT = 10_000

# Position of the value in an entry of ``property_entries``.
_KEYS_AT: Final = len(props.KEYS) + 1
_TAGS_AT: Final = len(props.TAGS) + 1
_UNIQ_KEY_AT: Final = len(props.UNIQ_KEY) + 1
_WAIT_AT: Final = len(props.WAIT) + 1

_DELAY_MARK: Final = (props.DELAY + NAME_VALUE_SEPARATOR).encode()
_TIMER_MARK: Final = props.TIMER_PREFIX.encode()

_NUMBER = re.compile(r"[+-]?\d+")
_INTS: Final = range(-(2**31), 2**31)


class BatchFormatError(ValueError):
    """A batch body that does not consist of whole messages."""


class MessageBuilder:
    """Builds messages for the store. Storage thread only.

    ``delays_ms`` holds the delays of levels 1 and up. ``timers`` is a TimerRedirect; without it, timer properties are
    ignored.
    """

    def __init__(self, cluster_name: str, delays_ms: list[int], timers: Timing | None = None) -> None:
        self._cluster_entry = props.CLUSTER + NAME_VALUE_SEPARATOR + cluster_name
        self._delays_ms = delays_ms
        self._timers = timers
        self._tags_codes: dict[str, int] = {}

    def single(
        self,
        header: SendMessageRequestHeader,
        destination: Destination,
        born_host: bytes,
        body: bytes,
        now_ms: int,
    ) -> MessageInner:
        """Build the message of a single send. WAIT is removed, CLUSTER added, and a delayed message redirected.

        Raises RequestError if its delay or delivery time is refused.
        """
        text: str = header.properties or ""
        entries = property_entries(text)
        entry = entries.pop(props.WAIT, None)
        wait = None if entry is None else entry[_WAIT_AT:]
        entry = entries.get(props.TAGS)
        tags = None if entry is None else entry[_TAGS_AT:]
        entry = entries.get(props.UNIQ_KEY)
        unique_key = None if entry is None else entry[_UNIQ_KEY_AT:]
        entry = entries.get(props.KEYS)
        keys = None if entry is None else entry[_KEYS_AT:]
        entries[props.CLUSTER] = self._cluster_entry
        message = MessageInner(
            destination.topic,
            destination.queue_id,
            header.flag,
            header.sys_flag | destination.flags,
            header.born_timestamp,
            born_host,
            header.reconsume_times or 0,
            0,
            body,
            b"",
            self.tags_code(tags),
            index_keys(unique_key, keys),
            waits(wait),
        )
        if props.DELAY in entries or props.TIMER_PREFIX in text:
            table = decode_properties(PROPERTY_SEPARATOR.join(entries.values()))
            self.delay(message, table, now_ms)
            if wait is not None and message.topic != destination.topic:
                table[props.WAIT] = wait  # Apache encodes the properties of redirected messages after putting WAIT back
            message.properties = encode_properties(table).encode()
        else:
            message.properties = join_entries(entries).encode()
        return message

    def delay(self, message: MessageInner, table: dict[str, str], now_ms: int) -> None:
        """Redirect a message with a delay to the queue of its level, or one with a delivery time to the timer topic.

        The caller encodes the properties afterwards. A half message stays in place, because only its commit is delayed.
        Its delivery time is still checked now: after a refusal at the commit, the transaction could never end.
        A dead letter is not delayed: it loses its delivery time, and its level becomes 0.

        Raises RequestError if the delay is not a number, or the delivery time is refused.
        """
        if message.topic.startswith(DLQ_PREFIX):
            _drop_timers(table)
            table[props.DELAY] = "0"
            return
        is_half = message.sys_flag & TRANSACTION_PREPARED
        level = sent_delay_level(table)
        if level <= 0:
            if self._timers is None:
                return
            if is_half:
                self._timers.time_to_come(message.topic, table, now_ms)
            else:
                self._timers.redirect(message, table, now_ms)
            return
        if is_half:
            return
        _drop_timers(table)
        level = min(level, len(self._delays_ms))
        table[props.DELAY] = str(level)
        table[props.REAL_TOPIC] = message.topic
        table[props.REAL_QID] = str(message.queue_id)
        message.topic = SCHEDULE_TOPIC
        message.queue_id = level - 1
        message.tags_code = now_ms + self._delays_ms[level - 1]

    def batch(
        self, header: SendMessageRequestHeader, destination: Destination, born_host: bytes, body: bytes, now_ms: int
    ) -> list[MessageInner]:
        """Split a batch body into its messages.

        Raises BatchFormatError if the body is cut off, its lengths contradict each other, or a message of it is
        delayed. Raises RequestError if the delay or delivery time of a message is refused.
        """
        text: str = header.properties or ""
        entries = property_entries(text)
        entry = entries.get(props.WAIT)
        wait = None if entry is None else entry[_WAIT_AT:]
        is_waiting = waits(wait)
        entries[props.CLUSTER] = self._cluster_entry
        common = join_entries(entries).encode()
        separated = PROPERTY_SEPARATOR.encode() + common
        has_keys = props.UNIQ_KEY in entries or props.KEYS in entries or props.TAGS in entries
        topic = destination.topic
        queue_id: Any = destination.queue_id
        sys_flag: Any = header.sys_flag | destination.flags
        born_timestamp: Any = header.born_timestamp
        reconsume_times: Any = header.reconsume_times or 0
        make: Any = MessageInner
        read_head: Any = _BATCH_HEAD.unpack_from
        head_size: int = _BATCH_HEAD.size
        messages: list[MessageInner] = []
        at, end = 0, len(body)
        while at < end:
            if at + head_size > end:
                raise BatchFormatError(f"message {len(messages)} of the batch is cut off at byte {at}")
            head: tuple[int, int, int] = read_head(body, at)
            total, flag, size = head
            body_at = at + head_size
            properties_at = body_at + size + 2
            if size < 0 or properties_at > end:
                raise BatchFormatError(f"message {len(messages)} of the batch has a body of {size} bytes at byte {at}")
            own_end = properties_at + (body[properties_at - 2] << 8 | body[properties_at - 1])
            if own_end > end or own_end - at != total:
                raise BatchFormatError(f"message {len(messages)} of the batch says {total} bytes at byte {at}")
            own = body[properties_at:own_end]
            if (_DELAY_MARK in own or _TIMER_MARK in own) and self._is_delayed(topic, own, now_ms):
                raise BatchFormatError(f"message {len(messages)} of the batch is delayed")
            properties = own + (separated if own and own[-1] != 2 else common)
            # Computed from the stored properties, as every reader of the log does: the batch's properties hold a unique
            # key too.
            tags_code, keys = dispatch_properties(properties if has_keys else own)
            messages.append(
                make(
                    topic,
                    queue_id,
                    flag,
                    sys_flag,
                    born_timestamp,
                    born_host,
                    reconsume_times,
                    0,
                    body[body_at : properties_at - 2],
                    properties,
                    tags_code,
                    keys,
                    is_waiting,
                )
            )
            at = own_end
        return messages

    def _is_delayed(self, topic: str, properties: bytes, now_ms: int) -> bool:
        """Return whether a message of a batch asks for a later delivery. Raises RequestError as ``delay`` does."""
        table = decode_properties(properties.decode("utf-8", "replace"))
        if sent_delay_level(table) > 0:
            return True
        return self._timers is not None and self._timers.time_to_come(topic, table, now_ms) is not None

    def tags_code(self, tags: str | None) -> int:
        """Hash a tag; common tags are cached."""
        if not tags:
            return 0
        code = self._tags_codes.get(tags)
        if code is None:
            if len(self._tags_codes) >= _TAG_CACHE_LIMIT:
                self._tags_codes.clear()
            code = self._tags_codes[tags] = java_string_hash(tags)
        return code


def _drop_timers(table: dict[str, str]) -> None:
    for name in TIMERS:
        table.pop(name, None)


def waits(wait: str | None) -> bool:
    """Return whether the sender of a message with this WAIT waits until it is durable. A damaged value waits as well."""
    return wait is None or wait.lower() != "false"


def delay_level(table: dict[str, str]) -> int:
    """Return the delay level in a message's properties, 0 without one.

    Raises ValueError if it is not a whole number of 32 bits.
    """
    text = table.get(props.DELAY)
    if text is None:
        return 0
    if _NUMBER.fullmatch(text) is None or (level := int(text)) not in _INTS:
        raise ValueError(f"its property {props.DELAY} is {text!r:.50}")
    return level


def sent_delay_level(table: dict[str, str]) -> int:
    """Return the delay level in the properties of a send. Raises RequestError if it is not a whole number."""
    try:
        return delay_level(table)
    except ValueError:
        raise problems.PROPERTY_ILLEGAL.error(
            name=props.DELAY, wanted="a whole number of 32 bits", found=f"{table[props.DELAY]!r:.50}"
        ) from None
