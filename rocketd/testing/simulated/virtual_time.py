"""Time that runs normally and can be advanced, and reactors that follow it.

The time is that of the machine plus an offset. A ``VirtualReactor`` wraps the running reactor. It has separate timers
in this time, and makes its connections in memory. Everything else is passed to the real reactor.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from threading import get_ident
from typing import Any, NamedTuple, cast
from weakref import WeakSet

from twisted.internet.base import DelayedCall
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

from rocketd.common.event_loop.reactor import IReactor
from rocketd.testing.simulated.memory_network import MemoryNetwork


class _Moment(NamedTuple):
    """State of the clock, replaced as a whole.

    ``stands_at`` is the time at which it stands, None if it runs. ``offset`` is the seconds by which it is ahead of the
    machine's clock while it runs. ``jumped`` is the total seconds of all jumps.
    """

    stands_at: float | None
    offset: float
    jumped: float


class VirtualTime:
    """The time of one cluster and its clients. Any thread may read it. ``jump_to`` belongs to one thread at a time."""

    def __init__(self) -> None:
        self._wall = time.time() - time.monotonic()
        self._moment = _Moment(None, 0.0, 0.0)
        self._changed = threading.Condition()
        self._threads = threading.local()

    @property
    def jumped(self) -> float:
        """Total seconds of all jumps."""
        return self._moment.jumped

    def seconds(self) -> float:
        """Return the time in seconds. It never goes back."""
        return self._read()[0]

    def stopwatch(self) -> float:
        """Return seconds that measure how long the calling thread's work takes: jumps do not count.

        A thread works while the time jumps if the jumping thread could not know of its work. Jumps during a ``sleep``
        of the calling thread do count: they are the simulated duration of its work.
        """
        seconds, jumped = self._read()
        return seconds - jumped + self._slept

    def _read(self) -> tuple[float, float]:
        """Return the time, and the total seconds of the jumps up to then."""
        # Without the lock, the clock could stand or jump between the two readings.
        with self._changed:
            stands_at, offset, jumped = self._moment
            return time.monotonic() + offset if stands_at is None else stands_at, jumped

    @property
    def _slept(self) -> float:
        """Total seconds of the jumps during sleeps of the calling thread."""
        slept: float = getattr(self._threads, "slept", 0.0)
        return slept

    def time(self) -> float:
        """Return Unix seconds."""
        return self._wall + self.seconds()

    def now_ms(self) -> int:
        """Return Unix milliseconds."""
        return int(self.time() * 1000)

    def now(self) -> datetime:
        """Return the time in UTC, with time zone."""
        return datetime.fromtimestamp(self.time(), UTC)

    @contextmanager
    def standing(self) -> Iterator[None]:
        """Stop the clock, except for jumps."""
        with self._changed:
            seconds, jumped = self._read()
            self._moment = _Moment(seconds, 0.0, jumped)
        try:
            yield
        finally:
            with self._changed:
                seconds, jumped = self._read()
                self._moment = _Moment(None, seconds - time.monotonic(), jumped)
                self._changed.notify_all()

    def jump_to(self, seconds: float) -> float:
        """Advance the stopped clock to a value of ``seconds()``. Return the difference."""
        with self._changed:
            now, jumped = self._read()
            by = max(0.0, seconds - now)
            self._moment = _Moment(now + by, 0.0, jumped + by)
            self._changed.notify_all()
        return by

    def sleep(self, seconds: float, stop: Callable[[], bool] = lambda: False) -> None:
        """Wait for a duration on this clock.

        Return early if ``stop`` returns True. It is called at the start, and after each jump and `wake_sleepers`.
        """
        now, jumped = self._read()
        end = now + seconds
        with self._changed:
            while (left := end - self.seconds()) > 0 and not stop():
                self._changed.wait(left)
        self._threads.slept = self._slept + self.jumped - jumped

    def wake_sleepers(self) -> None:
        """Make sleepers check again whether to continue."""
        with self._changed:
            self._changed.notify_all()


class Look(NamedTuple):
    """State of a reactor: count of events, whether one is about to happen, and the due time of its next single timer."""

    activity: int
    pending: bool
    next_due: float | None


class VirtualReactor:
    """A reactor in virtual time that makes its connections in memory. It wraps a running one, ``base``.

    Everything belongs to the thread of ``base``, except ``callFromThread`` and ``wake``. A repeating timer
    (LoopingCall) is called once if the time has passed several of its due times.
    """

    _log = Logger()

    def __init__(self, base: Any, virtual: VirtualTime, network: MemoryNetwork) -> None:
        self.base = base
        self.virtual = virtual
        self.thread = get_ident()
        self._network = network
        self._calls: list[DelayedCall] = []
        self._timer: Any = None
        self._soon: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = []
        self._activity = 0
        self._fresh: WeakSet[DelayedCall] = WeakSet()
        self._jumped = virtual.jumped
        self._cut = False
        self._real_ports: dict[int, int] = {}
        self._ports: WeakSet[Any] = WeakSet()
        self._connectors: WeakSet[Any] = WeakSet()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.base, name)

    def as_reactor(self) -> IReactor:
        """Return it with the type used by servers and clients. Missing attributes are those of ``base``."""
        return cast(IReactor, self)

    # ------------------------------------------------------------ time

    def seconds(self) -> float:
        """Return virtual seconds."""
        return self.virtual.seconds()

    def callLater(self, delay: float, function: Callable[..., Any], *args: Any, **kw: Any) -> DelayedCall:  # noqa: N802
        """Call a function after ``delay`` virtual seconds."""
        self._take_jumps()
        call = DelayedCall(
            self.seconds() + delay, function, args, kw, self._cancelled, lambda _: self._arm(), self.seconds
        )
        self._calls.append(call)
        self._fresh.add(call)
        self._arm()
        return call

    def getDelayedCalls(self) -> list[DelayedCall]:  # noqa: N802
        """Return the pending calls."""
        return list(self._calls)

    def _cancelled(self, call: DelayedCall) -> None:
        self._calls.remove(call)
        self._arm()

    def _arm(self) -> None:
        """Set a timer of the real reactor for the first due call, or none without calls."""
        first = min([call.getTime() for call in self._calls], default=None)
        timer, self._timer = self._timer, None
        if first is None:
            if timer is not None and timer.active():
                timer.cancel()
            return
        delay = max(0.0, first - self.seconds())
        if timer is not None and timer.active():
            timer.reset(delay)
            self._timer = timer
        else:
            self._timer = self.base.callLater(delay, self.run_due)

    def _take_jumps(self) -> None:
        """Delay the calls made since the last check by unseen jumps: the jumping thread did not know of them."""
        jumped = self.virtual.jumped
        by = jumped - self._jumped
        if by:
            self._jumped = jumped
            for call in list(self._fresh):
                if call.active():
                    call.time += by
            self._fresh.clear()

    def run_due(self) -> None:
        """Call everything due, in order of time."""
        self._take_jumps()
        now = self.seconds()
        while True:
            due = [call for call in self._calls if call.getTime() <= now]
            if not due:
                break
            call = min(due, key=DelayedCall.getTime)
            self._calls.remove(call)
            call.called = 1
            if not isinstance(call.func, LoopingCall):
                self._activity += 1
            try:
                call.func(*call.args, **call.kw)
            except Exception:
                self._log.failure("a timer failed")
        self._arm()

    def wake(self) -> None:
        """Make the real reactor check the timers again. Any thread."""
        self.base.callFromThread(self.run_due)

    # ------------------------------------------------------------ threads

    def callFromThread(self, function: Callable[..., Any], *args: Any, **kw: Any) -> None:
        """Call a function in a separate iteration of the reactor. Any thread."""
        self._activity += 1
        if get_ident() != self.thread:
            self.base.callFromThread(function, *args, **kw)
            return
        # The real method would wake the reactor by a system call.
        self._soon.append((function, args, kw))
        if len(self._soon) == 1:
            self.base.callLater(0, self._call_soon)

    def _call_soon(self) -> None:
        soon, self._soon = self._soon, []
        for function, args, kw in soon:
            try:
                function(*args, **kw)
            except Exception:
                self._log.failure("a call failed")

    # ------------------------------------------------------------ connections

    def connectTCP(  # noqa: N802
        self,
        host: str,
        port: int,
        factory: Any,
        timeout: float = 30,
        bindAddress: Any = None,  # noqa: N803
    ) -> Any:
        """Connect in memory. Refused if the port has no listener in this cluster."""
        connector = self._network.connect(self.as_reactor(), host, 0 if self._cut else port, factory)
        self._connectors.add(connector)
        return connector

    def listenTCP(self, port: int, factory: Any, backlog: int = 50, interface: str = "") -> Any:  # noqa: N802
        """Listen in memory, and also on a real loopback port if it is one of ``open_for_real``."""
        wanted = self._real_ports.get(port)
        real = None if wanted is None else self.base.listenTCP(wanted, factory, backlog, "127.0.0.1")
        memory = self._network.listen(self.as_reactor(), real.getHost().port if real else port, factory, real)
        self._ports.add(memory)
        return memory

    def open_for_real(self, port: int, real: int) -> None:
        """Make ``listenTCP`` of a port open the socket of the port ``real``, too. 0 for any free one."""
        self._real_ports[port] = real

    def abort_connections(self) -> None:
        """Break all connections in memory. New ones may be made."""
        for port in list(self._ports):
            port.abort_connections()
        for connector in list(self._connectors):
            connector.abort()

    def cut_off(self) -> None:
        """Drop all connections in memory and refuse new ones, as if the process had died."""
        self._cut = True
        for port in list(self._ports):
            port.stopListening()
        self.abort_connections()

    # ------------------------------------------------------------ for who puts the time forward

    @property
    def in_use(self) -> bool:
        """Whether it has timers, as every started reactor does. Any thread."""
        return bool(self._calls)

    def look(self) -> Look:
        """Return its state."""
        self._fresh.clear()
        singles = [call.getTime() for call in self._calls if not isinstance(call.func, LoopingCall)]
        return Look(self._activity, bool(self._soon), min(singles, default=None))
