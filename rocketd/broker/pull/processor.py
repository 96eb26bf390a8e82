"""Pulls: PULL_MESSAGE (11), and LITE_PULL_MESSAGE (361) of 5.x clients, which is the same.

Runs in the pull pool's one thread, and a few held pulls in the storage thread (see `long_polling`). Records go from the
mapped log to the socket without a copy.

Counterpart: `PullMessageProcessor` (Apache).
"""

from collections import deque
from collections.abc import Sequence
from struct import Struct
from time import monotonic

from twisted.logger import Logger
from zope.interface import implementer

from rocketd.broker.base import problems
from rocketd.broker.base.hook_contexts import ConsumeMessageContext
from rocketd.broker.base.message_hooks import MessageHooks
from rocketd.broker.pull.long_polling import HeldPull, LongPolling, PullRequest
from rocketd.broker.pull.offset_moved import offset_moved_event
from rocketd.broker.pull.parts import PullParts
from rocketd.broker.pull.pull_check import PullCheck
from rocketd.common.logs.throttle import ThrottledLog
from rocketd.common.sysflag import PULL_COMMIT_OFFSET, PULL_SUSPEND
from rocketd.remoting.bodies.tables import SubscriptionGroupConfig
from rocketd.remoting.errors import RequestError
from rocketd.remoting.headers.client import (
    Header,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    write_header,
)
from rocketd.remoting.interfaces import IJobProcessor
from rocketd.remoting.serving.command_jobs import park
from rocketd.remoting.serving.dispatch import Dispatcher
from rocketd.remoting.serving.pools import Job
from rocketd.remoting.serving.request_decoder import RequestDecoder
from rocketd.remoting.wire.codes import JSON_TYPE, PULL_CODES, RequestCode, ResponseCode
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.remoting.wire.versions import own_version
from rocketd.store.format.message import GetResult, GetStatus, MessageFilter, MessageInner

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
"""Response codes by read status. For a missing or empty queue the code depends on the requested offset."""

_FOUND = (
    b'{"code":0,"extFields":{"suggestWhichBrokerId":"%d","nextBeginOffset":"%d","minOffset":"%d","maxOffset":"%d"},'
    b'"flag":1,"language":"PYTHON","opaque":%d,"remark":"FOUND","serializeTypeCurrentRPC":"JSON","version":%d}'
)
_PREFIX = Struct(">II")

# Members of enums are looked up slowly, so those of every pull are at hand.
_IS_FOUND = GetStatus.FOUND


MOVED_LIMIT = 1000
"""The number of offset-moved events that may wait for the storage thread.

Further ones are dropped, counted and logged.
"""


PULL_HEADERS: dict[int, type[Header]] = dict.fromkeys(PULL_CODES, PullMessageRequestHeader)
"""The header class of each pull."""


@implementer(IJobProcessor)
class PullMessageProcessor:
    """Reads messages for consumers. Pulls run in one thread at a time, the holder of the guard of held pulls.

    Everything else, except the constructor, belongs to the pull pool's thread.
    """

    _log = Logger()

    def __init__(self, broker: PullParts) -> None:
        self._broker = broker
        self._peer_log = ThrottledLog(self._log)
        self._settings = broker.settings.broker
        self._dispatcher: Dispatcher = broker.dispatcher
        self._stats = broker.stats
        self._broker_stats = broker.broker_stats
        self._hooks: MessageHooks = broker.message_hooks
        self._is_slave = broker.settings.store.broker_role == "SLAVE"
        send_pool = self._dispatcher.pool("send")
        self.long_polling = LongPolling(
            broker.clock_ms,
            broker.store.get_max_offset,
            self._run_again,
            broker.dispatcher.pool("pull").call,
            self._settings.max_held_pulls,
            self._settings.max_held_pulls_per_connection,
        )
        broker.store.add_arrival_listener(self.long_polling.arrived)
        broker.store.is_awaited = self.long_polling.is_awaited
        broker.held_pull_checks.append(self._check_held_pulls)
        broker.topics.on_names(self._topics_changed)
        self._moved: deque[MessageInner] = deque()
        self._pool = broker.dispatcher.pool("pull")
        self._check = PullCheck(broker)
        if send_pool.after_jobs is not None and not self._settings.message_store_plug_in:
            # Third-party code in the way of a pull must not hold up the storage thread.
            send_pool.after_jobs = self.long_polling.answers_after(
                send_pool.after_jobs, may_answer=lambda: not self._hooks.consume
            )
        self._requests = RequestDecoder(self._dispatcher, PULL_HEADERS, PullRequest)

    def process_jobs(self, jobs: Sequence[Job]) -> None:
        """Answer or hold every pull of the jobs."""
        with self.long_polling.guard:
            self._process_jobs(jobs)

    def _process_jobs(self, jobs: Sequence[Job]) -> None:
        self._requests.refresh()
        decode = self._requests.decode
        for job in jobs:
            for index, frame in enumerate(job.frames):
                if job.connection.behind and park(self._dispatcher.answers, self._pool, job, index):
                    break
                try:
                    request = decode(job.connection, frame)
                    if request is not None and not request.is_oneway:
                        self._pull(request, may_hold=True)
                except Exception as error:
                    if self._dispatcher.answers.frame_failed(job.connection, error):
                        break

    def _topics_changed(self, names: frozenset[str]) -> None:
        """Answer the held pulls of deleted topics: a new topic of this name has other offsets."""
        deleted = [name for name in names if self._broker.topics.select(name) is None]
        if deleted:
            self.long_polling.end(deleted)

    def _check_held_pulls(self) -> None:
        with self.long_polling.guard:
            self.long_polling.check()
            self._check.check_slow_readers()

    # ------------------------------------------------------------ one pull

    def _run_again(self, pull: HeldPull) -> None:
        if not pull.request.connection.closed:
            self._pull(pull.request, may_hold=False)

    def _pull(self, request: PullRequest, *, may_hold: bool) -> None:
        try:
            self._pull_checked(request, may_hold)
        except RequestError as error:
            self._send(request, RemotingCommand.response(error.code, error.remark))
        except Exception as error:
            command = RemotingCommand(RequestCode.PULL_MESSAGE, write_header(request.header), opaque=request.opaque)
            self._send(request, self._dispatcher.answers.error_response(request.connection, command, error))

    def _pull_checked(self, request: PullRequest, may_hold: bool) -> None:
        header = request.header
        began = monotonic()
        group, message_filter = self._check.check(header, request.connection.address)
        result: GetResult = self._broker.store.get_messages(
            header.topic, header.queue_id, header.queue_offset, header.max_msg_nums, message_filter
        )
        took = monotonic() - began
        self._stats.get_times.add(took)
        took_ms = int(took * 1000)
        if took_ms:
            self._stats.get_took(took_ms)
        commits = may_hold and header.sys_flag & PULL_COMMIT_OFFSET and not self._is_slave
        if commits and header.commit_offset <= result.max_offset:  # as in UPDATE_CONSUMER_OFFSET
            self._broker.offsets.commit(
                request.connection.address, header.consumer_group, header.topic, header.queue_id, header.commit_offset
            )
        suggested = MASTER_ID
        if self._settings.slave_read_enable:
            suggested = group.which_broker_when_consume_slowly if result.suggest_pulling_from_slave else group.broker_id
        if result.status is _IS_FOUND:
            self._stats.found += 1
            self._stats.transferred += result.count
            self._broker_stats.count_gets(
                header.consumer_group, header.topic, header.queue_id, result.count, result.size, took_ms
            )
            if self._hooks.consume:
                self._call_hooks(request, ResponseCode.SUCCESS, result)
            self._send_found(request, result, suggested)
            return
        self._stats.missed += 1
        code = _CODE_OF.get(result.status)
        if code is None:
            code = ResponseCode.PULL_OFFSET_MOVED if header.queue_offset else ResponseCode.PULL_NOT_FOUND
        if code == ResponseCode.PULL_NOT_FOUND and may_hold and header.sys_flag & PULL_SUSPEND:
            self._hold(request, message_filter)
            return
        if code == ResponseCode.PULL_OFFSET_MOVED:
            code, suggested = self._offset_moved(request, result, group, suggested)
        if self._hooks.consume:
            self._call_hooks(request, code, result)
        fields = write_header(
            PullMessageResponseHeader(suggested, result.next_begin_offset, result.min_offset, result.max_offset)
        )
        self._send(request, RemotingCommand.response(code, result.status.value, fields))

    def _call_hooks(self, request: PullRequest, code: int, result: GetResult) -> None:
        header = request.header
        address = request.connection.address
        self._hooks.before_consume(
            ConsumeMessageContext(
                header.consumer_group, header.topic, header.queue_id, address, code, result.count, result.size
            )
        )

    def _hold(self, request: PullRequest, message_filter: MessageFilter) -> None:
        header = request.header
        settings = self._settings
        wait_ms = header.suspend_timeout_millis if settings.long_polling_enable else settings.short_polling_time_mills
        wait_ms = min(wait_ms, settings.max_suspend_timeout_millis)
        table = self.long_polling
        if not table.hold(HeldPull(request, message_filter, self._broker.clock_ms() + wait_ms)):
            self._dispatcher.limits.reached(
                "pulls refused",
                "{address}: a pull was refused: too many pulls wait",
                address=request.connection.address,
            )
            raise problems.HELD_PULLS_EXCEEDED.error(
                held=table.count, limit=table.max_held, limit_of_connection=table.max_of_connection
            )

    def _offset_moved(
        self,
        request: PullRequest,
        result: GetResult,
        group: SubscriptionGroupConfig,
        suggested: int,
    ) -> tuple[ResponseCode, int]:
        """Log and store that a consumer is moved to another offset. A slave leaves this to the master."""
        header = request.header
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
        """Store the oldest waiting event. Storage thread."""
        self._broker.store.put_messages([self._moved.popleft()])

    # ------------------------------------------------------------ answers

    def _send_found(self, request: PullRequest, result: GetResult, suggested: int) -> None:
        if request.serialize_type == JSON_TYPE:
            header = _FOUND % (
                suggested,
                result.next_begin_offset,
                result.min_offset,
                result.max_offset,
                request.opaque,
                own_version(),
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
