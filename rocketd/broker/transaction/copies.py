"""Which half messages are copies of one another, and of which the message was committed.

No counterpart in Apache, whose consumers get a message once for each copy of its half message that is committed: a producer
that needs longer to answer than the next look takes to come is asked about two. Kept in memory alone: what a restart
forgets is as in Apache's.
"""

LIMIT = 100_000
"""Copies that are remembered; the oldest are forgotten."""


class Copies:
    """Knows half messages by their offsets in the log, which none ever shares. Storage thread only."""

    def __init__(self) -> None:
        self._first: dict[int, int] = {}
        self._copied: dict[int, None] = {}
        self._committed: dict[int, None] = {}

    def add(self, offset: int, copy: int) -> None:
        """Take in that a half message was stored once more."""
        first = self.first(offset)
        self._first[copy] = first
        self._copied[first] = None
        for table in (self._first, self._copied):
            if len(table) > LIMIT:
                del table[next(iter(table))]

    def first(self, offset: int) -> int:
        """Return what this is a copy of; itself when it is none."""
        return self._first.get(offset, offset)

    def commit(self, offset: int, *, ends_again: bool = False) -> None:
        """Take in that the message of a half message was stored for consumers; ``ends_again`` without the mark of it."""
        first = self.first(offset)
        if ends_again or first in self._copied:
            self._committed[first] = None
            if len(self._committed) > LIMIT:
                del self._committed[next(iter(self._committed))]

    def is_committed(self, offset: int) -> bool:
        """Whether the message of a half message, or of one that has copies in common with it, is there for consumers."""
        return self.first(offset) in self._committed
