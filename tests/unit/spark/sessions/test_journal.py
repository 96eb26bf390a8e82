"""Numbered commits that are there whole or not at all, and a lock against a second writer."""

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from rocketd.spark.archive.format.durable import Lock, make_dirs, replace, write_once
from rocketd.spark.archive.format.journal import Journal
from rocketd.spark.errors import ArchiveError

_TAKE_LOCK = """
import sys
from rocketd.spark.archive.format.durable import Lock
from rocketd.spark.errors import ArchiveError
try:
    with Lock(sys.argv[1], "the thing"):
        print("taken")
except ArchiveError as error:
    print(error)
"""


class JournalTests(SynchronousTestCase):
    def setUp(self):
        self.directory = os.path.join(self.mktemp(), "manifest")
        self.journal = Journal(self.directory, fold=3)

    def fresh(self):
        return Journal(self.directory, fold=3)

    def test_appended_entries_are_read_in_order(self):
        self.assertEqual([self.journal.append({"n": n}) for n in range(30)], list(range(30)))
        read = self.fresh()
        self.assertEqual(read.refresh(), [{"n": n} for n in range(30)])
        self.assertEqual(read.refresh(), [])
        self.journal.append({"n": 30})
        self.assertEqual(read.refresh(), [{"n": 30}])
        self.assertEqual(read.entries, self.journal.entries)

    def test_missing_directory_is_an_empty_journal(self):
        self.assertEqual(self.fresh().refresh(), [])

    def test_a_summary_stands_for_its_files(self):
        for n in range(11):
            self.journal.append({"n": n})
        self.assertEqual(
            sorted(os.listdir(os.path.join(self.directory, "summary"))),
            ["0-2.json", "0-8.json", "3-5.json", "6-8.json"],
        )
        # Were the single files read, this would fail.
        for n in range(9):
            Path(self.directory, f"{n:020d}.json").write_text("damaged")
        self.assertEqual(self.fresh().refresh(), [{"n": n} for n in range(11)])

    def test_unwritable_summary_does_not_fail_append(self):
        directory = self.mktemp()
        os.mkdir(directory)
        Path(directory, "summary").write_text("in the way")
        journal = Journal(directory, fold=2)
        self.assertEqual([journal.append({"n": number}) for number in range(3)], [0, 1, 2])

    def test_without_good_summaries_the_files_are_read(self):
        for n in range(9):
            self.journal.append({"n": n})
        summary = Path(self.directory, "summary")
        (summary / "0-8.json").write_text("[")
        (summary / "3-5.json").write_text("[1]")
        (summary / "0-2.json").unlink()
        self.assertEqual(self.fresh().refresh(), [{"n": n} for n in range(9)])

    def test_a_missing_or_damaged_file_is_named(self):
        for n in range(2):
            self.journal.append({"n": n})
        path = Path(self.directory, f"{1:020d}.json")
        path.write_text('{"n"')
        self.assertIn(str(path), str(self.assertRaises(ArchiveError, self.fresh().refresh)))
        path.write_text("[]")
        self.assertIn(str(path), str(self.assertRaises(ArchiveError, self.fresh().refresh)))
        first = Path(self.directory, f"{0:020d}.json")
        first.unlink()
        self.assertIn(f"{first} is missing", str(self.assertRaises(ArchiveError, self.fresh().refresh)))
        self.assertIn(f"{first} is missing", str(self.assertRaises(ArchiveError, self.journal.refresh)))

    def test_torn_files_of_a_killed_writer_are_not_seen_and_swept(self):
        self.journal.append({"n": 0})
        torn = Path(self.directory, f".{1:020d}.json.0a.tmp")
        torn.write_text('{"n"')
        journal = self.fresh()
        self.assertEqual(journal.refresh(), [{"n": 0}])
        self.assertEqual(journal.append({"n": 1}), 1)
        journal.sweep()
        self.assertFalse(torn.exists())
        self.assertEqual(self.fresh().refresh(), [{"n": 0}, {"n": 1}])

    def test_second_writer_of_a_number_fails(self):
        other = self.fresh()
        self.journal.append({"n": "mine"})
        self.assertIn("another process", str(self.assertRaises(ArchiveError, other.append, {"n": "other"})))
        self.assertEqual(self.fresh().refresh(), [{"n": "mine"}])
        self.assertEqual([name for name in os.listdir(self.directory) if name.startswith(".")], [])


class DurableTests(SynchronousTestCase):
    def test_a_file_in_the_way_of_a_directory_is_an_error(self):
        path = self.mktemp()
        Path(path).write_text("")
        self.assertRaises(FileExistsError, make_dirs, path)

    def test_a_file_is_written_once_or_replaced(self):
        directory = os.path.join(self.mktemp(), "a", "b")
        make_dirs(directory)
        make_dirs(directory)
        path = os.path.join(directory, "file")
        write_once(path, b"one")
        self.assertRaises(FileExistsError, write_once, path, b"two")
        self.assertEqual(Path(path).read_bytes(), b"one")
        replace(path, b"three")
        self.assertEqual(Path(path).read_bytes(), b"three")
        self.assertEqual(os.listdir(directory), ["file"])


class LockTests(SynchronousTestCase):
    def setUp(self):
        self.path = self.mktemp()

    def other_process(self):
        command = [sys.executable, "-c", _TAKE_LOCK, self.path]
        path = os.pathsep.join(filter(None, (os.getcwd(), *sys.path)))
        return subprocess.run(
            command, capture_output=True, text=True, check=True, env=os.environ | {"PYTHONPATH": path}
        ).stdout

    def test_lock_has_one_holder_at_a_time(self):
        with Lock(self.path, "the thing"):
            error = self.assertRaises(ArchiveError, Lock(self.path, "the thing").acquire)
            self.assertIn("the thing is in use by this process", str(error))
            self.assertIn(f"the thing is in use by process {os.getpid()} on", self.other_process())
        self.assertEqual(self.other_process(), "taken\n")
        with Lock(self.path, "the thing", wait_seconds=5):
            pass

    def test_lock_file_removed_by_its_holder_is_not_locked(self):
        path, removed = self.mktemp(), []

        def lockf(descriptor, how, lockf=fcntl.lockf):
            lockf(descriptor, how)
            if not removed:
                # Between opening and locking, as a holder does that is done.
                removed.append(path)
                os.unlink(path)

        self.patch(fcntl, "lockf", lockf)
        with Lock(path, "it", wait_seconds=60):
            self.assertTrue(os.path.exists(path))
            self.assertRaises(ArchiveError, Lock(path, "it").acquire)
        self.assertEqual(removed, [path])

    def test_lock_of_killed_holder_is_free(self):
        code = _TAKE_LOCK.replace('print("taken")', 'print("taken", flush=True); sys.stdin.read()')
        path = os.pathsep.join(filter(None, (os.getcwd(), *sys.path)))
        holder = subprocess.Popen(
            [sys.executable, "-c", code, self.path],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": path},
        )  # fmt: skip
        with holder:
            self.assertEqual(holder.stdout.readline(), "taken\n")
            self.assertRaises(ArchiveError, Lock(self.path, "the thing").acquire)
            holder.kill()
            holder.wait()
            Lock(self.path, "the thing").acquire()


class SpeedOfOpeningTests(SynchronousTestCase):
    def test_ten_thousand_commits_are_opened_from_a_few_files(self):
        directory = os.path.join(self.mktemp(), "manifest")
        os.makedirs(os.path.join(directory, "summary"))
        entries = [{"n": n} for n in range(10_050)]
        for n, entry in enumerate(entries):
            # Written without syncing: the test does not measure ten thousand waits for the disk.
            Path(directory, f"{n:020d}.json").write_text(json.dumps(entry) if n >= 10_000 else "not read")
        Path(directory, "summary", "0-9999.json").write_text(json.dumps(entries[:10_000]))
        self.assertEqual(Journal(directory).refresh(), entries)
