"""An archive's commits, files and leftovers; fillers for the holes of a restored log; ranges not yet archived."""

import os
import struct
import zlib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from twisted.trial.unittest import SynchronousTestCase

from rocketd.spark.archive.archive import Archive, clear_staging
from rocketd.spark.archive.filling import RangeTask, Totals, archive_ranges, fill
from rocketd.spark.archive.format.layout import data_name, date_of, escaped, staging_dir
from rocketd.spark.archive.format.manifest import Commit
from rocketd.spark.archive.format.settings import ROWS, Settings, check_archive_columns, message_columns
from rocketd.spark.archive.parquet import QueueFileWriter, raw_bytes, write_rows
from rocketd.spark.archive.planning import without
from rocketd.spark.archive.reader import (
    archive_files,
    by_queue,
    check_file,
    config_of,
    dataset,
    read_messages,
    uncommitted,
)
from rocketd.spark.archive.restore.fillers import LONGEST_FILLER, NoRoomError, end_of_file, fillers
from rocketd.spark.archive.selection import Selection
from rocketd.spark.columns import arrow_schema
from rocketd.spark.errors import ArchiveError, DataLossError, OptionError
from rocketd.spark.ranges import Queue, QueueRange
from rocketd.store.base.layout import BLANK_MAGIC
from rocketd.store.format.message import MessageInner
from rocketd.store.format.record import MIN_RECORD_SIZE, decode_message, encode_record

QUEUE = Queue("T", "broker-a", 2)
HOST = bytes((127, 0, 0, 1, 0, 0, 42, 159))
DAY_MS = 86_400_000
START_MS = 19_000 * DAY_MS
COLUMNS = message_columns(("tags", "keys"))
WRITER = "job-x"


def record(offset, queue=QUEUE, store_ms=None):
    """The record of an offset, as a broker has it; each is 1000 bytes behind the one before."""
    properties = f"TAGS\x01Tag{offset % 3}\x02KEYS\x01key-{offset}".encode()
    message = MessageInner(
        queue.topic, queue.queue_id, 0, 0, START_MS, HOST, 0, 0, b"body %d" % offset, properties, 0, ()
    )
    return encode_record(message, HOST, offset, 1000 * offset, START_MS + offset if store_ms is None else store_ms)


def batch(offsets, queue=QUEUE, times=None):
    """Return a record batch for offsets of a queue, as a source yields it."""
    offsets = list(offsets)
    times = [START_MS + offset for offset in offsets] if times is None else times
    raw = [record(offset, queue, time) for offset, time in zip(offsets, times, strict=True)]
    values = {
        "queue_offset": offsets,
        "commit_log_offset": [1000 * offset for offset in offsets],
        "store_size": [len(one) for one in raw],
        "store_time": [time * 1000 for time in times],
        "tags": [f"Tag{offset % 3}" for offset in offsets],
        "keys": [f"key-{offset}" for offset in offsets],
        "raw": raw,
    }
    names = [name for name in COLUMNS if name in values]
    return pa.RecordBatch.from_pydict({name: values[name] for name in names}, schema=arrow_schema(names))


class ArchiveCase(SynchronousTestCase):
    def setUp(self):
        self.root = os.path.abspath(self.mktemp())
        self.archive = Archive.open_or_create(self.root, Settings.of_messages(("tags", "keys")))

    def stage(self, *batches, queue=QUEUE, writer=WRITER, **given):
        staging = os.path.relpath(staging_dir(self.root, writer), self.root)
        files = QueueFileWriter(self.root, staging, arrow_schema(COLUMNS), queue, **given)
        for one in batches:
            files.add(one)
        return files.finish()

    def commit(self, offsets, archive=None, batch_id=None, writer=WRITER):
        staged = self.stage(batch(offsets), writer=writer)
        made = Commit(writer, 1, ranges=(QueueRange(QUEUE, offsets.start, offsets.stop),), batch=batch_id)
        return (archive or self.archive).commit(made, staged)

    def offsets(self):
        table = dataset(self.root).to_table(columns=["queue_offset"])
        return sorted(table.column("queue_offset").to_pylist())


class CommitTests(ArchiveCase):
    def test_only_committed_files_are_read(self):
        self.assertEqual(self.offsets(), [])
        self.assertTrue(self.commit(range(10)))
        self.stage(batch(range(10, 20)))
        self.assertEqual(self.offsets(), list(range(10)))
        self.assertTrue(self.commit(range(10, 15)))
        self.assertEqual(self.offsets(), list(range(15)))
        opened = Archive.open(self.root)
        self.assertEqual(opened.ranges(QUEUE), [QueueRange(QUEUE, 0, 15)])
        self.assertEqual(opened.files, self.archive.files)
        self.assertEqual(archive_files(self.root), [opened.path_of(file) for file in opened.files])
        self.assertEqual(archive_files(self.root, ["other"]), [])

    def test_next_commit_sweeps_files_of_a_killed_writer(self):
        self.commit(range(10))
        for one in self.stage(batch(range(10, 20))):
            # As a writer leaves it that is killed between moving and committing.
            os.rename(os.path.join(self.root, one.path), os.path.join(self.root, one.file.path))
        self.assertEqual(len(uncommitted(self.root)), 1)
        self.assertEqual(self.offsets(), list(range(10)))
        self.commit(range(10, 12), archive=Archive.open(self.root))
        self.assertEqual(uncommitted(self.root), [])
        self.assertEqual(self.offsets(), list(range(12)))

    def test_two_open_archives_see_each_others_commits(self):
        other = Archive.open(self.root)
        self.commit(range(5))
        self.commit(range(5, 9), archive=other)
        self.assertEqual(self.offsets(), list(range(9)))
        self.archive.refresh()
        self.assertEqual(self.archive.commits, other.commits)

    def test_a_range_is_archived_once(self):
        self.commit(range(10))
        error = self.assertRaises(ArchiveError, self.commit, range(9, 12))
        self.assertIn("T/broker-a/2[9, 12)", str(error))
        self.assertEqual(self.offsets(), list(range(10)))

    def test_a_batch_of_a_stream_is_committed_once(self):
        self.assertTrue(self.commit(range(5), batch_id=0, writer="stream-q"))
        again = Archive.open(self.root)
        self.assertFalse(self.commit(range(5), archive=again, batch_id=0, writer="stream-q"))
        self.assertTrue(self.commit(range(5, 6), archive=again, batch_id=1, writer="stream-q"))
        self.assertEqual(self.offsets(), list(range(6)))
        self.assertEqual(again.last_batch("stream-q"), 1)
        self.assertEqual(again.last_batch("stream-other"), -1)
        self.assertEqual(os.listdir(staging_dir(self.root, "stream-q")), [])

    def test_stream_restarted_under_its_old_name_is_refused(self):
        self.commit(range(5), batch_id=0, writer="stream-q")
        error = self.assertRaises(ArchiveError, self.commit, range(5, 9), batch_id=0, writer="stream-q")
        self.assertIn("T/broker-a/2[5, 9)", str(error))

    def test_gaps_and_ranges_are_read_back(self):
        gap = QueueRange(QUEUE, 3, 7)
        made = Commit(WRITER, 1, ranges=(QueueRange(QUEUE, 0, 10),), gaps=(gap,))
        self.archive.commit(made, self.stage(batch([0, 1, 2, 7, 8, 9])))
        opened = Archive.open(self.root)
        self.assertEqual(opened.gaps, [gap])
        self.assertEqual(opened.ranges(QUEUE), [QueueRange(QUEUE, 0, 10)])
        self.assertEqual((opened.files[0].first, opened.files[0].last, opened.files[0].rows), (0, 9, 6))

    def test_facts_of_a_broker_are_merged_over_commits(self):
        first = {"commitLogFileSize": 1, "topics": {"A": {"perm": 6}}, "consumerOffset": {"A@g": {"0": 3}}}
        later = {"commitLogFileSize": 2, "topics": {"B": {"perm": 4}}, "consumerOffset": {"A@g": {"0": 5}}}
        for said in (first, later):
            self.archive.commit(Commit(WRITER, 1, brokers={"broker-a": said}), [])
        self.assertEqual(config_of(Archive.open(self.root))["broker-a"], {
            "commitLogFileSize": 2,
            "topics": {"A": {"perm": 6}, "B": {"perm": 4}},
            "consumerOffset": {"A@g": {"0": 5}},
        })  # fmt: skip

    def test_clearing_staging_of_one_writer_keeps_others(self):
        self.stage(batch(range(3)), writer="job-a")
        self.stage(batch(range(3)), writer="job-b")
        clear_staging(self.root, "job-a")
        self.assertEqual(os.listdir(staging_dir(self.root)), ["job-b"])

    def test_staging_of_a_lost_writer_is_removed_after_a_week(self):
        for writer, age in (("batch-gone", 8 * 86400), ("stream-slow", 6 * 86400), ("stream-busy", 0)):
            (staged,) = self.stage(batch(range(3)), writer=writer)
            directory = staging_dir(self.root, writer)
            for path in (os.path.join(self.root, staged.path), directory):
                then = os.stat(path).st_mtime - age
                os.utime(path, (then, then))
        self.commit(range(3))
        self.assertEqual(sorted(os.listdir(staging_dir(self.root))), [WRITER, "stream-busy", "stream-slow"])

    def test_directory_without_matching_archive_is_refused(self):
        self.assertRaises(ArchiveError, Archive.open, os.path.join(self.root, "data"))
        other = Path(self.mktemp())
        other.mkdir()
        (other / "file").write_text("")
        self.assertRaises(ArchiveError, Archive.open_or_create, str(other), Settings.of_messages())
        error = self.assertRaises(ArchiveError, Archive.open_or_create, self.root, Settings.of_messages(("body",)))
        self.assertIn("tags string", str(error))
        rows = Settings.of_schema(pa.schema([("a", pa.int64())]), ROWS)
        self.assertIn("messages", str(self.assertRaises(ArchiveError, Archive.open_or_create, self.root, rows)))
        (Path(self.root) / "rocketd-archive.json").write_text('{"format": "rocketd-archive", "version": 2}')
        self.assertIn("later", str(self.assertRaises(ArchiveError, Archive.open, self.root)))
        (Path(self.root) / "rocketd-archive.json").write_text("{")
        self.assertIn("damaged", str(self.assertRaises(ArchiveError, Archive.open, self.root)))


class FileTests(ArchiveCase):
    def test_file_ends_with_the_day_or_at_the_size_limit(self):
        days = self.stage(batch(range(4), times=[START_MS, START_MS + 1, START_MS + DAY_MS, START_MS + DAY_MS]))
        self.assertEqual([(one.file.first, one.file.last) for one in days], [(0, 1), (2, 3)])
        self.assertIn("/date=2022-01-08/broker-a-2-0-1-", days[0].file.path)
        self.assertIn("/date=2022-01-09/broker-a-2-2-3-", days[1].file.path)
        small = self.stage(batch(range(4)), batch(range(4, 8)), max_file_bytes=1)
        self.assertEqual([(one.file.first, one.file.last) for one in small], [(0, 3), (4, 7)])

    def test_written_file_is_read_back(self):
        self.commit(range(20))
        (file,) = self.archive.files
        check_file(self.root, file)
        self.assertEqual((file.log_begin, file.log_end), (0, 19_000 + len(record(19))))
        self.assertEqual((file.min_time, file.max_time), (START_MS, START_MS + 19))
        columns = ("queue_offset", "topic", "queue_id", "body", "raw")
        rows = pa.Table.from_batches(read_messages(self.root, file, columns)).to_pylist()
        self.assertEqual([row["raw"] for row in rows], [record(offset) for offset in range(20)])
        self.assertEqual([row["body"] for row in rows], [b"body %d" % offset for offset in range(20)])
        self.assertEqual({(row["topic"], row["queue_id"]) for row in rows}, {("T", 2)})
        some = Selection(starts=((QUEUE, 4),), ends=((QUEUE, 9),), start_ms=START_MS + 5)
        (found,) = some.read(self.root, file, ("queue_offset",))
        self.assertEqual(found.column(0).to_pylist(), [5, 6, 7, 8])
        (found,) = read_messages(self.root, file, ("queue_offset",), {"commit_log_offset": (18_000, 1 << 60)})
        self.assertEqual(found.column(0).to_pylist(), [18, 19])
        schema = pq.read_schema(self.archive.path_of(file))
        self.assertEqual(schema.names, list(COLUMNS))
        self.assertEqual(schema.field("topic").type, pa.string())
        self.assertEqual(schema.field("store_time").type, pa.timestamp("us", tz="UTC"))

    def test_damage_is_found(self):
        self.commit(range(20))
        (file,) = self.archive.files
        path = Path(self.archive.path_of(file))
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
        self.assertIn(str(path), str(self.assertRaises(ArchiveError, check_file, self.root, file)))
        path.unlink()
        self.assertIn(str(path), str(self.assertRaises(ArchiveError, check_file, self.root, file)))
        self.assertIn(str(path), str(self.assertRaises(ArchiveError, list, read_messages(self.root, file, ("raw",)))))

    def test_offsets_must_ascend(self):
        self.assertRaises(DataLossError, self.stage, batch(range(5, 10)), batch(range(9, 12)))
        self.assertRaises(DataLossError, self.stage, batch([3, 3]))
        staged = self.stage(batch(range(5, 10)), batch(range(5)), ordered=False)
        self.assertEqual([(one.file.first, one.file.last) for one in staged], [(5, 9), (0, 4)])

    def test_duplicate_message_in_unordered_batches_is_refused(self):
        self.stage(batch([5, 6]), batch([1, 2]), ordered=False)
        self.assertRaises(DataLossError, self.stage, batch([5, 6]), batch([1, 1]), ordered=False)

    def test_limits_hold_in_any_order_of_columns(self):
        # A map has two columns in Parquet: those behind it have other numbers there.
        names = ("properties", *(name for name in COLUMNS if name not in ("tags", "keys")))
        root = os.path.abspath(self.mktemp())
        staging = os.path.relpath(staging_dir(root, WRITER), root)
        rows = batch(range(100, 110))
        values = {name: rows.column(name) for name in rows.schema.names}
        values["properties"] = pa.nulls(10, arrow_schema(("properties",)).field(0).type)
        given = [name for name in names if name in values]
        files = QueueFileWriter(root, staging, arrow_schema(names), QUEUE)
        files.add(pa.RecordBatch.from_arrays([values[name] for name in given], schema=arrow_schema(given)))
        (staged,) = files.finish()
        (Path(root) / staged.file.path).parent.mkdir(parents=True)
        os.rename(os.path.join(root, staged.path), os.path.join(root, staged.file.path))
        for name, low, scale in (("queue_offset", 103, 1), ("commit_log_offset", 103_000, 1000)):
            found = read_messages(root, staged.file, ("queue_offset",), {name: (low, low + 4 * scale)})
            self.assertEqual([offset for one in found for offset in one.column(0).to_pylist()], [103, 104, 105, 106])

    def test_a_column_of_another_type_is_made_from_the_record(self):
        staging = os.path.relpath(staging_dir(self.root, WRITER), self.root)
        names = [name for name in COLUMNS if name != "keys"]
        rows = batch(range(3))
        rows = rows.drop_columns(["tags", "keys"]).append_column("tags", pa.array([7, 8, 9]))
        schema = pa.schema(
            [pa.field("tags", pa.int64()) if name == "tags" else arrow_schema([name])[0] for name in names]
        )
        files = QueueFileWriter(self.root, staging, schema, QUEUE)
        files.add(rows)
        (staged,) = files.finish()
        self.archive.commit(Commit(WRITER, 1, ranges=(QueueRange(QUEUE, 0, 3),)), [staged])
        (found,) = read_messages(self.root, staged.file, ("tags",))
        self.assertEqual(found.column("tags").to_pylist(), ["Tag0", "Tag1", "Tag2"])

    def test_files_by_queue(self):
        other = Queue("S", "broker-a", 0)
        staged = [*self.stage(batch(range(5, 9))), *self.stage(batch(range(5)))]
        staged += self.stage(batch(range(3), queue=other), queue=other)
        found = by_queue(one.file for one in staged)
        self.assertEqual([(queue, [file.first for file in files]) for queue, files in found.items()],
                         [(other, [0]), (QUEUE, [0, 5])])  # fmt: skip

    def test_rows_of_no_queue(self):
        root = os.path.abspath(self.mktemp())
        rows = pa.RecordBatch.from_pydict({"a": [1, 2], "b": [{"x": 1}, None]})
        archive = Archive.open_or_create(root, Settings.of_schema(rows.schema))
        self.assertEqual(write_rows(root, "staging/w", rows.schema, [rows.slice(0, 0)]), [])
        staged = write_rows(root, "staging/w", rows.schema, [rows, rows])
        archive.commit(Commit("stream-w", 1, batch=0), staged)
        check_file(root, archive.files[0])
        self.assertEqual(dataset(root).to_table().to_pylist(), rows.to_pylist() * 2)

    def test_rows_without_a_file_have_no_types(self):
        root = self.mktemp()
        Archive.open_or_create(root, Settings.of_schema(pa.schema([("total", pa.int64())]), ROWS))
        self.assertIn("no rows yet", str(self.assertRaises(ArchiveError, dataset, root)))

    def test_raw_bytes_of_a_slice(self):
        values = pa.array([b"ab", b"", b"cde", b"f"])
        self.assertEqual(bytes(raw_bytes(values.slice(1, 2))), b"cde")
        self.assertEqual(bytes(raw_bytes(values.slice(1, 1))), b"")


class Numbers:
    """A source with the offsets up to 100 of any queue, but for those that are lost."""

    def __init__(self, lost=()):
        self.lost = set(lost)

    def read(self, part, columns, on_loss=None):
        there = [offset for offset in range(part.start, min(part.end, 100)) if offset not in self.lost]
        gone = sorted(self.lost & set(range(part.start, part.end)))
        if gone and on_loss is None:
            raise DataLossError(f"{part.queue} lacks {gone}")
        for offset in gone:
            on_loss(QueueRange(part.queue, offset, offset + 1))
        for begin in range(0, len(there), 7):
            yield batch(there[begin : begin + 7], part.queue).select(list(columns))


class FillTests(ArchiveCase):
    def task(self, *parts, source=None, **given):
        ranges = tuple(QueueRange(QUEUE, *part) for part in parts)
        return RangeTask(source or Numbers(), self.root, WRITER, COLUMNS, ranges, **given)

    def fill(self, tasks, order=None, gaps=()):
        def run(tasks):
            for number in range(len(tasks)) if order is None else order:
                yield archive_ranges(tasks[number])

        fill(self.archive, WRITER, list(gaps), tasks, run, {"broker-a": {"queues": {"T": 3}}})
        return Totals.of(self.archive, WRITER)

    def test_ranges_are_committed_in_order_however_their_tasks_end(self):
        tasks = [self.task((0, 20)), self.task((20, 30), (30, 40)), self.task((40, 60))]
        totals = self.fill(tasks, order=[2, 1, 0])
        self.assertEqual((totals.messages, totals.files), (60, 4))
        self.assertEqual([commit.ranges for commit in self.archive.commits], [(QueueRange(QUEUE, 0, 60),)])
        self.assertEqual(self.offsets(), list(range(60)))
        self.assertEqual(config_of(self.archive), {"broker-a": {"queues": {"T": 3}}})

    def test_archive_of_an_interrupted_job_has_no_holes(self):
        tasks = [self.task((0, 20)), self.task((20, 40)), self.task((40, 60))]
        self.fill(tasks, order=[2, 0])
        self.assertEqual(Archive.open(self.root).ranges(QUEUE), [QueueRange(QUEUE, 0, 20)])
        self.assertEqual(self.offsets(), list(range(20)))

    def test_a_loss_is_an_error_or_a_gap(self):
        source = Numbers(lost=[3, 4, 9])
        self.assertRaises(DataLossError, self.fill, [self.task((0, 20), source=source)])
        self.assertEqual(self.offsets(), [])
        totals = self.fill([self.task((0, 20), source=source, allow_loss=True, check=True)])
        self.assertEqual([(gap.start, gap.end) for gap in totals.gaps], [(3, 5), (9, 10)])
        self.assertEqual(self.offsets(), [offset for offset in range(20) if offset not in (3, 4, 9)])
        self.assertEqual(Archive.open(self.root).ranges(QUEUE), [QueueRange(QUEUE, 0, 20)])

    def test_source_with_fewer_messages_than_range_is_refused(self):
        error = self.assertRaises(DataLossError, self.fill, [self.task((90, 110))])
        self.assertIn("10 messages were read", str(error))
        self.assertEqual(self.offsets(), [])

    def test_messages_lost_before_reading_are_a_gap(self):
        gap = QueueRange(QUEUE, 0, 10)
        self.fill([self.task((10, 20))], gaps=[gap])
        self.assertEqual(Archive.open(self.root).gaps, [gap])
        self.assertEqual(Archive.open(self.root).ranges(QUEUE), [QueueRange(QUEUE, 0, 20)])


class NameTests(SynchronousTestCase):
    def test_names_are_escaped_as_hive_does(self):
        self.assertEqual(escaped("%RETRY%a|b"), "%25RETRY%25a%7Cb")
        self.assertEqual(escaped("a-b_c.d"), "a-b_c.d")
        self.assertEqual(escaped(".."), "%2E%2E")
        self.assertEqual(
            data_name("%DLQ%g", "2024-01-02", "b/1", 3, 10, 19, "ff"),
            "data/topic=%25DLQ%25g/date=2024-01-02/b%2F1-3-10-19-ff.parquet",
        )

    def test_days_of_any_clock(self):
        self.assertEqual(date_of(START_MS), "2022-01-08")
        self.assertEqual(date_of(0), "1970-01-01")
        self.assertEqual(date_of(10**15), "33658-09-27")

    def test_archive_with_other_columns_is_refused_by_the_job(self):
        Settings.of_messages().check_whole("/a")
        whole = Settings.of_messages()
        more = Settings(whole.kind, (*whole.columns, ("total", "int64")))
        other = Settings(whole.kind, tuple((name, "int64" if name == "tags" else kind) for name, kind in whole.columns))
        for one in (more, other, Settings.of_schema(pa.schema([("body", pa.binary())]), ROWS)):
            self.assertIn("/a", str(self.assertRaises(ArchiveError, one.check_whole, "/a")))

    def test_columns(self):
        self.assertIn("raw", check_archive_columns("body"))
        self.assertIn("properties", check_archive_columns("all"))
        self.assertRaises(OptionError, check_archive_columns, "nonsense")
        self.assertRaises(OptionError, check_archive_columns, " , ")


class PlanningTests(SynchronousTestCase):
    def test_archived_ranges_are_left_out(self):
        def left(start, end, *known):
            found = without(QueueRange(QUEUE, start, end), [QueueRange(QUEUE, *one) for one in known])
            return [(one.start, one.end) for one in found]

        self.assertEqual(left(0, 10), [(0, 10)])
        self.assertEqual(left(0, 10, (0, 4)), [(4, 10)])
        self.assertEqual(left(0, 10, (2, 4), (6, 20)), [(0, 2), (4, 6)])
        self.assertEqual(left(5, 10, (0, 20)), [])
        self.assertEqual(left(5, 10, (0, 5), (10, 12)), [(5, 10)])
        self.assertEqual(left(5, 5), [])


class FillerTests(SynchronousTestCase):
    def filled(self, begin, end):
        data = bytearray(end - begin)
        for offset, piece in fillers(begin, end, 1234):
            self.assertEqual(bytes(data[offset - begin : offset - begin + len(piece)]), bytes(len(piece)))
            data[offset - begin : offset - begin + len(piece)] = piece
        return data

    def walk(self, begin, data):
        position, sizes = 0, []
        while position < len(data):
            found = decode_message(data, position)
            self.assertEqual(found.physical_offset, begin + position)
            self.assertEqual(found.sys_flag & 0xC, 0xC)
            self.assertEqual(found.body_crc, zlib.crc32(found.body) & 0x7FFFFFFF)
            self.assertEqual(found.store_timestamp, 1234)
            sizes.append(found.store_size)
            position += found.store_size
        return sizes

    def test_holes_of_any_size_are_walked_over(self):
        for size in (*range(MIN_RECORD_SIZE, MIN_RECORD_SIZE + 40), 4096, LONGEST_FILLER):
            self.assertEqual(self.walk(7000, self.filled(7000, 7000 + size)), [size])
        for size in (LONGEST_FILLER + 1, LONGEST_FILLER + 50, 2 * LONGEST_FILLER + 200, 3 * LONGEST_FILLER):
            found = self.walk(7000, self.filled(7000, 7000 + size))
            self.assertEqual(sum(found), size)
            self.assertLessEqual(max(found), LONGEST_FILLER)

    def test_no_room(self):
        self.assertRaises(NoRoomError, list, fillers(0, MIN_RECORD_SIZE - 1, 0))
        self.assertRaises(NoRoomError, end_of_file, 93, 100)

    def test_end_of_a_file(self):
        offset, piece = end_of_file(92, 100)
        self.assertEqual((offset, struct.unpack(">ii", piece)), (92, (8, BLANK_MAGIC)))
