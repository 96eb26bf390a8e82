"""Signals that end a process: the reactor stops, and the exit status is 0."""

import signal
from collections.abc import Callable

from twisted.internet.error import ReactorNotRunning

from rocketd.common.event_loop.reactor import IReactor


def exit_cleanly_on_signals(reactor: IReactor, *, hang_up: Callable[[], None] | None = None) -> None:
    """Make SIGTERM and SIGINT stop the reactor and exit with 0. With twistd's handlers, the process dies of the signal.

    A signal before the reactor runs stops it as soon as it does. SIGHUP calls ``hang_up`` in the reactor thread. Without
    a function it stops the reactor, too, unless the process ignores it, as under nohup.
    """

    def stop() -> None:
        try:
            reactor.stop()
        except ReactorNotRunning:
            pass  # already stopping after an earlier signal

    def handle(*_: object) -> None:
        reactor.callFromThread(stop)

    def hung_up(*_: object) -> None:
        reactor.callFromThread(stop if hang_up is None else hang_up)

    def install() -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, handle)
        if hang_up is not None or signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            signal.signal(signal.SIGHUP, hung_up)

    install()
    reactor.callWhenRunning(install)  # again: the reactor installs its own when it starts to run
