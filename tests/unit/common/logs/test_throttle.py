"""Throttled log lines: one per kind and interval, with a count, and a bounded number of kinds."""

import threading

from twisted.internet.task import Clock
from twisted.logger import Logger, formatEvent
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from rocketd.common.logs.throttle import INTERVAL, OTHER_KINDS, SWEEP_SECONDS, LogThrottle, ThrottledLog, shorten


class LogThrottleTests(SynchronousTestCase):
    def setUp(self):
        self.clock = Clock()
        self.throttle = LogThrottle(self.clock.seconds, kinds=10)

    def test_lines_of_a_kind_within_an_interval_are_counted(self):
        self.assertEqual([self.throttle.admit("a") for _ in range(5)], ["", None, None, None, None])
        self.assertEqual(self.throttle.admit("b"), "")
        self.clock.advance(INTERVAL)
        self.assertEqual(self.throttle.admit("a"), " (4 more like this were not logged)")
        self.assertIsNone(self.throttle.admit("a"))
        self.assertEqual(self.throttle.admit("b"), "")

    def test_cleared_kind_is_logged_at_once(self):
        self.throttle.admit("a")
        self.throttle.clear("a")
        self.assertEqual(self.throttle.admit("a"), "")
        self.throttle.clear("never seen")

    def test_kinds_beyond_the_limit_share_one_entry(self):
        admitted = [kind for kind in map(str, range(1000)) if self.throttle.admit(kind) is not None]
        self.assertEqual(admitted, [*map(str, range(10)), "10"])
        self.clock.advance(INTERVAL)
        self.assertEqual(self.throttle.overdue(), [(OTHER_KINDS, 989)])
        self.assertEqual(self.throttle.admit("999"), "", "old kinds have made room")

    def test_full_throttle_looks_for_old_kinds_once_a_second(self):
        sweeps = []
        sweep = self.throttle._sweep
        self.patch(self.throttle, "_sweep", lambda now: (sweeps.append(now), sweep(now)))
        for number in range(1000):
            self.throttle.admit(str(number))
        self.assertEqual(len(sweeps), 1)
        self.clock.advance(SWEEP_SECONDS)
        for number in range(1000, 2000):
            self.throttle.admit(str(number))
        self.assertEqual(len(sweeps), 2)

    def test_overdue_returns_count_of_ended_burst_once(self):
        for _ in range(3):
            self.throttle.admit("a")
        self.assertEqual(self.throttle.overdue(), [])
        self.clock.advance(INTERVAL)
        self.assertEqual(self.throttle.overdue(), [("a", 2)])
        self.clock.advance(INTERVAL)
        self.assertEqual(self.throttle.overdue(), [])

    def test_admit_allows_configured_lines_per_interval(self):
        throttle = LogThrottle(self.clock.seconds, lines=3)
        self.assertEqual([throttle.admit("a") for _ in range(5)], ["", "", "", None, None])
        self.clock.advance(INTERVAL)
        self.assertEqual(throttle.admit("a"), " (2 more like this were not logged)")
        self.assertEqual([throttle.admit("a") for _ in range(3)], ["", "", None])
        self.clock.advance(INTERVAL)
        self.assertEqual(throttle.overdue(), [("a", 1)])

    def test_admit_from_many_threads_counts_exactly(self):
        admitted = []

        def ask():
            admitted.extend(self.throttle.admit("a") for _ in range(1000))

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual([suffix for suffix in admitted if suffix is not None], [""])
        self.clock.advance(INTERVAL)
        self.assertEqual(self.throttle.overdue(), [("a", 3999)])


class ThrottledLogTests(SynchronousTestCase):
    def setUp(self):
        self.clock = Clock()
        self.lines = []
        log = Logger("x", observer=lambda event: self.lines.append((event["log_level"].name, formatEvent(event))))
        self.log = ThrottledLog(log, LogThrottle(self.clock.seconds))

    def test_repeated_lines_are_written_once_with_their_count_later(self):
        for number in range(1000):
            self.log.warn("bad frame", "{peer}: closing: {why}", peer="1.2.3.4:5", why=number)
        self.clock.advance(INTERVAL)
        self.log.warn("bad frame", "{peer}: closing: {why}", peer="1.2.3.4:5", why="x" * 800)
        self.assertEqual(
            self.lines,
            [
                ("warn", "1.2.3.4:5: closing: 0"),
                ("warn", f"1.2.3.4:5: closing: {'x' * 400}... (800 characters) (999 more like this were not logged)"),
            ],
        )

    def test_flush_after_burst_logs_count(self):
        for _ in range(3):
            self.log.info("idle", "closing")
        self.log.flush()
        self.clock.advance(INTERVAL)
        self.log.flush()
        self.assertEqual(self.lines[1:], [("warn", "idle: 2 lines like the last one were not logged")])

    def test_failures_are_throttled_with_their_traceback(self):
        for _ in range(3):
            self.log.failure("handler", "{request} failed", Failure(ValueError("x")), request=1)
        self.log.error("other", "text")
        self.assertEqual([level for level, _ in self.lines], ["critical", "error"])

    def test_shorten_keeps_short_texts(self):
        self.assertEqual(shorten("x" * 400), "x" * 400)
