"""The copies of half messages, and the commits among them.

Apache's consumers receive a message once per committed copy of its half message: a producer that answers later than the
next pass is checked about two copies. Copies are kept in memory only. Those forgotten in a restart have the same effect
as in Apache's broker.
"""

LIMIT = 100_000
"""The number of copies remembered; the oldest ones are forgotten first."""


class HalfCopies:
    """Identifies half messages by their physical offsets, which are unique. Storage thread only."""

    def __init__(self) -> None:
        self._first: dict[int, int] = {}
        self._copied: dict[int, None] = {}
        self._committed: dict[int, None] = {}

    def add(self, offset: int, copy: int) -> None:
        """Record the copy of a half message."""
        first = self.first(offset)
        self._first[copy] = first
        self._copied[first] = None
        for table in (self._first, self._copied):
            if len(table) > LIMIT:
                del table[next(iter(table))]

    def first(self, offset: int) -> int:
        """Return the physical offset of the first copy; the given one if it is not a copy."""
        return self._first.get(offset, offset)

    def commit(self, offset: int, *, ends_again: bool = False) -> None:
        """Record that the message for consumers was stored. ``ends_again`` is true if its op message was not stored."""
        first = self.first(offset)
        if ends_again or first in self._copied:
            self._committed[first] = None
            if len(self._committed) > LIMIT:
                del self._committed[next(iter(self._committed))]

    def is_committed(self, offset: int) -> bool:
        """Whether the message for consumers of this half message, or of another copy of it, is stored."""
        return self.first(offset) in self._committed
