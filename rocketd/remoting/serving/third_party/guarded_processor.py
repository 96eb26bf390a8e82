"""A guarded third-party processor: its results and exceptions are checked, and a stop knows its running calls.

Built-in processors run without this guard.
"""

import inspect
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeGuard

from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure
from zope.interface import implementer

from rocketd.remoting.errors import PluginError, RemotingCommandError, RequestError
from rocketd.remoting.interfaces import IConnection, IJobProcessor, IRequestContext, IRequestProcessor
from rocketd.remoting.serving.pools import Job
from rocketd.remoting.serving.third_party.running_calls import PROCESSOR, PluginCall, PluginCalls
from rocketd.remoting.wire.codes import ResponseCode
from rocketd.remoting.wire.command import RemotingCommand


class ProcessorResultError(TypeError):
    """A processor returned a value other than a response, None, a Deferred or a coroutine."""


@implementer(IRequestContext)
class PluginContext:
    """The context of a request in a plugin. While the plugin keeps it, the request counts as unanswered."""

    def __init__(
        self, context: IRequestContext, calls: PluginCalls, call: PluginCall, call_from_thread: Callable[..., Any]
    ) -> None:
        self.connection = context.connection
        self.request = context.request
        self.received_ms = context.received_ms
        self._context = context
        self._calls = calls
        self._call = call
        self._call_from_thread = call_from_thread

    def answer(self, response: RemotingCommand) -> None:
        """Send the answer. Any thread."""
        self._context.answer(response)
        self._calls.answer_sent(self._call)

    def __del__(self) -> None:
        # An answer is impossible now. The calls are not changed here: an object may be deleted while its thread changes
        # them.
        self._call.answered = True
        if self._call.peer is not None:
            self._call_from_thread(self._calls.end, self._call)


@implementer(IRequestProcessor)
class PluginProcessor:
    """Calls a third-party processor.

    ``process`` belongs to the pool threads. Deferreds and coroutines belong to the reactor thread.
    """

    def __init__(self, name: str, processor: object, call_from_thread: Callable[..., Any], calls: PluginCalls) -> None:
        self.name = name
        self._processor = IRequestProcessor(processor)
        self._call_from_thread = call_from_thread
        self._calls = calls
        self._later: set[Deferred[Any]] = set()

    def process(
        self, request: RemotingCommand, context: IRequestContext
    ) -> RemotingCommand | Deferred[RemotingCommand] | None:
        """Handle a request by the processor.

        Raises:

        - RequestError,
        - ProcessorResultError for a result of the wrong type,
        - PluginError for exceptions the peer must not read,
        - or another exception of the processor.
        """
        call = self._calls.begin(PROCESSOR, self.name, f"code {request.code}", "request")
        goes_on = False
        try:
            guarded = PluginContext(context, self._calls, call, self._call_from_thread)
            try:
                result = self._processor.process(request, guarded)
                if inspect.iscoroutine(result):
                    result = self._started(result)
            except BaseException as error:
                if (hidden := hide(error, request)) is not None:
                    raise hidden from error
                raise
            if isinstance(result, Deferred):
                goes_on = True
                self._calls.leave(call)
                self._call_from_thread(self._watch, result, call, request, context.connection)
                return result
            result = self._checked(result, request.code)
            if result is None and not request.is_oneway:
                goes_on = True
                self._calls.leave(call, context.connection)
            return result
        finally:
            if not goes_on:
                self._calls.end(call)

    def cancel(self) -> None:
        """Cancel unfinished Deferreds and coroutines. Reactor thread."""
        for deferred in list(self._later):
            deferred.cancel()

    def _started(self, coroutine: Coroutine[Any, Any, Any]) -> Deferred[Any]:
        result: Deferred[Any] = Deferred(lambda _: running[0].cancel() if running else None)
        running: list[Deferred[Any]] = []

        def start() -> None:
            if result.called:
                coroutine.close()
                return
            running.append(Deferred.fromCoroutine(coroutine))
            running[0].chainDeferred(result)

        self._call_from_thread(start)
        return result

    def _watch(
        self, result: Deferred[Any], call: PluginCall, request: RemotingCommand, connection: IConnection
    ) -> None:
        def failed(failure: Failure) -> Failure:
            if failure.check(CancelledError):
                raise RequestError(
                    ResponseCode.SERVICE_NOT_AVAILABLE, f"request type {request.code} was cancelled: the server stops"
                )
            hidden = None if failure.value is None else hide(failure.value, request)
            return failure if hidden is None else Failure(hidden)

        def done(value: RemotingCommand | Failure | None) -> RemotingCommand | Failure | None:
            self._later.discard(result)
            if value is None and not request.is_oneway:
                self._calls.leave(call, connection)
            else:
                self._calls.end(call)
            return value

        self._later.add(result)
        result.addCallbacks(self._checked, failed, (request.code,))
        result.addBoth(done)

    def _checked(self, result: object, code: int) -> RemotingCommand | None:
        if result is None or isinstance(result, RemotingCommand):
            return result
        raise ProcessorResultError(
            f"processor plugin {self.name} returned {type(result).__name__} for code {code}: return a RemotingCommand, "
            "None, a Deferred or a coroutine"
        )


def takes_jobs(processor: object) -> TypeGuard[IJobProcessor]:
    """Return whether a processor takes whole jobs. Raises TypeError if it has the method, but not the interface."""
    if IJobProcessor.providedBy(processor):
        return True
    if hasattr(processor, "process_jobs"):
        raise TypeError(f"{processor!r} has a method process_jobs: declare IJobProcessor")
    return False


@implementer(IJobProcessor)
class PluginJobProcessor:
    """Calls a third-party processor of whole jobs. Pool threads."""

    def __init__(self, name: str, processor: IJobProcessor, calls: PluginCalls) -> None:
        self.name = name
        self._processor = processor
        self._calls = calls

    def process_jobs(self, jobs: Sequence[Job]) -> None:
        """Pass the jobs to the plugin's processor."""
        call = self._calls.begin(PROCESSOR, self.name, "process_jobs")
        try:
            self._processor.process_jobs(jobs)
        finally:
            self._calls.end(call)


def hide(error: BaseException, request: RemotingCommand) -> PluginError | None:
    """Return the replacement of a plugin's exception, None if the dispatcher may handle the exception itself.

    The text of a RemotingCommandError reaches the peer, so it must be about this request's header. SystemExit and the
    like must not end a thread of the server.
    """
    if isinstance(error, RemotingCommandError):
        return None if error.command is request else PluginError(error)
    return None if isinstance(error, Exception) else PluginError(error)
