"""Our own requests: sent over a connection, bounded by permits, completed exactly once.

Counterpart: the invoke half of `NettyRemotingAbstract` (Apache), for both sides: the remoting client, and the server
calling its clients over accepted connections. Every request ends in exactly one way: answered, timed out, not written,
or its connection closed. A close ends it at once; Apache's callers wait for the timeout then.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeVar

from twisted.internet.defer import Deferred, fail, maybeDeferred
from twisted.logger import Logger, LogLevel
from twisted.python.failure import Failure

from rocketd.common.event_loop.reactor import IReactor
from rocketd.common.logs.throttle import LogThrottle, ThrottledLog
from rocketd.remoting.calling.deadlines import Deadlines
from rocketd.remoting.calling.permits import FairSemaphore, Permit
from rocketd.remoting.calling.rpc import RequestTable, Unmatched
from rocketd.remoting.calling.waiters import Waiter, address_of
from rocketd.remoting.errors import (
    PermitTimeoutError,
    RemotingError,
    RemotingSendRequestError,
    RemotingTimeoutError,
    RemotingTooMuchRequestError,
)
from rocketd.remoting.interfaces import IRPCHook
from rocketd.remoting.wire.command import ONEWAY_FLAG, RemotingCommand

ONEWAYS_TOGETHER = 50
"""One-way requests of other threads sent before the reactor thread serves its sockets again."""
_STOPPED = "this side is shutting down"

CallbackExecutor = Callable[[Callable[[], None]], object]
"""Runs a function on some thread. Raises if it accepts no more."""

T = TypeVar("T")


_LEVELS = {Unmatched.LATE: LogLevel.info, Unmatched.CANCELLED: LogLevel.debug, Unmatched.UNKNOWN: LogLevel.warn}


class InvokeConnection(Protocol):
    """The required part of a connection. IConnection has it.

    ``send`` may return a Deferred that fires when the bytes have left this process. With any other result, a one-way
    request counts as written at once.
    """

    address: str

    @property
    def closed(self) -> bool:
        """Whether the connection is gone."""

    def send(self, command: RemotingCommand) -> object:
        """Write a command."""

    def close(self) -> None:
        """Close the connection."""


class InvokeLayer:
    """Sends requests and completes them. All methods belong to the reactor thread, except those named ``*from_thread``.

    - ``oneway_permits`` and ``async_permits`` bound the number of concurrent requests.
    - ``callback_executor`` runs callbacks. Without one, or if it refuses, they run in the reactor thread.
    - ``hooks`` see each request before it is sent (their time counts against its timeout) and each answer.

    Timeouts are in milliseconds.
    """

    log = Logger()

    def __init__(
        self,
        reactor: IReactor,
        oneway_permits: int,
        async_permits: int,
        callback_executor: CallbackExecutor | None = None,
        hooks: Iterable[IRPCHook] = (),
    ) -> None:
        self.reactor = reactor
        self.callback_executor = callback_executor
        self.hooks: list[Any] = []
        self.oneway_permits = FairSemaphore(reactor, oneway_permits)
        self.async_permits = FairSemaphore(reactor, async_permits)
        self.pending: RequestTable[Waiter] = RequestTable()
        self.deadlines = Deadlines(reactor)
        self._peer_log = ThrottledLog(self.log, LogThrottle(reactor.seconds))
        self._stopped = False
        self._oneways: deque[tuple[InvokeConnection, RemotingCommand, float]] = deque()
        self._oneways_signalled = False
        for hook in hooks:
            self.register_hook(hook)

    def register_hook(self, hook: IRPCHook) -> None:
        """Add a hook after the others. Adding it twice has no effect."""
        if hook not in self.hooks:
            self.hooks.append(hook)

    # ------------------------------------------------------------ start and stop

    def start(self) -> None:
        """Accept requests again, after a stop."""
        self._stopped = False

    def stop(self) -> None:
        """Fail outstanding requests."""
        self._stopped = True
        for entry in self.pending.clear():
            entry.waiter.fail(RemotingSendRequestError(address_of(entry), _STOPPED))
        self.deadlines.stop()

    # ------------------------------------------------------------ the three ways to send

    def invoke_sync(
        self, connection: InvokeConnection, request: RemotingCommand, timeout_ms: float
    ) -> Deferred[RemotingCommand]:
        """Send a request and return its answer.

        Fails with RemotingTimeoutError if no answer came in time, and with RemotingSendRequestError if the request
        could not be written or its connection closed. Exceptions of hooks go to the caller.
        """
        try:
            left = timeout_ms - self.run_before_hooks(connection, request)
            if left < 0:
                raise RemotingTimeoutError(_hooks_too_slow(connection, timeout_ms))
            return self._send_sync(connection, request, left)
        except Exception as error:
            return fail(error)

    def invoke_async(
        self, connection: InvokeConnection, request: RemotingCommand, timeout_ms: float
    ) -> Deferred[RemotingCommand]:
        """Send a request with an asynchronous permit, and return its answer.

        The permit is held until the request ends. Fails like ``invoke_sync``. Without a permit it fails with
        PermitTimeoutError, or with RemotingTooMuchRequestError if there was no time to wait.
        """
        if self.async_permits.take():
            return self.invoke_sync(connection, request, timeout_ms).addBoth(self._give_back)
        return Deferred.fromCoroutine(self._invoke_permitted(connection, request, timeout_ms))

    async def _invoke_permitted(
        self, connection: InvokeConnection, request: RemotingCommand, timeout_ms: float
    ) -> RemotingCommand:
        began = self.now_ms()
        permit = await self.async_permits.acquire(timeout_ms)
        if permit is None:
            raise self._refused("asynchronous", self.async_permits, timeout_ms)
        try:
            if self._stopped:
                raise RemotingSendRequestError(connection.address, _STOPPED)
            left = timeout_ms - (self.now_ms() - began)
            if left < 0:
                raise PermitTimeoutError(f"waiting for a permit took the whole {timeout_ms:g} ms")
            return await self.invoke_sync(connection, request, left)
        finally:
            permit.release()

    def _give_back(self, result: T) -> T:
        self.async_permits.give_back()
        return result

    def in_executor(self, function: Callable[..., T], *arguments: Any) -> Deferred[T]:
        """Run a function in the callback executor, or here if there is none or it refuses.

        Fires in the reactor thread with the function's result, or fails with its exception.
        """
        if self.callback_executor is None:
            return maybeDeferred(function, *arguments)
        done: Deferred[T] = Deferred()

        def run() -> None:
            result: Any
            try:
                result = function(*arguments)
            except Exception:
                result = Failure()
            self.reactor.callFromThread(done.callback, result)

        try:
            self.callback_executor(run)
        except Exception as error:
            self.log.warn(
                "the callback executor refused, so the reactor thread runs the callback: {error}", error=error
            )
            return maybeDeferred(function, *arguments)
        return done

    def invoke_oneway(
        self, connection: InvokeConnection, request: RemotingCommand, timeout_ms: float
    ) -> Deferred[None]:
        """Send a one-way request with a permit. Fires when it was given to the connection.

        The permit is held until the bytes have left the process, if the connection reports that. Fails like
        ``invoke_async``. A closed connection is only logged.
        """
        request.flag |= ONEWAY_FLAG
        try:
            self.run_before_hooks(connection, request)
        except Exception as error:
            return fail(error)
        permit = self.oneway_permits.try_acquire()
        if permit is not None:
            return maybeDeferred(self._send_oneway, connection, request, permit)

        def permitted(permit: Permit | None) -> None:
            if permit is None:
                raise self._refused("one-way", self.oneway_permits, timeout_ms)
            self._send_oneway(connection, request, permit)

        return self.oneway_permits.acquire(timeout_ms).addCallback(permitted)

    # ------------------------------------------------------------ what comes back

    def process_response(self, connection: InvokeConnection, response: RemotingCommand) -> None:
        """Complete the request of this answer. Answers without a request are logged and dropped."""
        entry = self.pending.answer(response.opaque, connection)
        if isinstance(entry, Unmatched):
            self._peer_log.emit(
                _LEVELS[entry],
                entry.value,
                "{address}: dropped a response, {why}: {response}",
                address=connection.address,
                why=entry.value,
                response=response,
            )
        else:
            entry.waiter.answer(response)

    def connection_lost(self, connection: InvokeConnection, why: str | None = None) -> None:
        """Fail all requests of a closed connection."""
        reason = "the connection closed before the answer came" + ("" if why is None else f": {why}")
        for entry in self.pending.forget(connection):
            entry.waiter.fail(RemotingSendRequestError(connection.address, reason))

    # ------------------------------------------------------------ for other threads

    def from_thread(self, invoke: Callable[..., Deferred[T]], *arguments: Any) -> Deferred[T]:
        """Call one of the ``invoke_*`` methods from another thread.

        The Deferred fires in the reactor thread. The calling thread may return it from a processor, but must not add
        callbacks.
        """
        result: Deferred[T] = Deferred()
        self.reactor.callFromThread(lambda: maybeDeferred(invoke, *arguments).chainDeferred(result))
        return result

    def oneway_from_thread(self, connection: InvokeConnection, request: RemotingCommand, timeout_ms: float) -> None:
        """Send a one-way request from another thread, in the order of the calls. Failures are only logged.

        Many calls wake the reactor thread once. They are sent in parts, so it can read and answer in between.
        """
        self._oneways.append((connection, request, timeout_ms))
        if not self._oneways_signalled:
            self._oneways_signalled = True
            self.reactor.callFromThread(self._send_oneways)

    def _send_oneways(self) -> None:
        for _ in range(ONEWAYS_TOGETHER):
            try:
                connection, request, timeout_ms = self._oneways.popleft()
            except IndexError:
                break
            self.invoke_oneway(connection, request, timeout_ms).addErrback(self._oneway_failed, connection, request)
        else:
            self.reactor.callLater(0, self._send_oneways)
            return
        self._oneways_signalled = False
        if self._oneways:  # added between the check and the reset, without a wake-up
            self._oneways_signalled = True
            self.reactor.callLater(0, self._send_oneways)

    def _oneway_failed(self, failure: Failure, connection: InvokeConnection, request: RemotingCommand) -> None:
        self.log.warn(
            "{address}: {request} was not sent: {error}",
            address=connection.address,
            request=request,
            error=failure.value,
        )

    # ------------------------------------------------------------ within

    def now_ms(self) -> float:
        """Return the reactor's time in milliseconds."""
        return float(self.reactor.seconds() * 1000)

    def run_before_hooks(self, connection: InvokeConnection, request: RemotingCommand) -> float:
        """Run the hooks before a request is sent. Return the milliseconds they took."""
        if not self.hooks:
            return 0.0
        began = self.now_ms()
        for hook in self.hooks:
            hook.before_request(connection.address, request)
        return self.now_ms() - began

    def run_after_hooks(self, address: str, request: RemotingCommand, response: RemotingCommand) -> None:
        """Run the hooks on an answer."""
        for hook in self.hooks:
            hook.after_response(address, request, response)

    def _send_sync(
        self, connection: InvokeConnection, request: RemotingCommand, timeout_ms: float
    ) -> Deferred[RemotingCommand]:
        if connection.closed:
            raise RemotingSendRequestError(connection.address, "the connection is closed")
        waiter = Waiter(self, connection.address, request)
        entry = self.pending.add(request.opaque, connection, timeout_ms, waiter)
        waiter.wait(entry)
        try:
            connection.send(request)
        except Exception as error:
            self.pending.remove(entry)
            waiter.stop_timer()
            raise RemotingSendRequestError(connection.address, error) from error
        return waiter.result

    def _send_oneway(self, connection: InvokeConnection, request: RemotingCommand, permit: Permit) -> None:
        if connection.closed:
            permit.release()
            self.log.warn(
                "{address}: {request} was not sent, the connection is closed",
                address=connection.address,
                request=request,
            )
            return
        try:
            written = connection.send(request)
        except Exception as error:
            permit.release()
            raise RemotingSendRequestError(connection.address, error) from error
        if isinstance(written, Deferred):
            written.addBoth(lambda _: permit.release())
        else:
            permit.release()

    def _refused(self, kind: str, permits: FairSemaphore, timeout_ms: float) -> RemotingError:
        if timeout_ms <= 0:
            return RemotingTooMuchRequestError(
                f"too many {kind} requests are under way, and the caller gave no time to wait"
            )
        error = PermitTimeoutError(
            f"no permit for one more {kind} request within {timeout_ms:g} ms:"
            f" {permits.waiting} waiting, {permits.available} permits free"
        )
        self.log.warn("{error}", error=error)
        return error


def _hooks_too_slow(connection: InvokeConnection, timeout_ms: float) -> str:
    return f"hooks took the whole {timeout_ms:g} ms for the request to {connection.address}"
