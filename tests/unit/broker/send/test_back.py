"""Messages that a consumer gives back: into the retry topic after a delay, or to the dead letters."""

import os
from types import SimpleNamespace

from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from rocketd.broker.send.send_back import SendBackProcessor
from rocketd.remoting.bodies.tables import SubscriptionGroupConfig, TopicConfig
from rocketd.remoting.errors import RemotingCommandError, RequestError
from rocketd.remoting.interfaces import IRequestProcessor
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.store.format.message import MessageInner, PutResult, PutStatus
from rocketd.store.format.record import decode_message, decode_messages
from tests.support.broker import BORN_HOST, RecordingConnection, SmallBroker

FAQ = "See http://rocketmq.apache.org/docs/faq/ for further details."


class SendBackTests(SynchronousTestCase):
    def setUp(self):
        self.broker = SmallBroker(os.path.abspath(self.mktemp()))
        self.broker.start()
        self.addCleanup(self.broker.stop)
        self.processor = SendBackProcessor(self.broker)
        self.context = SimpleNamespace(connection=RecordingConnection())

    def put(self, times=0, properties=b"TAGS\x01A\x02UNIQ_KEY\x01u\x02CLUSTER\x01DefaultCluster", sys_flag=1):
        message = MessageInner("T", 3, 7, sys_flag, 17, BORN_HOST, times, 0, b"body", properties, 0)
        (result,) = self.broker.store.put_messages([message])
        return result.physical_offset

    def ask(self, offset, level=0, version=407, **more):
        fields = {"offset": str(offset), "group": "G", "delayLevel": str(level), "originTopic": "T", **more}
        return self.processor.process(RemotingCommand(36, fields, version=version), self.context)

    def given_back(self, offset, **more):
        """Give a record back and return the message stored for it."""
        response = self.ask(offset, **more)
        self.assertEqual((response.code, response.remark, response.ext_fields, response.body), (0, None, None, None))
        log = self.broker.store.commit_log
        return decode_messages(log.select(0, log.max_offset))[-1]

    def refused(self, *args, **more):
        before = self.broker.store.max_physical_offset()
        error = self.assertRaises(RequestError, self.ask, *args, **more)
        self.assertEqual(self.broker.store.max_physical_offset(), before)
        return error.code, error.remark.partition("; cause: ")[0]

    def test_interface(self):
        verifyObject(IRequestProcessor, self.processor)

    def test_send_back_waits_for_level_then_goes_to_retry_topic(self):
        offset = self.put()
        message = self.given_back(offset)
        self.assertEqual((message.topic, message.queue_id), ("SCHEDULE_TOPIC_XXXX", 2))
        self.assertEqual(
            message.properties_map(),
            {"TAGS": "A", "UNIQ_KEY": "u", "CLUSTER": "DefaultCluster", "RETRY_TOPIC": "T", "WAIT": "false", "DELAY": "3",
             "ORIGIN_MESSAGE_ID": f"{self.broker.store_host.hex()}{offset:016x}".upper(),
             "REAL_TOPIC": "%RETRY%G", "REAL_QID": "0"},
        )  # fmt: skip
        self.assertEqual(
            (message.body, message.flag, message.sys_flag, message.born_timestamp, message.reconsume_times),
            (b"body", 7, 1, 17, 1),
        )
        self.assertEqual(self.broker.topics.select("%RETRY%G"), TopicConfig("%RETRY%G", 1, 1, 6))
        self.broker.settle()
        self.broker.clock.advance(10)
        self.broker.schedule.deliver_due()
        self.broker.settle()
        (entry,) = self.broker.store.queue_entries("%RETRY%G", 0, 0, 9)
        self.assertEqual(decode_message(self.broker.store.look_message(entry[0])).body, b"body")

    def test_send_back_goes_to_a_queue_of_the_retry_topic_when_the_group_has_more_now(self):
        self.given_back(self.put())
        self.broker.groups.update(SubscriptionGroupConfig("G", retry_queue_nums=3))
        queues = {self.given_back(self.put()).properties_map()["REAL_QID"] for _ in range(100)}
        self.assertEqual(queues, {"0", "1", "2"})
        self.assertEqual(self.broker.topics.select("%RETRY%G"), TopicConfig("%RETRY%G", 3, 3, 6))

    def test_waiting_retry_goes_to_a_queue_that_is_left_when_the_topic_has_fewer(self):
        self.broker.groups.update(SubscriptionGroupConfig("G", retry_queue_nums=9))
        for _ in range(20):
            self.given_back(self.put())
        self.broker.groups.update(SubscriptionGroupConfig("G", retry_queue_nums=1))
        self.broker.topics.update(TopicConfig("%RETRY%G", 1, 1, 6))
        self.broker.settle()
        self.broker.clock.advance(10)
        self.broker.schedule.deliver_due()
        self.broker.settle()
        self.assertEqual(len(self.broker.store.queue_entries("%RETRY%G", 0, 0, 99)), 20)

    def test_send_back_level_grows_with_retries(self):
        self.assertEqual(self.given_back(self.put(5)).properties_map()["DELAY"], "8")
        self.assertEqual(self.given_back(self.put(5), level=2).properties_map()["DELAY"], "2")
        message = self.given_back(self.put(5), level=99)
        self.assertEqual((message.queue_id, message.properties_map()["DELAY"]), (17, "18"))

    def test_reconsume_count_wraps_as_in_java(self):
        self.assertEqual(self.given_back(self.put(2**31 - 1)).reconsume_times, -(2**31))

    def test_send_back_of_group_without_possible_directory_is_refused(self):
        for group in ("a\0b", "/../../escaped", "g" * 121):
            self.assertEqual(self.refused(self.put(), group=group)[0], 1)
            self.broker.groups.update(SubscriptionGroupConfig(group))
            code, remark = self.refused(self.put(), group=group)
            self.assertEqual((code, remark), (1, f"topic[%RETRY%{group}] not exist"))
            self.assertIsNone(self.broker.topics.select(f"%RETRY%{group}"))

    def test_send_back_keeps_first_topic_and_id(self):
        properties = b"RETRY_TOPIC\x01First\x02ORIGIN_MESSAGE_ID\x01ID1"
        table = self.given_back(self.put(1, properties)).properties_map()
        self.assertEqual((table["RETRY_TOPIC"], table["ORIGIN_MESSAGE_ID"]), ("First", "ID1"))

    def test_send_back_drops_multi_dispatch_properties(self):
        table = self.given_back(
            self.put(1, b"INNER_MULTI_DISPATCH\x01%LMQ%x\x02INNER_MULTI_QUEUE_OFFSET\x010\x02mine\x01x")
        ).properties_map()
        self.assertEqual(table["mine"], "x")
        self.assertEqual([name for name in table if name.startswith("INNER_")], [])

    def assert_dead(self, message):
        self.assertEqual((message.topic, message.queue_id), ("%DLQ%G", 0))
        self.assertEqual(message.properties_map()["DELAY"], "0")
        self.assertEqual(self.broker.topics.select("%DLQ%G"), TopicConfig("%DLQ%G", 1, 1, 6))

    def test_dead_letter_with_delivery_time_of_apaches_log_is_not_delayed(self):
        for times in (b"TIMER_DELAY_SEC\x019", b"TIMER_DELIVER_MS\x01abc", b"DELAY\x014Pinpoint"):
            message = self.given_back(self.put(16, times + b"\x02mine\x01x"))
            self.assert_dead(message)
            self.assertEqual([name for name in message.properties_map() if name.startswith("TIMER_DE")], [])

    def test_send_back_at_limit_goes_to_dead_letters(self):
        self.assertEqual(self.given_back(self.put(15)).topic, "SCHEDULE_TOPIC_XXXX")
        self.assert_dead(self.given_back(self.put(16)))
        self.assert_dead(self.given_back(self.put(), level=-1))

    def test_limit_of_consumer_applies_from_3_4_9(self):
        self.assert_dead(self.given_back(self.put(2), maxReconsumeTimes="2"))
        message = self.given_back(self.put(2), maxReconsumeTimes="2", version=120)
        self.assertEqual(message.topic, "SCHEDULE_TOPIC_XXXX")

    def test_retry_topic_has_retry_queues_of_group(self):
        self.broker.groups.update(SubscriptionGroupConfig("G", retry_queue_nums=3))
        offset = self.put()
        queues = {self.given_back(offset).properties_map()["REAL_QID"] for _ in range(60)}
        self.assertEqual(queues, {"0", "1", "2"})
        self.assertEqual(self.broker.topics.select("%RETRY%G").write_queue_nums, 3)

    def test_send_back_without_retry_queues_stores_nothing(self):
        self.broker.groups.update(SubscriptionGroupConfig("G", retry_queue_nums=0))
        offset = self.put()
        end = self.broker.store.max_physical_offset()
        self.assertEqual(self.ask(offset).code, 0)
        self.assertEqual(self.broker.store.max_physical_offset(), end)

    def test_send_back_of_unit_marks_retry_topic(self):
        self.ask(self.put(), unitMode="true")
        self.assertEqual(self.broker.topics.select("%RETRY%G").topic_sys_flag, 2)

    def test_send_back_of_missing_record_is_refused(self):
        self.put()
        for offset in (5, 1 << 40, -1):
            self.assertEqual(self.refused(offset), (1, f"look message by offset failed, {offset}"))

    def test_send_back_without_permission_is_refused(self):
        offset = self.put()
        self.ask(offset)
        self.broker.topics.update(TopicConfig("%RETRY%G", 1, 1, 4))
        self.assertEqual(self.refused(offset), (16, "the topic[%RETRY%G] sending message is forbidden"))
        self.broker.settings.broker.broker_permission = 4
        self.assertEqual(self.refused(offset), (16, "the broker[127.0.0.1] sending message is forbidden"))

    def test_unknown_group(self):
        self.broker.settings.broker.auto_create_subscription_group = False
        self.assertEqual(self.refused(self.put()), (26, f"subscription group not exist, G \n{FAQ}"))

    def test_send_back_refused_by_store_is_answered(self):
        offset = self.put()
        self.broker.store.put_messages = lambda messages: [PutResult(PutStatus.OS_PAGECACHE_BUSY)]
        self.assertEqual(self.refused(offset), (1, "OS_PAGECACHE_BUSY"))

    def test_send_back_without_offset_is_refused(self):
        command = RemotingCommand(36, {"group": "G", "delayLevel": "0"})
        error = self.assertRaises(RemotingCommandError, self.processor.process, command, None)
        self.assertIn("<offset>", str(error))
