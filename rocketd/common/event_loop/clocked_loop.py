"""A LoopingCall on a given reactor. Twisted's own installs the global reactor when it is created.

A client on an asyncio loop or a separate thread must leave the global reactor to the application.
"""

from collections.abc import Callable

from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall


class ClockedLoop(LoopingCall):
    """Calls a function without arguments repeatedly, by the time of ``clock``."""

    def __init__(self, clock: IReactorTime, function: Callable[[], object]) -> None:
        # Not super().__init__(): it imports twisted.internet.reactor.
        self.f = function
        self.a = ()
        self.kw = {}
        self.clock = clock
