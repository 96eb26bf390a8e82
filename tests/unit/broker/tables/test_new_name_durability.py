"""Sends to new topics are acknowledged when the topics are durable."""

import os
import threading
from time import monotonic

from twisted.trial.unittest import SynchronousTestCase

from rocketd.broker.base.json_file import JsonFile
from rocketd.broker.send.processor import SendMessageProcessor
from rocketd.broker.send.send_back import SendBackProcessor
from rocketd.broker.tables.new_name_durability import NewNameDurability
from rocketd.remoting.bodies.tables import TopicConfigSerializeWrapper
from rocketd.remoting.wire.codes import RequestCode, ResponseCode
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.store.format.message import PutStatus
from tests.support.broker import RecordingConnection, SmallBroker, job_of

LIMIT = 60.0


def send(topic, code=10, body=b"hello", **more):
    fields = {
        "producerGroup": "P",
        "topic": topic,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": "0",
        "sysFlag": "0",
        "bornTimestamp": "1700000000000",
        "flag": "0",
        "properties": "",
        "reconsumeTimes": "0",
        "unitMode": "false",
        "batch": "false",
        **more,
    }
    return RemotingCommand(code, fields, body)


class NewNameDurabilityTests(SynchronousTestCase):
    def setUp(self):
        self.new_name_durability = NewNameDurability()
        self.answers = []

    def test_known_name_is_durable_at_once(self):
        self.new_name_durability.when_durable(["T"], self.answers.append)
        self.assertEqual(self.answers, [PutStatus.PUT_OK])

    def test_waiter_for_several_names_waits_for_last(self):
        for name in ("T", "U"):
            self.new_name_durability.begin(name)
        self.new_name_durability.when_durable(["T", "U"], self.answers.append)
        self.new_name_durability.written(frozenset({"T"}))
        self.assertEqual(self.answers, [])
        self.new_name_durability.written(frozenset({"U"}))
        self.assertEqual((self.answers, self.new_name_durability.names), ([PutStatus.PUT_OK], set()))

    def test_failed_write_answers_and_keeps_the_name_unsafe(self):
        self.new_name_durability.begin("T")
        self.new_name_durability.when_durable(["T"], self.answers.append)
        self.new_name_durability.failed(frozenset({"T"}))
        self.assertEqual((self.answers, self.new_name_durability.names), ([PutStatus.FLUSH_DISK_TIMEOUT], {"T"}))
        self.assertEqual(self.new_name_durability.unwritten(), {"T"})

    def test_confirmers_run_after_write_and_are_waited_for(self):
        asked = []
        for _ in range(2):
            self.new_name_durability.confirmers.append(lambda names, confirmed: asked.append((names, confirmed)))
        self.new_name_durability.begin("T")
        self.new_name_durability.when_durable(["T"], self.answers.append)
        self.new_name_durability.written(frozenset({"T"}))
        self.assertEqual([names for names, _ in asked], [{"T"}, {"T"}])
        asked[0][1](PutStatus.FLUSH_SLAVE_TIMEOUT)
        self.assertEqual((self.answers, self.new_name_durability.names), ([], {"T"}))
        asked[1][1](PutStatus.PUT_OK)
        self.assertEqual((self.answers, self.new_name_durability.names), ([PutStatus.FLUSH_SLAVE_TIMEOUT], set()))


class SendToNewTopicTests(SynchronousTestCase):
    options = {}

    def setUp(self):
        self.broker = SmallBroker(os.path.abspath(self.mktemp()), **self.options)
        self.gate = threading.Event()
        self.error = None
        self.topic_writes = 0
        self.slow_down("write_file", lambda path, data: path.endswith(("topics.json.tmp", "topics.json.journal")))
        # A line behind others of the journal.
        self.slow_down("pwrite", lambda fd, data, offset: b'"topicConfigTable"' in data)
        self.gate.set()
        self.broker.start()
        self.addCleanup(self.broker.stop)
        self.broker.table_writer.start()
        self.addCleanup(self.broker.table_writer.stop)
        self.addCleanup(self.gate.set)
        self.processor = SendMessageProcessor(self.broker)

    def slow_down(self, name, is_of_topics):
        """Have a call of the disk wait for the gate, and fail if there is an error, if it writes topics."""
        real = getattr(self.broker.file_system, name)

        def call(*arguments):
            if is_of_topics(*arguments):
                assert self.gate.wait(LIMIT)
                self.topic_writes += 1
                if self.error is not None:
                    raise self.error
            return real(*arguments)

        setattr(self.broker.file_system, name, call)

    def send(self, *commands):
        connection = RecordingConnection()
        self.processor.process_jobs([job_of(self.processor, connection, *commands)])
        return connection

    def answers(self, connection, count):
        """Wait for that many answers, in any order."""
        deadline = monotonic() + LIMIT
        while len(connection.written) < count:
            self.assertLess(monotonic(), deadline, f"{len(connection.written)} of {count} answers")
        return connection.answers()

    def stored_topics(self):
        path = os.path.join(self.broker.settings.store.store_path_root_dir, "config", "topics.json")
        file = JsonFile(path, TopicConfigSerializeWrapper, self.broker.file_system)
        stored = file.load()
        return set() if stored is None else set(stored.topic_config_table)

    def test_send_to_new_topic_is_answered_after_its_write(self):
        self.send(send("Known"))
        deadline = monotonic() + LIMIT
        while self.broker.topics.new_name_durability.names:
            self.assertLess(monotonic(), deadline)
        self.gate.clear()
        waiting = self.send(send("New"))
        # A second producer, to whom the topic is not new any more.
        second = self.send(send("New", 10, _batch_body(b"x"), batch="true"))
        known = self.send(send("Known"))
        self.assertEqual([answer.code for answer in self.answers(known, 1)], [0])
        self.assertEqual((waiting.answers(), second.answers()), ([], []))
        self.assertNotIn("New", self.stored_topics())
        self.gate.set()
        self.assertEqual([answer.code for answer in self.answers(waiting, 1) + self.answers(second, 1)], [0, 0])
        self.assertIn("New", self.stored_topics())

    def test_many_new_topics_cost_few_writes(self):
        self.gate.clear()
        connections = [self.send(send(f"New-{number}")) for number in range(500)]
        self.gate.set()
        for connection in connections:
            self.assertEqual([answer.code for answer in self.answers(connection, 1)], [0])
        self.assertLessEqual(self.topic_writes, 3)
        self.assertEqual(len([topic for topic in self.stored_topics() if topic.startswith("New-")]), 500)

    def test_send_to_unwritable_topic_is_not_acknowledged_as_safe(self):
        self.error = OSError(28, "No space left on device")
        (answer,) = self.answers(self.send(send("New")), 1)
        self.assertEqual(answer.code, ResponseCode.FLUSH_DISK_TIMEOUT)
        self.assertIn("msgId", answer.ext_fields)
        self.error = None
        deadline = monotonic() + LIMIT
        while "New" not in self.stored_topics():
            self.assertLess(monotonic(), deadline)
        (answer,) = self.answers(self.send(send("New")), 1)
        self.assertEqual(answer.code, 0)

    def test_half_message_to_new_topic_waits_for_write(self):
        self.gate.clear()
        half = self.send(send("New", properties="TRAN_MSG\x01true\x02UNIQ_KEY\x01K", sysFlag="4"))
        self.assertEqual(half.answers(), [])
        self.gate.set()
        self.assertEqual([answer.code for answer in self.answers(half, 1)], [0])
        self.assertIn("New", self.stored_topics())

    def test_dead_letter_is_answered_after_write_of_topic(self):
        self.answers(self.send(send("T")), 1)
        self.broker.settle()
        ((offset, _, _),) = self.broker.store.queue_entries("T", 0, 0, 1)
        self.gate.clear()
        answers = []
        context = type("Context", (), {"connection": RecordingConnection(), "answer": staticmethod(answers.append)})()
        fields = {"group": "G", "offset": str(offset), "delayLevel": "-1", "originTopic": "T", "originMsgId": "x"}
        request = RemotingCommand(RequestCode.CONSUMER_SEND_MSG_BACK, fields)
        self.assertIsNone(SendBackProcessor(self.broker).process(request, context))
        self.assertEqual(answers, [])
        self.gate.set()
        deadline = monotonic() + LIMIT
        while not answers:
            self.assertLess(monotonic(), deadline)
        self.assertEqual(answers[0].code, 0)
        self.assertIn("%DLQ%G", self.stored_topics())


class SyncFlushSendToNewTopicTests(SendToNewTopicTests):
    """The same if messages wait for their flush, too."""

    options = {"flushDiskType": "SYNC_FLUSH"}


def _batch_body(body):
    size = 4 * 5 + len(body) + 2
    return size.to_bytes(4, "big") + bytes(12) + len(body).to_bytes(4, "big") + body + bytes(2)
