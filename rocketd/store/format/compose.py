"""Composes the records of a group of messages: the work of an append for every single message.

Counterpart: `CommitLog.MessageExtEncoder` and `DefaultAppendMessageCallback` (Apache). It does not touch files and does
not refuse messages: it stops at a message that needs a decision by the caller. Compiled if a C compiler is present.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from msgspec.structs import astuple

from rocketd.store.base.layout import MESSAGE_MAGIC, SCHEDULE_TOPIC
from rocketd.store.format.crc import crc32
from rocketd.store.format.message import (
    SYS_FLAG_BORN_HOST_V6,
    SYS_FLAG_STORE_HOST_V6,
    SYS_FLAG_TRANSACTION_MASK,
    SYS_FLAG_TRANSACTION_PREPARED,
    SYS_FLAG_TRANSACTION_ROLLBACK,
    DispatchRequest,
    MessageInner,
    PutResult,
    PutStatus,
)
from rocketd.store.format.properties import delay_level_of
from rocketd.store.format.record import (
    CRC_MASK,
    HEAD_STRUCTS,
    HOST_V4,
    HOST_V6,
    MAX_PROPERTIES_LENGTH,
    MAX_TOPIC_LENGTH,
    PROPERTIES_LENGTH_SIZE,
    RECORD_OVERHEAD_LIMIT,
    TOPIC_LENGTH_SIZE,
)

_LENGTHS_SIZE: Final = TOPIC_LENGTH_SIZE + PROPERTIES_LENGTH_SIZE
_V6_FLAGS: Final = SYS_FLAG_BORN_HOST_V6 | SYS_FLAG_STORE_HOST_V6
"""The sender's flags are ignored: the lengths of the hosts decide."""


class TopicQueue:
    """State of one topic and queue id on the storage thread: the next queue offset, and the encoded topic."""

    __slots__ = ("encoded_topic", "next_offset")

    def __init__(self, topic: str, next_offset: int = 0) -> None:
        data = topic.encode("utf-8")
        # A topic that is too long is refused by the check of its length, but it gets here as well.
        self.encoded_topic = bytes((min(len(data), 255),)) + data
        self.next_offset = next_offset


class Composer:
    """Composes records one after another for one place in the log. Belongs to the storage thread.

    `begin_file` sets the place of the next record. `compose` fills `parts` with the pieces of the records, and also
    `results` and `requests`. `position` is the end of the last record.
    """

    def __init__(
        self, store_host: bytes, max_body_size: int, delay_time_of: Callable[[int, int], int] | None = None
    ) -> None:
        """Take `store_host` and `delay_time_of` of the `GroupAppender`."""
        self.topic_queues: dict[tuple[str, int], TopicQueue] = {}
        self.parts: list[bytes] = []
        self.results: list[PutResult] = []
        self.requests: list[DispatchRequest] = []
        self.position = 0
        self._file_from = 0
        self._limit = 0
        self._timestamp: Any = 0
        self._store_host = store_host
        self.max_body_size = max_body_size
        self._delay_time_of: Any = delay_time_of
        v4, v6 = HEAD_STRUCTS[HOST_V4, len(store_host)], HEAD_STRUCTS[HOST_V6, len(store_host)]
        self._pack_v4: Any = v4.pack
        self._pack_v6: Any = v6.pack
        self._size_v4: int = v4.size
        self._size_v6: int = v6.size
        self._store_flag: int = SYS_FLAG_STORE_HOST_V6 if len(store_host) == HOST_V6 else 0

    def size_of(self, message: MessageInner) -> int:
        """Return the size in bytes of the message's record, legal or not."""
        body: bytes = message.body
        properties: bytes = message.properties
        topic: str = message.topic
        head = self._size_v6 if len(message.born_host) == HOST_V6 else self._size_v4
        fixed: int = _LENGTHS_SIZE
        return head + len(body) + len(topic.encode()) + fixed + len(properties)

    def total_size(self, messages: Sequence[MessageInner]) -> tuple[int, MessageInner | None]:
        """Return (bytes of all records, None), or (0, the first illegal message). Free space in the file is not checked."""
        max_body: int = self.max_body_size
        max_record: int = max_body + RECORD_OVERHEAD_LIMIT
        max_properties: int = MAX_PROPERTIES_LENGTH
        max_topic: int = MAX_TOPIC_LENGTH
        v6_length: int = HOST_V6
        fixed: int = _LENGTHS_SIZE
        topic = ""
        topic_size = 0
        total = 0
        for message in messages:
            this_topic: str = message.topic
            if this_topic != topic:
                topic = this_topic
                topic_size = len(topic.encode())
            body: bytes = message.body
            properties: bytes = message.properties
            born_host: bytes = message.born_host
            body_size = len(body)
            properties_size = len(properties)
            size = self._size_v6 if len(born_host) == v6_length else self._size_v4
            size += body_size + topic_size + fixed + properties_size
            if body_size > max_body or properties_size > max_properties or topic_size > max_topic or size > max_record:
                return 0, message
            total += size
        return total, None

    def begin_group(self, timestamp: int) -> None:
        """Start new results and requests. All records get this store time in ms."""
        self.results = []
        self.requests = []
        self._timestamp = timestamp

    def end_group(self) -> None:
        """Release everything composed. A group may have many megabytes, and the next one may come tomorrow."""
        self.parts = []
        self.results = []
        self.requests = []

    def begin_file(self, file_from: int, position: int, limit: int) -> None:
        """Set the place of the next record.

        The file begins at offset `file_from` of the log. The record goes to `position` in the file; records end at
        `limit` at most.
        """
        self.parts = []
        self._file_from = file_from
        self.position = position
        self._limit = limit

    def compose(self, messages: Sequence[MessageInner], start: int) -> int:
        """Compose `messages[start:]` in order and return the number of the first message left out.

        A message is left out if its queue is not in `topic_queues`, if it may be illegal, or if the file has no space
        for it. Raises struct.error if a number of the message does not fit into a record; the length of `results` then
        tells which message it was.
        """
        topic_queues = self.topic_queues
        parts = self.parts
        results = self.results
        requests = self.requests
        file_from: int = self._file_from
        position: int = self.position
        limit: int = self._limit
        timestamp: Any = self._timestamp
        store_host: bytes = self._store_host
        delay_time_of: Any = self._delay_time_of
        max_body: int = self.max_body_size
        max_record: int = max_body + RECORD_OVERHEAD_LIMIT
        put_ok: Any = PutStatus.PUT_OK
        put_result: Any = PutResult
        dispatch_request: Any = DispatchRequest
        crc: Any = crc32
        fields_of: Callable[[MessageInner], tuple[Any, ...]] = astuple
        v6_length: int = HOST_V6
        max_properties: int = MAX_PROPERTIES_LENGTH
        max_topic: int = MAX_TOPIC_LENGTH + 1
        prepared_flag: int = SYS_FLAG_TRANSACTION_PREPARED
        transaction_mask: int = SYS_FLAG_TRANSACTION_MASK
        rollback: int = SYS_FLAG_TRANSACTION_ROLLBACK
        schedule_topic: str = SCHEDULE_TOPIC
        magic: Any = MESSAGE_MAGIC
        crc_mask: int = CRC_MASK
        fixed: int = PROPERTIES_LENGTH_SIZE
        not_hosts: int = ~_V6_FLAGS
        count = len(messages)
        number = start
        try:
            while number < count:
                # One call for all fields: compiled code reads single fields of a Struct by their names.
                fields = fields_of(messages[number])
                topic: str = fields[0]
                queue_id: Any = fields[1]
                queue = topic_queues.get((topic, queue_id))
                if queue is None:
                    break
                sys_flag: int = fields[3]
                born_host: bytes = fields[5]
                body: bytes = fields[8]
                properties: bytes = fields[9]
                encoded_topic = queue.encoded_topic
                body_size = len(body)
                properties_size = len(properties)
                if len(born_host) == v6_length:
                    pack = self._pack_v6
                    size = self._size_v6
                    sys_flag = sys_flag & not_hosts | self._store_flag | SYS_FLAG_BORN_HOST_V6
                else:
                    pack = self._pack_v4
                    size = self._size_v4
                    sys_flag = sys_flag & not_hosts | self._store_flag
                size += body_size + len(encoded_topic) + fixed + properties_size
                if (
                    position + size > limit
                    or body_size > max_body
                    or properties_size > max_properties
                    or size > max_record
                    or len(encoded_topic) > max_topic
                ):
                    break
                # Prepared and rolled-back messages are not for consumers, so they have no place in the queue.
                queued = sys_flag & prepared_flag == 0
                queue_offset: int = queue.next_offset if queued else 0
                offset: Any = file_from + position
                prepared_offset: Any = fields[7]
                head = pack(
                    size,
                    magic,
                    crc(body) & crc_mask,
                    queue_id,
                    fields[2],
                    queue_offset,
                    offset,
                    sys_flag,
                    fields[4],
                    born_host,
                    timestamp,
                    store_host,
                    fields[6],
                    prepared_offset,
                    body_size,
                )
                parts.extend((head, body, encoded_topic, properties_size.to_bytes(2, "big"), properties))
                if queued:
                    queue.next_offset = queue_offset + 1
                position += size
                tags_code: Any = fields[10]
                if delay_time_of is not None and topic == schedule_topic:
                    # Computed from the record's own time, so a rebuilt queue gets the same entry.
                    level: int = delay_level_of(properties)
                    if level > 0:
                        tags_code = delay_time_of(level, timestamp)
                results.append(put_result(put_ok, offset, queue_offset, timestamp, size))
                requests.append(
                    dispatch_request(
                        topic,
                        queue_id,
                        offset,
                        size,
                        tags_code,
                        timestamp,
                        queue_offset,
                        () if sys_flag & transaction_mask == rollback else fields[11],
                        sys_flag,
                        prepared_offset,
                        properties,
                    )
                )
                number += 1
        finally:
            self.position = position
        return number
