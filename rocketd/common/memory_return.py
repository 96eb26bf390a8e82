"""Gives memory back to the system after much of it was released.

The allocator of glibc keeps what was freed for itself. After an attack, or a burst of large requests, that can be more
than a gigabyte, for as long as the process runs. No effect with other C libraries.
"""

import ctypes
from collections.abc import Callable
from typing import Any

INTERVAL_SECONDS = 60.0
"""Seconds between two returns."""


class MemoryReturn:
    """Watches the bytes that are held, and trims the heap after ``threshold`` of them were released. 0 never trims.

    ``in_thread`` runs a function in another thread, as trimming takes milliseconds for each gigabyte. Reactor thread only.
    """

    def __init__(
        self, threshold: int, in_thread: Callable[[Callable[[], None]], object], trim: Callable[[], None] | None = None
    ) -> None:
        self._threshold = threshold
        self._in_thread = in_thread
        self._trim = trim if trim is not None else heap_trimmer()
        self._peak = 0
        self._last: float | None = None

    def sample(self, held: int, now: float) -> None:
        """Note the bytes held now; to be called every few seconds."""
        self._peak = max(self._peak, held)
        if self._trim is None or not self._threshold or self._peak - held < self._threshold:
            return
        if self._last is None or now - self._last >= INTERVAL_SECONDS:
            self._last = now
            self._peak = held
            self._in_thread(self._trim)


def heap_trimmer() -> Callable[[], None] | None:
    """Return the function that gives free memory back to the system; None if the C library has none."""
    try:
        malloc_trim: Any = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError):
        return None

    def trim() -> None:
        malloc_trim(0)

    return trim
