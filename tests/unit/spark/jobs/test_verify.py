"""Findings of the verification of a store, compared with those of the store's examination."""

import os
import random
import shutil
from pathlib import Path

from twisted.trial.unittest import TestCase

from rocketd.spark.jobs.running.progress import JobProgressBar
from rocketd.spark.jobs.stopped_store.dispatched import DispatchRules
from rocketd.spark.jobs.verify.job import Verification
from rocketd.spark.jobs.verify.log_file import check_log_file
from rocketd.store.base.findings import Finding
from rocketd.store.index.layout import ENTRY_SIZE, HEADER_SIZE
from rocketd.store.offline.examine import Examination
from rocketd.store.offline.stopped_store import StoppedStore
from rocketd.store.queue.consume_queue_ext import ADDRESS_BASE
from tests.support.stores import log_files, message, messages, write_store

SIZES = {
    "index": True,
    "queue_file_size": 20 * 100,
    "log_file_size": 1 << 17,
    "max_hash_slot_num": 100,
    "max_index_num": 400,
}


def verification(root):
    return Verification(StoppedStore(root), DispatchRules(), JobProgressBar(quiet=True))


def verify(root):
    return verification(root).run(lambda items, function: map(function, items))


def findings(root):
    done = verification(root)
    done.run(lambda items, function: map(function, items))
    return {told(finding) for finding in done.findings}


def examined(root):
    return {told(finding) for finding in Examination(StoppedStore(root)).findings()}


def told(finding: Finding):
    return finding.severity, finding.problem, finding.path, finding.position, finding.text


class VerifyTests(TestCase):
    def setUp(self) -> None:
        self.root = self.mktemp()

    def damage(self, path, position, data) -> None:
        with open(path, "r+b") as file:
            file.seek(position)
            file.write(data)

    def first_queue_file(self):
        return os.path.join(self.root, "consumequeue", "orders", "1", "0" * 20)

    def test_store_of_stopped_broker_has_no_findings(self) -> None:
        write_store(self.root, 500, variants=True, **SIZES)
        report = verify(self.root)
        self.assertEqual(report.problems, [])
        self.assertEqual(report.facts["records"], 500)
        self.assertEqual(report.facts["findings"], [])
        examination = Examination(StoppedStore(self.root))
        self.assertEqual(list(examination.findings()), [])
        self.assertEqual(report.facts["end_offset"], examination.log_end)

    def test_a_log_in_several_directories_is_verified_as_one(self) -> None:
        write_store(self.root, 500, variants=True, **SIZES)
        one, other = os.path.join(self.root, "commitlog"), os.path.join(self.root, "commitlog-2")
        os.mkdir(other)
        for path in log_files(self.root)[1::2]:
            os.rename(path, os.path.join(other, os.path.basename(path)))
        self.assertTrue(os.listdir(other))
        position = 200
        self.damage(os.path.join(other, sorted(os.listdir(other))[0]), position, b"\xff" * 500)
        store = StoppedStore(self.root, (one, other))
        done = Verification(store, DispatchRules(), JobProgressBar(quiet=True))
        done.run(lambda items, function: map(function, items))
        expected = {told(finding) for finding in Examination(store).findings()}
        self.assertTrue(any(other in finding[2] for finding in expected))
        self.assertEqual({told(finding) for finding in done.findings}, expected)

    def test_whole_store_is_not_examined_closely(self) -> None:
        write_store(self.root, 500, variants=True, **SIZES)
        facts = verification(self.root).facts
        for number in range(len(facts.files)):
            report = check_log_file(facts, number)
            self.assertFalse(report.closely)
            self.assertEqual((report.suspects, report.findings, report.late, report.unindexed), (set(), [], 0, 0))

    def test_a_wrong_crc_is_named(self) -> None:
        written = write_store(self.root, 200, **SIZES)
        offset = written.results[100].physical_offset
        path = [path for path in log_files(self.root) if int(path.name) <= offset][-1]
        position = offset - int(path.name)
        self.damage(path, position + 100, b"\xff\xee")
        report = verify(self.root)
        self.assertEqual(len(report.problems), 1)
        self.assertIn(f"{path.parent.name}/{path.name} at {position}: the record of", report.problems[0])
        self.assertIn("the CRC of the body is", report.problems[0])
        self.assertEqual(findings(self.root), examined(self.root))

    def test_broken_chain_of_index_file_is_named(self) -> None:
        write_store(self.root, 200, **SIZES)
        path = StoppedStore(self.root).index_paths()[0]
        position = HEADER_SIZE + 100 * 4 + 50 * ENTRY_SIZE
        self.damage(path, position + 16, (49).to_bytes(4, "big"))
        report = verify(self.root)
        self.assertIn(f"at {position}: entry 50 leads to entry 49", report.problems[0])
        self.assertEqual(findings(self.root), examined(self.root))

    def test_missing_keys_are_named(self) -> None:
        write_store(self.root, 200, **SIZES)
        path = StoppedStore(self.root).index_paths()[0]
        # Another key's hash, and that in its chain.
        self.damage(path, HEADER_SIZE + 100 * 4 + 50 * ENTRY_SIZE, (4711).to_bytes(4, "big"))
        self.assertTrue(any("of 2 keys of the record" in problem for problem in verify(self.root).problems))
        self.assertEqual(findings(self.root), examined(self.root))

    def test_entry_pointing_elsewhere_is_named(self) -> None:
        write_store(self.root, 200, **SIZES)
        self.damage(self.first_queue_file(), 20 * 7, (12345).to_bytes(8, "big"))
        problems = verify(self.root).problems
        self.assertEqual(len(problems), 1)
        self.assertIn("consumequeue/orders/1/00000000000000000000 at 140: entry 7 says offset 12345", problems[0])
        self.assertIn("rocketd store repair", problems[0])

    def test_a_missing_file_of_the_log_is_named(self) -> None:
        write_store(self.root, 2000, **SIZES)
        missing = log_files(self.root)[1]
        missing.unlink()
        self.assertIn(f"{missing.name} at 0: the file is missing", " ".join(verify(self.root).problems))
        self.assertEqual(findings(self.root), examined(self.root))

    def test_a_file_cut_short_is_named(self) -> None:
        write_store(self.root, 2000, **SIZES)
        os.truncate(log_files(self.root)[0], 70_000)
        self.assertEqual(findings(self.root), examined(self.root))

    def test_records_without_queue_are_named(self) -> None:
        write_store(self.root, 100, **SIZES)
        shutil.rmtree(os.path.join(self.root, "consumequeue", "orders", "2"))
        problems = verify(self.root).problems
        self.assertEqual(len(problems), 1)
        self.assertIn("25 records of orders-2 have no queue", problems[0])

    def test_a_store_without_index_has_a_note(self) -> None:
        write_store(self.root, 100, **SIZES | {"index": False})
        report = verify(self.root)
        self.assertEqual(report.problems, [])
        self.assertIn("100 records with keys are not indexed", report.facts["findings"][0]["what"])

    def test_half_messages_need_no_entry(self) -> None:
        some = [message(topic="RMQ_SYS_TRANS_HALF_TOPIC", sys_flag=4, uniq_key=f"U{number}") for number in range(5)]
        write_store(self.root, [*some, message(sys_flag=12, keys="gone"), message(sys_flag=8, keys="kept")], **SIZES)
        self.assertEqual(verify(self.root).facts["findings"], [])

    def test_extension_of_queue_is_verified(self) -> None:
        write_store(self.root, 100, **SIZES, enable_consume_queue_ext=True)
        self.assertEqual(verify(self.root).facts["findings"], [])
        path = os.path.join(self.root, "consumequeue_ext", "orders", "1", "0" * 20)
        # The unit of the fourth entry: 20 bytes each, the tags code after the size.
        self.damage(path, 3 * 20 + 2, (99).to_bytes(8, "big"))
        problems = verify(self.root).problems
        self.assertEqual(len(problems), 1)
        self.assertIn("the unit at 60 says tags code 99", problems[0])

    def test_a_lost_extension_is_only_noted(self) -> None:
        write_store(self.root, 100, **SIZES, enable_consume_queue_ext=True)
        shutil.rmtree(os.path.join(self.root, "consumequeue_ext", "orders", "1"))
        report = verify(self.root)
        self.assertEqual(report.problems, [])
        self.assertIn("and no unit begins there", report.facts["findings"][0]["what"])

    def test_numbers_equal_the_stores(self) -> None:
        from rocketd.spark.jobs.stopped_store import files as store_files
        from rocketd.spark.jobs.verify import extension as verify_ext

        self.assertEqual(verify_ext.ADDRESS_BASE, ADDRESS_BASE)
        self.assertEqual(store_files.INDEX_HEADER.itemsize, HEADER_SIZE)
        self.assertEqual(store_files.INDEX_ENTRY.itemsize, ENTRY_SIZE)


class AgreementTests(TestCase):
    """Both examinations of stores with damages made at random."""

    def setUp(self) -> None:
        self.whole = self.mktemp()
        write_store(self.whole, 600, variants=True, **SIZES)
        write_store(self.whole, messages(150, "other", 2), start_ms=1_700_000_010_000, **SIZES)

    def test_verify_and_store_tool_find_the_same(self) -> None:
        for seed in range(25):
            root = self.mktemp()
            shutil.copytree(self.whole, root)
            what = damage_at_random(root, random.Random(seed))
            self.assertEqual(findings(root), examined(root), f"seed {seed}: {what}")
            shutil.rmtree(root)


def damage_at_random(root, rnd):
    done = []
    for _ in range(rnd.choice((1, 1, 2))):
        paths = sorted(
            path
            for name in ("commitlog", "consumequeue", "index")
            for path in Path(root, name).rglob("*")
            if path.is_file()
        )
        path = rnd.choice(paths)
        data = bytearray(path.read_bytes())
        at = rnd.randrange(len(bytes(data).rstrip(b"\0")) or 1)
        kind = rnd.choice(("bit", "bit", "zeros", "word", "swapped", "cut", "gone", "crash"))
        done.append((kind, str(path.relative_to(root)), at))
        match kind:
            case "bit":
                data[at] ^= 1 << rnd.randrange(8)
            case "zeros":
                count = min(rnd.choice((4, 20, 100, 5000)), len(data) - at)
                data[at : at + count] = bytes(count)
            case "word":
                data[at : at + 8] = rnd.randbytes(8)[: len(data) - at]
            case "swapped":
                at -= at % 20
                data[at : at + 40] = data[at + 20 : at + 40] + data[at : at + 20]
            case "cut":
                del data[at:]
            case "crash":
                Path(root, "abort").touch()
        if kind == "gone":
            path.unlink()
        else:
            path.write_bytes(data)
    return done
