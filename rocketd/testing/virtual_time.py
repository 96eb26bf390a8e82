"""Time that runs as always and can be put forward, and reactors that live by it.

No counterpart in Apache. The time is that of the machine plus what was added to it. A ``VirtualReactor`` stands before the
reactor that runs: it has its own timers, by this time, and makes its connections in memory; all else is the real one's.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from threading import get_ident
from typing import Any, NamedTuple
from weakref import WeakSet

from twisted.internet.base import DelayedCall
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

from rocketd.testing.memory_network import MemoryNetwork


class VirtualTime:
    """The time of one cluster and its clients. Any thread may read it; ``jump_to`` belongs to one at a time."""

    def __init__(self) -> None:
        self._wall = time.time() - time.monotonic()
        self._offset = 0.0
        self._moment: tuple[float | None, float] = None, 0.0
        """Where it stands, if it does, and by how much it was put forward in all: both change at once."""
        self._changed = threading.Condition()

    @property
    def jumped(self) -> float:
        """By how many seconds it was put forward in all."""
        return self._moment[1]

    def seconds(self) -> float:
        """Return seconds that only go forward."""
        stands_at, _ = self._moment
        return time.monotonic() + self._offset if stands_at is None else stands_at

    def time(self) -> float:
        """Return Unix seconds."""
        return self._wall + self.seconds()

    def now_ms(self) -> int:
        """Return Unix milliseconds."""
        return int(self.time() * 1000)

    def now(self) -> datetime:
        """Return the time with its zone, UTC."""
        return datetime.fromtimestamp(self.time(), UTC)

    @contextmanager
    def standing(self) -> Iterator[None]:
        """Let it stand still, but for jumps."""
        self._moment = self.seconds(), self.jumped
        try:
            yield
        finally:
            with self._changed:
                self._offset = self.seconds() - time.monotonic()
                self._moment = None, self.jumped
                self._changed.notify_all()

    def jump_to(self, seconds: float) -> float:
        """Put the time, which stands, forward to one that ``seconds()`` tells; returns by how much."""
        with self._changed:
            now = self.seconds()
            by = max(0.0, seconds - now)
            self._moment = now + by, self.jumped + by
            self._changed.notify_all()
        return by

    def sleep(self, seconds: float, stop: Callable[[], bool] = lambda: False) -> None:
        """Wait, in this time, until it has passed or ``stop`` says so at some change of the time."""
        end = self.seconds() + seconds
        with self._changed:
            while (left := end - self.seconds()) > 0 and not stop():
                self._changed.wait(left)

    def wake_sleepers(self) -> None:
        """Have those that sleep look whether to go on."""
        with self._changed:
            self._changed.notify_all()


class Look(NamedTuple):
    """What is known of a reactor: how often something happened in it, whether something is about to, and when its next
    single timer is due.
    """

    activity: int
    pending: bool
    next_due: float | None


class VirtualReactor:
    """A reactor in virtual time, whose connections are made in memory, before one that runs: ``base``.

    All of it belongs to the thread of ``base``, but for ``callFromThread`` and ``wake``. Timers that repeat, LoopingCalls,
    are called once where the time has passed over several of their turns.
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
        self._real_ports: set[int] = set()
        self._ports: WeakSet[Any] = WeakSet()
        self._connectors: WeakSet[Any] = WeakSet()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.base, name)

    # ------------------------------------------------------------ time

    def seconds(self) -> float:
        """Return virtual seconds."""
        return self.virtual.seconds()

    def callLater(self, delay: float, function: Callable[..., Any], *args: Any, **kw: Any) -> DelayedCall:  # noqa: N802
        """Call a function after so many virtual seconds."""
        self._take_jumps()
        call = DelayedCall(
            self.seconds() + delay, function, args, kw, self._cancelled, lambda _: self._arm(), self.seconds
        )
        self._calls.append(call)
        self._fresh.add(call)
        self._arm()
        return call

    def getDelayedCalls(self) -> list[DelayedCall]:  # noqa: N802
        """Return what is to be called later."""
        return list(self._calls)

    def _cancelled(self, call: DelayedCall) -> None:
        self._calls.remove(call)
        self._arm()

    def _arm(self) -> None:
        """Have the real reactor call when the first timer is due; it holds no timer when there is none."""
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
        """Put off by the jumps that were not seen yet what has begun since the last look: who jumped did not know of it."""
        jumped = self.virtual.jumped
        by = jumped - self._jumped
        if by:
            self._jumped = jumped
            for call in list(self._fresh):
                if call.active():
                    call.time += by
            self._fresh.clear()

    def run_due(self) -> None:
        """Call what is due, in the order of time."""
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
        """Have the real reactor look at the timers anew. Any thread."""
        self.base.callFromThread(self.run_due)

    # ------------------------------------------------------------ threads

    def callFromThread(self, function: Callable[..., Any], *args: Any, **kw: Any) -> None:
        """Call a function in a turn of the reactor of its own. Any thread."""
        self._activity += 1
        if get_ident() != self.thread:
            self.base.callFromThread(function, *args, **kw)
            return
        # The real one would wake itself by a system call.
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
        """Connect in memory; refused where nobody of this cluster listens."""
        connector = self._network.connect(self, host, 0 if self._cut else port, factory)
        self._connectors.add(connector)
        return connector

    def listenTCP(self, port: int, factory: Any, backlog: int = 50, interface: str = "") -> Any:  # noqa: N802
        """Listen in memory, and on a real port of the loopback address where it is one of ``open_for_real``."""
        real = self.base.listenTCP(port, factory, backlog, "127.0.0.1") if port in self._real_ports else None
        memory = self._network.listen(self, real.getHost().port if real else port, factory, real)
        self._ports.add(memory)
        return memory

    def open_for_real(self, port: int) -> None:
        """Let the next ``listenTCP`` of a port, 0 for any that is free, open a socket."""
        self._real_ports.add(port)

    def cut_off(self) -> None:
        """Connect to nobody, be reached by nobody: as if the process had gone."""
        self._cut = True
        for port in list(self._ports):
            port.stopListening()
        for connector in list(self._connectors):
            connector.abort()

    # ------------------------------------------------------------ for who puts the time forward

    @property
    def in_use(self) -> bool:
        """Whether it has timers, as all has that is started and not stopped. Any thread."""
        return bool(self._calls)

    def look(self) -> Look:
        """Say how it is."""
        self._fresh.clear()
        singles = [call.getTime() for call in self._calls if not isinstance(call.func, LoopingCall)]
        return Look(self._activity, bool(self._soon), min(singles, default=None))
