"""Sends: SEND_MESSAGE (10), SEND_MESSAGE_V2 (310), SEND_BATCH_MESSAGE (320).

Answers to Apache's SendMessageProcessor. Runs in the send pool's one thread, which is the storage thread: it takes the
whole queue at once, decodes, checks and builds, appends everything with one write, and answers. A request that the fast
decoder does not take (odd numbers, a binary header) goes through the ordinary one; the rest of the way is the same.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from twisted.python.failure import Failure
from zope.interface import implementer

from rocketd.broker import problems
from rocketd.broker.durability import Durability
from rocketd.broker.fast_failure import send_too_old
from rocketd.broker.incoming import BatchFormatError, MessageBuilder
from rocketd.broker.message_check import Destination, MessageCheck, added_flags, choose_queue
from rocketd.broker.message_hooks import MessageHooks, SendMessageContext
from rocketd.broker.send_answers import Request, SendAnswers
from rocketd.broker.settlement import Settlement
from rocketd.broker.transaction.half_messages import turn_into_half
from rocketd.common import properties as names
from rocketd.common.sysflag import TRANSACTION_PREPARED
from rocketd.remoting import problems as remoting_problems
from rocketd.remoting.codes import RequestCode, ResponseCode, SerializeType
from rocketd.remoting.command import ONEWAY_FLAG, RESPONSE_FLAG, RemotingCommand
from rocketd.remoting.connection import Connection
from rocketd.remoting.dispatch import Dispatcher, fields_hooks
from rocketd.remoting.errors import JSON_ERRORS, RequestError
from rocketd.remoting.frame import Frame
from rocketd.remoting.headers import SendMessageRequestHeader, SendMessageRequestHeaderV2, flag_names, read_header
from rocketd.remoting.interfaces import IJobProcessor
from rocketd.remoting.pools import Job
from rocketd.store.message import MessageInner, PutResult, PutStatus
from rocketd.store.multi_dispatch import fault_of_further

CODES = (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)


class _Command(msgspec.Struct, rename={"fields": "extFields"}, gc=False):
    code: int
    opaque: int
    flag: int
    fields: SendMessageRequestHeader
    version: int = 0


class _CommandV2(msgspec.Struct, rename={"fields": "extFields"}, gc=False):
    code: int
    opaque: int
    flag: int
    fields: SendMessageRequestHeaderV2  # type: ignore[valid-type]
    version: int = 0


class _CommandFields(msgspec.Struct, rename={"fields": "extFields"}, gc=False):
    code: int
    opaque: int
    flag: int
    fields: dict[str, str]
    version: int = 0


_Stored = tuple[Request, Sequence[PutResult], MessageInner]
"""A send whose messages are in the log, the last of them OK; the message is the first."""

_ONES = tuple(
    f'"{name}":"1"'.encode()
    for header_type in (SendMessageRequestHeader, SendMessageRequestHeaderV2)
    for name in flag_names(header_type)
)
"""Flags as the C++ client writes them: true to msgspec, but to Java only ``true`` is, and a batch of that client is stored
as one message.
"""

_decode_fields = msgspec.json.Decoder(_CommandFields).decode
_decode_long_names = msgspec.json.Decoder(_Command, strict=False).decode
_decode_short_names: Any = msgspec.json.Decoder(_CommandV2, strict=False).decode


@implementer(IJobProcessor)
class SendMessageProcessor:
    """Stores what producers send. Everything but the constructor belongs to the storage thread."""

    def __init__(self, broker: Any) -> None:
        settings = broker.settings
        self._broker = broker
        self._settings = settings
        self._has_further_queues: bool = settings.store.enable_multi_dispatch
        self._dispatcher: Dispatcher = broker.dispatcher
        self._check = MessageCheck(broker)
        self._builder: MessageBuilder = broker.message_builder
        self._answers = SendAnswers(broker)
        self._hooks: MessageHooks = broker.message_hooks
        self._durability = Durability(broker)
        self._waits = self._durability.needed
        self._settlement: Settlement = broker.topics.settlement
        self._new_topics = self._settlement.names
        self._checks: list[Callable[..., None]] | None = None

    def process(self, request: RemotingCommand, context: Any) -> RemotingCommand:
        """Never called: the dispatcher gives whole jobs to this processor."""
        raise RequestError(ResponseCode.SYSTEM_ERROR, "sends are handled as jobs")

    def process_jobs(self, jobs: Sequence[Job]) -> None:
        """Store all messages of all jobs, with one write for those that are no batches, and answer them."""
        now_ms = self._broker.now_ms()
        clock_ms = self._broker.clock_ms()
        answers: list[tuple[Connection, bytes]] = []
        waiting: list[tuple[Request, MessageInner]] = []
        self._answers.refresh()
        self._checks = fields_hooks(self._dispatcher.hooks)
        for job in jobs:
            connection = job.connection
            age_ms = clock_ms - job.received_ms
            for frame in job.frames:
                try:
                    request = self._decode(connection, frame)
                except Exception as error:
                    if self._dispatcher.frame_failed(connection, error):
                        break
                    continue
                if request is None:
                    continue
                if self._hooks.send:
                    self._call_hooks(request, frame[2])
                try:
                    if age_ms > self._settings.broker.wait_time_mills_in_send_queue and not request.is_oneway:
                        raise self._too_old(age_ms)
                    if request.header.batch:
                        self._store_singles(waiting, answers)
                        self._store_batch(request, frame[2], now_ms, answers)
                    else:
                        waiting.append((request, self._build_single(request, frame[2], now_ms)))
                except Exception as error:
                    self._refuse(request, error, answers)
        self._store_singles(waiting, answers)
        self._deliver(answers, alone=len(jobs) == 1)

    # ------------------------------------------------------------ decode

    def _decode(self, connection: Connection, frame: Frame) -> Request | None:
        """Decode a send; None when it has been answered already, or was the response to a request of ours."""
        serialize_type, header, body = frame
        if serialize_type == SerializeType.JSON and self._checks is not None:
            request = (
                self._decode_checked(connection, header, body)
                if self._checks
                else self._decode_fast(connection, header)
            )
            if request is not None:
                return request
        return self._decode_ordinarily(connection, RemotingCommand.decode(frame))

    def _decode_fast(self, connection: Connection, header: bytes) -> Request | None:
        """Decode the common form of a send in one pass; None for any other."""
        try:
            command = _decode_short_names(header) if header[8:9] == b"3" else _decode_long_names(header)
        except JSON_ERRORS:
            return None
        if command.flag & RESPONSE_FLAG or _has_flag_of_one(command.fields, header):
            return None
        oneway = command.flag & ONEWAY_FLAG != 0
        return Request(connection, command.opaque, oneway, SerializeType.JSON, command.version, command.fields)

    def _decode_checked(self, connection: Connection, header: bytes, body: bytes) -> Request | None:
        """Decode the common form of a send that all hooks let pass; None for any other, and for one that they refuse."""
        try:
            command = _decode_fields(header)
            code = command.code
            if command.flag & RESPONSE_FLAG or code not in CODES:
                return None
            for check in self._checks or ():
                check(connection.address, code, command.fields, body)
            header_type = SendMessageRequestHeader if code == RequestCode.SEND_MESSAGE else SendMessageRequestHeaderV2
            fields = msgspec.convert(command.fields, header_type, strict=False)
        except Exception:  # what refused it does so again on the ordinary way, and is answered there
            return None
        if _has_flag_of_one(fields, header):
            return None
        oneway = command.flag & ONEWAY_FLAG != 0
        return Request(connection, command.opaque, oneway, SerializeType.JSON, command.version, fields)

    def _decode_ordinarily(self, connection: Connection, command: RemotingCommand) -> Request | None:
        if command.is_response:
            self._dispatcher.call_from_thread(self._dispatcher.take_response, connection, command)
            return None
        if command.code not in CODES:  # the header names two codes, and hooks would look at the other one
            response = self._dispatcher.not_supported(connection, command)
            if not command.is_oneway:
                connection.send(response)
            return None
        try:
            for hook in self._dispatcher.hooks:
                hook.before_request(connection.address, command)
            is_long = command.code == RequestCode.SEND_MESSAGE
            header = read_header(SendMessageRequestHeader if is_long else SendMessageRequestHeaderV2, command)
        except Exception as error:
            if not command.is_oneway:
                connection.send(self._dispatcher.error_response(connection, command, error).answering(command))
            return None
        return Request(connection, command.opaque, command.is_oneway, command.serialize_type, command.version, header)

    def _call_hooks(self, request: Request, body: bytes) -> None:
        header = request.header
        context = request.context = SendMessageContext(
            producer_group=header.producer_group,
            topic=header.topic,
            queue_id=header.queue_id,
            properties=header.properties or "",
            body_length=len(body),
            born_host=request.connection.address,
            born_timestamp=header.born_timestamp,
            broker_address=self._broker.address,
            is_batch=header.batch,
        )
        self._hooks.before_send(context)
        header.properties = context.properties

    def _refuse(self, request: Request, error: Exception, answers: list[tuple[Connection, bytes]]) -> None:
        """Answer a request that failed; what is no refusal is logged, and costs the other requests nothing."""
        if not isinstance(error, RequestError):
            self._dispatcher.peer_log.failure(
                f"failed send: {type(error).__name__}",
                "{address}: a send to {topic} failed",
                Failure(error),
                address=request.connection.address,
                topic=request.header.topic,
            )
            code = RequestCode.SEND_BATCH_MESSAGE if request.header.batch else RequestCode.SEND_MESSAGE_V2
            error = remoting_problems.PROCESSOR_FAILED.error(code=int(code))
        elif error.code == ResponseCode.SYSTEM_BUSY and not request.is_oneway:
            self._dispatcher.was_busy("send", error)
        self._answers.refused(request, error, answers)

    # ------------------------------------------------------------ build

    def _too_old(self, age_ms: int) -> RequestError:
        queued = self._dispatcher.pool("send").queued_requests
        return send_too_old(self._settings.broker, age_ms, queued, self._broker.slowest_recent_step())

    def _build_single(self, request: Request, body: bytes, now_ms: int) -> MessageInner:
        """Check a send and build its message. Raises RequestError."""
        header = request.header
        connection = request.connection
        destination = self._check.destination(header, request.version, connection.address, now_ms)
        request.queue_id = destination.queue_id
        if header.properties and names.TRAN_MSG in header.properties and self._check.is_half_message(header):
            header.sys_flag |= TRANSACTION_PREPARED  # so that it is not delayed before its commit
            message = self._builder.single(header, destination, connection.host, body, now_ms)
            turn_into_half(message, header.properties, destination.topic, destination.queue_id)
        else:
            message = self._builder.single(header, destination, connection.host, body, now_ms)
        if self._has_further_queues and (fault := fault_of_further(message.properties)) is not None:
            # The store would say so only when what waits reaches its topic.
            limit = self._settings.store.max_message_size
            raise problems.MESSAGE_ILLEGAL.error(limit=limit, found=fault)
        return message

    def _store_batch(self, request: Request, body: bytes, now_ms: int, answers: list[tuple[Connection, bytes]]) -> None:
        """Check a batch, store all of it, and answer it. Raises RequestError."""
        header = request.header
        topic = self._check.topic_for_send(header, request.connection.address, now_ms)
        request.queue_id = choose_queue(header, topic)
        self._check.check_batch(header)
        destination = Destination(header.topic, request.queue_id, added_flags(topic))
        try:
            messages = self._builder.batch(header, destination, request.connection.host, body)
        except BatchFormatError as error:
            raise self._check.illegal_batch(error) from error
        if not messages:
            raise self._check.illegal_batch("the batch is empty")
        results = self._broker.store.put_batch(messages)
        self._broker.broker_stats.count_batch(messages, results)
        if self._waits or self._new_topics:
            self._answer_when_safe([(request, results, messages[0])], answers)
        else:
            self._answers.stored(request, results, answers)

    # ------------------------------------------------------------ store and answer

    def _store_singles(
        self, waiting: list[tuple[Request, MessageInner]], answers: list[tuple[Connection, bytes]]
    ) -> None:
        """Append the messages gathered so far with one write and answer their requests."""
        if not waiting:
            return
        try:
            messages = [message for _, message in waiting]
            results = self._broker.store.put_messages(messages)
            self._broker.broker_stats.count_sends(messages, results)
        except Exception as error:
            for request, _ in waiting:
                self._refuse(request, error, answers)
        else:
            if self._waits or self._new_topics:
                self._answer_when_safe(
                    [
                        (request, (result,), message)
                        for (request, message), result in zip(waiting, results, strict=True)
                    ],
                    answers,
                )
            else:
                stored = self._answers.stored
                for (request, _), result in zip(waiting, results, strict=True):
                    stored(request, (result,), answers)
        waiting.clear()

    def _answer_when_safe(
        self,
        stored: list[tuple[Request, Sequence[PutResult], MessageInner]],
        answers: list[tuple[Connection, bytes]],
    ) -> None:
        """Answer those at once that do not wait, the others when their messages, and topics they have made, are safe."""
        unsafe: list[_Stored] = []
        unsettled: list[_Stored] = []
        new = self._new_topics
        for request, results, message in stored:
            if results[-1].status is not PutStatus.PUT_OK:
                self._answers.stored(request, results, answers)
            elif new and (request.header.topic in new or message.topic in new):
                unsettled.append((request, results, message))
            elif self._waits and message.wait:
                unsafe.append((request, results, message))
            else:
                self._answers.stored(request, results, answers)
        if unsafe:
            self._when_safe(unsafe, lambda status: self._answer_late(unsafe, status))
        if unsettled:
            self._answer_when_settled(unsettled)

    def _when_safe(self, stored: Sequence[_Stored], callback: Callable[[PutStatus], None]) -> None:
        last = stored[-1][1][-1]
        self._durability.when_safe(last.physical_offset + last.size, callback, len(stored))

    def _answer_when_settled(self, stored: Sequence[_Stored]) -> None:
        """Answer sends to new topics when the topics are safe, and messages that wait when they are safe too."""
        names = {name for request, _, message in stored for name in (request.header.topic, message.topic)}

        def settle(status: PutStatus, group: Sequence[_Stored]) -> None:
            def settled(topics: PutStatus) -> None:
                self._answer_late(group, topics if status is PutStatus.PUT_OK else status)

            self._settlement.when_settled(names, settled)

        waiting = [entry for entry in stored if self._waits and entry[2].wait]
        others = [entry for entry in stored if not (self._waits and entry[2].wait)]
        if waiting:
            self._when_safe(waiting, lambda status: settle(status, waiting))
        if others:
            settle(PutStatus.PUT_OK, others)

    def _answer_late(self, stored: Sequence[_Stored], status: PutStatus) -> None:
        """Answer a group of sends; called from whichever thread knows last."""
        late: list[tuple[Connection, bytes]] = []
        for request, results, _ in stored:
            self._answers.stored(request, results, late, status)
        self._deliver(late, alone=len(late) == 1)

    def _deliver(self, answers: list[tuple[Connection, bytes]], *, alone: bool) -> None:
        """Write the answers: here when they are one connection's, else all of them by one call of the reactor."""
        if alone:
            write_answers(answers)
        elif answers:
            self._dispatcher.call_from_thread(write_answers, answers)


def write_answers(answers: list[tuple[Connection, bytes]]) -> None:
    """Write answers, those of one connection together. Any thread."""
    if len(answers) == 1:
        connection, data = answers[0]
        connection.write((data,))
        return
    grouped: dict[Connection, list[bytes]] = {}
    for connection, data in answers:
        grouped.setdefault(connection, []).append(data)
    for connection, parts in grouped.items():
        connection.write((b"".join(parts),))


def _has_flag_of_one(fields: SendMessageRequestHeader, header: bytes) -> bool:
    return (fields.batch or fields.unit_mode) and any(one in header for one in _ONES)
