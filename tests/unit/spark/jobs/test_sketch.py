"""Percentiles out of sketches, beside exact ones."""

import random

from twisted.trial.unittest import TestCase

from rocketd.spark.jobs.trace.sketch import ERROR, ZERO, Sketch, bucket_of


class SketchTests(TestCase):
    def values(self, seed, count):
        rnd = random.Random(seed)
        return [
            rnd.choice((rnd.lognormvariate(3, 2), rnd.uniform(0.1, 10), rnd.randrange(1, 100_000)))
            for _ in range(count)
        ]

    def test_percentiles_are_right_within_the_error(self) -> None:
        for seed in range(20):
            values = sorted(self.values(seed, 1 + seed * 101))
            sketch = Sketch.of(values)
            for part in (0.0, 0.01, 0.5, 0.95, 0.99, 0.999, 1.0):
                exact = values[int(part * (len(values) - 1))]
                found = sketch.quantile(part)
                self.assertLessEqual(abs(found - exact), exact * ERROR * 1.0001, (seed, part, found, exact))

    def test_pieces_add_up(self) -> None:
        values = self.values(1, 1000)
        whole, parts = Sketch.of(values), Sketch()
        for begin in range(0, 1000, 77):
            parts.add(Sketch.of(values[begin : begin + 77]))
        self.assertEqual(parts.count, 1000)
        self.assertEqual([parts.quantile(p / 50) for p in range(51)], [whole.quantile(p / 50) for p in range(51)])

    def test_nothing_and_zero(self) -> None:
        self.assertIsNone(Sketch().quantile(0.5))
        self.assertEqual((bucket_of(0), bucket_of(-5)), (ZERO, ZERO))
        sketch = Sketch.of([0, -3, 0, 100])
        self.assertEqual(sketch.quantile(0.5), 0.0)
        self.assertLessEqual(abs(sketch.quantile(1.0) - 100), 1)
