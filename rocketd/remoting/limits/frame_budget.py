"""Memory of incomplete frames: a limit over all connections, and a minimum speed.

A connection is listed here as long as it holds part of a frame. Any thread that reads connections.
"""

from threading import RLock
from typing import Protocol

from rocketd.remoting.limits.limit_log import LimitLog


class Holder(Protocol):
    """A connection, as seen by the budget."""

    address: str

    @property
    def reading_paused(self) -> bool:
        """Whether the server itself has paused reading from it."""

    def abandon_frame(self) -> None:
        """Drop the partial frame and close. Any thread that reads connections."""


class _Part:
    """Part of a frame: bytes of memory held, bytes missing, and its times."""

    __slots__ = ("began", "held", "missing", "window_began", "window_missing")

    def __init__(self, missing: int, now: float) -> None:
        self.held = 0
        self.restart(missing, now)
        self.began = now

    def restart(self, missing: int, now: float) -> None:
        """Begin a new window in which the peer must be fast enough."""
        self.missing = self.window_missing = missing
        self.window_began = now


class FrameBudget:
    """Bounds the memory of all incomplete frames, and closes connections that complete their frame too slowly.

    If a connection has not completed its frame after ``seconds``, it must have sent ``min_rate`` bytes a second in that
    time, and again in each such window. If more than ``max_bytes`` are held, the connections with the largest product
    of bytes and time are closed.
    """

    def __init__(self, log: LimitLog, max_bytes: int, seconds: float, min_rate: int) -> None:
        self.max_bytes = max_bytes
        self.seconds = seconds
        self.min_rate = min_rate
        self.total = 0
        self._log = log
        self._parts: dict[Holder, _Part] = {}
        self._lock = RLock()

    def changed(self, holder: Holder, held: int, missing: int, anew: bool, now: float) -> None:
        """Record the bytes held by a connection. ``anew`` tells that they belong to another frame than before."""
        if not held:
            self.forget(holder)
            return
        with self._lock:
            part = self._parts.get(holder)
            if part is None or anew:
                if part is not None:
                    self.total -= part.held
                part = self._parts[holder] = _Part(missing, now)
            self.total += held - part.held
            part.held = held
            part.missing = missing
            while self.total > self.max_bytes and self._parts:
                self._close_largest(now)

    def forget(self, holder: Holder) -> None:
        """Record that a connection holds nothing any more."""
        with self._lock:
            part = self._parts.pop(holder, None)
            if part is not None:
                self.total -= part.held

    def check(self, now: float) -> None:
        """Close the connections that are too slow. Call it every few seconds."""
        with self._lock:
            parts = list(self._parts.items())
        for holder, part in parts:
            if holder.reading_paused:
                part.restart(part.missing, now)
            elif now - part.window_began >= self.seconds:
                received = part.window_missing - part.missing
                if received < self.min_rate * self.seconds:
                    self._log.reached(
                        "frames too slow",
                        "{address}: closing: its frame is too slow: it began {age:.0f} s ago, {received} bytes came "
                        "in the last {window:.0f} s, {missing} are missing (serverFrameTimeoutMillis, "
                        "serverFrameMinBytesPerSecond)",
                        address=holder.address,
                        age=now - part.began,
                        received=received,
                        window=now - part.window_began,
                        missing=part.missing,
                    )
                    self._close(holder)
                else:
                    part.restart(part.missing, now)

    def _close_largest(self, now: float) -> None:
        holder, part = max(self._parts.items(), key=lambda item: item[1].held * (now - item[1].began + 1.0))
        self._log.reached(
            "incomplete frames dropped",
            "{address}: closing: incomplete frames hold {total} bytes, the limit is {limit} "
            "(serverIncompleteFramesMaxBytes); this one has held {held} for {age:.0f} s",
            address=holder.address,
            total=self.total,
            limit=self.max_bytes,
            held=part.held,
            age=now - part.began,
        )
        self._close(holder)

    def _close(self, holder: Holder) -> None:
        self.forget(holder)
        holder.abandon_frame()
