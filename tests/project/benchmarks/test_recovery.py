"""Stores made by the recovery benchmark: a broker's store opens them, goes on, and serves their messages."""

import os
from pathlib import Path

from twisted.trial import unittest

from benchmarks import big_store, recovery
from benchmarks.figures import LOST, START_CPU, START_WALL
from benchmarks.measurement import Measurement
from benchmarks.outcome import APACHE, ROCKETD, Results
from benchmarks.recovery import End, row_of
from rocketd.store.base.filesystem import RealFileSystem
from rocketd.store.format.record import decode_messages
from rocketd.store.message_store import MessageStore
from rocketd.store.state.last_stop import LastStop, read_last_stop
from rocketd.store.testing import STORE_HOST, make_message, small_config

LOG_FILE = 1 << 20
QUEUE_FILE = 2_000
ENTRIES, SLOTS = 3_000, 100


class BigStoreTests(unittest.SynchronousTestCase):
    def setUp(self) -> None:
        self.patch(big_store, "DEFAULT_COMMIT_LOG_FILE_SIZE", LOG_FILE)
        self.patch(big_store, "DEFAULT_CONSUME_QUEUE_FILE_SIZE", QUEUE_FILE)
        self.patch(big_store, "DEFAULT_ENTRIES", ENTRIES)
        self.patch(big_store, "DEFAULT_SLOTS", SLOTS)
        self.patch(big_store, "REAL_FILES", 3)
        self.root = Path(self.mktemp()).absolute()

    def opened(self, root: Path) -> MessageStore:
        config = small_config(
            str(root),
            mapped_file_size_commit_log=LOG_FILE,
            mapped_file_size_consume_queue=QUEUE_FILE,
            max_hash_slot_num=SLOTS,
            max_index_num=ENTRIES,
        )
        store = MessageStore(config, STORE_HOST)
        store.start()
        self.addCleanup(store.stop)
        return store

    def read(self, store: MessageStore, begin: int, end: int) -> None:
        for queue in range(big_store.QUEUES):
            offset = begin
            while offset < end:
                found = store.get_messages("Big", queue, offset, min(32, end - offset), None)
                messages = list(decode_messages(b"".join(found.buffers)))
                self.assertTrue(messages, (queue, offset))
                for message in messages:
                    self.assertEqual((message.queue_id, message.queue_offset), (queue, offset))
                    offset += 1

    def test_a_store_of_real_files_serves_everything(self) -> None:
        made = big_store.make_store(self.root, "Big", 3)
        self.assertEqual((made.files, made.real_files), (3, 3))
        self.assertGreater(made.messages * 1024, 2.5 * LOG_FILE)
        self.assertIs(read_last_stop(RealFileSystem(), str(self.root)), LastStop.CLEAN)
        store = self.opened(self.root)
        each = made.messages // big_store.QUEUES
        for queue in range(big_store.QUEUES):
            self.assertEqual(store.get_max_offset("Big", queue), each)
        self.read(store, 0, each)

    def test_sparse_store_serves_last_files_and_first_parts_of_others(self) -> None:
        made = big_store.make_store(self.root, "Big", 8)
        self.assertEqual((made.files, made.real_files), (8, 3))
        used = sum(file.stat().st_blocks * 512 for file in (self.root / "commitlog").iterdir())
        self.assertLess(used, 5 * LOG_FILE)
        store = self.opened(self.root)
        each = made.messages // big_store.QUEUES
        self.read(store, 5 * (each // 8), each)
        self.read(store, 3 * (each // 8), 3 * (each // 8) + 8)
        self.assertEqual(store.put_messages([make_message(topic="Big")])[0].queue_offset, each)

    def test_index_files_are_as_of_such_a_store(self) -> None:
        made = big_store.make_store(self.root, "Big", 5)
        store = self.opened(self.root)
        assert store.index is not None
        self.assertEqual(len(store.index.file_names), -(-made.messages // (ENTRIES - 1)))
        last = store.get_messages("Big", 7, made.messages // 8 - 1, 1, None)
        (message,) = decode_messages(b"".join(last.buffers))
        self.assertEqual(store.index.indexed_to, message.physical_offset)

    def test_shared_store_is_independent_of_its_origin(self) -> None:
        made = big_store.make_store(self.root, "Big", 4)
        other = Path(self.mktemp()).absolute()
        big_store.share_store(self.root, other)
        store = self.opened(other)
        store.put_messages([make_message(topic="Big", key=f"k{number}") for number in range(100)])
        store.stop()
        # The first is as it was: closed, and without the new messages.
        self.assertFalse(os.path.exists(self.root / "abort"))
        self.assertEqual(self.opened(self.root).get_max_offset("Big", 0), made.messages // 8)
        self.assertEqual(self.opened(other).get_max_offset("Big", 0), made.messages // 8 + 100)


class TableTests(unittest.SynchronousTestCase):
    def test_a_line_for_each_end_and_size(self) -> None:
        results = Results([row_of(end, size) for end in End for size in (1, 10)])
        for size, cpu in ((1, 0.5), (10, 0.75)):
            figures = {START_CPU.key: cpu, START_WALL.key: 1.0, LOST.key: 0.0}
            results.add(row_of(End.KILLED, size), ROCKETD, Measurement(figures))
            results.add(row_of(End.KILLED, size), APACHE, Measurement({**figures, START_CPU.key: 3.0}))
        lines = [
            [cell.strip() for cell in line.strip("|").split("|")]
            for line in recovery.table(results, (1, 10)).splitlines()
        ]
        self.assertEqual(len(lines), 2 + 2 * len(End))
        self.assertEqual(lines[4], ["kill -9", "1", "0.50", "1", "1.00", "3", "1", "6.00", "1.00"])
        self.assertEqual(lines[5], ["kill -9", "10", "0.75", "1", "1.50", "3", "1", "4.00", "1.00"])
        self.assertEqual(lines[2][2:], ["-"] * 7)
