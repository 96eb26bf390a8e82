"""The service of the console: it listens, and keeps the clients of its users."""

from collections.abc import Callable
from typing import Final

from twisted.application.service import Service
from twisted.internet.defer import Deferred, DeferredList, ensureDeferred, maybeDeferred
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IListeningPort
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

from rocketd.client.settings.config import ClientEnvironment
from rocketd.common.event_loop.reactor import IReactor, global_reactor
from rocketd.console.cluster import ClusterDoor, ConsoleCluster
from rocketd.console.gate import IDLE_SECONDS, BoundedRequest, FewConnections, Gate, HostCheck, QuietSite
from rocketd.console.sessions import Sessions
from rocketd.console.settings import ACCOUNTS, ConsoleSettings, check_reach
from rocketd.console.web import ConsolePages
from rocketd.remoting.serving.server import ListenError

START_ERRORS: Final = (ListenError,)
_SWEEP_SECONDS: Final = 30.0


class ConsoleService(Service):
    """The console. Reactor thread. Raises ConfigError for settings that would let others in.

    ``environment`` replaces the machine of its clients in tests.
    """

    _log = Logger()

    def __init__(
        self, reactor: IReactor, settings: ConsoleSettings, environment: ClientEnvironment | None = None
    ) -> None:
        config = settings.console
        check_reach(config)
        self._settings = settings
        self._reactor = reactor
        self._config = config
        self._door = ClusterDoor(reactor, config, environment)
        self._ending: set[Deferred[None]] = set()
        clock: Callable[[], float] = reactor.seconds
        self._clock = clock
        self.sessions: Sessions[ConsoleCluster] = Sessions(
            clock, config.console_session_minutes * 60, config.console_max_sessions, self._end
        )
        self._sweep = LoopingCall(self.sessions.expire)
        self._sweep.clock = reactor
        self._common: ConsoleCluster | None = None
        self._listening: IListeningPort | None = None
        self.address = ""
        """The address for browsers, after the start."""
        self.port = 0
        """The port it listens on, after the start."""

    def startService(self) -> None:
        """Listen. Raises ListenError."""
        config = self._config
        if config.console_login != ACCOUNTS:
            self._common = self._door.make()
            self._common.start()
        pages = ConsolePages(config, self._door, self.sessions, self._common, self._clock)
        gate = Gate(pages.app.resource(), pages.base, HostCheck(config.console_host, config.console_url))
        site = QuietSite(gate, requestFactory=BoundedRequest, timeout=IDLE_SECONDS, reactor=self._reactor)
        try:
            listening = self._reactor.listenTCP(
                config.console_port,
                FewConnections(site, self._reactor),  # type: ignore[arg-type]
                interface=config.console_host,
            )
        except CannotListenError as error:
            raise ListenError(config.console_port, error, "consolePort") from error
        self._listening = listening
        self.port = int(listening.getHost().port)  # type: ignore[attr-defined]
        host = f"[{config.console_host}]" if ":" in config.console_host else config.console_host
        self.address = config.console_url or f"http://{host}:{self.port}/"
        self._sweep.start(_SWEEP_SECONDS, now=False)
        super().startService()
        self._log.info("the console is at {address}", address=self.address)

    def reload(self, load: Callable[[], tuple[ConsoleSettings, list[str]]]) -> None:
        """Read the settings again, and take the new values of those that can change while it runs."""
        self._settings.reload(load)

    def stopService(self) -> "Deferred[None]":
        """Stop to listen, and close all clients."""
        super().stopService()
        if self._sweep.running:
            self._sweep.stop()
        return ensureDeferred(self._stop())

    async def _stop(self) -> None:
        listening, self._listening = self._listening, None
        if listening is not None:
            await maybeDeferred(listening.stopListening)
        self.sessions.clear()
        common, self._common = self._common, None
        if common is not None:
            self._end(common)
        await DeferredList(list(self._ending))

    def _end(self, cluster: ConsoleCluster) -> None:
        """Close the client of an ended session."""
        ending = Deferred.fromCoroutine(cluster.stop())
        self._ending.add(ending)

        def ended(_: object) -> None:
            self._ending.discard(ending)

        ending.addErrback(lambda failure: self._log.failure("a client of the console did not stop", failure))
        ending.addBoth(ended)


def make_console(settings: ConsoleSettings, reactor: IReactor | None = None) -> ConsoleService:
    """Return a console, by default on the reactor of this process. Raises ConfigError as ConsoleService."""
    return ConsoleService(reactor or global_reactor(), settings)
