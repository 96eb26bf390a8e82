"""Examining and repairing stopped stores: sound ones have nothing wrong, damage is named, a repair loses nothing."""

import os
import random
import shutil
import struct
from pathlib import Path

from rocketd.store.base.filesystem import RealFileSystem
from rocketd.store.base.findings import Disorder, Remedy, Severity, shortened
from rocketd.store.base.table_journal import TableJournal
from rocketd.store.format.record import decode_message
from rocketd.store.message_store import MessageStore
from rocketd.store.offline.examine import Examination, configured_topics
from rocketd.store.offline.repair import Repair
from rocketd.store.offline.repair_log import DAMAGED_TAG
from rocketd.store.offline.stopped_store import StoppedStore
from rocketd.store.offline.summary import summarize
from rocketd.store.state.last_stop import mark_open
from rocketd.store.testing import STORE_HOST, make_message, small_config
from rocketd.store.upkeep.log_begin import NotedBegin, write_log_begin
from tests.support.apache_stores import unpack_store
from tests.support.store_examining import (
    LEVELS,
    MESSAGES,
    SIZES,
    Clock,
    QuickFileSystem,
    StoreTestCase,
    message,
)


def queue_reader(root, queue):
    return next(q for q in StoppedStore(root).queues() if (q.topic, q.queue_id) == (queue.topic, queue.queue_id))


class SoundStoreTests(StoreTestCase):
    def test_sound_store_has_no_findings(self):
        root = self.make()
        self.assertEqual(self.findings(root), [])
        examination = Examination(StoppedStore(root))
        self.assertEqual(list(examination.findings()), [])
        self.assertEqual(examination.records, MESSAGES)
        self.assertEqual(len(os.listdir(os.path.join(root, "commitlog"))), 3)

    def test_apaches_stores(self):
        for name in ("store-clean", "store-killed"):
            directory = os.path.abspath(self.mktemp())
            unpack_store(name, directory)
            root = os.path.join(directory, name)
            before = {path: path.read_bytes() for path in Path(root).rglob("*") if path.is_file()}
            examination = Examination(StoppedStore(root), LEVELS.deliver_ms)
            self.assertEqual(list(examination.findings()), [], name)
            self.assertEqual((examination.records, examination.log_end), (1641, 601708))
            self.assertEqual(examination.index_shape, (2000, 4000))
            self.assertEqual({path: path.read_bytes() for path in before}, before)

    def test_empty_stores(self):
        empty = os.path.abspath(self.mktemp())
        os.makedirs(os.path.join(empty, "commitlog"))
        self.assertEqual(self.findings(empty), [])
        self.assertEqual(summarize(StoppedStore(empty)).max_offset, 0)
        unused = self.make(messages=[])
        self.assertEqual(self.findings(unused), [])

    def test_progress_reaches_its_end(self):
        seen = []
        root = self.make()
        list(Examination(StoppedStore(root), progress=lambda done, total: seen.append((done, total))).findings())
        self.assertEqual(seen[-1], (3 * 4096, 3 * 4096))
        self.assertEqual(seen, sorted(seen))

    def test_batch_records_indexed_by_some_keys_are_sound(self):
        """As Apache's broker indexes them, by the batch's id only, or by their own ids only."""
        both = b"UNIQ_KEY\x01u%d\x02KEYS\x01k\x02UNIQ_KEY\x01batch\x02WAIT\x01true"
        for keys in (("u%d", "k"), ("batch", "k")):
            messages = [
                make_message(b"x", properties=both % n, index_keys=tuple(key.replace("%d", str(n)) for key in keys))
                for n in range(20)
            ]
            root = self.make(messages)
            (finding,) = self.findings(root)
            self.assertIs(finding.severity, Severity.NOTE)
            self.assertIn("20 records of batches are found by", finding.text)
            self.repair(root, build_index=True)
            self.assertEqual(self.findings(root), [])
        root = self.make([make_message(b"x", properties=both % n, index_keys=("k", "other")) for n in range(20)])
        self.assertTrue(self.damage(root))

    def test_other_delay_levels(self):
        late = message(0, topic="SCHEDULE_TOPIC_XXXX", properties=b"DELAY\x013", index_keys=(), tags_code=0)
        root = self.make([late])
        (entry,) = self.findings(root)
        self.assertEqual((entry.problem, entry.remedy), (Disorder.QUEUE_TAGS, Remedy.REPAIR))
        self.repair(root)
        self.assertEqual(self.findings(root), [])


class NormalThingsTests(StoreTestCase):
    """Unusual but sound stores."""

    def problems(self, root):
        found = self.findings(root)
        self.assertEqual([finding for finding in found if finding.severity is Severity.DAMAGE], [])
        return {(finding.problem, finding.remedy) for finding in found}

    def test_torn_tail_after_a_crash(self):
        root = self.make()
        offset, size = self.records(root)[-1]
        self.unclean(root)
        self.patch_file(os.path.join(root, "checkpoint"), 0, bytes(24))
        for keep in (7, 50, 95, size - 3):
            work = self.copy(root)
            self.patch_file(self.log_path(work, 2), offset % 4096 + keep, bytes(size - keep))
            self.assertEqual(
                self.problems(work) - {(Disorder.INDEX_ENTRY, Remedy.START), (Disorder.INDEX_HEADER, Remedy.START)},
                {(Disorder.TAIL, Remedy.START), (Disorder.QUEUE_AHEAD, Remedy.START)},
                keep,
            )

    def test_last_record_torn_within_topic_is_normal(self):
        root = self.make([make_message(b"body"), make_message(b"body")])
        offset, size = self.records(root)[-1]
        self.patch_file(self.log_path(root), offset + size - 8, bytes(8))
        self.patch_file(os.path.join(root, "checkpoint"), 0, bytes(4096))
        self.unclean(root)
        self.assertEqual(self.problems(root), {(Disorder.TAIL, Remedy.START), (Disorder.QUEUE_AHEAD, Remedy.START)})

    def test_records_not_dispatched_yet(self):
        root = self.make()
        self.unclean(root)
        for path in (self.queue_path(root, "T0", 0), self.queue_path(root, "T1", 1)):
            self.patch_file(path, 180, bytes(20))
        shutil.rmtree(os.path.join(root, "index"))
        self.patch_file(os.path.join(root, "checkpoint"), 0, bytes(24))
        self.assertEqual(
            self.problems(root), {(Disorder.QUEUE_LACKS, Remedy.START), (Disorder.INDEX_LACKS, Remedy.START)}
        )

    def test_kill_between_index_entries_and_count_is_normal(self):
        root = os.path.abspath(self.mktemp())
        store = MessageStore(small_config(root), STORE_HOST, fs=QuickFileSystem(), clock=Clock())
        store.start()
        store.put_messages([message(number) for number in range(5)])
        store.stop()
        header = Path(self.index_path(root)).read_bytes()[:40]
        store = MessageStore(small_config(root), STORE_HOST, fs=QuickFileSystem(), clock=Clock(1_700_000_100.0))
        store.start()
        store.put_messages([message(number) for number in range(5, 8)])
        store.stop()
        self.patch_file(self.index_path(root), 0, header)
        self.patch_file(os.path.join(root, "checkpoint"), 0, bytes(4096))
        self.assertNotEqual(self.damage(root), [])
        self.unclean(root)
        mark_open(RealFileSystem(), root)
        self.assertEqual(self.problems(root), {(Disorder.INDEX_LACKS, Remedy.START)})
        store = MessageStore(small_config(root), STORE_HOST, fs=QuickFileSystem(), clock=Clock(1_700_000_200.0))
        store.start()
        store.stop()
        self.assertEqual(self.problems(root), set())

    def test_expired_files(self):
        root = self.make()
        os.unlink(self.log_path(root))
        self.assertEqual(self.problems(root), set())

    def test_deleted_topic_is_normal(self):
        root = self.make()
        shutil.rmtree(os.path.join(root, "consumequeue", "T1"))
        os.mkdir(os.path.join(root, "config"))
        Path(root, "config", "topics.json").write_text('{"topicConfigTable":{"T0":{}}}')
        # The next start dispatches records behind the last entry of all queues anyway.
        self.assertEqual(
            self.problems(root), {(Disorder.QUEUE_MISSING, Remedy.NONE), (Disorder.QUEUE_LACKS, Remedy.START)}
        )

    def test_topic_of_the_journal_is_not_deleted(self):
        root = self.make()
        os.mkdir(os.path.join(root, "config"))
        path = Path(root, "config", "topics.json")
        path.write_text('{"topicConfigTable":{"T0":{"readQueueNums":2}}}')
        journal = TableJournal(RealFileSystem(), str(path))
        journal.begin(path.read_bytes())
        journal.append(b'{"topicConfigTable":{"T1":{"readQueueNums":3,"writeQueueNums":1}}}')
        self.assertEqual(configured_topics(root), {"T0": 2, "T1": 3})

    def test_deleted_and_recreated_topic_is_normal(self):
        root = os.path.abspath(self.mktemp())
        store = MessageStore(small_config(root), STORE_HOST, fs=QuickFileSystem(), clock=Clock())
        store.start()
        store.put_messages([message(number, topic="T", queue_id=0) for number in range(5)])
        store.delete_topic("T")
        store.put_messages([message(number, topic="T", queue_id=0) for number in range(5, 8)])
        store.stop()
        self.assertEqual(self.problems(root), {(Disorder.QUEUE_MISSING, Remedy.NONE)})
        # Apache's broker does not record deletions.
        os.unlink(os.path.join(root, "rocketd-deletions"))
        self.assertEqual(self.problems(root), {(Disorder.QUEUE_LACKS, Remedy.NONE)})
        before = self.bodies(root)
        self.flip(self.queue_path(root, "T"), 1)
        self.repair(root)
        self.assertEqual(self.bodies(root), before)

    def test_prepared_and_rolled_back_messages_have_no_entries(self):
        root = self.make([message(0, sys_flag=4), message(2, sys_flag=12), message(4, sys_flag=8), message(6)])
        self.assertEqual(self.problems(root), set())

    def test_missing_index_is_built_on_request(self):
        root = self.make()
        shutil.rmtree(os.path.join(root, "index"))
        self.assertEqual(self.problems(root), {(Disorder.INDEX_MISSING, Remedy.NONE)})
        self.repair(root, build_index=True, sizes=SIZES)
        self.assertEqual(self.problems(root), set())

    def test_clock_set_back_is_normal(self):
        root = self.make([make_message(b"%d" % number) for number in range(8)])
        for offset, _ in self.records(root)[4:]:
            (time,) = struct.unpack_from(">q", Path(self.log_path(root)).read_bytes(), offset + 56)
            self.patch_file(self.log_path(root), offset + 56, struct.pack(">q", time - 3_600_000))
        self.patch_file(os.path.join(root, "checkpoint"), 0, bytes(24))
        self.assertEqual(self.problems(root), {(Disorder.STORE_TIME, Remedy.NONE)})

    def test_zero_bytes_in_body_are_normal(self):
        root = self.make([make_message(bytes(3000)), make_message(b"\0" * 9)])
        self.assertEqual(self.problems(root), set())
        self.assertEqual(summarize(StoppedStore(root)).max_offset, sum(self.records(root)[-1]))


class DamageTests(StoreTestCase):
    """Each kind of damage is named with its place, repaired, and nothing else is lost."""

    def setUp(self):
        self.root = self.make()
        self.before = self.bodies(self.root)

    def check_repaired(self, root, lost=0, **options):
        """Nothing is wrong any more, and all messages but some are read as before, also by a broker's store."""
        self.repair(root, **options)
        self.assertEqual([finding.line(root) for finding in self.damage(root)], [])
        for _ in range(2):
            bodies = self.bodies(root)
            self.assertEqual(set(bodies) ^ set(self.before), set())
            self.assertEqual(sum(bodies[key] != body for key, body in self.before.items()), lost)
            store = MessageStore(small_config(root), STORE_HOST, fs=QuickFileSystem(), clock=Clock(1_700_000_200.0))
            store.start()
            store.stop()

    def test_flipped_bit_in_a_body(self):
        offset, size = self.records(self.root)[20]
        path = self.log_path(self.root, offset // 4096)
        self.flip(path, offset % 4096 + 90)
        (finding,) = self.damage(self.root)
        self.assertEqual((finding.problem, finding.remedy), (Disorder.BODY_CRC, Remedy.REPLACE))
        self.assertEqual((finding.path, finding.position), (path, offset % 4096))
        self.assertEqual((finding.physical_offset, finding.size), (offset, size))
        self.assertIn("CRC", finding.text)
        # Without the flag it stays: nothing behind it is touched, and the queue still leads to it.
        data = Path(path).read_bytes()
        self.assertEqual(self.repair(self.root), [])
        self.assertEqual(Path(path).read_bytes(), data)
        self.check_repaired(self.root, lost=1, replace_damaged=True)
        kept = Path(self.root, "aside", "commitlog", f"{os.path.basename(path)}.{offset % 4096}").read_bytes()
        self.assertEqual(kept, data[offset % 4096 : offset % 4096 + size])

    def test_placeholders_are_known_by_their_tag(self):
        offset, size = self.records(self.root)[20]
        self.patch_file(self.log_path(self.root, offset // 4096), offset % 4096, bytes(size))
        self.repair(self.root, replace_damaged=True)
        record = Path(self.log_path(self.root, offset // 4096)).read_bytes()[offset % 4096 :][:size]
        message = decode_message(record)
        self.assertEqual(message.properties_map()["TAGS"], DAMAGED_TAG)
        self.assertEqual((message.topic, message.queue_id, message.queue_offset), ("T0", 2, 3))

    def test_flipped_byte_of_record_is_found(self):
        offset, size = self.records(self.root)[21]
        # Not covered by a checksum, and found nowhere else.
        unseen = {16, 17, 18, 19, *range(40, 56), *range(64, 84)}
        store_time = set(range(56, 64))
        sys_flag = set(range(36, 40))
        for position in range(size):
            work = self.copy(self.root)
            self.flip(self.log_path(work, offset // 4096), offset % 4096 + position, 1 << position % 8)
            found = self.damage(work)
            if position in unseen | store_time | sys_flag:
                continue
            self.assertTrue(found, position)
            self.assertTrue(
                any(
                    f"at {offset}" in f.text or f"from {offset}" in f.text or f.physical_offset == offset for f in found
                ),
                (position, [f.line(work) for f in found]),
            )
            self.repair(work, replace_damaged=True)
            self.assertEqual([f.line(work) for f in self.damage(work)], [], position)
            bodies = self.bodies(work)
            self.assertEqual(set(bodies), set(self.before), position)
            self.assertLessEqual(sum(bodies[key] != body for key, body in self.before.items()), 1, position)

    def test_store_time_far_out_of_order(self):
        offset, _ = self.records(self.root)[30]
        for bit in (1 << 31, 1 << 40):
            work = self.copy(self.root)
            path = self.log_path(work, offset // 4096)
            at = offset % 4096 + 56
            (time,) = struct.unpack_from(">q", Path(path).read_bytes(), at)
            self.patch_file(path, at, struct.pack(">q", time ^ bit))
            found = [f for f in self.damage(work) if f.problem is Disorder.STORE_TIME]
            self.assertEqual([f.physical_offset for f in found], [offset])

    def test_flipped_byte_of_queue_entry_is_found(self):
        for position in range(40, 60):
            work = self.copy(self.root)
            path = self.queue_path(work, "T1", 2)
            self.flip(path, position, 1 << position % 8)
            (finding,) = self.damage(work)
            self.assertEqual((finding.path, finding.position), (path, 40))
            self.assertEqual((finding.queue, finding.remedy), (("T1", 2), Remedy.REPAIR))
            self.check_repaired(work)

    def test_flipped_byte_of_index_is_found(self):
        data = Path(self.index_path(self.root)).read_bytes()
        used = [at for at in range(40, 440, 4) if any(data[at : at + 4])]
        places = [*range(40), *range(used[3], used[3] + 4), *range(440 + 20 * 50, 440 + 20 * 51)]
        for position in places:
            work = self.copy(self.root)
            self.flip(self.index_path(work), position, 1 << position % 8)
            found = self.damage(work)
            self.assertTrue(found, position)
            self.assertEqual({finding.path for finding in found}, {self.index_path(work)})
            self.repair(work)
            self.assertEqual([f.line(work) for f in self.damage(work)], [], position)

    def test_index_chain_with_loop_is_found(self):
        """Two entries that lead to each other."""
        path = self.index_path(self.root)
        self.patch_file(path, 440 + 20 * 5 + 16, struct.pack(">i", 9))
        (finding,) = self.damage(self.root)
        self.assertEqual((finding.problem, finding.position), (Disorder.INDEX_CHAIN, 440 + 100))

    def test_torn_tail_after_a_clean_stop(self):
        offset, size = self.records(self.root)[-1]
        path = self.log_path(self.root, 2)
        self.patch_file(path, offset % 4096 + 4, b"\xff" * (size - 4))
        problems = {finding.problem for finding in self.damage(self.root)}
        self.assertEqual(problems, {Disorder.TAIL, Disorder.QUEUE_AHEAD, Disorder.INDEX_ENTRY, Disorder.CHECKPOINT})
        self.repair(self.root)
        self.assertEqual(self.damage(self.root), [])
        last = max(self.before, key=lambda key: key == ("T1", 2, 9))
        self.assertEqual(self.bodies(self.root), {k: v for k, v in self.before.items() if k != last})
        self.assertEqual(Path(path).read_bytes()[offset % 4096 :].strip(b"\0"), b"")

    def test_lost_filler_is_repaired(self):
        path = self.log_path(self.root)
        data = Path(path).read_bytes()
        at = data.index(struct.pack(">i", -875286124)) - 4
        for damage in (bytes(8), b"\xff" * 8, data[at : at + 3] + b"\x7f" + data[at + 4 : at + 8]):
            work = self.copy(self.root)
            self.patch_file(self.log_path(work), at, damage)
            (finding,) = self.damage(work)
            self.assertEqual((finding.path, finding.position), (self.log_path(work), at))
            self.check_repaired(work, replace_damaged=damage[0] == 0xFF)
            self.assertEqual(Path(self.log_path(work)).read_bytes()[at : at + 8], data[at : at + 8])

    def test_several_records_overwritten(self):
        records = self.records(self.root)
        begin = records[20][0]
        end = sum(records[23])
        self.patch_file(self.log_path(self.root, begin // 4096), begin % 4096 + 2, b"\x55" * (end - begin - 9))
        (finding,) = self.damage(self.root)
        self.assertEqual((finding.physical_offset, finding.size), (begin, end - begin))
        self.check_repaired(self.root, lost=4, replace_damaged=True)

    def test_records_overwritten_up_to_the_end_of_a_file(self):
        records = [record for record in self.records(self.root) if record[0] < 4096]
        begin = records[-3][0]
        self.patch_file(self.log_path(self.root), begin, b"\x55" * (4096 - begin))
        (finding,) = self.damage(self.root)
        self.assertEqual(finding.remedy, Remedy.REPLACE)
        self.repair(self.root, replace_damaged=True)
        self.assertEqual(self.damage(self.root), [])
        # The three records are gone, all others are read.
        self.assertEqual(len(self.bodies(self.root)), MESSAGES - 3)

    def test_missing_middle_log_file_is_repaired(self):
        path = self.log_path(self.root, 1)
        count = sum(4096 <= offset < 8192 for offset, _ in self.records(self.root))
        os.unlink(path)
        (finding,) = self.damage(self.root)
        self.assertEqual((finding.problem, finding.path, finding.size), (Disorder.FILE_MISSING, path, 4096))
        self.assertEqual(self.repair(self.root), [])
        self.repair(self.root, replace_damaged=True)
        self.assertEqual(self.damage(self.root), [])
        self.assertEqual(len(self.bodies(self.root)), MESSAGES - count)
        store = MessageStore(small_config(self.root), STORE_HOST)
        store.start()
        self.addCleanup(store.stop)
        self.assertEqual(store.max_physical_offset(), sum(self.records(self.root)[-1]))

    def test_truncated_log_files_are_repaired(self):
        for number in (0, 1, 2):
            work = self.copy(self.root)
            path = self.log_path(work, number)
            os.truncate(path, len(Path(path).read_bytes().rstrip(b"\0")) + 3 if number == 2 else 4000)
            found = self.damage(work)
            self.assertEqual((found[0].problem, found[0].path), (Disorder.FILE_SIZE, path))
            self.repair(work, replace_damaged=True)
            self.assertEqual([f.line(work) for f in self.damage(work)], [])
            self.assertEqual(os.path.getsize(path), 4096)
            self.assertGreaterEqual(len(self.bodies(work)), MESSAGES - 1)

    def test_cut_missing_or_empty_queue_files_are_repaired(self):
        def cut(path):
            os.truncate(path, 77)

        def clear(path):
            Path(path).write_bytes(bytes(200))

        for change in (cut, clear, os.unlink):
            for queue in (("T0", 0), ("T1", 2)):
                work = self.copy(self.root)
                change(self.queue_path(work, *queue))
                found = self.damage(work)
                self.assertTrue(found)
                self.assertEqual({finding.queue for finding in found}, {queue})
                self.check_repaired(work)

    def test_missing_queues_are_left_to_next_start(self):
        shutil.rmtree(os.path.join(self.root, "consumequeue"))
        # The next start dispatches all; a repair need not.
        self.assertEqual(
            {(f.problem, f.remedy) for f in self.findings(self.root)}, {(Disorder.QUEUE_LACKS, Remedy.START)}
        )

    def test_missing_queue_is_repaired(self):
        shutil.rmtree(os.path.join(self.root, "consumequeue", "T0", "1"))
        (finding,) = self.damage(self.root)
        self.assertEqual((finding.problem, finding.queue), (Disorder.QUEUE_MISSING, ("T0", 1)))
        self.check_repaired(self.root)

    def test_rebuilt_queue_keeps_entries_of_unreadable_records(self):
        store = StoppedStore(self.root)
        (queue,) = [queue for queue in store.queues() if (queue.topic, queue.queue_id) == ("T0", 2)]
        for index, position in ((5, 90), (7, 4), (9, 3)):
            offset = queue.entry(index)[0]
            self.flip(self.log_path(self.root, offset // 4096), offset % 4096 + position)
        before = [queue.entry(index) for index in range(10)]
        self.flip(self.queue_path(self.root, "T0", 2), 4)
        self.assertEqual(self.repair(self.root), ["rebuild queue T0-2 from the log"])
        self.assertEqual({f.problem for f in self.damage(self.root)}, {Disorder.BODY_CRC, Disorder.RECORD})
        (queue,) = [queue for queue in StoppedStore(self.root).queues() if (queue.topic, queue.queue_id) == ("T0", 2)]
        self.assertEqual([queue.entry(index) for index in range(10)], before)
        self.check_repaired(self.root, lost=3, replace_damaged=True)

    def test_wrong_entries_are_found_once(self):
        (queue,) = [queue for queue in StoppedStore(self.root).queues() if (queue.topic, queue.queue_id) == ("T0", 2)]
        offset = queue.entry(3)[0]
        self.flip(self.log_path(self.root, offset // 4096), offset % 4096 + 4)
        self.patch_file(self.queue_path(self.root, "T0", 2), 80, b"\x11" * 60)
        found = [(finding.problem, finding.position) for finding in self.damage(self.root)]
        self.assertEqual(
            sorted(found, key=str),
            [(Disorder.QUEUE_ENTRY, position) for position in (100, 120, 80)] + [(Disorder.RECORD, offset % 4096)],
        )

    def test_rebuilt_queue_includes_records_with_wrong_crc(self):
        offset, _ = self.records(self.root)[10]
        self.flip(self.log_path(self.root), offset + 90)
        (path,) = [
            queue.directory
            for queue in StoppedStore(self.root).queues()
            if any(queue.entry(index)[0] == offset for index in range(10))
        ]
        shutil.rmtree(path)
        self.repair(self.root)
        self.assertEqual([f.problem for f in self.damage(self.root)], [Disorder.BODY_CRC])
        self.check_repaired(self.root, lost=1, replace_damaged=True)

    def test_entries_of_expired_records_keep_their_numbers(self):
        write_log_begin(QuickFileSystem(), self.root, NotedBegin(4096, ()))
        os.unlink(self.log_path(self.root))
        self.before = self.bodies(self.root)
        maximum = [
            (queue.topic, queue.queue_id, queue.max_offset) for queue in summarize(StoppedStore(self.root)).queues
        ]
        self.flip(self.queue_path(self.root, "T0", 0), 180 + 9)
        self.assertEqual(len(self.damage(self.root)), 1)
        self.check_repaired(self.root)
        after = summarize(StoppedStore(self.root)).queues
        self.assertEqual([(queue.topic, queue.queue_id, queue.max_offset) for queue in after], maximum)

    def test_checkpoint_ahead_of_the_log(self):
        path = os.path.join(self.root, "checkpoint")
        self.patch_file(path, 8, struct.pack(">q", 1_800_000_000_000))
        (finding,) = self.damage(self.root)
        self.assertEqual((finding.path, finding.position), (path, 8))
        self.check_repaired(self.root)
        self.assertTrue(os.path.exists(os.path.join(self.root, "aside", "checkpoint")))

    def test_repair_keeps_replaced_files(self):
        old = {}
        for path in (self.queue_path(self.root), self.index_path(self.root)):
            self.flip(path, 465) if "index" in path else self.flip(path, 45)
            old[os.path.relpath(path, self.root)] = Path(path).read_bytes()
        self.check_repaired(self.root)
        for path, data in old.items():
            self.assertEqual(Path(self.root, "aside", path).read_bytes(), data)
        self.assertFalse(os.path.exists(os.path.join(self.root, "aside", "new")))

    def test_plan_changes_no_file(self):
        self.flip(self.queue_path(self.root), 45)
        before = {path: path.read_bytes() for path in Path(self.root).rglob("*") if path.is_file()}
        plan = Repair(self.root, RealFileSystem(), "aside", now_ms=lambda: 0).plan()
        self.assertEqual((plan.damages, list(plan.lines(self.root))), (1, ["rebuild queue T0-0 from the log"]))
        self.assertEqual({path: path.read_bytes() for path in Path(self.root).rglob("*") if path.is_file()}, before)

    def test_many_findings_of_a_kind_are_counted(self):
        self.patch_file(self.index_path(self.root), 440 + 20, b"\xff" * 2000)
        all_of_them = self.damage(self.root)
        shown = list(shortened(all_of_them, shown=3))
        self.assertLess(len(shown), len(all_of_them))
        self.assertTrue(any("more findings" in finding.text for finding in shown))

    def test_random_damage(self):
        """With any bytes overwritten, the examination ends, and a repair leaves irreparable damage only."""
        dice = random.Random(4)
        paths = [path for path in sorted(Path(self.root).rglob("*")) if path.is_file() and path.name != "lock"]
        for _ in range(40):
            work = self.copy(self.root)
            path = dice.choice(paths)
            data = path.read_bytes()
            position = dice.randrange(len(data.rstrip(b"\0")) or 1)
            count = dice.choice((1, 4, 20, 100, 3000))
            new = dice.choice((bytes(count), b"\xff" * count, dice.randbytes(count)))[: len(data) - position]
            self.patch_file(Path(work, path.relative_to(self.root)), position, new)
            self.repair(work, replace_damaged=True, sizes=SIZES)
            left = [finding for finding in self.damage(work) if finding.remedy is not Remedy.BACKUP]
            self.assertEqual([finding.line(work) for finding in left], [], (path, position, new[:20]))
            bodies = self.bodies(work)
            if "commitlog" not in path.parts:
                late = [f for f in self.findings(work) if f.remedy is Remedy.START]
                if not late:
                    self.assertEqual(bodies, self.before, (path, position, new[:20]))


class SummaryTests(StoreTestCase):
    def test_summary_of_store(self):
        root = self.make()
        summary = summarize(StoppedStore(root))
        records = self.records(root)
        self.assertEqual((summary.abort, summary.lock, summary.min_offset), (False, True, 0))
        self.assertEqual(summary.max_offset, sum(records[-1]))
        self.assertEqual([file.begin_offset for file in summary.log], [0, 4096, 8192])
        for file in summary.log:
            inside = [record for record in records if file.begin_offset <= record[0] < file.begin_offset + 4096]
            self.assertEqual((file.end_offset, file.used), (sum(inside[-1]), sum(inside[-1]) - file.begin_offset))
            self.assertLess(file.first_store_time, file.last_store_time)
        self.assertEqual(
            [(q.topic, q.queue_id, q.min_offset, q.max_offset) for q in summary.queues],
            [(topic, number, 0, 10) for topic in ("T0", "T1") for number in range(3)],
        )
        (index,) = summary.index
        self.assertEqual((index.entries, index.slot_room, index.entry_room), (180, 100, 400))
        self.assertEqual(summary.size, sum(path.stat().st_size for path in Path(root).rglob("*") if path.is_file()))

    def test_expired_records_and_an_unclean_stop(self):
        root = self.make()
        os.unlink(self.log_path(root))
        self.unclean(root)
        summary = summarize(StoppedStore(root))
        self.assertEqual((summary.abort, summary.min_offset), (True, 4096))
        expected = {
            (queue.topic, queue.queue_id): min(
                index for index in range(10) if queue_reader(root, queue).entry(index)[0] >= 4096
            )
            for queue in summary.queues
        }
        self.assertEqual({(q.topic, q.queue_id): q.min_offset for q in summary.queues}, expected)

    def test_summary_of_sparse_store_reads_ends_only(self):
        """Only the ends of files are read, and holes not at all."""
        root = self.make([make_message(b"first")])
        size = 1 << 30
        for number in range(100):
            os.truncate(os.open(os.path.join(root, "commitlog", f"{number * size:020d}"), os.O_RDWR | os.O_CREAT), size)
        summary = summarize(StoppedStore(root))
        self.assertEqual((len(summary.log), summary.max_offset), (100, self.records(root)[0][1]))
        self.assertEqual(self.damage(root), [])
