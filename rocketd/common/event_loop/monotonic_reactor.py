"""Timers that ignore steps of the wall clock.

Twisted's reactors measure time by the wall clock. If it is set back by five minutes, every timer stops for five
minutes. If it is set forward, every idle limit is exceeded at once.
"""

from time import monotonic
from typing import Any


def use_monotonic_clock(reactor: Any) -> None:
    """Make a reactor measure time by the monotonic clock. Pending timers keep their remaining time.

    Call it before any code keeps a reading of ``reactor.seconds``. Works with all reactors derived from ReactorBase. A
    second call does nothing.
    """
    if reactor.seconds is monotonic:
        return
    shift = monotonic() - reactor.seconds()
    reactor.seconds = monotonic
    for call in reactor.getDelayedCalls():
        call.time += shift
        call.seconds = monotonic
