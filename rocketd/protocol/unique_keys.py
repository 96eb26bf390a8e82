"""The unique keys of messages.

Counterpart: `MessageClientIDSetter` (Apache). Tools read the creation time from a key, and search the index about that time.
"""

from collections.abc import Callable
from datetime import datetime
from struct import Struct
from typing import Final

_TAIL: Final = Struct(">IH")
_CLOCK_STEP_MS: Final = 1_000_000


class UniqueKeys:
    """A generator of keys: ``head``, milliseconds since the month began (4 bytes) and a counter (2 bytes).

    ``head`` must be different in each process: 10 bytes, or 22 with an IPv6 address. ``now_ms`` returns Unix milliseconds.
    Use one object per process, in one thread.
    """

    def __init__(self, head: bytes, now_ms: Callable[[], float]) -> None:
        self._head = head
        self._now_ms = now_ms
        self._counter = 0
        self._month_began_ms = 0
        self._month_ends_ms = 0

    def next_key(self) -> str:
        """Return a new key: 32 upper-case hexadecimal digits, or 56 with an IPv6 head."""
        since, number = self._since_month_began(), self._counter
        self._counter = (number + 1) & 0xFFFF
        return (self._head + _TAIL.pack(since & 0xFFFFFFFF, number)).hex().upper()

    def next_keys(self, count: int) -> list[str]:
        """Return ``count`` new keys."""
        since, head = self._since_month_began(), self._head.hex().upper()
        numbers = range(self._counter, self._counter + count)
        self._counter = (self._counter + count) & 0xFFFF
        # If the counter starts again at 0, the next millisecond keeps the keys apart.
        return [f"{head}{since + (number >> 16) & 0xFFFFFFFF:08X}{number & 0xFFFF:04X}" for number in numbers]

    def _since_month_began(self) -> int:
        now = int(self._now_ms())
        if now >= self._month_ends_ms:
            self._begin_month(now)
        since = now - self._month_began_ms
        return 0 if -_CLOCK_STEP_MS < since < 0 else since

    def _begin_month(self, now_ms: int) -> None:
        first = datetime.fromtimestamp(now_ms / 1000).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        following = first.replace(year=first.year + first.month // 12, month=first.month % 12 + 1)
        self._month_began_ms = int(first.timestamp() * 1000)
        self._month_ends_ms = int(following.timestamp() * 1000)
