"""The one thread that writes changed tables."""

import threading
from time import monotonic

from twisted.internet.task import Clock
from twisted.logger import formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from rocketd.common import table_writer
from rocketd.common.logs.throttle import INTERVAL
from rocketd.common.table_writer import TableWriter

LIMIT = 60.0


class SlowDisk:
    """A table and its file: counts writes, and can hold or refuse them."""

    def __init__(self):
        self.content = []
        self.written = []
        self.writes = 0
        self.error = None
        self.gate = threading.Event()
        self.gate.set()
        self.began = threading.Event()

    def save(self):
        content = list(self.content)
        self.began.set()
        assert self.gate.wait(LIMIT)
        self.writes += 1
        if self.error is not None:
            raise self.error
        self.written = content


class TableWriterTests(SynchronousTestCase):
    def setUp(self):
        self.disk = SlowDisk()
        self.writer = TableWriter()
        self.table = self.writer.table("/config/table.json", self.disk.save)
        self.events = []
        globalLogPublisher.addObserver(self.events.append)
        self.addCleanup(globalLogPublisher.removeObserver, self.events.append)

    def start(self):
        self.writer.start()
        self.addCleanup(self.writer.stop)

    def lines(self):
        return [line for line in map(formatEvent, self.events) if "/config/table.json" in line]

    def wait_for_write(self):
        """Have the table written, and return how that ended."""
        done = threading.Event()
        errors = []
        self.table.changed(lambda error: (errors.append(error), done.set()))
        self.assertTrue(done.wait(LIMIT))
        return errors[0]

    def test_change_before_start_is_written_by_its_caller(self):
        self.disk.content.append(1)
        self.table.changed()
        self.assertEqual(self.disk.written, [1])

    def test_changes_during_write_share_next_write(self):
        self.start()
        self.disk.gate.clear()
        answers = []
        done = threading.Event()
        self.table.changed(answers.append)
        self.assertTrue(self.disk.began.wait(LIMIT))
        for number in range(2000):
            self.disk.content.append(number)
            self.table.changed()
        self.table.changed(lambda error: (answers.append(error), done.set()))
        self.disk.gate.set()
        self.assertTrue(done.wait(LIMIT))
        self.assertEqual(self.disk.written, list(range(2000)))
        self.assertEqual((self.disk.writes, answers), (2, [None, None]))

    def test_change_without_callback_is_written_soon(self):
        self.start()
        self.disk.content.append(1)
        self.table.changed()
        self.assertTrue(self.disk.began.wait(LIMIT))

    def test_change_without_callback_waits_for_its_share_of_the_cpu(self):
        times = iter((0.0, 1e9))
        self.patch(table_writer, "thread_time", lambda: next(times, 0.0))
        self.start()
        self.wait_for_write()
        self.table.changed()
        self.assertGreater(self.table.due, monotonic() + 1e9)
        self.wait_for_write()
        self.assertIsNone(self.table.due)

    def test_stop_writes_the_last_state(self):
        self.start()
        self.disk.content.append(1)
        self.table.changed()
        self.disk.content.append(2)
        self.table.changed()
        self.writer.stop()
        self.assertEqual((self.disk.written, self.disk.writes), ([1, 2], 1))
        self.disk.content.append(3)
        self.table.changed()
        self.assertEqual(self.disk.written, [1, 2, 3])

    def test_failed_write_is_reported_retried_and_logged_once(self):
        self.disk.error = OSError(28, "No space left on device")
        self.start()
        self.disk.content.append(1)
        self.assertIs(self.wait_for_write(), self.disk.error)
        self.assertIs(self.wait_for_write(), self.disk.error)
        self.assertEqual(len(self.lines()), 1)
        self.assertIn("No space left on device", self.lines()[0])
        self.disk.error = None
        self.disk.began.clear()
        # Without a new request, the writer retries.
        self.assertTrue(self.disk.began.wait(LIMIT))
        self.writer.stop()
        self.assertEqual(self.disk.written, [1])
        self.assertIn("is written again", self.lines()[-1])

    def test_failures_are_logged_once_a_minute_and_at_once_after_a_success(self):
        clock = Clock()
        table = TableWriter(clock=clock.seconds).table("/config/table.json", self.disk.save)
        full = OSError(28, "No space left on device")
        for seconds, error in ((0, full), (1, full), (INTERVAL, full), (1, None), (1, full)):
            clock.advance(seconds)
            self.disk.error = error
            table.changed()
        first, second, again, third = self.lines()
        self.assertTrue(second.endswith(" (1 more like this were not logged)"), second)
        self.assertIn("is written again, after 3 failures", again)
        self.assertEqual(third, first)

    def test_caller_of_a_slow_write_does_not_wait(self):
        self.start()
        self.disk.gate.clear()
        self.table.changed()
        self.assertTrue(self.disk.began.wait(LIMIT))
        # Each of these would hang if it waited for the write, which waits for this thread.
        self.table.changed()
        self.table.changed(lambda error: None)
        self.disk.gate.set()

    def test_failing_callback_does_not_stop_writer(self):
        self.start()

        def failing(error):
            raise KeyError("oops")

        self.table.changed(failing)
        self.assertIsNone(self.wait_for_write())
        self.writer.stop()
        self.assertEqual(len(self.flushLoggedErrors(KeyError)), 1)


class AppendTests(SynchronousTestCase):
    """A table whose changes can be recorded without a write of all of it."""

    def setUp(self):
        self.calls = []
        self.called = threading.Semaphore(0)
        self.writer = TableWriter()
        self.table = self.writer.table("/config/table.json", self.note("save"), self.note("append"))

    def note(self, what):
        def note():
            self.calls.append(what)
            self.called.release()

        return note

    def change(self):
        done = threading.Event()
        self.table.changed(lambda error: done.set())
        self.assertTrue(done.wait(LIMIT))

    def start(self):
        self.writer.start()
        self.addCleanup(self.writer.stop)

    def test_whole_table_is_written_a_while_after_its_changes(self):
        self.patch(table_writer, "WHOLE_SECONDS", 0.0)
        self.start()
        self.change()
        for _ in range(2):
            self.assertTrue(self.called.acquire(timeout=LIMIT))
        self.assertEqual(self.calls, ["append", "save"])

    def test_stop_writes_the_whole_table_once(self):
        self.patch(table_writer, "WHOLE_SECONDS", 1e9)
        self.start()
        self.change()
        self.change()
        self.assertEqual(self.calls, ["append", "append"])
        self.writer.stop()
        self.assertEqual(self.calls, ["append", "append", "save"])

    def test_without_thread_the_whole_table_is_written(self):
        self.change()
        self.start()
        self.writer.stop()
        self.change()
        self.assertEqual(self.calls, ["save", "save"])
