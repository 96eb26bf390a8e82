"""Commits of an archive as JSON, and the facts of a broker in an archive."""

import json
import os
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from rocketd.spark.archive.broker_facts import broker_facts
from rocketd.spark.archive.format.manifest import ArchiveFile, Commit, range_from_json, range_to_json
from rocketd.spark.archive.replaying import batches, targets_from_json, targets_of, targets_to_json
from rocketd.spark.archive.restore.checking import QueueRestored
from rocketd.spark.archive.restore.restore_work import RestoreWork, was_ended
from rocketd.spark.archive.restore.restored_config import write_config
from rocketd.spark.archive.selection import Selection
from rocketd.spark.errors import ArchiveError
from rocketd.spark.ranges import Queue, QueueRange
from rocketd.store.base.filesystem import RealFileSystem
from rocketd.store.base.table_journal import TableJournal

QUEUE = Queue("%RETRY%g", "broker-a", 3)
FILE = ArchiveFile("data/x.parquet", 6, 700, "ab", QUEUE, 10, 19, 900, "cd", 1000, 5000, 1, 2)


def file_of(queue, first, last):
    return ArchiveFile(f"data/{first}", last + 1 - first, 1, "", queue, first, last, 0, "", 0, 0, 5, 6)


class CommitTests(SynchronousTestCase):
    def test_through_json_and_back(self):
        rows = ArchiveFile("data/rows/y.parquet", 1, 2, "ef")
        whole = QueueRange(QUEUE, 10, 20)
        commit = Commit("job-1", 5, (FILE, rows), (whole,), (QueueRange(QUEUE, 12, 16),), 7, {"broker-a": {"a": 1}})
        self.assertEqual(Commit.from_json(json.loads(json.dumps(commit.to_json()))), commit)
        self.assertEqual(Commit.from_json(Commit("w", 1).to_json()), Commit("w", 1))
        self.assertEqual(range_from_json(range_to_json(whole)), whole)

    def test_malformed_commit_is_refused(self):
        good = Commit("w", 1, (FILE,)).to_json()
        for bad in ({}, {**good, "files": [{"path": "x"}]}, {**good, "ranges": [1]}, {**good, "files": None}):
            self.assertIn("damaged", str(self.assertRaises(ArchiveError, Commit.from_json, bad)))
        error = self.assertRaises(ArchiveError, Commit.from_json, {**good, "version": 2})
        self.assertIn("version 2", str(error))


class Catalog:
    """The catalog methods used by `broker_facts`."""

    def queues(self, topic):
        return [Queue(topic, broker, number) for broker in ("broker-a", "broker-b") for number in (0, 4)]


class FactsTests(SynchronousTestCase):
    def test_facts_of_a_store_are_noted(self):
        root = Path(self.mktemp())
        for name in ("commitlog", "config", "consumequeue/T/0"):
            (root / name).mkdir(parents=True)
        for name, size in ((0, 4096), (4096, 4096)):
            (root / "commitlog" / f"{name:020d}").write_bytes(bytes(size))
        (root / "consumequeue/T/0" / f"{0:020d}").write_bytes(bytes(400))
        (root / "config" / "topics.json").write_text('{"topicConfigTable": {"T": {"perm": 4}, "other": {}}}')
        journal = TableJournal(RealFileSystem(), str(root / "config" / "topics.json"))
        journal.begin((root / "config" / "topics.json").read_bytes())
        journal.append(b'{"topicConfigTable": {"T": {"perm": 6}}}')
        # As Apache's broker writes it.
        (root / "config" / "consumerOffset.json").write_text('{"offsetTable":{"T@g":{0:5,1:7},"other@g":{0:1}}}')
        (root / "config" / "delayOffset.json").write_text("{")
        (root / "config" / "delayOffset.json.bak").write_text('{"offsetTable":{3:9}}')
        self.assertEqual(broker_facts(Catalog(), [Queue("T", "broker-a", 0)], str(root))["broker-b"], {
            "queues": {"T": 5}, "commitLogFileSize": 4096, "queueFileSize": 400, "topics": {"T": {"perm": 6}},
            "consumerOffset": {"T@g": {"0": 5, "1": 7}}, "delayOffset": {"3": 9},
        })  # fmt: skip
        empty = self.mktemp()
        os.mkdir(empty)
        self.assertEqual(broker_facts(Catalog(), [QUEUE], empty)["broker-a"], {"queues": {"%RETRY%g": 5}})
        self.assertEqual(broker_facts(Catalog(), []), {})


class ReplayTests(SynchronousTestCase):
    def test_each_queue_has_one_target(self):
        queues = [Queue("T", "broker-a", number) for number in range(3)]
        there = {"U": [Queue("U", "b", 0), Queue("U", "b", 1)]}
        targets = targets_of(queues, there, "U")
        self.assertEqual([targets[queue].queue_id for queue in queues], [0, 1, 0])
        self.assertEqual(targets_from_json(json.loads(json.dumps(targets_to_json(targets)))), targets)

    def test_batches_take_from_every_queue_in_order(self):
        one, two = Queue("T", "a", 0), Queue("T", "a", 1)
        files = [file_of(one, 60_000, 119_999), file_of(one, 0, 59_999), file_of(two, 10, 19)]
        targets = {one: one, two: two}
        found = [[(part.queue, part.start, part.end, len(part.files)) for part in cut]
                 for cut in batches(files, Selection(), targets)]  # fmt: skip
        self.assertEqual(found, [
            [(one, 0, 50_000, 1), (two, 10, 20, 1)], [(one, 50_000, 100_000, 2)], [(one, 100_000, 120_000, 1)]
        ])  # fmt: skip
        some = Selection(starts=((one, 119_990),), ends=((two, 12),))
        (cut,) = batches(files, some, targets)
        self.assertEqual([(part.start, part.end) for part in cut], [(119_990, 120_000), (10, 12)])
        # Ranges without messages make no batch, however wide they are.
        gap = [file_of(one, 0, 9), file_of(one, 10**9, 10**9 + 9)]
        cuts = list(batches(gap, Selection(), targets))
        self.assertEqual([[(part.start, len(part.files)) for part in cut] for cut in cuts], [[(0, 1)], [(10**9, 1)]])
        overlapping = [file_of(one, 0, 10), file_of(one, 5, 20)]
        self.assertRaises(ArchiveError, list, batches(overlapping, Selection(), targets))


class RestoreWorkTests(SynchronousTestCase):
    PLAN = {"commits": 3, "asked": {"--archive": "/a", "--delay-levels": "1s", "--no-index": False}}
    OTHER = {"commits": 3, "asked": {"--archive": "/b", "--delay-levels": "1s", "--no-index": True}}

    def test_restore_begun_is_continued_with_its_plan(self):
        target = self.mktemp()
        os.mkdir(target)
        RestoreWork(target, self.PLAN)
        self.assertEqual(RestoreWork(target, {**self.PLAN, "commits": 9}).commits, 3)
        error = self.assertRaises(ArchiveError, RestoreWork, target, self.OTHER)
        self.assertIn("(--archive /a, now /b; --no-index not given, now given): give the same", str(error))

    def test_putting_in_place_may_be_repeated(self):
        target = self.mktemp()
        os.mkdir(target)
        work = RestoreWork(target, self.PLAN)
        Path(work.store, "commitlog", "0").write_text("log")
        Path(work.store, "config").mkdir()
        Path(work.made, "index").mkdir(parents=True)
        work._journal.append({"step": "moving"})
        # As one that was killed has left it.
        os.rename(os.path.join(work.store, "config"), os.path.join(target, "config"))
        again = RestoreWork(target, self.PLAN)
        self.assertTrue(again.is_moving)
        again.put_in_place()
        self.assertEqual(sorted(os.listdir(target)), ["commitlog", "config"])
        self.assertIn("is not empty", str(self.assertRaises(ArchiveError, RestoreWork, target, self.PLAN)))

    def test_restore_killed_while_moving_is_completed(self):
        target = self.mktemp()
        os.mkdir(target)
        work = RestoreWork(target, self.PLAN)
        Path(work.store, "commitlog", "0").write_text("log")
        work._journal.append({"step": "moving"})
        os.rename(os.path.join(work.store, "commitlog"), os.path.join(target, "commitlog"))
        RestoreWork(target, self.PLAN).put_in_place()
        self.assertEqual(os.listdir(target), ["commitlog"])
        self.assertEqual(Path(target, "commitlog", "0").read_text(), "log")

    def test_restore_killed_while_cleaning_up_is_ended(self):
        target = self.mktemp()
        os.mkdir(target)
        self.assertFalse(was_ended(target, self.PLAN))
        for plan, same in (({**self.PLAN, "commits": 9}, True), (self.OTHER, False)):
            work = RestoreWork(target, self.PLAN)
            os.rename(work.work, f"{work.work}-done")
            self.assertEqual(was_ended(target, plan), same)
            self.assertEqual(os.listdir(target), [])


class RestoredConfigTests(SynchronousTestCase):
    def test_no_offset_is_behind_the_end_of_its_queue(self):
        store = self.mktemp()
        config = {
            "consumerOffset": {"T@g": {"0": 50, "1": 3, "2": 7}, "other@g": {"0": 1}},
            "delayOffset": {"3": 9, "4": 9},
        }
        queues = [Queue("T", "b", 0), Queue("T", "b", 1), Queue("SCHEDULE_TOPIC_XXXX", "b", 2)]
        write_config(store, config, [QueueRestored(queue, 0, 4, 5, 500, "") for queue in queues])
        table = json.loads(Path(store, "config", "consumerOffset.json").read_text())["offsetTable"]
        # A queue of which nothing was restored begins at 0 again.
        self.assertEqual(table, {"T@g": {"0": 5, "1": 3, "2": 0}})
        delays = json.loads(Path(store, "config", "delayOffset.json").read_text())["offsetTable"]
        self.assertEqual(delays, {"3": 5, "4": 0})
