"""One log line for a burst of changes of a table, and few lines for many bursts."""

from twisted.logger import globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from rocketd.broker.tables.change_news import ChangeNews
from rocketd.common.logs.throttle import EVENT_LINES


class ChangeNewsTests(SynchronousTestCase):
    def setUp(self):
        self.lines = []
        globalLogPublisher.addObserver(self.lines.append)
        self.addCleanup(globalLogPublisher.removeObserver, self.lines.append)
        self.news = ChangeNews("topic", "topics")

    def test_burst_is_one_line(self):
        for number in range(30):
            self.news.add(f"T{number}", "was created")
        self.assertIn("30 topics were created, changed or deleted: T0, T1,", self.news.tell(self.news.take()))
        self.assertEqual(len(self.lines), 1)

    def test_many_bursts_leave_a_bounded_number_of_lines(self):
        for number in range(EVENT_LINES + 50):
            self.news.add(f"T{number}", "was created")
            self.news.tell(self.news.take())
        self.assertEqual(len(self.lines), EVENT_LINES)
