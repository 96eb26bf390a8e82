import io
import os
import tempfile

from twisted.logger import Logger, LogLevel
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from rocketd.common.logs.journal import is_journal, observer_of


class JournalTests(SynchronousTestCase):
    def test_lines_have_the_priority_and_no_time(self):
        file = io.StringIO()
        log = Logger("place", observer=observer_of(file))
        log.warn("first\n<0>second")
        log.emit(LogLevel.info, "{text}", text="plain")
        try:
            raise ValueError("broken")
        except ValueError:
            log.failure("it failed", Failure())
        lines = file.getvalue().splitlines()
        self.assertEqual(lines[:3], ["<4>[place#warn] first", "<4>\t<0>second", "<6>[place#info] plain"])
        self.assertEqual(lines[3], "<2>[place#critical] it failed")
        self.assertEqual([line for line in lines[3:] if not line.startswith("<2>")], [])
        self.assertIn("builtins.ValueError: broken", file.getvalue())

    def test_journal_is_recognized_by_device_and_inode(self):
        with tempfile.TemporaryFile() as file:
            status = os.fstat(file.fileno())
            for value, expected in (
                (f"{status.st_dev}:{status.st_ino}", True),
                (f"{status.st_dev}:{status.st_ino + 1}", False),
                ("", False),
                ("x", False),
            ):
                self.assertIs(is_journal({"JOURNAL_STREAM": value}, file.fileno()), expected)
        self.assertIs(is_journal({}, 1), False)
