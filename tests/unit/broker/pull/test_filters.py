"""Pulls of groups that filter by SQL92: messages, next offsets, refusals, wake-ups."""

import os
from dataclasses import replace

from twisted.trial.unittest import SynchronousTestCase

from rocketd.broker.clients.client import ClientChannelInfo
from rocketd.broker.pull.processor import PullMessageProcessor
from rocketd.filter.selector import Selector
from rocketd.remoting.bodies.tables import ConsumerData, SubscriptionData, TopicConfig
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.store.format.message import MessageInner
from rocketd.store.format.record import decode_messages
from rocketd.store.queue.consume_queue_ext import is_ext_address
from tests.support.broker import BORN_HOST, RecordingConnection, SmallBroker, job_of

SUSPEND, SUBSCRIPTION = 2, 4
ON = {"enablePropertyFilter": "true"}
BITMAPS = {**ON, "enableConsumeQueueExt": "true", "enableCalcFilterBitMap": "true"}


class FilterTestCase(SynchronousTestCase):
    options = ON

    def setUp(self):
        self.directory = os.path.abspath(self.mktemp())
        self.open(**self.options)

    def open(self, **options):
        self.broker = SmallBroker(self.directory, **options)
        self.broker.start()
        self.addCleanup(self.broker.stop)
        self.broker.topics.update(TopicConfig("T", 4, 4))
        self.broker.topics.update(TopicConfig("%RETRY%G", 1, 1))
        self.processor = PullMessageProcessor(self.broker)
        self.connection = RecordingConnection()
        self.client = RecordingConnection("127.0.0.1:5000")

    def join(self, expression, version=1, kind="SQL92"):
        subscriptions = [
            SubscriptionData("T", expression, sub_version=version, expression_type=kind),
            SubscriptionData("%RETRY%G", "*", sub_version=version),
        ]
        client = ClientChannelInfo(self.client, "c", 0, 407, self.broker.now_ms())
        self.broker.consumers.register(client, ConsumerData("G", subscription_data_set=subscriptions), notify=False)
        self.broker.filters.register_group("G", subscriptions)

    def put(self, *values, topic="T", **more):
        self.broker.clock.advance(1)
        messages = []
        for value in values:
            properties = "\x02".join(f"{name}\x01{text}" for name, text in {"a": value, **more}.items()).encode()
            messages.append(MessageInner(topic, 0, 0, 0, 0, BORN_HOST, 0, 0, b"%d" % value, properties, 0))
        self.broker.store.put_messages(messages)
        self.broker.settle()

    def pull(self, offset=0, sys_flag=0, **more):
        fields = {
            "consumerGroup": "G", "topic": "T", "queueId": "0", "queueOffset": str(offset), "maxMsgNums": "32",
            "sysFlag": str(sys_flag), "commitOffset": "0", "suspendTimeoutMillis": "15000", "subVersion": "1", **more,
        }  # fmt: skip
        command = RemotingCommand(11, fields)
        self.processor.process_jobs([job_of(self.processor, self.connection, command)])

    def ask(self, *args, **more):
        self.pull(*args, **more)
        return self.connection.answer()

    def got(self, *args, **more):
        """Bodies, and where to go on."""
        answer = self.ask(*args, **more)
        bodies = [int(message.body) for message in decode_messages(answer.body)] if answer.body else []
        return answer.code, bodies, int(answer.ext_fields["nextBeginOffset"])

    def refused(self, *args, **more):
        answer = self.ask(*args, **more)
        return answer.code, answer.remark.partition("; cause: ")[0]


class AnswerTests(FilterTestCase):
    def test_pull_returns_matching_messages(self):
        self.join("a BETWEEN 3 AND 5")
        self.put(*range(8))
        self.assertEqual(self.got(), (0, [3, 4, 5], 8))
        self.assertEqual(self.got(4, maxMsgNums="1"), (0, [4], 5))

    def test_pull_skips_messages_without_match(self):
        self.join("a > 7")
        self.put(*range(8))
        self.assertEqual(self.got(3), (20, [], 8))

    def test_pull_uses_subscription_in_request(self):
        self.put(*range(8))
        carried = {"subscription": "a = 2 OR a = 6", "expressionType": "SQL92"}
        self.assertEqual(self.got(sys_flag=SUBSCRIPTION, **carried), (0, [2, 6], 8))
        for expression in ("a >", ""):
            carried["subscription"] = expression
            self.assertEqual(
                self.refused(sys_flag=SUBSCRIPTION, **carried), (23, "parse the consumer's subscription failed")
            )

    def test_retried_messages_are_not_filtered(self):
        self.join("a > 7")
        self.put(*range(3), topic="%RETRY%G", RETRY_TOPIC="T")
        self.assertEqual(self.got(topic="%RETRY%G"), (0, [0, 1, 2], 3))


class RefusalTests(FilterTestCase):
    def test_pull_without_valid_filter_is_refused(self):
        self.join("a >")
        self.assertEqual(
            self.refused(), (27, "The broker's consumer filter data is not exist!Your expression may be wrong!")
        )

    def test_pull_with_outdated_filter_is_refused(self):
        self.join("a > 1", 5)
        self.assertEqual(self.refused(subVersion="6")[0], 25)
        # Its group has a newer subscription, but the filter is that of before.
        self.broker.consumers.find("G").subscriptions["T"].sub_version = 6
        self.assertEqual(self.refused(subVersion="6"), (28, "the consumer's consumer filter data not latest"))
        self.put(2)
        self.assertEqual(self.got(subVersion="5")[0], 0)

    def test_pull_with_filtering_disabled_is_refused(self):
        self.join("a > 1")
        self.broker.settings.broker.enable_property_filter = False
        text = "The broker does not support consumer to filter message by SQL92"
        self.assertEqual(self.refused(), (1, text))
        carried = {"subscription": "a = 2", "expressionType": "SQL92"}
        self.assertEqual(self.refused(sys_flag=SUBSCRIPTION, **carried), (1, text))


class RetryTests(FilterTestCase):
    options = {**ON, "filterSupportRetry": "true"}

    def test_retried_messages_are_filtered_as_their_topic(self):
        self.join("a > 0")
        self.put(*range(3), topic="%RETRY%G", RETRY_TOPIC="T")
        self.put(7, topic="%RETRY%G", RETRY_TOPIC="U")
        self.assertEqual(self.got(topic="%RETRY%G"), (0, [1, 2, 7], 4))

    def test_other_topics_are_filtered_as_usual(self):
        self.join("a > 0")
        self.put(*range(3))
        self.assertEqual(self.got(), (0, [1, 2], 3))


class HoldTests(FilterTestCase):
    def test_held_pull_wakes_for_matching_message_only(self):
        self.join("a > 7")
        self.pull(sys_flag=SUSPEND)
        self.put(1, 2)
        self.assertEqual((self.connection.written, self.processor.long_polling.count), ([], 1))
        self.put(3, 9)
        while not self.connection.written:
            pass
        answer = self.connection.answer()
        self.assertEqual([message.body for message in decode_messages(answer.body)], [b"9"])

    def test_held_pull_returns_progress_at_timeout(self):
        self.join("a > 7")
        self.pull(sys_flag=SUSPEND)
        self.put(1, 2)
        self.broker.clock.advance(15)
        self.broker.held_pull_checks[0]()
        answer = self.connection.answer()
        self.assertEqual((answer.code, answer.ext_fields["nextBeginOffset"]), (20, "2"))


class BitmapTests(FilterTestCase):
    options = BITMAPS

    def units(self):
        queue = self.broker.store.queues.find("T", 0)
        return [queue.ext.get(tags_code) for _, _, tags_code in queue.read(0)]

    def test_bits_decide_before_the_log_is_read(self):
        self.put(5)
        self.join("a > 4")
        self.put(5, 4, 6)
        known = self.broker.filters.get("T", "G")
        hit, miss = self.broker.filters.bloom.bitmap(known.mask), bytes(14)
        self.assertEqual([unit.bitmap for unit in self.units()], [None, hit, miss, hit])
        self.assertEqual(self.got(), (0, [5, 5, 6], 4))
        # This filter matches all properties: a message is dropped only if its bitmap lacks the bits of the group.
        asks_nothing = replace(known, selector=Selector("TRUE"))
        self.patch(self.broker.filters, "get", lambda topic, group: asks_nothing)
        self.assertEqual(self.got(), (0, [5, 5, 6], 4))

    def test_bits_of_other_expression_are_ignored(self):
        self.join("a > 4")
        self.put(1, 5)
        self.join("a > 0", 2)
        self.assertEqual(self.got(subVersion="2"), (0, [1, 5], 2))

    def test_filters_and_bits_survive_restart(self):
        self.join("a > 4")
        self.put(5, 4)
        before = self.units()
        self.broker.stop()
        self.open(**self.options)
        self.assertEqual(self.units(), before)
        self.put(3, 7)
        self.join("a > 4")
        self.assertEqual(self.got(), (0, [5, 7], 4))

    def test_failing_bitmap_maker_loses_bitmap_only(self):
        def fail(requests):
            raise RuntimeError("no")

        self.broker.store.set_bitmap_maker(fail)
        self.join("a > 4")
        self.put(5)
        self.assertEqual(self.got(), (0, [5], 1))
        self.assertEqual(self.units()[0].bitmap, None)
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)

    def test_bits_can_be_switched_on_and_off(self):
        self.join("a > 4")
        for on in (False, True, False):
            self.broker.settings.broker.enable_calc_filter_bit_map = on
            self.put(4)
        self.assertEqual([unit.bitmap for unit in self.units()], [None, bytes(14), None])

    def test_bits_reach_arrival_listeners_without_extension(self):
        self.broker.stop()
        self.open(**{**BITMAPS, "enableConsumeQueueExt": "false"})
        arrivals = []
        self.broker.store.add_arrival_listener(arrivals.extend)
        self.join("a > 4")
        self.put(5)
        known = self.broker.filters.get("T", "G")
        self.assertEqual([arrival[6] for arrival in arrivals], [self.broker.filters.bloom.bitmap(known.mask)])
        queue = self.broker.store.queues.find("T", 0)
        self.assertFalse(is_ext_address(queue.entry(queue.max_offset - 1)[2]))
