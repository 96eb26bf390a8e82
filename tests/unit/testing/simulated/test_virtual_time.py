"""The clock of a cluster: it runs, stands and jumps, and its stopwatch measures work without the jumps."""

import threading
import time

from twisted.trial.unittest import SynchronousTestCase

from rocketd.testing.simulated.virtual_time import VirtualTime


class StopwatchTests(SynchronousTestCase):
    def setUp(self):
        self.virtual = VirtualTime()
        self.real_begin = time.monotonic()
        self.begin = self.virtual.stopwatch()

    def jump(self, seconds):
        with self.virtual.standing():
            self.virtual.jump_to(self.virtual.seconds() + seconds)

    def assert_real(self, measured):
        self.assertGreaterEqual(measured, 0)
        self.assertLessEqual(measured, time.monotonic() - self.real_begin)

    def test_stopwatch_with_jump_measures_real_time(self):
        before = self.virtual.seconds()
        self.jump(1000)
        self.assert_real(self.virtual.stopwatch() - self.begin)
        self.assertGreaterEqual(self.virtual.seconds() - before, 1000)

    def test_stopwatch_started_while_clock_stands_measures_real_time(self):
        with self.virtual.standing():
            begin = self.virtual.stopwatch()
            self.virtual.jump_to(self.virtual.seconds() + 1000)
            self.assertAlmostEqual(self.virtual.stopwatch(), begin, places=6)
        self.assert_real(self.virtual.stopwatch() - begin)

    def test_stopwatch_of_another_thread_measures_real_time_during_jumps(self):
        measured, stop = [], threading.Event()

        def measure():
            last = self.virtual.stopwatch()
            while not stop.is_set():
                now = self.virtual.stopwatch()
                measured.append(now - last)
                last = now

        thread = threading.Thread(target=measure)
        thread.start()
        for _ in range(500):
            self.jump(1000)
        stop.set()
        thread.join()
        self.assert_real(max(measured))
        self.assertGreater(min(measured), -1e-6)  # the rounding of floats

    def test_sleep_in_virtual_time_counts_for_its_thread_only(self):
        measured, begun = [], threading.Event()

        def sleep():
            begin = self.virtual.stopwatch()
            self.virtual.sleep(1000, lambda: bool(begun.set()))
            measured.append(self.virtual.stopwatch() - begin)

        thread = threading.Thread(target=sleep)
        thread.start()
        begun.wait()
        self.jump(600)
        self.jump(400)
        thread.join()
        self.assertGreaterEqual(measured[0], 999)
        self.assert_real(self.virtual.stopwatch() - self.begin)
