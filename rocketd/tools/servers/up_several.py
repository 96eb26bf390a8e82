"""``rocketd up --brokers N``: brokers of one cluster in processes, to use more than one core of a machine.

Each broker has a store, a log file and ports, and registers as a broker of the cluster. Clients spread over the brokers by
the queues of their topics.
"""

import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from twisted.internet.defer import CancelledError, Deferred, gatherResults, maybeDeferred
from twisted.internet.error import ProcessDone, ProcessExitedAlready, ProcessTerminated
from twisted.internet.interfaces import IDelayedCall, IReactorProcess
from twisted.internet.protocol import ProcessProtocol
from twisted.python.failure import Failure

from rocketd.broker.base.settings import BrokerSettings
from rocketd.common.command_line.errors import CommandError
from rocketd.common.command_line.output import show
from rocketd.common.event_loop.reactor import IReactor
from rocketd.namesrv.service import make_namesrv
from rocketd.namesrv.settings import NamesrvSettings
from rocketd.tools.servers.up_console import ConsolePort, start_console
from rocketd.tools.servers.up_settings import of_broker, registered, show_metrics, show_next_steps, start_server

R = TypeVar("R")

MAX_BROKERS = 64

PORT_DISTANCE = 10
"""Distance between the ports of two brokers: each also uses the port after its own (slaves), and one two below."""

STOP_SECONDS = 60.0
"""Seconds that a broker may take to stop before it is killed."""

_PROGRAM = """
import ctypes
from twisted.scripts.twistd import run
if hasattr(ctypes.CDLL(None), "prctl"):
    ctypes.CDLL(None).prctl(1, 15)  # the kernel sends SIGTERM if the parent is killed
run()
"""


@dataclass(frozen=True, slots=True)
class BrokerPlace:
    """The name, the port (0 for a free one), the directory and the port of metrics (0 for none) of one broker."""

    name: str
    port: int
    directory: str
    metrics_port: int = 0

    @property
    def log(self) -> str:
        """The path of its log file."""
        return os.path.join(self.directory, "rocketd.log")

    def command(self, namesrv: str, options: Sequence[tuple[str, str]]) -> list[str]:
        """Return the command that runs the broker. ``options`` are settings of all brokers."""
        own = (
            ("namesrvAddr", namesrv),
            *options,
            ("brokerName", self.name),
            ("listenPort", str(self.port)),
            ("metricsPort", str(self.metrics_port)),
            ("storePathRootDir", os.path.join(self.directory, "store")),
        )
        settings = [text for key, value in own for text in ("-o", f"{key}={value}")]
        return [
            sys.executable,
            "-c",
            _PROGRAM,
            "-n",
            "--pidfile=",
            f"--logfile={self.log}",
            "rocketd-broker",
            *settings,
        ]


def places(name: str, first_port: int, data: str, count: int, first_metrics_port: int = 0) -> list[BrokerPlace]:
    """Return the places of ``count`` brokers. With ``first_port`` 0, each takes a free port.

    The metrics have ``first_metrics_port`` and the ports after it, with 0 none.
    """
    return [
        BrokerPlace(
            f"{name}-{number}",
            first_port + PORT_DISTANCE * number if first_port else 0,
            os.path.join(data, f"broker-{number}"),
            first_metrics_port + number if first_metrics_port else 0,
        )
        for number in range(count)
    ]


class ChildBroker(ProcessProtocol):
    """One running broker. ``ended`` fires with its exit status, negative for a signal. Reactor thread only."""

    def __init__(self, reactor: IReactor, place: BrokerPlace) -> None:
        self.place = place
        self.ended: Deferred[int] = Deferred()
        self._reactor = reactor
        self._kill: IDelayedCall | None = None

    def start(self, namesrv: str, options: Sequence[tuple[str, str]]) -> None:
        """Start the process. Its standard output and error are those of this process."""
        os.makedirs(self.place.directory, exist_ok=True)
        command = self.place.command(namesrv, options)
        with open(os.devnull, "rb") as nothing:
            IReactorProcess(self._reactor).spawnProcess(
                self, command[0], command, dict(os.environ), childFDs={0: nothing.fileno(), 1: 2, 2: 2}
            )

    def stop(self) -> Deferred[int]:
        """Stop the broker; kill it after a minute. Fires when it has ended."""
        self._signal(signal.SIGTERM)
        if not self.ended.called:
            self._kill = self._reactor.callLater(STOP_SECONDS, self._signal, signal.SIGKILL)
        return self.ended

    def processEnded(self, reason: Failure) -> None:  # noqa: N802
        """Report the exit status."""
        if self._kill is not None and self._kill.active():
            self._kill.cancel()
        error = reason.value
        if isinstance(error, ProcessTerminated):
            self.ended.callback(-error.signal if error.signal else int(error.exitCode or 0))
        else:
            assert isinstance(error, ProcessDone)
            self.ended.callback(0)

    def _signal(self, number: int) -> None:
        try:
            if self.transport is not None:
                self.transport.signalProcess(number)
        except ProcessExitedAlready:
            pass


class _Brokers:
    """The processes of all brokers. The first that ends before ``stop`` ends what is awaited through ``unless_ended``."""

    def __init__(self, processes: Sequence[ChildBroker]) -> None:
        self._processes = processes
        self._awaited: Deferred[Any] | None = None
        self._error: CommandError | None = None
        self._stopping = False

    def start(self, namesrv: str, options: Sequence[tuple[str, str]]) -> None:
        for process in self._processes:
            process.start(namesrv, options)
            process.ended.addCallback(self._ended, process.place)

    async def unless_ended(self, awaited: Deferred[R]) -> R:
        """Return the result. Raises CommandError if a broker ends before."""
        self._awaited = awaited
        if self._error is not None:
            awaited.cancel()
        try:
            return await awaited
        except CancelledError:
            if self._error is not None:
                raise self._error from None
            raise

    async def stop(self) -> None:
        self._stopping = True
        await gatherResults([process.stop() for process in self._processes if process.transport is not None])

    def _ended(self, status: int, place: BrokerPlace) -> int:
        if not self._stopping and self._error is None:
            self._error = CommandError(f"{place.name} ended with status {status}; see {place.log}")
            if self._awaited is not None:
                self._awaited.cancel()
        return status


async def up_several(
    reactor: IReactor,
    namesrv_settings: NamesrvSettings,
    settings: BrokerSettings,
    several: Sequence[BrokerPlace],
    console: ConsolePort,
    overrides: Sequence[tuple[str, str]],
) -> int:
    """Start name server and console here, and each broker in a process. Serve until cancelled. Then stop all.

    ``settings`` are those of one broker. Raises CommandError if a broker ends.
    """
    brokers = _Brokers([ChildBroker(reactor, place) for place in several])
    namesrv = make_namesrv(namesrv_settings, reactor)
    pages = None
    try:
        start_server(namesrv, "--namesrv-port")
        brokers.start(namesrv.local_address, of_broker(overrides))
        waiting = Deferred.fromCoroutine(registered(reactor, namesrv, settings, [place.name for place in several]))
        addresses = await brokers.unless_ended(waiting)
        show(f"name server  {namesrv.local_address}")
        for place in several:
            show(f"broker       {addresses[place.name]}  ({place.name}, files in {place.directory})")
        host = settings.metrics.metrics_host
        for place in several:
            show_metrics(place.name, host, place.metrics_port)
        show_metrics("name server", host, namesrv.settings.metrics.metrics_port)
        pages = start_console(reactor, console, namesrv.local_address, settings)
        show_next_steps(namesrv)
        await brokers.unless_ended(Deferred())
    finally:
        if pages is not None:
            await maybeDeferred(pages.stopService)
        await brokers.stop()
        await maybeDeferred(namesrv.stopService)
    return 0
