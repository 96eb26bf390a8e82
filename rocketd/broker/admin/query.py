"""Messages by key and by place, offsets by time, ends of queues: 12, 33 and 29, 30, 31, 32.

Counterpart: `QueryMessageProcessor`, and the offset requests of `AdminBrokerProcessor` (Apache).
"""

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from zope.interface import implementer

from rocketd.broker.admin.parts import AdminParts
from rocketd.common.names import UNIQUE_KEY_QUERY
from rocketd.remoting.errors import RequestError
from rocketd.remoting.headers.client import (
    Header,
    OffsetResponseHeader,
    QueryMessageRequestHeader,
    QueryMessageResponseHeader,
    QueueRequestHeader,
    SearchOffsetRequestHeader,
    TimestampResponseHeader,
    ViewMessageRequestHeader,
    read_header,
    write_header,
)
from rocketd.remoting.interfaces import IRequestContext, IRequestProcessor
from rocketd.remoting.wire.codes import RequestCode, ResponseCode
from rocketd.remoting.wire.command import RemotingCommand

MAX_BODY: Final = 16 * 1024 * 1024 - 64 * 1024
"""The maximum bytes of records or entries in one answer: clients close a connection after a frame over 16 MiB."""

T = TypeVar("T")


@implementer(IRequestProcessor)
class QueryMessageProcessor:
    """Finds messages. ``process`` may run in several threads at once."""

    def __init__(self, broker: AdminParts) -> None:
        self._store = broker.store
        self._settings = broker.settings.store

    def process(self, request: RemotingCommand, context: IRequestContext) -> RemotingCommand:
        """Handle one request; see IRequestProcessor."""
        if request.code == RequestCode.QUERY_MESSAGE:
            return self._query(request)
        header = read_header(ViewMessageRequestHeader, request)
        record = self._store.look_message(header.offset)
        if record is None:
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {header.offset}")
        return RemotingCommand.response(buffers=(record,))

    def _query(self, request: RemotingCommand) -> RemotingCommand:
        header = read_header(QueryMessageRequestHeader, request)
        max_num = header.max_num
        if (request.ext_fields or {}).get(UNIQUE_KEY_QUERY) == "true":
            max_num = self._settings.default_query_max_num
        found = self._store.query_messages(
            header.topic, header.key, max_num, header.begin_timestamp, header.end_timestamp
        )
        fields = write_header(
            QueryMessageResponseHeader(found.index_last_update_timestamp, found.index_last_update_phyoffset)
        )
        if not found.buffers:
            return RemotingCommand.response(
                ResponseCode.QUERY_NOT_FOUND, "can not find message, maybe time range not correct", fields
            )
        return RemotingCommand.response(ext_fields=fields, buffers=first_that_fit(found.buffers, len))


@implementer(IRequestProcessor)
class QueueOffsetProcessor:
    """Returns the ends of queues. ``process`` may run in several threads at once."""

    def __init__(self, broker: AdminParts) -> None:
        self._store = broker.store

    def process(self, request: RemotingCommand, context: IRequestContext) -> RemotingCommand:
        """Handle one request; see IRequestProcessor."""
        store, answer = self._store, OffsetResponseHeader
        if request.code == RequestCode.SEARCH_OFFSET_BY_TIMESTAMP:
            by_time = read_header(SearchOffsetRequestHeader, request)
            return _success(answer(store.get_offset_by_time(by_time.topic, by_time.queue_id, by_time.timestamp)))
        queue = read_header(QueueRequestHeader, request)
        if request.code == RequestCode.GET_MAX_OFFSET:
            return _success(answer(store.get_max_offset(queue.topic, queue.queue_id)))
        if request.code == RequestCode.GET_MIN_OFFSET:
            return _success(answer(store.get_min_offset(queue.topic, queue.queue_id)))
        return _success(TimestampResponseHeader(store.get_earliest_time(queue.topic, queue.queue_id)))


def first_that_fit(items: Iterable[T], size_of: Callable[[T], int]) -> list[T]:
    """Return the first items that fit into one frame, with space for the header. ``size_of`` returns bytes."""
    found: list[T] = []
    room = MAX_BODY
    for item in items:
        room -= size_of(item)
        if room < 0:
            break
        found.append(item)
    return found


def _success(header: Header) -> RemotingCommand:
    return RemotingCommand.response(ext_fields=write_header(header))
