"""Waiters for an answer: a Deferred with a deadline, or a callback with a permit.

Counterpart: `ResponseFuture` and `InvokeCallback` (Apache). The invoke layer removes a request from its table before it
calls the waiter, so each waiter is called once. Everything belongs to the reactor thread, except callbacks run by an
executor.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import msgspec
from twisted.internet.defer import Deferred

from rocketd.remoting.calling.deadlines import Deadline
from rocketd.remoting.calling.permits import Permit
from rocketd.remoting.calling.rpc import PendingRequest, Unmatched
from rocketd.remoting.errors import RemotingError, RemotingTimeoutError
from rocketd.remoting.wire.command import RemotingCommand

if TYPE_CHECKING:
    from rocketd.remoting.calling.invoke import InvokeLayer


class Completion(msgspec.Struct, frozen=True):
    """End of an asynchronous request: a response, or an error."""

    request: RemotingCommand
    response: RemotingCommand | None = None
    error: RemotingError | None = None


InvokeCallback = Callable[[Completion], object]


class Waiter(Protocol):
    """Gets the end of its request, once."""

    def answer(self, response: RemotingCommand) -> None:
        """Take the answer."""

    def fail(self, error: RemotingError) -> None:
        """Take the error."""


class SyncWaiter:
    """A caller that waits on ``result`` with a timer."""

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
        """Cancel the timer."""
        if self._deadline is not None:
            self._deadline.cancel()

    def answer(self, response: RemotingCommand) -> None:
        """Give the answer to the caller, or the exception of a hook."""
        self.stop_timer()
        try:
            self._layer.run_after_hooks(self._address, self._request, response)
        except Exception:
            self.result.errback()
            return
        self.result.callback(response)

    def fail(self, error: RemotingError) -> None:
        """Raise to the caller, unless a waiter called before has cancelled it."""
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
    """A callback, and the permit held until the callback has run."""

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
        """Call back with the answer. Exceptions of hooks are logged."""
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
                self._layer.log.warn(
                    "the callback executor refused, so the reactor thread runs the callback: {error}", error=error
                )
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
    """Return the address of the peer of a request."""
    return str(getattr(entry.owner, "address", "unknown"))


def no_answer(entry: PendingRequest[Waiter]) -> RemotingTimeoutError:
    """Return the error of a request without an answer in time."""
    return RemotingTimeoutError(f"no answer from {address_of(entry)} within {entry.timeout_ms:.0f} ms")
