"""OpenTelemetry's instruments of clients, with the names of its conventions for messaging, and gauges with our own.

The numbers of sends and handlers come from ``rocketd.client.opentelemetry``. A partition is not an attribute: a series
for each queue would be too many.
"""

from collections import defaultdict
from collections.abc import Callable
from typing import Final

from opentelemetry.metrics import CallbackOptions, Histogram, MeterProvider, Observation, get_meter
from opentelemetry.util.types import AttributeValue

from rocketd.client.measured import Measured, MeasuredClients
from rocketd.client.stats import ConsumerStats, ProducerStats

Attributes = dict[str, AttributeValue]

SYSTEM: Final = "rocketmq"
"""The name of this messaging system in attributes."""

SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
"""The bounds of histograms that the conventions advise."""

GROUP: Final = "messaging.consumer.group.name"
TOPIC: Final = "messaging.destination.name"
ERROR: Final = "error.type"

_GAUGES: Final = (
    (ProducerStats, "in_flight", "rocketd.producer.in_flight", "{message}", "rocketd.producer.group.name"),
    (ConsumerStats, "in_flight", "rocketd.consumer.in_flight", "{message}", GROUP),
    (ConsumerStats, "queues", "rocketd.consumer.queues", "{queue}", GROUP),
)


class MessagingMeter:
    """The instruments of one application. Any thread."""

    def __init__(self, provider: MeterProvider | None) -> None:
        self._meter = get_meter("rocketd.client", meter_provider=provider)
        self._clients = MeasuredClients()
        self._observes = self._observes_lag = False
        self._operation = self._histogram("messaging.client.operation.duration", "Duration of sends.")
        self._process = self._histogram("messaging.process.duration", "Duration of handlers.")
        self._sent = self._meter.create_counter(
            "messaging.client.sent.messages", "{message}", "Messages that were sent, each try counted."
        )
        self._consumed = self._meter.create_counter(
            "messaging.client.consumed.messages", "{message}", "Messages given to handlers."
        )

    def sent(self, seconds: float, messages: int, attributes: Attributes) -> None:
        """Count a try of a send."""
        attributes = {"messaging.system": SYSTEM, "messaging.operation.name": "send", **attributes}
        self._sent.add(messages, attributes)
        self._operation.record(seconds, {**attributes, "messaging.operation.type": "send"})

    def processed(self, seconds: float, messages: int, attributes: Attributes) -> None:
        """Count a run of a handler."""
        attributes = {"messaging.system": SYSTEM, "messaging.operation.name": "process", **attributes}
        self._consumed.add(messages, attributes)
        self._process.record(seconds, attributes)

    def observe(self, *clients: Measured, lag: bool) -> None:
        """Read the gauges of these clients, too."""
        self._clients.add(*clients)
        if not self._observes:
            self._observes = True
            for kind, field, name, unit, group in _GAUGES:
                self._meter.create_observable_gauge(name, [self._reader(kind, field, group)], unit)
        if lag and not self._observes_lag:
            self._observes_lag = True
            self._meter.create_observable_gauge("rocketd.consumer.lag", [self._read_lags], "{message}")

    def _reader(self, kind: type, field: str, group_name: str) -> Callable[[CallbackOptions], list[Observation]]:
        def read(_: CallbackOptions) -> list[Observation]:
            sums: defaultdict[str, int] = defaultdict(int)
            for group, stats in self._clients.stats():
                if isinstance(stats, kind):
                    sums[group] += getattr(stats, field)
            return [
                Observation(number, {"messaging.system": SYSTEM, group_name: group}) for group, number in sums.items()
            ]

        return read

    def _read_lags(self, _: CallbackOptions) -> list[Observation]:
        lags = self._clients.lags().items()
        return [
            Observation(lag, {"messaging.system": SYSTEM, GROUP: group, TOPIC: topic}) for (group, topic), lag in lags
        ]

    def _histogram(self, name: str, text: str) -> Histogram:
        return self._meter.create_histogram(name, "s", text, explicit_bucket_boundaries_advisory=SECONDS)
