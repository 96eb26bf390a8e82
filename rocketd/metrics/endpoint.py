"""The HTTP pages of a server: `/metrics`, `/healthz` and `/readyz`.

A page has no login and may be reached by anybody who reaches the port. So connections are few, a request has no body, and
the values are measured at most once a second, in separate threads.
"""

from collections.abc import Callable, Iterator, Sequence
from threading import Lock
from typing import Final, cast

from prometheus_client.core import CollectorRegistry
from prometheus_client.exposition import make_wsgi_app
from prometheus_client.gc_collector import GCCollector
from prometheus_client.metrics_core import Metric
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from twisted.application.service import Service
from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IAddress, IListeningPort
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger
from twisted.protocols.policies import ProtocolWrapper, WrappingFactory
from twisted.python.threadpool import ThreadPool
from twisted.web.http import Request as HttpRequest
from twisted.web.resource import Resource
from twisted.web.server import Request, Site
from twisted.web.wsgi import WSGIResource

from rocketd.common.event_loop.reactor import IReactor
from rocketd.metrics.families import Families, MetricSource
from rocketd.metrics.settings import MetricsConfig
from rocketd.remoting.serving.server import ListenError

MAX_CONNECTIONS: Final = 32
"""Open connections. Further ones are closed at once."""
IDLE_SECONDS: Final = 15
"""Time without received bytes after which a connection is closed."""
FRESH_SECONDS: Final = 1.0
"""How long measured values are shown again."""
_THREADS: Final = 2

Health = Callable[[], Sequence[str]]
"""Returns the problems, a line each. Empty: all is well. Reactor thread, so it must not block."""


class Figures:
    """The metrics of all sources, measured at most once in FRESH_SECONDS. Any thread. ``clock`` is in monotonic seconds."""

    _log = Logger()

    def __init__(self, config: MetricsConfig, sources: Sequence[MetricSource], clock: Callable[[], float]) -> None:
        self._config = config
        self._sources = sources
        self._clock = clock
        self._guard = Lock()
        self._measured: list[Metric] = []
        self._measured_at: float | None = None

    def collect(self) -> Iterator[Metric]:
        """Return all metrics (interface of prometheus_client)."""
        with self._guard:
            now = self._clock()
            if self._measured_at is None or now - self._measured_at >= FRESH_SECONDS:
                self._measured = self._measure()
                self._measured_at = self._clock()
            return iter(self._measured)

    def describe(self) -> list[Metric]:
        """Return nothing: the registry shall not measure at the start (interface of prometheus_client)."""
        return []

    def _measure(self) -> list[Metric]:
        families = Families(self._config.metrics_max_series)
        measured: list[Metric] = []
        for source in self._sources:
            try:
                measured.extend(source.metrics(families))
            except Exception:
                self._log.failure("the metrics of {source} cannot be measured", source=type(source).__name__)
        measured.append(families.left_out())
        return measured


class _BodilessRequest(Request):
    """A request whose connection is closed if it announces a body: none of the pages takes one."""

    def gotLength(self, length: int | None) -> None:  # noqa: N802 - the name is Twisted's
        super().gotLength(0)
        if length != 0:
            self.channel.forceAbortClient()

    def handleContentChunk(self, data: bytes) -> None:  # noqa: N802 - the name is Twisted's
        """Drop the rest of a body."""


class _QuietSite(Site):
    """Without a log line for each request: the pages are asked for all the time."""

    noisy = False

    def log(self, request: HttpRequest) -> None:
        """Do nothing."""


class _FewConnections(WrappingFactory):
    """Closes connections beyond MAX_CONNECTIONS at once."""

    noisy = False

    def logPrefix(self) -> str:  # noqa: N802 - the name is Twisted's
        """Return the name in Twisted's line about the open port."""
        return "port for metrics and health"

    def buildProtocol(self, addr: IAddress | None) -> ProtocolWrapper:
        if len(self.protocols) >= MAX_CONNECTIONS:
            # Twisted closes the connection then; the annotation of its base class does not say so.
            return cast(ProtocolWrapper, None)
        return super().buildProtocol(addr)


class _HealthPage(Resource):
    isLeaf = True  # noqa: N815 - the name is Twisted's

    def __init__(self, health: Health) -> None:
        super().__init__()
        self._health = health

    def render_GET(self, request: HttpRequest) -> bytes:  # noqa: N802 - the name is Twisted's
        troubles = self._health()
        request.setHeader(b"content-type", b"text/plain; charset=utf-8")
        request.setHeader(b"cache-control", b"no-store")
        if troubles:
            request.setResponseCode(503)
        return "\n".join([*(troubles or ["ok"]), ""]).encode()


class MetricsEndpoint(Service):
    """The HTTP server of the pages. Reactor thread.

    - ``alive`` returns the problems that a restart may fix.
    - ``ready`` returns the reasons why the server should get no requests now.
    """

    _log = Logger()

    def __init__(
        self,
        reactor: IReactor,
        config: MetricsConfig,
        sources: Sequence[MetricSource],
        *,
        alive: Health,
        ready: Health,
        clock: Callable[[], float],
    ) -> None:
        self._reactor = reactor
        self._config = config
        self._figures = Figures(config, sources, clock)
        self._alive = alive
        self._ready = ready
        self._threads = ThreadPool(0, _THREADS, name="metrics")
        self._listening: IListeningPort | None = None

    @property
    def port(self) -> int:
        """The port it listens on, 0 before the start."""
        return 0 if self._listening is None else int(self._listening.getHost().port)  # type: ignore[attr-defined]

    def startService(self) -> None:
        """Listen. Raises ListenError."""
        root = Resource()
        root.putChild(b"metrics", WSGIResource(self._reactor, self._threads, make_wsgi_app(self._registry())))
        root.putChild(b"healthz", _HealthPage(self._alive))
        root.putChild(b"readyz", _HealthPage(self._ready))
        site = _QuietSite(root, requestFactory=_BodilessRequest, timeout=IDLE_SECONDS)
        try:
            self._listening = self._reactor.listenTCP(
                self._config.metrics_port,
                _FewConnections(site),  # type: ignore[arg-type]
                interface=self._config.metrics_host,
            )
        except CannotListenError as error:
            raise ListenError(self._config.metrics_port, error, "metricsPort") from error
        self._threads.start()
        super().startService()
        self._log.info(
            "metrics and health: http://{host}:{port}/metrics, /healthz, /readyz",
            host=self._config.metrics_host,
            port=self.port,
        )

    def stopService(self) -> "Deferred[None]":
        """Stop to listen, and wait for running requests."""
        super().stopService()
        listening, self._listening = self._listening, None
        if listening is None:
            return succeed(None)
        stopped = maybeDeferred(listening.stopListening)
        # It waits for a running measurement.
        return stopped.addBoth(
            lambda _: deferToThreadPool(self._reactor, self._reactor.getThreadPool(), self._threads.stop)
        )

    def _registry(self) -> CollectorRegistry:
        registry = CollectorRegistry()
        registry.register(self._figures)
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        GCCollector(registry=registry)
        return registry
