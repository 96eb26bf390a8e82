"""A third party's processor, guarded: what it returns is checked, and what it is still doing at shutdown is named.

Built-in processors run without this guard.
"""

import inspect
import threading
from collections.abc import Callable, Coroutine
from time import monotonic
from typing import Any, NamedTuple

from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure
from zope.interface import implementer

from rocketd.remoting.codes import ResponseCode
from rocketd.remoting.command import RemotingCommand
from rocketd.remoting.errors import RequestError
from rocketd.remoting.interfaces import IRequestContext, IRequestProcessor


class ProcessorResultError(TypeError):
    """A processor returned something else than a response, None, a Deferred or a coroutine."""


class Busy(NamedTuple):
    """Requests that a plugin has not answered: its name, their code, how many, and the age of the oldest in seconds."""

    plugin: str
    code: int
    requests: int
    seconds: float

    def __str__(self) -> str:
        requests = "1 request" if self.requests == 1 else f"{self.requests} requests"
        return f"processor plugin {self.plugin}: {requests} of code {self.code} since {self.seconds:.1f} s"


@implementer(IRequestProcessor)
class PluginProcessor:
    """Calls a third party's processor.

    ``process`` belongs to the threads of the pool; Deferreds and coroutines belong to the reactor thread; ``busy`` and
    ``wait`` may be called from any thread.
    """

    def __init__(
        self,
        name: str,
        processor: Any,
        call_from_thread: Callable[..., Any],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.name = name
        self._processor = IRequestProcessor(processor)
        self._call_from_thread = call_from_thread
        self._clock = clock
        self._changed = threading.Condition()
        self._running: dict[object, tuple[int, float]] = {}
        self._later: set[Deferred[Any]] = set()

    def process(self, request: RemotingCommand, context: IRequestContext) -> Any:
        """Let the processor handle a request. Raises ProcessorResultError for a result that is not an answer."""
        mark = object()
        self._begin(mark, request.code)
        later = False
        try:
            result = self._processor.process(request, context)
            if inspect.iscoroutine(result):
                result = self._started(result)
            if isinstance(result, Deferred):
                later = True
                self._call_from_thread(self._watch, result, mark, request.code)
                return result
            return self._checked(result, request.code)
        finally:
            if not later:
                self._end(mark)

    def busy(self) -> list[Busy]:
        """Return what is not answered yet, by code."""
        now = self._clock()
        with self._changed:
            running = list(self._running.values())
        codes = {code: [began for each, began in running if each == code] for code, _ in running}
        return [Busy(self.name, code, len(times), now - min(times)) for code, times in codes.items()]

    def wait(self, seconds: float) -> bool:
        """Wait until all requests are answered. False if some are not after so many seconds. Not in the reactor thread."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._running, seconds)

    def cancel(self) -> None:
        """Cancel the Deferreds and coroutines that are not done. Reactor thread."""
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

    def _watch(self, result: Deferred[Any], mark: object, code: int) -> None:
        def cancelled(failure: Failure) -> None:
            failure.trap(CancelledError)
            raise RequestError(
                ResponseCode.SERVICE_NOT_AVAILABLE, f"request type {code} was cancelled: the server stops"
            )

        def done(value: Any) -> Any:
            self._later.discard(result)
            self._end(mark)
            return value

        self._later.add(result)
        result.addCallbacks(self._checked, cancelled, (code,))
        result.addBoth(done)

    def _checked(self, result: Any, code: int) -> RemotingCommand | None:
        if result is None or isinstance(result, RemotingCommand):
            return result
        raise ProcessorResultError(
            f"processor plugin {self.name} returned {type(result).__name__} for code {code}: return a RemotingCommand, "
            "None, a Deferred or a coroutine"
        )

    def _begin(self, mark: object, code: int) -> None:
        with self._changed:
            self._running[mark] = code, self._clock()

    def _end(self, mark: object) -> None:
        with self._changed:
            self._running.pop(mark, None)
            self._changed.notify_all()
