"""The names of the entries changed last in a table, so that a reader can fetch only those."""

from collections import deque
from itertools import islice

KEPT = 4_096
"""Changes whose names are kept."""


class ChangeHistory:
    """Numbers the changes of one table. It has no lock: that of the table guards it."""

    def __init__(self) -> None:
        self.number = 0
        """Number of the last change."""
        self._names: deque[str | None] = deque(maxlen=KEPT)

    def add(self, name: str | None = None) -> None:
        """Count a change: an entry of this name is new or was replaced. Without a name, anything may have changed."""
        self.number += 1
        self._names.append(name)

    def since(self, number: int) -> set[str] | None:
        """Return the names of entries added or replaced after change ``number``.

        None if the names were not kept, or if anything may have changed.
        """
        count = self.number - number
        if count > len(self._names):
            return None
        changed = set(islice(reversed(self._names), count))
        return None if None in changed else {name for name in changed if name is not None}
