"""One reactor in one thread for all blocking clients of a process, and calls into it from any thread.

The thread begins with the first user and ends with the last, or with the interpreter. It is a daemon, so an unstopped client
does not keep the process alive.
"""

import atexit
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from threading import RLock, Thread, get_ident
from typing import Any, Self, TypeVar, cast
from weakref import WeakSet

from twisted.internet.defer import Deferred
from twisted.internet.error import ReactorNotRunning
from twisted.logger import Logger

from rocketd.client.errors import ClientClosedError, ForkedClientError, UsageError
from rocketd.client.runtime.fork import at_fork_in_child, forks
from rocketd.client.runtime.logs import bridge
from rocketd.client.runtime.tracebacks import without_internal_frames
from rocketd.common.event_loop.reactor import IReactor

T = TypeVar("T")

STOP_SECONDS = 5.0
"""Time for the last release to wait for the thread. Only a hanging look-up of a host name takes so long."""

EXIT_SECONDS = 1.0
"""The same at the interpreter's exit."""

FORKED = "the thread of this client belongs to the process from which this one was forked: make a new client here"


class HostStoppedError(ClientClosedError):
    """The thread of the blocking clients has ended, so the call gets no answer."""


class ReactorThreadError(UsageError, RuntimeError):
    """A blocking call in the very thread that would have to answer it."""


class ThreadHost:
    """A reactor and its thread. Any thread may call any method; ``reactor`` belongs to its thread.

    Get it by ``acquire``, and give it back by ``release``.
    """

    _log = Logger()

    def __init__(self, name: str = "rocketd-client") -> None:
        # Not at the top: Twisted's reactors import OpenSSL, which takes as long as the rest of the client.
        from rocketd.client.runtime.reactors import ThreadReactor

        self._own = ThreadReactor()
        self.reactor = cast(IReactor, self._own)
        self._queue: deque[Callable[[], object]] = deque()
        self._woken = False
        self._waiting: set[_Call] = set()
        self._users = 0
        self._ended = False
        self._forks = forks()
        self._ident: int | None = None
        self._thread = Thread(target=self._run, name=name, daemon=True)
        _hosts.add(self)
        self._thread.start()

    @property
    def ident(self) -> int | None:
        """The identifier of the reactor's thread, as of ``threading.get_ident``. None before it runs."""
        return self._ident

    # ------------------------------------------------------------ users

    @classmethod
    def acquire(cls) -> Self:
        """Return the host of this process. The first user starts its thread. Raises HostStoppedError during exit."""
        global _host
        forks()  # notices a fork without hooks
        with _lock:
            if _exiting:
                raise HostStoppedError("the interpreter exits: no client can start any more")
            if _host is None:
                bridge.install()
                _host = cls()
            _host._users += 1
            return _host  # type: ignore[return-value]

    @classmethod
    def of_its_own(cls, name: str) -> Self:
        """Return a separate, unshared host. Its thread has this name."""
        bridge.install()
        host = cls(name)
        host._users = 1
        return host

    def release(self) -> None:
        """Release the host. After the last user, return when its thread has ended.

        In the reactor's thread it returns at once, and the thread ends later. In a forked child it does nothing.
        """
        global _host
        if self._forks != forks():
            return
        with _lock:
            self._users -= 1
            if self._users:
                return
            if _host is self:
                _host = None
        if not self._stop(STOP_SECONDS):
            self._log.warn("the clients' thread still waits for a look-up of a host name; it ends after that")

    # ------------------------------------------------------------ calls

    def call(self, function: Callable[..., Awaitable[T]], *args: Any, timeout: float | None = None) -> T:
        """Run a function in the reactor's thread and wait for the result. It is a coroutine function or returns a Deferred.

        Its exception is raised here. It sees the context variables of the caller. It is cancelled after ``timeout``
        seconds, or if a signal handler raises (KeyboardInterrupt).

        Raises:

        - TimeoutError: the timeout is over.
        - ReactorThreadError: this is the reactor's thread.
        - ForkedClientError: this process was forked since.
        - HostStoppedError: the thread ended meanwhile.
        """
        if self._forks != forks():
            raise ForkedClientError(FORKED)
        if get_ident() == self._ident:
            raise ReactorThreadError(
                "a blocking call in the thread that serves all blocking clients would wait for itself for ever: make it"
                " in another thread, or use rocketd.client or rocketd.client.aio here"
            )
        call = _Call(function, args)
        try:  # a signal may interrupt anywhere from here on
            self._waiting.add(call)
            self.call_soon(call)
            if self._ended:
                self._fail_waiting()
            if not call.done.acquire(True, -1 if timeout is None else timeout):
                raise TimeoutError(f"no result within {timeout:g} s")
            if call.error is not None:
                raise without_internal_frames(call.error)
            return call.result  # type: ignore[no-any-return]
        finally:
            self._waiting.discard(call)
            if not call.finished:
                call.abandoned = True
                self.call_soon(call.cancel)
            call.error = None  # its traceback holds this frame

    def call_soon(self, function: Callable[..., object], *args: Any) -> None:
        """Call a function in the reactor's thread, in the order of these calls. Its exceptions are logged."""
        self._queue.append((lambda: function(*args)) if args else function)
        # One wake-up serves all calls appended before the thread looks.
        if not self._woken:
            try:
                self._woken = True
                self.reactor.callFromThread(self._work_off)
            except BaseException:  # a signal handler raised: the wake-up may not have been sent
                self._woken = False
                raise

    # ------------------------------------------------------------ the reactor's thread

    def _run(self) -> None:
        self._ident = get_ident()
        try:
            self._own.run(installSignalHandlers=False)
        finally:
            self._ended = True
            self._fail_waiting()
            pool = self._own.take_pool()
            if pool is not None:
                pool.stop()
            self._own.close()

    def _work_off(self) -> None:
        self._woken = False  # before looking: later calls wake the thread again
        queue = self._queue
        for _ in range(len(queue)):
            try:
                queue.popleft()()
            except Exception:
                self._log.failure("a call from another thread failed")
        if queue and not self._woken:
            self._woken = True
            self.reactor.callFromThread(self._work_off)

    def _stop_reactor(self) -> None:
        try:
            self.reactor.stop()
        except ReactorNotRunning:
            pass  # it was stopped before

    # ------------------------------------------------------------ end

    def _stop(self, seconds: float) -> bool:
        """Let the thread end. Return whether it has ended, or is the current one."""
        self.call_soon(self._stop_reactor)
        if get_ident() != self._ident:
            self._thread.join(seconds)
            return not self._thread.is_alive()
        return True

    def _fail_waiting(self) -> None:
        for call in list(self._waiting):
            call.finish(None, HostStoppedError("the clients of this process were stopped during the call"))

    def _leave_parent(self) -> None:
        self._ended = True
        for call in list(self._waiting):  # a signal handler forked while this thread was waiting
            call.finish(None, ForkedClientError(FORKED))


class _Call:
    """One blocking call, made by its thread and run by the reactor's. ``done`` is locked until the call is finished."""

    __slots__ = ("_arguments", "_context", "_function", "_work", "abandoned", "done", "error", "finished", "result")

    def __init__(self, function: Callable[..., Awaitable[Any]], arguments: tuple[Any, ...]) -> None:
        self.done = threading.Lock()
        self.done.acquire()
        self.finished = False
        self.abandoned = False
        self.result: Any = None
        self.error: BaseException | None = None
        self._function = function
        self._arguments = arguments
        self._context = copy_context()
        self._work: Deferred[None] | None = None

    def __call__(self) -> None:
        """Begin."""
        if not self.abandoned:
            self._work = self._context.run(Deferred.fromCoroutine, self._run())

    def cancel(self) -> None:
        """Cancel the work, because the caller has stopped waiting."""
        if self._work is not None:
            self._work.cancel()

    async def _run(self) -> None:
        # The exception is taken here, not from a Failure, which drops the traceback.
        try:
            result = await self._function(*self._arguments)
        except BaseException as error:
            self.finish(None, error)
        else:
            self.finish(result, None)

    def finish(self, result: object, error: BaseException | None) -> None:
        """Tell the waiting thread. Only the first call counts."""
        if self.finished:
            return
        self.finished = True
        self.result = result
        self.error = error
        try:
            self.done.release()
        except RuntimeError:
            pass  # finished by two threads at the same moment, at the end


_lock = RLock()  # a signal handler may stop clients while this thread starts one
_host: ThreadHost | None = None
_hosts: "WeakSet[ThreadHost]" = WeakSet()
_exiting = False


def _begin_child() -> None:
    global _lock, _host
    _lock = RLock()
    _host = None
    for host in list(_hosts):
        host._leave_parent()
    _hosts.clear()


def _exit() -> None:
    global _host, _exiting
    with _lock:
        _exiting = True
        host, _host = _host, None
    if host is not None:
        host._stop(EXIT_SECONDS)


at_fork_in_child(_begin_child)
# Threads other than daemons have ended by then, so they may use their clients to their end.
atexit.register(_exit)
