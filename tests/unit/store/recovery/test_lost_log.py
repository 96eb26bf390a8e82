"""Stores whose log is gone, empty or somewhere else: the start is refused, and nothing is taken away."""

import os
import shutil
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from rocketd.store.base.errors import StoreEndMissingError, StoreLogMissingError
from rocketd.store.message_store import MessageStore
from rocketd.store.state.checkpoint import PROGRESS_POSITION
from rocketd.store.testing import STORE_HOST, FaultyFileSystem, make_message, small_config
from rocketd.tools.cli import main

COUNT = 40


def tree_of(directory):
    """All files below a directory except the lock, with their content."""
    found = {}
    for folder, _, names in os.walk(directory):
        for name in names:
            if name != "lock":
                path = os.path.join(folder, name)
                with open(path, "rb") as file:
                    found[os.path.relpath(path, directory)] = file.read()
    return found


class Disk(FaultyFileSystem):
    """A disk on which a hole stays one. On a RAM disk it is data as soon as it has been read through a mapping."""

    def data_ranges(self, path, offset):
        content = Path(path).read_bytes()
        return [(begin, end) for begin, end in super().data_ranges(path, offset) if any(content[begin:end])]


class LostLogTestCase(SynchronousTestCase):
    def setUp(self):
        self.root = os.path.abspath(self.mktemp())
        self.log = os.path.join(self.root, "commitlog")
        self.now = 1_700_000_000.0

    def open(self, **changes):
        store = MessageStore(small_config(self.root, **changes), STORE_HOST, fs=Disk(), clock=lambda: self.now)
        store.start()
        self.addCleanup(store.stop)
        return store

    def fill(self):
        store = self.open()
        for number in range(COUNT):
            self.now += 1
            store.put_messages([make_message(b"%d" % number * 100, key=f"k{number}")])
        store.stop()

    def write(self, name, content):
        path = os.path.join(self.root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(content)

    def remove(self, *names):
        for name in names:
            path = os.path.join(self.root, name)
            if os.path.isdir(path):
                shutil.rmtree(path)
            else:
                os.unlink(path)

    def refused(self, error=StoreLogMissingError, **changes):
        """The error of a start that changes nothing."""
        before = tree_of(self.root)
        raised = self.assertRaises(error, self.open, **changes)
        self.assertEqual(tree_of(self.root), before)
        return raised

    def make_hole(self):
        """Make the first log file, with nothing in it."""
        self.write(f"commitlog/{0:020}", b"")
        os.truncate(os.path.join(self.log, f"{0:020}"), 4096)

    def mark_crashed(self):
        self.write("abort", b"")

    def as_after_another_program(self):
        """Leave the timestamps alone in the checkpoint, and no notes of the files."""
        self.remove("rocketd-files")
        with open(os.path.join(self.root, "checkpoint"), "r+b") as file:
            file.seek(PROGRESS_POSITION)
            file.write(bytes(4096 - PROGRESS_POSITION))


class LostLogTests(LostLogTestCase):
    def test_start_without_log_directory_is_refused_until_it_is_back(self):
        self.fill()
        aside = os.path.abspath(self.mktemp())
        os.rename(self.log, aside)
        error = self.refused()
        self.assertIn(f"looked in {self.log} (does not exist)", str(error))
        self.assertEqual(error.signs, ("consumequeue", "index", "checkpoint"))
        self.assertFalse(os.path.exists(self.log))
        os.rename(aside, self.log)
        self.assertEqual(self.open().get_max_offset("TopicTest", 0), COUNT)

    def test_start_with_empty_log_directory_is_refused_after_every_kind_of_stop(self):
        self.fill()
        self.remove("commitlog")
        os.mkdir(self.log)
        self.assertIn(f"looked in {self.log} (without a log file)", str(self.refused()))
        self.mark_crashed()
        self.refused()

    def test_start_with_empty_log_file_is_refused(self):
        self.fill()
        self.remove("commitlog")
        self.write(f"commitlog/{0:020}", b"")
        self.refused()

    def test_start_with_mistyped_log_directory_is_refused_and_makes_none(self):
        self.fill()
        mistyped = os.path.join(self.root, "comitlog")
        error = self.refused(store_path_commit_log=mistyped)
        self.assertIn(f"{mistyped} (does not exist)", str(error))
        self.assertIn("correct storePathCommitLog", str(error))
        self.assertFalse(os.path.exists(mistyped))
        self.assertEqual(self.open().get_max_offset("TopicTest", 0), COUNT)

    def test_start_of_slave_without_log_is_refused(self):
        self.fill()
        self.remove("commitlog")
        self.refused(broker_role="SLAVE")

    def test_start_without_log_is_refused_for_any_sign_of_messages(self):
        self.fill()
        self.remove("commitlog", "rocketd-files")
        for sign, gone in (("index", "consumequeue"), ("checkpoint", "index")):
            self.remove(gone)
            self.assertEqual(self.refused().signs[0], sign)
        self.remove("checkpoint")
        store = self.open()
        self.assertEqual(store.put_messages([make_message()])[0].queue_offset, 0)

    def test_start_without_log_is_refused_if_offsets_show_progress(self):
        for path, table in (("config/consumerOffset.json", '{"T@g":{0:5}}'), ("config/delayOffset.json", '{"3" : 7}')):
            self.write(path, b'{"offsetTable":%b}' % table.encode())
            self.assertEqual(self.refused().signs, (path,))
            # A slave has them from its master, maybe before the first message.
            self.open(broker_role="SLAVE").stop()
            self.remove("checkpoint", path)

    def test_start_without_log_accepts_zero_offsets(self):
        self.write("config/consumerOffset.json", b'{"offsetTable":{"T:1@g10":{0:0,1:0}}}')
        self.open()

    def test_start_of_unused_store_accepts_offsets_of_clients(self):
        self.open().stop()
        self.write("config/consumerOffset.json", b'{"offsetTable":{"T@g":{0:5}}}')
        self.open().stop()

    def test_start_with_log_of_zeros_is_refused(self):
        self.fill()
        self.remove("commitlog")
        self.make_hole()
        self.assertIn("the log ends at 0", str(self.refused(StoreEndMissingError)))
        self.as_after_another_program()
        self.refused(StoreEndMissingError)
        self.mark_crashed()
        self.refused(StoreEndMissingError)

    def test_start_without_last_log_file_after_another_program_is_refused(self):
        self.fill()
        self.as_after_another_program()
        last = max(os.listdir(self.log))
        self.remove(f"commitlog/{last}")
        error = self.refused(StoreEndMissingError)
        self.assertEqual(error.end, int(last))
        self.mark_crashed()
        self.refused(StoreEndMissingError)
        self.remove("abort")
        with redirect_stdout(StringIO()):
            main(("store", "repair", "--write", self.root))
        self.assertEqual(self.open().max_physical_offset(), int(last))

    def test_crash_before_the_first_flush_of_the_log_is_recovered(self):
        self.fill()
        self.mark_crashed()
        self.remove("checkpoint", "rocketd-files", "commitlog")
        self.make_hole()
        self.assertEqual(self.open().get_max_offset("TopicTest", 0), 0)

    def test_store_tool_without_log_refuses_to_verify_and_repair(self):
        self.fill()
        aside = os.path.abspath(self.mktemp())
        os.rename(self.log, aside)
        before = tree_of(self.root)
        for command in (("verify",), ("repair",), ("repair", "--write")):
            err = StringIO()
            with redirect_stdout(StringIO()), redirect_stderr(err):
                self.assertEqual(main(("store", *command, self.root)), 1)
            self.assertIn(f"the commit log is missing: looked in {self.log}", err.getvalue())
        self.assertEqual(tree_of(self.root), before)
