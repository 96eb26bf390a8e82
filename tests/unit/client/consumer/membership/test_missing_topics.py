"""Consumers that start before their topics, brokers or name servers, on a fake clock."""

from twisted.internet.defer import Deferred
from twisted.logger import formatEvent, globalLogPublisher

from rocketd.client.consumer.lite_pull_consumer import LitePullConsumerEngine
from rocketd.client.consumer.membership.group_beginning import CLOCK_SKEW_SECONDS
from rocketd.client.consumer.membership.missing_topics import (
    FIRST_LOOK_SECONDS,
    LOOK_SECONDS,
    ROUTE_LOOK_SECONDS,
    ROUTE_LOOKS,
    TELL_SECONDS,
)
from rocketd.client.consumer.options.kind_options import ConsumerOptions, LitePullOptions
from rocketd.client.consumer.options.subscription import Sql
from rocketd.client.consumer.push_consumer import PushConsumerEngine
from rocketd.client.errors import IllegalOptionError, NoNameServerError
from rocketd.client.sync import Consumer
from rocketd.remoting.bodies.tables import MessageQueue
from rocketd.remoting.wire.command import RemotingCommand
from tests.support.client_cluster import ClientTestCase

START_MS = 1_700_000_000_000


class MissingTopicTests(ClientTestCase):
    def setUp(self):
        super().setUp()
        self.got = []
        self.lines = []

        def observe(event):
            if event["log_level"].name in ("warn", "error", "critical"):
                self.lines.append(formatEvent(event))

        globalLogPublisher.addObserver(observe)
        self.addCleanup(globalLogPublisher.removeObserver, observe)

    async def take(self, message):
        self.got.append(message.body)

    def open(self, topics=("New",), wanted=None, begin="earliest", **options):
        """Start a consumer of these topics, whose start ends after the looks for an unknown topic."""
        consumer = PushConsumerEngine(self.client, "cg", self.take, options=ConsumerOptions(begin=begin, **options))
        for topic in topics:
            consumer.subscribe(topic, wanted)
        self.starts(consumer)
        return consumer

    def starts(self, consumer):
        started = Deferred.fromCoroutine(consumer.start())
        self.clock.pump([ROUTE_LOOK_SECONDS] * ROUTE_LOOKS)
        self.successResultOf(started)

    def pulled(self):
        return {fields["topic"] for _, fields in self.cluster.of(11) if not fields["topic"].startswith("%")}

    def test_consumer_of_unknown_topic_starts_and_begins_when_it_comes(self):
        self.open(("T", "New"))
        self.assertEqual(self.pulled(), {"T"})
        (line,) = self.lines
        self.assertIn("group cg waits for topic New: no route for topic New: none of a, b has it", line)
        self.cluster.topics.add("New")
        self.clock.advance(FIRST_LOOK_SECONDS)
        self.assertEqual(self.pulled(), {"T", "New"})
        self.cluster.deliver("a:10911", [(b"one", "")], 0, topic="New")
        self.assertEqual(self.got, [b"one"])
        self.assertEqual(len(self.lines), 1)

    def test_warning_is_repeated_every_thirty_seconds(self):
        self.open()
        self.clock.pump([1] * 100)
        self.assertEqual(len(self.lines), 1 + 3, self.lines)
        self.assertGreaterEqual(TELL_SECONDS, 30)

    def test_looks_are_never_further_apart_than_five_seconds(self):
        self.open()
        self.clock.pump([1] * 60)
        before = len(self.cluster.of(105))
        self.clock.advance(LOOK_SECONDS)
        self.assertEqual(len(self.cluster.of(105)), before + 1)

    def test_consumer_without_name_server_starts_and_begins_when_it_comes(self):
        self.cluster.down.add(None)
        self.open(("T", "T2"))
        (line,) = self.lines
        self.assertIn("waits for topic T, T2: no name server can be reached", line)
        self.assertEqual(self.cluster.heartbeats, [])
        self.clock.pump([1] * 25)  # no line about the retry topic
        self.assertEqual(len(self.lines), 1, self.lines)
        self.cluster.down.clear()
        self.cluster.topics.add("T2")
        self.clock.advance(LOOK_SECONDS)
        self.assertEqual(self.pulled(), {"T", "T2"})
        self.assertTrue(self.cluster.heartbeats)

    def test_consumer_without_broker_starts_and_begins_when_it_comes(self):
        brokers, self.cluster.brokers = self.cluster.brokers, []
        self.cluster.topics.clear()
        self.open(("T",))
        self.assertIn("no broker is registered", self.lines[0])
        self.cluster.brokers = brokers
        self.cluster.topics.add("T")
        self.clock.advance(LOOK_SECONDS)
        self.assertEqual(self.pulled(), {"T"})

    def answer_searches(self):
        """Answer searches by time, and return the list of their times."""
        asked = []

        def answer_29(address, request, fields):
            asked.append(int(fields["timestamp"]))
            return RemotingCommand.response(0, ext_fields={"offset": "3"})

        self.cluster.answer_29 = answer_29
        return asked

    def test_latest_of_topic_that_came_later_begins_at_the_start_of_the_consumer(self):
        self.open(begin="latest")
        self.cluster.topics.add("New")
        asked = self.answer_searches()
        self.clock.advance(FIRST_LOOK_SECONDS)
        looks_ms = ROUTE_LOOKS * ROUTE_LOOK_SECONDS * 1000
        self.assertEqual(set(asked), {int(START_MS + looks_ms - CLOCK_SKEW_SECONDS * 1000)})

    def test_latest_of_chosen_queues_that_came_later_begins_at_the_start_of_the_consumer(self):
        consumer = LitePullConsumerEngine(self.client, "cg", options=LitePullOptions(begin="latest"))
        self.result_of(consumer.assign([MessageQueue("New", "a", 0)]))
        self.starts(consumer)
        self.cluster.topics.add("New")
        asked = self.answer_searches()
        self.clock.advance(FIRST_LOOK_SECONDS)
        looks_ms = ROUTE_LOOKS * ROUTE_LOOK_SECONDS * 1000
        self.assertEqual(asked, [int(START_MS + looks_ms - CLOCK_SKEW_SECONDS * 1000)])

    def test_stop_while_waiting_looks_no_more(self):
        consumer = self.open()
        self.end_of(consumer.stop())
        self.cluster.topics.add("New")
        before = len(self.cluster.asked)
        self.clock.advance(60)
        self.assertEqual([code for code in self.cluster.codes()[before:] if code in (105, 11)], [])

    def test_unsubscribed_topic_is_no_longer_waited_for(self):
        consumer = self.open(("T", "New"))
        consumer.unsubscribe("New")
        self.clock.pump([1] * 60)
        self.assertEqual(len(self.lines), 1)
        self.cluster.topics.add("New")
        self.clock.advance(20)
        self.assertEqual(self.pulled(), {"T"})

    def hold_routes(self, *topics):
        """Hold the next answer about the route of each topic. Return the functions that give them."""
        answer_105, held = self.cluster.answer_105, {}

        def answer(address, request, fields):
            topic = fields["topic"]
            if topic not in topics or topic in held:
                return answer_105(address, request, fields)
            answered = Deferred()
            held[topic] = lambda: answered.callback(answer_105(address, request, fields))
            return answered

        self.cluster.answer_105 = answer
        return held

    def refuse_creation(self):
        def answer_17(address, request, fields):
            self.fail(f"created {fields['topic']}")

        self.cluster.answer_17 = answer_17

    def test_topic_unsubscribed_during_first_look_is_neither_created_nor_waited_for(self):
        for missing in ("wait", "create", "raise"):
            with self.subTest(missing=missing):
                self.setUp()
                self.refuse_creation()
                consumer = self.open(("T",), missing=missing)
                held = self.hold_routes("New")
                consumer.subscribe("New")
                consumer.unsubscribe("New")
                held["New"]()
                self.clock.pump([1] * 60)
                self.assertEqual(self.lines, [])

    def test_topic_unsubscribed_during_start_is_not_looked_for(self):
        held = self.hold_routes("T")
        consumer = PushConsumerEngine(self.client, "cg", self.take, options=ConsumerOptions(missing="raise"))
        consumer.subscribe("T")
        consumer.subscribe("New")
        started = Deferred.fromCoroutine(consumer.start())
        consumer.unsubscribe("New")
        held["T"]()
        self.successResultOf(started)
        self.assertEqual((self.pulled(), self.lines), ({"T"}, []))

    def test_topics_unsubscribed_during_later_look_are_not_created(self):
        self.refuse_creation()
        self.cluster.down.add(None)
        consumer = self.open(("T", "New", "New2"), missing="create")
        self.cluster.down.clear()
        held = self.hold_routes("New")
        self.clock.advance(LOOK_SECONDS)
        consumer.unsubscribe("New")
        consumer.unsubscribe("New2")
        held["New"]()
        self.clock.pump([1] * 60)
        self.assertEqual((self.pulled(), len(self.lines)), ({"T"}, 1), self.lines)

    def test_topic_subscribed_again_forgets_that_it_was_missing(self):
        consumer = self.open(begin="latest")
        consumer.unsubscribe("New")
        self.cluster.topics.add("New")
        consumer.subscribe("New")
        self.assertEqual(self.cluster.pulls("New"), {"a:10911": 7, "b:10911": 7})

    def test_latest_of_topic_subscribed_before_it_came_begins_at_the_subscription(self):
        """The options do not say that the consumer waits for it, but it does not end either."""
        consumer = self.open(("T",), begin="latest", missing="raise")
        asked = self.answer_searches()
        self.clock.advance(100)
        subscribed_ms = int(self.client.now_ms())
        consumer.subscribe("New")
        self.clock.pump([ROUTE_LOOK_SECONDS] * ROUTE_LOOKS)
        self.assertIn("subscribes to New: no route", self.lines[0])
        self.cluster.topics.add("New")
        self.clock.advance(20)
        self.assertEqual(self.pulled(), {"T", "New"})
        self.assertEqual(set(asked), {subscribed_ms - CLOCK_SKEW_SECONDS * 1000})
        self.assertEqual([line for line in self.lines if "cannot find out" in line], [])

    def test_topic_subscribed_later_is_waited_for(self):
        consumer = self.open(("T",))
        consumer.subscribe("New")
        self.clock.pump([ROUTE_LOOK_SECONDS] * ROUTE_LOOKS)
        self.assertIn("waits for topic New", self.lines[0])
        self.cluster.topics.add("New")
        self.clock.advance(FIRST_LOOK_SECONDS)
        self.assertEqual(self.pulled(), {"T", "New"})

    def test_missing_topic_is_created_on_request(self):
        created = []

        def answer_17(address, request, fields):
            created.append((address, fields["topic"], fields["readQueueNums"]))
            self.cluster.topics.add(fields["topic"])
            return RemotingCommand.response(0)

        self.cluster.answer_17 = answer_17
        self.open(missing="create")
        self.assertEqual(created, [("a:10911", "New", "4"), ("b:10911", "New", "4")])
        self.assertEqual((self.pulled(), self.lines), ({"New"}, []))

    def test_missing_topic_is_created_when_its_brokers_come(self):
        def answer_17(address, request, fields):
            self.cluster.topics.add(fields["topic"])
            return RemotingCommand.response(0)

        self.cluster.answer_17 = answer_17
        self.cluster.down.add(None)
        self.open(missing="create")
        self.assertEqual(self.pulled(), set())
        self.cluster.down.clear()
        self.clock.advance(LOOK_SECONDS)
        self.assertEqual(self.pulled(), {"New"})

    def test_refused_expression_of_late_topic_is_logged(self):
        self.open(wanted=Sql("a = "))
        self.cluster.topics.add("New")
        self.cluster.refusals[46, "a:10911"] = self.cluster.refusals[46, "b:10911"] = 23
        self.clock.advance(FIRST_LOOK_SECONDS)
        self.assertIn("SUBSCRIPTION_PARSE_FAILED", self.lines[-1])

    def test_wrong_addresses_are_not_waited_for(self):
        """A program without an address of a name server, or with that of a broker, would wait for ever."""
        self.cluster.refusals[105, None] = 3
        self.check_raises("is not a name server")
        del self.cluster.refusals[105, None]
        self.cluster.down.add(None)
        self.cluster.addresses = ()
        self.check_raises("no name server is given")

    def check_raises(self, text):
        consumer = PushConsumerEngine(self.client, "cg", self.take)
        consumer.subscribe("T")
        self.assertIn(text, str(self.failure_of(consumer.start(), NoNameServerError)))
        self.end_of(consumer.stop())

    def test_polling_consumer_waits_too(self):
        consumer = LitePullConsumerEngine(self.client, "cg", options=LitePullOptions(begin="earliest"))
        consumer.subscribe("New")
        self.starts(consumer)
        polling = Deferred.fromCoroutine(consumer.poll(30))
        self.cluster.topics.add("New")
        self.clock.advance(FIRST_LOOK_SECONDS)
        self.cluster.deliver("b:10911", [(b"one", "")], 0, topic="New")
        self.assertEqual([message.body for message in self.successResultOf(polling)], [b"one"])

    def test_other_values_are_refused(self):
        for wrong in ("ignore", None, True):
            self.assertRaisesRegex(
                IllegalOptionError, "missing=.*'wait', 'raise' or 'create'", Consumer, "g", missing=wrong
            )
