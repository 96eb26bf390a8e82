"""Throttled log lines: one per kind and interval, with a count, and a bounded number of kinds."""

import threading

from twisted.internet.task import Clock
from twisted.logger import Logger, formatEvent
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from rocketd.common.log_throttle import INTERVAL, OTHER_KINDS, LogThrottle, ThrottledLog, shorten


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

    def test_kind_that_is_cleared_is_logged_at_once(self):
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

    def test_counts_of_an_ended_burst_are_told_once(self):
        for _ in range(3):
            self.throttle.admit("a")
        self.assertEqual(self.throttle.overdue(), [])
        self.clock.advance(INTERVAL)
        self.assertEqual(self.throttle.overdue(), [("a", 2)])
        self.clock.advance(INTERVAL)
        self.assertEqual(self.throttle.overdue(), [])

    def test_threads_that_share_a_throttle_get_one_line_and_lose_no_count(self):
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

    def test_flush_after_a_burst_tells_the_count(self):
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
