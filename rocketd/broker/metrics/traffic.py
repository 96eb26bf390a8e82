"""Rates and sizes of the broker, its topics and groups, over the last minute.

Counterpart: `collectBrokerStats` and its neighbours in Apache's exporter, with their names and labels.
"""

from collections.abc import Callable, Iterator, Sequence

from prometheus_client.metrics_core import Metric

from rocketd.broker.admin.parts import AdminParts
from rocketd.broker.stats.names import (
    BROKER_GET_NUMS,
    BROKER_PUT_NUMS,
    GROUP_GET_NUMS,
    GROUP_GET_SIZE,
    SEPARATOR,
    SNDBCK_PUT_NUMS,
    TOPIC_PUT_NUMS,
    TOPIC_PUT_SIZE,
)
from rocketd.metrics.families import Families, Series

BROKER_LABELS = ("cluster", "brokerIP", "broker")
TOPIC_LABELS = ("cluster", "broker", "topic")
GROUP_LABELS = ("cluster", "broker", "topic", "group")

_OF_TOPICS = (
    (TOPIC_PUT_NUMS, "rocketmq_producer_tps", "Messages stored per second."),
    (TOPIC_PUT_SIZE, "rocketmq_producer_message_size", "Bytes stored per second."),
)
_OF_GROUPS = (
    (GROUP_GET_NUMS, "rocketmq_consumer_tps", "Messages read per second."),
    (GROUP_GET_SIZE, "rocketmq_consumer_message_size", "Bytes read per second."),
    (SNDBCK_PUT_NUMS, "rocketmq_send_back_nums", "Messages sent back per second, to be consumed again."),
)


class TrafficMetrics:
    """Rates of the broker, its topics and groups. Any thread."""

    def __init__(self, broker: AdminParts) -> None:
        self._broker = broker

    def metrics(self, families: Families) -> Iterator[Metric]:
        """See MetricSource."""
        broker = self._broker
        cluster, name = broker.settings.broker.broker_cluster_name, broker.settings.broker.broker_name
        own = (cluster, broker.address, name)
        for counted, metric, text in (
            (BROKER_PUT_NUMS, "rocketmq_broker_tps", "Messages stored per second."),
            (BROKER_GET_NUMS, "rocketmq_broker_qps", "Messages read per second."),
        ):
            rates = broker.broker_stats.rates(counted)
            yield families.gauge(metric, text, BROKER_LABELS, [(own, rates.get(cluster, 0.0))])
        for counted, metric, text in _OF_TOPICS:
            yield families.gauge(metric, text, TOPIC_LABELS, self._series(counted, lambda key: (cluster, name, key)))
        for counted, metric, text in _OF_GROUPS:
            yield families.gauge(
                metric, text, GROUP_LABELS, self._series(counted, lambda key: (cluster, name, *_topic_and_group(key)))
            )
        yield families.gauge(
            "rocketmq_producer_count",
            "Producers online.",
            ("cluster", "broker", "group"),
            [((cluster, name, group), len(clients)) for group, clients in broker.producers.all_clients().items()],
        )

    def _series(self, counted: str, labels: Callable[[str], Sequence[str]]) -> Iterator[Series]:
        for key, rate in self._broker.broker_stats.rates(counted).items():
            yield labels(key), rate


def _topic_and_group(key: str) -> tuple[str, str]:
    topic, _, group = key.partition(SEPARATOR)
    return topic, group
