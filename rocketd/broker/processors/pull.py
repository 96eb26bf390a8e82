"""Pulls: PULL_MESSAGE (11), and LITE_PULL_MESSAGE (361) of 5.x clients, which is the same.

Answers to Apache's PullMessageProcessor. Runs in the pull pool's one thread. The records go from the mapped log to the
socket without a copy; what the fast decoder does not take goes through the ordinary one.
"""

from collections import deque
from collections.abc import Callable, Sequence
from struct import Struct
from time import monotonic
from typing import Any

import msgspec
from twisted.logger import Logger
from zope.interface import implementer

from rocketd.broker import problems
from rocketd.broker.long_polling import HeldPull, LongPolling
from rocketd.broker.message_hooks import ConsumeMessageContext, MessageHooks
from rocketd.broker.offset_moved import offset_moved_event
from rocketd.broker.pull_check import PullCheck
from rocketd.common.log_throttle import ThrottledLog
from rocketd.common.sysflag import PULL_COMMIT_OFFSET, PULL_SUSPEND
from rocketd.remoting.codes import CURRENT_VERSION, RequestCode, ResponseCode, SerializeType
from rocketd.remoting.command import ONEWAY_FLAG, RESPONSE_FLAG, RemotingCommand
from rocketd.remoting.connection import Connection
from rocketd.remoting.dispatch import Dispatcher, fields_hooks, park
from rocketd.remoting.errors import JSON_ERRORS, RequestError
from rocketd.remoting.frame import Frame
from rocketd.remoting.headers import (
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    read_header,
    write_header,
)
from rocketd.remoting.interfaces import IJobProcessor
from rocketd.remoting.pools import Job
from rocketd.store.message import GetResult, GetStatus, MessageFilter, MessageInner

CODES = (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)
MASTER_ID = 0

_CODE_OF = {
    GetStatus.FOUND: ResponseCode.SUCCESS,
    GetStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}
"""Where the queue is missing or empty, the code depends on the offset asked for."""

_FOUND = (
    b'{"code":0,"extFields":{"suggestWhichBrokerId":"%d","nextBeginOffset":"%d","minOffset":"%d","maxOffset":"%d"},'
    b'"flag":1,"language":"PYTHON","opaque":%d,"remark":"FOUND","serializeTypeCurrentRPC":"JSON","version":'
    + str(CURRENT_VERSION).encode()
    + b"}"
)
_PREFIX = Struct(">II")


class _Command(msgspec.Struct, rename={"fields": "extFields"}, gc=False):
    code: int
    opaque: int
    flag: int
    fields: PullMessageRequestHeader


class _CommandFields(msgspec.Struct, rename={"fields": "extFields"}, gc=False):
    code: int
    opaque: int
    flag: int
    fields: dict[str, str]


_decode_fields = msgspec.json.Decoder(_CommandFields).decode
_decode_json = msgspec.json.Decoder(_Command, strict=False).decode


def _decode_fast(header: bytes) -> _Command | None:
    """Decode the common form of a pull in one pass; None for any other."""
    try:
        command = _decode_json(header)
    except JSON_ERRORS:
        return None
    return None if command.flag & (RESPONSE_FLAG | ONEWAY_FLAG) else command


MOVED_LIMIT = 1000
"""Events of moved offsets that may wait for the storage thread; further ones are lost, counted and logged."""


class PullRequest:
    """What of a pull is needed for its answer."""

    __slots__ = ("connection", "opaque", "serialize_type")

    def __init__(self, connection: Connection, opaque: int, serialize_type: int) -> None:
        self.connection = connection
        self.opaque = opaque
        self.serialize_type = serialize_type


@implementer(IJobProcessor)
class PullMessageProcessor:
    """Reads for consumers. Everything but the constructor belongs to the pull pool's thread."""

    _log = Logger()

    def __init__(self, broker: Any) -> None:
        self._broker = broker
        self._peer_log = ThrottledLog(self._log)
        self._settings = broker.settings.broker
        self._dispatcher: Dispatcher = broker.dispatcher
        self._stats = broker.stats
        self._broker_stats = broker.broker_stats
        self._hooks: MessageHooks = broker.message_hooks
        self._is_slave = broker.settings.store.broker_role == "SLAVE"
        self.long_polling = LongPolling(
            broker.clock_ms,
            broker.store.get_max_offset,
            self._run_again,
            broker.dispatcher.pool("pull").call,
            self._settings.max_held_pulls,
            self._settings.max_held_pulls_per_connection,
        )
        broker.store.add_arrival_listener(self.long_polling.arrived)
        broker.held_pull_checks.append(self.long_polling.check)
        self._moved: deque[MessageInner] = deque()
        self._pool = broker.dispatcher.pool("pull")
        self._check = PullCheck(broker)
        self._checks: list[Callable[..., None]] | None = None

    def process(self, request: RemotingCommand, context: Any) -> RemotingCommand:
        """Never called: the dispatcher gives whole jobs to this processor."""
        raise RequestError(ResponseCode.SYSTEM_ERROR, "pulls are handled as jobs")

    def process_jobs(self, jobs: Sequence[Job]) -> None:
        """Answer or hold every pull of the jobs."""
        self._checks = fields_hooks(self._dispatcher.hooks)
        for job in jobs:
            for index, frame in enumerate(job.frames):
                if job.connection.behind and park(self._dispatcher, self._pool, job, index):
                    break
                try:
                    self._process_frame(job.connection, frame)
                except Exception as error:
                    if self._dispatcher.frame_failed(job.connection, error):
                        break

    def _process_frame(self, connection: Connection, frame: Frame) -> None:
        serialize_type, header_bytes, body = frame
        if serialize_type == SerializeType.JSON and self._checks is not None:
            command = (
                self._decode_checked(connection, header_bytes, body) if self._checks else _decode_fast(header_bytes)
            )
            if command is not None:
                request = PullRequest(connection, command.opaque, serialize_type)
                self._pull(request, command.fields, may_hold=True)
                return
        self._process_ordinarily(connection, RemotingCommand.decode(frame))

    def _decode_checked(self, connection: Connection, header: bytes, body: bytes) -> _Command | None:
        """Decode the common form of a pull that all hooks let pass; None for any other, and for one that they refuse."""
        try:
            command = _decode_fields(header)
            if command.flag & (RESPONSE_FLAG | ONEWAY_FLAG) or command.code not in CODES:
                return None
            for check in self._checks or ():
                check(connection.address, command.code, command.fields, body)
            fields = msgspec.convert(command.fields, PullMessageRequestHeader, strict=False)
        except Exception:  # what refused it does so again on the ordinary way, and is answered there
            return None
        return _Command(command.code, command.opaque, command.flag, fields)

    def _process_ordinarily(self, connection: Connection, command: RemotingCommand) -> None:
        if command.is_response:
            self._dispatcher.call_from_thread(self._dispatcher.take_response, connection, command)
            return
        if command.is_oneway:
            return  # a pull whose answer nobody wants
        if command.code not in CODES:  # the header names two codes, and hooks would look at the other one
            connection.send(self._dispatcher.not_supported(connection, command))
            return
        try:
            for hook in self._dispatcher.hooks:
                hook.before_request(connection.address, command)
            header = read_header(PullMessageRequestHeader, command)
        except Exception as error:
            connection.send(self._dispatcher.error_response(connection, command, error).answering(command))
            return
        self._pull(PullRequest(connection, command.opaque, command.serialize_type), header, may_hold=True)

    # ------------------------------------------------------------ one pull

    def _run_again(self, pull: HeldPull) -> None:
        if not pull.request.connection.closed:
            self._pull(pull.request, pull.header, may_hold=False)

    def _pull(self, request: PullRequest, header: PullMessageRequestHeader, *, may_hold: bool) -> None:
        try:
            self._pull_checked(request, header, may_hold)
        except RequestError as error:
            self._send(request, RemotingCommand.response(error.code, error.remark))
        except Exception as error:
            command = RemotingCommand(RequestCode.PULL_MESSAGE, write_header(header), opaque=request.opaque)
            self._send(request, self._dispatcher.error_response(request.connection, command, error))

    def _pull_checked(self, request: PullRequest, header: PullMessageRequestHeader, may_hold: bool) -> None:
        began = monotonic()
        group, message_filter = self._check.check(header, request.connection.address)
        result: GetResult = self._broker.store.get_messages(
            header.topic, header.queue_id, header.queue_offset, header.max_msg_nums, message_filter
        )
        took_ms = int((monotonic() - began) * 1000)
        self._stats.get_took(took_ms)
        if may_hold and header.sys_flag & PULL_COMMIT_OFFSET and not self._is_slave:
            self._broker.offsets.commit(
                request.connection.address, header.consumer_group, header.topic, header.queue_id, header.commit_offset
            )
        suggested = MASTER_ID
        if self._settings.slave_read_enable:
            suggested = group.which_broker_when_consume_slowly if result.suggest_pulling_from_slave else group.broker_id
        if result.status is GetStatus.FOUND:
            self._stats.found += 1
            self._stats.transferred += result.count
            self._broker_stats.count_gets(
                header.consumer_group, header.topic, header.queue_id, result.count, result.size, took_ms
            )
            if self._hooks.consume:
                self._call_hooks(request, header, ResponseCode.SUCCESS, result)
            self._send_found(request, result, suggested)
            return
        self._stats.missed += 1
        code = _CODE_OF.get(result.status)
        if code is None:
            code = ResponseCode.PULL_OFFSET_MOVED if header.queue_offset else ResponseCode.PULL_NOT_FOUND
        if code == ResponseCode.PULL_NOT_FOUND and may_hold and header.sys_flag & PULL_SUSPEND:
            self._hold(request, header, message_filter)
            return
        if code == ResponseCode.PULL_OFFSET_MOVED:
            code, suggested = self._offset_moved(request, header, result, group, suggested)
        if self._hooks.consume:
            self._call_hooks(request, header, code, result)
        fields = write_header(
            PullMessageResponseHeader(suggested, result.next_begin_offset, result.min_offset, result.max_offset)
        )
        self._send(request, RemotingCommand.response(code, result.status.value, fields))

    def _call_hooks(self, request: PullRequest, header: PullMessageRequestHeader, code: int, result: GetResult) -> None:
        address = request.connection.address
        self._hooks.before_consume(
            ConsumeMessageContext(
                header.consumer_group, header.topic, header.queue_id, address, code, result.count, result.size
            )
        )

    def _hold(self, request: PullRequest, header: PullMessageRequestHeader, message_filter: MessageFilter) -> None:
        settings = self._settings
        wait_ms = header.suspend_timeout_millis if settings.long_polling_enable else settings.short_polling_time_mills
        wait_ms = min(wait_ms, settings.max_suspend_timeout_millis)
        table = self.long_polling
        if not table.hold(HeldPull(request, header, message_filter, self._broker.clock_ms() + wait_ms)):
            self._dispatcher.limits.reached(
                "pulls refused", "{address}: a pull was refused: too many wait", address=request.connection.address
            )
            raise problems.HELD_PULLS_EXCEEDED.error(
                held=table.count, limit=table.max_held, limit_of_connection=table.max_of_connection
            )

    def _offset_moved(
        self, request: PullRequest, header: PullMessageRequestHeader, result: GetResult, group: Any, suggested: int
    ) -> tuple[ResponseCode, int]:
        """Record that a consumer is sent to another offset; a slave leaves that to the master."""
        if self._is_slave and not self._broker.settings.store.offset_check_in_slave:
            return ResponseCode.PULL_RETRY_IMMEDIATELY, group.broker_id
        self._peer_log.warn(
            "offset moved",
            "{address}: group {group} is moved from offset {asked} to {given} of {topic} queue {queue} ({status})",
            address=request.connection.address,
            group=header.consumer_group,
            asked=header.queue_offset,
            given=result.next_begin_offset,
            topic=header.topic,
            queue=header.queue_id,
            status=result.status.value,
        )
        if len(self._moved) < MOVED_LIMIT:
            self._moved.append(offset_moved_event(self._broker, header, result.next_begin_offset))
            self._dispatcher.pool("send").call(self._store_moved)
        else:
            self._dispatcher.limits.reached(
                "events of moved offsets lost",
                "{topic} queue {queue}: no event of a moved offset is stored, {limit} wait already",
                topic=header.topic,
                queue=header.queue_id,
                limit=MOVED_LIMIT,
            )
        return ResponseCode.PULL_OFFSET_MOVED, suggested

    def _store_moved(self) -> None:
        """Store an event that waits; storage thread."""
        self._broker.store.put_messages([self._moved.popleft()])

    # ------------------------------------------------------------ answers

    def _send_found(self, request: PullRequest, result: GetResult, suggested: int) -> None:
        if request.serialize_type == SerializeType.JSON:
            header = _FOUND % (
                suggested,
                result.next_begin_offset,
                result.min_offset,
                result.max_offset,
                request.opaque,
            )
            head = _PREFIX.pack(4 + len(header) + result.size, len(header)) + header
        else:
            response = RemotingCommand.response(
                ResponseCode.SUCCESS,
                GetStatus.FOUND.value,
                write_header(
                    PullMessageResponseHeader(suggested, result.next_begin_offset, result.min_offset, result.max_offset)
                ),
            )
            response.opaque = request.opaque
            response.serialize_type = request.serialize_type
            head = response.encode_header(result.size)
        request.connection.write((head, *result.buffers))

    def _send(self, request: PullRequest, response: RemotingCommand) -> None:
        response.opaque = request.opaque
        response.serialize_type = request.serialize_type
        request.connection.send(response)
