"""Appends groups of messages to the log: one encoding loop, one write for each file.

Counterpart: `CommitLog.asyncPutMessage(s)` and `DefaultAppendMessageCallback` (Apache). Records, queue offsets and the
filler at the end of a file are Apache's. Writing a whole group at once is ours.
"""

import struct
from collections.abc import Callable, Sequence

import msgspec
from twisted.logger import Logger

from rocketd.common.names import is_storable
from rocketd.store.base.errors import CreateMappedFileError
from rocketd.store.base.layout import BLANK_MAGIC, END_OF_FILE_BLANK
from rocketd.store.format.compose import Composer, TopicQueue
from rocketd.store.format.message import (
    SYS_FLAG_TRANSACTION_PREPARED,
    DispatchRequest,
    MessageInner,
    PutResult,
    PutStatus,
)
from rocketd.store.format.record import MAX_PROPERTIES_LENGTH, MAX_TOPIC_LENGTH, RECORD_OVERHEAD_LIMIT
from rocketd.store.format.record_scanner import DelayTimeOf
from rocketd.store.log.commit_log import CommitLog
from rocketd.store.log.mapped_file import LogFile

_BLANK = struct.Struct(">ii")

_log = Logger()


class AppendedGroup(msgspec.Struct):
    """Bytes appended by one call: from `start_offset` to `end_offset`, including fillers."""

    start_offset: int
    end_offset: int
    requests: list[DispatchRequest]


class GroupAppender:
    """Writer of the log. Belongs to the storage thread."""

    def __init__(
        self,
        commit_log: CommitLog,
        store_host: bytes,
        max_message_size: int,
        clock: Callable[[], float],
        delay_time_of: DelayTimeOf | None = None,
    ) -> None:
        """Take the settings of the log.

        - `store_host` is this broker's address and 4-byte port.
        - `clock` returns seconds since 1970.
        - `delay_time_of(level, store_timestamp)` returns the delivery time in ms for the queue entry of a delayed
          message.
        """
        self._commit_log = commit_log
        self._clock = clock
        self._last_timestamp = 0
        self._composer = Composer(store_host, max_message_size, delay_time_of)

    @property
    def max_message_size(self) -> int:
        """Greatest length in bytes of a stored body."""
        return self._composer.max_body_size

    @max_message_size.setter
    def max_message_size(self, size: int) -> None:
        self._composer.max_body_size = size

    @property
    def topic_queues(self) -> dict[tuple[str, int], TopicQueue]:
        """State of the queues with messages, by topic and queue id."""
        return self._composer.topic_queues

    @topic_queues.setter
    def topic_queues(self, queues: dict[tuple[str, int], TopicQueue]) -> None:
        self._composer.topic_queues = queues

    def append(self, messages: Sequence[MessageInner]) -> tuple[list[PutResult], AppendedGroup | None]:
        """Append each legal message. The results are in the order of the messages.

        The group is None if nothing was stored. If the disk refuses a write, all messages of the write and all later
        ones fail, and do not use up queue offsets.
        """
        try:
            file = self._commit_log.next_file()
        except CreateMappedFileError as error:
            return [PutResult(PutStatus.CREATE_MAPEDFILE_FAILED, cause=str(error))] * len(messages), None
        composer = self._composer
        timestamp = self._timestamp()
        # Also the end of the previous file, if it was full.
        start_offset = file.file_from_offset + file.wrote_position
        limit = file.file_size - END_OF_FILE_BLANK
        composer.begin_group(timestamp)
        composer.begin_file(file.file_from_offset, file.wrote_position, limit)
        results, requests = composer.results, composer.requests
        segment = 0
        while True:
            try:
                number = composer.compose(messages, len(results))
            except struct.error as error:
                results.append(_illegal(f"a number of the message does not fit into a record: {error}"))
                continue
            if number == len(messages):
                failure = self._write(file, composer.parts, timestamp)
                break
            message = messages[number]
            size = composer.size_of(message)
            refusal = self._refusal(message, size)
            if refusal is not None:
                results.append(refusal)
                continue
            if composer.position + size > limit:
                failure = self._write(file, composer.parts, timestamp)
                if failure is None:
                    segment = len(requests)
                    failure = self._end_file(file)
                if failure is None:
                    try:
                        file = self._commit_log.next_file()
                    except CreateMappedFileError as error:
                        failure = PutResult(PutStatus.CREATE_MAPEDFILE_FAILED, cause=str(error))
                if failure is not None:
                    break
                composer.begin_file(file.file_from_offset, file.wrote_position, limit)
            key = (message.topic, message.queue_id)
            if key not in composer.topic_queues:
                composer.topic_queues[key] = TopicQueue(message.topic)
        composer.end_group()
        if failure is not None:
            self._give_up(messages, results, requests, segment, failure)
        if not requests:
            return results, None
        return results, AppendedGroup(start_offset, file.file_from_offset + file.wrote_position, requests)

    def append_batch(self, messages: Sequence[MessageInner]) -> tuple[list[PutResult], AppendedGroup | None]:
        """Append all messages or none, in one file. Messages of one queue get consecutive queue offsets."""
        total, doubtful = self._composer.total_size(messages)
        if doubtful is not None:
            return [self.judge(doubtful, self._composer.size_of(doubtful))] * len(messages), None
        if total + END_OF_FILE_BLANK > self._commit_log.file_size:
            cause = f"the batch has {total} bytes, too many for one file of {self._commit_log.file_size} bytes"
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
        """Return PUT_OK, or why a message with a record of this size may not be stored."""
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
            return _illegal(f"the record has {size} bytes, too many for a file of mappedFileSizeCommitLog={limit}")
        return PutResult(PutStatus.PUT_OK)

    def _refusal(self, message: MessageInner, size: int) -> PutResult | None:
        """Return why a message with a record of this size is not stored, None if it may be stored."""
        topic = message.topic
        if (topic, message.queue_id) not in self._composer.topic_queues and not is_storable(topic):
            return _illegal(f"a queue cannot have the topic's name, {topic!r:.200}")
        judged = self.judge(message, size)
        return None if judged.status is PutStatus.PUT_OK else judged

    def _timestamp(self) -> int:
        """Return the time in ms, never earlier than that of a previous append: searches by time rely on it."""
        now = int(self._clock() * 1000)
        if now < self._last_timestamp:
            return self._last_timestamp
        self._last_timestamp = now
        return now

    def _write(self, file: LogFile, parts: list[bytes], timestamp: int) -> PutResult | None:
        """Write the records of one file. Return the failure to answer with, or None."""
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
            # A part may have been written. It would count at the next recovery if a later record ended where it begins.
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
        """Undo the unwritten requests from `segment` on. Fail their messages and all later ones."""
        lost = {request.physical_offset for request in requests[segment:]}
        for request in reversed(requests[segment:]):
            if not request.sys_flag & SYS_FLAG_TRANSACTION_PREPARED:
                self.topic_queues[request.topic, request.queue_id].next_offset = request.queue_offset
        del requests[segment:]
        for number, result in enumerate(results):
            if result.status is PutStatus.PUT_OK and result.physical_offset in lost:
                results[number] = failure
        results += [failure] * (len(messages) - len(results))


def _illegal(cause: str) -> PutResult:
    return PutResult(PutStatus.MESSAGE_ILLEGAL, cause=cause)
