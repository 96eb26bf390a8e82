"""What is wrong within groups: found by what heartbeats, pulls and commits tell, on real tables and a real store."""

from types import SimpleNamespace

from twisted.logger import formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from rocketd.broker.clients import ClientChannelInfo, wanted_texts
from rocketd.broker.processors.consumer_manage import ConsumerManageProcessor
from rocketd.broker.processors.group_problems import GroupProblemsProcessor
from rocketd.broker.pull_check import PullCheck
from rocketd.broker.testing import RecordingConnection, SmallBroker
from rocketd.remoting.bodies import ConsumerData, ConsumeType, MessageModel, SubscriptionData, TopicConfig
from rocketd.remoting.command import RemotingCommand
from rocketd.remoting.group_bodies import GroupProblemKind, GroupProblems
from rocketd.remoting.headers import PullMessageRequestHeader
from rocketd.store.message import MessageInner

GRACE = 120
DIFFERENT, DUPLICATE, UNREAD = GroupProblemKind


class WantedTests(SynchronousTestCase):
    def texts(self, *expressions, kind="TAG"):
        return [wanted_texts([SubscriptionData("T", text, expression_type=kind)])["T"] for text in expressions]

    def test_the_order_of_tags_is_no_difference(self):
        self.assertEqual(self.texts("A||B", " B || A", "B||A||"), ["A || B"] * 3)

    def test_all(self):
        self.assertEqual(self.texts("*", ""), ["*", "*"])

    def test_sql(self):
        self.assertEqual(self.texts("a = 1", kind="SQL92"), ["SQL92: a = 1"])


class GuardTestCase(SynchronousTestCase):
    def setUp(self):
        self.broker = SmallBroker(self.mktemp())
        self.broker.start()
        self.addCleanup(self.broker.stop)
        self.broker.topics.update(TopicConfig("T", 2, 2))
        self.guard = self.broker.group_guard
        self.connections = {}

    def beat(self, name, client_id=None, group="G", topics=None, passive=True, kind="TAG"):
        """Let the client on the connection of that name send a heartbeat."""
        connection = self.connections.setdefault(name, RecordingConnection(f"10.0.0.1:{1000 + len(self.connections)}"))
        now = self.broker.now_ms()
        client = ClientChannelInfo(connection, client_id or name, 0, 407, now, now)
        data = ConsumerData(
            group,
            ConsumeType.CONSUME_PASSIVELY if passive else ConsumeType.CONSUME_ACTIVELY,
            MessageModel.CLUSTERING,
            subscription_data_set=[
                SubscriptionData(topic, text, expression_type=kind)
                for topic, text in (topics or {"T": "*", f"%RETRY%{group}": "*"}).items()
            ],
        )
        self.broker.consumers.register(client, data, notify=False)

    def read_all(self, group="G", topic="T"):
        for queue_id in range(2):
            self.guard.queue_used(group, topic, queue_id)

    def found(self, group=None):
        return [(problem.group, problem.kind, problem.topic) for problem in self.guard.problems(group)]

    def pass_seconds(self, seconds):
        self.broker.clock.advance(seconds)


class SubscriptionTests(GuardTestCase):
    def test_equal_ones_are_no_problem(self):
        self.beat("a", topics={"T": "A||B"})
        self.beat("b", topics={"T": "B || A"})
        self.guard.problems()
        self.pass_seconds(GRACE - 1)
        self.read_all()
        self.assertEqual(self.found(), [])

    def test_different_tags(self):
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

    def test_a_topic_that_only_some_want(self):
        self.beat("a", topics={"T": "*", "U": "*"})
        self.beat("b", topics={"T": "*"})
        self.broker.settings.broker.group_guard_grace_time = 1
        self.guard.problems()
        self.pass_seconds(1)
        self.read_all()
        (problem,) = self.guard.problems()
        self.assertIn("of U, a subscribe to '*', b do not subscribe", problem.text)

    def test_a_rolling_deployment_in_time(self):
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
    def test_twins_that_both_speak(self):
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

    def test_a_client_that_came_back_on_a_new_connection(self):
        self.beat("a", "one")
        self.pass_seconds(1)
        self.beat("b", "one")
        self.pass_seconds(30)
        self.beat("b", "one")
        self.assertEqual(self.found(), [])

    def test_over_when_one_leaves(self):
        self.beat("a", "one")
        self.pass_seconds(1)
        self.beat("b", "one")
        self.pass_seconds(1)
        self.beat("a", "one")
        self.assertEqual(len(self.found()), 1)
        self.broker.consumers.connection_closed(self.connections["a"])
        self.assertEqual(self.found(), [])


class UnreadQueueTests(GuardTestCase):
    def put(self, queue_id, count):
        message = MessageInner("T", queue_id, 0, 0, self.broker.now_ms(), b"\x7f\0\0\1\0\0\0\1", 0, 0, b"x", b"", 0)
        self.broker.store.put_messages([message] * count)
        self.broker.settle()

    def test_a_queue_without_a_reader(self):
        self.beat("a", topics={"T": "*"})
        self.put(1, 5)
        self.broker.offsets.commit("h:1", "G", "T", 1, 2)
        self.pass_seconds(GRACE - 1)
        self.assertEqual(self.found(), [])
        self.guard.queue_used("G", "T", 0)
        self.pass_seconds(1)
        (problem,) = self.guard.problems()
        self.assertEqual((problem.kind, problem.topic, problem.queues, problem.waiting), (UNREAD, "T", [1], 3))
        self.assertIn("nobody reads queue 1 of T, 3 messages wait there; members are a", problem.text)
        self.guard.queue_used("G", "T", 1)
        self.assertEqual(self.found(), [])

    def test_a_retry_topic_only_when_something_is_in_it(self):
        self.broker.topics.update(TopicConfig("%RETRY%G", 1, 1))
        self.beat("a", topics={"T": "*", "%RETRY%G": "*"})
        self.pass_seconds(GRACE)
        self.read_all()
        self.assertEqual(self.found(), [])
        message = MessageInner("%RETRY%G", 0, 0, 0, self.broker.now_ms(), b"\x7f\0\0\1\0\0\0\1", 0, 0, b"x", b"", 0)
        self.broker.store.put_messages([message])
        self.broker.settle()
        self.assertEqual(self.found(), [("G", UNREAD, "%RETRY%G")])

    def unread_after_grace(self, **more):
        self.beat("a", topics={"T": "*"}, **more)
        self.pass_seconds(GRACE)
        return self.found()

    def test_who_pulls_at_will_need_not(self):
        self.assertEqual(self.unread_after_grace(passive=False), [])

    def test_who_may_not_read_need_not(self):
        self.broker.topics.update(TopicConfig("T", 2, 2, perm=2))
        self.assertEqual(self.unread_after_grace(), [])
        self.broker.topics.update(TopicConfig("T", 2, 2))
        self.assertEqual(self.found(), [("G", UNREAD, "T")])
        self.broker.settings.broker.broker_permission = 2
        self.assertEqual(self.found(), [])

    def test_a_group_that_is_switched_off(self):
        config = self.broker.groups.find("G")
        config.consume_enable = False
        self.assertEqual(self.unread_after_grace(), [])

    def test_slaves_are_not_read(self):
        self.broker.settings.store.broker_role = "SLAVE"
        self.assertEqual(self.unread_after_grace(), [])

    def test_pulls_and_commits_are_use(self):
        self.beat("a", topics={"T": "*"})
        self.pass_seconds(GRACE)
        check = PullCheck(self.broker)
        check.check(PullMessageRequestHeader("G", "T", 0, 0, 32, 0, 0, 0, 0), "h:1")
        request = RemotingCommand(15, {"consumerGroup": "G", "topic": "T", "queueId": "1", "commitOffset": "0"})
        context = SimpleNamespace(connection=RecordingConnection())
        ConsumerManageProcessor(self.broker).process(request, context)
        self.assertEqual(self.found(), [])


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

    def test_one_line_a_minute(self):
        self.lines.clear()
        for _ in range(13):
            self.guard.check()
            self.pass_seconds(10)
        lines = [line for line in self.lines if line.startswith("consumer group G: ")]
        self.assertEqual(len(lines), 3)
        self.assertIn("b subscribe to 'B', a subscribe to 'A'", lines[0])
        self.assertIn("; nobody reads queue 0, 1 of T", lines[0])

    def test_groups_that_have_gone_leave_nothing(self):
        self.read_all()
        self.guard.check()
        for connection in self.connections.values():
            self.broker.consumers.connection_closed(connection)
        self.guard.check()
        self.assertEqual((self.guard._used, self.guard._since, self.guard._logged), ({}, {}, {}))


class AnswerTests(GuardTestCase):
    def ask(self, **fields):
        processor = GroupProblemsProcessor(self.broker)
        answer = processor.process(RemotingCommand(30001, fields), None)
        return GroupProblems.decode(answer.body)

    def test_of_one_group_or_all(self):
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
            everything.counts, {"DIFFERENT_SUBSCRIPTIONS": 2, "DUPLICATE_CLIENT_ID": 0, "UNREAD_QUEUES": 0}
        )
        self.assertEqual([problem.group for problem in self.ask(consumerGroup="H").problems], ["H"])
        self.assertEqual(self.ask(consumerGroup="X").problems, [])
        self.assertEqual(len(self.ask().problems), 2)
