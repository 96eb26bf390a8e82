"""Stores whose log seems to begin later than it does: the start is refused."""

import errno
import os
import shutil
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from types import SimpleNamespace

from rocketd.store.base.errors import StoreBeginLostError
from rocketd.store.base.layout import CONSUME_QUEUE_ENTRY, FILLER_SIZE
from rocketd.store.format.record import decode_message
from rocketd.store.recovery.lost_log import refuse_lost_begin
from rocketd.store.state.checkpoint import PROGRESS_POSITION, StoreCheckpoint
from rocketd.store.testing import make_message
from rocketd.store.upkeep import log_begin
from rocketd.store.upkeep.clean import FIRST_ROUND_SECONDS, StoreCleaner
from rocketd.store.upkeep.log_begin import NotedBegin, log_begin_path, read_log_begin, write_log_begin
from rocketd.tools.cli import main
from rocketd.tools.store import access as store_access
from tests.support.killed_stores import copy_of_killed
from tests.support.several_log_paths import COUNT, FILE, MultiPathTestCase
from tests.unit.store.recovery.test_lost_log import tree_of


class LogBeginTestCase(MultiPathTestCase):
    """A store with its oldest files in a separate directory."""

    def setUp(self):
        super().setUp()
        self.settings = {"store_path_commit_log": f"{self.old},"}
        store = self.open()
        # An idle queue, which has expired with its only file.
        store.put_messages([make_message(b"idle", queue_id=1)])
        self.fill(store)
        self.lowest = store.queues.find("TopicTest", 0).entry(0)[0]
        store.stop()
        self.right = {
            "store_path_commit_log": f"{self.first},{self.second}",
            "read_only_commit_log_store_paths": self.old,
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
        self.assertEqual((error.known, error.begin), (0, self.begin))
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
        self.assertEqual((error.known, error.begin), (0, FILE))
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
        copy = copy_of_killed(store, self.root + "-copy")
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


class OtherProgramTests(LogBeginTestCase):
    """Without a valid note, as after Apache's broker, messages before the beginning are known by queues and index."""

    def setUp(self):
        super().setUp()
        self.as_after_another_program()
        self.settings = {**self.right, "read_only_commit_log_store_paths": self.old + "x"}
        number = self.begin // FILE
        directory = next(path for path, numbers in self.files().items() if number in numbers)
        with open(self.path(directory, number), "rb") as file:
            record = decode_message(file.read(), check_crc=False)
        self.expire_at = record.store_timestamp / 1000 + 72 * 3600

    def remove(self, *parts):
        shutil.rmtree(os.path.join(self.root, *parts))

    def refused(self):
        before = tree_of(self.root)
        error = self.assertRaises(StoreBeginLostError, self.open)
        self.assertEqual(error.begin, self.begin)
        after = tree_of(self.root)
        self.assertEqual(after, before)
        return error

    def test_start_without_oldest_files_is_refused(self):
        error = self.refused()
        queue = os.path.join(self.root, "consumequeue", "TopicTest", "0", "0" * 20)
        self.assertEqual(error.known, self.lowest)
        self.assertIn(f"it begins at {self.begin}, but {queue} knows the message at {self.lowest}", str(error))
        self.assertIn("younger than fileReservedTime=72 h", str(error))
        self.assertIn(f"run 'rocketd store accept-begin {self.root} --write'", str(error))
        self.settings = self.right
        self.assertEqual(self.bodies(self.open()), self.expected(2 * COUNT))

    def test_queue_with_one_file_is_enough(self):
        self.remove("consumequeue", "TopicTest", "0")
        self.remove("index")
        error = self.refused()
        self.assertEqual(error.known, 0)
        self.assertIn(os.path.join("TopicTest", "1"), str(error))

    def test_index_is_enough(self):
        self.remove("consumequeue")
        self.assertEqual(self.refused().known, self.lowest)

    def test_fillers_and_later_entries_of_a_queue_do_not_refuse(self):
        self.remove("consumequeue")
        self.remove("index")
        queue = os.path.join(self.root, "consumequeue", "TopicTest", "0")
        os.makedirs(queue)
        for known, refused in ((self.begin, False), (self.begin - 100, True), (-1, False)):
            entry = b"" if known < 0 else CONSUME_QUEUE_ENTRY.pack(known, 100, 0)
            with open(os.path.join(queue, "0" * 20), "wb") as file:
                file.write((CONSUME_QUEUE_ENTRY.pack(0, FILLER_SIZE, 0) * 7 + entry).ljust(200, b"\0"))
            directories = self.first, self.second
            try:
                refuse_lost_begin(self.fs, self.root, directories, 72, int(self.now * 1000))
            except StoreBeginLostError as error:
                self.assertEqual((error.known, refused), (known, True))
            else:
                self.assertFalse(refused)

    def test_note_from_before_other_program_is_enough(self):
        self.remove("consumequeue")
        self.remove("index")
        write_log_begin(self.fs, self.root, NotedBegin(0, (self.old,)))
        self.assertIn(f"it began at 0, with files in {self.old}", str(self.refused()))

    def test_verify_and_repair_are_refused(self):
        self.patch(store_access, "time", SimpleNamespace(time_ns=lambda: int(self.now * 1_000_000_000)))
        for command in ("verify", "repair"):
            status, _, err = self.tool(command)
            self.assertEqual(status, 1)
            self.assertIn("the oldest files of the commit log are missing", err)

    def test_expired_messages_are_not_missed(self):
        write_log_begin(self.fs, self.root, NotedBegin(0, (self.old,)))
        self.now = self.expire_at - 0.001
        self.refused()
        self.now = self.expire_at
        store = self.open()
        # At once: from now on, the note counts again.
        self.assertEqual(read_log_begin(self.fs, self.root).offset, self.begin)
        bodies = self.bodies(store)
        self.assertEqual(bodies, self.expected(2 * COUNT)[-len(bodies) :])
        before = self.names("consumequeue", "TopicTest", "0")
        self.clean(store)
        self.assertLess(len(self.names("consumequeue", "TopicTest", "0")), len(before))

    def test_log_of_an_empty_file_is_as_young_as_its_last_message(self):
        for directory in (self.first, self.second):
            for name in os.listdir(directory):
                self.begin = max(self.begin, int(name) + FILE)
                os.remove(os.path.join(directory, name))
        with open(os.path.join(self.first, f"{self.begin:020d}"), "wb") as file:
            file.write(bytes(FILE))
        self.refused()
        last = StoreCheckpoint(os.path.join(self.root, "checkpoint")).physic_msg_timestamp
        self.assertEqual(last, int(self.now * 1000))
        now = last + 72 * 3_600_000
        refuse_lost_begin(self.fs, self.root, (self.first, self.second), 72, now)
        with self.assertRaises(StoreBeginLostError):
            refuse_lost_begin(self.fs, self.root, (self.first, self.second), 72, now - 1)

    def test_accepted_begin_is_trusted(self):
        self.assertEqual(self.tool("accept-begin", "--write")[0], 0)
        store = self.open()
        before = self.names("consumequeue", "TopicTest", "0")
        self.clean(store)
        self.assertLess(len(self.names("consumequeue", "TopicTest", "0")), len(before))
