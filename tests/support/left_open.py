"""Leftovers of code: open sockets, pipes, pollers, threads. Leftovers of other tests may end meanwhile and do not count."""

import gc
import os
import threading
from collections import Counter
from contextlib import suppress


class LeftOpen:
    """Made before the code runs; ``found`` lists new leftovers afterwards.

    With ``young``, garbage collections look only at objects made after it. In a process of thousands of tests, a full
    collection takes a long time.
    """

    def __init__(self, *, young=False):
        self._young = young
        if young:
            gc.freeze()
        else:
            gc.collect()
        self._channels = _channels()
        self._threads = set(threading.enumerate())

    def found(self):
        """List the new leftovers, in words."""
        gc.collect()
        if self._young:
            gc.unfreeze()
        threads = [thread.name for thread in threading.enumerate() if thread not in self._threads]
        return [*sorted((_channels() - self._channels).elements()), *threads]


def _channels():
    targets = []
    for name in os.listdir("/proc/self/fd"):
        # The listing itself is gone before its link is read, and others may be: other threads go on.
        with suppress(FileNotFoundError):
            targets.append(os.readlink(f"/proc/self/fd/{name}"))
    return Counter(target for target in targets if target.startswith(("socket:", "pipe:", "anon_inode:")))
