"""From frames to processors: which code goes to which pool, and what becomes of its answer or error.

Answers to Apache's NettyRemotingAbstract.processRequestCommand. ``dispatch`` runs in the reactor thread and only peeks
at the code; decoding, hooks and processors run in the pool's threads. A response that a peer sends to one of our own
requests goes to the invoke layer.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from time import monotonic
from typing import Any, Protocol

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from rocketd.common.log_throttle import LogThrottle, ThrottledLog
from rocketd.remoting import problems
from rocketd.remoting.address_guard import AddressGuard
from rocketd.remoting.codes import ResponseCode, SerializeType
from rocketd.remoting.command import ONEWAY_FLAG, RESPONSE_FLAG, RemotingCommand, cannot_be_refused, peek
from rocketd.remoting.connection import Connection
from rocketd.remoting.errors import FrameError, RemotingCommandError, RequestError
from rocketd.remoting.frame import Frame
from rocketd.remoting.interfaces import IRequestContext, IRequestProcessor, IRPCHook
from rocketd.remoting.limit_log import LimitLog
from rocketd.remoting.plugin_processor import PluginProcessor, ProcessorResultError
from rocketd.remoting.pools import Job, JobHandler, Pool

_PREFIX_LENGTH = 12
_PREFIXES_LIMIT = 1024

_DECODE_POOL_BYTES = 8 << 20
"""Bytes of frames that wait for the decode pool: some seconds of its time at the worst."""

_JOINED = 1 << 16
"""Bytes up to which the answers to one job become one buffer."""
_WRITTEN_TOGETHER = 1 << 18
"""Bytes of answers that are written before the next request of the job is looked at."""

Parts = Sequence[bytes | memoryview]
"""A frame, as the buffers it is made of."""


class ResponseTaker(Protocol):
    """The invoke layer, as the dispatcher sees it."""

    def process_response(self, connection: Any, response: RemotingCommand) -> None:
        """Complete the request that this answers. Reactor thread."""


@implementer(IRequestContext)
class RequestContext:
    """What goes with a request. ``answer`` may be called from any thread, once."""

    __slots__ = ("_dispatcher", "connection", "received_ms", "request")

    def __init__(
        self, dispatcher: "Dispatcher", connection: Connection, request: RemotingCommand, received_ms: int
    ) -> None:
        self._dispatcher = dispatcher
        self.connection = connection
        self.request = request
        self.received_ms = received_ms

    def answer(self, response: RemotingCommand) -> None:
        """Send the answer: hooks, then the wire, unless the request was one-way."""
        parts = self._dispatcher.finish(self, response)
        if parts:
            self.connection.write(parts)


class Dispatcher:
    """The table of processors and the way of a request through it.

    ``register`` is used before the server starts; ``dispatch`` in the reactor thread; ``finish`` and the handlers in the
    pools' threads. ``clock`` gives the seconds of which ``received_ms`` are made.
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
        """Names what requests waited for lately, with its measured time; "" if that is not known."""
        self.clock = clock
        self._pools: dict[str, Pool] = {}
        self._started = False
        self._lanes: dict[int, tuple[Pool, JobHandler]] = {}
        self._lanes_by_prefix: dict[bytes, tuple[Pool, JobHandler]] = {}
        self._commands: dict[str, CommandHandler] = {}
        self._plugins: list[tuple[str, PluginProcessor]] = []
        """The processors of third parties, with the names of their pools."""
        self.plugin_stop_seconds = 10.0
        self._guards: dict[int, AddressGuard] = {}
        self._per_connection: int | None = None
        self._decode_pool = Pool("decode", call_from_thread=call_from_thread, max_bytes=_DECODE_POOL_BYTES)
        self._odd = self._decode_pool, _OddFrames(self, self._decode_pool)

    # ------------------------------------------------------------ set-up

    def add_pool(self, name: str, *, threads: int = 1, max_requests: int = 10_000, max_bytes: int = 64 << 20) -> Pool:
        """Make a named pool; it runs at once if the others do."""
        pool = Pool(
            name,
            call_from_thread=self.call_from_thread,
            threads=threads,
            max_requests=max_requests,
            max_bytes=max_bytes,
        )
        if self._per_connection is not None:
            pool.max_per_connection = self._per_connection
        self._pools[name] = pool
        if self._started:
            pool.start()
        return pool

    def pool(self, name: str) -> Pool:
        """Return the pool of that name; an unknown one is made, with one thread."""
        return self._pools.get(name) or self.add_pool(name)

    def limit_connections(self, requests: int) -> None:
        """Limit the unanswered requests of each connection in each pool."""
        self._per_connection = requests
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
        """Put a guard before the processors of some codes that are registered from now on."""
        self._guards.update(dict.fromkeys(codes, guard))

    def refused_by_address(self) -> dict[str, int]:
        """Count what each guard has refused, by the name of its counter. Any thread."""
        return {guard.counter: guard.refused for guard in self._guards.values()}

    def register(self, code: int, processor: Any, pool_name: str) -> None:
        """Let a processor handle a code in a pool.

        Raises ValueError when the code is taken or its requests are guarded and the processor takes whole jobs,
        TypeError when the processor provides no IRequestProcessor.
        """
        if self.handles(code):
            raise ValueError(f"request code {code} has a processor already")
        if isinstance(processor, PluginProcessor) and (pool_name, processor) not in self._plugins:
            self._plugins.append((pool_name, processor))
        if hasattr(processor, "process_jobs"):
            if code in self._guards:
                raise ValueError(
                    f"request code {code} is taken from some addresses only: use process, not process_jobs"
                )
            handler: JobHandler = processor
        else:
            # One for each pool: a header that names two codes must not have a processor run in another pool's thread.
            commands = self._commands.setdefault(pool_name, CommandHandler(self, self.pool(pool_name)))
            guard = self._guards.get(code)
            commands.processors[code] = IRequestProcessor(processor) if guard is None else guard.before(processor)
            handler = commands
        self._lanes[code] = (self.pool(pool_name), handler)

    def start(self) -> None:
        """Start all pools."""
        self._started = True
        for pool in self._all_pools():
            pool.start()

    def stop(self) -> None:
        """Finish what is queued and stop all pools. Blocks: not in the reactor thread.

        Plugins that have not answered after ``plugin_stop_seconds`` are named in the log, and not waited for any longer.
        """
        self._started = False
        self._decode_pool.stop()
        deadline = self.clock() + self.plugin_stop_seconds
        for pool in self._pools.values():
            plugins = [plugin for name, plugin in self._plugins if name == pool.name]
            pool.stop(partial(self._is_stuck, plugins, deadline) if plugins else None)
        for _, plugin in self._plugins:
            if plugin.wait(max(0.0, deadline - self.clock())):
                continue
            for busy in plugin.busy():
                self.log.error("{busy}; the server stops without its answer", busy=str(busy))
            self.call_from_thread(plugin.cancel)

    def _all_pools(self) -> list[Pool]:
        return [self._decode_pool, *self._pools.values()]

    def _is_stuck(self, plugins: Sequence[PluginProcessor], deadline: float) -> bool:
        """Whether the time is over and a thread still runs a plugin."""
        return self.clock() >= deadline and any(plugin.busy() for plugin in plugins)

    # ------------------------------------------------------------ reactor thread

    def dispatch(self, connection: Connection, frames: list[Frame]) -> None:
        """Hand the frames of one read to their pools, one job for each handler. Raises FrameError for a bad header."""
        received_ms = int(self.clock() * 1000)
        first = self._lane(frames[0])
        if len(frames) == 1 or (first is not None and all(self._lane(frame) is first for frame in frames)):
            self._submit(first, connection, frames, received_ms)
            return
        groups: dict[Any, list[Frame]] = {}
        for frame in frames:
            groups.setdefault(self._lane(frame), []).append(frame)
        for lane, group in groups.items():
            self._submit(lane, connection, group, received_ms)

    def _lane(self, frame: Frame) -> tuple[Pool, JobHandler] | None:
        serialize_type, header, _ = frame
        if serialize_type == SerializeType.JSON:
            prefix = header[:_PREFIX_LENGTH]
            lane = self._lanes_by_prefix.get(prefix)
            return lane if lane is not None else self._lane_of_new_prefix(prefix)
        return self._lanes.get(int.from_bytes(header[:2], "big"))

    def _lane_of_new_prefix(self, prefix: bytes) -> tuple[Pool, JobHandler] | None:
        """Find the code in a header that begins as Java's and Go's do; all others are decoded first."""
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
        job = Job(handler, connection, frames, received_ms)
        if pool.refusal is not None and (refusal := pool.refusal()) is not None:
            refused, oneway = job.split(cannot_be_refused)
            self.refuse(refused, refusal, pool.name)
            if oneway is None:
                return
            job = oneway
        if not pool.submit(job):
            self._submit_singly(pool, job)

    def _submit_singly(self, pool: Pool, job: Job) -> None:
        """Hand over those frames of a job that the pool has room for. The others are refused, or held if one-way."""
        kept: list[Frame] = []
        for frame in job.frames:
            oneway = cannot_be_refused(frame)
            if oneway and kept:  # in their order
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
            self._oneway_lost(len(kept), f"the {pool.name} pool and the connections that wait for it are full")

    def _without_responses(self, connection: Connection, frames: list[Frame]) -> list[Frame]:
        """Take the ordinary responses out of frames whose code could not be peeked, and return the others."""
        rest = []
        for frame in frames:
            response = RemotingCommand.decode_response(frame)
            if response is None:
                rest.append(frame)
            else:
                self.take_response(connection, response)
        return rest

    def lane_of(self, code: int) -> tuple[Pool, JobHandler] | None:
        """Return pool and handler of a code. Any thread."""
        return self._lanes.get(code)

    def submit_decoded(
        self, connection: Connection, groups: Sequence[tuple[tuple[Pool, JobHandler], list[Frame]]], received_ms: int
    ) -> None:
        """Hand frames over whose codes the decode pool has found."""
        for lane, frames in groups:
            self._submit(lane, connection, frames, received_ms)

    def resubmit(self, pool: Pool, job: Job, then: Callable[[], None]) -> None:
        """Hand parked requests over once more, and run a function after them."""
        if not pool.submit(job) and not pool.hold(job):
            self.refuse(job, _pool_full(pool), pool.name)
        pool.call(then)

    def not_supported(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Log and refuse a request whose code nobody handles. Any thread."""
        error = problems.CODE_NOT_SUPPORTED.error(code=request.code)
        self.peer_log.error("code not supported", "{address}:{remark}", address=connection.address, remark=error.remark)
        return RemotingCommand.response(error.code, error.remark).answering(request)

    def refuse(self, job: Job, error: RequestError, pool: str = "") -> None:
        """Answer all requests of a job that no thread of a pool will handle. Reactor thread only."""
        connection = job.connection
        # A queue may keep the job for as long as its threads are held up.
        frames, job.frames = job.frames, []
        answers = []
        for frame in frames:
            try:
                flag, opaque = peek(frame) or _peek_slowly(frame)
                if flag & RESPONSE_FLAG:
                    self.take_response(connection, RemotingCommand.decode(frame))
                elif flag & ONEWAY_FLAG:
                    self._oneway_lost(1, error.remark)
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
        """Count requests of a pool that were refused with SYSTEM_BUSY, and log that once a minute. Any thread."""
        step = self.slowest_step()
        self.limits.reached(
            f"requests refused as busy, pool {pool}",
            "requests are refused with SYSTEM_BUSY: {why}" + ("; slowest step: {step}" if step else ""),
            count,
            why=error.remark,
            step=step,
        )

    def count_unhandled(self) -> None:
        """Count the one-way requests that came after the pools had stopped. Reactor thread only."""
        for pool in self._all_pools():
            lost = sum([cannot_be_refused(frame) for job in pool.left_over() for frame in job.frames])
            if lost:
                self._oneway_lost(lost, "the server stops")

    def _oneway_lost(self, count: int, why: str) -> None:
        self.limits.reached("one-way requests lost", "one-way requests are lost: {why}", count, why=why)

    def take_response(self, connection: Connection, response: RemotingCommand) -> None:
        """Give a peer's response to the invoke layer."""
        if self.responses is not None:
            self.responses.process_response(connection, response)
        else:
            self.peer_log.warn(
                "response to no request",
                "{address}: a response to no request: {response}",
                address=connection.address,
                response=response,
            )

    # ------------------------------------------------------------ pool threads

    def finish(self, context: RequestContext, response: RemotingCommand | None) -> Parts:
        """Run the after-hooks and encode the response; () when nothing is to be sent."""
        request = context.request
        for hook in self.hooks:
            hook.after_response(context.connection.address, request, response)
        if response is None or request.is_oneway:
            return ()
        return response.answering(request).encode_parts()

    def frame_failed(self, connection: Connection, error: Exception) -> bool:
        """Log what handling a frame raised; returns whether its connection closes, and with it the rest of its job.

        What is no frame closes the connection; anything else must not cost other requests their answers.
        """
        if isinstance(error, FrameError):
            self.peer_log.warn("bad frame", "{address}: closing: {error}", address=connection.address, error=error)
            connection.close()
            return True
        self.peer_log.failure(
            f"no answer: {type(error).__name__}", "{address}: no answer", Failure(error), address=connection.address
        )
        return False

    def error_response(self, connection: Connection, request: RemotingCommand, error: BaseException) -> RemotingCommand:
        """Turn what a processor raised into a response; anything but a refusal is logged, once."""
        if isinstance(error, RequestError):
            return RemotingCommand.response(error.code, error.remark)
        if isinstance(error, RemotingCommandError):
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
    """Return what of the hooks is called on the hot paths; None when one of them needs the command."""
    functions = [getattr(hook, "before_fields", None) for hook in hooks]
    found = [function for function in functions if function is not None]
    return found if len(found) == len(functions) else None


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
    """Return an error's text without what UTF-8 cannot carry: names of files may hold lone surrogates."""
    return str(error).encode("utf-8", "replace").decode()


class CommandHandler:
    """Runs ordinary processors: decodes each frame, calls hooks and processor, sends the answers. Pool threads."""

    def __init__(self, dispatcher: Dispatcher, pool: Pool | None = None) -> None:
        """``pool`` is the one that runs it; None if another handler calls it."""
        self.processors: dict[int, Any] = {}
        self._dispatcher = dispatcher
        self._pool = pool

    def process_jobs(self, jobs: Sequence[Job]) -> None:
        """Handle every frame of the jobs. Those of a connection that does not take its answers are parked."""
        for job in jobs:
            answers: list[bytes | memoryview] = []
            size = 0
            written = True
            for index, frame in enumerate(job.frames):
                if written:
                    written = False
                    if (
                        job.connection.behind
                        and self._pool is not None
                        and park(self._dispatcher, self._pool, job, index)
                    ):
                        break
                try:
                    parts = self._process(job.connection, frame, job.received_ms)
                except Exception as error:
                    if self._dispatcher.frame_failed(job.connection, error):
                        break
                    continue
                answers += parts
                size += sum(map(len, parts))
                if size > _WRITTEN_TOGETHER:
                    job.connection.write(answers)
                    answers = []
                    size = 0
                    written = True
            if answers:
                job.connection.write(answers if size > _JOINED or len(answers) == 1 else (b"".join(answers),))

    def process_frame(self, connection: Connection, frame: Frame, received_ms: int, processor: Any) -> Parts:
        """Let one processor handle one frame the ordinary way; return the encoded answer, () if there is none now."""
        request = RemotingCommand.decode(frame)
        return self._process_command(connection, request, received_ms, processor)

    def _process(self, connection: Connection, frame: Frame, received_ms: int) -> Parts:
        request = RemotingCommand.decode(frame)
        if request.is_response:
            self._dispatcher.call_from_thread(self._dispatcher.take_response, connection, request)
            return ()
        processor = self.processors.get(request.code)
        if processor is None:  # the header names two codes, and the other one was peeked
            response = self._dispatcher.not_supported(connection, request)
            return () if request.is_oneway else response.encode_parts()
        return self._process_command(connection, request, received_ms, processor)

    def _process_command(
        self, connection: Connection, request: RemotingCommand, received_ms: int, processor: Any
    ) -> Parts:
        dispatcher = self._dispatcher
        context = RequestContext(dispatcher, connection, request, received_ms)
        try:
            for hook in dispatcher.hooks:
                hook.before_request(connection.address, request)
            response = processor.process(request, context)
            if isinstance(response, Deferred):
                dispatcher.call_from_thread(self._answer_later, response, context)
                return ()
            if response is None:
                return ()
            return dispatcher.finish(context, response)
        except Exception as error:
            response = dispatcher.error_response(connection, request, error)
            return () if request.is_oneway else response.answering(request).encode_parts()

    def _answer_later(self, response: Deferred[RemotingCommand], context: RequestContext) -> None:
        def failed(failure: Failure) -> RemotingCommand:
            error = failure.value or RuntimeError("failed without an error")
            return self._dispatcher.error_response(context.connection, context.request, error)

        response.addErrback(failed)
        response.addCallback(context.answer)
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
    """Decodes frames whose headers are not of the common form, or of no known code. Thread of the decode pool."""

    def __init__(self, dispatcher: Dispatcher, pool: Pool) -> None:
        self._dispatcher = dispatcher
        self._pool = pool

    def process_jobs(self, jobs: Sequence[Job]) -> None:
        """Hand every frame on to the pool of its code, or answer it."""
        for job in jobs:
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
                dispatcher.frame_failed(connection, error)
                break
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


def park(dispatcher: Dispatcher, pool: Pool, job: Job, index: int) -> bool:
    """Let the requests of a job from ``index`` on wait until their connection has taken its answers; False if it has.
    Pool threads.
    """
    rest = Job(job.handler, job.connection, job.frames[index:], job.received_ms)
    parked: bool = job.connection.park(partial(dispatcher.resubmit, pool, rest))
    return parked
