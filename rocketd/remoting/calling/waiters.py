"""Waiters for an answer: a Deferred with a deadline.

Counterpart: `ResponseFuture` (Apache). The invoke layer removes a request from its table before it calls the waiter, so
each waiter is called once. Everything belongs to the reactor thread.
"""

from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred

from rocketd.remoting.calling.deadlines import Deadline
from rocketd.remoting.calling.rpc import PendingRequest, Unmatched
from rocketd.remoting.errors import RemotingError, RemotingTimeoutError
from rocketd.remoting.wire.command import RemotingCommand

if TYPE_CHECKING:
    from rocketd.remoting.calling.invoke import InvokeLayer


class Waiter:
    """A caller that waits on ``result`` with a timer."""

    __slots__ = ("_address", "_deadline", "_entry", "_layer", "_request", "result")

    def __init__(self, layer: "InvokeLayer", address: str, request: RemotingCommand) -> None:
        self._layer = layer
        self._address = address
        self._request = request
        self._entry: PendingRequest[Waiter] | None = None
        self._deadline: Deadline | None = None
        self.result: Deferred[RemotingCommand] = Deferred(self._cancel)

    def wait(self, entry: "PendingRequest[Waiter]") -> None:
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


def address_of(entry: PendingRequest[Waiter]) -> str:
    """Return the address of the peer of a request."""
    return str(getattr(entry.owner, "address", "unknown"))


def no_answer(entry: PendingRequest[Waiter]) -> RemotingTimeoutError:
    """Return the error of a request without an answer in time."""
    return RemotingTimeoutError(f"no answer from {address_of(entry)} within {entry.timeout_ms:.0f} ms")
