"""From a send request to the messages that are stored.

Answers to the message building of Apache's SendMessageProcessor, to CommitLog's redirection of delayed messages and to
MessageDecoder.decodeMessages. Pure functions and one small class; used in the storage thread.
"""

from struct import Struct

from rocketd.broker.message_check import Destination
from rocketd.common import properties as names
from rocketd.common.java_hash import java_string_hash
from rocketd.common.names import SCHEDULE_TOPIC
from rocketd.common.properties import decode_properties, encode_properties
from rocketd.common.sysflag import TRANSACTION_PREPARED
from rocketd.remoting.headers import SendMessageRequestHeader
from rocketd.store.message import MessageInner
from rocketd.store.properties import dispatch_properties

_BATCH_HEAD = Struct(">iiiii")
_TAG_CACHE_LIMIT = 10_000


class BatchFormatError(ValueError):
    """A batch body that does not consist of whole messages."""


class MessageBuilder:
    """Makes messages for the store. ``delay_ms`` are the delays of levels 1 and up. Belongs to the storage thread."""

    def __init__(self, cluster_name: str, delays_ms: list[int]) -> None:
        self._cluster_name = cluster_name
        self._delays_ms = delays_ms
        self._tags_codes: dict[str, int] = {}

    def single(
        self,
        header: SendMessageRequestHeader,
        destination: Destination,
        born_host: bytes,
        body: bytes,
        now_ms: int,
    ) -> MessageInner:
        """Build the message of a single send: WAIT is not stored, CLUSTER is added, a delayed one goes to its level.

        Raises RequestError when a record has no room for one of its numbers.
        """
        table = decode_properties(header.properties)
        wait = table.pop(names.WAIT, None)
        table[names.CLUSTER] = self._cluster_name
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
            self.tags_code(table.get(names.TAGS)),
            index_keys(table.get(names.UNIQ_KEY), table.get(names.KEYS)),
            wait is None or wait.lower() == "true",
        )
        if names.DELAY in table:
            if wait is not None:
                table[names.WAIT] = wait  # Apache writes this string after it has put WAIT back
            self.delay(message, table, now_ms)
        message.properties = encode_properties(table).encode()
        return message

    def delay(self, message: MessageInner, table: dict[str, str], now_ms: int) -> None:
        """Send a message whose DELAY asks for it to the queue of its level; its properties are still to be encoded."""
        level = delay_level(table)
        if level <= 0 or message.sys_flag & TRANSACTION_PREPARED:
            return
        level = min(level, len(self._delays_ms))
        table[names.DELAY] = str(level)
        table[names.REAL_TOPIC] = message.topic
        table[names.REAL_QID] = str(message.queue_id)
        message.topic = SCHEDULE_TOPIC
        message.queue_id = level - 1
        message.tags_code = now_ms + self._delays_ms[level - 1]

    def batch(
        self, header: SendMessageRequestHeader, destination: Destination, born_host: bytes, body: bytes
    ) -> list[MessageInner]:
        """Unroll a batch body.

        Raises BatchFormatError when it is cut off or lies about its lengths, RequestError as ``single`` does.
        """
        table = decode_properties(header.properties)
        wait = table.get(names.WAIT)
        waits = wait is None or wait.lower() == "true"
        table[names.CLUSTER] = self._cluster_name
        common = encode_properties(table).encode()
        messages: list[MessageInner] = []
        at, end = 0, len(body)
        while at < end:
            if at + _BATCH_HEAD.size > end:
                raise BatchFormatError(f"message {len(messages)} of the batch is cut off at byte {at}")
            total, _, _, flag, size = _BATCH_HEAD.unpack_from(body, at)
            properties_at = at + _BATCH_HEAD.size + size + 2
            if size < 0 or properties_at > end:
                raise BatchFormatError(f"message {len(messages)} of the batch has a body of {size} bytes at byte {at}")
            own_end = properties_at + int.from_bytes(body[properties_at - 2 : properties_at], "big")
            if own_end > end or own_end - at != total:
                raise BatchFormatError(f"message {len(messages)} of the batch says {total} bytes at byte {at}")
            own = body[properties_at:own_end]
            tags_code, keys = dispatch_properties(own)
            separator = b"\x02" if own and own[-1] != 2 else b""
            messages.append(
                MessageInner(
                    destination.topic,
                    destination.queue_id,
                    flag,
                    header.sys_flag | destination.flags,
                    header.born_timestamp,
                    born_host,
                    header.reconsume_times or 0,
                    0,
                    body[at + _BATCH_HEAD.size : properties_at - 2],
                    own + separator + common,
                    tags_code,
                    keys,
                    waits,
                )
            )
            at = own_end
        return messages

    def tags_code(self, tags: str | None) -> int:
        """Hash a tag, remembering the common ones."""
        if not tags:
            return 0
        code = self._tags_codes.get(tags)
        if code is None:
            if len(self._tags_codes) >= _TAG_CACHE_LIMIT:
                self._tags_codes.clear()
            code = self._tags_codes[tags] = java_string_hash(tags)
        return code


def delay_level(table: dict[str, str]) -> int:
    """Read the delay level of a message's properties; 0 when it has none or one that is not a number."""
    try:
        return int(table.get(names.DELAY, 0))
    except ValueError:
        return 0


def index_keys(uniq_key: str | None, keys: str | None) -> tuple[str, ...]:
    """List what a message can be found by: its unique key first, then each of its keys."""
    words = keys.split(" ") if keys else ()
    if uniq_key:
        return (uniq_key, *[word for word in words if word])
    return tuple([word for word in words if word])
