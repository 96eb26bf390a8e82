"""The audit file: lines are kept up to a limit, and survive a process that ended within one."""

import os

from twisted.trial.unittest import SynchronousTestCase

from rocketd.store.base.filesystem import RealFileSystem
from rocketd.store.state.audit_file import AuditFile

ALL = 1 << 20


class AuditFileTests(SynchronousTestCase):
    def setUp(self):
        self.path = os.path.join(os.path.abspath(self.mktemp()), "config", "audit.log")
        self.file = self.open()

    def open(self, max_bytes=1000):
        return AuditFile(RealFileSystem(), self.path, max_bytes)

    def content(self, suffix=""):
        with open(self.path + suffix, "rb") as file:
            return file.read()

    def test_lines_are_added_by_each_process(self):
        self.file.append(b"one")
        self.open().append(b"two")
        self.assertEqual(self.content(), b"one\ntwo\n")
        self.assertEqual(self.open().last(10, ALL), [b"one", b"two"])

    def test_missing_file_has_no_lines(self):
        self.assertEqual(self.file.last(10, ALL), [])

    def test_line_after_a_cut_one_begins_anew(self):
        self.file.append(b"one")
        with open(self.path, "ab") as file:
            file.write(b"tw")
        self.file.append(b"three")
        self.assertEqual(self.file.last(10, ALL), [b"one", b"tw", b"three"])

    def test_file_at_its_limit_makes_room_and_one_older_file_is_kept(self):
        for number in range(300):
            self.file.append(b"%09d" % number)
        self.assertEqual(sorted(os.listdir(os.path.dirname(self.path))), ["audit.log", "audit.log.1"])
        for suffix in ("", ".1"):
            self.assertLessEqual(len(self.content(suffix)), 1000)
        lines = self.file.last(1000, ALL)
        self.assertEqual(lines, [b"%09d" % number for number in range(300 - len(lines), 300)])
        self.assertGreaterEqual(len(lines), 100)

    def test_last_lines_end_at_either_limit(self):
        for number in range(150):
            self.file.append(b"%09d" % number)
        self.assertEqual(self.file.last(3, ALL), [b"%09d" % number for number in (147, 148, 149)])
        self.assertEqual(len(self.file.last(120, ALL)), 120)  # of both files
        self.assertEqual(self.file.last(1000, 35), [b"%09d" % number for number in (147, 148, 149)])
        self.assertEqual(self.file.last(1000, 30), [b"%09d" % number for number in (147, 148, 149)])
        self.assertEqual(self.file.last(1000, 29), [b"%09d" % number for number in (148, 149)])
        self.assertEqual(self.file.last(0, ALL), [])
        self.assertEqual(self.file.last(-1, ALL), [])
