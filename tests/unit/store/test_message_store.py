"""The store as a whole: start, stop, lock, dispatch, refusals."""

import os
import queue
import struct
import subprocess
import sys
import threading
import time

from twisted.trial.unittest import SynchronousTestCase

from rocketd.store.base.errors import StoreFileSizeError, StoreLockedError, StoreStateError
from rocketd.store.base.filesystem import DiskUsage
from rocketd.store.base.layout import BLANK_MAGIC
from rocketd.store.base.settings import MessageStoreConfig
from rocketd.store.format.message import DispatchRequest, GetStatus, PutStatus
from rocketd.store.format.record import decode_message, decode_messages
from rocketd.store.log import append
from rocketd.store.log.commit_log import CommitLog
from rocketd.store.message_store import MessageStore
from rocketd.store.queue import dispatch
from rocketd.store.queue.consume_queue import ConsumeQueue
from rocketd.store.state.checkpoint import StoreCheckpoint
from rocketd.store.testing import STORE_HOST, FaultyFileSystem, make_message, small_config

WAIT = 60

HOLD_LOCK = """
import sys
from rocketd.store.base.filesystem import RealFileSystem
RealFileSystem().lock(sys.argv[1], b"lock")
print("locked", flush=True)
sys.stdin.read()
"""


class StoreTestCase(SynchronousTestCase):
    def setUp(self):
        self.root = os.path.abspath(self.mktemp())
        self.fs = FaultyFileSystem()
        self.store = None
        self.addCleanup(lambda: self.store and self.store.stop())

    def start(self, **changes):
        self.store = MessageStore(small_config(self.root, **changes), STORE_HOST, fs=self.fs)
        self.arrived = queue.SimpleQueue()
        self.store.add_arrival_listener(self.arrived.put)
        self.store.start()
        return self.store

    def put(self, *messages):
        results = self.store.put_messages(messages)
        self.settle()
        return results

    def settle(self):
        """Wait until all that was handed to dispatch has gone through."""
        done = threading.Event()
        self.store._reput.call(done.set)
        self.assertTrue(done.wait(WAIT))

    def bodies(self, topic="TopicTest", queue_id=0):
        found = []
        offset = self.store.get_min_offset(topic, queue_id)
        while (result := self.store.get_messages(topic, queue_id, offset, 32, None)).status is GetStatus.FOUND:
            for view in result.buffers:
                found += [message.body for message in decode_messages(view)]
            offset = result.next_begin_offset
        return found


class LifecycleTests(StoreTestCase):
    def test_clean_stop_and_start(self):
        self.start()
        self.put(*[make_message(b"%d" % n, key=f"k{n}") for n in range(40)])
        self.assertIn("abort", os.listdir(self.root))
        self.store.stop()
        self.assertNotIn("abort", os.listdir(self.root))
        self.start()
        self.assertEqual(self.bodies(), [b"%d" % n for n in range(40)])
        self.assertEqual(self.put(make_message(b"next"))[0].queue_offset, 40)
        found = self.store.query_messages("TopicTest", "k7", 32, 0, 2**62)
        self.assertEqual([decode_message(view).body for view in found.buffers], [b"7"])

    def test_directory_has_apaches_files_and_our_notes(self):
        self.start()
        self.put(make_message(key="k"))
        self.store.stop()
        self.assertEqual(
            sorted(os.listdir(self.root)),
            ["checkpoint", "commitlog", "consumequeue", "index", "lock", "rocketd-files", "rocketd-log-begin"],
        )
        self.assertEqual(os.listdir(os.path.join(self.root, "commitlog")), ["0" * 20])
        self.assertEqual(os.listdir(os.path.join(self.root, "consumequeue", "TopicTest", "0")), ["0" * 20])
        with open(os.path.join(self.root, "lock"), "rb") as file:
            self.assertEqual(file.read(), b"lock")
        checkpoint = StoreCheckpoint(os.path.join(self.root, "checkpoint"))
        self.assertGreater(checkpoint.physic_msg_timestamp, 0)
        self.assertEqual(checkpoint.logics_msg_timestamp, checkpoint.physic_msg_timestamp)

    def test_empty_store_starts_and_stops(self):
        for _ in range(2):
            self.start()
            self.assertEqual((self.store.max_physical_offset(), self.store.min_physical_offset()), (0, -1))
            self.store.stop()
        self.assertNotIn("abort", os.listdir(self.root))

    def test_second_store_of_this_process_is_refused(self):
        self.start()
        with self.assertRaises(StoreLockedError) as caught:
            MessageStore(small_config(self.root), STORE_HOST).start()
        self.assertIn(self.root, str(caught.exception))
        self.assertNotIn("\n", str(caught.exception))
        # And the refused one has not taken the lock from the first.
        self.assertEqual(self.locked_elsewhere(), "StoreLockedError")

    def test_start_in_directory_of_other_process_is_refused(self):
        os.makedirs(self.root)
        holder = subprocess.Popen(
            [sys.executable, "-c", HOLD_LOCK, os.path.join(self.root, "lock")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=self.environment(),
        )
        self.addCleanup(holder.wait)
        self.addCleanup(holder.stdout.close)
        self.addCleanup(holder.stdin.close)
        self.assertEqual(holder.stdout.readline(), b"locked\n")
        with self.assertRaises(StoreLockedError):
            self.start()
        self.store = None

    def locked_elsewhere(self):
        finished = subprocess.run(
            [sys.executable, "-c", HOLD_LOCK, os.path.join(self.root, "lock")],
            input=b"",
            capture_output=True,
            env=self.environment(),
            check=False,
        )
        return finished.stderr.decode().strip().splitlines()[-1].split(":")[0].rpartition(".")[2]

    @staticmethod
    def environment():
        return os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}

    def test_failed_start_leaves_store_unchanged(self):
        self.start()
        self.put(make_message())
        self.store.stop()
        with self.assertRaises(StoreFileSizeError):
            self.start(mapped_file_size_commit_log=8192)
        self.assertNotIn("abort", os.listdir(self.root))
        self.start()
        self.assertEqual(self.bodies(), [b"body"])

    def test_second_start_fails(self):
        self.start()
        with self.assertRaises(StoreStateError):
            self.store.start()

    def test_stop_keeps_abort_when_the_disk_fails(self):
        self.start()
        self.put(make_message())
        self.fs.crash()
        self.store.stop()
        self.assertIn("abort", os.listdir(self.root))

    def test_stop_during_start_waits_for_it(self):
        self.start()
        self.put(*[make_message(b"%d" % number) for number in range(3)])
        self.store.stop()
        self.store = store = MessageStore(small_config(self.root), STORE_HOST, fs=self.fs)
        begun, go = threading.Event(), threading.Event()
        self.addCleanup(go.set)
        dispatch_log = store._late.begin
        self.patch(store._late, "begin", lambda: begun.set() or (go.wait(WAIT) and dispatch_log()))
        starter, stopper = threading.Thread(target=store.start), threading.Thread(target=store.stop)
        starter.start()
        self.assertTrue(begun.wait(WAIT))
        stopper.start()
        stopper.join(0.1)
        self.assertIn("abort", os.listdir(self.root))
        go.set()
        starter.join(WAIT)
        stopper.join(WAIT)
        self.assertNotIn("abort", os.listdir(self.root))
        self.assertEqual(store.put_messages([make_message()])[0].status, PutStatus.SERVICE_NOT_AVAILABLE)

    def test_stop_leaves_no_thread_that_enters_messages(self):
        """The dispatching thread hangs in an extension, so the stop does not wait for it."""
        begun, free = threading.Event(), threading.Event()
        self.addCleanup(free.set)
        self.store = store = MessageStore(small_config(self.root), STORE_HOST, fs=self.fs)
        store.set_bitmap_maker(lambda requests: begun.set() or free.wait(WAIT))
        store.start()
        thread = store._reput._thread
        store.put_messages([make_message(b"one")])
        self.assertTrue(begun.wait(WAIT))
        store.put_messages([make_message(b"two")])
        store._reput.call(begun.clear)
        self.patch(dispatch, "STOP_SECONDS", 0.05)
        store.stop()
        self.assertTrue(os.path.exists(os.path.join(self.root, "abort")))
        free.set()
        thread.join(WAIT)
        self.assertEqual(store.get_max_offset("TopicTest", 0), 0)
        self.assertTrue(begun.is_set())
        self.start()
        self.assertEqual(self.store.get_max_offset("TopicTest", 0), 2)

    def test_unused_preallocated_file_is_removed_at_stop(self):
        self.start()
        self.put(*[make_message(bytes(1500))] * 3)
        self.store.stop()
        self.assertEqual(len(os.listdir(os.path.join(self.root, "commitlog"))), 2)


class DispatchTests(StoreTestCase):
    def test_arrival_listener_gets_dispatched_messages(self):
        self.start()
        self.put(
            make_message(tags_code=5, properties=b"A\x01b"),
            make_message(topic="U", queue_id=2),
            make_message(sys_flag=4),
        )
        (arrivals,) = [self.arrived.get(timeout=WAIT)]
        self.assertEqual([arrival[:4] for arrival in arrivals], [("TopicTest", 0, 1, 5), ("U", 2, 1, 0)])
        self.assertEqual(arrivals[0][5], b"A\x01b")

    def test_only_listener_is_not_called_for_queues_without_readers(self):
        self.start()
        self.store.is_awaited = lambda topic, queue_id: (topic, queue_id) == ("U", 2)
        self.put(make_message(), make_message(topic="U", queue_id=1), make_message(topic="U", queue_id=1))
        self.put(make_message(), make_message(topic="U", queue_id=2))
        self.assertEqual([arrival[:3] for arrival in self.arrived.get()], [("TopicTest", 0, 2), ("U", 2, 1)])
        self.assertTrue(self.arrived.empty())

    def test_further_listener_is_called_for_queues_without_readers(self):
        self.start()
        self.store.is_awaited = lambda topic, queue_id: False
        seen = queue.SimpleQueue()
        self.store.add_arrival_listener(seen.put)
        self.put(make_message())
        self.assertEqual([arrival[:3] for arrival in seen.get(timeout=WAIT)], [("TopicTest", 0, 1)])

    def test_message_is_visible_to_arrival_listener(self):
        self.start()
        seen = queue.SimpleQueue()
        self.store.add_arrival_listener(
            lambda arrivals: seen.put(self.store.get_messages("TopicTest", 0, 0, 32, None).status)
        )
        self.put(make_message())
        self.assertIs(seen.get(timeout=WAIT), GetStatus.FOUND)

    def test_failing_listener_leaves_other_listeners_alone(self):
        self.start()
        seen = queue.SimpleQueue()

        def fail(arrivals):
            raise ValueError

        self.store.add_arrival_listener(fail)
        self.store.add_arrival_listener(seen.put)
        self.put(make_message())
        self.put(make_message())
        self.assertEqual(len([seen.get(timeout=WAIT) for _ in range(2)]), 2)
        self.assertEqual(self.bodies(), [b"body"] * 2)
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 2)

    def test_groups_beyond_queue_limit_are_read_from_log(self):
        self.patch(sys.modules["rocketd.store.queue.dispatch"], "MAX_WAITING_GROUPS", 3)
        self.start()
        held, release = threading.Event(), threading.Event()

        def hold():
            held.set()
            release.wait(WAIT)

        self.store._reput.call(hold)
        self.assertTrue(held.wait(WAIT))
        for number in range(30):
            self.store.put_messages([make_message(b"%d" % number * 300, key=f"k{number}", queue_id=number % 2)])
        release.set()
        self.settle()
        self.settle()
        self.assertEqual(self.store.dispatch_behind_bytes(), 0)
        for queue_id in (0, 1):
            self.assertEqual(self.bodies(queue_id=queue_id), [b"%d" % n * 300 for n in range(queue_id, 30, 2)])
        self.assertEqual(len(self.store.query_messages("TopicTest", "k29", 32, 0, 2**62).buffers), 1)

    def test_failed_queue_write_is_retried(self):
        self.patch(sys.modules["rocketd.store.queue.dispatch"], "RETRY_SECONDS", 0.001)
        self.start()
        self.fs.fail("allocate", OSError(28, "No space left on device"), times=3)
        self.put(make_message())
        self.assertEqual(self.bodies(), [b"body"])
        self.assertTrue(self.store.flags.writable)

    def test_unwritable_queue_makes_store_read_only(self):
        self.patch(sys.modules["rocketd.store.queue.dispatch"], "RETRY_SECONDS", 0.001)
        self.start(message_index_enable=False)
        self.fs.fail("allocate", OSError(5, "Input/output error"), times=1000)
        self.put(make_message())
        result = self.put(make_message())[0]
        self.assertIs(result.status, PutStatus.SERVICE_NOT_AVAILABLE)
        self.assertIn("a consume queue could not be written", result.cause)
        self.store.stop()
        # The next start makes the accepted message visible.
        self.fs = FaultyFileSystem()
        self.start()
        self.assertEqual(self.bodies(), [b"body"])

    def fill_disk(self, **changes):
        """Start a store with a message, and have its disk refuse further room."""
        self.patch(dispatch, "RETRY_SECONDS", 0.001)
        self.start(**changes)
        self.put(make_message(b"before", key="before"))
        self.fs.fail("allocate", OSError(28, "No space left on device"), times=1_000_000)

    def make_room(self):
        self.fs._faults.clear()
        self.settle()

    def refused(self):
        """Return the cause for which messages are refused, when they are."""
        deadline = time.monotonic() + WAIT
        while (refusal := self.store.refusal()) is None:
            self.assertLess(time.monotonic(), deadline)
            threading.Event().wait(0.001)
        return refusal.cause

    def test_full_disk_of_queue_refuses_messages_until_there_is_room(self):
        self.fill_disk(message_index_enable=False)
        self.store.put_messages([make_message(b"first of a queue", queue_id=1)])
        self.assertIn("a consume queue could not be written", self.refused())
        self.make_room()
        self.assertIsNone(self.store.refusal())
        self.assertEqual(self.bodies(queue_id=1), [b"first of a queue"])

    def test_full_disk_of_index_refuses_messages_until_there_is_room(self):
        self.fill_disk(max_index_num=2)  # the index needs a file for each message
        self.store.put_messages([make_message(b"after", key="after")])
        self.assertIn("the index could not be written", self.refused())
        self.make_room()
        self.assertIsNone(self.store.refusal())
        self.assertEqual(self.bodies(), [b"before", b"after"])
        self.assertEqual(len(self.store.query_messages("TopicTest", "after", 32, 0, 2**62).buffers), 1)

    def test_full_disk_does_not_hold_up_storage_thread(self):
        self.fill_disk()
        self.patch(dispatch, "RETRY_SECONDS", 5.0)
        self.patch(dispatch, "MAX_ATTEMPTS", 2)
        self.store.holds_dispatch = True
        for number in range(3):
            self.store.put_messages([make_message(b"%d" % number, queue_id=1)])
            self.assertFalse(self.store.release_dispatch(idle=True))
        self.assertIsNone(self.store.refusal())
        self.store.stop()
        self.fs._faults.clear()
        self.start()
        self.assertEqual(self.bodies(queue_id=1), [b"0", b"1", b"2"])

    def test_recreated_topic_begins_at_offset_0(self):
        self.start()
        self.put(make_message(b"old"), make_message(b"other", topic="U"))
        self.store.delete_topic("TopicTest")
        self.settle()
        self.assertEqual(self.store.queue_keys(), [("U", 0)])
        self.assertEqual(self.put(make_message(b"new"))[0].queue_offset, 0)
        self.assertEqual(self.bodies(), [b"new"])
        self.assertEqual(self.bodies("U"), [b"other"])


class DeleteTopicTests(StoreTestCase):
    def test_delete_topic_drops_held_messages(self):
        store = self.start()
        store.holds_dispatch = True
        store.put_messages([make_message(b"old")] * 3)
        store.delete_topic("TopicTest")
        store.put_messages([make_message(b"new")])
        store.release_dispatch(idle=False)
        self.settle()
        self.assertEqual(self.bodies(), [b"new"])

    def test_delete_topic_after_clock_set_back_includes_held_messages(self):
        clock = {"clock": lambda: 1_700_000_000.0, "stamps": lambda: 1_700_000_300.0}
        self.store = MessageStore(small_config(self.root), STORE_HOST, fs=self.fs, **clock)
        self.store.start()
        self.store.holds_dispatch = True
        (result,) = self.store.put_messages([make_message(b"old")])
        self.store.delete_topic("TopicTest")
        self.assertTrue(self.store.was_deleted("TopicTest", result.physical_offset, result.store_timestamp))

    def test_delete_topic_drops_messages_waiting_in_log(self):
        self.patch(dispatch, "MAX_WAITING_GROUPS", 0)
        store = self.start()
        gate = threading.Event()
        store._reput.call(gate.wait)
        store.put_messages([make_message(b"old")] * 3)
        store.delete_topic("TopicTest")
        store.put_messages([make_message(b"new")])
        gate.set()
        self.settle()
        self.assertEqual(self.bodies(), [b"new"])


class ExpiredQueueTests(StoreTestCase):
    def begin_log_at(self, offset):
        """Have the log begin there, as it does after its first files have gone."""
        self.patch(CommitLog, "min_offset", property(lambda _: offset))

    def test_delete_expired_queues_removes_queue_without_messages(self):
        store = self.start()
        self.put(make_message(b"old"))
        end = store.max_physical_offset()
        self.put(make_message(b"other", topic="U"))
        self.assertEqual(store.delete_expired_queues(), [])
        self.begin_log_at(end)
        self.assertEqual(store.delete_expired_queues(), [("TopicTest", 0)])
        self.settle()
        self.assertEqual(store.queue_keys(), [("U", 0)])
        self.assertFalse(os.path.exists(os.path.join(self.root, "consumequeue", "TopicTest")))
        self.assertEqual(self.put(make_message(b"new"))[0].queue_offset, 0)
        self.assertEqual(self.bodies("U"), [b"other"])

    def test_delete_expired_queues_keeps_queue_with_held_message(self):
        store = self.start()
        self.put(make_message(b"old"))
        end = store.max_physical_offset()
        store.holds_dispatch = True
        store.put_messages([make_message(b"new")])
        self.begin_log_at(end)
        self.assertEqual(store.delete_expired_queues(), [])
        store.release_dispatch(idle=False)
        self.settle()
        self.assertEqual(store.get_max_offset("TopicTest", 0), 2)

    def test_delete_expired_queues_keeps_system_queues(self):
        store = self.start()
        for topic in ("SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"):
            self.put(make_message(b"old", topic=topic))
        self.begin_log_at(store.max_physical_offset())
        self.assertEqual(store.delete_expired_queues(), [])


class UnstorableTests(StoreTestCase):
    def test_put_of_topic_without_possible_directory_is_refused(self):
        store = self.start()
        outside = os.path.join(self.root, "..", "escaped")
        for topic in ("a\0b", "/../../escaped", "..", "x" * 128):
            good, bad, last = self.put(make_message(b"1"), make_message(b"2", topic), make_message(b"3"))
            self.assertEqual([good.status, last.status], [PutStatus.PUT_OK] * 2)
            self.assertIs(bad.status, PutStatus.MESSAGE_ILLEGAL)
        self.assertEqual(store.get_max_offset("TopicTest", 0), 8)
        self.assertFalse(os.path.exists(outside))

    def test_put_after_deletion_is_dispatched_after_it(self):
        """Even where the dispatching thread has taken the deletion, and has not begun with it."""
        store = self.start()
        self.put(make_message(b"old"))
        store._reput.stop()
        store.delete_topic("TopicTest")
        deletion = store._reput._queue.get()
        store.holds_dispatch = True
        store.put_messages([make_message(b"new")])
        store.release_dispatch(idle=True)
        deletion()
        self.assertEqual(store.get_max_offset("TopicTest", 0), 0)
        store._reput._handle(store._reput._queue.get())
        self.assertEqual(self.bodies(), [b"new"])

    def test_max_message_size_is_changed_while_running(self):
        store = self.start()
        store.config.max_message_size = 3
        self.assertEqual(
            [result.status for result in self.put(make_message(b"123"), make_message(b"1234"))],
            [PutStatus.PUT_OK, PutStatus.MESSAGE_ILLEGAL],
        )

    def test_put_with_number_overflow_leaves_no_gap(self):
        store = self.start()
        results = self.put(make_message(b"1"), make_message(b"2", reconsume_times=2**31), make_message(b"3"))
        self.assertEqual([result.status is PutStatus.PUT_OK for result in results], [True, False, True])
        self.assertEqual(results[2].queue_offset, 1)
        self.assertEqual(self.bodies(), [b"1", b"3"])
        self.assertEqual(store.get_max_offset("TopicTest", 0), 2)

    def test_unstorable_topic_in_log_is_skipped(self):
        store = self.start()
        message = make_message(b"bad", "a/b")
        self.patch(append, "is_storable", lambda topic: True)
        self.put(make_message(b"1"), message, make_message(b"2"))
        self.assertEqual(self.bodies(), [b"1", b"2"])
        self.assertEqual(store.dispatch_behind_bytes(), 0)
        self.assertIsNone(store.queues.find("a/b", 0))


class ConcurrencyTests(StoreTestCase):
    def test_concurrent_readers_see_messages_once_in_order(self):
        self.start(mapped_file_size_commit_log=65536, mapped_file_size_consume_queue=2000)
        total = 4000
        troubles = []

        def read(queue_id):
            number, offset = queue_id, 0
            try:
                while number < total:
                    result = self.store.get_messages("TopicTest", queue_id, offset, 32, None)
                    for view in result.buffers:
                        for message in decode_messages(view):
                            if message.body != b"%d" % number:
                                raise AssertionError(f"{message.body} instead of {number}")
                            number += 2
                    offset = result.next_begin_offset
            except Exception as error:
                troubles.append(error)

        readers = [threading.Thread(target=read, args=(queue_id,)) for queue_id in (0, 1)]
        for reader in readers:
            reader.start()
        for begin in range(0, total, 50):
            self.store.put_messages([make_message(b"%d" % n, queue_id=n % 2) for n in range(begin, begin + 50)])
        for reader in readers:
            reader.join(60)
        self.assertEqual(troubles, [])
        self.assertFalse(any(reader.is_alive() for reader in readers))

    def test_puts_do_not_wait_for_dispatch(self):
        self.start()
        held, go_on = threading.Event(), threading.Event()

        def hold(arrivals):
            held.set()
            self.assertTrue(go_on.wait(WAIT))

        self.store.add_arrival_listener(hold)
        results = self.store.put_messages([make_message(b"first")])
        self.assertTrue(held.wait(WAIT))
        results += self.store.put_messages([make_message(b"second")])
        self.assertEqual([result.status for result in results], [PutStatus.PUT_OK] * 2)
        self.assertEqual(self.bodies(), [b"first"])
        go_on.set()
        self.settle()
        self.assertEqual(self.bodies(), [b"first", b"second"])

    def test_dispatch_leaves_the_disk_to_the_flushers(self):
        never = 1 << 30
        self.start(
            flush_interval_commit_log=never,
            flush_commit_log_thorough_interval=never,
            flush_interval_consume_queue=never,
            flush_consume_queue_thorough_interval=never,
        )
        self.put(make_message(b"first", key="k"))
        before = self.fs.calls["fdatasync"]
        self.put(*[make_message(b"more", key=f"k{number}") for number in range(30)])
        self.assertEqual(len(self.bodies()), 31)
        self.assertEqual(self.fs.calls["fdatasync"], before)


class DefaultSizeTests(StoreTestCase):
    def test_second_file_of_the_log_is_named_after_the_first_gibibyte(self):
        size = MessageStoreConfig().mapped_file_size_commit_log
        directory = os.path.join(self.root, "commitlog")
        os.makedirs(directory)
        with open(os.path.join(directory, "0" * 20), "wb") as file:
            file.write(struct.pack(">ii", size, BLANK_MAGIC))
            file.truncate(size)
        self.start(mapped_file_size_commit_log=size)
        (result,) = self.put(make_message(b"behind"))
        self.assertEqual(result.physical_offset, 1 << 30)
        self.assertIn("00000000001073741824", os.listdir(directory))
        self.assertEqual(self.bodies(), [b"behind"])

    def test_queue_file_holds_300_000_entries(self):
        size = MessageStoreConfig().mapped_file_size_consume_queue
        made = ConsumeQueue(self.fs, "T", 0, os.path.join(self.root, "T", "0"), size)
        made.load()
        made.put([DispatchRequest("T", 0, n * 100, 100, 7, 0, n, (), 0, 0, b"") for n in range(300_001)])
        names = sorted(os.listdir(made.files.directory))
        self.assertEqual(names, ["00000000000000000000", "00000000000006000000"])
        self.assertEqual([os.path.getsize(os.path.join(made.files.directory, name)) for name in names], [6_000_000] * 2)
        self.assertEqual(made.entry(299_999), (29_999_900, 100, 7))
        self.assertEqual(made.entry(300_000), (30_000_000, 100, 7))


class RefusalTests(StoreTestCase):
    def refused(self, *messages):
        results = self.store.put_messages(messages or [make_message()])
        self.assertIs(results[0].status, PutStatus.SERVICE_NOT_AVAILABLE)
        return results[0].cause

    def test_before_start_and_after_stop(self):
        self.store = MessageStore(small_config(self.root), STORE_HOST)
        self.assertIn("closed", self.refused())
        self.start()
        self.assertIs(self.put(make_message())[0].status, PutStatus.PUT_OK)
        self.store.stop()
        self.assertIn("closed", self.refused(make_message(), make_message()))

    def test_put_at_slave_is_refused(self):
        self.start(broker_role="SLAVE")
        self.assertIn("slave", self.refused())

    def test_full_disk_is_named_with_its_figures(self):
        self.fs.usage = DiskUsage(91, 9)
        self.start(disk_space_warning_level_ratio=0.9)
        cause = self.refused()
        self.assertIn("the disk is full", cause)
        self.assertIn("91.0% used, limit 90%", cause)
        self.fs.usage = DiskUsage(89, 11)
        self.store.disk_watch.check()
        self.assertIs(self.put(make_message())[0].status, PutStatus.PUT_OK)

    def test_puts_and_failures_are_counted(self):
        self.start(max_message_size=100)
        results = self.put(make_message(), make_message(body=b"x" * 101), make_message())
        self.store.put_messages([])
        self.assertEqual((self.store.messages_put, self.store.puts_failed), (2, 1))
        self.assertEqual(self.store.bytes_put, sum(result.size for result in results))
        self.store.stop()
        self.refused()
        self.assertEqual((self.store.messages_put, self.store.puts_failed), (2, 2))

    def test_put_of_no_messages_returns_no_results(self):
        self.start()
        self.assertEqual((self.store.put_messages([]), self.store.put_batch([])), ([], []))

    def test_hanging_append_is_reported_as_busy(self):
        self.start(os_page_cache_busy_time_out_mills=1)
        self.put(make_message())
        self.assertFalse(self.store.is_os_page_cache_busy())
        gate = self.fs.block("pwrite")
        self.store.commit_log.queue.last._pwrite = self.fs.pwrite
        writer = threading.Thread(target=self.store.put_messages, args=([make_message()],))
        writer.start()
        busy = threading.Event()
        for _ in range(1000):
            if self.store.is_os_page_cache_busy():
                busy.set()
                break
            busy.wait(0.005)
        gate.set()
        writer.join()
        self.assertTrue(busy.is_set())
        self.assertEqual(self.store.append_lock_ms(), 0)
        self.assertGreater(self.store.last_append_ms, 1)


class SyncFlushTests(StoreTestCase):
    def test_sync_flush_answer_comes_after_sync(self):
        self.start(flush_disk_type="SYNC_FLUSH")
        answers = queue.SimpleQueue()
        result = self.put(make_message(b"kept"))[0]
        self.store.when_flushed(result.physical_offset + result.size, answers.put)
        self.assertIs(answers.get(timeout=WAIT), PutStatus.PUT_OK)
        self.assertGreaterEqual(self.store.flushed_offset(), result.size)
        # The power goes off.
        self.fs.crash()
        self.store.stop()
        self.fs.lose_unsynced()
        self.fs = FaultyFileSystem()
        self.start()
        self.assertEqual(self.bodies(), [b"kept"])

    def test_messages_without_wait_are_flushed_soon(self):
        self.start(flush_disk_type="SYNC_FLUSH", flush_interval_commit_log=3_600_000)
        flushed = threading.Event()
        real = self.fs.fdatasync

        def fdatasync(fd):
            real(fd)
            flushed.set()

        self.fs.fdatasync = fdatasync
        self.put(make_message(wait=False))
        self.assertTrue(flushed.wait(WAIT))
