"""Returns memory to the system after much of it was released.

The allocator of glibc keeps freed memory. After an attack, or a burst of large requests, it can keep more than a
gigabyte until the process ends. No effect with other C libraries.
"""

import ctypes
import os
from collections.abc import Callable
from typing import Any

INTERVAL_SECONDS = 60.0
"""Seconds between two returns."""

LONGEST_INTERVAL_SECONDS = 960.0
"""Seconds between two returns because of the process's size, if they release little."""


class MemoryReturn:
    """Watches the memory of requests and answers, and of the process, and trims the heap. A threshold of 0 never trims.

    The heap is trimmed after ``threshold`` of the held bytes were released. Uncounted memory is detected by the
    process's size: the heap is also trimmed if it is ``threshold`` above its minimum. If that memory is in use, the
    trim releases little, and the time to the next such trim doubles.

    ``in_thread`` runs a function on another thread, because trimming takes milliseconds per gigabyte. ``own_memory``
    returns the bytes of the process outside mapped files, 0 if unknown. Reactor thread only.
    """

    def __init__(
        self,
        threshold: int,
        in_thread: Callable[[Callable[[], None]], object],
        trim: Callable[[], None] | None = None,
        own_memory: Callable[[], int] | None = None,
    ) -> None:
        self._threshold = threshold
        self._in_thread = in_thread
        self._trim = trim if trim is not None else heap_trimmer()
        self._own_memory = own_memory or own_memory_of_process
        self._peak = 0
        self._least: int | None = None
        self._before_trim = 0
        self._last: float | None = None
        self._pause = INTERVAL_SECONDS

    def sample(self, held: int, now: float) -> None:
        """Record the bytes held now. Call it every few seconds."""
        if self._trim is None or not self._threshold:
            return
        self._peak = max(self._peak, held)
        own = self._own_memory()
        self._least = own if self._least is None else min(self._least, own)
        released = self._peak - held >= self._threshold
        grown = own - self._least >= self._threshold
        if not grown:
            self._pause = INTERVAL_SECONDS
        pause = INTERVAL_SECONDS if released else self._pause
        if not (released or grown) or (self._last is not None and now - self._last < pause):
            return
        # The previous trim released little, or the memory was taken again.
        in_vain = self._last is not None and grown and self._before_trim - own < self._threshold
        self._pause = min(self._pause * 2, LONGEST_INTERVAL_SECONDS) if in_vain else INTERVAL_SECONDS
        self._last = now
        self._peak = held
        self._before_trim = own
        self._in_thread(self._trim)


def own_memory_of_process() -> int:
    """Return the resident bytes of this process outside mapped files, 0 if unknown."""
    try:
        with open("/proc/self/statm", "rb") as file:
            _, resident, shared, *_ = map(int, file.read().split())
    except (OSError, ValueError):
        return 0
    return (resident - shared) * os.sysconf("SC_PAGE_SIZE")


def heap_trimmer() -> Callable[[], None] | None:
    """Return the function that returns free memory to the system, None if the C library lacks it."""
    try:
        malloc_trim: Any = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError):
        return None

    def trim() -> None:
        malloc_trim(0)

    return trim
