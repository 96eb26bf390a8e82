"""What has changed in a table of names since it was last written: one log line for a burst of changes.

No counterpart in Apache, which logs each change as it comes.
"""

import threading
from collections.abc import Callable

from twisted.logger import Logger

NAMED_LIMIT = 20
"""Names in the log line of a burst."""

NamesListener = Callable[[frozenset[str]], None]
"""Called with the names that have changed, in the writer's thread after the write; must not block or raise."""


class ChangeNews:
    """Collects changes by name, the latest of each. Methods may be called from any thread."""

    _log = Logger()

    def __init__(self, one: str, many: str) -> None:
        """``one`` and ``many`` name what the table has, for the log."""
        self.listeners: list[NamesListener] = []
        self._one = one
        self._many = many
        self._guard = threading.Lock()
        self._changes: dict[str, str] = {}

    def add(self, name: str, change: str) -> None:
        """Note a change of a name; with an empty name, ``change`` is the whole line."""
        with self._guard:
            self._changes[name] = change

    def take(self) -> dict[str, str]:
        """Take what was collected; to be called before the state that is written is copied."""
        with self._guard:
            changes, self._changes = self._changes, {}
            return changes

    def tell(self, changes: dict[str, str]) -> str | None:
        """Log the changes that were taken, tell the listeners their names, and return the line; None without any."""
        if not changes:
            return None
        line = self._line(changes)
        self._log.info("{line}", line=line)
        names = frozenset(changes) - {""}
        for listener in self.listeners:
            listener(names)
        return line

    def _line(self, changes: dict[str, str]) -> str:
        if len(changes) == 1:
            ((name, change),) = changes.items()
            return f"{self._one} {name} {change}" if name else change
        named = [name for name in list(changes)[:NAMED_LIMIT] if name]
        rest = f" and {len(changes) - len(named)} more" if len(changes) > len(named) else ""
        return f"{len(changes)} {self._many} were created, changed or deleted: {', '.join(named)}{rest}"
