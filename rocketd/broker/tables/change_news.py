"""Changes of a table since its last write: one log line for a burst of changes."""

import threading
from collections.abc import Callable

from twisted.logger import Logger

from rocketd.common.logs.throttle import event_log

NAMED_LIMIT = 20
"""The maximum number of names in the log line of a burst."""

NamesListener = Callable[[frozenset[str]], None]
"""Called with the changed names in the writer's thread, after the write. It must not block or raise."""


class ChangeNews:
    """Collects the changes of a table: the latest change of each name. Any thread."""

    _log = Logger()

    def __init__(self, one: str, many: str) -> None:
        """``one`` and ``many`` are the log's words for an entry of the table."""
        self.listeners: list[NamesListener] = []
        self._events = event_log(self._log)
        self._one = one
        self.many = many
        self._guard = threading.Lock()
        self._changes: dict[str, str] = {}

    def add(self, name: str, change: str) -> None:
        """Record a change of a name. If the name is empty, ``change`` is the whole line."""
        with self._guard:
            self._changes[name] = change

    def take(self) -> dict[str, str]:
        """Remove and return the collected changes. Call it before the state to be written is copied."""
        with self._guard:
            changes, self._changes = self._changes, {}
            return changes

    def tell(self, changes: dict[str, str]) -> str | None:
        """Log the changes, pass their names to the listeners, and return the line; None if there are none."""
        if not changes:
            return None
        line = self._line(changes)
        self._events.info(self.many, "{line}", line=line)
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
        return f"{len(changes)} {self.many} were created, changed or deleted: {', '.join(named)}{rest}"
