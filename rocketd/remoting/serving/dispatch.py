"""From frames to processors: maps codes to pools, and handles answers and errors.

Counterpart: `NettyRemotingAbstract.processRequestCommand` (Apache). ``dispatch`` runs in the thread that reads the
connection and only peeks at the code. Decoding, hooks and processors run in pool threads. A peer's response to one of
our own requests goes to the invoke layer.
"""

from collections.abc import Callable, Container, Iterable, Sequence
from functools import partial
from time import monotonic
from typing import Any, Protocol, cast
from weakref import WeakSet

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from rocketd.common.log_throttle import LogThrottle, ThrottledLog
from rocketd.remoting import problems
from rocketd.remoting.errors import FrameError, PluginError, RemotingCommandError, RequestError
from rocketd.remoting.interfaces import IConnection, IRequestContext, IRequestProcessor, IRPCHook
from rocketd.remoting.limits.address_guard import AddressGuard
from rocketd.remoting.limits.limit_log import LimitLog
from rocketd.remoting.serving.connection import Connection
from rocketd.remoting.serving.late_answers import LateAnswers
from rocketd.remoting.serving.plugin_calls import PluginCalls
from rocketd.remoting.serving.plugin_processor import PluginProcessor, ProcessorResultError, takes_jobs
from rocketd.remoting.serving.pools import Job, JobHandler, Pool
from rocketd.remoting.serving.turns import TurnKey, each_connection
from rocketd.remoting.wire.codes import JSON_TYPE, RequestCode, ResponseCode
from rocketd.remoting.wire.command import ONEWAY_FLAG, RESPONSE_FLAG, RemotingCommand, cannot_be_refused, peek
from rocketd.remoting.wire.frame import MAX_FRAME_LENGTH, Frame

_PREFIX_LENGTH = 12
_PREFIXES_LIMIT = 1024

_DECODE_POOL_BYTES = 8 << 20
"""Bytes of frames waiting for the decode pool: some seconds of its time at worst."""

_JOINED = 1 << 16
"""Size in bytes up to which the answers to one job are joined into one buffer."""
_WRITTEN_TOGETHER = 1 << 18
"""Bytes of answers written before the next request of the job is handled."""

_ONEWAY_LOST = "one-way requests lost"

Parts = Sequence[bytes | memoryview]
"""A frame as its buffers."""


class ResponseTaker(Protocol):
    """The invoke layer, as seen by the dispatcher."""

    def process_response(self, connection: Connection, response: RemotingCommand) -> None:
        """Complete the request of this answer. Reactor thread."""


@implementer(IRequestContext)
class RequestContext:
    """Context of a request. ``answer`` may be called from any thread, once."""

    __slots__ = ("_dispatcher", "connection", "is_answered", "is_counted", "received_ms", "request")

    def __init__(
        self, dispatcher: "Dispatcher", connection: Connection, request: RemotingCommand, received_ms: int
    ) -> None:
        self._dispatcher = dispatcher
        self.connection = connection
        self.request = request
        self.received_ms = received_ms
        self.is_answered = self.is_counted = False

    def answer(self, response: RemotingCommand) -> None:
        """Send the answer: run the hooks, then write it, unless the request was one-way."""
        parts = self._dispatcher.finish(self, response)
        if parts:
            self.connection.write(parts)
        self._dispatcher.late_answers.answered(self)

    def __del__(self) -> None:
        # An answer is impossible now. An object may be deleted while its thread has a lock.
        if self.is_counted:
            self._dispatcher.call_from_thread(self._dispatcher.late_answers.forget, self.connection)


class Dispatcher:
    """The table of processors, and the way of a request through it.

    ``register`` is used before the server starts, ``dispatch`` in the reactor thread and the lanes, ``finish`` and the
    handlers in pool threads. ``clock`` returns the seconds used for ``received_ms``.
    """

    log = Logger()

    def __init__(
        self,
        call_from_thread: Callable[..., Any],
        hooks: Iterable[IRPCHook] = (),
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.hooks: tuple[Any, ...] = tuple(hooks)
        self.call_from_thread = call_from_thread
        self.responses: ResponseTaker | None = None
        self.limits = LimitLog(self.log, clock)
        self.peer_log = ThrottledLog(self.log, LogThrottle(clock))
        """For lines that a peer can cause at any rate."""
        self.slowest_step: Callable[[], str] = str
        """Returns the slowest step that requests recently waited for, with its measured time, "" if unknown."""
        self.clock = clock
        self._pools: dict[str, Pool] = {}
        self._started = False
        self._lanes: dict[int, tuple[Pool, JobHandler]] = {}
        self._lanes_by_prefix: dict[bytes, tuple[Pool, JobHandler]] = {}
        self._commands: dict[str, CommandHandler] = {}
        self._plugins: list[PluginProcessor] = []
        self.plugin_calls = PluginCalls(clock)
        """The running calls into third-party code."""
        self.plugin_stop_seconds = 10.0
        self.longest_answer = MAX_FRAME_LENGTH
        """Maximum bytes of an answer."""
        self._given_up: WeakSet[Connection] = WeakSet()
        self._guards: dict[int, AddressGuard] = {}
        self._per_connection: int | None = None
        self.late_answers = LateAnswers(call_from_thread, self.limits)
        self.decode_pool = Pool(
            "decode",
            call_from_thread=call_from_thread,
            max_bytes=_DECODE_POOL_BYTES,
            turns=each_connection,
            limits=self.limits,
        )
        self._odd = self.decode_pool, _OddFrames(self, self.decode_pool)

    # ------------------------------------------------------------ set-up

    def add_pool(
        self,
        name: str,
        *,
        threads: int = 1,
        max_requests: int = 10_000,
        max_bytes: int = 64 << 20,
        turns: TurnKey | None = None,
    ) -> Pool:
        """Add a named pool. It starts at once if the others run. ``turns`` makes connections take turns in it."""
        pool = Pool(
            name,
            call_from_thread=self.call_from_thread,
            threads=threads,
            max_requests=max_requests,
            max_bytes=max_bytes,
            turns=turns,
            limits=self.limits,
        )
        if self._per_connection is not None:
            pool.max_per_connection = self._per_connection
        self._pools[name] = pool
        if self._started:
            pool.start()
        return pool

    def pool(self, name: str) -> Pool:
        """Return the pool of that name. An unknown one is created with one thread."""
        return self._pools.get(name) or self.add_pool(name)

    def limit_connections(self, requests: int) -> None:
        """Limit the unanswered requests of each connection: in each pool, and those that are answered later."""
        self._per_connection = self.late_answers.max_per_connection = requests
        for pool in self._all_pools():
            pool.max_per_connection = requests

    @property
    def queued_bytes(self) -> int:
        """Bytes of the requests in all pools."""
        return sum([pool.queued_bytes + pool.held_bytes for pool in self._all_pools()])

    @property
    def pools(self) -> dict[str, Pool]:
        """All pools by name."""
        return self._pools

    def handles(self, code: int) -> bool:
        """Whether a processor is registered for a code."""
        return code in self._lanes

    def guard(self, codes: Iterable[int], guard: AddressGuard) -> None:
        """Put a guard before the processors of some codes, for registrations from now on."""
        self._guards.update(dict.fromkeys(codes, guard))

    def refused_by_address(self) -> dict[str, int]:
        """Return the number of requests refused by each guard, by the name of its counter. Any thread."""
        return {guard.counter: guard.refused for guard in self._guards.values()}

    def register(self, code: int, processor: object, pool_name: str) -> None:
        """Register a processor for a code in a pool.

        Raises:

        - ValueError if the code is taken, or if its requests are guarded and the processor takes whole jobs,
        - TypeError if the processor provides neither IJobProcessor nor IRequestProcessor.
        """
        if self.handles(code):
            raise ValueError(f"request code {code} already has a processor")
        if isinstance(processor, PluginProcessor) and processor not in self._plugins:
            self._plugins.append(processor)
        if takes_jobs(processor):
            if code in self._guards:
                raise ValueError(
                    f"request code {code} is accepted from some addresses only: use process, not process_jobs"
                )
            handler = cast(JobHandler, processor)
        else:
            # One for each pool: a header that names two codes must not run a processor in another pool's thread.
            commands = self._commands.setdefault(pool_name, CommandHandler(self, self.pool(pool_name)))
            guard = self._guards.get(code)
            commands.processors[code] = IRequestProcessor(processor) if guard is None else guard.before(processor)
            handler = commands
        self._lanes[code] = (self.pool(pool_name), handler)

    def start(self) -> None:
        """Start all pools."""
        self._started = True
        self.plugin_calls.start()
        for pool in self._all_pools():
            pool.start()

    def stop(self) -> None:
        """Finish queued requests and stop all pools. Blocks: do not call it in the reactor thread.

        Calls into plugins still running after ``plugin_stop_seconds`` are logged and abandoned.
        """
        self._started = False
        self.begin_stop()
        calls = self.plugin_calls
        self.decode_pool.stop()
        for pool in self._pools.values():
            pool.stop(lambda thread: calls.is_stuck((thread.ident,)))
        if not calls.wait():
            for plugin in self._plugins:
                self.call_from_thread(plugin.cancel)

    def begin_stop(self) -> None:
        """Give plugins ``plugin_stop_seconds`` from now on. Call it before ``stop`` if other parts are stopped first."""
        self.plugin_calls.begin_stop(self.plugin_stop_seconds)

    def connection_lost(self, connection: Connection) -> None:
        """Forget the requests of a closed connection waiting for plugins. Reactor thread."""
        self.plugin_calls.connection_lost(connection)

    def _all_pools(self) -> list[Pool]:
        return [self.decode_pool, *self._pools.values()]

    # ------------------------------------------------------------ threads that read connections

    def dispatch(self, connection: Connection, frames: list[Frame]) -> None:
        """Submit the frames of one read to their pools, one job for each handler. Raises FrameError for a bad header."""
        received_ms = int(self.clock() * 1000)
        first = self._lane(frames[0])
        if len(frames) == 1 or (first is not None and self._is_lane_of_all(first, frames)):
            self._submit(first, connection, frames, received_ms)
            return
        groups: dict[Any, list[Frame]] = {}
        for frame in frames:
            groups.setdefault(self._lane(frame), []).append(frame)
        for lane, group in groups.items():
            self._submit(lane, connection, group, received_ms)

    def _is_lane_of_all(self, lane: tuple[Pool, JobHandler], frames: list[Frame]) -> bool:
        """Return whether all frames have the lane of the first one."""
        serialize_type, header, _ = frames[0]
        prefix = header[:_PREFIX_LENGTH]
        for frame in frames:
            # JSON headers with equal beginnings have the same lane. Clients mostly send one kind of request.
            same = frame[0] == serialize_type == JSON_TYPE and frame[1][:_PREFIX_LENGTH] == prefix
            if not same and self._lane(frame) is not lane:
                return False
        return True

    def _lane(self, frame: Frame) -> tuple[Pool, JobHandler] | None:
        serialize_type, header, _ = frame
        if serialize_type == JSON_TYPE:
            prefix = header[:_PREFIX_LENGTH]
            lane = self._lanes_by_prefix.get(prefix)
            return lane if lane is not None else self._lane_of_new_prefix(prefix)
        return self._lanes.get(int.from_bytes(header[:2], "big"))

    def _lane_of_new_prefix(self, prefix: bytes) -> tuple[Pool, JobHandler] | None:
        """Find the code in a header that begins like those of Java and Go. All others are decoded first."""
        if not prefix.startswith(b'{"code":'):
            return None
        digits, comma, _ = prefix[8:].partition(b",")
        lane = self._lanes.get(int(digits)) if comma and digits.isdigit() else None
        if lane is not None and len(self._lanes_by_prefix) < _PREFIXES_LIMIT:
            self._lanes_by_prefix[prefix] = lane
        return lane

    def _submit(
        self,
        lane: tuple[Pool, JobHandler] | None,
        connection: Connection,
        frames: list[Frame],
        received_ms: int,
    ) -> None:
        if lane is None:
            frames = self._without_responses(connection, frames)
            if not frames:
                return
            lane = self._odd
        pool, handler = lane
        if pool.threads > 1 and len(frames) > 1:
            # The threads share the requests of one connection, too.
            for frame in frames:
                self._submit(lane, connection, [frame], received_ms)
            return
        job = Job(handler, connection, frames, received_ms)
        loop = pool.loop
        if loop is not None:
            if loop.takes(job):
                return
            if connection.lane is None:
                loop.attract(connection)
        if pool.refusal is not None and (refusal := pool.refusal()) is not None:
            refused, oneway = job.split(cannot_be_refused)
            self.refuse(refused, refusal, pool.name)
            if oneway is None:
                return
            job = oneway
        if not pool.submit(job):
            self._submit_singly(pool, job)

    def _submit_singly(self, pool: Pool, job: Job) -> None:
        """Submit those frames of a job that fit into the pool. The others are refused, or held if one-way."""
        kept: list[Frame] = []
        for frame in job.frames:
            oneway = cannot_be_refused(frame)
            if oneway and kept:  # keeps their order
                kept.append(frame)
                continue
            single = Job(job.handler, job.connection, [frame], job.received_ms)
            if len(job.frames) > 1 and pool.submit(single):
                continue
            if oneway:
                kept.append(frame)
            else:
                self.refuse(single, _pool_full(pool), pool.name)
        if kept and not pool.hold(Job(job.handler, job.connection, kept, job.received_ms)):
            self.oneway_lost(
                len(kept), f"the {pool.name} pool and the connections that wait for it are full", "pool-full"
            )

    def _without_responses(self, connection: Connection, frames: list[Frame]) -> list[Frame]:
        """Handle the ordinary responses among frames without a peeked code, and return the other frames."""
        rest = []
        for frame in frames:
            response = RemotingCommand.decode_response(frame)
            if response is None:
                rest.append(frame)
            else:
                connection.call_reactor(self.take_response, connection, response)
        return rest

    def lane_of(self, code: int) -> tuple[Pool, JobHandler] | None:
        """Return pool and handler of a code. Any thread."""
        return self._lanes.get(code)

    def submit_decoded(
        self, connection: Connection, groups: Sequence[tuple[tuple[Pool, JobHandler], list[Frame]]], received_ms: int
    ) -> None:
        """Submit frames whose codes were found by the decode pool."""
        for lane, frames in groups:
            self._submit(lane, connection, frames, received_ms)

    def resubmit(self, pool: Pool, job: Job, then: Callable[[], None]) -> None:
        """Submit parked requests again, and call a function after them."""
        if not pool.submit(job) and not pool.hold(job):
            self.refuse(job, _pool_full(pool), pool.name)
        pool.call(then, job.connection)

    def not_supported(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Log and refuse a request with an unknown code. Any thread."""
        error = problems.CODE_NOT_SUPPORTED.error(code=request.code)
        self.peer_log.error("code not supported", "{address}:{remark}", address=connection.address, remark=error.remark)
        if request.is_oneway:
            self._count_lost(problems.reason_of(error))
        return RemotingCommand.response(error.code, error.remark).answering(request)

    def refuse(self, job: Job, error: RequestError, pool: str = "") -> None:
        """Refuse all requests of a job that will not be handled by a pool thread. Threads that read connections."""
        connection = job.connection
        # A queue may keep the job as long as its threads are held up.
        frames, job.frames = job.frames, []
        answers = []
        for frame in frames:
            try:
                flag, opaque = peek(frame) or _peek_slowly(frame)
                if flag & RESPONSE_FLAG:
                    connection.call_reactor(self.take_response, connection, RemotingCommand.decode(frame))
                elif flag & ONEWAY_FLAG:
                    self.oneway_lost(1, error.remark, problems.reason_of(error))
                else:
                    answer = RemotingCommand.response(error.code, error.remark)
                    answer.opaque, answer.serialize_type = opaque, frame[0]
                    answers.append(answer.encode())
            except Exception as fault:
                if self.frame_failed(connection, fault):
                    break
        if answers:
            connection.write((b"".join(answers),))
            if error.code == ResponseCode.SYSTEM_BUSY:
                self.was_busy(pool, error, len(answers))

    def was_busy(self, pool: str, error: RequestError, count: int = 1) -> None:
        """Count requests of a pool refused with SYSTEM_BUSY, and log it once a minute. Any thread."""
        step = self.slowest_step()
        self.limits.reached(
            f"requests refused as busy, pool {pool}",
            "requests are refused with SYSTEM_BUSY: {why}" + ("; slowest step: {step}" if step else ""),
            count,
            why=error.remark,
            step=step,
        )

    def count_unhandled(self) -> None:
        """Count the one-way requests that arrived after the pools had stopped. Reactor thread only."""
        for pool in self._all_pools():
            lost = sum([cannot_be_refused(frame) for job in pool.left_over() for frame in job.frames])
            if lost:
                self.oneway_lost(lost, "the server stops", "server-stops")

    def oneway_lost(self, count: int, why: str, reason: str) -> None:
        """Count one-way requests that were not handled, in all and by reason, a constant. Any thread.

        ``why`` is logged once a minute for each reason.
        """
        self.limits.count(_lost_for(reason), count)
        self.limits.reached(_ONEWAY_LOST, "one-way requests are lost: {why}", count, cause=reason, why=why)

    def _count_lost(self, reason: str) -> None:
        """Count a one-way request that was not handled, after a log line about it."""
        self.limits.count(_lost_for(reason))
        self.limits.count(_ONEWAY_LOST)

    def _oneway_failed(self, request: RemotingCommand, response: RemotingCommand, reason: str) -> None:
        """Count and log a refused one-way request. Heartbeats are not counted, because clients repeat them."""
        if request.code != RequestCode.HEART_BEAT:
            self.oneway_lost(1, f"request code {request.code}: {response.remark}", reason)

    def take_response(self, connection: Connection, response: RemotingCommand) -> None:
        """Pass a peer's response to the invoke layer. Reactor thread."""
        if self.responses is not None:
            self.responses.process_response(connection, response)
        else:
            self.peer_log.warn(
                "response to no request",
                "{address}: a response without a request: {response}",
                address=connection.address,
                response=response,
            )

    # ------------------------------------------------------------ pool threads

    def decode_request(self, connection: Connection, frame: Frame, codes: Container[int]) -> RemotingCommand | None:
        """Decode a request of one of the given codes. Raises FrameError if the header is not a command.

        Return None if it is a response, or if it has another code. Then its header names two codes, and ``dispatch``
        has read the other one: such a request is refused here.
        """
        request = RemotingCommand.decode(frame)
        if request.is_response:
            self.call_from_thread(self.take_response, connection, request)
            return None
        if request.code not in codes:
            response = self.not_supported(connection, request)
            if not request.is_oneway:
                connection.send(response)
            return None
        return request

    def run_hooks(self, connection: IConnection, request: RemotingCommand) -> None:
        """Show a request to all hooks. Raises the error of the hook that refuses it."""
        for hook in self.hooks:
            hook.before_request(connection.address, request)

    def finish(self, context: RequestContext, response: RemotingCommand | None) -> Parts:
        """Run the after-hooks and encode the response. Return () if nothing is sent.

        An answer that no client can read would end the connection, with the other requests of the client.
        """
        request = context.request
        for hook in self.hooks:
            hook.after_response(context.connection.address, request, response)
        if response is None:
            return ()
        if request.is_oneway:
            if response.code != ResponseCode.SUCCESS:
                self._oneway_failed(request, response, problems.reason_of(response))
            return ()
        parts = response.answering(request).encode_parts()
        if len(parts) > 1 and (size := sum(map(len, parts))) > self.longest_answer:
            refusal = problems.ANSWER_TOO_LONG.error(code=request.code, size=size, limit=self.longest_answer)
            return self.fail(context.connection, request, refusal)
        return parts

    def fail(self, connection: Connection, request: RemotingCommand, error: Exception) -> Parts:
        """Encode the answer to a request whose handling raised. A one-way request is counted as lost. Any thread."""
        response = self.error_response(connection, request, error)
        if request.is_oneway:
            if isinstance(error, RequestError):
                self._oneway_failed(request, response, problems.reason_of(error))
            elif request.code != RequestCode.HEART_BEAT:
                self._count_lost(problems.PROCESSOR_FAILED.id)
            return ()
        return response.answering(request).encode_parts()

    def frame_failed(self, connection: Connection, error: Exception) -> bool:
        """Log the exception of a frame's handling. Return whether its connection closes, with the rest of its job.

        Bytes that are not a frame close the connection. Any other exception must not cost other requests their answers.
        A request over a limit is answered if its opaque is known, because Apache's server answers it as well.
        """
        if isinstance(error, FrameError):
            self.log_bad_frame(connection, error)
            if error.command is not None and not error.command.is_response:
                refusal = problems.HEADER_REFUSED.error(code=error.command.code, why=error)
                if parts := self.fail(connection, error.command, refusal):
                    connection.write(parts)
                return False
            self._given_up.add(connection)
            connection.close()
            return True
        self.peer_log.failure(
            f"no answer: {type(error).__name__}", "{address}: no answer", Failure(error), address=connection.address
        )
        return False

    def gave_up(self, connection: Connection) -> bool:
        """Return whether a request of the connection was unreadable. It closes, and its other requests are dropped. Any
        thread.
        """
        return connection in self._given_up

    def log_bad_frame(self, connection: Connection, error: FrameError) -> None:
        """Log why a connection closes, and count it if the reason is a limit. Any thread."""
        if error.limit:
            self.limits.reached(error.limit, "{address}: refused: {error}", address=connection.address, error=error)
        else:
            self.peer_log.warn("bad frame", "{address}: closing: {error}", address=connection.address, error=error)

    def error_response(
        self, connection: IConnection, request: RemotingCommand, error: BaseException
    ) -> RemotingCommand:
        """Turn a processor's exception into a response. All except refusals are logged, once."""
        if isinstance(error, RequestError):
            return RemotingCommand.response(error.code, error.remark)
        if isinstance(error, PluginError):
            error = error.error
        elif isinstance(error, RemotingCommandError):
            self.peer_log.warn(
                f"unreadable request {request.code}",
                "{address}: {request}: {error}",
                address=connection.address,
                request=request,
                error=error,
            )
            return RemotingCommand.response(ResponseCode.SYSTEM_ERROR, _encodable(error))
        if isinstance(error, ProcessorResultError):
            self.peer_log.error(
                f"wrong result of {request.code}", "{address}: {error}", address=connection.address, error=error
            )
        else:
            self.peer_log.failure(
                f"failed request {request.code}: {type(error).__name__}",
                "{address}: {request} failed",
                Failure(error),
                address=connection.address,
                request=request,
            )
        failed = problems.PROCESSOR_FAILED.error(code=request.code)
        return RemotingCommand.response(failed.code, failed.remark)


def fields_hooks(hooks: Iterable[IRPCHook]) -> list[Callable[..., None]] | None:
    """Return the hooks' functions for the hot paths, None if a hook needs the command."""
    functions = [getattr(hook, "before_fields", None) for hook in hooks]
    found = [function for function in functions if function is not None]
    return found if len(found) == len(functions) else None


def _lost_for(reason: str) -> str:
    return f"{_ONEWAY_LOST}, {reason}"


def _peek_slowly(frame: Frame) -> tuple[int, int]:
    request = RemotingCommand.decode(frame)
    return request.flag, request.opaque


def _pool_full(pool: Pool) -> RequestError:
    return problems.POOL_FULL.error(
        pool=pool.name,
        queued=pool.queued_requests,
        limit=pool.max_requests,
        queued_bytes=pool.queued_bytes,
        limit_bytes=pool.max_bytes,
    )


def _encodable(error: BaseException) -> str:
    """Return an error's text without characters invalid in UTF-8: file names may have lone surrogates."""
    return str(error).encode("utf-8", "replace").decode()


class CommandHandler:
    """Runs ordinary processors: decodes each frame, calls hooks and processor, sends the answers. Pool threads."""

    def __init__(self, dispatcher: Dispatcher, pool: Pool | None = None) -> None:
        """``pool`` is the pool that runs it, None if another handler calls it."""
        self.processors: dict[int, IRequestProcessor] = {}
        self._dispatcher = dispatcher
        self._pool = pool

    def process_jobs(self, jobs: Sequence[Job]) -> None:
        """Handle every frame of the jobs. Requests of a connection that does not read its answers are parked."""
        for job in jobs:
            answer_job(self._dispatcher, self._pool, job, self.process_frame)

    def process_frame(self, connection: Connection, frame: Frame, received_ms: int) -> Parts:
        """Handle one frame. Return the encoded answer, () if there is none now."""
        request = self._dispatcher.decode_request(connection, frame, self.processors)
        if request is None:
            return ()
        return self._process_command(connection, request, received_ms, self.processors[request.code])

    def _process_command(
        self, connection: Connection, request: RemotingCommand, received_ms: int, processor: IRequestProcessor
    ) -> Parts:
        dispatcher = self._dispatcher
        context = RequestContext(dispatcher, connection, request, received_ms)
        try:
            dispatcher.run_hooks(connection, request)
            response = processor.process(request, context)
            if isinstance(response, Deferred):
                dispatcher.late_answers.kept(context)
                dispatcher.call_from_thread(self._answer_later, response, context)
                return ()
            if response is None:
                if not request.is_oneway:
                    dispatcher.late_answers.kept(context)
                return ()
            return dispatcher.finish(context, response)
        except Exception as error:
            return dispatcher.fail(connection, request, error)

    def _answer_later(self, response: Deferred[RemotingCommand], context: RequestContext) -> None:
        def failed(failure: Failure) -> RemotingCommand:
            error = failure.value or RuntimeError("failed without an error")
            return self._dispatcher.error_response(context.connection, context.request, error)

        def done(answer: RemotingCommand | None) -> None:
            if answer is not None:  # None: a plugin keeps the context
                context.answer(answer)

        response.addErrback(failed)
        response.addCallback(done)
        response.addErrback(
            lambda failure: self._dispatcher.peer_log.failure(
                "no answer",
                "{address}: {request}: no answer",
                failure,
                address=context.connection.address,
                request=context.request,
            )
        )


class _OddFrames:
    """Decodes frames with an unusual header or an unknown code. Thread of the decode pool."""

    def __init__(self, dispatcher: Dispatcher, pool: Pool) -> None:
        self._dispatcher = dispatcher
        self._pool = pool

    def process_jobs(self, jobs: Sequence[Job]) -> None:
        """Submit every frame to the pool of its code, or answer it."""
        for job in jobs:
            if self._dispatcher.gave_up(job.connection):
                continue
            if job.connection.behind and park(self._dispatcher, self._pool, job, 0):
                continue
            self._process(job)

    def _process(self, job: Job) -> None:
        dispatcher, connection = self._dispatcher, job.connection
        answers: list[bytes | memoryview] = []
        groups: list[tuple[tuple[Pool, JobHandler], list[Frame]]] = []
        for frame in job.frames:
            try:
                command = RemotingCommand.decode(frame)
            except FrameError as error:
                if dispatcher.frame_failed(connection, error):
                    break
                continue
            lane = dispatcher.lane_of(command.code)
            if command.is_response:
                dispatcher.call_from_thread(dispatcher.take_response, connection, command)
            elif lane is None:
                response = dispatcher.not_supported(connection, command)
                if not command.is_oneway:
                    answers += response.encode_parts()
            elif groups and groups[-1][0] is lane:
                groups[-1][1].append(frame)
            else:
                groups.append((lane, [frame]))
        if answers:
            connection.write((b"".join(answers),))
        if groups:
            dispatcher.call_from_thread(dispatcher.submit_decoded, connection, groups, job.received_ms)


def answer_job(
    dispatcher: Dispatcher, pool: Pool | None, job: Job, answer: Callable[[Connection, Frame, int], Parts]
) -> None:
    """Write the answer to each frame of a job, many with one write. Pool threads.

    As soon as the connection is behind with reading, the rest of the job is parked in ``pool``, if that is given.
    """
    connection = job.connection
    if dispatcher.gave_up(connection):
        return
    answers: list[bytes | memoryview] = []
    size = 0
    written = True
    for index, frame in enumerate(job.frames):
        if written:
            written = False
            if connection.behind and pool is not None and park(dispatcher, pool, job, index):
                break
        try:
            parts = answer(connection, frame, job.received_ms)
        except Exception as error:
            if dispatcher.frame_failed(connection, error):
                break
            continue
        answers += parts
        size += sum(map(len, parts))
        if size > _WRITTEN_TOGETHER:
            connection.write(answers)
            answers = []
            size = 0
            written = True
    if answers:
        connection.write(answers if size > _JOINED or len(answers) == 1 else (b"".join(answers),))


def park(dispatcher: Dispatcher, pool: Pool, job: Job, index: int) -> bool:
    """Park the requests of a job from ``index`` on until their connection has taken its answers. Pool threads.

    Return False if the connection has already taken them.
    """
    rest = Job(job.handler, job.connection, job.frames[index:], job.received_ms)
    parked: bool = job.connection.park(partial(dispatcher.resubmit, pool, rest))
    return parked
