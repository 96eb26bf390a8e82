"""How late event loops are: histogram and probe."""

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from rocketd.common.event_loop.loop_lag import PROBE_SECONDS, LagHistogram, ReactorLag


class LagHistogramTests(SynchronousTestCase):
    def test_summary_is_of_the_last_full_minute(self):
        lag = LagHistogram()
        lag.add(0.003)
        self.assertEqual(lag.summary().delays, 0)
        lag.roll()
        self.assertEqual(lag.summary().delays, 1)
        lag.roll()
        self.assertEqual(lag.summary().delays, 0)

    def test_percentiles_are_upper_bounds_of_classes(self):
        lag = LagHistogram()
        for _ in range(989):
            lag.add(0.000_1)
        for _ in range(9):
            lag.add(0.003)
        for _ in range(2):
            lag.add(0.5)
        lag.roll()
        summary = lag.summary()
        self.assertEqual((summary.p50, summary.p99, summary.p999), (0.128, 4.096, 500.0))
        self.assertEqual(summary.longest, 500.0)

    def test_percentile_does_not_exceed_the_longest_delay(self):
        lag = LagHistogram()
        lag.add(0.000_7)
        lag.roll()
        self.assertEqual(lag.summary().p50, 0.7)

    def test_cumulative_counts_go_on_through_the_minutes(self):
        lag = LagHistogram()
        lag.add(0.003)
        lag.roll()
        lag.add(0.000_001)
        buckets, seconds = lag.cumulative()
        self.assertEqual([count for bound, count in buckets if bound in (0.000_002, 0.002_048, 0.004_096)], [1, 1, 2])
        self.assertEqual(buckets[-1], (float("inf"), 2))
        self.assertAlmostEqual(seconds, 0.003_001)

    def test_delay_of_a_minute_counts_in_the_last_class(self):
        lag = LagHistogram()
        lag.add(60.0)
        lag.roll()
        self.assertEqual(lag.summary().longest, 60_000)
        self.assertGreater(lag.summary().p50, 8_000)

    def test_text_names_all_figures(self):
        lag = LagHistogram()
        lag.add(0.25)
        lag.roll()
        self.assertEqual(str(lag.summary()), "p50 250 p99 250 p99.9 250 longest 250 ms")


class ReactorLagTests(SynchronousTestCase):
    def test_late_call_counts_with_its_delay(self):
        clock = Clock()
        lag = ReactorLag(clock)
        lag.start()
        clock.advance(PROBE_SECONDS)
        clock.advance(PROBE_SECONDS + 0.2)
        lag.histogram.roll()
        self.assertEqual(lag.histogram.summary().delays, 2)
        self.assertAlmostEqual(lag.histogram.summary().longest, 200.0)

    def test_stop_leaves_no_call(self):
        clock = Clock()
        lag = ReactorLag(clock)
        lag.start()
        lag.start()
        lag.stop()
        self.assertEqual(clock.getDelayedCalls(), [])

    def test_late_call_with_stopwatch_counts_with_its_seconds(self):
        clock, stopwatch = Clock(), Clock()
        lag = ReactorLag(clock, stopwatch.seconds)
        lag.start()
        stopwatch.advance(PROBE_SECONDS + 0.2)
        clock.advance(100)
        lag.histogram.roll()
        self.assertEqual(lag.histogram.summary().delays, 1)
        self.assertAlmostEqual(lag.histogram.summary().longest, 200.0)
