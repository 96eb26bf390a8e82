"""Metrics of clients for Prometheus: the numbers of ``stats()``, by group.

Import it only if they are wanted: it imports prometheus_client.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

from prometheus_client.core import REGISTRY, CollectorRegistry, CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from rocketd.client.errors import UsageError
from rocketd.client.measured import Measured, MeasuredClients
from rocketd.client.stats import ConsumerStats, ProducerStats

_FAMILIES: Final = (
    (ProducerStats, "sent", CounterMetricFamily, "rocketd_producer_sent_messages", "Messages sent."),
    (ProducerStats, "failed", CounterMetricFamily, "rocketd_producer_failed_messages", "Messages not sent."),
    (ProducerStats, "retries", CounterMetricFamily, "rocketd_producer_retries", "Tries after the first one."),
    (ProducerStats, "in_flight", GaugeMetricFamily, "rocketd_producer_in_flight", "Sends under way."),
    (ConsumerStats, "handled", CounterMetricFamily, "rocketd_consumer_handled_messages", "Messages consumed."),
    (ConsumerStats, "failed", CounterMetricFamily, "rocketd_consumer_failed_messages", "Messages that failed."),
    (ConsumerStats, "handler_seconds", CounterMetricFamily, "rocketd_consumer_handler_seconds", "Time in handlers."),
    (ConsumerStats, "in_flight", GaugeMetricFamily, "rocketd_consumer_in_flight_messages", "Messages not yet handled."),
    (ConsumerStats, "queues", GaugeMetricFamily, "rocketd_consumer_queues", "Queues of the consumers."),
)

_LAG: Final = ("rocketd_consumer_lag_messages", "Messages behind the position of the consumers.")


class ClientMetrics(Collector):
    """The numbers of clients, added up by group at each scrape, in a registry of prometheus_client.

    A client that is not open has no numbers. The last numbers of a closed client stay in the counters, if a scrape or
    ``add`` has found it open: counters never decrease. With ``lag``, each scrape also has the lag of consumers by topic, and
    asks the brokers for that of the next one: a request for each queue.

    Raises UsageError if the registry has a ClientMetrics already.
    """

    def __init__(self, *clients: Measured, registry: CollectorRegistry = REGISTRY, lag: bool = False) -> None:
        self._clients = MeasuredClients()
        self._lag = lag
        self.add(*clients)
        try:
            registry.register(self)
        except ValueError as error:
            raise UsageError(
                "this registry has the numbers of clients already: add further clients with add() of the first "
                "ClientMetrics, or give another registry="
            ) from error

    def add(self, *clients: Measured) -> None:
        """Measure these clients, too."""
        self._clients.add(*clients)

    def describe(self) -> Iterable[Metric]:
        """Return the metrics without numbers."""
        metrics = [family(name, text, labels=["group"]) for _, _, family, name, text in _FAMILIES]
        return [*metrics, GaugeMetricFamily(*_LAG, labels=["group", "topic"])] if self._lag else metrics

    def collect(self) -> Iterator[Metric]:
        """Return the metrics with the numbers of now. Any thread."""
        measured, closed = self._clients.stats_and_sums()
        for kind, field, family, name, text in _FAMILIES:
            sums: defaultdict[str, float] = defaultdict(float)
            for group, stats in [*measured, *closed] if family is CounterMetricFamily else measured:
                if isinstance(stats, kind):
                    sums[group] += getattr(stats, field)
            metric = family(name, text, labels=["group"])
            for group, number in sorted(sums.items()):
                metric.add_metric([group], number)
            yield metric
        if self._lag:
            metric = GaugeMetricFamily(*_LAG, labels=["group", "topic"])
            for place, lag in sorted(self._clients.lags().items()):
                metric.add_metric(place, lag)
            yield metric
