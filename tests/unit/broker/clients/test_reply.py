"""Replies: pushed to the producer that asked, stored, answered; on a real store, the producer is played."""

from types import SimpleNamespace

from twisted.logger import formatEvent, globalLogPublisher
from twisted.trial.unittest import TestCase
from zope.interface.verify import verifyObject

from rocketd.broker.clients.client import ClientChannelInfo
from rocketd.broker.clients.reply import ReplyMessageProcessor
from rocketd.common.message_properties import decode_properties, encode_properties
from rocketd.remoting.bodies.tables import TopicConfig
from rocketd.remoting.errors import RemotingTimeoutError
from rocketd.remoting.headers.client import ReplyMessageRequestHeader, read_header
from rocketd.remoting.interfaces import IRequestProcessor
from rocketd.remoting.wire.codes import RequestCode
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.store.format.message import PutResult, PutStatus
from rocketd.store.format.record import decode_message
from tests.support.broker import RecordingConnection, SmallBroker

TOPIC = "DefaultCluster_REPLY_TOPIC"
PROPERTIES = {"REPLY_TO_CLIENT": "asker", "CORRELATION_ID": "c-1", "MSG_TYPE": "reply", "TTL": "3000", "WAIT": "true"}
PLAIN = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}


class ReplyTestCase(TestCase):
    def setUp(self):
        self.make()
        self.connection = RecordingConnection()
        self.asker = RecordingConnection("127.0.0.1:4098")
        self.producers = self.broker.producers
        self.producers.register("P", ClientChannelInfo(self.asker, "asker", 0, 407, self.broker.now_ms()))
        self.answers = []
        self.counted = []
        self.patch(self.broker.broker_stats, "count_reply", lambda *counted: self.counted.append(counted))

    def make(self, **options):
        self.broker = SmallBroker(self.mktemp(), **options)
        self.broker.start()
        self.addCleanup(self.broker.stop)
        self.processor = ReplyMessageProcessor(self.broker)

    def reply(self, properties=PROPERTIES, body=b"pong", short=True, topic=TOPIC, queue_id=-1, sys_flag=0, more=""):
        names = "abcdefghi" if short else None
        long_names = [
            "producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag", "bornTimestamp",
            "flag", "properties",
        ]  # fmt: skip
        values = ["Q", topic, "TBW102", "4", str(queue_id), str(sys_flag), "1795000000000", "7"]
        fields = dict(zip(names or long_names, [*values, encode_properties(properties) + more], strict=True))
        request = RemotingCommand(325 if short else 324, fields, body)
        context = SimpleNamespace(connection=self.connection, answer=self.answers.append)
        answer = self.processor.process(request, context)
        return self.answers[-1] if answer is None and self.answers else answer

    def pushed(self):
        ((connection, request, timeout_ms),) = self.broker.invoke.sent
        self.assertIs(connection, self.asker)
        self.assertEqual(timeout_ms, 10_000)
        return request

    def end_push(self, result):
        (waiting,) = self.broker.invoke.waiting
        if isinstance(result, RemotingCommand):
            waiting.callback(result)
        else:
            waiting.errback(result)
        (answer,) = self.answers
        return answer

    def stored(self):
        return [decode_message(self.broker.store.look_message(0))] if self.broker.store.max_physical_offset() else []


class ReplyTests(ReplyTestCase):
    def test_reply_to_topic_with_negative_queue_count_is_pushed(self):
        self.broker.topics.update(TopicConfig("Odd", 1, -4))
        self.reply(topic="Odd")
        self.assertEqual(self.pushed().body, b"pong")

    def test_interface(self):
        verifyObject(IRequestProcessor, self.processor)

    def test_reply_is_pushed_and_stored(self):
        for short in (True, False):
            self.assertIsNone(self.reply(short=short))
            request = self.pushed()
            self.assertEqual(request.code, RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT)
            header = read_header(ReplyMessageRequestHeader, request)
            self.assertEqual((header.producer_group, header.topic, header.queue_id), ("Q", TOPIC, -1))
            self.assertEqual((header.born_host, header.store_host), ("127.0.0.1:4097", "127.0.0.1:10911"))
            self.assertEqual((header.store_timestamp, header.flag), (self.broker.now_ms(), 7))
            told = decode_properties(header.properties)
            self.assertEqual(told.pop("PUSH_REPLY_TIME"), str(self.broker.now_ms()))
            self.assertEqual(told, PROPERTIES)
            self.assertEqual(request.body, b"pong")
            begin = self.broker.store.max_physical_offset()
            answer = self.end_push(RemotingCommand.response())
            self.assertEqual((answer.code, answer.remark), (0, None))
            self.assertEqual(answer.ext_fields.pop("msgId"), f"7F00000100002A9F{begin:016X}")
            self.assertEqual(answer.ext_fields.pop("queueId"), "0")
            self.assertEqual(answer.ext_fields.pop("queueOffset"), "0" if short else "1")
            self.assertEqual(answer.ext_fields, PLAIN)
            record = decode_message(self.broker.store.look_message(begin))
            self.assertEqual((record.topic, record.body, record.flag), (TOPIC, b"pong", 7))
            self.assertEqual(record.properties_map(), PROPERTIES)
            self.assertEqual(self.counted, [(TOPIC, record.store_size)] * (1 if short else 2))
            self.broker.invoke.sent.clear()
            self.broker.invoke.waiting.clear()
            self.answers.clear()

    def test_reply_is_not_stored_if_disabled(self):
        self.broker.settings.broker.store_reply_message_enable = False
        self.reply()
        answer = self.end_push(RemotingCommand.response())
        self.assertEqual(answer.ext_fields, {**PLAIN, "msgId": "0", "queueId": "0", "queueOffset": "0"})
        self.assertEqual(self.stored(), [])

    def test_reply_to_absent_producer_is_stored(self):
        answer = self.reply({**PROPERTIES, "REPLY_TO_CLIENT": "gone"})
        self.assertEqual((answer.code, answer.remark), (1, "push reply message fail, channel of <gone> not found."))
        self.assertEqual(answer.ext_fields["msgId"], "7F00000100002A9F0000000000000000")
        self.assertEqual(self.stored()[0].body, b"pong")

    def test_reply_without_client_property_is_refused(self):
        self.broker.settings.broker.store_reply_message_enable = False
        answer = self.reply({"MSG_TYPE": "reply"})
        self.assertEqual((answer.code, answer.remark), (1, "reply message properties[REPLY_TO_CLIENT] is null"))
        self.assertEqual(answer.ext_fields, PLAIN)

    def test_reply_refused_by_producer_is_stored(self):
        self.reply()
        answer = self.end_push(RemotingCommand.response(1, "no such request"))
        self.assertEqual((answer.code, answer.remark), (1, "push reply message to askerfail."))
        self.assertEqual(self.stored()[0].body, b"pong")

    def test_reply_push_timeout_is_answered(self):
        self.reply()
        answer = self.end_push(RemotingTimeoutError("no answer"))
        self.assertEqual((answer.code, answer.remark), (1, "push reply message to askerfail."))

    def test_reply_push_succeeds_despite_store_refusal(self):
        self.patch(
            self.broker.store, "put_messages", lambda _: [PutResult(PutStatus.SERVICE_NOT_AVAILABLE, cause="full")]
        )
        self.reply()
        answer = self.end_push(RemotingCommand.response())
        self.assertEqual((answer.code, answer.ext_fields["msgId"]), (0, "0"))

    def test_refused_replies_leave_one_line(self):
        events = []
        globalLogPublisher.addObserver(events.append)
        self.addCleanup(globalLogPublisher.removeObserver, events.append)
        full = PutResult(PutStatus.SERVICE_NOT_AVAILABLE, cause="full")
        self.patch(self.broker.store, "put_messages", lambda _: [full])
        for _ in range(20):
            self.reply({**PROPERTIES, "REPLY_TO_CLIENT": "gone"})
        self.assertEqual(sum("a reply was not stored" in formatEvent(event) for event in events), 1)

    def test_reply_store_failure_is_logged(self):
        def fail(messages):
            raise OSError("broken")

        self.patch(self.broker.store, "put_messages", fail)
        self.reply()
        self.assertEqual(self.end_push(RemotingCommand.response()).code, 0)
        self.assertEqual(len(self.flushLoggedErrors(OSError)), 1)

    def test_reply_with_compressed_body_keeps_flag(self):
        self.reply({**PROPERTIES, "REPLY_TO_CLIENT": "gone"}, sys_flag=0x1 | 0x300 | 0x4)
        self.assertEqual(self.stored()[0].sys_flag, 0x1 | 0x300)

    def test_reply_with_delay(self):
        self.reply({**PROPERTIES, "REPLY_TO_CLIENT": "gone", "DELAY": "2"})
        record = self.stored()[0]
        self.assertEqual((record.topic, record.queue_id), ("SCHEDULE_TOPIC_XXXX", 1))
        self.assertEqual(record.properties_map()["REAL_TOPIC"], TOPIC)

    def test_reply_is_found_by_each_of_its_keys(self):
        self.reply({**PROPERTIES, "REPLY_TO_CLIENT": "gone", "KEYS": "one two"}, more="\x02KEYS\x01three")
        self.broker.settle()
        for key in ("one", "two", "three"):
            self.assertEqual(len(self.broker.store.query_messages(TOPIC, key, 9, 0, 1 << 60).buffers), 1, key)

    def test_reply_with_a_zero_at_its_end_does_not_look_torn(self):
        self.reply({**PROPERTIES, "REPLY_TO_CLIENT": "gone"}, more="\x02NAME\x01value\0")
        self.assertEqual(self.stored()[0].properties[-2:], b"\0\x02")

    def test_reply_is_pushed_over_old_connection_after_new_one_has_closed(self):
        young = RecordingConnection("127.0.0.1:4099")
        self.producers.register("P", ClientChannelInfo(young, "asker", 0, 407, self.broker.now_ms()))
        self.producers.connection_closed(young)
        self.reply()
        self.assertEqual(self.pushed().body, b"pong")

    def test_reply_with_damaged_delay_is_refused_before_its_push(self):
        answer = self.reply({**PROPERTIES, "DELAY": "4Pinpoint-Flags\x010"})
        self.assertEqual((answer.code, answer.ext_fields), (13, PLAIN))
        self.assertEqual((self.broker.invoke.sent, self.stored()), ([], []))

    def test_reply_is_refused_as_a_send(self):
        self.broker.settings.broker.auto_create_topic_enable = False
        self.broker.topics.delete("TBW102")
        answer = self.reply(topic="Unknown")
        self.assertEqual(answer.code, 17)
        self.assertEqual(answer.ext_fields, PLAIN)
        self.assertEqual(self.reply(topic="SCHEDULE_TOPIC_XXXX").code, 16)
        self.assertEqual(self.reply(queue_id=9).code, 1)
        self.assertEqual(self.broker.invoke.sent, [])


class SyncFlushTests(ReplyTestCase):
    def make(self):
        super().make(flushDiskType="SYNC_FLUSH")

    def test_reply_is_answered_after_flush(self):
        flushed = []
        self.patch(self.broker.store, "when_flushed", lambda offset, callback: flushed.append(callback))
        self.reply({**PROPERTIES, "REPLY_TO_CLIENT": "gone"})
        self.assertEqual(self.answers, [])
        flushed[0](PutStatus.FLUSH_DISK_TIMEOUT)
        self.assertEqual(self.answers[0].ext_fields["queueOffset"], "0")
