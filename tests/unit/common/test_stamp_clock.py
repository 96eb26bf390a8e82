"""Timestamps under steps of the wall clock."""

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from rocketd.common.stamp_clock import STEP_MS, StampClock

WALL = 1_700_000_000.0


class StampClockTests(SynchronousTestCase):
    def setUp(self):
        self.clock = Clock()
        self.clock.advance(5000)
        self.offset = WALL - 5000
        self.stamps = StampClock(lambda: self.clock.seconds() + self.offset, self.clock.seconds)

    def stamp(self):
        return self.stamps.now() * 1000

    def test_stamp_without_steps_is_the_wall_clock(self):
        self.clock.advance(10)
        self.assertAlmostEqual(self.stamps.now(), WALL + 10, 3)
        self.assertAlmostEqual(self.stamps.clock_ms_of((WALL + 3) * 1000), 5003_000, 0)
        self.assertEqual(self.stamps.stepped_since(WALL * 1000), 0)

    def test_stamp_after_a_step_forward_is_the_wall_clock(self):
        before = self.stamp()
        self.offset += 300
        self.clock.advance(1)
        self.assertAlmostEqual(self.stamps.now(), WALL + 301, 3)
        self.assertAlmostEqual(self.stamps.clock_ms_of(before), 5000_000, 0)
        self.assertAlmostEqual(self.stamps.clock_ms_of(before + 150_000), 5001_000, 0, "none was given in the gap")
        self.assertAlmostEqual(self.stamps.stepped_since(before), 300_000, 0)
        self.assertEqual(self.stamps.stepped_since(self.stamp()), 0)

    def test_stamp_after_a_step_back_catches_up_without_going_back(self):
        before = self.stamp()
        self.clock.advance(1)
        self.stamp()
        self.offset -= 300
        self.clock.advance(100)
        during = self.stamp()
        self.clock.advance(1)
        later = self.stamp()
        self.assertGreater(during, before)
        self.assertAlmostEqual(self.stamps.clock_ms_of(during), 5101_000, -1)
        self.assertAlmostEqual(self.stamps.clock_ms_of(later), 5102_000, -1)
        self.assertAlmostEqual(self.stamps.stepped_since(before), -300_000, 0)
        self.clock.advance(400)
        self.assertAlmostEqual(self.stamps.now(), WALL + 202, 3)

    def test_small_differences_are_not_steps(self):
        for number in range(100):
            self.offset += 0.04 * (-1) ** number
            self.clock.advance(1)
            self.assertLess(self.stamp() - (self.clock.seconds() + self.offset) * 1000, STEP_MS)
        self.assertEqual(self.stamps.stepped_since(WALL * 1000), 0)

    def test_stamp_after_small_step_forward_is_the_wall_clock(self):
        self.offset += 0.001
        self.clock.advance(1)
        self.assertAlmostEqual(self.stamps.now(), WALL + 1.001, 5)

    def test_stamps_after_small_steps_back_never_decrease(self):
        for step in (0.4, 0.06, 0.04):
            self.setUp()
            self.clock.advance(100)
            given = [(self.stamp(), 5100_000)]
            for _ in range(30):
                self.offset -= step
                self.clock.advance(0.01)
                given.append((self.stamp(), self.clock.seconds() * 1000))
            stamps = [stamp for stamp, _ in given]
            self.assertEqual(stamps, sorted(stamps))
            self.assertGreaterEqual(stamps[-1], (self.clock.seconds() + self.offset) * 1000)
            for stamp, clock_ms in given:
                self.assertLess(abs(self.stamps.clock_ms_of(stamp) - clock_ms), STEP_MS)
            self.assertLess(abs(self.stamps.stepped_since(WALL * 1000) + 30_000 * step), STEP_MS)
            self.clock.advance(20)
            self.assertLess(abs(self.stamp() - (self.clock.seconds() + self.offset) * 1000), STEP_MS)

    def test_interrupted_readings_are_not_steps(self):
        def slow_wall():
            if not interrupted:
                interrupted.append(True)
                self.clock.advance(60)
            return self.clock.seconds() + self.offset

        interrupted = [True]
        stamps = StampClock(slow_wall, self.clock.seconds)
        interrupted.clear()
        stamps.now()
        self.assertEqual(stamps.stepped_since(WALL * 1000), 0)

    @given(st.lists(st.tuples(st.integers(-1000, 1000), st.integers(1, 1000)), max_size=20))
    def test_stamp_age_survives_clock_steps(self, steps):
        self.setUp()
        given_at = []
        for step, wait in steps:
            self.offset += step
            given_at.append((self.stamp(), self.clock.seconds() * 1000))
            self.clock.advance(wait)
            given_at.append((self.stamp(), self.clock.seconds() * 1000))
            self.clock.advance(1)
        stamps = [stamp for stamp, _ in given_at]
        self.assertEqual(stamps, sorted(stamps))
        for stamp, clock_ms in given_at:
            self.assertLess(abs(self.stamps.clock_ms_of(stamp) - clock_ms), 20)
