"""The time for which a consumer leaves a message with its handler. Written by handlers in any thread.

Apache's 4.x consumers cannot extend it.
"""

from collections.abc import Callable
from typing import Final

import msgspec

LEASE: Final = "_lease"
"""Name of the attribute of a ReceivedMessage that a handler has."""


class Lease(msgspec.Struct, eq=False):
    """The extension of the ``consume_timeout`` of one message. ``clock_ms`` is the clock of its consumer."""

    clock_ms: Callable[[], float]
    until_ms: float = 0.0
    is_over: bool = False
    """The message was given back to its broker, or is being given back."""
    is_refused: bool = False
    """The handler was told so, and may have left its work undone."""

    def extend(self, duration_ms: float) -> bool:
        """Leave the message with its handler for this time from now on. Return False if it was given back already."""
        self.until_ms = max(self.until_ms, self.clock_ms() + duration_ms)
        self.is_refused = self.is_over
        return not self.is_refused

    def is_extended(self, now_ms: float) -> bool:
        """Whether the handler has asked for more time than until now."""
        return now_ms < self.until_ms

    def end(self, now_ms: float) -> bool:
        """End the lease before the message is given back. Return False if the handler has asked for more time."""
        # The flag is set first: a thread that extends the lease now sees it, or is seen here.
        self.is_over = True
        self.is_over = not self.is_extended(now_ms)
        return self.is_over
