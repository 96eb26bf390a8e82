"""Timers that a step of the wall clock does not move.

Twisted's reactors measure time by the wall clock. If it is set back by five minutes, every timer stands still for five
minutes; if it is set forward, every idle limit is exceeded at once.
"""

from time import monotonic
from typing import Any


def use_monotonic_clock(reactor: Any) -> None:
    """Let a reactor measure time by the monotonic clock. Timers that it has keep the time that they have left.

    To be called before anything keeps a reading of ``reactor.seconds``. Works with every reactor that derives from
    ReactorBase, whichever twistd has installed. Calling it again does nothing.
    """
    if reactor.seconds is monotonic:
        return
    shift = monotonic() - reactor.seconds()
    reactor.seconds = monotonic
    for call in reactor.getDelayedCalls():
        call.time += shift
        call.seconds = monotonic
