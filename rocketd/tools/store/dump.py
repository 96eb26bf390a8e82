"""Records of a stopped store as lines of JSON. The names are those of the fields of Apache's MessageExt."""

import base64
from collections.abc import Iterator
from itertools import islice
from typing import Any

import msgspec

from rocketd.common.record_host import host_text
from rocketd.store.base.errors import RecordError, StoreError
from rocketd.store.base.layout import FILLER_SIZE
from rocketd.store.format.record import MessageExt, decode_message
from rocketd.store.offline.examine_log import Damaged, LogWalk, Missing, Records
from rocketd.store.offline.stopped_store import LogReader, StoppedStore

Line = tuple[str, bool]
"""Text, and whether it is a record. Otherwise it describes the unreadable part."""


def dump(
    store: StoppedStore, queue: tuple[str, int] | None, first: int | None, count: int | None, with_body: bool
) -> Iterator[Line]:
    """Yield at most `count` lines, from an offset of the log or of a queue on.

    Raises StoreError if nothing begins there.
    """
    lines = _log_lines(store, first, with_body) if queue is None else _queue_lines(store, queue, first, with_body)
    return islice(lines, count)


def _log_lines(store: StoppedStore, first: int | None, with_body: bool) -> Iterator[Line]:
    log = store.log
    if first is not None and log.record_at(first) is None:
        raise StoreError(f"no record begins at {first}; verify and dump name the offsets at which one does")
    for event in LogWalk(log, None, store.abnormal).events(first or 0):
        if isinstance(event, Records):
            for request in event.requests:
                yield _record_line(log, request.physical_offset, request.size, with_body)
        elif isinstance(event, Damaged):
            yield f"{event.segment.path} at {event.begin - event.segment.offset}: {event.text}", False
        elif isinstance(event, Missing):
            yield f"{event.path} is missing", False


def _queue_lines(store: StoppedStore, queue: tuple[str, int], first: int | None, with_body: bool) -> Iterator[Line]:
    reader = next((found for found in store.queues() if (found.topic, found.queue_id) == queue), None)
    if reader is None:
        raise StoreError(f"queue {queue[0]}:{queue[1]} does not exist")
    reader.find_end()
    begin = reader.first_from(store.log.min_offset, reader.end)
    for index in range(begin if first is None else max(first, reader.begin), reader.end):
        entry = reader.entry(index)
        if entry is not None and entry[1] != FILLER_SIZE:
            yield _record_line(store.log, entry[0], entry[1], with_body)


def _record_line(log: LogReader, offset: int, size: int, with_body: bool) -> Line:
    segment = log.find(offset)
    if segment is None:
        return f"the log has no offset {offset}", False
    position = offset - segment.offset
    try:
        message = decode_message(memoryview(log.bytes_of(segment))[position : position + max(0, size)])
    except RecordError as error:
        return f"{segment.path} at {position}: {error}", False
    return msgspec.json.encode(_fields(message, with_body)).decode(), True


def _fields(message: MessageExt, with_body: bool) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "commitLogOffset": message.physical_offset,
        "storeSize": message.store_size,
        "flag": message.flag,
        "sysFlag": message.sys_flag,
        "bornTimestamp": message.born_timestamp,
        "bornHost": host_text(message.born_host),
        "storeTimestamp": message.store_timestamp,
        "storeHost": host_text(message.store_host),
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "bodyCRC": message.body_crc,
        "bodyLength": len(message.body),
        "properties": message.properties_map(),
    }
    if with_body:
        try:
            fields["body"] = message.body.decode()
        except UnicodeDecodeError:
            fields["bodyBase64"] = base64.b64encode(message.body).decode()
    return fields
