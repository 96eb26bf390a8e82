"""Queues and index made from the log: the same bytes that the broker has made."""

import os
import shutil
from pathlib import Path

import numpy as np
from twisted.trial.unittest import TestCase

from rocketd.common.names import SCHEDULE_TOPIC
from rocketd.spark.errors import OptionError
from rocketd.spark.jobs.rebuild.job import WORK, Rebuilding, swap, unfinished_swap
from rocketd.spark.jobs.rebuild.parts import PLACED
from rocketd.spark.jobs.rebuild.queue import QueueWriter
from rocketd.spark.jobs.running.progress import JobProgressBar
from rocketd.spark.jobs.stopped_store.dispatched import DispatchRules, delays_of
from rocketd.spark.jobs.stopped_store.files import IndexSizes
from rocketd.spark.jobs.verify.job import Verification
from rocketd.store.base.filesystem import RealFileSystem
from rocketd.store.base.layout import FILLER_SIZE
from rocketd.store.offline.stopped_store import StoppedStore
from rocketd.store.upkeep.log_begin import NotedBegin, write_log_begin
from tests.support.file_hashes import files
from tests.support.stores import log_files, message, messages, write_store

SIZES = {
    "index": True,
    "queue_file_size": 20 * 100,
    "log_file_size": 1 << 17,
    "max_hash_slot_num": 100,
    "max_index_num": 400,
}
RULES = DispatchRules(delays_of("1s 5s 10s"))


class RebuildTests(TestCase):
    def setUp(self) -> None:
        self.root = self.mktemp()
        self.target = self.mktemp()

    def rebuild(self, **options):
        return self.rebuilding().finish(self.begun(**options))

    def rebuilding(self, target=None):
        made = Rebuilding(
            StoppedStore(self.root), RULES, os.path.abspath(target or self.target), JobProgressBar(quiet=True)
        )
        # As the broker's settings say, where no file is left to tell.
        made.choose_sizes(SIZES["queue_file_size"])
        made.shape = IndexSizes(SIZES["max_hash_slot_num"], SIZES["max_index_num"])
        return made

    def begun(self, target=None, each=map, **options):
        return self.rebuilding(target).run(lambda items, function: each(function, items), **options)

    def assert_as_the_broker_made(self) -> None:
        self.assertEqual(files(self.target, "consumequeue"), files(self.root, "consumequeue"))
        # Index files are named by the time at which they were made.
        self.assertEqual(list(files(self.target, "index").values()), list(files(self.root, "index").values()))

    def test_queues_and_index_are_those_of_the_broker(self) -> None:
        write_store(self.root, 1000, variants=True, **SIZES)
        write_store(self.root, messages(300, "other", 2, first=1000), start_ms=1_700_000_020_000, **SIZES)
        report = self.rebuild()
        self.assert_as_the_broker_made()
        self.assertEqual((report.problems, report.facts["records"], report.facts["entries"]), ([], 1300, 1300))
        self.assertEqual(sorted(os.listdir(self.target)), ["consumequeue", "index"])

    def test_half_and_rolled_back_messages_get_no_entry(self) -> None:
        half = [message(topic="RMQ_SYS_TRANS_HALF_TOPIC", sys_flag=4, keys=f"K{number}") for number in range(5)]
        write_store(self.root, [*half, message(sys_flag=12, keys="gone"), message(sys_flag=8, keys="kept")], **SIZES)
        report = self.rebuild()
        self.assert_as_the_broker_made()
        self.assertEqual((report.facts["records"], report.facts["entries"], report.facts["index_entries"]), (7, 1, 6))

    def test_delayed_messages_have_their_time_of_delivery(self) -> None:
        some = [message(topic=SCHEDULE_TOPIC, queue_id=1, properties={"DELAY": "2"}) for _ in range(3)]
        for one in some:
            one.tags_code = 1_700_000_000_000 + 5_000
        write_store(self.root, some, **SIZES)
        self.rebuild()
        self.assert_as_the_broker_made()

    def test_light_queues_are_made_too(self) -> None:
        light = [message(queue_id=3, properties={"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b"}) for _ in range(4)]
        some = [*light, message(), *light]
        write_store(self.root, some, **SIZES, enable_lmq=True, enable_multi_dispatch=True, group=1)
        self.assertEqual(sorted(os.listdir(os.path.join(self.root, "consumequeue"))), ["%LMQ%a", "%LMQ%b", "orders"])
        self.rebuild()
        self.assert_as_the_broker_made()

    def test_expired_entries_stay(self) -> None:
        write_store(self.root, 2000, **SIZES)
        write_store(self.root, [message(topic="old")], **SIZES)
        write_store(self.root, messages(1000, first=2000), start_ms=1_700_000_020_000, **SIZES)
        log = log_files(self.root)
        gone = [path for path in log if int(path.name) < 1_000_000]
        for path in gone:
            path.unlink()
        before = files(self.root, "consumequeue")
        report = self.rebuild(index=False)
        self.assertEqual(files(self.target, "consumequeue"), before)
        self.assertGreater(report.facts["expired_entries"], 100)

    def test_queue_with_only_expired_messages_keeps_its_offset(self) -> None:
        write_store(self.root, [message(topic="old") for _ in range(7)], **SIZES)
        write_store(self.root, 2000, start_ms=1_700_000_020_000, **SIZES)
        log_files(self.root)[0].unlink()
        self.rebuild()
        self.assertEqual(files(self.target, "consumequeue/old"), files(self.root, "consumequeue/old"))

    def test_queue_with_late_begin_is_filled_up(self) -> None:
        write_store(self.root, 2000, **SIZES)
        first, second, *_ = log_files(self.root)
        write_log_begin(RealFileSystem(), self.root, NotedBegin(int(second.name), ()))  # as before a file is deleted
        first.unlink()
        shutil.rmtree(os.path.join(self.root, "consumequeue"))
        report = self.rebuild()
        # As the broker itself makes them from such a log.
        write_store(self.root, [], **SIZES)
        self.assertEqual(files(self.target, "consumequeue"), files(self.root, "consumequeue"))
        self.assertEqual(report.problems, [])

    def test_a_deleted_topic_does_not_come_back(self) -> None:
        write_store(self.root, 20, **SIZES)
        write_store(self.root, [message(topic="gone")], **SIZES)
        shutil.rmtree(os.path.join(self.root, "consumequeue", "gone"))
        Path(self.root, "config").mkdir(exist_ok=True)
        Path(self.root, "config", "topics.json").write_text('{"topicConfigTable": {"orders": {}}}')
        report = self.rebuild()
        self.assert_as_the_broker_made()
        self.assertEqual(report.facts["deleted_topics"], [{"topic": "gone", "records": 1}])
        shutil.rmtree(self.target)
        self.rebuild(deleted_topics=True)
        self.assertIn("gone", os.listdir(os.path.join(self.target, "consumequeue")))

    def test_damage_is_passed_over_and_reported(self) -> None:
        written = write_store(self.root, 200, **SIZES)
        offset = written.results[100].physical_offset
        with open(log_files(self.root)[0], "r+b") as file:
            file.seek(offset)
            file.write(bytes(40))
        report = self.rebuild()
        self.assertEqual(report.facts["records"], 199)
        self.assertTrue(any("are not a record" in problem for problem in report.problems), report.problems)
        self.assertTrue(any("lacks 1 messages" in problem for problem in report.problems), report.problems)

    def test_interrupted_rebuild_is_continued(self) -> None:
        write_store(self.root, 1500, **SIZES)
        done: list[str] = []

        def some(count):
            def each(function, items):
                for item in items:
                    if len(done) >= count:
                        raise KeyboardInterrupt
                    done.append(function.func.__name__)
                    yield function(item)

            return each

        self.assertRaises(KeyboardInterrupt, self.begun, each=some(2))
        self.assertRaises(KeyboardInterrupt, self.begun, each=some(12))
        parts = {path.name: path.stat().st_mtime_ns for path in Path(self.target, "parts").iterdir()}
        self.assertTrue(parts)
        self.begun()
        again = {path.name: path.stat().st_mtime_ns for path in Path(self.target, "parts").iterdir()}
        self.assertEqual({name: again[name] for name in parts}, parts)
        self.assert_as_the_broker_made()

    def test_rebuild_with_other_arguments_is_refused(self) -> None:
        write_store(self.root, 100, **SIZES)
        self.begun()
        error = self.assertRaises(OptionError, self.begun, index=False)
        self.assertIn("was begun with other arguments", str(error))

    def test_directory_with_files_is_refused(self) -> None:
        write_store(self.root, 100, **SIZES)
        os.makedirs(os.path.join(self.target, "something"))
        self.assertIn("is not empty", str(self.assertRaises(OptionError, self.begun)))

    def test_rebuild_in_place_is_read_by_the_broker(self) -> None:
        write_store(self.root, 500, **SIZES)
        before = files(self.root, "consumequeue")
        shutil.rmtree(os.path.join(self.root, "consumequeue", "orders", "1"))
        target = os.path.join(self.root, WORK)
        report = self.rebuilding(target).swap_in(self.begun(target))
        self.assertEqual(files(self.root, "consumequeue"), before)
        self.assertFalse(os.path.exists(target))
        self.assertTrue(os.path.isdir(os.path.join(report.facts["aside"], "consumequeue", "orders", "2")))
        # Started, written and stopped by the store itself.
        written = write_store(self.root, messages(8, first=500), start_ms=1_700_000_020_000, **SIZES)
        self.assertEqual({result.queue_offset for result in written.results}, {125, 126})
        done = Verification(StoppedStore(self.root), RULES, JobProgressBar(quiet=True))
        self.assertEqual(done.run(lambda items, function: map(function, items)).problems, [])

    def test_a_swap_may_be_interrupted_anywhere(self) -> None:
        write_store(self.root, 100, **SIZES)
        before = files(self.root, "consumequeue")
        target = os.path.join(self.root, WORK)
        for count in range(6):
            moves = []
            report = self.begun(target)
            real = os.rename

            def rename(source, destination, moves=moves, count=count, real=real) -> None:
                if len(moves) == count and "durable" not in source and "swap.json" not in destination:
                    raise KeyboardInterrupt
                if "swap.json" not in destination:
                    moves.append(source)
                real(source, destination)

            self.patch(os, "rename", rename)
            try:
                self.rebuilding(target).swap_in(report)
            except KeyboardInterrupt:
                os.rename = real
                aside = unfinished_swap(self.root)
                assert aside is not None
                swap(self.root, target, aside)
            os.rename = real
            self.assertEqual(files(self.root, "consumequeue"), before)
            self.assertIsNone(unfinished_swap(self.root))


class QueueWriterTests(TestCase):
    def setUp(self) -> None:
        self.directory = os.path.join(self.mktemp(), "0")
        self.writer = QueueWriter(self.directory, 20 * 10)

    def put(self, *offsets) -> None:
        placed = np.zeros(len(offsets), PLACED)
        placed["queue_offset"] = offsets
        placed["entry"]["offset"] = [1000 + offset for offset in offsets]
        placed["entry"]["size"] = 100
        self.writer.put(placed)

    def entries(self):
        self.writer.finish()
        found = []
        for name in sorted(os.listdir(self.directory)):
            data = Path(self.directory, name).read_bytes()
            self.assertEqual(len(data), 200)
            found += [
                int.from_bytes(data[at : at + 8], "big")
                if data[at + 8 : at + 12] != FILLER_SIZE.to_bytes(4, "big")
                else -1
                for at in range(0, 200, 20)
            ]
        return found

    def test_entries_go_into_files_of_one_size(self) -> None:
        self.put(*range(7))
        self.put(*range(7, 12))
        self.assertEqual(self.entries(), [*range(1000, 1012), *[0] * 8])

    def test_missing_entries_are_filled_up(self) -> None:
        self.put(12, 13, 15)
        self.assertEqual(self.entries(), [-1, -1, 1012, 1013, -1, 1015, 0, 0, 0, 0])
        self.assertEqual((self.writer.filled, self.writer.begin, self.writer.next), (1, 12, 16))
        self.assertEqual(os.listdir(self.directory), ["00000000000000000200"])

    def test_repeated_offsets_are_skipped(self) -> None:
        self.put(0, 1, 2, 1, 2, 3)
        self.assertEqual(self.entries(), [1000, 1001, 1002, 1003, 0, 0, 0, 0, 0, 0])
        self.assertEqual(self.writer.doubled, 2)

    def test_topic_created_again_restarts_its_queue(self) -> None:
        self.put(*range(15), 0, 1)
        self.assertEqual(self.entries(), [1000, 1001, *[0] * 8])
        self.assertEqual(self.writer.restarted, 15)

    def test_unlikely_offset_is_skipped(self) -> None:
        self.put(0, 1, 5_000_000, 2)
        self.put(3, 7_000_000)
        self.put(4)
        self.put(9_000_000)
        self.assertEqual(self.entries(), [1000, 1001, 1002, 1003, 1004, 0, 0, 0, 0, 0])
        self.assertEqual(self.writer.unlikely, 3)
