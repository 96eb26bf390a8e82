"""The metrics of the serving side, which every server has."""

from collections.abc import Iterator

from prometheus_client.metrics_core import Metric

from rocketd import __version__
from rocketd.metrics.families import Families
from rocketd.remoting.serving.server import RemotingServer


class ServingMetrics:
    """Connections, pools, limits and event loops of a server. Any thread."""

    def __init__(self, server: RemotingServer) -> None:
        self._server = server

    def metrics(self, families: Families) -> Iterator[Metric]:
        """See MetricSource."""
        server = self._server
        yield families.gauge("rocketd_build_info", "Version of rocketd.", ("version",), [((__version__,), 1)])
        yield families.gauge("rocketd_connections", "Open connections.", (), [((), len(server.connections))])
        yield from self._pools(families)
        yield families.counter(
            "rocketd_limit_reached",
            "Times a limit was reached, or a request was refused because of it.",
            ("limit",),
            [((kind,), count) for kind, count in self._limits().items()],
        )
        yield families.gauge(
            "rocketd_budget_used_bytes",
            "Memory used for all connections: incomplete frames, and unsent answers.",
            ("budget",),
            [(("incomplete_frames",), server.frames.total), (("unsent",), server.unsent.total)],
        )
        yield families.histogram(
            "rocketd_event_loop_late_seconds",
            "How late an event loop was: the reactor, or the lane of a pool while it handles requests.",
            ("loop",),
            [((name,), lag) for name, lag in server.lags().items()],
        )

    def _limits(self) -> dict[str, int]:
        dispatcher = self._server.dispatcher
        return dispatcher.limits.counts | dispatcher.refused_by_address()

    def _pools(self, families: Families) -> Iterator[Metric]:
        dispatcher = self._server.dispatcher
        pools = dict(dispatcher.pools)
        now_ms = int(dispatcher.clock() * 1000)
        yield families.counter(
            "rocketd_requests",
            "Requests handled, by pool.",
            ("pool",),
            [((name,), pool.handled_requests) for name, pool in pools.items()],
        )
        yield families.gauge(
            "rocketd_pool_requests",
            "Requests in the queue or running.",
            ("pool",),
            [((name,), pool.queued_requests) for name, pool in pools.items()],
        )
        yield families.gauge(
            "rocketd_pool_capacity_requests",
            "Limit of requests in the queue or running; further ones are refused, or not read.",
            ("pool",),
            [((name,), pool.max_requests) for name, pool in pools.items()],
        )
        yield families.gauge(
            "rocketd_pool_bytes",
            "Bytes of the requests in the queue or running.",
            ("pool",),
            [((name,), pool.queued_bytes + pool.held_bytes) for name, pool in pools.items()],
        )
        yield families.gauge(
            "rocketd_pool_oldest_wait_seconds",
            "How long the oldest request has waited.",
            ("pool",),
            [((name,), pool.head_wait_ms(now_ms) / 1000) for name, pool in pools.items()],
        )
