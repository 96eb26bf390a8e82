"""Stores whose log seems to begin later than it does: the start is refused, or nothing is deleted on that ground."""

import errno
import os
import shutil
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO

from rocketd.store.base.errors import StoreBeginLostError
from rocketd.store.base.layout import consume_queue_ext_dir
from rocketd.store.state.checkpoint import PROGRESS_POSITION
from rocketd.store.state.deletion_file import read_deletions, write_deletions
from rocketd.store.state.deletions import Deletion, Deletions
from rocketd.store.testing import make_message
from rocketd.store.upkeep import log_begin
from rocketd.store.upkeep.clean import FIRST_ROUND_SECONDS, StoreCleaner
from rocketd.store.upkeep.log_begin import NotedBegin, log_begin_path, read_log_begin, write_log_begin
from rocketd.tools.cli import main
from tests.support.several_log_paths import COUNT, FILE, MultiPathTestCase


class LogBeginTestCase(MultiPathTestCase):
    """A store with its oldest files in a separate directory."""

    changes = {}

    def setUp(self):
        super().setUp()
        self.lines = []
        self.patch(log_begin._log, "error", lambda text, **fields: self.lines.append(text.format(**fields)))
        self.settings = {"store_path_commit_log": f"{self.old},", **self.changes}
        store = self.open()
        # An idle queue, which has expired with its only file.
        store.put_messages([make_message(b"idle", queue_id=1)])
        self.fill(store)
        self.lowest = store.queues.find("TopicTest", 0).entry(0)[0]
        store.stop()
        self.right = {
            "store_path_commit_log": f"{self.first},{self.second}",
            "read_only_commit_log_store_paths": self.old,
            **self.changes,
        }
        self.settings = self.right
        self.fill()
        self.begin = min(min(numbers) for path, numbers in self.files().items() if path != self.old) * FILE

    def as_after_another_program(self):
        """Leave the timestamps alone in the checkpoint, as a store has them that Apache's broker has written."""
        for name in ("rocketd-files", "rocketd-log-begin"):
            if os.path.exists(os.path.join(self.root, name)):
                os.remove(os.path.join(self.root, name))
        self.make_void()

    def make_void(self):
        with open(os.path.join(self.root, "checkpoint"), "r+b") as file:
            file.seek(PROGRESS_POSITION)
            file.write(bytes(4096 - PROGRESS_POSITION))

    def clean(self, store):
        """Let the cleaner do its first round."""
        cleaner = StoreCleaner(
            store.config,
            store.commit_log,
            store.queues,
            store.index,
            store.disk_watch,
            lambda: self.now,
            self.fs,
            store.max_physical_offset,
            store._log_begin,
        )
        now = cleaner.run_once(0.0)
        self.assertEqual(now, FIRST_ROUND_SECONDS)
        now = cleaner.run_once(now)
        while cleaner._round is not None:
            now = cleaner.run_once(now)

    def names(self, *parts):
        return sorted(os.listdir(os.path.join(self.root, *parts)))

    def tool(self, *arguments):
        config = os.path.abspath(self.mktemp())
        with open(config, "w") as file:
            file.write(
                f"storePathCommitLog={self.settings['store_path_commit_log']}\nmappedFileSizeCommitLog={FILE}\n"
                "mappedFileSizeConsumeQueue=200\nmaxHashSlotNum=100\nmaxIndexNum=400\n"
            )
        out, err = StringIO(), StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            status = main(("store", arguments[0], "-c", config, *arguments[1:], self.root))
        return status, out.getvalue(), err.getvalue()


class RefusedBeginTests(LogBeginTestCase):
    def refused(self, **changes):
        error = self.assertRaises(StoreBeginLostError, self.open, **changes)
        self.assertEqual((error.noted, error.begin), (0, self.begin))
        return str(error)

    def test_start_with_mistyped_or_omitted_directory_is_refused(self):
        mistyped = self.old + "x"
        text = self.refused(read_only_commit_log_store_paths=mistyped)
        self.assertIn(f"with files in {self.first}, {self.second}, {self.old}; looked in {self.first}", text)
        self.assertIn(f"{mistyped} (no files)", text)
        self.refused(read_only_commit_log_store_paths=None)
        self.refused(
            store_path_commit_log=f"{mistyped},{self.first},{self.second}", read_only_commit_log_store_paths=None
        )
        self.assertFalse(os.path.exists(mistyped))
        self.assertEqual(self.bodies(self.open()), self.expected(2 * COUNT))

    def test_start_with_missing_or_emptied_directory_is_refused(self):
        aside = os.path.abspath(self.mktemp())
        os.rename(self.old, aside)
        self.assertIn(f"{self.old} (no files)", self.refused())
        os.mkdir(self.old)
        self.refused()
        with open(os.path.join(self.root, "abort"), "wb"):
            pass
        self.refused()
        os.rmdir(self.old)
        os.rename(aside, self.old)
        self.assertEqual(self.bodies(self.open()), self.expected(2 * COUNT))

    def test_verify_and_repair_without_oldest_files_are_refused(self):
        for command in ("verify", "repair"):
            status, _, err = self.tool(command)
            self.assertEqual(status, 1)
            self.assertIn("the oldest files of the commit log are missing", err)

    def test_accepted_begin_allows_start_and_cleaning(self):
        self.settings = {**self.right, "read_only_commit_log_store_paths": None}
        status, out, _ = self.tool("accept-begin")
        self.assertEqual(status, 0)
        self.assertIn(f"the commit log begins at {self.begin}; it began at 0 or before", out)
        self.assertIn("nothing was changed", out)
        self.refused()
        status, out, _ = self.tool("accept-begin", "--write")
        self.assertEqual(status, 0)
        self.assertIn(f"the messages before {self.begin} are given up", out)
        store = self.open()
        self.assertEqual(store.min_physical_offset(), self.begin)
        self.assertEqual(self.lines, [])
        before = self.names("consumequeue", "TopicTest", "0")
        self.clean(store)
        self.assertLess(len(self.names("consumequeue", "TopicTest", "0")), len(before))
        bodies = self.bodies(store)
        self.assertEqual(bodies, self.expected(2 * COUNT)[-len(bodies) :])

    def test_accept_begin_without_a_log_file_changes_nothing(self):
        root = os.path.abspath(self.mktemp())
        os.makedirs(os.path.join(root, "consumequeue"))
        out = StringIO()
        with redirect_stdout(out):
            self.assertEqual(main(("store", "accept-begin", "--write", root)), 0)
        self.assertIn("the commit log has no file", out.getvalue())
        self.assertFalse(os.path.exists(log_begin_path(root)))


class OneDirectoryTests(MultiPathTestCase):
    def setUp(self):
        super().setUp()
        self.settings = {"store_path_commit_log": self.first}
        self.fill()

    def test_start_without_first_log_file_is_refused(self):
        aside = os.path.abspath(self.mktemp())
        os.rename(self.path(self.first, 0), aside)
        error = self.assertRaises(StoreBeginLostError, self.open)
        self.assertEqual((error.noted, error.begin), (0, FILE))
        os.rename(aside, self.path(self.first, 0))
        self.assertEqual(self.bodies(self.open()), self.expected())

    def test_begin_of_a_new_log_is_noted_by_the_running_store(self):
        self.root += "2"
        self.settings = {"store_path_commit_log": self.second}
        store = self.open()
        self.assertIsNone(read_log_begin(self.fs, self.root))
        self.fill(store, 1)
        store._maintenance.stop()
        store._maintenance.run_due(float("inf"))
        self.assertEqual(read_log_begin(self.fs, self.root), NotedBegin(0, (self.second,)))

    def test_begin_is_noted_before_a_log_file_is_deleted(self):
        store = self.open()
        self.assertTrue(store.commit_log.queue.flush(0))
        seen = []
        remove = self.fs.remove

        def look(path):
            if os.path.dirname(path) == self.first:
                seen.append((int(os.path.basename(path)), read_log_begin(self.fs, self.root).offset))
            remove(path)

        self.fs.remove = look
        self.delete_first(store)
        self.assertEqual(seen, [(0, FILE)])
        # As a kill right behind the deletion leaves it.
        copy = self.root + "-copy"
        shutil.copytree(self.root, copy)
        store.stop()
        shutil.rmtree(self.root)
        os.rename(copy, self.root)
        self.assertEqual(self.open().min_physical_offset(), FILE)

    def delete_first(self, store):
        store._maintenance.stop()
        cleaner = store._cleaner
        self.patch(cleaner, "_expired", lambda file: True)
        self.assertTrue(cleaner._delete_first_log_file("a test asked for it"))

    def test_log_file_is_deleted_though_its_note_cannot_be_written(self):
        lines = []
        self.patch(log_begin._log, "error", lambda text, **fields: lines.append(text.format(**fields)))
        store = self.open()
        self.assertTrue(store.commit_log.queue.flush(0))
        write = self.fs.write_file

        def full(path, data):
            if "log-begin" in path:
                raise OSError(errno.ENOSPC, "no space left on device")
            write(path, data)

        self.fs.write_file = full
        self.delete_first(store)
        self.assertFalse(os.path.exists(log_begin_path(self.root)))
        self.assertIn("cannot write", lines[0])
        self.fs.write_file = write
        store._log_begin.note()
        self.assertEqual(read_log_begin(self.fs, self.root).offset, FILE)

    def test_new_log_is_not_compared_with_old_begin(self):
        for name in ("consumequeue", "index"):
            shutil.rmtree(os.path.join(self.root, name))
        for name in ("checkpoint", "rocketd-files"):
            os.remove(os.path.join(self.root, name))
        shutil.rmtree(self.first)
        self.open(broker_role="SLAVE")
        self.assertIsNone(read_log_begin(self.fs, self.root))

    def test_damaged_note_is_ignored(self):
        with open(log_begin_path(self.root), "r+b") as file:
            file.write(b"x")
        self.assertIsNone(read_log_begin(self.fs, self.root))
        self.open().stop()
        self.assertEqual(read_log_begin(self.fs, self.root).offset, 0)


class HeldTests(LogBeginTestCase):
    """Without a note, as after Apache's broker: nothing is deleted because of an unexplained begin."""

    changes = {"max_index_num": 21, "enable_consume_queue_ext": True, "mapped_file_size_consume_queue_ext": 400}

    def setUp(self):
        super().setUp()
        self.as_after_another_program()

    def mistype(self):
        self.settings = {**self.right, "read_only_commit_log_store_paths": self.old + "x"}

    def test_unexplained_begin_is_logged_and_holds_deletions(self):
        self.mistype()
        kept = [os.path.join(self.root, name, "TopicTest", "0") for name in ("consumequeue", "consumequeue_ext")]
        kept.append(os.path.join(self.root, "index"))
        before = [sorted(os.listdir(path)) for path in kept]
        self.assertTrue(all(len(names) > 2 for names in before), before)
        for number in (1, 2):
            store = self.open()
            self.assertEqual(len(self.lines), number)
            self.assertIn(
                f"the log begins at {self.begin}, but files of queues or index hold only messages before it, "
                f"from {self.lowest} on",
                self.lines[-1],
            )
            self.assertIn(f"looked in {self.first}, {self.second}, {self.old}x", self.lines[-1])
            self.clean(store)
            store.stop()
        for path, names in zip(kept, before, strict=True):
            self.assertEqual(set(names) - set(os.listdir(path)), set(), path)
        self.settings = self.right
        self.assertEqual(self.bodies(self.open()), self.expected(2 * COUNT))
        self.assertEqual(len(self.lines), 2)

    def test_deletion_of_a_topic_is_kept_while_the_begin_is_unexplained(self):
        noted = Deletions({"Gone": Deletion(100, 1)})
        write_deletions(self.fs, self.root, noted)
        self.mistype()
        self.open().stop()
        self.assertEqual(read_deletions(self.fs, self.root), noted)

    def test_expired_queue_stays_while_begin_is_unexplained(self):
        self.mistype()
        store = self.open()
        queue = store.queues.find("TopicTest", 0)
        queue.max_physic_offset = self.begin
        self.assertEqual(store.delete_expired_queues(), [])
        store._log_begin.held = False
        self.assertIn(("TopicTest", 0), store.delete_expired_queues())

    def test_accepted_begin_is_trusted(self):
        self.mistype()
        self.assertEqual(self.tool("accept-begin", "--write")[0], 0)
        store = self.open()
        self.assertEqual(self.lines, [])
        before = self.names("consumequeue", "TopicTest", "0")
        self.clean(store)
        self.assertLess(len(self.names("consumequeue", "TopicTest", "0")), len(before))

    def test_note_from_before_other_program_is_ignored(self):
        write_log_begin(self.fs, self.root, NotedBegin(0, (self.old,)))
        self.mistype()
        self.open().stop()
        self.assertIn("and the log began at 0", self.lines[0])
        # Nor by the next start, for which no other program is between.
        self.open().stop()
        self.assertEqual(len(self.lines), 2)

    def test_store_cleaned_by_apache_is_accepted(self):
        # Its queues are cleaned up to the begin: their first files may still hold entries from before it.
        store = self.open()
        queue = store.queues.find("TopicTest", 0)
        first = next(entry for entry in range(queue.max_offset) if queue.entry(entry)[0] >= self.begin)
        store.stop()
        for path in (os.path.join(self.root, "consumequeue", "TopicTest", "0"), os.path.join(self.root, "index")):
            names = sorted(os.listdir(path))
            gone = [name for name in names if int(name) + 200 <= first * 20] if "consume" in path else names[:-1]
            self.assertTrue(gone)
            for name in gone:
                os.remove(os.path.join(path, name))
        self.as_after_another_program()
        self.mistype()
        self.open().stop()
        self.assertEqual(self.lines, [])
        self.assertEqual(read_log_begin(self.fs, self.root).offset, self.begin)

    def test_index_file_of_expired_messages_holds_deletions(self):
        shutil.rmtree(consume_queue_ext_dir(self.root))
        path = os.path.join(self.root, "consumequeue", "TopicTest", "0")
        for name in sorted(os.listdir(path))[:-1]:
            os.remove(os.path.join(path, name))
        self.mistype()
        self.open(enable_consume_queue_ext=False).stop()
        self.assertEqual(len(self.lines), 1)
