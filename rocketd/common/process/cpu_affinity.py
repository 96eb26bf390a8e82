"""Keeps the threads that share the GIL on one core (Linux).

Only one of them runs at a time, so a second core adds no throughput. It adds cost: waking a thread on another core takes
longer, and its data move from cache to cache. Threads that work without the GIL are `UnboundThread`s and use all cores.
"""

import os
import threading
from collections.abc import Callable, Iterable, Mapping
from math import inf
from random import Random
from time import process_time

from twisted.application.service import Service
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from rocketd.common.settings.declaration import ConfigError

INTERVAL_SECONDS = (1.0, 3.0)
"""Shortest and longest time between two measurements. It is random, so that two daemons do not move at the same time."""

NEEDED_BY_OTHERS = 0.25
"""Share of the core taken by other processes at which a less busy core is searched."""

_CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
_BUSY_FIELDS = (0, 1, 2, 5, 6, 7)
"""Columns of a core in /proc/stat: user, nice, system, irq, softirq, steal."""

_all_cores: frozenset[int] | None = None
"""The cores of this process while its other threads are bound to one of them."""


class UnboundThread(threading.Thread):
    """A thread that works mostly without the GIL: it waits for a disk, or zeroes memory."""

    def run(self) -> None:
        """Run on all cores of the process: a thread begins with those of the thread that has started it."""
        cores = _all_cores
        if cores is not None:
            set_cores(0, cores)
        super().run()


class CoreChoice:
    """Decides on which core a process runs. It moves if others need its core twice in a row, and another is freer."""

    def __init__(self, core: int, busy: Mapping[int, float], own: float, now: float) -> None:
        """``busy`` has the busy seconds of each core so far, ``own`` those of this process, ``now`` the time."""
        self.core = core
        self._busy, self._own, self._now = busy, own, now
        self._was_needed = False

    def measure(self, busy: Mapping[int, float], own: float, now: float) -> int:
        """Return the core to run on from now on."""
        seconds = now - self._now
        shares = {core: (busy[core] - self._busy.get(core, busy[core])) / seconds for core in busy}
        own_share = (own - self._own) / seconds
        self._busy, self._own, self._now = busy, own, now
        others = shares[self.core] - own_share if self.core in shares else inf
        freest = min(shares, key=shares.__getitem__, default=self.core)
        needed = others > NEEDED_BY_OTHERS and shares.get(freest, inf) < others - NEEDED_BY_OTHERS
        if needed and self._was_needed:
            self.core = freest
        self._was_needed = needed and self.core != freest
        return self.core


class CpuAffinity(Service):
    """Binds the threads of a daemon to one core, and moves them. Thread of the reactor only.

    ``mode`` is the setting cpuAffinity. Raises ConfigError for a core that the process does not have. If another program
    changes the cores of the process, or the system refuses the binding, this gives up and says so in the log.
    """

    _log = Logger()

    def __init__(
        self,
        mode: str,
        reactor: IReactorTime,
        read_busy: Callable[[Iterable[int]], Mapping[int, float]] | None = None,
        own_seconds: Callable[[], float] = process_time,
        random: Random | None = None,
    ) -> None:
        self._mode = mode
        self._reactor = reactor
        self._read_busy = read_busy or busy_seconds
        self._own_seconds = own_seconds
        self._random = random or Random()
        self._cores = cores_of_process()
        self._choice: CoreChoice | None = None
        self._next: IDelayedCall | None = None
        accepted = {"auto", "off", *map(str, self._cores)}
        if mode not in accepted:
            raise ConfigError(f"cpuAffinity = {mode}: accepted are auto, off, and the cores {_ranges(self._cores)}")

    def startService(self) -> None:
        """Bind the threads, unless there is nothing to choose from."""
        super().startService()
        if self._mode == "off" or len(self._cores) < 2:
            return
        if self._mode != "auto":
            self._bind(int(self._mode))
            return
        try:
            self._choice = CoreChoice(current_core(), *self._readings())
        except OSError as error:
            self._give_up(str(error))
            return
        if self._bind(self._choice.core):
            self._measure_later()

    def stopService(self) -> None:
        """Give all threads all cores again."""
        super().stopService()
        if _all_cores is not None:
            self._release()
            bind_threads(self._cores)

    def _measure_later(self) -> None:
        self._next = self._reactor.callLater(self._random.uniform(*INTERVAL_SECONDS), self._measure)

    def _measure(self) -> None:
        choice = self._choice
        if choice is None:
            return
        if os.sched_getaffinity(0) != {choice.core}:
            self._give_up("another program has changed the cores of this process")
            return
        before = choice.core
        try:
            core = choice.measure(*self._readings())
        except OSError:  # for example, no file descriptor is free: try again
            core = before
        if core != before:
            if not self._bind(core):
                return
        else:
            bind_threads({core})  # those that were started while the others moved
        self._measure_later()

    def _readings(self) -> tuple[Mapping[int, float], float, float]:
        """Return the busy seconds of the cores, those of this process, and the time. Raises OSError."""
        return self._read_busy(self._cores), self._own_seconds(), self._reactor.seconds()

    def _bind(self, core: int) -> bool:
        """Bind the threads. Return False and give up if the system refuses it."""
        global _all_cores
        _all_cores = self._cores
        if not bind_threads({core}):
            bind_threads(self._cores)
            self._give_up(f"the system refuses core {core}")
            return False
        self._log.info("threads run on core {core} of {cores} (cpuAffinity)", core=core, cores=_ranges(self._cores))
        return True

    def _give_up(self, why: str) -> None:
        self._release()
        self._log.warn("threads are no longer bound to one core (cpuAffinity): {why}", why=why)

    def _release(self) -> None:
        global _all_cores
        _all_cores = None
        self._choice = None
        if self._next is not None and self._next.active():
            self._next.cancel()


def bind_threads(cores: Iterable[int]) -> bool:
    """Bind all threads of this process, except those that work without the lock. New threads follow their creator.

    Return False if the system refuses it for the calling thread.
    """
    cores = frozenset(cores)
    this = threading.current_thread()
    for thread in threading.enumerate():
        # The main thread's native_id is that of the parent after a fork.
        if thread is not this and thread.native_id is not None and not isinstance(thread, UnboundThread):
            set_cores(thread.native_id, cores)
    return set_cores(0, cores)


def set_cores(thread_id: int, cores: Iterable[int]) -> bool:
    """Bind a thread, 0 for the calling one. Return False if it has ended, or the system refuses it."""
    try:
        os.sched_setaffinity(thread_id, cores)
    except OSError:
        return False
    return True


def busy_seconds(cores: Iterable[int]) -> dict[int, float]:
    """Return the seconds for which each core has worked since the boot. Raises OSError."""
    wanted = set(cores)
    busy: dict[int, float] = {}
    with open("/proc/stat", encoding="ascii") as file:
        for line in file:
            name, *columns = line.split()
            if name.startswith("cpu") and name[3:].isdigit() and int(name[3:]) in wanted:
                busy[int(name[3:])] = sum(int(columns[field]) for field in _BUSY_FIELDS) / _CLOCK_TICKS
    return busy


def cores_of_process() -> frozenset[int]:
    """Return the cores that this process may use; none if the system does not tell."""
    return frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else frozenset()


def current_core() -> int:
    """Return the core on which the system has placed the main thread. Raises OSError."""
    with open("/proc/self/stat", encoding="ascii", errors="replace") as file:
        return int(file.read().rpartition(")")[2].split()[36])


def _ranges(cores: Iterable[int]) -> str:
    """Write core numbers as taskset does: 0-3,8."""
    texts: list[str] = []
    first = last = -2
    for core in [*sorted(cores), -1]:
        if core == last + 1:
            last = core
            continue
        if last >= 0:
            texts.append(str(first) if first == last else f"{first}-{last}")
        first = last = core
    return ",".join(texts)
