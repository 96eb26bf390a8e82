"""A LoopingCall on a reactor that is given: Twisted's own installs the global reactor as soon as it is made.

What a client runs in an asyncio loop or in a thread of its own must leave the global reactor to the application.
"""

from collections.abc import Callable
from typing import Any

from twisted.internet.task import LoopingCall


class ClockedLoop(LoopingCall):
    """Calls a function without arguments again and again, by the time of ``clock``."""

    def __init__(self, clock: Any, function: Callable[[], object]) -> None:
        # Not super().__init__(): it imports twisted.internet.reactor.
        self.f = function
        self.a = ()
        self.kw = {}
        self.clock = clock
