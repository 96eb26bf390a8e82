"""Errors of the store's files name the setting."""

import errno
import os

from twisted.trial.unittest import SynchronousTestCase

from rocketd.broker.base.store_paths import path_error
from rocketd.store.base.settings import MessageStoreConfig


class PathErrorTests(SynchronousTestCase):
    def text(self, number, path=None, log="/logs"):
        config = MessageStoreConfig(store_path_root_dir="/data", store_path_commit_log=log)
        return str(path_error(OSError(number, os.strerror(number), path), config))

    def test_setting_path_and_reason(self):
        denied = "Permission denied"
        for path, text in (
            ("/data", f"storePathRootDir = /data: {denied}"),
            ("/data/config/x", f"storePathRootDir = /data: /data/config/x: {denied}"),
            (b"/data/lock", f"storePathRootDir = /data: /data/lock: {denied}"),
            ("/logs", f"storePathCommitLog = /logs: {denied}"),
            ("/logs/0", f"storePathCommitLog = /logs: /logs/0: {denied}"),
            ("/", f"storePathRootDir = /data: /: {denied}"),
            ("/logs-2", f"storePathRootDir = /data: /logs-2: {denied}"),
            (None, f"storePathRootDir = /data: {denied}"),
        ):
            self.assertEqual(self.text(errno.EACCES, path), text)
        self.assertEqual(
            self.text(errno.ENOENT, "/proc/x", "/proc/x/y"),
            "storePathCommitLog = /proc/x/y: /proc/x: No such file or directory",
        )
        self.assertEqual(
            self.text(errno.EACCES, "/data/commitlog/0", "/data/commitlog"),
            f"storePathCommitLog = /data/commitlog: /data/commitlog/0: {denied}",
        )

    def test_path_error_of_file_instead_of_directory(self):
        for number in (errno.EEXIST, errno.ENOTDIR):
            self.assertEqual(
                self.text(number, "/data"), "storePathRootDir = /data: there is a file where a directory is needed"
            )

    def test_path_error_without_errno(self):
        self.assertEqual(
            str(path_error(OSError("odd"), MessageStoreConfig(store_path_root_dir="/d"))), "storePathRootDir = /d: odd"
        )
