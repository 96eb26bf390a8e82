"""Log lines that would come again and again while something is away: the first, and then one in a while, with a count.

No counterpart in Apache, whose logs say it each time.
"""

from collections.abc import Callable

SECONDS = 10.0
"""How long nothing is said of what was said."""


class Seldom:
    """Decides which lines are written; ``now`` gives seconds. All methods belong to one thread."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._said: dict[str, tuple[float, int]] = {}
        """When, and how often it was kept back since."""

    def admit(self, what: str) -> str | None:
        """Return what to put behind the line about ``what``, where it is to be written; None where it is not."""
        now = self._now()
        said_at, kept_back = self._said.get(what, (None, 0))
        if said_at is not None and now - said_at < SECONDS:
            self._said[what] = said_at, kept_back + 1
            return None
        self._said[what] = now, 0
        return f" (and {kept_back} times more since it was last said)" if kept_back else ""

    def over(self, what: str) -> None:
        """It is no longer so: say it at once when it is again."""
        self._said.pop(what, None)
