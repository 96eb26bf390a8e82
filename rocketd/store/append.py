"""Appends groups of messages to the log: one encoding loop, one write for each file.

Answers to Apache's `CommitLog.asyncPutMessage(s)` and `DefaultAppendMessageCallback`. The records, the queue
offsets and the filler at the end of a file are Apache's; that a group is written at once is ours.
"""

import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple

from twisted.logger import Logger

from rocketd.common.names import is_storable
from rocketd.store.commit_log import CommitLog
from rocketd.store.crc import crc32
from rocketd.store.errors import CreateMappedFileError
from rocketd.store.layout import BLANK_MAGIC, END_OF_FILE_BLANK, MESSAGE_MAGIC, SCHEDULE_TOPIC
from rocketd.store.mapped_file import LogFile
from rocketd.store.message import (
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
from rocketd.store.properties import delay_level_of
from rocketd.store.record import (
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
from rocketd.store.record_scanner import DelayTimeOf

_BLANK = struct.Struct(">ii")
_LENGTHS_SIZE = TOPIC_LENGTH_SIZE + PROPERTIES_LENGTH_SIZE
_NOT_HOSTS = ~(SYS_FLAG_BORN_HOST_V6 | SYS_FLAG_STORE_HOST_V6)
"""What the sender says about the hosts is not to be believed: the lengths of the hosts decide."""

_log = Logger()


class TopicQueue:
    """State of one topic and queue id in the storage thread: the next queue offset, and the topic as records hold
    it.
    """

    __slots__ = ("encoded_topic", "next_offset")

    def __init__(self, topic: str, next_offset: int = 0) -> None:
        data = topic.encode("utf-8")
        # Too long a topic is refused by the check of its length; it gets here all the same.
        self.encoded_topic = bytes((min(len(data), 255),)) + data
        self.next_offset = next_offset


class AppendedGroup(NamedTuple):
    """What one call put into the log: everything from `start_offset` to `end_offset`, fillers included."""

    start_offset: int
    end_offset: int
    requests: list[DispatchRequest]


class GroupAppender:
    """Writer of the log; all of it belongs to the storage thread."""

    def __init__(
        self,
        commit_log: CommitLog,
        store_host: bytes,
        max_message_size: int,
        clock: Callable[[], float],
        delay_time_of: DelayTimeOf | None = None,
    ) -> None:
        """`store_host` is this broker's address and 4-byte port; `clock` gives seconds since 1970.

        `delay_time_of(level, store_timestamp)` gives the delivery time in ms that a delayed message's entry gets.
        """
        self._delay_time_of = delay_time_of
        self._commit_log = commit_log
        self.topic_queues: dict[tuple[str, int], TopicQueue] = {}
        self.max_message_size = max_message_size
        self._clock = clock
        self._store_host = store_host
        self._last_timestamp = 0
        store_flag = SYS_FLAG_STORE_HOST_V6 if len(store_host) == HOST_V6 else 0
        self._kinds = {
            HOST_V4: (HEAD_STRUCTS[HOST_V4, len(store_host)], store_flag),
            HOST_V6: (HEAD_STRUCTS[HOST_V6, len(store_host)], store_flag | SYS_FLAG_BORN_HOST_V6),
        }

    def append(self, messages: Sequence[MessageInner]) -> tuple[list[PutResult], AppendedGroup | None]:
        """Append each message that is legal; the results stand in the order of the messages.

        The group is None when nothing was stored. When the disk refuses a write, all messages of that write and
        those behind it fail and take no queue offset.
        """
        results: list[PutResult] = []
        requests: list[DispatchRequest] = []
        try:
            file = self._commit_log.next_file()
        except CreateMappedFileError as error:
            return [PutResult(PutStatus.CREATE_MAPEDFILE_FAILED, cause=str(error))] * len(messages), None
        timestamp = self._timestamp()
        file_from = file.file_from_offset
        position = file.wrote_position
        # Also the end of the file before, where that one was full.
        start_offset = file_from + position
        limit = file.file_size - END_OF_FILE_BLANK
        parts: list[bytes] = []
        segment = 0

        max_body = self.max_message_size
        max_record = min(max_body + RECORD_OVERHEAD_LIMIT, limit)
        topic_queues = self.topic_queues
        kinds = self._kinds
        store_host = self._store_host
        crc = crc32
        delay_time_of = self._delay_time_of
        put_ok = PutStatus.PUT_OK
        for message in messages:
            topic = message.topic
            queue_id = message.queue_id
            body = message.body
            properties = message.properties
            born_host = message.born_host
            sys_flag = message.sys_flag
            key = (topic, queue_id)
            queue = topic_queues.get(key)
            if queue is None:
                if not is_storable(topic):
                    results.append(_illegal(f"no queue can have the topic's name, {topic!r:.200}"))
                    continue
                queue = TopicQueue(topic)
            encoded_topic = queue.encoded_topic
            head, host_flags = kinds[len(born_host)]
            body_size = len(body)
            properties_size = len(properties)
            size = head.size + body_size + len(encoded_topic) + PROPERTIES_LENGTH_SIZE + properties_size
            if (
                body_size > max_body
                or properties_size > MAX_PROPERTIES_LENGTH
                or size > max_record
                or len(encoded_topic) > MAX_TOPIC_LENGTH + 1
            ):
                results.append(self.judge(message, size))
                continue
            if position + size > limit:
                failure = self._write(file, parts, timestamp)
                if failure is None:
                    segment = len(requests)
                    failure = self._end_file(file)
                if failure is None:
                    try:
                        file = self._commit_log.next_file()
                    except CreateMappedFileError as error:
                        failure = PutResult(PutStatus.CREATE_MAPEDFILE_FAILED, cause=str(error))
                if failure is not None:
                    self._give_up(messages, results, requests, segment, failure)
                    return results, self._group(start_offset, requests)
                file_from = file.file_from_offset
                position = file.wrote_position
                parts = []
            sys_flag = sys_flag & _NOT_HOSTS | host_flags
            if sys_flag & SYS_FLAG_TRANSACTION_PREPARED:
                # Prepared or rollback: not for consumers, so without a place in the queue.
                queue_offset = 0
            else:
                queue_offset = queue.next_offset
            offset = file_from + position
            born_timestamp = message.born_timestamp
            prepared_offset = message.prepared_transaction_offset
            try:
                parts += (
                    head.pack(
                        size,
                        MESSAGE_MAGIC,
                        crc(body) & CRC_MASK,
                        queue_id,
                        message.flag,
                        queue_offset,
                        offset,
                        sys_flag,
                        born_timestamp,
                        born_host,
                        timestamp,
                        store_host,
                        message.reconsume_times,
                        prepared_offset,
                        body_size,
                    ),
                    body,
                    encoded_topic,
                    properties_size.to_bytes(2, "big"),
                    properties,
                )
            except struct.error as error:
                results.append(_illegal(f"a number of the message has no room in a record: {error}"))
                continue
            if not sys_flag & SYS_FLAG_TRANSACTION_PREPARED:
                queue.next_offset = queue_offset + 1
                if not queue_offset:
                    topic_queues[key] = queue
            position += size
            tags_code = message.tags_code
            if delay_time_of is not None and topic == SCHEDULE_TOPIC:
                # Of the record's own time, so that a rebuilt queue has the same entry.
                level = delay_level_of(properties)
                if level > 0:
                    tags_code = delay_time_of(level, timestamp)
            results.append(PutResult(put_ok, offset, queue_offset, timestamp, size))
            requests.append(
                DispatchRequest(
                    topic,
                    queue_id,
                    offset,
                    size,
                    tags_code,
                    timestamp,
                    queue_offset,
                    () if sys_flag & SYS_FLAG_TRANSACTION_MASK == SYS_FLAG_TRANSACTION_ROLLBACK else message.index_keys,
                    sys_flag,
                    prepared_offset,
                    properties,
                )
            )
        failure = self._write(file, parts, timestamp)
        if failure is not None:
            self._give_up(messages, results, requests, segment, failure)
        return results, self._group(start_offset, requests)

    def append_batch(self, messages: Sequence[MessageInner]) -> tuple[list[PutResult], AppendedGroup | None]:
        """Append all messages or none, in one file, with consecutive queue offsets where they are of one queue."""
        total = 0
        topic = ""
        topic_size = 0
        for message in messages:
            if message.topic != topic:
                topic = message.topic
                topic_size = len(topic.encode("utf-8"))
            body_size = len(message.body)
            properties_size = len(message.properties)
            size = (
                self._kinds[len(message.born_host)][0].size + body_size + properties_size + topic_size + _LENGTHS_SIZE
            )
            total += size
            if self._suspicious(body_size, properties_size, topic_size, size):
                return [self.judge(message, size)] * len(messages), None
        if total + END_OF_FILE_BLANK > self._commit_log.file_size:
            cause = f"the batch has {total} bytes, more than one file of {self._commit_log.file_size} bytes takes"
            return [PutResult(PutStatus.MESSAGE_ILLEGAL, cause=cause)] * len(messages), None
        start_offset = self._commit_log.max_offset
        last = self._commit_log.queue.last
        if last is not None and not last.full and last.wrote_position + total + END_OF_FILE_BLANK > last.file_size:
            failure = self._end_file(last)
            if failure is not None:
                return [failure] * len(messages), None
        results, group = self.append(messages)
        return results, None if group is None else AppendedGroup(start_offset, group.end_offset, group.requests)

    def judge(self, message: MessageInner, size: int) -> PutResult:
        """PUT_OK, or why a message whose record would have this size may not be stored."""
        topic_size = len(message.topic.encode("utf-8"))
        if topic_size > MAX_TOPIC_LENGTH:
            return _illegal(f"the topic has {topic_size} bytes, more than {MAX_TOPIC_LENGTH}")
        if len(message.properties) > MAX_PROPERTIES_LENGTH:
            cause = f"the properties have {len(message.properties)} bytes, more than {MAX_PROPERTIES_LENGTH}"
            return PutResult(PutStatus.PROPERTIES_SIZE_EXCEEDED, cause=cause)
        if len(message.body) > self.max_message_size:
            return _illegal(f"the body has {len(message.body)} bytes, more than maxMessageSize={self.max_message_size}")
        if size > self.max_message_size + RECORD_OVERHEAD_LIMIT:
            return _illegal(f"the record has {size} bytes, more than maxMessageSize={self.max_message_size} allows for")
        if size + END_OF_FILE_BLANK > self._commit_log.file_size:
            limit = self._commit_log.file_size
            return _illegal(f"the record has {size} bytes, more than a file of mappedFileSizeCommitLog={limit} takes")
        return PutResult(PutStatus.PUT_OK)

    def _suspicious(self, body_size: int, properties_size: int, topic_size: int, size: int) -> bool:
        return (
            body_size > self.max_message_size
            or properties_size > MAX_PROPERTIES_LENGTH
            or topic_size > MAX_TOPIC_LENGTH
            or size > self.max_message_size + RECORD_OVERHEAD_LIMIT
        )

    def _timestamp(self) -> int:
        """Now in ms, never before an earlier append: searches by time rely on it."""
        now = int(self._clock() * 1000)
        if now < self._last_timestamp:
            return self._last_timestamp
        self._last_timestamp = now
        return now

    def _write(self, file: LogFile, parts: list[bytes], timestamp: int) -> PutResult | None:
        """Write the records of one file; the failure to answer with, None when there is none."""
        if not parts:
            return None
        try:
            file.append(b"".join(parts))
        except OSError as error:
            return self._refused(file, error)
        file.store_timestamp = timestamp
        return None

    def _end_file(self, file: LogFile) -> PutResult | None:
        try:
            file.end_file(_BLANK.pack(file.file_size - file.wrote_position, BLANK_MAGIC))
        except OSError as error:
            return self._refused(file, error)
        return None

    def _refused(self, file: LogFile, error: OSError) -> PutResult:
        _log.error("cannot append to {path}: {error}", path=file.path, error=error)
        try:
            # A part may have been written, and would count at the next recovery if a later record ended where it
            # begins.
            file.clear_from(file.wrote_position)
        except OSError as second:
            _log.error("cannot clear the rest of {path}: {error}", path=file.path, error=second)
        return PutResult(PutStatus.SERVICE_NOT_AVAILABLE, cause=f"cannot append to {file.path}: {error}")

    def _give_up(
        self,
        messages: Sequence[MessageInner],
        results: list[PutResult],
        requests: list[DispatchRequest],
        segment: int,
        failure: PutResult,
    ) -> None:
        """Undo the requests from `segment` on, which were not written, and fail their messages and all that follow."""
        lost = {request.physical_offset for request in requests[segment:]}
        for request in reversed(requests[segment:]):
            if not request.sys_flag & SYS_FLAG_TRANSACTION_PREPARED:
                self.topic_queues[request.topic, request.queue_id].next_offset = request.queue_offset
        del requests[segment:]
        for number, result in enumerate(results):
            if result.status is PutStatus.PUT_OK and result.physical_offset in lost:
                results[number] = failure
        results += [failure] * (len(messages) - len(results))

    def _group(self, start_offset: int, requests: list[DispatchRequest]) -> AppendedGroup | None:
        return AppendedGroup(start_offset, self._commit_log.max_offset, requests) if requests else None


def _illegal(cause: str) -> PutResult:
    return PutResult(PutStatus.MESSAGE_ILLEGAL, cause=cause)
