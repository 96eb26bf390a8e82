"""The disk as the store sees it: how a new file appears."""

import errno
import os
import threading
from unittest import mock

from twisted.trial.unittest import SynchronousTestCase

from rocketd.store import filesystem
from rocketd.store.filesystem import RealFileSystem

SIZE = 4096


class OpenTests(SynchronousTestCase):
    """`RealFileSystem.open` with a length."""

    def setUp(self):
        self.directory = self.mktemp()
        os.mkdir(self.directory)
        self.path = os.path.abspath(os.path.join(self.directory, "0"))
        self.fs = RealFileSystem()

    def open(self, size=SIZE):
        fd = self.fs.open(self.path, size)
        self.addCleanup(os.close, fd)
        return fd

    def check(self, fd):
        self.assertEqual((os.fstat(fd).st_size, os.stat(self.path).st_size), (SIZE, SIZE))
        self.assertTrue(os.path.samestat(os.fstat(fd), os.stat(self.path)))
        self.assertEqual(os.listdir(self.directory), ["0"])

    def test_a_new_file_has_its_length_before_its_name(self):
        if not filesystem._O_TMPFILE:
            self.skipTest("this system has no files without a name")
        there = []
        truncate = os.ftruncate

        def spy(fd, size):
            there.append(os.path.exists(self.path))
            truncate(fd, size)

        with mock.patch("os.ftruncate", spy):
            fd = self.open()
        self.assertEqual(there, [False])
        self.check(fd)
        self.assertEqual(os.stat(self.path).st_mode & 0o600, 0o600)

    def test_a_relative_path(self):
        self.path = os.path.join(self.directory, "0")
        self.check(self.open())

    def test_where_files_without_a_name_cannot_be_made(self):
        real = os.open

        def refuse(path, flags, *arguments):
            if filesystem._O_TMPFILE and flags & filesystem._O_TMPFILE == filesystem._O_TMPFILE:
                raise OSError(errno.EOPNOTSUPP, "not supported")
            return real(path, flags, *arguments)

        with mock.patch("os.open", refuse):
            fd = self.open()
        self.check(fd)

    def test_where_they_cannot_be_named(self):
        with mock.patch("os.link", side_effect=OSError(errno.EPERM, "not permitted")):
            fd = self.open()
        self.check(fd)

    def test_a_file_that_is_there_keeps_its_bytes_and_gets_the_length(self):
        with open(self.path, "wb") as file:
            file.write(b"abc")
        fd = self.open()
        self.check(fd)
        self.assertEqual(os.pread(fd, 4, 0), b"abc\0")

    def test_a_file_that_is_missing_and_not_to_be_made(self):
        self.assertRaises(FileNotFoundError, self.fs.open, self.path)

    def test_the_error_of_a_directory_that_is_missing(self):
        self.path = os.path.join(self.directory, "missing", "0")
        self.assertRaises(FileNotFoundError, self.open)

    def test_two_that_make_the_same_file_get_the_same(self):
        found = []

        def make():
            found.append(os.fstat(self.open()).st_ino)

        threads = [threading.Thread(target=make) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(found, [os.stat(self.path).st_ino] * 4)
