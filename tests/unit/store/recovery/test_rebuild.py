"""Rebuild of queues and index at a start: missing files and damaged ends of queues are rebuilt from the log.

Expired and deleted files are not rebuilt.
"""

import os
import shutil
import threading

from twisted.logger import globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from rocketd.store.base.errors import StoreError
from rocketd.store.base.filesystem import RealFileSystem
from rocketd.store.base.layout import checkpoint_path
from rocketd.store.format.message import GetStatus
from rocketd.store.format.record import decode_messages
from rocketd.store.message_store import MessageStore
from rocketd.store.offline.repair import Repair
from rocketd.store.offline.stopped_store import FileSizes
from rocketd.store.queue.consume_queue import ConsumeQueue
from rocketd.store.recovery import opening
from rocketd.store.recovery.file_notes import notes_path, read_notes
from rocketd.store.state.checkpoint import StoreCheckpoint
from rocketd.store.state.last_stop import LastStop, mark_in_doubt, read_last_stop
from rocketd.store.testing import STORE_HOST, FaultyFileSystem, make_message, small_config

COUNT = 150
"""Messages of a store: in each of three queues five files of ten entries, in the index four of 45."""


class RebuildTestCase(SynchronousTestCase):
    how = LastStop.CLEAN

    def setUp(self):
        self.begin()

        def observe(event):
            if event["log_level"].name in ("warn", "error", "critical"):
                self.said.append(event["log_format"].format(**event))

        globalLogPublisher.addObserver(observe)
        self.addCleanup(globalLogPublisher.removeObserver, observe)

    def begin(self):
        """Begin with no store."""
        self.root = os.path.abspath(self.mktemp())
        self.fs = FaultyFileSystem()
        self.said = []

    def open(self):
        store = MessageStore(small_config(self.root, max_index_num=46), STORE_HOST, fs=self.fs)
        store.start()
        self.addCleanup(store.stop)
        return store

    def make(self):
        store = MessageStore(small_config(self.root, max_index_num=46), STORE_HOST, fs=self.fs)
        self.addCleanup(store.stop)
        return store

    def stop(self, store):
        """Leave the store as `how` says."""
        store._reput.stop()
        store.commit_log.queue.flush(0)
        store._file_notes.note()
        store._flush_queues.flush_all()
        if self.how is LastStop.CLEAN:
            store.stop()
        else:
            if store.index is not None:
                store.index.flush()
            self.end(store)
            if self.how is LastStop.CRASHED:
                mark_in_doubt(self.fs, self.root)
        self.assertIs(read_last_stop(self.fs, self.root), self.how)

    def end(self, store):
        """End the process at once."""
        self.fs.crash()
        store.stop()
        self.fs._crashed = False
        self.said.clear()

    def messages(self, begin, end, topic="TopicTest"):
        return [make_message(b"%s %d" % (topic.encode(), n), topic, n % 3, key=f"k{n}") for n in range(begin, end)]

    def fill(self):
        store = self.open()
        for begin in range(0, COUNT, 10):
            store.put_messages(self.messages(begin, begin + 10))
        self.stop(store)

    def bodies(self, store, queue_id=0, topic="TopicTest"):
        found = []
        offset = store.get_min_offset(topic, queue_id)
        while (result := store.get_messages(topic, queue_id, offset, 32, None)).status is GetStatus.FOUND:
            for view in result.buffers:
                found += [message.body for message in decode_messages(view)]
            offset = result.next_begin_offset
        return found

    def queue_dir(self, queue_id=0, topic="TopicTest"):
        return os.path.join(self.root, "consumequeue", topic, str(queue_id))

    def queue_file(self, number, queue_id=0):
        return os.path.join(self.queue_dir(queue_id), f"{number * 200:020d}")

    def index_files(self):
        directory = os.path.join(self.root, "index")
        return [os.path.join(directory, name) for name in sorted(os.listdir(directory))]

    def files(self):
        found = {}
        for name in ("consumequeue", "index"):
            for directory, _, names in os.walk(os.path.join(self.root, name)):
                for file in names:
                    with open(os.path.join(directory, file), "rb") as opened:
                        found[os.path.relpath(os.path.join(directory, file), self.root)] = opened.read()
        return found

    def warnings(self):
        return [line for line in self.said if "rebuilt from the log" in line]

    def assert_all_is_there(self, store, count=COUNT):
        for queue_id in range(3):
            self.assertEqual(
                self.bodies(store, queue_id), [b"TopicTest %d" % n for n in range(queue_id, count, 3)], queue_id
            )
        for number in range(0, count, 7):
            found = store.query_messages("TopicTest", f"k{number}", 32, 0, 2**62)
            bodies = [message.body for view in found.buffers for message in decode_messages(view)]
            self.assertEqual(set(bodies), {b"TopicTest %d" % number})
        after = store.put_messages(self.messages(count, count + 3))
        self.assertEqual([result.queue_offset for result in after], [count // 3] * 3)

    def assert_made_again(self, *missing):
        """Check that one line names the missing files, and that they are there at this start and the next."""
        store = self.open()
        self.assertEqual(len(self.warnings()), 1, self.said)
        for path in missing:
            self.assertIn(path, self.warnings()[0])
        self.assert_all_is_there(store)
        self.stop(store)
        self.said.clear()
        store = self.open()
        self.assertEqual(self.warnings(), [])
        self.assert_all_is_there(store, COUNT + 3)
        store.stop()


class MissingFilesTests(RebuildTestCase):
    """After a clean stop; the classes below do the same after a kill and a crash of the system."""

    def test_complete_store_is_not_rebuilt(self):
        self.fill()
        self.assertEqual(len(os.listdir(self.queue_dir())), 5)
        self.assertEqual(len(self.index_files()), 4)
        store = self.open()
        self.assertEqual(self.warnings(), [])
        self.assert_all_is_there(store)

    def test_missing_queue_is_rebuilt(self):
        self.fill()
        before = self.files()
        shutil.rmtree(self.queue_dir(1))
        self.assert_made_again(self.queue_dir(1))
        after = self.files()
        for name in before:
            if name.startswith("consumequeue"):
                self.assertEqual(after[name], before[name], name)

    def test_missing_topic_is_rebuilt(self):
        self.fill()
        shutil.rmtree(os.path.dirname(self.queue_dir()))
        self.assert_made_again(self.queue_dir(0), self.queue_dir(1), self.queue_dir(2))

    def test_missing_queues_are_rebuilt(self):
        self.fill()
        shutil.rmtree(os.path.join(self.root, "consumequeue"))
        self.assert_made_again(self.queue_dir(0))

    def test_missing_queue_file_is_rebuilt(self):
        for number in range(5):
            self.begin()
            self.fill()
            os.remove(self.queue_file(number))
            self.assert_made_again(self.queue_file(number))

    def test_missing_files_of_several_queues_are_rebuilt(self):
        self.fill()
        for number in range(3):
            os.remove(self.queue_file(number + 1, number))
        self.assert_made_again(*[self.queue_file(number + 1, number) for number in range(3)])

    def test_missing_index_file_is_rebuilt(self):
        for number in range(4):
            if self.how is LastStop.CRASHED and number == 3:
                continue  # the last is rebuilt anyway
            self.begin()
            self.fill()
            missing = self.index_files()[number]
            os.remove(missing)
            self.assert_made_again(missing)

    def test_missing_index_is_rebuilt(self):
        self.fill()
        missing = self.index_files()
        shutil.rmtree(os.path.dirname(missing[0]))
        self.assert_made_again(missing[0])

    def test_missing_queues_and_index_are_rebuilt(self):
        self.fill()
        shutil.rmtree(os.path.join(self.root, "consumequeue"))
        shutil.rmtree(os.path.join(self.root, "index"))
        self.assert_made_again(self.queue_dir(0))

    def test_gap_is_rebuilt_without_notes(self):
        self.fill()
        os.remove(notes_path(self.root))
        os.remove(self.queue_file(2))
        self.assert_made_again(self.queue_file(2))

    def test_store_without_notes_is_accepted(self):
        self.fill()
        for content in (b"", b"00000000\n[]", b"no notes"):
            with open(notes_path(self.root), "wb") as file:
                file.write(content)
            store = self.open()
            self.assertEqual(self.warnings(), [])
            self.stop(store)
        self.assertIsNotNone(read_notes(self.fs, self.root))

    def test_rebuild_does_not_restore_deleted_topic(self):
        """A topic that was deleted does not come back with the queue of another that is missing."""
        store = self.open()
        store.put_messages(self.messages(0, 30, "Deleted"))
        store.delete_topic("Deleted")
        for begin in range(0, COUNT, 10):
            store.put_messages(self.messages(begin, begin + 10))
        store.put_messages(self.messages(0, 3, "Deleted"))
        self.stop(store)
        shutil.rmtree(os.path.dirname(self.queue_dir()))
        store = self.open()
        self.assertEqual(len(self.warnings()), 1)
        self.assertEqual(self.bodies(store, topic="Deleted"), [b"Deleted 0"])
        self.assert_all_is_there(store)
        self.stop(store)
        # Nor do the messages of before, when it is the one that is missing.
        shutil.rmtree(self.queue_dir(0, "Deleted"))
        store = self.open()
        self.assertEqual(self.bodies(store, topic="Deleted"), [b"Deleted 0"])

    def test_deleted_topic_is_not_rebuilt(self):
        store = self.open()
        store.put_messages(self.messages(0, 30, "Other"))
        for begin in range(0, COUNT, 10):
            store.put_messages(self.messages(begin, begin + 10))
        self.stop(store)
        store = self.open()
        store.delete_topic("Other")
        store._reput.stop()
        self.end(store)
        store = self.open()
        self.assertEqual(self.warnings(), [])
        self.assertNotIn("Other", os.listdir(os.path.join(self.root, "consumequeue")))
        self.assert_all_is_there(store)

    def test_expired_files_are_not_rebuilt(self):
        """The process ends right after the deletion, without time to note the remaining files."""
        self.fill()
        store = self.open()
        store._file_notes.note()
        log = store.commit_log.queue
        while len(log.files) > 1:
            self.assertTrue(log.delete_first(log.files[0]))
        for _ in store._cleaner._clean_queues():
            pass
        self.assertFalse(os.path.exists(self.queue_file(0)))
        self.assertLess(len(self.index_files()), 4)
        begin = store.commit_log.min_offset
        self.end(store)
        store = self.open()
        self.assertEqual(self.warnings(), [])
        self.assertEqual(self.bodies(store)[-1], b"TopicTest 147")
        # Missing files among the remaining ones are still rebuilt.
        self.stop(store)
        shutil.rmtree(self.queue_dir(1))
        store = self.open()
        self.assertEqual(len(self.warnings()), 1)
        self.assertIn(f"from offset {begin} on", self.warnings()[0])
        self.assertEqual(self.bodies(store, 1)[-1], b"TopicTest 148")
        self.assertEqual(store.put_messages(self.messages(COUNT, COUNT + 3))[1].queue_offset, 50)

    def test_expired_queue_does_not_reuse_offsets(self):
        store = self.open()
        store.put_messages([make_message(b"old", "Idle") for _ in range(13)])
        for begin in range(0, COUNT, 10):
            store.put_messages(self.messages(begin, begin + 10))
        self.stop(store)
        store = self.open()
        log = store.commit_log.queue
        while len(log.files) > 1:
            self.assertTrue(log.delete_first(log.files[0]))
        self.stop(store)
        shutil.rmtree(self.queue_dir(0, "Idle"))
        for _ in range(2):
            store = self.open()
            self.assertEqual(self.bodies(store, topic="Idle"), [])
            self.stop(store)
        store = self.open()
        (result,) = store.put_messages([make_message(b"new", "Idle")])
        self.assertEqual(result.queue_offset, 13 if self.how is LastStop.CLEAN else 20)
        store._reput.stop()
        self.assertEqual(self.bodies(store, topic="Idle"), [b"new"])

    def test_repaired_index_is_not_rebuilt(self):
        """It gives the index files other names."""
        self.fill()
        before = self.index_files()
        repair = Repair(
            self.root,
            RealFileSystem(),
            "aside",
            sizes=FileSizes(4096, 200, 100, 46),
            build_index=True,
            now_ms=lambda: 0,
        )
        repair.carry_out(lambda line: None)
        self.assertNotEqual(self.index_files(), before)
        store = self.open()
        self.assertEqual(self.warnings(), [])
        self.assert_all_is_there(store)

    def test_interrupted_rebuild_is_finished_by_next_start(self):
        self.fill()
        shutil.rmtree(self.queue_dir(1))
        missing = self.index_files()[1]
        os.remove(missing)
        failed = 0
        for nth in range(3, 60, 8):
            # Somewhere within: making files, writing the checkpoint.
            self.fs.fail("open", OSError("the process has ended"), nth, 1000)
            store = MessageStore(small_config(self.root, max_index_num=46), STORE_HOST, fs=self.fs)
            self.addCleanup(store.stop)
            if store.index is not None:
                store.index._retry_seconds = 0.0
            try:
                store.start()
            except (OSError, StoreError):
                failed += 1
            else:
                self.end(store)
            self.fs._faults.clear()
        self.assertGreater(failed, 2)
        self.assert_all_is_there(self.open())

    def test_interrupted_dispatch_is_finished_by_next_start(self):
        """The dispatch of a start lacks room for its first new file, then for its second, and so on to the last."""
        nth, late = 0, True
        while late:
            nth += 1
            self.begin_in_doubt(without_queue=1)
            late = self.start_without_room_to_dispatch(nth)
            self.assert_all_is_there(self.open())
        self.assertGreater(nth, 1)

    def test_interrupted_start_without_notes_is_finished_by_next_start(self):
        for nth in range(20, 36):
            self.begin_in_doubt(without_queue=2)
            os.remove(notes_path(self.root))
            self.start_and_end(nth, 10)
            self.assert_all_is_there(self.open())

    def begin_in_doubt(self, without_queue):
        self.begin()
        self.fill()
        mark_in_doubt(self.fs, self.root)
        shutil.rmtree(self.queue_dir(without_queue))

    def start_and_end(self, nth, times):
        """Begin to start a store, with no room for some files, and end the process."""
        self.fs.fail("open", OSError("no room"), nth, times)
        store = self.make()
        try:
            store.start()
        except (OSError, StoreError):
            return
        finally:
            self.fs._faults.clear()
        self.end_process(store)

    def start_without_room_to_dispatch(self, nth):
        """Start a store whose dispatch finds no room for its nth file, and end the process.

        Returns whether the dispatch has not entered all. It tries again after seconds only.
        """
        store = self.make()
        dispatch = store._late.begin

        def begin():
            self.fs.fail("open", OSError("no room"), nth)
            dispatch()
            self.fs._faults.clear()

        self.patch(store._late, "begin", begin)
        store.start()
        late = store.dispatch_behind_bytes() > 0
        self.end_process(store)
        return late

    def end_process(self, store):
        store._file_notes.note()  # as is done every second
        self.end(store)


class MissingFilesAfterKillTests(MissingFilesTests):
    how = LastStop.KILLED


class MissingFilesAfterCrashTests(MissingFilesTests):
    how = LastStop.CRASHED


class FailedStartTests(RebuildTestCase):
    how = LastStop.KILLED

    def test_late_flush_of_failed_start_does_not_hide_missing_entries(self):
        """The index flush of a failed start is slow. It must not bring back the progress that later starts gave up."""
        self.fill()
        self.forget_index_flushes()
        failing = self.make()
        may_write = self.delay_checkpoint(failing)
        self.patch(failing._late, "begin", self.refuse)
        self.assertRaises(OSError, failing.start)
        # No entry is certain any more, because the disk has no room for the index.
        self.start_without_room_for_index()
        self.assertIsNone(StoreCheckpoint(checkpoint_path(self.root), self.fs).progress)
        # After a power cut the entries are rebuilt, but only the first few.
        mark_in_doubt(self.fs, self.root)
        self.start_without_room_for_index()
        may_write.set()
        failing.index._join_flusher()
        self.assert_all_is_there(self.open())

    def test_rebuild_without_flush_is_repeated_after_power_cut(self):
        self.fill()
        shutil.rmtree(self.queue_dir(1))
        patch = self.patch(ConsumeQueue, "flush", self.refuse)
        store = self.make()
        store.start()
        self.assertTrue(read_notes(self.fs, self.root).rebuild)
        self.end(store)
        patch.restore()
        self.fs.lose_unsynced()
        self.assertFalse(os.path.exists(self.queue_file(0, 1)))
        self.assert_all_is_there(self.open())

    def test_plan_without_notes_is_not_taken_for_notes(self):
        """A start without notes ends when its plan is written. The next one must miss the queue that no plan names."""
        self.fill()
        os.remove(notes_path(self.root))
        os.remove(self.queue_file(2, 1))
        shutil.rmtree(self.queue_dir(2))
        patch = self.patch(opening, "mark_in_doubt", self.refuse)
        self.assertRaises(OSError, self.make().start)
        patch.restore()
        self.assertTrue(read_notes(self.fs, self.root).rebuild)
        self.assert_all_is_there(self.open())

    def test_progress_behind_lost_end_of_log_is_forgotten(self):
        """Later records may end where the lost ones ended. They have no entries yet."""
        self.fill()
        checkpoint = StoreCheckpoint(checkpoint_path(self.root), self.fs)
        end_of_log = checkpoint.progress.dispatched
        checkpoint.progress = checkpoint.progress._replace(dispatched=end_of_log + 100, dispatched_last=end_of_log)
        checkpoint.flush()
        mark_in_doubt(self.fs, self.root)
        store = self.make()
        found = []

        def end():
            found.append(StoreCheckpoint(checkpoint_path(self.root), self.fs).progress.dispatched)
            self.refuse()

        self.patch(store._late, "begin", end)
        self.assertRaises(OSError, store.start)
        self.assertEqual(found, [end_of_log])

    def forget_index_flushes(self):
        """Leave the store as if its process had ended before it flushed the index."""
        checkpoint = StoreCheckpoint(checkpoint_path(self.root), self.fs)
        checkpoint.index_msg_timestamp = 0
        checkpoint.flush()

    def refuse(self, *arguments):
        raise OSError("the process has ended")

    def start_without_room_for_index(self):
        """Start a store, and end its process before it has entered all messages."""
        store = self.make()
        self.patch(store.index, "_make_after", self.refuse)
        store.start()
        self.assertTrue(store.dispatch_behind_bytes())
        store._file_notes.note()
        self.end(store)

    def delay_checkpoint(self, store):
        """Make flushes of the checkpoint wait for the returned event, or until a thread waits for the index's flush."""
        may_write = threading.Event()
        self.addCleanup(may_write.set)
        flush, join = store.checkpoint.flush, store.index._join_flusher

        def flush_late():
            may_write.wait()
            flush()

        def join_now():
            may_write.set()
            join()

        self.patch(store.checkpoint, "flush", flush_late)
        self.patch(store.index, "_join_flusher", join_now)
        return may_write


class DamagedEndTests(RebuildTestCase):
    """After a clean stop; the class below does the same after a kill."""

    def patch_queue(self, position, data, queue_id=0):
        """Change bytes of the last file, which holds all of its ten entries but one."""
        with open(self.queue_file(4, queue_id), "r+b") as file:
            file.seek(position)
            file.write(data)

    def fill(self):
        store = self.open()
        for begin in range(0, COUNT, 10):
            store.put_messages(self.messages(begin, begin + 10)[: COUNT - 3 - begin])
        self.stop(store)

    def damaged(self, queue_id=0):
        store = self.open()
        self.assertEqual(len(self.warnings()), 1, self.said)
        self.assertIn(f"queue TopicTest-{queue_id} does not agree", self.warnings()[0])
        self.assert_all_is_there(store, COUNT - 3)
        self.stop(store)
        self.said.clear()
        store = self.open()
        self.assertEqual(self.warnings(), [])
        self.assert_all_is_there(store, COUNT)
        store.stop()

    def test_flipped_bit_in_last_entry_is_rebuilt(self):
        for queue_id in range(3):
            for position in (0, 3, 6, 7, 8, 11, 12, 19):
                self.begin()
                self.fill()
                with open(self.queue_file(4, queue_id), "rb") as file:
                    byte = file.read()[160 + position]
                self.patch_queue(160 + position, bytes([byte ^ 0x10]), queue_id)
                self.damaged(queue_id)

    def test_garbage_in_last_entries_is_rebuilt(self):
        for begin in (0, 20, 140):
            for garbage in (b"\xff", b"\1", b"garbage! "):
                self.begin()
                self.fill()
                self.patch_queue(begin, (garbage * 200)[: 180 - begin], 1)
                self.damaged(1)

    def test_torn_last_entry_is_rebuilt(self):
        for kept in (4, 7, 8):
            self.begin()
            self.fill()
            # The very last message is one of the queue: it has to have its entry.
            self.patch_queue(160 + kept, bytes(20 - kept), 2)
            self.damaged(2)

    def test_garbage_behind_last_entry_is_removed(self):
        self.fill()
        self.patch_queue(190, b"garbage")
        self.damaged()

    def test_interrupted_rebuild_is_finished_by_next_start(self):
        self.fill()
        self.patch_queue(160, b"garbage")
        self.fs.fail("allocate", OSError("the process has ended"))
        store = MessageStore(small_config(self.root, max_index_num=46), STORE_HOST, fs=self.fs)
        self.addCleanup(store.stop)
        self.assertRaises(OSError, store.start)
        self.assert_all_is_there(self.open(), COUNT - 3)


class DamagedEndAfterKillTests(DamagedEndTests):
    how = LastStop.KILLED

    def test_start_after_kill_of_complete_store_reads_no_log(self):
        self.fill()
        with open(os.path.join(self.root, "commitlog", "0" * 20), "r+b") as file:
            file.write(bytes(4096))
        store = self.open()
        self.assertEqual(self.said, [])
        self.assertEqual(store.get_max_offset("TopicTest", 0), 49)

    def test_entry_torn_by_kill_is_not_damage(self):
        for kept in (4, 8, 12, 19):
            self.begin()
            self.fill()
            store = self.open()
            store._flush_queues.flush_all()
            store._reput.stop()
            store.put_messages(self.messages(COUNT - 3, COUNT))
            self.end(store)
            data = bytes([0, 0, 0, 0, 0, 0, 0x40, 1, 0, 0, 0, 100, 1, 2, 3, 4, 5, 6, 7, 8])
            self.patch_queue(180, data[:kept])
            store = self.open()
            self.assertEqual(self.warnings(), [])
            self.assert_all_is_there(store)


class ZeroedEndTests(RebuildTestCase):
    def test_zeroed_entries_after_clean_stop_are_rebuilt(self):
        for queue_id in range(3):
            self.begin()
            self.fill()
            with open(self.queue_file(4, queue_id), "r+b") as file:
                file.seek(100)
                file.write(bytes(100))
            store = self.open()
            self.assertEqual(len(self.warnings()), 1)
            self.assert_all_is_there(store)


del RebuildTestCase
