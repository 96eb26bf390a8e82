"""Tracks the running calls into plugins, so that a stop can wait for them and name the ones that hang.

Every guard around a plugin's code reports the start and end of a call to the server's ``PluginCalls``. Servers without
plugins have no guards, so their hot paths have no overhead.
"""

import threading
from collections.abc import Callable, Iterable
from functools import partial
from time import monotonic
from typing import NamedTuple

from twisted.logger import Logger

from rocketd.remoting.interfaces import IConnection

PROCESSOR = "processor plugin"
RPC_HOOK = "RPC hook"
CONNECTION_LISTENER = "connection listener"
ACCESS_VALIDATOR = "access validator"
LOG_DISPATCHER = "log dispatcher"
ARRIVAL_LISTENER = "arrival listener"
TRANSACTION_LISTENER = "transaction listener"
MESSAGE_HOOK = "message hook"
"""Kinds of plugins, as named in the log."""


class Busy(NamedTuple):
    """Running calls of one plugin: kind, name, (noun, function), number of calls, age of the oldest in seconds."""

    kind: str
    plugin: str
    what: tuple[str, str]
    calls: int
    seconds: float

    def __str__(self) -> str:
        noun, of = self.what
        calls = f"1 {noun}" if self.calls == 1 else f"{self.calls} {noun}s"
        return f"{self.kind} {self.plugin}: {calls} of {of} since {self.seconds:.1f} s"


class PluginCall:
    """One running call. Only ``PluginCalls`` changes it."""

    __slots__ = ("answered", "began", "given_up", "kind", "name", "peer", "thread", "what")

    def __init__(self, kind: str, name: str, what: tuple[str, str], began: float) -> None:
        self.kind = kind
        self.name = name
        self.what = what
        self.began = began
        self.thread: int | None = threading.get_ident()
        """The thread inside the plugin's code, None if the call continues without one."""
        self.peer: IConnection | None = None
        """The connection whose loss ends the call, None if its loss does not."""
        self.answered = False
        self.given_up = False


class PluginCalls:
    """The registry of one server. Any thread may use it. ``clock`` returns monotonic seconds."""

    _log = Logger()

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._running: dict[PluginCall, None] = {}
        self._deadline: float | None = None

    # ------------------------------------------------------------ guards

    def begin(self, kind: str, name: str, of: str, noun: str = "call") -> PluginCall:
        """Record that this thread enters a plugin. ``noun`` and ``of`` are for the log: 1 <call> of <dispatch>."""
        call = PluginCall(kind, name, (noun, of), self._clock())
        with self._changed:
            self._running[call] = None
        return call

    def end(self, call: PluginCall) -> None:
        """Record the end of a call, successful or not."""
        with self._changed:
            self._remove(call)

    def leave(self, call: PluginCall, peer: IConnection | None = None) -> None:
        """Record that the thread has left the plugin but the call continues.

        With a peer, the call ends when its answer was sent, or when the peer's connection is lost.
        """
        with self._changed:
            call.thread = None
            call.peer = peer
            # A connection is marked as closed before its loss is reported.
            if peer is not None and (call.answered or peer.closed):
                self._remove(call)

    def answer_sent(self, call: PluginCall) -> None:
        """Record that the answer to a request was sent. The call ends unless its thread is still in the plugin."""
        with self._changed:
            call.answered = True
            if call.peer is not None:
                self._remove(call)

    def connection_lost(self, connection: IConnection) -> None:
        """Drop the requests of a connection whose answers only the peer waits for."""
        if not self._running:
            return
        with self._changed:
            for call in [call for call in self._running if call.peer is connection]:
                self._remove(call)

    def _remove(self, call: PluginCall) -> None:
        self._running.pop(call, None)
        self._changed.notify_all()

    # ------------------------------------------------------------ the stop

    def start(self) -> None:
        """Drop the deadline of an earlier stop."""
        self._deadline = None

    def begin_stop(self, seconds: float) -> None:
        """Set the deadline for all calls. The first one counts."""
        if self._deadline is None:
            self._deadline = self._clock() + seconds

    def is_stuck(self, threads: Iterable[int | None]) -> bool:
        """Return whether the deadline is over and one of these threads is in a plugin's code."""
        if not self._is_over():
            return False
        wanted = set(threads) - {None}
        with self._changed:
            return any(call.thread in wanted for call in self._running)

    def stuck(self) -> str:
        """Name the calls with threads beyond the deadline, "" without any or before the deadline."""
        if not self._is_over():
            return ""
        with self._changed:
            calls = [call for call in self._running if call.thread is not None]
        return ", ".join(map(str, self._grouped(calls)))

    def wait(self) -> bool:
        """Wait until the calls running now are over. After the deadline, log the rest and return False.

        Not in the reactor thread.
        """
        with self._changed:
            calls = list(self._running)
            seconds = 0.0 if self._deadline is None else max(0.0, self._deadline - self._clock())
            if self._changed.wait_for(partial(self._are_over, calls), seconds):
                return True
            left = [call for call in calls if call in self._running]
            for call in left:
                call.given_up = True
        for busy in self._grouped(left):
            self._log.error("{busy}; the server stops without waiting for it any longer", busy=str(busy))
        return False

    def given_up(self, *kinds: str) -> bool:
        """Return whether a call abandoned by ``wait``, into a plugin of one of these kinds, is still running."""
        with self._changed:
            return any(call.given_up and call.kind in kinds for call in self._running)

    def busy(self, *kinds: str) -> list[Busy]:
        """Return the running calls, all or those of some kinds."""
        with self._changed:
            calls = [call for call in self._running if not kinds or call.kind in kinds]
        return self._grouped(calls)

    def _is_over(self) -> bool:
        return self._deadline is not None and self._clock() >= self._deadline

    def _are_over(self, calls: list[PluginCall]) -> bool:
        return not any(call in self._running for call in calls)

    def _grouped(self, calls: list[PluginCall]) -> list[Busy]:
        now = self._clock()
        groups: dict[tuple[str, str, tuple[str, str]], list[float]] = {}
        for call in calls:
            groups.setdefault((call.kind, call.name, call.what), []).append(call.began)
        return [Busy(*key, len(begun), now - min(begun)) for key, begun in groups.items()]
