"""Requests that are held until a table changes, and sends that wait until a slave knows their topic."""

import os
from types import SimpleNamespace

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from rocketd.broker.replication.as_master.table_changes import HOLD_SECONDS, PROGRESS_SECONDS, TableChanges
from rocketd.remoting.bodies.tables import SubscriptionGroupConfig, TopicConfig
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.store.format.message import PutStatus
from tests.support.broker import SmallBroker

SLAVE = "10.0.0.2"


class Reactor(Clock):
    def callFromThread(self, function, *arguments):
        function(*arguments)


class Context:
    def __init__(self, address):
        self.connection = SimpleNamespace(address=address)
        self.answers = []

    def answer(self, response):
        self.answers.append(response)


class TableChangesTests(SynchronousTestCase):
    def setUp(self):
        self.broker = SmallBroker(os.path.abspath(self.mktemp()), brokerRole="SYNC_MASTER")
        self.broker.start()
        self.addCleanup(self.broker.stop)
        self.reactor = Reactor()
        self.slaves = {SLAVE}
        self.changes = TableChanges(self.broker, self.reactor, lambda: self.slaves)
        self.changes.start()
        self.addCleanup(self.changes.stop)
        self.statuses = []
        self.fields = {}

    def ask(self, address=f"{SLAVE}:1000", **fields):
        context = Context(address)
        self.changes.watch(RemotingCommand(30003, fields or None), context)
        return context

    def follow(self):
        """Ask as a slave does that has everything."""
        (response,) = self.ask().answers
        return response.ext_fields

    def confirm(self):
        self.changes.confirm(frozenset(), self.statuses.append)
        return self.statuses

    def test_outdated_slave_is_answered_at_once(self):
        fields = self.follow()
        self.assertEqual(set(fields), {"topics", "groups", "offsets", "delays"})

    def test_request_is_held_until_topic_or_group_changes(self):
        for change in (
            lambda: self.broker.topics.update(TopicConfig("T", 1, 1)),
            lambda: self.broker.groups.update(SubscriptionGroupConfig("G")),
            lambda: self.broker.groups.find("H"),
        ):
            context = self.ask(**self.follow())
            self.assertEqual(context.answers, [])
            change()
            self.assertEqual(len(context.answers), 1)

    def test_offsets_are_announced_once_a_second(self):
        context = self.ask(**self.follow())
        self.broker.offsets.commit("c", "G", "T", 0, 1)
        self.reactor.advance(PROGRESS_SECONDS - 0.1)
        self.assertEqual(context.answers, [])
        self.reactor.advance(0.3)
        self.assertEqual(context.answers[0].ext_fields["offsets"], "1")

    def test_request_is_held_for_limited_time(self):
        context = self.ask(**self.follow())
        self.reactor.pump([0.25] * int(HOLD_SECONDS * 4))
        self.assertEqual(len(context.answers), 1)

    def test_stranger_is_refused_and_acknowledges_nothing(self):
        fields = self.follow()
        self.broker.topics.update(TopicConfig("T", 1, 1))
        self.confirm()
        current = self.follow_version()
        (answer,) = self.ask("10.0.0.9:1000", **fields | {"topics": current}).answers
        self.assertEqual(answer.code, 2)
        self.assertIn("no slave at 10.0.0.9 follows the log", answer.remark)
        self.assertEqual(self.statuses, [])
        self.ask(**fields | {"topics": current})
        self.assertEqual(self.statuses, [PutStatus.PUT_OK])

    def follow_version(self):
        version = self.broker.topics.data_version
        return f"{version.counter}-{version.timestamp}"

    def test_stranger_is_not_waited_for(self):
        self.ask("10.0.0.9:1000")
        self.assertEqual(self.confirm(), [PutStatus.PUT_OK])

    def test_connection_holds_one_request(self):
        fields = self.follow()
        first, second = self.ask(**fields), self.ask(**fields)
        self.assertEqual((len(first.answers), len(second.answers)), (1, 0))

    def test_host_holds_limited_requests_and_oldest_makes_room(self):
        self.slaves = {SLAVE, "10.0.0.3"}
        fields = self.follow()
        other = self.ask("10.0.0.3:1", **fields)
        held = [self.ask(f"{SLAVE}:{port}", **fields) for port in range(8)]
        self.assertEqual([len(context.answers) for context in held], [0] * 8)
        held.append(self.ask(f"{SLAVE}:9", **fields))
        self.assertEqual([len(context.answers) for context in held], [1] + [0] * 8)
        self.assertEqual(other.answers, [])
        self.changes.stop()
        self.assertEqual({len(context.answers) for context in [other, *held]}, {1})
        self.changes.start()

    def test_send_waits_until_a_slave_has_the_topics(self):
        fields = self.follow()
        self.ask(**fields)
        self.broker.topics.update(TopicConfig("T", 1, 1))
        self.assertEqual(self.confirm(), [])
        self.ask(**fields)
        self.assertEqual(self.statuses, [])
        self.ask(**self.follow())
        self.assertEqual(self.statuses, [PutStatus.PUT_OK])

    def test_send_does_not_wait_if_slave_copied_topics_before_they_were_written(self):
        self.follow()
        self.broker.topics.update(TopicConfig("T", 1, 1))
        held = self.ask(**self.follow())
        self.assertEqual((held.answers, self.confirm()), ([], [PutStatus.PUT_OK]))
        self.broker.topics.update(TopicConfig("U", 1, 1))
        self.assertEqual(self.confirm(), [PutStatus.PUT_OK])

    def test_slave_that_left_confirms_nothing(self):
        self.ask(**self.follow())
        self.slaves = {"10.0.0.3"}
        self.ask("10.0.0.3:1")
        self.assertEqual(self.confirm(), [])

    def test_version_of_other_table_is_ignored(self):
        fields = self.follow()
        self.confirm()
        for text in ("x", "", "1", "99-9999999999999", "0-0"):
            self.ask(**fields | {"topics": text})
            self.assertEqual(self.statuses, [])

    def test_send_does_not_wait_for_slave_without_request(self):
        self.assertEqual(self.confirm(), [PutStatus.PUT_OK])
        self.follow()
        self.slaves = set()
        self.assertEqual(self.confirm(), [PutStatus.PUT_OK] * 2)

    def test_hanging_slave_costs_one_timeout(self):
        fields = self.follow()
        self.confirm()
        self.reactor.pump([0.25] * 8)
        self.assertEqual(self.statuses, [PutStatus.FLUSH_SLAVE_TIMEOUT])
        self.assertEqual(self.confirm()[1:], [PutStatus.SLAVE_NOT_AVAILABLE])
        self.ask(**fields)
        self.assertEqual(self.confirm()[2:], [PutStatus.PUT_OK])

    def test_departed_slave_ends_wait(self):
        self.follow()
        self.confirm()
        self.slaves = set()
        self.reactor.advance(0.25)
        self.assertEqual(self.statuses, [PutStatus.PUT_OK])
