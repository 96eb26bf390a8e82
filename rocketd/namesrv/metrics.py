"""The metrics and the health of a name server."""

from collections.abc import Callable, Iterator

from prometheus_client.metrics_core import Metric

from rocketd.common.event_loop.reactor import IReactor
from rocketd.metrics.endpoint import MetricsEndpoint
from rocketd.metrics.families import Families
from rocketd.metrics.server_metrics import ServingMetrics
from rocketd.metrics.settings import MetricsConfig
from rocketd.namesrv.route_info import RouteInfoManager
from rocketd.remoting.serving.server import RemotingServer


class RouteMetrics:
    """The brokers and topics of a name server. Any thread."""

    def __init__(self, routes: RouteInfoManager) -> None:
        self._routes = routes

    def metrics(self, families: Families) -> Iterator[Metric]:
        """See MetricSource."""
        info = self._routes.cluster_info()
        clusters = [(cluster, name) for cluster, names in info.cluster_addr_table.items() for name in names]
        addresses = {name: len(broker.broker_addrs) for name, broker in info.broker_addr_table.items()}
        yield families.gauge(
            "rocketd_registered_brokers",
            "Registered addresses of a broker: its master and slaves.",
            ("cluster", "broker"),
            [((cluster, name), addresses.get(name, 0)) for cluster, name in clusters],
        )
        yield families.gauge(
            "rocketd_registered_topics", "Topics with a route.", (), [((), len(self._routes.all_topics().topic_list))]
        )


def namesrv_endpoint(
    config: MetricsConfig,
    server: RemotingServer,
    routes: RouteInfoManager,
    reactor: IReactor,
    clock: Callable[[], float],
) -> MetricsEndpoint:
    """Make the endpoint of a name server. A name server that answers is alive and ready."""
    sources = (ServingMetrics(server), RouteMetrics(routes))
    return MetricsEndpoint(reactor, config, sources, alive=tuple, ready=tuple, clock=clock)
