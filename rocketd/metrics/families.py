"""Makes metrics from values."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric

from rocketd.common.event_loop.loop_lag import LagHistogram

Series = tuple[Sequence[str], float]
"""The values of the labels, and the value."""


class MetricSource(Protocol):
    """Something with metrics."""

    def metrics(self, families: "Families") -> Iterator[Metric]:
        """Measure now. Any thread."""


class Families:
    """Makes the metrics of one page. A metric has at most `max_series` series."""

    def __init__(self, max_series: int) -> None:
        self._max_series = max_series
        self._left_out: dict[str, int] = {}

    def gauge(self, name: str, text: str, labels: Sequence[str], series: Iterable[Series]) -> GaugeMetricFamily:
        """Return a gauge: values may rise and fall."""
        family = GaugeMetricFamily(name, text, labels=labels)
        for values, figure in self._bounded(name, series):
            family.add_metric(values, figure)
        return family

    def counter(self, name: str, text: str, labels: Sequence[str], series: Iterable[Series]) -> CounterMetricFamily:
        """Return a counter: values never fall. The page adds `_total` to the name."""
        family = CounterMetricFamily(name, text, labels=labels)
        for values, figure in self._bounded(name, series):
            family.add_metric(values, figure)
        return family

    def histogram(
        self, name: str, text: str, labels: Sequence[str], series: Iterable[tuple[Sequence[str], LagHistogram]]
    ) -> HistogramMetricFamily:
        """Return distributions of durations in seconds."""
        family = HistogramMetricFamily(name, text, labels=labels)
        for values, histogram in series:
            buckets, seconds = histogram.cumulative()
            family.add_metric(values, [(_bound(bound), float(count)) for bound, count in buckets], seconds)
        return family

    def left_out(self) -> Metric:
        """Return how many series were left out so far, by metric."""
        series = [((name,), float(count)) for name, count in self._left_out.items()]
        return self.gauge(
            "rocketd_metrics_left_out", "Series left out because of metricsMaxSeries.", ("metric",), series
        )

    def _bounded(self, name: str, series: Iterable[Series]) -> Iterator[Series]:
        left = iter(series)
        yield from islice(left, self._max_series)
        missing = sum(1 for _ in left)
        if missing:
            self._left_out[name] = missing


def _bound(seconds: float) -> str:
    return "+Inf" if seconds == float("inf") else repr(seconds)
