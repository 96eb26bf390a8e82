"""Many records at once, beside the store's own scanner of one after the other."""

import random

from msgspec.structs import astuple
from twisted.trial.unittest import TestCase

from rocketd.spark.jobs.stopped_store.dispatched import (
    DispatchRules,
    delays_of,
    dispatched,
    dispatched_requests,
    light_requests,
    light_rows,
)
from rocketd.spark.jobs.stopped_store.log_scan import BlockScanEnd, Stop, blocks
from rocketd.store.format.record_scanner import RecordScanner, ScanEnd
from tests.support.stores import log_files, message, messages, write_store

STOPS = {ScanEnd.LIMIT: Stop.LIMIT, ScanEnd.END_OF_FILE: Stop.FILLER, ScanEnd.BROKEN: Stop.BROKEN}


class ScanTests(TestCase):
    def setUp(self) -> None:
        root = self.mktemp()
        some = [
            *messages(120, variants=True, body_size=100),
            *(
                message(topic="SCHEDULE_TOPIC_XXXX", queue_id=1, properties={"DELAY": str(level)})
                for level in (1, 2, 9)
            ),
            message(sys_flag=4, keys="half"),
            message(sys_flag=12, keys="gone"),
            message(properties={"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b", "INNER_MULTI_QUEUE_OFFSET": "3,4"}),
            message(properties={"INNER_MULTI_DISPATCH": "%LMQ%a", "INNER_MULTI_QUEUE_OFFSET": "3,4"}),
            message(keys="a  b c", uniq_key="U"),
            message(properties=b"UNIQ_KEY\x01own\x02KEYS\x01a\x02UNIQ_KEY\x01batch\x02KEYS\x01b c\x02UNIQ_KEY\x01own"),
        ]
        write_store(root, some, log_file_size=1 << 21)
        self.data = log_files(root)[0].read_bytes()

    def both(self, data, block_bytes=20_000):
        rules = DispatchRules(delays_of("1s 5s"))
        view, walk = memoryview(data), BlockScanEnd()
        found, keys, light = [], [], []
        for block in blocks(view, 0, walk, block_bytes=block_bytes):
            columns = dispatched(view, block, rules)
            further = light_rows(view, block, columns, rules)
            light += [(key, offset, int(columns.offset[row])) for key, offset, row in further]
            found += [astuple(columns.request(row)) for row in range(len(columns))]
            keys += columns.keyed.tolist()
        scan = RecordScanner(rules.deliver_ms).scan(view, 0, len(view), 0, True, 1 << 30)
        same = dispatched_requests(scan.requests, rules)
        further = light_requests(scan.requests, rules)
        self.assertEqual(found, [astuple(same.request(row)) for row in range(len(same))])
        self.assertEqual(keys, same.keyed.tolist())
        self.assertEqual(light, [(key, at, scan.requests[row].physical_offset) for key, at, row in further])
        self.assertEqual((walk.position, walk.stop), (scan.position, STOPS[scan.end]))
        return len(found), light

    def test_whole_records(self) -> None:
        for block_bytes in (100, 3_000, 1 << 24):
            count, light = self.both(self.data, block_bytes)
            self.assertEqual(count, 129)
            self.assertEqual([(key, offset) for key, offset, _ in light], [(("%LMQ%a", 0), 3), (("%LMQ%b", 0), 4)])

    def test_both_end_at_the_same_damage(self) -> None:
        used = len(self.data.rstrip(b"\0"))
        for seed in range(150):
            rnd = random.Random(seed)
            data = bytearray(self.data[: used + 100])
            at = rnd.randrange(used)
            match rnd.randrange(3):
                case 0:
                    data[at] ^= 1 << rnd.randrange(8)
                case 1:
                    data[at : at + 4] = rnd.randbytes(4)
                case 2:
                    del data[at:]
            try:
                self.both(bytes(data))
            except AssertionError as error:
                raise AssertionError(f"seed {seed}") from error

    def test_delays(self) -> None:
        self.assertEqual(delays_of("1s 2m 3h 1d"), (1_000, 120_000, 10_800_000, 86_400_000))
        self.assertRaises(ValueError, delays_of, "1s soon")
