"""The answers to sends: the place of a message, or the reason for a refusal.

Nearly all answers of a busy broker are successes of JSON requests; they are written from a template.

Counterpart: the response half of `SendMessageProcessor` (Apache).
"""

from collections.abc import Sequence
from struct import Struct

import msgspec

from rocketd.broker.base import problems
from rocketd.broker.base.hook_contexts import SendMessageContext
from rocketd.broker.base.settings import BrokerConfig
from rocketd.broker.send.parts import SendParts
from rocketd.remoting.errors import RequestError
from rocketd.remoting.headers.client import SendMessageRequestHeader
from rocketd.remoting.problems import reason_of
from rocketd.remoting.serving.connection import Connection
from rocketd.remoting.serving.request_decoder import DecodedRequest
from rocketd.remoting.wire.codes import JSON_TYPE, ResponseCode
from rocketd.remoting.wire.command import RESPONSE_FLAG, RemotingCommand
from rocketd.store.format.message import PutResult, PutStatus

_PREFIX = Struct(">II")

# Python looks the members of an enumeration up slowly.
_PUT_OK = PutStatus.PUT_OK

STORED_CODES = {
    PutStatus.PUT_OK: ResponseCode.SUCCESS,
    PutStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    PutStatus.FLUSH_SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    PutStatus.SLAVE_NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE,
}
"""The response code of a send whose message is in the log, by the status of its put."""


def send_too_old(settings: BrokerConfig, period: int, queued: int, slowest_step: str) -> RequestError:
    """Refuse a send that waited too long in the send pool. Any thread.

    ``period`` is its waiting time in ms, ``queued`` the number of requests in the pool.
    """
    return problems.SEND_QUEUE_TOO_OLD.error(
        period=period, queued=queued, cause=slowest_step, limit=settings.wait_time_mills_in_send_queue
    )


class Request(DecodedRequest[SendMessageRequestHeader], gc=False):
    """A send. ``queue_id`` is set when a queue is chosen; ``context`` exists only if there are hooks."""

    queue_id: int = 0
    context: SendMessageContext | None = None


class SendAnswers:
    """Encodes answers to sends. ``refresh`` belongs to the storage thread, the rest to any."""

    def __init__(self, broker: SendParts) -> None:
        self._broker = broker
        self._store_host = broker.store_host.hex().upper()
        self._fields: tuple[str, bool] | None = None
        self._id_template = self._store_host.encode() + b"%016X"
        self._template = self._batch_template = b""
        self.refresh()

    def refresh(self) -> None:
        """Rebuild the template if the region or the trace switch has changed; both may change at run time."""
        settings = self._broker.settings.broker
        fields = (settings.region_id, settings.trace_on)
        if fields != self._fields:
            self._fields = fields
            plain = self._plain_fields()
            marks = {"msgId": "\0", "queueId": "\1", "queueOffset": "\2"}
            self._template = self._template_of(marks | plain, self._id_template)
            self._batch_template = self._template_of(plain | marks, b"%b")

    @staticmethod
    def _template_of(fields: dict[str, str], ids: bytes) -> bytes:
        """Return the encoded fields with places for numbers. The region comes last, because it may have any characters."""
        marked = fields | {"MSG_REGION": "\3"}
        text = RemotingCommand(ResponseCode.SUCCESS, marked, flag=RESPONSE_FLAG, opaque=0).encode()[8:]
        region = msgspec.json.encode(fields["MSG_REGION"]).replace(b"%", b"%%")
        for mark, place in (
            (b'"opaque":0', b'"opaque":%d'),
            (b"\\u0000", ids),
            (b"\\u0001", b"%d"),
            (b"\\u0002", b"%d"),
            (b'"\\u0003"', region),
        ):
            text = text.replace(mark, place)
        return text

    def _plain_fields(self) -> dict[str, str]:
        settings = self._broker.settings.broker
        return {"MSG_REGION": settings.region_id, "TRACE_ON": str(settings.trace_on).lower()}

    def singles_stored(
        self, requests: Sequence[Request], results: Sequence[PutResult], answers: list[tuple[Connection, bytes]]
    ) -> None:
        """Answer requests with one message each, which do not have to be durable: like ``stored``, in one loop."""
        template = self._template
        for request, result in zip(requests, results, strict=True):
            if (
                result.status is _PUT_OK
                and request.serialize_type == JSON_TYPE
                and request.context is None
                and not request.is_oneway
            ):
                header = template % (
                    result.physical_offset,
                    request.queue_id,
                    result.queue_offset,
                    request.opaque,
                )
                size = len(header)
                answers.append((request.connection, _PREFIX.pack(4 + size, size) + header))
            else:
                self.stored(request, (result,), answers)

    def stored(
        self,
        request: Request,
        results: Sequence[PutResult],
        answers: list[tuple[Connection, bytes]],
        safety: PutStatus = PutStatus.PUT_OK,
    ) -> None:
        """Answer a request from the results of its puts.

        ``safety`` is the outcome of the flush or replication, if the messages had to wait for one.
        """
        first = results[0]
        status = first.status if first.status is not _PUT_OK else safety
        if request.context is not None and status in STORED_CODES:
            self._tell_hooks(request, STORED_CODES[status], None, results)
        if request.is_oneway and status in STORED_CODES:
            return
        if status is _PUT_OK and request.serialize_type == JSON_TYPE:
            if len(results) == 1:
                header = self._template % (
                    first.physical_offset,
                    request.queue_id,
                    first.queue_offset,
                    request.opaque,
                )
            else:
                ids = b",".join([self._id_template] * len(results)) % tuple([r.physical_offset for r in results])
                header = self._batch_template % (ids, request.queue_id, first.queue_offset, request.opaque)
            size = len(header)
            answers.append((request.connection, _PREFIX.pack(4 + size, size) + header))
            return
        code = STORED_CODES.get(status)
        if code is None:
            self.refused(request, store_error(self._broker, first), answers)
            return
        fields = self._plain_fields()
        fields["msgId"] = self._msg_ids(results)
        fields["queueId"] = str(request.queue_id)
        fields["queueOffset"] = str(first.queue_offset)
        self._append(request, RemotingCommand.response(code, None, fields), answers)

    def refused(self, request: Request, error: RequestError, answers: list[tuple[Connection, bytes]]) -> None:
        """Answer a refused request. A one-way request is counted as lost and logged instead."""
        if request.context is not None:
            self._tell_hooks(request, error.code, error.remark, ())
        if request.is_oneway:
            why = f"a send to {request.header.topic}: {error.remark}"
            self._broker.dispatcher.answers.oneway_lost(1, why, reason_of(error))
        else:
            self._append(request, RemotingCommand.response(error.code, error.remark, self._plain_fields()), answers)

    def _msg_ids(self, results: Sequence[PutResult]) -> str:
        return ",".join([f"{self._store_host}{result.physical_offset:016X}" for result in results])

    def _tell_hooks(self, request: Request, code: int, remark: str | None, results: Sequence[PutResult]) -> None:
        context = request.context
        assert context is not None
        context.code, context.remark, context.queue_id = code, remark, request.queue_id
        if results:
            context.msg_id = self._msg_ids(results)
            context.queue_offset = results[0].queue_offset
            context.stored_size = sum([result.size for result in results])
        self._broker.message_hooks.after_send(context)

    def _append(self, request: Request, response: RemotingCommand, answers: list[tuple[Connection, bytes]]) -> None:
        response.opaque = request.opaque
        response.serialize_type = request.serialize_type
        answers.append((request.connection, response.encode()))


def store_error(broker: SendParts, result: PutResult) -> RequestError:
    """Return the refusal for a put that failed. Any thread."""
    status = result.status
    limit = broker.settings.store.max_message_size
    if status is PutStatus.MESSAGE_ILLEGAL:
        return problems.MESSAGE_ILLEGAL.error(limit=limit, found=result.cause)
    if status is PutStatus.PROPERTIES_SIZE_EXCEEDED:
        return problems.PROPERTIES_TOO_LONG.error(limit=limit, found=result.cause)
    if status is PutStatus.SERVICE_NOT_AVAILABLE:
        disk = broker.disk_usage_text()
        if broker.settings.store.broker_role == "SLAVE":
            return problems.SENT_TO_SLAVE.error(disk=disk, found=result.cause)
        return problems.SERVICE_NOT_AVAILABLE.error(disk=disk, found=result.cause)
    if status is PutStatus.STEPPED_DOWN:
        return problems.STEPPED_DOWN.error(found=result.cause)
    if status is PutStatus.CREATE_MAPEDFILE_FAILED:
        return problems.CREATE_FILE_FAILED.error(found=result.cause)
    if status is PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED:
        return problems.LIGHT_QUEUES_EXCEEDED.error(found=result.cause)
    if status is PutStatus.OS_PAGECACHE_BUSY:
        return problems.PAGE_CACHE_BUSY.error(found=result.cause)
    return problems.STORE_FAILED.error(status=status.value, found=result.cause)
