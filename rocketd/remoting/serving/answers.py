"""Answers of a server: results of processors, refusals and errors. One-way requests without a result are counted.

Any thread may call the methods, unless they say otherwise.

Counterpart: the callbacks of `NettyRemotingAbstract.processRequestCommand` (Apache).
"""

from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any, Protocol
from weakref import WeakSet

from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from rocketd.common.logs.throttle import LogThrottle, ThrottledLog
from rocketd.remoting import problems
from rocketd.remoting.errors import FrameError, PluginError, RemotingCommandError, RequestError
from rocketd.remoting.interfaces import IConnection, IRequestContext, IRPCHook
from rocketd.remoting.limits.limit_log import LimitLog
from rocketd.remoting.serving.connection import Connection
from rocketd.remoting.serving.late_answers import LateAnswers
from rocketd.remoting.serving.pools import Job, Pool
from rocketd.remoting.serving.third_party.guarded_processor import ProcessorResultError
from rocketd.remoting.wire.codes import RequestCode, ResponseCode
from rocketd.remoting.wire.command import ONEWAY_FLAG, RESPONSE_FLAG, RemotingCommand, peek
from rocketd.remoting.wire.frame import MAX_FRAME_LENGTH, Frame

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

    __slots__ = ("_answers", "connection", "is_answered", "is_counted", "received_ms", "request")

    def __init__(
        self, answers: "ServerAnswers", connection: Connection, request: RemotingCommand, received_ms: int
    ) -> None:
        self._answers = answers
        self.connection = connection
        self.request = request
        self.received_ms = received_ms
        self.is_answered = self.is_counted = False

    def answer(self, response: RemotingCommand) -> None:
        """Send the answer: run the hooks, then write it, unless the request was one-way."""
        parts = self._answers.finish(self, response)
        if parts:
            self.connection.write(parts)
        self._answers.late.answered(self)

    def __del__(self) -> None:
        # An answer is impossible now. An object may be deleted while its thread has a lock.
        if self.is_counted:
            self._answers.call_from_thread(self._answers.late.forget, self.connection)


class ServerAnswers:
    """The answers and refusals of one server."""

    log = Logger()

    def __init__(
        self, call_from_thread: Callable[..., Any], hooks: Iterable[IRPCHook], clock: Callable[[], float]
    ) -> None:
        """``call_from_thread`` runs a function in the reactor thread. ``clock`` returns seconds that only increase."""
        self.hooks: tuple[Any, ...] = tuple(hooks)
        self.call_from_thread = call_from_thread
        self.responses: ResponseTaker | None = None
        self.limits = LimitLog(self.log, clock)
        self.peer_log = ThrottledLog(self.log, LogThrottle(clock))
        """For lines that a peer can cause at any rate."""
        self.slowest_step: Callable[[], str] = str
        """Returns the slowest step that requests recently waited for, with its measured time, "" if unknown."""
        self.longest_answer = MAX_FRAME_LENGTH
        """Maximum bytes of an answer."""
        self.late = LateAnswers(call_from_thread, self.limits)
        self._given_up: WeakSet[Connection] = WeakSet()

    def allow(self, frame_length: int) -> None:
        """Allow answers of this number of bytes, if it is more than clients accept without a setting."""
        self.longest_answer = max(frame_length, MAX_FRAME_LENGTH)

    # ------------------------------------------------------------ requests

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

    # ------------------------------------------------------------ answers

    def finish(self, context: RequestContext, response: RemotingCommand | None) -> Parts:
        """Run the after-hooks and encode the response. Return () if nothing is sent.

        An answer longer than a frame is replaced by an error, because the client would close the connection.
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
        size = sum(map(len, parts))
        if size <= self.longest_answer:
            return parts
        self.limits.reached(
            "answers too long",
            "{address}: the answer to a request of code {code} has {size} bytes, and is refused",
            address=context.connection.address,
            code=request.code,
            size=size,
        )
        refusal = problems.ANSWER_TOO_LONG.error(code=request.code, size=size, limit=self.longest_answer)
        return self.fail(context.connection, request, refusal)

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

    # ------------------------------------------------------------ frames without a processor

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

    def refuse_for(self, pool: Pool, job: Job) -> None:
        """Refuse the requests of a job because a pool is full."""
        self.refuse(job, _pool_full(pool), pool.name)

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

    # ------------------------------------------------------------ one-way requests

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
