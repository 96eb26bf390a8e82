"""Who waits for an answer: a Deferred with a deadline, or a callback that holds a permit.

Answers to Apache's ResponseFuture and InvokeCallback. The invoke layer takes a request out of its table before it tells
the waiter, so each is told once. All of it belongs to the reactor thread, but for callbacks run by an executor.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from twisted.internet.defer import Deferred

from rocketd.remoting.command import RemotingCommand
from rocketd.remoting.deadlines import Deadline
from rocketd.remoting.errors import RemotingError, RemotingTimeoutError
from rocketd.remoting.permits import Permit
from rocketd.remoting.rpc import PendingRequest, Unmatched

if TYPE_CHECKING:
    from rocketd.remoting.invoke import InvokeLayer


@dataclass(frozen=True, slots=True)
class Completion:
    """How an asynchronous request ended: with a response, or with the error that says why there is none."""

    request: RemotingCommand
    response: RemotingCommand | None = None
    error: RemotingError | None = None


InvokeCallback = Callable[[Completion], object]


class Waiter(Protocol):
    """Is told how its request ended, once."""

    def answer(self, response: RemotingCommand) -> None:
        """Take the answer."""

    def fail(self, error: RemotingError) -> None:
        """Take the reason why there is none."""


class SyncWaiter:
    """A caller that waits on ``result`` until its own timer."""

    __slots__ = ("_address", "_deadline", "_entry", "_layer", "_request", "result")

    def __init__(self, layer: "InvokeLayer", address: str, request: RemotingCommand) -> None:
        self._layer = layer
        self._address = address
        self._request = request
        self._entry: PendingRequest[Waiter] | None = None
        self._deadline: Deadline | None = None
        self.result: Deferred[RemotingCommand] = Deferred(self._cancel)

    def wait(self, entry: PendingRequest[Waiter]) -> None:
        """Start the timer: at most the entry's timeout."""
        self._entry = entry
        self._deadline = self._layer.deadlines.add(entry.timeout_ms / 1000, self._time_out)

    def stop_timer(self) -> None:
        """Wait no longer."""
        if self._deadline is not None:
            self._deadline.cancel()

    def answer(self, response: RemotingCommand) -> None:
        """Return the answer to the caller, or what a hook raised about it."""
        self.stop_timer()
        try:
            self._layer.run_after_hooks(self._address, self._request, response)
        except Exception:
            self.result.errback()
            return
        self.result.callback(response)

    def fail(self, error: RemotingError) -> None:
        """Raise to the caller, unless it has been cancelled by one that was told before."""
        self.stop_timer()
        if not self.result.called:
            self.result.errback(error)

    def _time_out(self) -> None:
        entry = self._entry
        if entry is not None and self._layer.pending.give_up(entry):
            self.result.errback(no_answer(entry))

    def _cancel(self, result: Deferred[RemotingCommand]) -> None:
        self.stop_timer()
        if self._entry is not None:
            self._layer.pending.give_up(self._entry, Unmatched.CANCELLED)


class AsyncWaiter:
    """A callback, and the permit that its request holds until the callback has run."""

    __slots__ = ("_address", "_callback", "_layer", "_request", "permit")

    def __init__(
        self, layer: "InvokeLayer", address: str, request: RemotingCommand, callback: InvokeCallback, permit: Permit
    ) -> None:
        self._layer = layer
        self._address = address
        self._request = request
        self._callback = callback
        self.permit = permit

    def answer(self, response: RemotingCommand) -> None:
        """Call back with the answer; a hook that raises about it is logged."""
        try:
            self._layer.run_after_hooks(self._address, self._request, response)
        except Exception:
            self._layer.log.failure("a hook failed on the answer to {request}", request=self._request)
        self._complete(Completion(self._request, response=response))

    def fail(self, error: RemotingError) -> None:
        """Call back with the error."""
        self._complete(Completion(self._request, error=error))

    def _complete(self, completion: Completion) -> None:
        executor = self._layer.callback_executor
        if executor is not None:
            try:
                executor(lambda: self._run(completion, self._release_from_thread))
            except Exception as error:
                self._layer.log.warn("the callback executor refuses, so the reactor thread calls: {error}", error=error)
            else:
                return
        self._run(completion, self.permit.release)

    def _run(self, completion: Completion, release: Callable[[], None]) -> None:
        try:
            self._callback(completion)
        except Exception:
            self._layer.log.failure("the callback of {request} failed", request=self._request)
        finally:
            release()

    def _release_from_thread(self) -> None:
        self._layer.reactor.callFromThread(self.permit.release)


def address_of(entry: PendingRequest[Waiter]) -> str:
    """Name the peer that a request went to."""
    return str(getattr(entry.owner, "address", "unknown"))


def no_answer(entry: PendingRequest[Waiter]) -> RemotingTimeoutError:
    """Make the error of a request that was not answered in time."""
    return RemotingTimeoutError(f"no answer from {address_of(entry)} within {entry.timeout_ms:.0f} ms")
