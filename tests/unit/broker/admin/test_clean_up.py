"""Cleaning up on request, and looking into queues."""

import json
import os
import threading
from types import SimpleNamespace

from twisted.trial.unittest import SynchronousTestCase

from rocketd.broker.admin import clean_up, consume_queue, query
from rocketd.broker.clients.client import ClientChannelInfo
from rocketd.remoting.bodies.tables import ConsumerData, SubscriptionData, TopicConfig
from rocketd.remoting.errors import RequestError
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.store.format.message import MessageInner
from rocketd.store.log.commit_log import CommitLog
from tests.support.broker import BORN_HOST, RecordingConnection, SmallBroker

WAIT = 60
CONTEXT = SimpleNamespace(connection=RecordingConnection())
EXTENDED = {"enablePropertyFilter": "true", "enableConsumeQueueExt": "true", "enableCalcFilterBitMap": "true"}


class ProcessorTestCase(SynchronousTestCase):
    def open(self, **options):
        self.broker = SmallBroker(os.path.abspath(self.mktemp()), **options)
        self.broker.start()
        self.addCleanup(self.broker.stop)

    def put(self, topic, *bodies):
        self.broker.clock.advance(1)
        messages = [MessageInner(topic, 0, 0, 0, 0, BORN_HOST, 0, 0, body, b"a\x011", 7) for body in bodies]
        self.broker.store.put_messages(messages)
        self.broker.settle()

    def end(self):
        return self.broker.store.max_physical_offset()


class CleanUpTests(ProcessorTestCase):
    def setUp(self):
        self.open()
        self.processor = clean_up.CleanUpProcessor(self.broker)

    def ask(self, code):
        answer = self.processor.process(RemotingCommand(code), CONTEXT)
        removed = threading.Event()
        self.broker.store._reput.call(removed.set)
        self.assertTrue(removed.wait(WAIT))
        return answer.code, answer.remark

    def test_clean_up_removes_queues_without_topic(self):
        for topic in ("T", "Gone", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "%LMQ%x"):
            self.put(topic, b"body")
        self.broker.topics.update(TopicConfig("T", 4, 4))
        self.assertEqual(self.ask(316), (0, None))
        self.assertEqual(
            {topic for topic, _ in self.broker.store.queue_keys()},
            {"T", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "%LMQ%x"},
        )

    def test_clean_up_removes_queues_without_messages(self):
        self.put("T", b"body")
        self.assertEqual(self.ask(306), (0, None))
        self.assertEqual(self.broker.store.queue_keys(), [("T", 0)])
        for queue_id in (0, 1):
            self.broker.offsets.commit("c", "G", "T", queue_id, 1)
        self.patch(CommitLog, "min_offset", self.end())
        self.ask(306)
        self.assertEqual(self.broker.store.queue_keys(), [])
        # The queue starts over, and so does the group that read it.
        self.assertEqual([self.broker.offsets.query("G", "T", queue_id) for queue_id in (0, 1)], [-1, 1])

    def test_log_files(self):
        asked = []
        self.patch(self.broker.store, "execute_delete_files_manually", lambda: asked.append(1))
        self.processor = clean_up.CleanUpProcessor(self.broker)
        self.assertEqual(self.ask(329), (0, None))
        self.assertEqual(asked, [1])

    def test_clean_up_disk_error_is_answered(self):
        def fail():
            raise OSError(5, "Input/output error")

        self.patch(self.broker.store, "delete_expired_queues", fail)
        self.assertEqual(self.ask(306), (1, "[Errno 5] Input/output error"))
        self.assertEqual(len(self.flushLoggedErrors(OSError)), 1)


class ConsumeQueueTests(ProcessorTestCase):
    def ask(self, topic="T", **fields):
        given = {"topic": topic, "queueId": "0", "index": "0", "count": "10", **fields}
        return consume_queue.ConsumeQueueProcessor(self.broker).process(RemotingCommand(321, given), CONTEXT)

    def body(self, **fields):
        return json.loads(self.ask(**fields).body)

    def subscribe(self, expression, kind):
        subscription = SubscriptionData("T", expression, sub_version=1, expression_type=kind, code_set=[8])
        client = ClientChannelInfo(RecordingConnection("127.0.0.1:5000"), "c", 0, 407, self.broker.now_ms())
        self.broker.consumers.register(client, ConsumerData("G", subscription_data_set=[subscription]), notify=False)
        self.broker.filters.register_group("G", [subscription])

    def test_queue_entries_are_returned(self):
        self.open()
        self.put("T", b"1", b"2", b"3")
        body = self.body(index="1", count="1")
        self.assertEqual((body["minQueueIndex"], body["maxQueueIndex"]), (0, 3))
        (entry,) = body["queueData"]
        size = entry["physicSize"]
        self.assertEqual(entry, {"eval": False, "physicOffset": size, "physicSize": size, "tagsCode": 7})
        self.assertEqual(self.body(count="-1")["queueData"], [])

    def test_entries_of_an_answer_fit_into_a_frame(self):
        self.open()
        self.put("T", b"1", b"2", b"3")
        whole = self.ask().body
        begin, end = whole.index(b"["), whole.index(b"]")
        for room, count in ((end - begin, 3), (end - begin - 1, 2), (1, 0)):
            self.patch(query, "MAX_BODY", room)
            self.assertEqual(len(self.body(count=str(2**31 - 1))["queueData"]), count)

    def test_missing_queue_or_entry_is_named(self):
        self.open()
        with self.assertRaises(RequestError) as caught:
            self.ask()
        self.assertEqual((caught.exception.code, caught.exception.remark), (1, "0@T is not exist!"))
        self.put("T", b"1")
        answer = self.ask(index="1")
        self.assertEqual((answer.code, answer.remark, answer.body), (0, "Index 1 of 0@T is not exist!", None))

    def test_offline_group_is_named(self):
        self.open()
        self.put("T", b"1")
        body = self.body(consumerGroup="G")
        self.assertEqual(body["filterData"], "G@T is not online!")
        self.assertNotIn("subscriptionData", body)

    def test_extension_units_are_matched_by_tags_of_group(self):
        self.open(**EXTENDED)
        self.put("T", b"1")
        self.subscribe("TagA", "TAG")
        body = self.body(consumerGroup="G")
        self.assertEqual(body["filterData"], "null")
        self.assertEqual(body["subscriptionData"]["subString"], "TagA")
        (entry,) = body["queueData"]
        self.assertIs(entry["eval"], False)
        unit = json.loads(entry["extendDataJson"])
        self.assertEqual((unit["size"], unit["tagsCode"]), (20, 7))

    def test_extension_units_are_matched_by_bitmap_of_group(self):
        self.open(**EXTENDED)
        self.subscribe("a = '1'", "SQL92")
        self.put("T", b"1")
        body = self.body(consumerGroup="G")
        self.assertEqual(json.loads(body["filterData"])["expression"], "a = '1'")
        (entry,) = body["queueData"]
        self.assertIs(entry["eval"], True)
        self.assertEqual(len(entry["bitMap"].replace("\n", "")), self.broker.filters.bloom.bits)
        self.assertIn("1", entry["bitMap"])
        self.subscribe("a = '2'", "SQL92")

    def test_lost_extension_unit_is_named(self):
        self.open(**EXTENDED)
        self.put("T", b"1")
        self.patch(self.broker.store.queues.find("T", 0), "ext", None)
        (entry,) = self.body()["queueData"]
        self.assertEqual(entry["msg"], f"Cq extend not exist!addr: {entry['tagsCode']}")

    def test_bits_as_text(self):
        self.assertEqual(consume_queue.bits_text(b"\x01\x80"), "1000000000000001\n")
