"""The metrics and the health of a broker on one port."""

from collections.abc import Callable

from rocketd.broker.admin.parts import AdminParts
from rocketd.broker.admin.runtime_info import RuntimeInfo
from rocketd.broker.metrics.groups import GroupMetrics
from rocketd.broker.metrics.health import BrokerHealth
from rocketd.broker.metrics.replication import ReplicationMetrics
from rocketd.broker.metrics.runtime import RuntimeMetrics
from rocketd.broker.metrics.store import StoreMetrics
from rocketd.broker.metrics.traffic import TrafficMetrics
from rocketd.broker.registration import Registration
from rocketd.common.event_loop.reactor import IReactor
from rocketd.metrics.endpoint import MetricsEndpoint
from rocketd.metrics.server_metrics import ServingMetrics
from rocketd.remoting.serving.server import RemotingServer


def broker_endpoint(
    broker: AdminParts,
    server: RemotingServer,
    registration: Registration,
    is_serving: Callable[[], bool],
    reactor: IReactor,
    clock: Callable[[], float],
) -> MetricsEndpoint:
    """Make the endpoint of a broker. ``clock`` returns monotonic seconds."""
    health = BrokerHealth(broker, registration, is_serving)
    sources = (
        ServingMetrics(server),
        RuntimeMetrics(broker, RuntimeInfo(broker)),
        TrafficMetrics(broker),
        GroupMetrics(broker),
        StoreMetrics(broker),
        ReplicationMetrics(broker),
    )
    return MetricsEndpoint(
        reactor, broker.settings.metrics, sources, alive=health.alive, ready=health.ready, clock=clock
    )
