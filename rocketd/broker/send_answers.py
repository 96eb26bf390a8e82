"""The answers to sends: where a message is, or why it was not stored.

Answers to the response half of Apache's SendMessageProcessor. The success of a JSON request, which is nearly every
answer of a busy broker, is written from a template.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Any

import msgspec

from rocketd.broker import problems
from rocketd.broker.message_hooks import SendMessageContext
from rocketd.remoting.codes import ResponseCode, SerializeType
from rocketd.remoting.command import RESPONSE_FLAG, RemotingCommand
from rocketd.remoting.connection import Connection
from rocketd.remoting.errors import RequestError
from rocketd.remoting.headers import SendMessageRequestHeader
from rocketd.store.message import PutResult, PutStatus

_PREFIX = Struct(">II")

STORED_CODES = {
    PutStatus.PUT_OK: ResponseCode.SUCCESS,
    PutStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    PutStatus.FLUSH_SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    PutStatus.SLAVE_NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE,
}
"""How a send is answered whose message is in the log."""


class Request(msgspec.Struct, gc=False):
    """What of a send is needed for its answer. ``queue_id`` is set when a queue was chosen, ``context`` for hooks."""

    connection: Connection
    opaque: int
    is_oneway: bool
    serialize_type: int
    version: int
    header: SendMessageRequestHeader
    queue_id: int = 0
    context: SendMessageContext | None = None


class SendAnswers:
    """Encodes answers to sends. ``refresh`` belongs to the storage thread, the rest to any."""

    def __init__(self, broker: Any) -> None:
        self._broker = broker
        self._store_host = broker.store_host.hex().upper()
        self._fields: tuple[str, bool] | None = None
        self._template = b""
        self.refresh()

    def refresh(self) -> None:
        """Take over region and trace switch, which may be changed while running."""
        settings = self._broker.settings.broker
        fields = (settings.region_id, settings.trace_on)
        if fields != self._fields:
            self._fields = fields
            marks = {"msgId": self._store_host + "\0", "queueId": "\1", "queueOffset": "\2", **self._plain_fields()}
            text = RemotingCommand(ResponseCode.SUCCESS, marks, flag=RESPONSE_FLAG, opaque=0).encode()[8:]
            text = text.replace(b"%", b"%%").replace(b'"opaque":0', b'"opaque":%d')
            for mark, code in ((b"\\u0000", b"%016X"), (b"\\u0001", b"%d"), (b"\\u0002", b"%d")):
                text = text.replace(mark, code)
            self._template = text

    def _plain_fields(self) -> dict[str, str]:
        settings = self._broker.settings.broker
        return {"MSG_REGION": settings.region_id, "TRACE_ON": str(settings.trace_on).lower()}

    def stored(
        self,
        request: Request,
        results: Sequence[PutResult],
        answers: list[tuple[Connection, bytes]],
        safety: PutStatus = PutStatus.PUT_OK,
    ) -> None:
        """Answer a request whose messages ended so; ``safety`` is how the flush or replication that they waited for
        ended.
        """
        first = results[0]
        status = first.status if first.status is not PutStatus.PUT_OK else safety
        if request.context is not None and status in STORED_CODES:
            self._tell_hooks(request, STORED_CODES[status], None, results)
        if request.is_oneway and status in STORED_CODES:
            return
        if status is PutStatus.PUT_OK and request.serialize_type == SerializeType.JSON and len(results) == 1:
            header = self._template % (
                first.physical_offset,
                request.queue_id,
                first.queue_offset,
                request.opaque,
            )
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
        """Answer a request that is not carried out."""
        if request.context is not None:
            self._tell_hooks(request, error.code, error.remark, ())
        if not request.is_oneway:
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


def store_error(broker: Any, result: PutResult) -> RequestError:
    """Say why a message was not stored. ``broker`` is an IBroker. Any thread."""
    status = result.status
    limit = broker.settings.store.max_message_size
    if status is PutStatus.MESSAGE_ILLEGAL:
        return problems.MESSAGE_ILLEGAL.error(limit=limit, found=result.cause)
    if status is PutStatus.PROPERTIES_SIZE_EXCEEDED:
        return problems.PROPERTIES_TOO_LONG.error(limit=limit, found=result.cause)
    if status is PutStatus.SERVICE_NOT_AVAILABLE:
        return problems.SERVICE_NOT_AVAILABLE.error(disk=broker.disk_usage_text(), found=result.cause)
    if status is PutStatus.CREATE_MAPEDFILE_FAILED:
        return problems.CREATE_FILE_FAILED.error(found=result.cause)
    if status is PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED:
        return problems.LIGHT_QUEUES_EXCEEDED.error(found=result.cause)
    if status is PutStatus.OS_PAGECACHE_BUSY:
        return problems.PAGE_CACHE_BUSY.error(found=result.cause)
    return problems.STORE_FAILED.error(status=status.value, found=result.cause)
