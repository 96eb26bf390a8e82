"""A store directory read without its broker: bounds, times, groups, ranges, filters, losses and damage."""

import gc
import hashlib
import json
import lzma
import os
import pickle
import shutil
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from rocketd.common.java_hash import java_string_hash
from rocketd.spark.columns import COLUMNS, arrow_schema
from rocketd.spark.errors import DataLossError, OptionError, StoreFilesError
from rocketd.spark.ranges import Queue, QueueRange, ReadPlan
from rocketd.spark.store import tree as store_tree
from rocketd.spark.store.tree import StoreTree
from rocketd.store.base.layout import CONSUME_QUEUE_ENTRY, FILLER_SIZE, SCHEDULE_TOPIC, queue_dir
from rocketd.store.format.message import SYS_FLAG_TRANSACTION_PREPARED
from tests.support.apache_stores import STORES, unpack_store
from tests.support.plain_rows import plain_row, rows_of
from tests.support.stores import (
    START_MS,
    STORE_V6,
    log_files,
    message,
    messages,
    read_store,
    record_bytes,
    write_group_offsets,
    write_store,
)

ALL = tuple(COLUMNS)


class StoreTestCase(SynchronousTestCase):
    def setUp(self):
        self.root = os.path.abspath(self.mktemp())

    def write(self, *arguments, **settings):
        write_store(self.root, *arguments, **settings)
        return StoreTree(self.root, "b")

    def queue(self, queue_id=0, topic="orders"):
        return Queue(topic, "b", queue_id)

    def whole(self, tree, queue):
        return QueueRange(queue, *tree.bounds(queue))

    def read(self, tree, part, columns=ALL, on_loss=None, **plan):
        batches = list(tree.read(part, ReadPlan(columns, **plan), on_loss))
        for batch in batches:
            self.assertEqual(batch.schema, arrow_schema(columns))
        return [row for batch in batches for row in rows_of(batch)]

    def offsets(self, tree, part, **plan):
        return [row["queue_offset"] for row in self.read(tree, part, ("queue_offset",), **plan)]

    def plain(self, queue):
        """Rows of a queue, made from the log alone."""
        return [
            plain_row(record_bytes(self.root, found.physical_offset, found.store_size))
            for found in read_store(self.root)
            if (found.topic, found.queue_id) == (queue.topic, queue.queue_id)
        ]

    def change_entry(self, queue, number, **changes):
        """Write over one entry of a queue."""
        (path,) = sorted(Path(queue_dir(self.root, queue.topic, queue.queue_id)).iterdir())[:1]
        with path.open("r+b") as file:
            file.seek(20 * number)
            old = dict(zip(("offset", "size", "code"), CONSUME_QUEUE_ENTRY.unpack(file.read(20)), strict=True))
            file.seek(20 * number)
            file.write(CONSUME_QUEUE_ENTRY.pack(*{**old, **changes}.values()))


class ReadTests(StoreTestCase):
    def test_all_of_all_queues(self):
        self.write(900, variants=True, log_file_size=300_000, queue_file_size=20 * 70)
        tree = self.write(messages(100, first=900), log_file_size=300_000, queue_file_size=20 * 70, store_host=STORE_V6)
        self.assertEqual(tree.topics(), ["orders"])
        self.assertEqual(tree.queues("orders"), [self.queue(number) for number in range(4)])
        self.assertEqual(tree.count("orders"), 1000)
        for queue in tree.queues("orders"):
            self.assertEqual(tree.bounds(queue), (0, 250))
            self.assertEqual(self.read(tree, self.whole(tree, queue), verify_crc=True), self.plain(queue))

    def test_parts_of_a_queue(self):
        tree = self.write(600, log_file_size=100_000, queue_file_size=20 * 40)
        plain = self.plain(self.queue(1))
        for start, end in ((0, 0), (0, 1), (149, 150), (39, 81), (7, 7), (20, 10)):
            self.assertEqual(self.read(tree, QueueRange(self.queue(1), start, end)), plain[start : max(start, end)])

    def test_batches_end_with_files_and_at_their_bytes(self):
        tree = self.write(600, queues=1, log_file_size=100_000)
        part = self.whole(tree, self.queue())
        sizes = {found.queue_offset: found.store_size for found in read_store(self.root)}
        whole = [batch.column(0).to_pylist() for batch in tree.read(part, ReadPlan(("queue_offset",)))]
        self.assertEqual(len(whole), len(log_files(self.root)))
        plan = ReadPlan(("queue_offset", "tags"), batch_bytes=10_000)
        parts = [batch.column(0).to_pylist() for batch in tree.read(part, plan)]
        self.assertGreater(len(parts), len(whole))
        for one in parts:
            self.assertLess(sum(sizes[offset] for offset in one), 10_000 + 1000)
        for found in (whole, parts):
            self.assertEqual([offset for batch in found for offset in batch], list(range(600)))

    def test_pickled_tree_reads_the_same(self):
        tree = self.write(40)
        part = self.whole(tree, self.queue())
        rows = self.read(tree, part)  # so that there are maps, which cannot be pickled
        again = pickle.loads(pickle.dumps(tree))
        self.assertEqual((again.root, again.broker, self.read(again, part)), (tree.root, "b", rows))

    def test_log_in_separate_directory_is_read(self):
        log = os.path.abspath(self.mktemp())
        write_store(self.root, 40, commit_log=log)
        error = self.assertRaises(StoreFilesError, StoreTree, self.root)
        self.assertIn("storePathCommitLog", str(error))
        tree = StoreTree(self.root, "b", commit_log=log)
        self.assertEqual(self.offsets(tree, self.whole(tree, self.queue())), list(range(10)))

    def test_a_log_in_several_directories(self):
        whole, second = os.path.abspath(self.mktemp()), os.path.abspath(self.mktemp())
        write_store(self.root, 600, commit_log=whole, log_file_size=10_000)
        expected = self.offsets(
            StoreTree(self.root, "b", whole), self.whole(StoreTree(self.root, "b", whole), self.queue())
        )
        os.mkdir(second)
        names = sorted(os.listdir(whole))
        for name in names[1::2]:
            os.rename(os.path.join(whole, name), os.path.join(second, name))
        # As a file that Apache's broker has made ahead and not used.
        with open(os.path.join(whole, names[1]), "wb") as file:
            file.truncate(10_000)
        tree = StoreTree(self.root, "b", f"{second}, {whole}")
        self.assertEqual(self.offsets(tree, self.whole(tree, self.queue())), expected)
        with open(os.path.join(second, names[0]), "wb") as file:
            file.write(b"x" * 10_000)
        error = self.assertRaises(StoreFilesError, tree.log)
        self.assertIn("the same part of the commit log", str(error))
        error = self.assertRaises(StoreFilesError, StoreTree, self.root, "b", f"{whole},{second}-gone")
        self.assertIn(f"no commit log in {second}-gone", str(error))

    def test_no_store(self):
        error = self.assertRaises(StoreFilesError, StoreTree, self.root)
        self.assertIn("executor", str(error))
        os.mkdir(self.root)
        error = self.assertRaises(StoreFilesError, StoreTree, self.root)
        self.assertIn("commit log", str(error))
        os.mkdir(os.path.join(self.root, "commitlog"))
        tree = StoreTree(self.root)
        self.assertEqual((tree.topics(), tree.queues("orders"), tree.queues("../commitlog")), ([], [], []))
        self.assertEqual((tree.bounds(self.queue()), tree.count("orders")), ((0, 0), 0))

    def test_read_is_unaffected_by_appends(self):
        tree = self.write(400, queues=1, log_file_size=50_000, queue_file_size=20 * 100)
        reading = tree.read(QueueRange(self.queue(), 0, 400), ReadPlan(("queue_offset",)))
        seen = next(reading).column(0).to_pylist()
        self.write(messages(400, queues=1, first=400), log_file_size=50_000, queue_file_size=20 * 100)
        for batch in reading:
            seen += batch.column(0).to_pylist()
        self.assertEqual(seen, list(range(400)))
        self.assertEqual(self.offsets(tree, self.whole(tree, self.queue())), list(range(800)))

    def test_half_messages_have_no_entries(self):
        half = message(b"half", sys_flag=SYS_FLAG_TRANSACTION_PREPARED)
        tree = self.write([message(b"1"), half, message(b"2")])
        rows = self.read(tree, self.whole(tree, self.queue()), ("body", "queue_offset"))
        self.assertEqual(rows, [{"body": b"1", "queue_offset": 0}, {"body": b"2", "queue_offset": 1}])


class CatalogTests(StoreTestCase):
    def test_offset_at_a_time(self):
        tree = self.write(300, queues=1, step_ms=10, group=7, log_file_size=20_000)
        stored = [found.store_timestamp for found in read_store(self.root)]
        for time in {at + change for at in (*stored, 0) for change in (-1, 0, 1)}:
            first = next((number for number, at in enumerate(stored) if at >= time), 300)
            self.assertEqual(tree.offset_at(self.queue(), time), first, time)
        self.assertEqual([tree.stored_at(self.queue(), at) for at in (0, 299, 300)], [stored[0], stored[299], None])
        log_files(self.root)[0].unlink()
        begin, _ = tree.bounds(self.queue())
        self.assertGreater(begin, 0)
        self.assertEqual(tree.offset_at(self.queue(), 0), begin)
        self.assertEqual(tree.offset_at(self.queue(3), 0), 0)

    def test_offsets_of_groups(self):
        tree = self.write(8)
        self.assertIsNone(tree.group_offset("g", self.queue()))
        write_group_offsets(self.root, {("orders", "g"): {0: 5, 1: 0}, ("orders", "other"): {0: 7}})
        found = [tree.group_offset("g", self.queue(number)) for number in range(3)]
        self.assertEqual(found, [5, 0, None])
        self.assertEqual((tree.known_groups("orders"), tree.known_groups("order")), (["g", "other"], []))
        path = Path(self.root, "config", "consumerOffset.json")
        path.rename(path.with_suffix(".json.bak"))
        self.assertEqual(tree.group_offset("g", self.queue()), 5)
        path.write_text(json.dumps({"offsetTable": {"orders@g": {"0": 6}}}))
        self.assertEqual(tree.group_offset("g", self.queue()), 6)
        path.write_text("{nonsense")
        self.assertEqual(tree.group_offset("g", self.queue()), 5)
        path.with_suffix(".json.bak").unlink()
        error = self.assertRaises(StoreFilesError, tree.group_offset, "g", self.queue())
        self.assertIn("consumerOffset.json", str(error))

    def test_commit_group_on_store_is_refused(self):
        tree = self.write(8)
        error = self.assertRaises(OptionError, tree.commit_group, "g", {self.queue(): 1})
        self.assertIn("commitGroup=g", str(error))

    def test_bytes_of_a_range(self):
        tree = self.write(1000, variants=True)
        part = QueueRange(self.queue(), 10, 200)
        exact = sum(row["store_size"] for row in self.plain(self.queue())[10:200])
        self.assertEqual(tree.bytes_of(part), exact)
        self.assertEqual(tree.bytes_of(QueueRange(self.queue(), 10, 10)), 0)
        for name, value in (("_EXACT_ENTRIES", 20), ("_SAMPLE_BLOCKS", 16), ("_SAMPLE_ENTRIES", 10)):
            self.patch(store_tree, name, value)
        self.assertLess(abs(tree.bytes_of(part) - exact), exact / 3)

    def test_tag_hashes_are_counted(self):
        tree = self.write(403)
        counts = {}
        for found in read_store(self.root):
            code = java_string_hash(found.properties_map().get("TAGS", ""))
            counts[code] = counts.get(code, 0) + 1
        self.assertEqual(tree.group_by_tag_hash("orders"), counts)
        self.assertEqual(tree.group_by_tag_hash("none"), {})


class FilterTests(StoreTestCase):
    def test_tags(self):
        tree = self.write(500, variants=True)
        plain = self.plain(self.queue(2))
        for tags in ({"TagA"}, {"Grüße", "TagB"}, {"none"}, set()):
            wanted = [row for row in plain if row["tags"] in tags]
            self.assertEqual(self.read(tree, self.whole(tree, self.queue(2)), tags=frozenset(tags)), wanted)

    def test_tags_of_one_hash(self):
        self.assertEqual(java_string_hash("Aa"), java_string_hash("BB"))
        tree = self.write([message(b"", tags=tag) for tag in ("Aa", "BB", "C", "Aa")])
        part = self.whole(tree, self.queue())
        self.assertEqual(self.offsets(tree, part, tags=frozenset({"BB"})), [1])
        self.assertEqual(self.offsets(tree, part, tags=frozenset({"Aa", "C"})), [0, 2, 3])
        # Not even an empty batch comes of records that are looked at and not wanted.
        self.assertEqual(list(tree.read(part, ReadPlan(("body",), tags=frozenset({"BB"}), sql92="TAGS = 'x'"))), [])

    def test_tags_of_delayed_messages_are_read_from_the_log(self):
        waiting = [message(b"", SCHEDULE_TOPIC, 2, tags=tag) for tag in ("A", "B", "A")]
        for number, one in enumerate(waiting):
            one.tags_code = START_MS + number
        tree = self.write(waiting)
        queue = self.queue(2, SCHEDULE_TOPIC)
        rows = self.read(tree, self.whole(tree, queue), ("queue_offset", "tag_hash"), tags=frozenset({"A"}))
        self.assertEqual(rows, [{"queue_offset": number, "tag_hash": 65} for number in (0, 2)])

    def test_tags_of_extended_queues(self):
        tree = self.write([message(b"", tags="AB"[n % 2]) for n in range(50)], enable_consume_queue_ext=True)
        part = self.whole(tree, self.queue())
        self.assertLess(tree.entries(part)["tag_hash"].max(), -(1 << 31))
        self.assertEqual(self.offsets(tree, part, tags=frozenset({"B"})), list(range(1, 50, 2)))

    def test_sql92(self):
        tree = self.write([message(b"", properties={"a": str(n), "b": "x" * (n % 2)}) for n in range(100)])
        part = self.whole(tree, self.queue())
        self.assertEqual(self.offsets(tree, part, sql92="a BETWEEN 10 AND 14 OR a = 90"), [10, 11, 12, 13, 14, 90])
        self.assertEqual(self.offsets(tree, part, sql92="a < 4 AND b IS NOT NULL"), [1, 3])
        self.assertEqual(self.offsets(tree, part, sql92="a > 1000"), [])
        error = self.assertRaises(OptionError, self.offsets, tree, part, sql92="a >")
        self.assertIn("sql92 'a >'", str(error))


class LossTests(StoreTestCase):
    def test_deleted_files_of_the_log(self):
        tree = self.write(600, queues=2, log_file_size=30_000)
        part = QueueRange(self.queue(), 0, 300)
        plain = self.plain(self.queue())
        for path in log_files(self.root)[:3]:
            path.unlink()
        begin, end = tree.bounds(self.queue())
        self.assertEqual((plain[begin:], end), (self.plain(self.queue()), 300))
        error = self.assertRaises(DataLossError, self.read, tree, part)
        self.assertIn(f"orders/b/0[0, {begin})", str(error))
        lost = []
        self.assertEqual(self.read(tree, part, on_loss=lost.append), plain[begin:])
        self.assertEqual(lost, [QueueRange(self.queue(), 0, begin)])

    def test_files_deleted_during_the_read_are_losses(self):
        tree = self.write(600, queues=1, log_file_size=30_000)
        lost = []
        reading = tree.read(QueueRange(self.queue(), 0, 600), ReadPlan(("queue_offset",)), lost.append)
        seen = next(reading).column(0).to_pylist()
        gone = [int(path.name) for path in log_files(self.root)[1:3]]
        offsets = {
            found.queue_offset: found.physical_offset - found.physical_offset % 30_000
            for found in read_store(self.root)
        }
        for path in log_files(self.root)[1:3]:
            path.unlink()
        for batch in reading:
            seen += batch.column(0).to_pylist()
        missing = [offset for offset, file in offsets.items() if file in gone]
        self.assertEqual(seen, [offset for offset in offsets if offset not in missing])
        self.assertEqual(sum(part.count for part in lost), len(missing))
        self.assertEqual((lost[0].start, lost[-1].end), (missing[0], missing[-1] + 1))

    def test_deleted_files_are_let_go(self):
        tree = self.write(600, queues=1, log_file_size=30_000)
        gc.collect()  # the store that wrote the files had mapped them, too
        part = QueueRange(self.queue(), 0, 600)
        self.read(tree, part)
        held = Path("/proc/self/maps").read_text().count(self.root)
        self.assertEqual(held, len(log_files(self.root)))
        for path in log_files(self.root)[:3]:
            path.unlink()
        tree.bounds(self.queue())
        self.assertEqual(Path("/proc/self/maps").read_text().count(self.root), held - 3)

    def test_a_hole_in_the_log(self):
        tree = self.write(600, queues=1, log_file_size=30_000)
        log_files(self.root)[2].unlink()
        lost = []
        rows = self.offsets(tree, QueueRange(self.queue(), 0, 600), on_loss=lost.append)
        self.assertEqual(len(lost), 1)
        self.assertEqual(rows, [*range(lost[0].start), *range(lost[0].end, 600)])
        self.assertRaises(DataLossError, self.offsets, tree, QueueRange(self.queue(), 0, 600))

    def test_deleted_files_of_the_queue(self):
        tree = self.write(300, queues=1, queue_file_size=20 * 50)
        directory = Path(queue_dir(self.root, "orders", 0))
        sorted(directory.iterdir())[0].unlink()
        self.assertEqual(tree.bounds(self.queue()), (50, 300))
        sorted(directory.iterdir())[1].unlink()
        lost = []
        seen = self.offsets(tree, QueueRange(self.queue(), 20, 300), on_loss=lost.append)
        self.assertEqual(seen, [*range(50, 100), *range(150, 300)])
        self.assertEqual([(part.start, part.end) for part in lost], [(20, 50), (100, 150)])

    def test_behind_the_end(self):
        tree = self.write(8)
        lost = []
        self.assertEqual(self.offsets(tree, QueueRange(self.queue(), 1, 9), on_loss=lost.append), [1])
        self.assertEqual(self.offsets(tree, QueueRange(self.queue(), 5, 9), on_loss=lost.append), [])
        self.assertEqual([(part.start, part.end) for part in lost], [(2, 9), (5, 9)])

    def test_filler_entries_are_lost_messages(self):
        tree = self.write(80, queues=1, queue_file_size=20 * 100)
        for number in (0, 1, 2, 40):
            self.change_entry(self.queue(), number, offset=0, size=FILLER_SIZE, code=0)
        self.assertEqual(tree.bounds(self.queue()), (3, 80))
        lost = []
        self.offsets(tree, QueueRange(self.queue(), 3, 80), on_loss=lost.append)
        self.assertEqual([(part.start, part.end) for part in lost], [(40, 41)])
        self.assertEqual(tree.offset_at(self.queue(), START_MS - 1), 3)

    def test_entries_behind_end_of_log_are_left_out(self):
        tree = self.write(80, queues=2, group=1)
        cut = [found.physical_offset for found in read_store(self.root)][70]
        with log_files(self.root)[0].open("r+b") as file:
            file.seek(cut)
            file.write(bytes((1 << 20) - cut))
        self.assertEqual([tree.bounds(self.queue(number)) for number in (0, 1)], [(0, 35), (0, 35)])
        self.assertEqual(tree.count("orders"), 70)
        self.assertEqual(tree.offset_at(self.queue(), START_MS * 2), 35)
        # The file that is there ahead of the log, and one of the queue.
        Path(self.root, "commitlog", f"{1 << 20:020d}").write_bytes(bytes(1 << 20))
        Path(queue_dir(self.root, "orders", 0), f"{20_000:020d}").write_bytes(bytes(20_000))
        self.assertEqual(tree.bounds(self.queue()), (0, 35))


class DamageTests(StoreTestCase):
    def test_entry_pointing_to_another_record_raises(self):
        tree = self.write(80, queues=2)
        other = next(found for found in read_store(self.root) if found.queue_id == 1)
        for changes in (
            {"offset": other.physical_offset, "size": other.store_size},
            {"size": 100},
        ):
            self.change_entry(self.queue(), 5, **changes)
            error = self.assertRaises(
                StoreFilesError, self.offsets, tree, QueueRange(self.queue(), 5, 6), on_loss=self.fail
            )
            self.assertIn("offset 5 of orders/b/0", str(error))

    def test_entry_pointing_into_a_record_raises(self):
        tree = self.write(80, queues=2)
        self.change_entry(self.queue(), 5, offset=1234)
        error = self.assertRaises(StoreFilesError, self.read, tree, QueueRange(self.queue(), 0, 40))
        self.assertIn("byte 1234 of", str(error))

    def test_a_damaged_body(self):
        tree = self.write(8, queues=1)
        found = list(read_store(self.root))[3]
        with log_files(self.root)[0].open("r+b") as file:
            file.seek(found.physical_offset + 90)
            file.write(b"\0\0\0\0")
        part = self.whole(tree, self.queue())
        self.assertEqual(len(self.read(tree, part)), 8)
        error = self.assertRaises(StoreFilesError, self.read, tree, part, verify_crc=True)
        self.assertIn("offset 3 of queue 0 of topic orders", str(error))

    def test_any_byte_of_a_queue(self):
        # Damage is an error, a loss that is told, or not seen; nothing else.
        tree = self.write(40, queues=1, queue_file_size=20 * 40)
        rows = self.read(tree, QueueRange(self.queue(), 0, 40))
        path = Path(queue_dir(self.root, "orders", 0), "0" * 20)
        good = path.read_bytes()
        for position in range(0, 800, 3):
            path.write_bytes(good[:position] + bytes((good[position] ^ 0x55,)) + good[position + 1 :])
            lost = []
            try:
                seen = self.read(tree, QueueRange(self.queue(), 0, 40), on_loss=lost.append)
            except StoreFilesError:
                continue
            missing = {offset for part in lost for offset in range(part.start, part.end)}
            self.assertEqual(seen, [row for row in rows if row["queue_offset"] not in missing])


class GoldenTests(StoreTestCase):
    """Stores that Apache's broker 4.9.7 wrote."""

    def unpack(self, name):
        directory = os.path.abspath(self.mktemp())
        unpack_store(name, directory)
        self.addCleanup(shutil.rmtree, directory)
        self.root = os.path.join(directory, name)
        return StoreTree(self.root, "b")

    def check(self, name):
        tree = self.unpack(name)
        rows = {}
        plain = {}
        for found in read_store(self.root):
            row = plain_row(record_bytes(self.root, found.physical_offset, found.store_size))
            plain.setdefault((found.topic, found.queue_id), []).append(row)
        for topic in tree.topics():
            for queue in tree.queues(topic):
                rows[topic, queue.queue_id] = self.read(tree, self.whole(tree, queue), verify_crc=True)
        self.assertEqual(set(rows), set(plain))
        for key in plain:
            self.assertEqual(rows[key], plain[key])
        with lzma.open(STORES / f"{name}.manifest.jsonl.xz", "rt") as lines:
            manifest = [one for one in map(json.loads, lines) if one["record"] == "message"]
        by_key = {row["uniq_key"]: row for found in rows.values() for row in found}
        for one in manifest:
            row = by_key[one["uniqKey"]]
            self.assertEqual((row["tags"], row["keys"]), (one["tags"], one["keys"]))
            self.assertEqual(hashlib.sha256(row["body"]).hexdigest(), one["bodySha256"])
        self.assertEqual(len(manifest), 1636)

    def test_stopped(self):
        self.check("store-clean")

    def test_killed(self):
        self.check("store-killed")

    def test_extended(self):
        tree = self.unpack("store-ext")
        for queue in tree.queues("LoadTopic"):
            part = self.whole(tree, queue)
            self.assertEqual(self.offsets(tree, part, tags=frozenset({"tagB"})), list(range(30, 60)))
            self.assertEqual(self.offsets(tree, part, tags=frozenset({"abc"})), list(range(30)))
