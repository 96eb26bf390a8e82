"""Pulls: code, header and remark of the answer for each state of a queue; refusals by the checks."""

import json
import os
from struct import pack

from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from rocketd.broker.clients.client import ClientChannelInfo
from rocketd.broker.pull.processor import MOVED_LIMIT, PullMessageProcessor
from rocketd.common.java_hash import java_string_hash
from rocketd.remoting.bodies.tables import (
    ConsumerData,
    MessageModel,
    SubscriptionData,
    SubscriptionGroupConfig,
    TopicConfig,
)
from rocketd.remoting.interfaces import IJobProcessor
from rocketd.remoting.serving.pools import Job
from rocketd.remoting.wire.codes import SerializeType
from rocketd.remoting.wire.command import ONEWAY_FLAG, RemotingCommand
from rocketd.remoting.wire.frame import FrameDecoder
from rocketd.store.format.message import GetResult, GetStatus, MessageInner
from rocketd.store.format.record import decode_messages
from tests.support.broker import BORN_HOST, RecordingConnection, SmallBroker, job_of
from tests.support.places import FRAMES

FAQ = "See http://rocketmq.apache.org/docs/faq/ for further details."
COMMIT, SUSPEND, SUBSCRIPTION = 1, 2, 4
NAMES = ["maxOffset", "minOffset", "nextBeginOffset", "suggestWhichBrokerId"]


def recorded_answers():
    """Apache's answers to pulls, one for each code and remark."""
    answers = {}
    for path in sorted(FRAMES.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            record = json.loads(line)
            if record.get("kind") == "response" and record["code"] == 11 and record["sender"] == "broker":
                (frame,) = FrameDecoder().feed(bytes.fromhex(record["hex"]))
                answer = RemotingCommand.decode(frame)
                answers[answer.code, answer.remark] = answer
    return answers


class PullTestCase(SynchronousTestCase):
    def setUp(self):
        self.broker = SmallBroker(os.path.abspath(self.mktemp()))
        self.broker.start()
        self.addCleanup(self.broker.stop)
        self.broker.topics.update(TopicConfig("T", 4, 4))
        self.processor = PullMessageProcessor(self.broker)
        self.connection = RecordingConnection()
        self.join()

    def join(self, group="G", expression="*", tags=(), version=1, kind="TAG", topic="T", **more):
        subscription = SubscriptionData(
            topic, expression, set(tags), {java_string_hash(tag) for tag in tags}, version, kind
        )
        client = ClientChannelInfo(RecordingConnection("127.0.0.1:5000"), "c", 0, 407, self.broker.now_ms())
        data = ConsumerData(group, subscription_data_set=[subscription], **more)
        self.broker.consumers.register(client, data, notify=False)
        self.broker.filters.register_group(group, data.subscription_data_set)

    def put(self, *bodies, queue_id=0, tag=""):
        properties = f"TAGS\x01{tag}".encode() if tag else b""
        code = java_string_hash(tag) if tag else 0
        self.broker.store.put_messages(
            [MessageInner("T", queue_id, 0, 0, 0, BORN_HOST, 0, 0, body, properties, code) for body in bodies]
        )
        self.broker.settle()

    def command(self, offset=0, queue_id=0, sys_flag=0, group="G", serialize_type=SerializeType.JSON, **more):
        fields = {
            "consumerGroup": group, "topic": "T", "queueId": str(queue_id), "queueOffset": str(offset),
            "maxMsgNums": "32", "sysFlag": str(sys_flag), "commitOffset": "0", "suspendTimeoutMillis": "15000",
            "subVersion": "1", **more,
        }  # fmt: skip
        return RemotingCommand(11, fields, serialize_type=serialize_type)

    def process(self, *commands):
        self.processor.process_jobs([job_of(self.processor, self.connection, *commands)])

    def ask(self, *args, **more):
        command = self.command(*args, **more)
        self.process(command)
        answer = self.connection.answer()
        self.assertEqual((answer.opaque, answer.serialize_type), (command.opaque, command.serialize_type))
        return answer

    def summary(self, *args, **more):
        """Code, remark, next, lowest and highest offset."""
        answer = self.ask(*args, **more)
        fields = answer.ext_fields
        self.assertEqual(sorted(fields), NAMES)
        self.assertEqual(fields["suggestWhichBrokerId"], "0")
        self.assertIsNone(answer.body)
        offsets = tuple(int(fields[name]) for name in ("nextBeginOffset", "minOffset", "maxOffset"))
        return (answer.code, answer.remark, *offsets)

    def refused(self, *args, **more):
        """Return code and Apache's part of the remark."""
        answer = self.ask(*args, **more)
        self.assertIsNone(answer.ext_fields)
        return answer.code, answer.remark.partition("; cause: ")[0]


class AnswerTests(PullTestCase):
    def test_interface(self):
        verifyObject(IJobProcessor, self.processor)

    def test_pull_returns_messages(self):
        self.put(b"a", b"b", b"c")
        for serialize_type in SerializeType:
            answer = self.ask(1, serialize_type=serialize_type)
            self.assertEqual((answer.code, answer.remark), (0, "FOUND"))
            self.assertEqual(
                answer.ext_fields,
                {"suggestWhichBrokerId": "0", "nextBeginOffset": "3", "minOffset": "0", "maxOffset": "3"},
            )
            messages = decode_messages(answer.body)
            self.assertEqual([m.body for m in messages], [b"b", b"c"])
            log = self.broker.store.commit_log
            self.assertEqual(answer.body, bytes(log.select(messages[0].physical_offset, len(answer.body))))

    def test_reads_are_counted(self):
        self.put(b"a", b"b", b"c")
        self.ask(1)
        self.ask(0)
        self.ask(3)
        stats = self.broker.stats
        self.assertEqual((stats.found, stats.transferred, stats.missed), (2, 5, 1))

    def test_pull_returns_at_most_requested_count(self):
        self.put(*[b"%d" % n for n in range(40)])
        self.assertEqual(self.ask(0).ext_fields["nextBeginOffset"], "32")
        answer = self.ask(32, maxMsgNums="3")
        self.assertEqual([m.body for m in decode_messages(answer.body)], [b"32", b"33", b"34"])
        self.assertEqual(answer.ext_fields["nextBeginOffset"], "35")

    def test_states_of_a_queue(self):
        self.assertEqual(self.summary(0), (19, "NO_MESSAGE_IN_QUEUE", 0, 0, 0))
        self.assertEqual(self.summary(5), (21, "NO_MESSAGE_IN_QUEUE", 0, 0, 0))
        self.put(b"a", b"b")
        self.assertEqual(self.summary(2), (19, "OFFSET_OVERFLOW_ONE", 2, 0, 2))
        self.assertEqual(self.summary(3), (21, "OFFSET_OVERFLOW_BADLY", 2, 0, 2))
        self.assertEqual(self.summary(-1), (21, "OFFSET_TOO_SMALL", 0, 0, 2))
        self.assertEqual(self.summary(0, sys_flag=SUBSCRIPTION, subscription="x"), (20, "NO_MATCHED_MESSAGE", 2, 0, 2))

    def test_store_statuses_have_response_codes(self):
        for status, offset, code in (
            ("NO_MATCHED_MESSAGE", 0, 20), ("MESSAGE_WAS_REMOVING", 0, 20), ("OFFSET_FOUND_NULL", 0, 19),
            ("OFFSET_OVERFLOW_BADLY", 0, 21), ("OFFSET_OVERFLOW_ONE", 0, 19), ("OFFSET_TOO_SMALL", 0, 21),
            ("NO_MATCHED_LOGIC_QUEUE", 0, 19), ("NO_MATCHED_LOGIC_QUEUE", 1, 21), ("NO_MESSAGE_IN_QUEUE", 0, 19),
            ("NO_MESSAGE_IN_QUEUE", 1, 21),
        ):  # fmt: skip
            self.broker.store.get_messages = lambda *_, s=status: GetResult(GetStatus[s], 7, 5, 9)
            self.assertEqual(self.summary(offset), (code, status, 7, 5, 9))

    def test_recorded_answers_have_same_fields(self):
        seen = set()
        for (code, remark), answer in recorded_answers().items():
            if code in (0, 19, 20, 21):
                self.assertIn(remark, GetStatus.__members__)
                self.assertEqual(sorted(answer.ext_fields), NAMES)
                seen.add(code)
        self.assertEqual(seen, {0, 19, 20, 21})

    def test_moved_offsets_are_recorded(self):
        self.ask(7)
        self.broker.settle()
        (entry,) = self.broker.store.queue_entries("OFFSET_MOVED_EVENT", 0, 0, 10)
        (event,) = decode_messages(self.broker.store.look_message(entry[0]))
        self.assertEqual(
            json.loads(event.body),
            {"consumerGroup": "G", "messageQueue": {"brokerName": "broker-a", "queueId": 0, "topic": "T"},
             "offsetNew": 0, "offsetRequest": 7},
        )  # fmt: skip
        self.assertEqual(event.properties_map(), {"KEYS": "G", "DELAY": "0", "TAGS": "G"})
        self.assertEqual(len(self.broker.store.query_messages("OFFSET_MOVED_EVENT", "G", 9, 0, 1 << 60).buffers), 1)

    def test_moved_offset_of_a_group_with_spaces_is_found_by_each_word(self):
        self.join("two words")
        self.ask(7, group="two words")
        self.broker.settle()
        for key in ("two", "words"):
            found = self.broker.store.query_messages("OFFSET_MOVED_EVENT", key, 9, 0, 1 << 60)
            self.assertEqual(len(found.buffers), 1)

    def test_pending_moved_offset_events_are_bounded_and_counted(self):
        self.broker.dispatcher.delay = True
        for _ in range(MOVED_LIMIT + 3):
            self.assertEqual(self.ask(7).code, 21)
        self.assertEqual(self.broker.dispatcher.limits.counts, {"events of moved offsets lost": 3})
        self.broker.dispatcher.run()
        self.ask(7)
        self.broker.dispatcher.run()
        self.broker.settle()
        self.assertEqual(self.broker.store.get_max_offset("OFFSET_MOVED_EVENT", 0), MOVED_LIMIT + 1)

    def test_slave_records_no_moved_offsets(self):
        self.broker.settings.store.broker_role = "SLAVE"
        self.processor = PullMessageProcessor(self.broker)
        self.assertEqual(self.summary(7)[:2], (20, "NO_MESSAGE_IN_QUEUE"))
        self.assertEqual(self.broker.store.get_max_offset("OFFSET_MOVED_EVENT", 0), 0)

    def test_suggested_broker_id_by_settings(self):
        self.put(b"a")
        self.broker.groups.update(SubscriptionGroupConfig("G", broker_id=3, which_broker_when_consume_slowly=5))
        self.assertEqual(self.ask(0).ext_fields["suggestWhichBrokerId"], "0")
        self.broker.settings.broker.slave_read_enable = True
        self.assertEqual(self.ask(0).ext_fields["suggestWhichBrokerId"], "3")
        result = GetResult(GetStatus.FOUND, 1, 0, 1, [memoryview(b"x")], 1, 1, True)
        self.broker.store.get_messages = lambda *_: result
        self.assertEqual(self.ask(0).ext_fields["suggestWhichBrokerId"], "5")

    def test_pull_commits_offset_on_flag(self):
        self.put(b"a")
        self.ask(0, sys_flag=0, commitOffset="5")
        self.assertEqual(self.broker.offsets.query("G", "T", 0), -1)
        self.ask(0, sys_flag=COMMIT, commitOffset="1")
        self.assertEqual(self.broker.offsets.query("G", "T", 0), 1)

    def test_pull_filters_by_tags(self):
        self.put(b"a1", b"a2", tag="A")
        self.put(b"b", tag="B")
        self.put(b"none")
        self.join("H", "A || B", ["A", "B"])
        for expression, bodies in (
            ("A", [b"a1", b"a2"]), ("A || B", [b"a1", b"a2", b"b"]), ("*", [b"a1", b"a2", b"b", b"none"]),
            ("", [b"a1", b"a2", b"b", b"none"]),
        ):  # fmt: skip
            answer = self.ask(0, sys_flag=SUBSCRIPTION, subscription=expression)
            self.assertEqual([m.body for m in decode_messages(answer.body)], bodies)
            self.assertEqual(answer.ext_fields["nextBeginOffset"], "4")
        self.assertEqual([m.body for m in decode_messages(self.ask(group="H").body)], [b"a1", b"a2", b"b"])
        self.join("H", "B", ["B"], version=2)
        self.assertEqual([m.body for m in decode_messages(self.ask(group="H").body)], [b"b"])

    def test_code_361_is_a_pull(self):
        self.put(b"a")
        command = self.command()
        command.code = 361
        self.process(command)
        self.assertEqual(self.connection.answer().code, 0)

    def test_internal_error_fails_one_pull_only(self):
        def failing(*_):
            raise KeyError("oops")

        self.put(b"a")
        good = self.broker.store.get_messages
        self.broker.store.get_messages = failing
        self.assertEqual(self.ask().code, 1)
        self.assertEqual(len(self.flushLoggedErrors(KeyError)), 1)
        self.broker.store.get_messages = good
        self.assertEqual(self.ask().code, 0)


class BadInputTests(PullTestCase):
    def test_missing_and_wrong_fields(self):
        for name, value, said in (
            ("topic", None, "the custom field <topic> is null"),
            ("queueOffset", "far", "<queueOffset> should be a whole number"),
        ):
            command = self.command()
            command.ext_fields.pop(name) if value is None else command.ext_fields.update({name: value})
            self.process(command)
            answer = self.connection.answer()
            self.assertEqual(answer.code, 1)
            self.assertIn(said, answer.remark)

    def test_invalid_utf8_is_read_and_malformed_header_closes(self):
        self.put(b"a")
        text = self.command(subscription="?").encode()[8:].replace(b"?", b"\xff")
        self.process(pack(">ii", 4 + len(text), len(text)) + text, self.command())
        self.assertEqual([answer.code for answer in self.connection.answers()], [0, 0])
        other = RecordingConnection("127.0.0.1:4098")
        bad = Job(self.processor, other, [(0, b'{"code":11', b"")], 0)
        self.processor.process_jobs([bad, job_of(self.processor, self.connection, self.command())])
        self.assertTrue(other.closed)
        self.assertEqual(self.connection.answer().code, 0)

    def test_oneway_pull_is_not_answered(self):
        command = self.command()
        command.flag = ONEWAY_FLAG
        self.process(command)
        self.assertEqual(self.connection.answers(), [])

    def test_response_goes_to_invoke_layer(self):
        taken = []
        self.broker.dispatcher.answers.take_response = lambda connection, command: taken.append(command.opaque)
        self.process(RemotingCommand(11, opaque=77, flag=1))
        self.assertEqual((taken, self.connection.written), ([77], []))


class RefusalTests(PullTestCase):
    def test_pull_without_permission_is_refused(self):
        self.broker.groups.update(SubscriptionGroupConfig("Off", consume_enable=False))
        self.assertEqual(self.refused(group="Off"), (16, "subscription group no permission, Off"))
        self.broker.topics.update(TopicConfig("T", 4, 4, 2))
        self.assertEqual(self.refused(), (16, "the topic[T] pulling message is forbidden"))
        self.broker.settings.broker.broker_permission = 2
        self.assertEqual(self.refused(), (16, "the broker[127.0.0.1] pulling message is forbidden"))

    def test_broadcasting_pull_is_refused_if_disabled(self):
        self.broker.groups.update(SubscriptionGroupConfig("B", consume_broadcast_enable=False))
        self.join("B", message_model=MessageModel.BROADCASTING)
        self.assertEqual(self.refused(group="B"), (16, "the consumer group[B] can not consume by broadcast way"))

    def test_pull_of_unknown_group_or_topic_is_refused(self):
        self.broker.settings.broker.auto_create_subscription_group = False
        self.broker.groups.update(SubscriptionGroupConfig("G"))
        self.assertEqual(self.refused(group="X"), (26, f"subscription group [X] does not exist, \n{FAQ}"))
        self.assertEqual(self.refused(topic="X"), (17, f"topic[X] not exist, apply first please! \n{FAQ}"))

    def test_pull_of_invalid_queue_id_is_refused(self):
        for queue_id in (4, -1):
            self.assertEqual(
                self.refused(queue_id=queue_id),
                (1, f"queueId[{queue_id}] is illegal, topic:[T] topicConfig.readQueueNums:[4] "
                    "consumer:[127.0.0.1:4097]"),
            )  # fmt: skip

    def test_pull_with_invalid_subscription_is_refused(self):
        self.assertEqual(
            self.refused(sys_flag=SUBSCRIPTION, subscription="||"), (23, "parse the consumer's subscription failed")
        )
        self.assertEqual(self.refused(group="New"), (24, f"the consumer's group info not exist\n{FAQ}"))
        self.join("Other", topic="U")
        self.assertEqual(self.refused(group="Other"), (24, f"the consumer's subscription not exist\n{FAQ}"))
        self.assertEqual(self.refused(subVersion="2"), (25, "the consumer's subscription not latest"))
        remarks = {remark.partition("; cause: ")[0] for code, remark in recorded_answers() if code in (24, 25)}
        self.assertLessEqual(
            remarks,
            {f"the consumer's group info not exist\n{FAQ}", f"the consumer's subscription not exist\n{FAQ}",
             "the consumer's subscription not latest"},
        )  # fmt: skip

    def test_pull_with_sql_filter_disabled_is_refused(self):
        self.join("S", "a > 1", kind="SQL92")
        self.assertEqual(
            self.refused(group="S"), (1, "The broker does not support consumer to filter message by SQL92")
        )


class HoldTests(PullTestCase):
    def hold(self, offset=0, **more):
        self.process(self.command(offset, sys_flag=SUSPEND | more.pop("sys_flag", 0), **more))
        return self.connection.answers()

    def test_held_pull_limits_follow_settings(self):
        settings = self.broker.settings.broker
        settings.max_held_pulls, settings.max_held_pulls_per_connection = 3, 2
        self.processor = PullMessageProcessor(self.broker)
        self.assertEqual((self.hold(), self.hold()), ([], []))
        (answer,) = self.hold()
        self.assertIn("maxHeldPullsPerConnection", answer.remark)
        self.connection = RecordingConnection()
        self.assertEqual(self.hold(), [])
        self.assertEqual(len(self.hold()), 1)
        self.assertEqual(self.processor.long_polling.count, 3)

    def test_pull_is_held_until_message_arrives(self):
        self.assertEqual(self.hold(), [])
        self.put(b"other", queue_id=1)
        self.assertEqual(self.connection.written, [])
        self.put(b"mine")
        while not self.connection.written:
            pass
        answer = self.connection.answer()
        self.assertEqual([m.body for m in decode_messages(answer.body)], [b"mine"])
        self.assertEqual(self.processor.long_polling.count, 0)

    def test_pull_is_held_until_timeout(self):
        self.hold(suspendTimeoutMillis="3000")
        check = self.broker.held_pull_checks[0]
        self.broker.clock.advance(2.999)
        check()
        self.assertEqual(self.connection.written, [])
        self.broker.clock.advance(0.001)
        check()
        answer = self.connection.answer()
        self.assertEqual((answer.code, answer.remark, sorted(answer.ext_fields)), (19, "NO_MESSAGE_IN_QUEUE", NAMES))

    def test_held_pull_timeout_ignores_clock_steps(self):
        for step in 300, -300:
            self.hold(suspendTimeoutMillis="3000")
            self.broker.wall_steps += step
            check = self.broker.held_pull_checks[0]
            self.broker.clock.advance(2.999)
            check()
            self.assertEqual(self.connection.written, [])
            self.hold(suspendTimeoutMillis="3000")
            self.broker.clock.advance(0.001)
            check()
            self.assertEqual(self.connection.answer().code, 19)
            self.broker.clock.advance(2.999)
            check()
            self.assertEqual(self.connection.answer().code, 19)

    def test_short_polling(self):
        self.broker.settings.broker.long_polling_enable = False
        self.hold()
        self.broker.clock.advance(1)
        self.broker.held_pull_checks[0]()
        self.assertEqual(self.connection.answer().code, 19)

    def test_other_answers_are_not_held(self):
        self.put(b"a")
        self.assertEqual([a.code for a in self.hold(5)], [21])
        self.assertEqual([a.code for a in self.hold(0, sys_flag=SUBSCRIPTION, subscription="x")], [20])
        self.assertEqual([a.code for a in self.hold(0)], [0])

    def test_held_pull_commits_offset_once(self):
        for _ in range(4):
            self.put(b"read")
        self.hold(4, sys_flag=COMMIT, commitOffset="4")
        self.assertEqual(self.broker.offsets.query("G", "T", 0), 4)
        self.broker.offsets.commit("c", "G", "T", 0, 9)
        self.broker.clock.advance(20)
        self.broker.held_pull_checks[0]()
        self.assertEqual(self.broker.offsets.query("G", "T", 0), 9)

    def test_pull_commits_no_offset_beyond_the_end(self):
        self.put(b"new")
        self.hold(1, sys_flag=COMMIT, commitOffset="9")
        self.assertEqual(self.broker.offsets.query("G", "T", 0), -1)

    def test_message_between_read_and_hold_is_not_missed(self):
        read = self.broker.store.get_messages

        def read_then_arrive(*args):
            result = read(*args)
            self.broker.store.get_messages = read
            self.put(b"in between")
            return result

        self.broker.store.get_messages = read_then_arrive
        (answer,) = self.hold()
        self.assertEqual([m.body for m in decode_messages(answer.body)], [b"in between"])

    def test_held_pull_of_closed_connection_is_dropped(self):
        self.hold()
        self.connection.closed = True
        self.broker.held_pull_checks[0]()
        self.assertEqual((self.processor.long_polling.count, self.connection.written), (0, []))

    def test_held_pull_beyond_limit_is_refused_and_counted(self):
        self.processor.long_polling.max_of_connection = 1
        self.assertEqual(self.hold(), [])
        (answer,) = self.hold()
        self.assertEqual(answer.code, 2)
        self.assertIn("[held-pulls-exceeded]", answer.remark)
        self.assertEqual(self.processor.long_polling.count, 1)
        self.assertEqual(self.broker.dispatcher.limits.counts, {"pulls refused": 1})

    def test_suspend_timeout_is_limited(self):
        self.hold(suspendTimeoutMillis=str(2**62))
        self.broker.settings.broker.max_suspend_timeout_millis = 1000
        self.hold(suspendTimeoutMillis=str(2**62))
        self.broker.clock.advance(1.5)
        self.broker.held_pull_checks[0]()
        self.assertEqual((self.processor.long_polling.count, self.connection.answer().code), (1, 19))
        self.broker.clock.advance(300)
        self.broker.held_pull_checks[0]()
        self.assertEqual((self.processor.long_polling.count, self.connection.answer().code), (0, 19))

    def test_held_pull_of_deleted_topic_is_refused_at_once(self):
        """The topic may be recreated soon, and have other offsets."""
        self.patch(self.processor.long_polling, "_call", lambda function: function())
        self.hold()
        self.broker.topics.update(TopicConfig("T", 5, 5))
        self.assertEqual(self.connection.written, [])
        self.broker.topics.delete("T")
        self.assertEqual(self.connection.answer().code, 17)
        self.assertEqual(self.processor.long_polling.count, 0)
