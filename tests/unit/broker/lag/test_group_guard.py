"""Problems within groups, found from heartbeats, pulls and commits, on real tables and a real store."""

from types import SimpleNamespace

from twisted.logger import formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from rocketd.broker.clients.client import ClientChannelInfo, wanted_texts
from rocketd.broker.clients.consumer_requests import ConsumerManageProcessor
from rocketd.broker.lag.group_problems import GroupProblemsProcessor
from rocketd.broker.pull.pull_check import PullCheck
from rocketd.remoting.bodies.groups import GroupProblemKind, GroupProblems
from rocketd.remoting.bodies.tables import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    MessageModel,
    SubscriptionData,
    TopicConfig,
)
from rocketd.remoting.headers.client import PullMessageRequestHeader
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.store.format.message import MessageInner
from tests.support.broker import RecordingConnection, SmallBroker

GRACE = 120
DIFFERENT, DUPLICATE, UNREAD, FIRST = GroupProblemKind
WHERE = ConsumeFromWhere


class WantedTests(SynchronousTestCase):
    def texts(self, *expressions, kind="TAG"):
        return [wanted_texts([SubscriptionData("T", text, expression_type=kind)])["T"] for text in expressions]

    def test_order_of_tags_is_ignored(self):
        self.assertEqual(self.texts("A||B", " B || A", "B||A||"), ["A || B"] * 3)

    def test_subscription_to_all_tags(self):
        self.assertEqual(self.texts("*", ""), ["*", "*"])

    def test_sql_subscription(self):
        self.assertEqual(self.texts("a = 1", kind="SQL92"), ["SQL92: a = 1"])


class GuardTestCase(SynchronousTestCase):
    def setUp(self):
        self.broker = SmallBroker(self.mktemp())
        self.broker.start()
        self.addCleanup(self.broker.stop)
        self.broker.topics.update(TopicConfig("T", 2, 2))
        self.guard = self.broker.group_guard
        self.connections = {}

    def beat(self, name, client_id=None, group="G", topics=None, passive=True, kind="TAG", where=None):
        """Let the client on the connection of that name send a heartbeat."""
        connection = self.connections.setdefault(name, RecordingConnection(f"10.0.0.1:{1000 + len(self.connections)}"))
        now = self.broker.now_ms()
        client = ClientChannelInfo(connection, client_id or name, 0, 407, now, now)
        data = ConsumerData(
            group,
            ConsumeType.CONSUME_PASSIVELY if passive else ConsumeType.CONSUME_ACTIVELY,
            MessageModel.CLUSTERING,
            where,
            subscription_data_set=[
                SubscriptionData(topic, text, expression_type=kind)
                for topic, text in (topics or {"T": "*", f"%RETRY%{group}": "*"}).items()
            ],
        )
        self.broker.consumers.register(client, data, notify=False)

    def read_all(self, group="G", topic="T"):
        for queue_id in range(2):
            self.guard.queue_used(group, topic, queue_id)

    def put(self, queue_id, count, topic="T"):
        message = MessageInner(topic, queue_id, 0, 0, self.broker.now_ms(), b"\x7f\0\0\1\0\0\0\1", 0, 0, b"x", b"", 0)
        self.broker.store.put_messages([message] * count)
        self.broker.settle()

    def found(self, group=None):
        return [(problem.group, problem.kind, problem.topic) for problem in self.guard.problems(group)]

    def pass_seconds(self, seconds):
        self.broker.clock.advance(seconds)


class SubscriptionTests(GuardTestCase):
    def test_equal_subscriptions_are_not_a_problem(self):
        self.beat("a", topics={"T": "A||B"})
        self.beat("b", topics={"T": "B || A"})
        self.guard.problems()
        self.pass_seconds(GRACE - 1)
        self.read_all()
        self.assertEqual(self.found(), [])

    def test_different_tags_are_a_problem(self):
        self.beat("a", topics={"T": "A"})
        self.beat("b", topics={"T": "B"})
        self.beat("c", topics={"T": "B"})
        self.assertEqual(self.found(), [])
        began = self.broker.now_ms()
        self.pass_seconds(GRACE)
        self.read_all()
        (problem,) = self.guard.problems()
        self.assertEqual((problem.group, problem.kind, problem.topic), ("G", DIFFERENT, "T"))
        self.assertEqual(problem.since, began)
        self.assertIn("of T, b, c subscribe to 'B', a subscribe to 'A'", problem.text)
        self.assertEqual(len(problem.clients), 3)
        self.assertEqual(self.guard.counts[DIFFERENT], 1)

    def test_topic_of_some_members_is_a_problem(self):
        self.beat("a", topics={"T": "*", "U": "*"})
        self.beat("b", topics={"T": "*"})
        self.broker.settings.broker.group_guard_grace_time = 1
        self.guard.problems()
        self.pass_seconds(1)
        self.read_all()
        (problem,) = self.guard.problems()
        self.assertIn("of U, a subscribe to '*', b do not subscribe", problem.text)

    def test_rolling_deployment_within_grace_is_not_a_problem(self):
        self.beat("a", topics={"T": "A"})
        self.beat("b", topics={"T": "B"})
        self.guard.check()
        self.pass_seconds(GRACE - 1)
        self.beat("a", topics={"T": "B"})
        self.read_all()
        self.guard.check()
        self.pass_seconds(1)
        self.assertEqual(self.found(), [])
        self.beat("a", topics={"T": "A"})
        self.assertEqual(self.found(), [])

    def test_many_members_are_counted(self):
        for number in range(8):
            self.beat(f"c{number}", topics={"T": "A"})
        self.beat("x", topics={"T": "X"})
        self.broker.settings.broker.group_guard_grace_time = 0
        text = self.guard.problems()[0].text
        self.assertIn("x subscribe to 'X', c0, c1, c2, c3, c4 and 3 more subscribe to 'A'", text)


class DuplicateIdTests(GuardTestCase):
    def test_active_connections_with_same_client_id_are_a_problem(self):
        self.beat("a", "one")
        self.pass_seconds(1)
        self.beat("b", "one")
        self.assertEqual(self.found(), [])
        self.pass_seconds(30)
        self.beat("a", "one")
        (problem,) = self.guard.problems()
        self.assertEqual(problem.kind, DUPLICATE)
        self.assertIn("client id one is used by 10.0.0.1:1000, 10.0.0.1:1001", problem.text)
        self.assertEqual(self.guard.counts[DUPLICATE], 1)
        self.assertEqual(len(self.guard.problems()), 1)
        self.assertEqual(self.guard.counts[DUPLICATE], 1)

    def test_reconnected_client_is_not_a_duplicate(self):
        self.beat("a", "one")
        self.pass_seconds(1)
        self.beat("b", "one")
        self.pass_seconds(30)
        self.beat("b", "one")
        self.assertEqual(self.found(), [])

    def test_duplicate_ends_if_one_connection_closes(self):
        self.beat("a", "one")
        self.pass_seconds(1)
        self.beat("b", "one")
        self.pass_seconds(1)
        self.beat("a", "one")
        self.assertEqual(len(self.found()), 1)
        self.broker.consumers.connection_closed(self.connections["a"])
        self.assertEqual(self.found(), [])


class UnreadQueueTests(GuardTestCase):
    def test_queue_without_reader_is_a_problem(self):
        self.beat("a", topics={"T": "*"})
        self.put(1, 5)
        self.broker.offsets.commit("h:1", "G", "T", 1, 2)
        self.pass_seconds(GRACE - 1)
        self.assertEqual(self.found(), [])
        self.guard.queue_used("G", "T", 0)
        self.pass_seconds(1)
        (problem,) = self.guard.problems()
        self.assertEqual((problem.kind, problem.topic, problem.queues, problem.waiting), (UNREAD, "T", [1], 3))
        self.assertIn("queue 1 of T has no reader, 3 messages wait there; members are a", problem.text)
        self.guard.queue_used("G", "T", 1)
        self.assertEqual(self.found(), [])

    def test_retry_topic_needs_reader_only_with_messages(self):
        self.broker.topics.update(TopicConfig("%RETRY%G", 1, 1))
        self.beat("a", topics={"T": "*", "%RETRY%G": "*"})
        self.pass_seconds(GRACE)
        self.read_all()
        self.assertEqual(self.found(), [])
        self.put(0, 1, "%RETRY%G")
        self.assertEqual(self.found(), [("G", UNREAD, "%RETRY%G")])

    def unread_after_grace(self, **more):
        self.beat("a", topics={"T": "*"}, **more)
        self.pass_seconds(GRACE)
        return self.found()

    def test_pull_consumers_need_not_read_all_queues(self):
        self.assertEqual(self.unread_after_grace(passive=False), [])

    def test_unreadable_topic_needs_no_reader(self):
        self.broker.topics.update(TopicConfig("T", 2, 2, perm=2))
        self.assertEqual(self.unread_after_grace(), [])
        self.broker.topics.update(TopicConfig("T", 2, 2))
        self.assertEqual(self.found(), [("G", UNREAD, "T")])
        self.broker.settings.broker.broker_permission = 2
        self.assertEqual(self.found(), [])

    def test_disabled_group_needs_no_reader(self):
        config = self.broker.groups.find("G")
        config.consume_enable = False
        self.assertEqual(self.unread_after_grace(), [])

    def test_slave_reports_no_unread_queues(self):
        self.broker.settings.store.broker_role = "SLAVE"
        self.assertEqual(self.unread_after_grace(), [])

    def test_pull_or_commit_counts_as_reading(self):
        self.beat("a", topics={"T": "*"})
        self.pass_seconds(GRACE)
        check = PullCheck(self.broker)
        check.check(PullMessageRequestHeader("G", "T", 0, 0, 32, 0, 0, 0, 0), "10.0.0.1:1")
        request = RemotingCommand(15, {"consumerGroup": "G", "topic": "T", "queueId": "1", "commitOffset": "0"})
        context = SimpleNamespace(connection=RecordingConnection())
        ConsumerManageProcessor(self.broker).process(request, context)
        self.assertEqual(self.found(), [])


class FirstInsteadOfLastOffsetTests(GuardTestCase):
    def setUp(self):
        super().setUp()
        self.processor = ConsumerManageProcessor(self.broker)
        # Of unread queues it is told elsewhere.
        self.broker.settings.broker.group_guard_grace_time = 10_000_000

    def begin(self, *queue_ids, group="G", topic="T", answer="0"):
        """Query the first offset as a member, and compare the answer."""
        for queue_id in queue_ids:
            fields = {"consumerGroup": group, "topic": topic, "queueId": str(queue_id)}
            response = self.processor.process(RemotingCommand(14, fields), None)
            self.assertEqual((response.code, response.ext_fields.get("offset")), (0 if answer else 22, answer))

    def commit(self, queue_id, offset):
        self.broker.offsets.commit("h:1", "G", "T", queue_id, offset)

    def test_new_group_from_last_offset_starting_at_first_is_a_problem(self):
        self.put(0, 5)
        self.put(1, 2)
        self.beat("a", where=WHERE.CONSUME_FROM_LAST_OFFSET)
        self.begin(0, 1)
        self.put(0, 10)
        self.commit(0, 1)
        (problem,) = self.guard.problems()
        self.assertEqual((problem.group, problem.kind, problem.topic), ("G", FIRST, "T"))
        self.assertEqual((problem.queues, problem.waiting, len(problem.clients)), ([0, 1], 6, 1))
        self.assertEqual(
            problem.text,
            "wants CONSUME_FROM_LAST_OFFSET and began at the first message in queue 0, 1 of T, because the "
            "whole queue was still in memory: 7 messages at that time, 6 of them are unread; to skip all "
            "messages, wait some seconds, until the group has an offset in every queue, "
            "then run: mqadmin skipAccumulatedMessage -g G -t T",
        )
        self.guard.check()
        self.assertEqual(self.guard.counts[FIRST], 1)

    def test_first_offset_problem_is_found_with_later_heartbeat(self):
        self.put(0, 5)
        self.begin(0)
        self.beat("a", where=WHERE.CONSUME_FROM_LAST_OFFSET)
        self.assertEqual(self.found(), [("G", FIRST, "T")])

    def test_groups_from_first_offset_are_not_a_problem(self):
        self.put(0, 5)
        for where in (*WHERE, None):
            if where is not WHERE.CONSUME_FROM_LAST_OFFSET:
                self.beat("a", where=where)
                self.begin(0)
                self.assertEqual(self.found(), [], where)

    def test_messages_after_join_are_not_a_problem(self):
        self.beat("a", where=WHERE.CONSUME_FROM_LAST_OFFSET)
        self.begin(0)
        self.put(0, 5)
        self.guard.check()
        self.begin(0)
        self.assertEqual(self.found(), [])

    def test_new_queue_of_known_group_is_not_a_problem(self):
        self.beat("a", where=WHERE.CONSUME_FROM_LAST_OFFSET)
        self.commit(0, 0)
        self.put(1, 5)
        self.begin(1)
        self.assertEqual(self.found(), [])

    def test_retry_topic_is_not_a_problem(self):
        self.broker.topics.update(TopicConfig("%RETRY%G", 1, 1))
        self.put(0, 1, "%RETRY%G")
        self.beat("a", where=WHERE.CONSUME_FROM_LAST_OFFSET)
        self.begin(0, topic="%RETRY%G")
        self.assertEqual(self.found(), [])

    def test_group_started_at_end_is_not_a_problem(self):
        self.broker.store.is_on_disk = lambda *_queue: True
        self.put(0, 5)
        self.beat("a", where=WHERE.CONSUME_FROM_LAST_OFFSET)
        self.begin(0, answer=None)
        self.assertEqual(self.found(), [])

    def test_first_offset_problem_lasts_while_messages_are_left(self):
        self.put(0, 5)
        self.beat("a", where=WHERE.CONSUME_FROM_LAST_OFFSET)
        self.begin(0)
        self.put(0, 5)
        self.commit(0, 5)
        self.pass_seconds(599)
        self.guard.check()
        (problem,) = self.guard.problems()
        self.assertTrue(problem.text.endswith("5 messages at that time, none of them is unread"), problem.text)
        self.commit(0, 4)
        self.pass_seconds(1)
        self.guard.check()
        (problem,) = self.guard.problems()
        self.assertEqual((problem.waiting, self.guard.counts[FIRST]), (1, 1))
        self.commit(0, 5)
        self.assertEqual(self.found(), [])
        self.guard.check()
        self.assertEqual(self.guard._begun, {"G": {}})

    def test_unsubscribed_topic_ends_first_offset_problem(self):
        self.put(0, 5)
        self.beat("a", where=WHERE.CONSUME_FROM_LAST_OFFSET)
        self.begin(0)
        self.beat("a", topics={"U": "*"}, where=WHERE.CONSUME_FROM_LAST_OFFSET)
        self.assertEqual(self.found(), [])
        self.guard.check()
        self.assertEqual(self.guard._begun, {"G": {}})


class LogTests(GuardTestCase):
    def setUp(self):
        super().setUp()
        self.lines = []
        observer = lambda event: self.lines.append(formatEvent(event))  # noqa: E731
        globalLogPublisher.addObserver(observer)
        self.addCleanup(globalLogPublisher.removeObserver, observer)
        self.beat("a", topics={"T": "A"})
        self.beat("b", topics={"T": "B"})
        self.broker.settings.broker.group_guard_grace_time = 0

    def test_problems_are_logged_once_a_minute(self):
        self.lines.clear()
        for _ in range(13):
            self.guard.check()
            self.pass_seconds(10)
        lines = [line for line in self.lines if line.startswith("consumer group G: ")]
        self.assertEqual(len(lines), 3)
        self.assertIn("b subscribe to 'B', a subscribe to 'A'", lines[0])
        self.assertIn("; queue 0, 1 of T has no reader", lines[0])

    def test_problem_that_comes_back_is_logged_at_once(self):
        self.lines.clear()
        for grace in (0, 60_000, 0, 0):
            self.broker.settings.broker.group_guard_grace_time = grace
            self.guard.check()
        self.assertEqual(len([line for line in self.lines if line.startswith("consumer group G: ")]), 2)

    def test_first_offset_problem_is_logged(self):
        self.put(0, 3)
        self.beat("a", group="H", where=WHERE.CONSUME_FROM_LAST_OFFSET)
        self.guard.begun_at_first("H", "T", 0)
        self.read_all("H")
        self.lines.clear()
        self.broker.settings.broker.group_guard_grace_time = 1
        self.guard.check()
        (line,) = [line for line in self.lines if line.startswith("consumer group H: ")]
        self.assertTrue(
            line.startswith("consumer group H: wants CONSUME_FROM_LAST_OFFSET and began at the first"), line
        )

    def test_departed_groups_leave_no_state(self):
        self.read_all()
        self.guard.begun_at_first("G", "T", 0)
        self.guard.check()
        for connection in self.connections.values():
            self.broker.consumers.connection_closed(connection)
        self.guard.check()
        left = self.guard._used, self.guard._begun, self.guard._since, self.guard._logged
        self.assertEqual(left, ({}, {}, {}, set()))


class AnswerTests(GuardTestCase):
    def ask(self, **fields):
        processor = GroupProblemsProcessor(self.broker)
        answer = processor.process(RemotingCommand(30001, fields), None)
        return GroupProblems.decode(answer.body)

    def test_problems_of_one_group_or_all(self):
        self.broker.settings.broker.group_guard_grace_time = 0
        for group in ("G", "H"):
            self.beat("a", group=group, topics={"T": "A"})
            self.beat("b", group=group, topics={"T": "B"})
            self.read_all(group)
        self.broker.settings.broker.group_guard_grace_time = 1
        self.ask()
        self.pass_seconds(1)
        for group in ("G", "H"):
            self.read_all(group)
        everything = self.ask()
        self.assertEqual([problem.group for problem in everything.problems], ["G", "H"])
        self.assertEqual(
            everything.counts,
            {
                "DIFFERENT_SUBSCRIPTIONS": 2,
                "DUPLICATE_CLIENT_ID": 0,
                "UNREAD_QUEUES": 0,
                "FIRST_INSTEAD_OF_LAST_OFFSET": 0,
            },
        )
        self.assertEqual([problem.group for problem in self.ask(consumerGroup="H").problems], ["H"])
        self.assertEqual(self.ask(consumerGroup="X").problems, [])
        self.assertEqual(len(self.ask().problems), 2)
