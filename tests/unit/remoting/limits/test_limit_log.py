"""Counts of limits that were reached, and their lines."""

from twisted.internet.task import Clock
from twisted.logger import Logger, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from rocketd.remoting.limits.limit_log import LimitLog


class LimitLogTests(SynchronousTestCase):
    def setUp(self):
        self.clock = Clock()
        self.lines = []
        log = Logger(observer=lambda event: self.lines.append(formatEvent(event)))
        self.limits = LimitLog(log, self.clock.seconds)

    def lose(self, cause=""):
        self.limits.reached("one-way requests lost", "lost: {why}", cause=cause, why="the disk is full")

    def test_line_comes_once_a_minute_with_reason_and_count(self):
        for _ in range(3):
            self.lose()
        self.assertEqual(len(self.lines), 1)
        self.clock.advance(60)
        self.lose()
        self.assertEqual(
            self.lines[1],
            "lost: the disk is full (4 one-way requests lost since the start) (2 more like this were not logged)",
        )

    def test_last_flush_has_counts_of_the_interval_under_way(self):
        for _ in range(3):
            self.lose(14)
        self.limits.flush()
        self.assertEqual(len(self.lines), 1)
        self.limits.flush(last=True)
        self.assertEqual(self.lines[1], "one-way requests lost 14: 2 lines like the last one were not logged")
        self.limits.flush(last=True)
        self.assertEqual(len(self.lines), 2)

    def test_causes_of_kind_have_separate_lines_and_one_count(self):
        for cause in (1, 14, 1, 14):
            self.lose(cause)
        self.assertEqual(len(self.lines), 2)
        self.assertEqual(self.limits.counts, {"one-way requests lost": 4})

    def test_count_without_line_returns_the_total(self):
        self.lose()
        self.assertEqual(self.limits.count("one-way requests lost", 2), 3)
        self.assertEqual(len(self.lines), 1)

    def test_table_has_key_for_each_reached_kind(self):
        self.lose()
        self.limits.count("requests refused as busy, pool send", 5)
        self.assertEqual(
            self.limits.table(), {"limitOneWayRequestsLost": "1", "limitRequestsRefusedAsBusyPoolSend": "5"}
        )
