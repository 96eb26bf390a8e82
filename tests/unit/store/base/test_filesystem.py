"""The disk as the store sees it: how a new file appears."""

import errno
import os
import threading
from unittest import mock

from twisted.trial.unittest import SynchronousTestCase

from rocketd.store.base import filesystem
from rocketd.store.base.filesystem import RealFileSystem, make_safe_dir
from tests.support.names_on_disk import NamesOnDisk

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

    def test_open_new_file_sets_length_before_name(self):
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

    def test_open_relative_path(self):
        self.path = os.path.join(self.directory, "0")
        self.check(self.open())

    def test_open_without_tmpfile_support_creates_file(self):
        real = os.open

        def refuse(path, flags, *arguments):
            if filesystem._O_TMPFILE and flags & filesystem._O_TMPFILE == filesystem._O_TMPFILE:
                raise OSError(errno.EOPNOTSUPP, "not supported")
            return real(path, flags, *arguments)

        with mock.patch("os.open", refuse):
            fd = self.open()
        self.check(fd)

    def test_open_without_link_permission_creates_file(self):
        with mock.patch("os.link", side_effect=OSError(errno.EPERM, "not permitted")):
            fd = self.open()
        self.check(fd)

    def test_open_existing_file_keeps_bytes_and_extends(self):
        with open(self.path, "wb") as file:
            file.write(b"abc")
        fd = self.open()
        self.check(fd)
        self.assertEqual(os.pread(fd, 4, 0), b"abc\0")

    def test_open_missing_file_without_length_fails(self):
        self.assertRaises(FileNotFoundError, self.fs.open, self.path)

    def test_open_in_missing_directory_fails(self):
        self.path = os.path.join(self.directory, "missing", "0")
        self.assertRaises(FileNotFoundError, self.open)

    def test_concurrent_opens_create_one_file(self):
        found = []

        def make():
            found.append(os.fstat(self.open()).st_ino)

        threads = [threading.Thread(target=make) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(found, [os.stat(self.path).st_ino] * 4)


class MakeSafeDirTests(SynchronousTestCase):
    """`make_safe_dir` and disks that refuse to sync a directory."""

    def setUp(self):
        self.top = os.path.abspath(self.mktemp())
        os.mkdir(self.top)
        self.path = os.path.join(self.top, "a", "b")

    def refuse(self, code):
        """Refuse to sync the directory above all."""
        real = os.fsync

        def fsync(fd):
            if os.path.samefile(f"/proc/self/fd/{fd}", self.top):
                raise OSError(code, os.strerror(code))
            real(fd)

        self.patch(os, "fsync", fsync)

    def test_names_up_to_the_mount_point_are_safe(self):
        disk = NamesOnDisk()
        os.mkdir(os.path.dirname(self.path))
        make_safe_dir(disk, self.path)
        self.assertEqual(disk.unsafe(self.top), set())

    def test_directory_that_cannot_be_synced_is_not_ours(self):
        for code in (errno.EINVAL, errno.EROFS, errno.EACCES):
            self.refuse(code)
            make_safe_dir(RealFileSystem(), self.path)

    def test_fault_of_the_disk_is_raised_with_its_path(self):
        self.refuse(errno.EIO)
        with self.assertRaises(OSError) as caught:
            make_safe_dir(RealFileSystem(), self.path)
        self.assertEqual((caught.exception.errno, caught.exception.filename), (errno.EIO, self.top))
