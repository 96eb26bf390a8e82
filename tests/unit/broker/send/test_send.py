"""Sends on a real store: stored records and answers. Recorded frames of unmodified clients are included."""

import json
import os
from struct import pack

from twisted.logger import Logger, formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from rocketd.broker.send.processor import SendMessageProcessor
from rocketd.common.java_hash import java_string_hash
from rocketd.common.logs.throttle import ThrottledLog
from rocketd.common.message_properties import decode_properties
from rocketd.remoting import problems
from rocketd.remoting.bodies.tables import SubscriptionGroupConfig, TopicConfig, TopicFilterType
from rocketd.remoting.errors import RequestError
from rocketd.remoting.interfaces import IConnection, IJobProcessor
from rocketd.remoting.limits.limit_log import LimitLog
from rocketd.remoting.serving.pools import Job
from rocketd.remoting.wire.codes import ResponseCode, SerializeType
from rocketd.remoting.wire.command import ONEWAY_FLAG, RemotingCommand
from rocketd.store.format.message import PutResult, PutStatus
from rocketd.store.format.record import decode_message, decode_messages
from tests.support.broker import InlineDispatcher, RecordingConnection, SmallBroker, job_of
from tests.support.places import FRAMES

SHORT = dict(
    zip(
        [
            "producerGroup",
            "topic",
            "defaultTopic",
            "defaultTopicQueueNums",
            "queueId",
            "sysFlag",
            "bornTimestamp",
            "flag",
            "properties",
            "reconsumeTimes",
            "unitMode",
            "maxReconsumeTimes",
            "batch",
            "bname",
        ],
        "abcdefghijklmn",
        strict=True,
    )
)
ALL = ["MSG_REGION", "TRACE_ON", "msgId", "queueId", "queueOffset"]
REGION_ONLY = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}


def long_fields(topic="T", queue_id=0, properties="", **more):
    return {
        "producerGroup": "P",
        "topic": topic,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": str(queue_id),
        "sysFlag": "0",
        "bornTimestamp": "1700000000000",
        "flag": "0",
        "properties": properties,
        "reconsumeTimes": "0",
        "unitMode": "false",
        "batch": "false",
        **more,
    }


def send(*args, body=b"hello", code=310, command_flag=0, serialize_type=SerializeType.JSON, version=407, **more):
    fields = long_fields(*args, **more)
    if code != 10:
        fields = {SHORT[name]: value for name, value in fields.items()}
    return RemotingCommand(code, fields, body, flag=command_flag, serialize_type=serialize_type, version=version)


def in_batch(body, properties=b"", flag=0):
    size = 4 * 5 + len(body) + 2 + len(properties)
    return pack(">iiiii", size, 0, 0, flag, len(body)) + body + pack(">h", len(properties)) + properties


def batch(*messages, **more):
    return send(code=320, body=b"".join(messages), batch="true", **more)


class SendTestCase(SynchronousTestCase):
    options = {}

    def setUp(self):
        self.broker = SmallBroker(os.path.abspath(self.mktemp()), **self.options)
        self.broker.start()
        self.addCleanup(self.broker.stop)
        self.broker.topics.update(TopicConfig("T", 4, 4))
        self.processor = SendMessageProcessor(self.broker)
        self.connection = RecordingConnection()

    def process(self, *commands, age_ms=0):
        self.processor.process_jobs([job_of(self.processor, self.connection, *commands, age_ms=age_ms)])

    def ask(self, command):
        self.process(command)
        answer = self.connection.answer()
        self.assertEqual((answer.opaque, answer.serialize_type), (command.opaque, command.serialize_type))
        self.assertTrue(answer.is_response)
        return answer

    def refused(self, command):
        """Return code and Apache's part of the remark of a send that was not stored."""
        before = self.broker.store.max_physical_offset()
        answer = self.ask(command)
        self.assertEqual(self.broker.store.max_physical_offset(), before)
        self.assertEqual(answer.ext_fields, REGION_ONLY)
        return answer.code, answer.remark.partition("; cause: ")[0]

    def stored(self):
        """Decode the whole log."""
        log = self.broker.store.commit_log
        return decode_messages(log.select(0, log.max_offset)) if log.max_offset else []

    def last(self):
        return self.stored()[-1]


class SingleTests(SendTestCase):
    def test_interfaces(self):
        verifyObject(IJobProcessor, self.processor)
        verifyObject(IConnection, self.connection)

    def test_send_encodings_store_equal_messages(self):
        for code in (10, 310):
            for serialize_type in SerializeType:
                answer = self.ask(
                    send("T", 2, "TAGS\x01A\x02KEYS\x01k l\x02UNIQ_KEY\x01u\x02WAIT\x01true\x02mine\x01x\x02",
                         code=code, serialize_type=serialize_type)
                )  # fmt: skip
                self.assertEqual((answer.code, answer.remark, sorted(answer.ext_fields)), (0, None, ALL))
                message = self.last()
                self.assertEqual(
                    (message.topic, message.queue_id, message.body, message.born_timestamp, message.born_host),
                    ("T", 2, b"hello", 1700000000000, self.connection.host),
                )
                self.assertEqual(
                    message.properties,
                    b"TAGS\x01A\x02KEYS\x01k l\x02UNIQ_KEY\x01u\x02mine\x01x\x02CLUSTER\x01DefaultCluster",
                )
                self.assertEqual(answer.ext_fields["queueId"], "2")
                self.assertEqual(answer.ext_fields["queueOffset"], str(message.queue_offset))
                self.assertEqual(
                    answer.ext_fields["msgId"], f"{self.broker.store_host.hex()}{message.physical_offset:016x}".upper()
                )
        self.assertEqual([message.queue_offset for message in self.stored()], [0, 1, 2, 3])
        self.broker.settle()
        entries = self.broker.store.queue_entries("T", 2, 0, 10)
        self.assertEqual({entry[2] for entry in entries}, {java_string_hash("A")})
        for key in ("u", "k", "l"):
            self.assertEqual(len(self.broker.store.query_messages("T", key, 10, 0, 1 << 60).buffers), 4)

    def test_fast_and_ordinary_answers_have_same_header(self):
        fast = self.ask(send())
        self.broker.dispatcher.answers.hooks = (Hook(),)
        ordinary = self.ask(send())
        self.assertEqual(set(fast.ext_fields), set(ordinary.ext_fields))
        self.assertEqual((fast.language, fast.version, fast.flag), (ordinary.language, ordinary.version, ordinary.flag))

    def test_odd_headers_are_read_as_in_apache(self):
        for header in (
            b'{"code":310,"flag":0,"language":"CPP","opaque":5,"version":"401","extFields":%b}',
            b'{"opaque":5, "extFields":%b, "code":310, "flag":0, "language":4, "version":3}',
        ):
            fields = {SHORT[name]: value for name, value in long_fields(bornTimestamp="+01700000000000").items()}
            text = header % json.dumps(fields).encode()
            self.process(pack(">ii", 4 + len(text) + 1, len(text)) + text + b"x")
            answer = self.connection.answer()
            self.assertEqual((answer.code, answer.opaque), (0, 5))
            self.assertEqual((self.last().body, self.last().born_timestamp), (b"x", 1700000000000))

    def test_header_with_json_values_is_read(self):
        fields = {
            "a": "P", "b": "T", "c": "TBW102", "d": 4, "e": 1, "f": 0, "g": 1700000000000, "h": 0, "i": "", "j": 0,
            "k": False, "m": False,
        }  # fmt: skip
        text = json.dumps({"code": 310, "extFields": fields, "flag": 0, "language": "OTHER", "opaque": 9, "version": 1})
        self.process(pack(">ii", 4 + len(text), len(text)) + text.encode())
        self.assertEqual(self.connection.answer().ext_fields["queueId"], "1")
        self.assertEqual(self.last().body, b"")

    def test_oneway_is_stored_and_not_answered(self):
        self.process(
            send(command_flag=ONEWAY_FLAG), send(command_flag=ONEWAY_FLAG, serialize_type=SerializeType.ROCKETMQ)
        )
        self.assertEqual(len(self.stored()), 2)
        self.process(send("%%bad topic", command_flag=ONEWAY_FLAG))
        self.assertEqual(self.connection.written, [])

    def lost(self):
        """How many one-way requests are counted as lost, and the lines that tell of them."""
        lost = self.broker.dispatcher.limits.counts.get("one-way requests lost", 0)
        return lost, [line for line in self.lines if line.startswith("one-way requests are lost")]

    def log_lines(self):
        self.lines = []

        def observe(event):
            self.lines.append(formatEvent(event))

        globalLogPublisher.addObserver(observe)
        self.addCleanup(globalLogPublisher.removeObserver, observe)

    def test_oneway_on_a_full_disk_is_counted_and_logged_once(self):
        self.log_lines()
        self.broker.set_disk_full(True)
        self.process(*[send(command_flag=ONEWAY_FLAG) for _ in range(1000)])
        count, (line,) = self.lost()
        self.assertEqual((count, self.stored()), (1000, []))
        self.assertIn("a send to T: service not available now", line)

    def test_refused_oneway_is_counted_and_logged_with_reason(self):
        self.log_lines()
        for command, reason in (
            (send(body=b"x" * (5 << 20)), "message is illegal"),
            (send(queue_id=999), "queueId[999]"),
            (batch(b"\x00\x00\x00\x01"), "batch"),
            (send("%%bad topic"), "%%bad topic"),
        ):
            with self.subTest(reason):
                self.broker.dispatcher.answers.limits = LimitLog(Logger())
                self.lines.clear()
                command.flag = ONEWAY_FLAG
                self.process(command, command)
                count, (line,) = self.lost()
                self.assertEqual(count, 2)
                self.assertIn(reason, line)
        self.assertEqual((self.stored(), self.connection.written), ([], []))

    def test_oneway_refused_by_disk_slave_and_stepped_down_master_is_counted_by_reason(self):
        self.log_lines()
        oneway = send(command_flag=ONEWAY_FLAG)
        self.broker.set_disk_full(True)
        self.process(oneway, oneway, oneway)
        self.broker.set_disk_full(False)
        self.broker.store.refuse_puts("another master serves")
        self.process(oneway, oneway)
        self.broker.store.accept_puts()
        self.broker.settings.store.broker_role = "SLAVE"
        self.process(oneway)
        self.process(send("%%bad topic", command_flag=ONEWAY_FLAG))
        table = self.broker.dispatcher.limits.table()
        self.assertEqual(table["limitOneWayRequestsLost"], "7")
        self.assertEqual(table["limitOneWayRequestsLostServiceNotAvailable"], "3")
        self.assertEqual(table["limitOneWayRequestsLostSteppedDown"], "2")
        self.assertEqual(table["limitOneWayRequestsLostSentToSlave"], "1")
        self.assertEqual(table["limitOneWayRequestsLostSystemError"], "1")
        self.assertEqual((len(self.lost()[1]), self.stored()), (4, []))

    def test_oneway_with_an_unreadable_header_is_counted_and_logged(self):
        self.log_lines()
        for serialize_type in SerializeType.JSON, SerializeType.ROCKETMQ:
            self.broker.dispatcher.answers.limits = LimitLog(Logger())
            self.lines.clear()
            self.process(send(command_flag=ONEWAY_FLAG, serialize_type=serialize_type, queueId="two"))
            self.assertEqual(self.lost()[0], 1)
            self.assertIn("two", "".join(self.lines))
            self.broker.dispatcher.answers.peer_log = ThrottledLog(Logger())
        self.assertEqual(self.connection.written, [])

    def test_broker_chooses_queue_for_negative_queue_id(self):
        chosen = {self.ask(send("T", -1)).ext_fields["queueId"] for _ in range(100)}
        self.assertEqual(chosen, {"0", "1", "2", "3"})
        self.assertEqual(sorted({str(message.queue_id) for message in self.stored()}), sorted(chosen))

    def test_jobs_are_processed_in_order_with_one_write_per_connection(self):
        other = RecordingConnection("127.0.0.1:4098")
        commands = [send("T", n % 4, body=b"%d" % n) for n in range(10)]
        self.processor.process_jobs(
            [
                job_of(self.processor, self.connection, *commands[:4]),
                job_of(self.processor, other, *commands[4:7]),
                job_of(self.processor, self.connection, *commands[7:]),
            ]
        )
        self.assertEqual((len(self.connection.written), len(other.written)), (1, 1))
        self.assertEqual([a.opaque for a in other.answers()], [c.opaque for c in commands[4:7]])
        self.assertEqual([a.opaque for a in self.connection.answers()], [c.opaque for c in commands[:4] + commands[7:]])
        self.assertEqual([message.body for message in self.stored()], [b"%d" % n for n in range(10)])

    def test_multi_tag_topics_mark_their_messages(self):
        self.broker.topics.update(TopicConfig("M", 1, 1, topic_filter_type=TopicFilterType.MULTI_TAG))
        self.ask(send("M"))
        self.ask(batch(in_batch(b"a"), topic="M"))
        self.assertEqual([message.sys_flag for message in self.stored()], [2, 2])

    def test_ipv6_senders(self):
        self.connection.host = bytes(range(16)) + pack(">i", 1)
        self.ask(send())
        self.assertEqual((self.last().born_host, self.last().sys_flag), (self.connection.host, 0x10))

    def test_host_flags_of_sender_are_ignored(self):
        self.ask(send(sysFlag=str(0x31)))
        self.ask(send())
        self.assertEqual(
            [(m.sys_flag, m.born_host) for m in self.stored()], [(1, self.connection.host), (0, self.connection.host)]
        )

    def test_region_and_trace_switch_may_change(self):
        self.broker.settings.broker.trace_on = False
        for region in ('mine "100%d"', "\0\1\2\3", "\\u0001\\u0003", '"opaque":0'):
            self.broker.settings.broker.region_id = region
            for command in (send(), batch(in_batch(b"a"), in_batch(b"b"))):
                answer = self.ask(command)
                self.assertEqual(answer.ext_fields["MSG_REGION"], region)
                self.assertEqual(answer.ext_fields["TRACE_ON"], "false")

    def test_response_among_sends_goes_to_invoke_layer(self):
        taken = []
        self.broker.dispatcher.answers.take_response = lambda connection, command: taken.append(command.opaque)
        self.process(RemotingCommand(310, opaque=77, flag=1), send())
        self.assertEqual((taken, len(self.connection.answers())), ([77], 1))

    def test_recorded_sends_are_answered_as_apache_did(self):
        count = 0
        for name in ("java4", "java4bin", "go", "node", "python"):
            for line in (FRAMES / f"{name}.jsonl").read_text().splitlines():
                record = json.loads(line)
                if record["kind"] == "response" or record["code"] not in (10, 310, 320):
                    continue
                raw = bytes.fromhex(record["hex"])
                self.process(raw)
                count += 1
                if record["kind"] == "request":
                    answer = self.connection.answer()
                    if answer.code:
                        self.assertIn(answer.code, (13, 16), record["name"])
                        continue
                    self.assertEqual(sorted(answer.ext_fields), ALL)
                self.assertEqual(self.connection.written, [])
        self.assertGreater(count, 40)
        self.assertGreater(len(self.stored()), 40)


class Hook:
    def before_request(self, address, request):
        if request.ext_fields.get("b") == "Secret":
            raise RequestError(ResponseCode.NO_PERMISSION, "not for you")

    def after_response(self, address, request, response):
        """Not of interest."""


class RefusalTests(SendTestCase):
    def test_system_topics(self):
        for topic in ("SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "OFFSET_MOVED_EVENT", "SELF_TEST_TOPIC"):
            self.assertEqual(self.refused(send(topic)), (16, f"Sending message to topic[{topic}] is forbidden."))

    def test_send_to_invalid_topic_names_is_refused(self):
        self.assertEqual(self.refused(send(" ")), (1, "The specified topic is blank."))
        self.assertEqual(self.refused(send("a" * 128)), (1, "The specified topic is longer than topic max length."))
        self.assertEqual(
            self.refused(send("ä")),
            (1, "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        )

    def test_send_to_invalid_queue_id_is_refused(self):
        self.broker.topics.update(TopicConfig("T", 6, 4))
        for queue_id in (4, 5):
            self.assertEqual(self.ask(send("T", queue_id)).code, 0)
        self.assertEqual(
            self.refused(send("T", 6)),
            (
                1,
                "request queueId[6] is illegal, TopicConfig [topicName=T, readQueueNums=6, writeQueueNums=4, perm=RW-, "
                "topicFilterType=SINGLE_TAG, topicSysFlag=0, order=false] Producer: 127.0.0.1:4097",
            ),
        )
        self.assertIn("<e> is out of range", self.ask(send("T", 2**40)).remark)

    def test_reduced_queue_count_applies_at_once(self):
        self.assertEqual(self.ask(send("T", 3)).code, 0)
        self.broker.topics.update(TopicConfig("T", 2, 2))
        self.assertEqual(self.refused(send("T", 3))[0], 1)

    def test_send_before_accept_time_is_refused(self):
        self.ask(send())
        self.broker.settings.broker.start_accept_send_request_time_stamp = self.broker.now_ms() + 1
        code, remark = self.refused(send())
        self.assertEqual(code, 1)
        self.assertRegex(remark, r"^broker unable to service, until \d{4}-\d\d-\d\d \d\d:\d\d:\d\d,001$")
        self.broker.clock.advance(1)
        self.assertEqual(self.ask(send()).code, 0)

    def test_read_only_brokers_refuse_ordered_topics_only(self):
        self.ask(send())
        self.broker.settings.broker.broker_permission = 4
        self.assertEqual(self.ask(send()).code, 0)
        self.broker.topics.update_order_topics(["T"])
        self.assertEqual(self.refused(send()), (16, "the broker[127.0.0.1] sending message is forbidden"))

    def test_oversized_send_is_refused(self):
        self.broker.settings.store.max_message_size = 1000
        limit = (13, "the message is illegal, maybe msg body or properties length not matched. msg body length limit "
                     "1000B, msg properties length limit 32KB.")  # fmt: skip
        self.assertEqual(self.refused(send(body=b"x" * 1001)), limit)
        self.assertEqual(self.refused(batch(in_batch(b"x" * 1001))), limit)
        self.assertEqual(self.ask(send(body=b"x" * 1000)).code, 0)
        for text in ("x" * 32766, "é" * 16383):
            answer = self.ask(send(properties="a\x01" + text))
            self.assertEqual(answer.code, 13)
            self.assertTrue(answer.remark.startswith(limit[1]))
            self.assertTrue(answer.remark.endswith("[properties-too-long]"))
            self.assertNotIn("maxMessageSize", answer.remark)

    def test_half_messages(self):
        self.broker.settings.broker.reject_transaction_message = True
        self.assertEqual(
            self.refused(send(properties="TRAN_MSG\x01true\x02PGROUP\x01P", sysFlag="4")),
            (16, "the broker[127.0.0.1] sending transaction message is forbidden"),
        )
        self.assertEqual(self.ask(send(properties="TRAN_MSG\x01false")).code, 0)

    def test_missing_and_wrong_fields(self):
        for name, value, said in (
            ("topic", None, "the custom field <b> is null"),
            ("bornTimestamp", "soon", "<g> should be a whole number"),
        ):
            fields = send().ext_fields
            fields.pop(SHORT[name]) if value is None else fields.update({SHORT[name]: value})
            answer = self.ask(RemotingCommand(310, fields, b"x"))
            self.assertEqual(answer.code, 1)
            self.assertIn(said, answer.remark)
        self.assertEqual(self.stored(), [])

    def test_send_with_number_overflow_leaves_other_sends_alone(self):
        for name, value in (
            ("flag", 2**31), ("sysFlag", 2**31), ("bornTimestamp", 2**63), ("reconsumeTimes", 2**40),
        ):  # fmt: skip
            for bad in (send(**{name: str(value)}), batch(in_batch(b"b"), **{name: str(value)})):
                self.process(send(), bad, send())
                answers = {answer.opaque: answer for answer in self.connection.answers()}
                self.assertEqual(sorted(answer.code for answer in answers.values()), [0, 0, 1])
                self.assertIn("is out of range", answers[bad.opaque].remark)
        self.assertEqual([message.queue_offset for message in self.stored()], list(range(16)))
        self.assertEqual(self.ask(send(flag="0", reconsumeTimes="-1", bornTimestamp="-5", sysFlag="8")).code, 0)
        self.assertEqual((self.last().reconsume_times, self.last().born_timestamp), (-1, -5))

    def test_invalid_utf8_properties_are_answered(self):
        text = send(properties="a\x01?").encode()[8:-5].replace(b"?", b"\xff")
        self.process(send(), pack(">ii", 4 + len(text), len(text)) + text, send())
        self.assertEqual(len(self.connection.answers()), 3)

    def test_malformed_header_closes_its_connection_only(self):
        other = RecordingConnection("127.0.0.1:4098")
        bad = Job(self.processor, self.connection, [(0, b'{"code":310', b"")], 0)
        self.processor.process_jobs([bad, job_of(self.processor, other, send())])
        self.assertTrue(self.connection.closed)
        self.assertEqual(other.answer().code, 0)

    def test_internal_error_fails_one_send_only(self):
        builder = self.processor._builder

        class FailingBuilder:
            def single(self, header, destination, host, body, now_ms):
                if body == b"bad":
                    raise KeyError("oops")
                return builder.single(header, destination, host, body, now_ms)

        self.processor._builder = FailingBuilder()
        self.process(send(), send(body=b"bad"), send())
        self.assertEqual(sorted(answer.code for answer in self.connection.answers()), [0, 0, 1])
        self.assertEqual(len(self.flushLoggedErrors(KeyError)), 1)

    def test_store_error_is_answered(self):
        def failing(messages):
            raise RuntimeError("torn")

        self.broker.store.put_messages = failing
        self.process(send(), send())
        self.assertEqual(
            [(a.code, a.remark) for a in self.connection.answers()], [(1, problems.PROCESSOR_FAILED.text(code=310))] * 2
        )
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1, "of both, within a minute")

    def test_statuses_of_the_store(self):
        for status, code, text in (
            (PutStatus.SERVICE_NOT_AVAILABLE, 14, "service not available now. It may be caused by one of the following "
             "reasons: the broker's disk is full [CL:  0.50 CQ:  0.50 INDEX:  0.50], messages are put to the slave, "
             "message store has been shut down, etc."),
            (PutStatus.STEPPED_DOWN, 14, "service not available now: this master has stepped down; cause: why"),
            (PutStatus.CREATE_MAPEDFILE_FAILED, 1, "create mapped file failed, server is busy or broken."),
            (PutStatus.OS_PAGECACHE_BUSY, 1, "[PC_SYNCHRONIZED]broker busy, start flow control for a while"),
            (PutStatus.UNKNOWN_ERROR, 1, "UNKNOWN_ERROR"),
        ):  # fmt: skip
            self.broker.store.put_messages = lambda messages, s=status: [PutResult(s, cause="why")]
            answer = self.ask(send())
            self.assertEqual((answer.code, answer.ext_fields), (code, REGION_ONLY))
            self.assertTrue(answer.remark.startswith(text), answer.remark)
            self.assertIn("; cause: why", answer.remark)

    def test_hook_refusals_are_answered(self):
        self.broker.dispatcher.answers.hooks = (Hook(),)
        self.broker.topics.update(TopicConfig("Secret", 1, 1))
        answer = self.ask(send("Secret"))
        self.assertEqual((answer.code, answer.remark), (ResponseCode.NO_PERMISSION, "not for you"))
        self.assertEqual(self.stored(), [])

    def test_send_waiting_too_long_is_refused(self):
        self.process(send(), send(command_flag=ONEWAY_FLAG), age_ms=250)
        answer = self.connection.answer()
        self.assertEqual(answer.code, 2)
        self.assertRegex(
            answer.remark,
            r"^\[TIMEOUT_CLEAN_QUEUE\]broker busy, start flow control for a while, period in queue: 2[5-9]\dms, "
            rf"size of queue: {InlineDispatcher.queued_requests}; cause: the request waited longer than 200 ms; the "
            r"slowest step of the last seconds was append to the log, 12 ms \(setting waitTimeMillsInSendQueue\)",
        )
        self.assertEqual(len(self.stored()), 1)
        self.process(send(), age_ms=100)
        self.assertEqual(self.connection.answer().code, 0)


class BatchTests(SendTestCase):
    def test_batch_messages_get_consecutive_offsets_and_properties(self):
        command = batch(
            in_batch(b"a", b"TAGS\x01A\x02UNIQ_KEY\x01u1\x02", flag=3), in_batch(b"b"), in_batch(b"", b"KEYS\x01k"),
            queue_id=1, properties="WAIT\x01true\x02",
        )  # fmt: skip
        answer = self.ask(command)
        self.assertEqual((answer.code, sorted(answer.ext_fields)), (0, ALL))
        messages = self.stored()
        ids = [f"{self.broker.store_host.hex()}{m.physical_offset:016x}".upper() for m in messages]
        self.assertEqual(answer.ext_fields["msgId"], ",".join(ids))
        self.assertEqual((answer.ext_fields["queueId"], answer.ext_fields["queueOffset"]), ("1", "0"))
        self.assertEqual([m.queue_offset for m in messages], [0, 1, 2])
        self.assertEqual([(m.body, m.flag) for m in messages], [(b"a", 3), (b"b", 0), (b"", 0)])
        self.assertEqual(
            decode_properties(messages[0].properties.decode()),
            {"TAGS": "A", "UNIQ_KEY": "u1", "WAIT": "true", "CLUSTER": "DefaultCluster"},
        )
        self.assertEqual(messages[2].properties, b"KEYS\x01k\x02WAIT\x01true\x02CLUSTER\x01DefaultCluster")
        self.broker.settle()
        self.assertEqual(len(self.broker.store.query_messages("T", "u1", 10, 0, 1 << 60).buffers), 1)
        self.assertEqual(self.broker.store.queue_entries("T", 1, 0, 9)[0][2], java_string_hash("A"))

    def test_batch_is_answered_as_by_the_encoder(self):
        self.broker.settings.broker.region_id = 'r%d"'
        command = batch(in_batch(b"a"), in_batch(b"b"), queue_id=1)
        self.process(command)
        host = self.broker.store_host.hex().upper()
        ids = ",".join([f"{host}{m.physical_offset:016X}" for m in self.stored()])
        fields = {"MSG_REGION": 'r%d"', "TRACE_ON": "true", "msgId": ids, "queueId": "1", "queueOffset": "0"}
        answer = RemotingCommand.response(0, None, fields)
        answer.opaque = command.opaque
        self.assertEqual(self.connection.written, [answer.encode()])

    def test_batch_flag_of_1_is_not_a_batch(self):
        """The C++ client says so of its batches."""
        body = in_batch(b"a") + in_batch(b"b")
        for code in (10, 310):
            for serialize_type in SerializeType:
                command = send(code=code, body=body, batch="1", serialize_type=serialize_type)
                self.assertEqual(self.ask(command).code, 0)
        self.assertEqual([m.body for m in self.stored()], [body] * 4)

    def test_batches_and_singles_keep_their_order(self):
        self.process(send(body=b"1"), send(body=b"2"), batch(in_batch(b"3"), in_batch(b"4")), send(body=b"5"))
        self.assertEqual([m.body for m in self.stored()], [b"1", b"2", b"3", b"4", b"5"])
        self.assertEqual(len(self.connection.answers()), 4)

    def test_malformed_batch_is_refused_as_a_whole(self):
        good = in_batch(b"good")
        for body in (
            b"", b"\0", good[:-1], good + b"\0\0", good + in_batch(b"x")[:21], pack(">iiiii", 22, 0, 0, 0, 5) + b"\0\0",
            pack(">iiiii", 22, 0, 0, 0, -1) + b"\0\0", pack(">i", 99) + good[4:],
        ):  # fmt: skip
            code, remark = self.refused(batch(body))
            self.assertEqual(code, 13)
            self.assertTrue(remark.startswith("the message is illegal, maybe msg body or properties length"))
        self.assertEqual(self.ask(batch(good)).code, 0)

    def test_delayed_and_transactional_batches_are_refused(self):
        for properties in ("DELAY\x013", "TIMER_DELAY_SEC\x013", "TIMER_DELIVER_MS\x01999"):
            self.assertEqual(self.refused(batch(in_batch(b"x"), properties=properties))[0], 13)
        self.assertEqual(self.refused(batch(in_batch(b"x"), sysFlag="4"))[0], 13)

    def test_code_310_may_carry_a_batch(self):
        self.ask(send(body=in_batch(b"a") + in_batch(b"b"), batch="true"))
        self.assertEqual([m.body for m in self.stored()], [b"a", b"b"])


class TopicTests(SendTestCase):
    def test_topic_gets_lesser_queue_count_of_template_and_request(self):
        for topic, asked, made in (("A", "4", 4), ("B", "100", 8)):
            self.assertEqual(self.ask(send(topic, defaultTopicQueueNums=asked)).code, 0)
            self.assertEqual(self.broker.topics.select(topic), TopicConfig(topic, made, made, 6))

    def test_send_without_template_topic_is_refused(self):
        self.assertEqual(
            self.refused(send("New", defaultTopic="Nothing")),
            (
                17,
                "topic[New] not exist, apply first please!\nSee http://rocketmq.apache.org/docs/faq/ for further details.",
            ),
        )

    def test_retry_topics_need_no_template(self):
        self.assertEqual(self.ask(send("%RETRY%G", defaultTopic="Nothing")).code, 0)
        self.assertEqual(self.broker.topics.select("%RETRY%G"), TopicConfig("%RETRY%G", 1, 1, 6))

    def test_unit_mode_marks_new_topic(self):
        self.ask(send("U", unitMode="true"))
        self.assertEqual(self.broker.topics.select("U").topic_sys_flag, 1)


class NoAutoCreateTests(SendTestCase):
    options = {"autoCreateTopicEnable": "false"}

    def test_unknown_topics_are_refused(self):
        answer = self.ask(send("New"))
        self.assertEqual(answer.code, 17)
        self.assertIn("autoCreateTopicEnable=false", answer.remark)
        self.assertEqual(self.ask(send()).code, 0)


class RetryTests(SendTestCase):
    def retry(self, times, **more):
        return send("%RETRY%G", reconsumeTimes=str(times), **more)

    def test_exhausted_retries_become_dead_letters(self):
        self.ask(self.retry(15))
        answer = self.ask(self.retry(16))
        self.assertEqual([m.topic for m in self.stored()], ["%RETRY%G", "%DLQ%G"])
        self.assertEqual((answer.ext_fields["queueId"], self.last().queue_id), ("0", 0))
        self.assertEqual(self.broker.topics.select("%DLQ%G"), TopicConfig("%DLQ%G", 1, 1, 6))

    def test_dead_letter_of_a_send_is_not_delayed(self):
        for properties in ("DELAY\x0118", "TIMER_DELAY_SEC\x019", "DELAY\x014Pinpoint", "TIMER_DELIVER_MS\x01x"):
            self.assertEqual(self.ask(self.retry(16, properties=properties + "\x02mine\x01x")).code, 0)
            self.assertEqual(self.last().topic, "%DLQ%G")
            self.assertEqual(self.last().properties_map(), {"mine": "x", "DELAY": "0", "CLUSTER": "DefaultCluster"})

    def test_limit_of_sender_applies_from_3_4_9(self):
        self.ask(self.retry(2, maxReconsumeTimes="2"))
        self.assertEqual(self.last().topic, "%DLQ%G")
        self.ask(self.retry(2, maxReconsumeTimes="2", version=120))
        self.assertEqual(self.last().topic, "%RETRY%G")
        self.broker.groups.update(SubscriptionGroupConfig("G", retry_max_times=1))
        self.ask(self.retry(2, maxReconsumeTimes="9", version=120))
        self.assertEqual(self.last().topic, "%DLQ%G")

    def test_unknown_group(self):
        self.broker.settings.broker.auto_create_subscription_group = False
        self.assertEqual(
            self.refused(self.retry(1)),
            (26, "subscription group not exist, G \nSee http://rocketmq.apache.org/docs/faq/ for further details."),
        )


class DelayTests(SendTestCase):
    def test_delayed_send_is_stored_in_queue_of_level(self):
        answer = self.ask(send("T", 2, "DELAY\x013\x02TAGS\x01A\x02WAIT\x01true"))
        message = self.last()
        self.assertEqual((message.topic, message.queue_id), ("SCHEDULE_TOPIC_XXXX", 2))
        self.assertEqual(
            decode_properties(message.properties.decode()),
            {
                "DELAY": "3",
                "TAGS": "A",
                "CLUSTER": "DefaultCluster",
                "WAIT": "true",
                "REAL_TOPIC": "T",
                "REAL_QID": "2",
            },
        )
        self.assertEqual(answer.ext_fields["queueId"], "2")
        self.broker.settle()
        (entry,) = self.broker.store.queue_entries("SCHEDULE_TOPIC_XXXX", 2, 0, 10)
        self.assertEqual(entry[2], self.broker.now_ms() + 10_000)

    def test_delay_level_is_capped_and_none_below_one(self):
        for level, queue in (("1", 0), ("18", 17), ("99", 17)):
            self.ask(send(properties=f"DELAY\x01{level}"))
            self.assertEqual((self.last().topic, self.last().queue_id), ("SCHEDULE_TOPIC_XXXX", queue))
        for level in ("0", "-1"):
            self.ask(send(properties=f"DELAY\x01{level}"))
            self.assertEqual(self.last().topic, "T")

    def test_send_with_damaged_property_is_refused_and_its_neighbours_are_stored(self):
        damaged = "\x014Pinpoint-Flags\x010\x02"
        illegal = [
            send(properties="DELAY" + damaged),
            send(properties="TRAN_MSG\x01truePinpoint-Flags\x010\x02"),
            send(properties="TRAN_MSG\x01true\x02DELAY" + damaged),
            batch(in_batch(b"good"), in_batch(b"bad", b"DELAY" + damaged.encode())),
            batch(in_batch(b"good"), in_batch(b"bad", b"TIMER_DELAY_SEC" + damaged.encode())),
            batch(in_batch(b"good"), in_batch(b"late", b"TIMER_DELAY_SEC\x014")),
            batch(in_batch(b"good"), properties="DELAY" + damaged),
        ]
        self.process(send(), *illegal, send())
        self.assertEqual([m.body for m in self.stored()], [b"hello", b"hello"])
        codes = {answer.opaque: answer.code for answer in self.connection.answers()}
        self.assertEqual([codes[command.opaque] for command in illegal], [13] * len(illegal))

    def test_remark_names_the_damaged_property_and_its_value(self):
        code, remark = self.refused(send(properties="DELAY\x014Pinpoint-Flags\x010\x02"))
        self.assertEqual(
            (code, remark), (13, "the message is illegal, its property DELAY is not a whole number of 32 bits")
        )
        self.assertIn(
            "its value is '4Pinpoint-Flags\\x010'", self.ask(send(properties="DELAY\x014Pinpoint-Flags\x010")).remark
        )


class SyncFlushTests(SendTestCase):
    options = {"flushDiskType": "SYNC_FLUSH"}

    def setUp(self):
        super().setUp()
        self.waiting = []
        self.broker.store.when_flushed = lambda offset, callback: self.waiting.append((offset, callback))

    def test_send_is_answered_after_flush(self):
        commands = [send(), send(properties="WAIT\x01true"), batch(in_batch(b"a"), in_batch(b"b"))]
        self.process(*commands)
        self.assertEqual(self.connection.written, [])
        (first_end, first), (end, second) = self.waiting
        messages = self.stored()
        self.assertEqual(first_end, messages[2].physical_offset)
        self.assertEqual(end, self.broker.store.max_physical_offset())
        first(PutStatus.PUT_OK)
        self.assertEqual([a.opaque for a in self.connection.answers()], [c.opaque for c in commands[:2]])
        second(PutStatus.FLUSH_DISK_TIMEOUT)
        answer = self.connection.answer()
        self.assertEqual((answer.code, answer.opaque, sorted(answer.ext_fields)), (10, commands[2].opaque, ALL))

    def test_send_without_wait_is_answered_at_once(self):
        self.process(send(), send(properties="WAIT\x01false"))
        self.assertEqual((len(self.connection.answers()), len(self.waiting)), (1, 1))

    def test_refusals_do_not_wait(self):
        self.assertEqual(self.refused(send(body=b"x" * (4 << 20 | 1)))[0], 13)
        self.assertEqual(self.waiting, [])


class RealSyncFlushTests(SendTestCase):
    options = {"flushDiskType": "SYNC_FLUSH"}

    def test_answered_send_is_flushed(self):
        self.process(send())
        while not self.connection.written:
            pass
        self.assertEqual(self.connection.answer().code, 0)
        self.assertEqual(self.broker.store.flushed_offset(), self.broker.store.max_physical_offset())
        self.assertEqual(decode_message(self.broker.store.look_message(0)).body, b"hello")
