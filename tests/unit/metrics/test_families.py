"""Metrics made from values, and how many series they may have."""

from prometheus_client.core import CollectorRegistry
from prometheus_client.exposition import generate_latest
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from rocketd.common.event_loop.loop_lag import LagHistogram
from rocketd.metrics.endpoint import FRESH_SECONDS, Figures
from rocketd.metrics.families import Families
from rocketd.metrics.settings import MetricsConfig


class Source:
    def __init__(self, make):
        self.make = make
        self.calls = 0

    def metrics(self, families):
        self.calls += 1
        yield self.make(families)


class FamilyTests(SynchronousTestCase):
    def test_series_beyond_the_limit_are_left_out_and_counted(self):
        families = Families(2)
        family = families.gauge("depth", "Depth.", ("queue",), [((str(number),), number) for number in range(5)])
        self.assertEqual([sample.labels["queue"] for sample in family.samples], ["0", "1"])
        (left,) = families.left_out().samples
        self.assertEqual((left.labels, left.value), ({"metric": "depth"}, 3.0))

    def test_histogram_ends_with_all_durations(self):
        lag = LagHistogram()
        lag.add(0.5)
        lag.add(100.0)
        family = Families(10).histogram("lag_seconds", "Lag.", (), [((), lag)])
        values = {sample.labels.get("le"): sample.value for sample in family.samples if sample.name.endswith("_bucket")}
        self.assertEqual((values["0.524288"], values["+Inf"]), (1.0, 2.0))


class FigureTests(SynchronousTestCase):
    def setUp(self):
        self.clock = Clock()
        self.source = Source(lambda families: families.gauge("one", "One.", (), [((), 1)]))

    def page(self, *sources):
        registry = CollectorRegistry()
        registry.register(Figures(MetricsConfig(), sources, self.clock.seconds))
        return lambda: generate_latest(registry).decode()

    def test_figures_are_measured_once_a_second_at_most(self):
        page = self.page(self.source)
        self.assertIn("one 1.0", page())
        self.assertIn("one 1.0", page())
        self.assertEqual(self.source.calls, 1)
        self.clock.advance(FRESH_SECONDS)
        page()
        self.assertEqual(self.source.calls, 2)

    def test_failing_source_leaves_the_others(self):
        def fail(families):
            raise RuntimeError("broken")

        self.assertIn("one 1.0", self.page(Source(fail), self.source)())
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)
