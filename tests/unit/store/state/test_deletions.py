"""Deleted topics stay deleted: through repairs, damaged notes, kills and logs of another store."""

import json
import os
import shutil
import threading
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from rocketd.store.base.filesystem import RealFileSystem
from rocketd.store.base.findings import Severity
from rocketd.store.message_store import MessageStore
from rocketd.store.recovery.catch_up import CatchUp
from rocketd.store.state.deletion_file import deletions_path, read_deletions, write_deletions
from rocketd.store.state.deletions import Deletion, Deletions
from rocketd.store.testing import STORE_HOST, make_message, small_config
from tests.support.store_examining import SIZES, Clock, QuickFileSystem, StoreTestCase

D = 3
"""The queue that the topic has no more when it is recreated."""


class TableTests(SynchronousTestCase):
    def test_deletion_includes_records_by_topic_offset_and_time(self):
        deletions = Deletions({"D": Deletion(100, 50)})
        self.assertTrue(deletions.include("D", 99, 50))
        for other in (("E", 99, 50), ("D", 100, 50), ("D", 99, 51)):
            self.assertFalse(deletions.include(*other))

    def test_deletions_end_with_the_log(self):
        deletions = Deletions({"D": Deletion(100, 50), "E": Deletion(20, 50)})
        self.assertEqual(deletions.within(20, 80).topics, {"D": (80, 50)})
        self.assertEqual(deletions.within(-1, 0).topics, {})
        self.assertIs(deletions.within(0, 100), deletions)

    def test_damaged_file_is_ignored(self):
        root = self.mktemp()
        deletions = Deletions({"D": Deletion(100, 50)})
        write_deletions(RealFileSystem(), root, deletions)
        self.assertEqual(read_deletions(RealFileSystem(), root), deletions)
        path = Path(deletions_path(root))
        path.write_bytes(path.read_bytes()[:-3])
        self.assertIsNone(read_deletions(RealFileSystem(), root))


class MadeAgainTests(StoreTestCase):
    """A topic with a message in queue 3, deleted and recreated with one queue."""

    def open(self, root):
        store = MessageStore(small_config(root), STORE_HOST, fs=QuickFileSystem(), clock=Clock())
        store.start()
        return store

    def put(self, store, queue_id=D, count=3, body=b"old"):
        for _ in range(count):
            store.put_messages([make_message(body, topic="D", queue_id=queue_id)])

    def settle(self, store):
        dispatched = threading.Event()
        store._reput.call(dispatched.set)
        self.assertTrue(dispatched.wait(60))

    def configure(self, root, queues):
        os.makedirs(os.path.join(root, "config"), exist_ok=True)
        table = {"D": {"readQueueNums": queues, "writeQueueNums": queues}, "K": {}}
        Path(root, "config", "topics.json").write_text(json.dumps({"topicConfigTable": table}))

    def deleted(self, queue_id=0):
        """A store in which the topic was deleted and recreated, stopped cleanly."""
        root = os.path.abspath(self.mktemp())
        store = self.open(root)
        self.put(store)
        store.delete_topic("D")
        self.put(store, queue_id, 1, b"new")
        # Dispatched behind it, so that no record is left for the next start to dispatch.
        store.put_messages([make_message(b"k", topic="K")])
        store.stop()
        self.configure(root, 1)
        return root

    def messages(self, store, queue_id):
        result = store.get_messages("D", queue_id, 0, 32, None)
        return [bytes(part) for part in result.buffers]

    def test_verify_notes_and_repair_keeps_deletion(self):
        root = self.deleted()
        (finding,) = self.findings(root)
        self.assertEqual(
            (finding.severity, finding.text), (Severity.NOTE, "3 records of D-3 were deleted with their topic")
        )
        self.assertEqual(self.repair(root), [])
        store = self.open(root)
        self.assertNotIn(("D", D), store.queue_keys())
        store.stop()

    def test_store_without_notes_keeps_queues_beyond_topic_deleted(self):
        """As Apache's broker has written it."""
        root = self.deleted()
        os.unlink(deletions_path(root))
        (finding,) = self.findings(root)
        self.assertIs(finding.severity, Severity.NOTE)
        self.assertIn("3 records of D-3 have no queue: the topic has 1 queues", finding.text)
        self.assertEqual(self.repair(root), [])
        self.configure(root, 4)
        self.assertEqual([finding.severity for finding in self.findings(root)], [Severity.DAMAGE])

    def test_repaired_queue_gets_new_messages_only(self):
        root = self.deleted(D)
        self.configure(root, 4)
        shutil.rmtree(os.path.join(root, "consumequeue", "D"))
        self.repair(root, sizes=SIZES)
        store = self.open(root)
        self.assertEqual((store.get_min_offset("D", D), store.get_max_offset("D", D)), (0, 1))
        self.assertEqual([b"new" in part for part in self.messages(store, D)], [True])
        store.stop()

    def test_rebuilt_queue_gets_new_messages_only(self):
        root = self.deleted(D)
        shutil.rmtree(os.path.join(root, "consumequeue", "D"))
        store = self.open(root)
        self.assertEqual((store.get_min_offset("D", D), store.get_max_offset("D", D)), (0, 1))
        store.stop()

    def test_crash_after_deletion_restores_nothing(self):
        root = self.deleted()
        self.unclean(root)
        store = self.open(root)
        self.settle(store)
        self.assertNotIn(("D", D), store.queue_keys())
        self.assertEqual(len(self.messages(store, 0)), 1)
        store.stop()

    def test_interrupted_deletion_is_finished_at_start(self):
        root = os.path.abspath(self.mktemp())
        store = self.open(root)
        self.put(store)
        self.settle(store)
        # As the kill would leave it: noted, and no more.
        store._note_deletion("D")
        self.put(store, 0, 1, b"new")
        store.stop()
        self.assertTrue(os.path.isdir(os.path.join(root, "consumequeue", "D", str(D))))
        self.assertEqual(self.damage(root), [])
        store = self.open(root)
        self.assertEqual([key for key in store.queue_keys() if key[0] == "D"], [("D", 0)])
        store.stop()

    def test_deletion_does_not_apply_to_other_log(self):
        root = self.deleted()
        for name in ("commitlog", "consumequeue"):
            shutil.rmtree(os.path.join(root, name))
        for name in ("checkpoint", "rocketd-files"):
            os.unlink(os.path.join(root, name))
        noted = Path(deletions_path(root)).read_bytes()
        store = MessageStore(small_config(root), STORE_HOST, fs=QuickFileSystem(), clock=Clock(1_800_000_000.0))
        store.start()
        self.put(store, count=5)
        store.stop()
        # As after a broker that knows nothing of it.
        Path(deletions_path(root)).write_bytes(noted)
        shutil.rmtree(os.path.join(root, "consumequeue"))
        self.unclean(root)
        store = self.open(root)
        self.settle(store)
        self.assertEqual(len(self.messages(store, D)), 1)
        self.assertEqual(store.get_max_offset("D", D), 5)
        store.stop()

    def noted_only(self):
        """A store in which a kill came between the note of a deletion and the removal of the queue, which got no more."""
        root = os.path.abspath(self.mktemp())
        store = self.open(root)
        self.put(store)
        self.settle(store)
        store._file_notes.note()
        store._note_deletion("D")
        store.put_messages([make_message(b"k", topic="K")])
        store.stop()
        self.configure(root, 4)
        return root

    def test_missing_queue_of_deleted_messages_is_not_rebuilt(self):
        root = self.noted_only()
        shutil.rmtree(os.path.join(root, "consumequeue", "D"))
        store = self.open(root)
        self.addCleanup(store.stop)
        self.assertEqual(store.get_max_offset("D", D), 0)

    def test_repaired_queue_of_deleted_messages_stays_empty(self):
        root = self.noted_only()
        path = Path(root, "consumequeue", "D", str(D), f"{0:020d}")
        data = path.read_bytes()
        path.write_bytes(b"\x7f" * 20 + data[20:])
        self.assertNotEqual(self.repair(root), [])
        self.assertFalse(path.exists() and any(path.read_bytes()))

    def test_damaged_entry_of_deleted_message_is_not_found(self):
        root = os.path.abspath(self.mktemp())
        store = self.open(root)
        self.addCleanup(store.stop)
        self.put(store)
        self.settle(store)
        self.assertIsNotNone(store._finder.find(store.queues.find("D", D), 1, (1 << 40, 100, 0)))
        store._finder._known.clear()
        store._note_deletion("D")
        self.assertIsNone(store._finder.find(store.queues.find("D", D), 1, (1 << 40, 100, 0)))

    def test_catch_up_does_not_count_deleted_messages(self):
        root = os.path.abspath(self.mktemp())
        store = self.open(root)
        self.put(store)
        self.settle(store)
        store._note_deletion("D")
        scanner, deletions = store._scanner, store._dispatcher.deletions
        late = CatchUp(store.commit_log, store._dispatcher.twin, scanner, 0, deletions)
        self.assertEqual((late.queue_offsets(), late.begin_timestamp()), ({}, 0))
        late = CatchUp(store.commit_log, store._dispatcher.twin, scanner, 0, Deletions())
        self.assertEqual(late.queue_offsets(), {("D", D): 3})
        store.stop()
