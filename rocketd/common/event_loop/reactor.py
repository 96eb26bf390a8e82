"""The type of the reactor used by clients and servers: several of Twisted's interfaces in one.

Code that only measures time, or schedules calls, takes Twisted's own IReactorTime.
"""

from typing import cast

from twisted.internet.interfaces import (
    IReactorCore,
    IReactorPluggableNameResolver,
    IReactorTCP,
    IReactorThreads,
    IReactorTime,
)


class IReactor(IReactorCore, IReactorPluggableNameResolver, IReactorTCP, IReactorThreads, IReactorTime):
    """A reactor with time, threads, TCP and name resolution, as all of Twisted's are."""


def global_reactor() -> IReactor:
    """Return the reactor of this process. The first call installs Twisted's default one, unless one is installed."""
    from twisted.internet import reactor

    return cast(IReactor, reactor)
