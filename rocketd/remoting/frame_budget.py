"""Bytes that connections hold of frames that are not complete: a limit in all, and a least speed.

No counterpart in Apache. Reactor thread only. A connection is told of here as long as it holds part of a frame.
"""

from typing import Protocol

from rocketd.remoting.limit_log import LimitLog


class Holder(Protocol):
    """A connection, as the budget sees it."""

    address: str

    @property
    def reading_paused(self) -> bool:
        """Whether the server itself reads nothing from it at present."""

    def abandon_frame(self) -> None:
        """Drop the part of a frame that is held and close."""


class _Part:
    """Part of a frame: bytes of memory held, bytes missing, and since when."""

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
    """Bounds the memory of all incomplete frames and closes connections that are too slow to complete theirs.

    A connection that has not completed its frame for ``seconds`` must have sent ``min_rate`` bytes a second in that time,
    and in each such time again. If more than ``max_bytes`` are held, those connections are closed that have held the most
    for the longest.
    """

    def __init__(self, log: LimitLog, max_bytes: int, seconds: float, min_rate: int) -> None:
        self.max_bytes = max_bytes
        self.seconds = seconds
        self.min_rate = min_rate
        self.total = 0
        self._log = log
        self._parts: dict[Holder, _Part] = {}

    def changed(self, holder: Holder, held: int, missing: int, anew: bool, now: float) -> None:
        """Note that a connection holds so much; ``anew`` if it is of another frame than before."""
        part = self._parts.get(holder)
        if not held:
            self.forget(holder)
            return
        if part is None or anew:
            if part is not None:
                self.total -= part.held
            part = self._parts[holder] = _Part(missing, now)
        self.total += held - part.held
        part.held = held
        part.missing = missing
        while self.total > self.max_bytes and self._parts:
            self._close_greediest(now)

    def forget(self, holder: Holder) -> None:
        """Note that a connection holds nothing any more."""
        part = self._parts.pop(holder, None)
        if part is not None:
            self.total -= part.held

    def check(self, now: float) -> None:
        """Close the connections that are too slow; to be called every few seconds."""
        for holder, part in list(self._parts.items()):
            if holder.reading_paused:
                part.restart(part.missing, now)
            elif now - part.window_began >= self.seconds:
                received = part.window_missing - part.missing
                if received < self.min_rate * self.seconds:
                    self._log.reached(
                        "frames too slow",
                        "{address}: closing: of a frame that began {age:.0f} s ago, {received} bytes came in the last "
                        "{window:.0f} s and {missing} are missing (serverFrameTimeoutMillis, serverFrameMinBytesPerSecond)",
                        address=holder.address,
                        age=now - part.began,
                        received=received,
                        window=now - part.window_began,
                        missing=part.missing,
                    )
                    self._close(holder)
                else:
                    part.restart(part.missing, now)

    def _close_greediest(self, now: float) -> None:
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
