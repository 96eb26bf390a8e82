"""Stores written by Apache's broker 4.9.7, one stopped and one killed: opened, read, appended to, opened again."""

import hashlib
import json
import lzma
import os
import threading
import time
import zlib
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from rocketd.store.base.errors import StoreBeginLostError
from rocketd.store.base.settings import MessageStoreConfig
from rocketd.store.format.message import GetStatus
from rocketd.store.format.record import decode_message, encode_record
from rocketd.store.message_store import MessageStore
from rocketd.store.testing import STORE_HOST, make_message
from tests.support.apache_stores import STORES, unpack_store

HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"


class ApacheStoreTestCase(SynchronousTestCase):
    def unpack(self, name):
        directory = os.path.abspath(self.mktemp())
        unpack_store(name, directory)
        with lzma.open(STORES / f"{name}.manifest.jsonl.xz", "rt") as lines:
            records = [json.loads(line) for line in lines]
        self.messages = [record for record in records if record["record"] == "message"]
        self.root = os.path.join(directory, name)

    def open(self, now=None):
        config = MessageStoreConfig(
            store_path_root_dir=self.root,
            mapped_file_size_commit_log=262144,
            mapped_file_size_consume_queue=6000,
            max_hash_slot_num=2000,
            max_index_num=4000,
            disk_space_warning_level_ratio=1.0,
        )
        store = MessageStore(config, STORE_HOST, clock=time.time if now is None else lambda: now)
        store.start()
        self.addCleanup(store.stop)
        return store

    def check_body(self, message, expected):
        body = zlib.decompress(message.body) if message.sys_flag & 1 else message.body
        self.assertEqual(len(body), expected["bodyLength"])
        self.assertEqual(hashlib.sha256(body).hexdigest(), expected["bodySha256"])

    def check_message(self, store, expected):
        """Check lookups by queue offset, physical offset and key; return the kind of the message."""
        kind = expected["kind"].split(" ")[0]
        topic = {"delayed": SCHEDULE_TOPIC, "transaction": HALF_TOPIC}.get(kind, expected["topic"])
        level = int((expected["otherProperties"] or {}).get("DELAY", 0))
        queue_id = 0 if kind == "transaction" else level - 1 if level else expected["queueId"]
        result = store.get_messages(topic, queue_id, expected["queueOffset"], 1, None)
        self.assertIs(result.status, GetStatus.FOUND, expected)
        message = decode_message(result.buffers[0])
        self.assertEqual(message.store_size, result.size)
        self.assertEqual((message.topic, message.queue_offset), (topic, expected["queueOffset"]))
        if expected["commitLogOffset"] is not None:
            self.assertEqual(message.physical_offset, expected["commitLogOffset"])
        self.assertEqual(bytes(store.look_message(message.physical_offset)), bytes(result.buffers[0]))
        self.check_body(message, expected)
        properties = message.properties_map()
        self.assertEqual(properties["UNIQ_KEY"], expected["uniqKey"])
        self.assertEqual(properties.get("TAGS"), expected["tags"])
        self.assertEqual(properties.get("KEYS"), expected["keys"])
        for key in [expected["uniqKey"], *(expected["keys"] or "").split()]:
            found = store.query_messages(topic, key, 64, 0, 2**62).buffers
            # Of a key that many messages share, the newest 64 are found.
            self.assertTrue(len(found) >= 64 or any(view == result.buffers[0] for view in found), (key, expected))
        return kind

    def check_all(self, store):
        kinds = [self.check_message(store, expected) for expected in self.messages]
        self.assertEqual(set(kinds), {"normal", "no", "batch", "compressed", "delayed", "transaction"})
        self.assertEqual(len(kinds), 1636)

    def check_dispatch(self, store):
        """Compare our dispatch of the log with Apache's entries and with the scanner."""
        scan = store._scanner
        seen = {}
        for file in store.commit_log.queue.files:
            found = scan.scan(
                file.view, 0, file.wrote_position, file.file_from_offset, check_crc=True, max_records=100_000
            )
            for request in found.requests:
                if not request.sys_flag & 4:
                    seen.setdefault((request.topic, request.queue_id), []).append(request)
        self.assertEqual(set(seen), set(store.queue_keys()))
        for (topic, queue_id), requests in seen.items():
            queue = store.queues.find(topic, queue_id)
            self.assertEqual([r.queue_offset for r in requests], list(range(queue.max_offset)))
            for request in requests:
                physical, size, tags_code = queue.entry(request.queue_offset)
                self.assertEqual((physical, size), (request.physical_offset, request.size))
                if topic != SCHEDULE_TOPIC:
                    self.assertEqual(tags_code, request.tags_code)

    def append_and_reopen(self, store):
        end = store.max_physical_offset()
        begin = store.get_max_offset("VecOrders", 0)
        results = store.put_messages(
            [make_message(b"%d" % n * 500, topic="VecOrders", key=f"ours-{n}") for n in range(200)]
        )
        self.assertEqual([r.queue_offset for r in results], list(range(begin, begin + 200)))
        self.assertEqual(results[0].physical_offset, end)
        done = threading.Event()
        store._reput.call(done.set)
        self.assertTrue(done.wait(60))
        store.stop()
        self.assertNotIn("abort", os.listdir(self.root))
        again = self.open()
        self.check_all(again)
        for number, result in enumerate(results):
            found = again.get_messages("VecOrders", 0, begin + number, 1, None)
            message = decode_message(found.buffers[0])
            self.assertEqual((message.body, message.physical_offset), (b"%d" % number * 500, result.physical_offset))
            self.assertEqual(len(again.query_messages("VecOrders", f"ours-{number}", 9, 0, 2**62).buffers), 1)
        again.stop()


class CleanStoreTests(ApacheStoreTestCase):
    def test_clean_store_messages_are_read(self):
        self.unpack("store-clean")
        files = {path: path.read_bytes() for path in Path(self.root, "commitlog").iterdir()}
        store = self.open()
        self.check_all(store)
        self.check_dispatch(store)
        store.stop()
        # A store that was only read is left as it was.
        self.assertEqual({path: path.read_bytes() for path in Path(self.root, "commitlog").iterdir()}, files)

    def test_clean_store_is_appended_and_reopened(self):
        self.unpack("store-clean")
        self.append_and_reopen(self.open())

    def test_clean_store_without_its_oldest_file_is_refused_until_that_could_have_expired(self):
        self.unpack("store-clean")
        first, second = sorted(Path(self.root, "commitlog").iterdir())[:2]
        record = decode_message(second.read_bytes(), check_crc=False)
        first.unlink()
        expired = record.store_timestamp / 1000 + 72 * 3600
        error = self.assertRaises(StoreBeginLostError, self.open, expired - 1)
        self.assertEqual((error.known, error.begin), (0, record.physical_offset))
        store = self.open(expired)
        self.assertEqual(store.get_min_offset(record.topic, record.queue_id), record.queue_offset)

    def test_clean_store_records_equal_our_encoding(self):
        self.unpack("store-clean")
        store = self.open()
        count = 0
        for (topic, queue_id), queue in store.queues.all():
            for offset in range(queue.max_offset):
                view = store.get_messages(topic, queue_id, offset, 1, None).buffers[0]
                message = decode_message(view)
                again = encode_record(
                    make_message(
                        message.body,
                        topic,
                        queue_id,
                        flag=message.flag,
                        sys_flag=message.sys_flag,
                        born_timestamp=message.born_timestamp,
                        born_host=message.born_host,
                        reconsume_times=message.reconsume_times,
                        prepared_transaction_offset=message.prepared_transaction_offset,
                        properties=message.properties,
                    ),
                    message.store_host,
                    message.queue_offset,
                    message.physical_offset,
                    message.store_timestamp,
                )
                self.assertEqual(again, bytes(view))
                count += 1
        self.assertGreater(count, 1636)


class KilledStoreTests(ApacheStoreTestCase):
    def test_killed_store_messages_are_read(self):
        self.unpack("store-killed")
        self.assertIn("abort", os.listdir(self.root))
        self.assertEqual(len(os.listdir(os.path.join(self.root, "commitlog"))), 4)
        store = self.open()
        # The file that was made ahead holds nothing.
        self.assertEqual(len(store.commit_log.queue.files), 3)
        self.check_all(store)
        self.check_dispatch(store)

    def test_killed_store_is_appended_and_reopened(self):
        self.unpack("store-killed")
        self.append_and_reopen(self.open())

    def test_killed_store_queues_and_index_are_rebuilt_from_log(self):
        self.unpack("store-killed")
        for folder in ("consumequeue", "index"):
            for path in sorted(Path(self.root, folder).rglob("*"), reverse=True):
                path.rmdir() if path.is_dir() else path.unlink()
        store = self.open()
        self.check_all(store)
        self.check_dispatch(store)
