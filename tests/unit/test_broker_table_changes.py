"""Requests that are held until a table changes, and sends that wait until a slave knows their topic."""

import os

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from rocketd.broker.replication.table_changes import HOLD_SECONDS, MAX_HELD, PROGRESS_SECONDS, TableChanges
from rocketd.broker.testing import SmallBroker
from rocketd.remoting.bodies import SubscriptionGroupConfig, TopicConfig
from rocketd.remoting.command import RemotingCommand
from rocketd.store.message import PutStatus


class Reactor(Clock):
    def callFromThread(self, function, *arguments):
        function(*arguments)


class Context:
    def __init__(self):
        self.answers = []

    def answer(self, response):
        self.answers.append(response)


class TableChangesTests(SynchronousTestCase):
    def setUp(self):
        self.broker = SmallBroker(os.path.abspath(self.mktemp()), brokerRole="SYNC_MASTER")
        self.broker.start()
        self.addCleanup(self.broker.stop)
        self.reactor = Reactor()
        self.slaves = True
        self.changes = TableChanges(self.broker, self.reactor, lambda: self.slaves)
        self.changes.start()
        self.addCleanup(self.changes.stop)
        self.statuses = []
        self.fields = {}

    def ask(self, **fields):
        context = Context()
        self.changes.watch(RemotingCommand(30003, fields or None), context)
        return context

    def follow(self):
        """Ask as a slave does that has everything."""
        (response,) = self.ask().answers
        return response.ext_fields

    def settle(self):
        self.changes.settle(frozenset(), self.statuses.append)
        return self.statuses

    def test_slave_that_lacks_something_is_answered_at_once(self):
        fields = self.follow()
        self.assertEqual(set(fields), {"topics", "groups", "offsets", "delays"})

    def test_request_is_held_until_a_topic_or_group_changes(self):
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

    def test_request_is_not_held_for_ever(self):
        context = self.ask(**self.follow())
        self.reactor.pump([0.25] * int(HOLD_SECONDS * 4))
        self.assertEqual(len(context.answers), 1)

    def test_too_many_requests_are_refused(self):
        fields = self.follow()
        held = [self.ask(**fields) for _ in range(MAX_HELD)]
        self.assertEqual(self.ask(**fields).answers[0].code, 2)
        self.changes.stop()
        self.assertEqual({len(context.answers) for context in held}, {1})
        self.changes.start()

    def test_send_waits_until_a_slave_has_the_topics(self):
        fields = self.follow()
        self.ask(**fields)
        self.broker.topics.update(TopicConfig("T", 1, 1))
        self.assertEqual(self.settle(), [])
        self.ask(**fields)
        self.assertEqual(self.statuses, [])
        self.ask(**self.follow())
        self.assertEqual(self.statuses, [PutStatus.PUT_OK])

    def test_version_of_another_table_counts_for_nothing(self):
        fields = self.follow()
        self.settle()
        for text in ("x", "", "1", "99-9999999999999", "0-0"):
            self.ask(**fields | {"topics": text})
            self.assertEqual(self.statuses, [])

    def test_nobody_is_waited_for_who_does_not_follow(self):
        self.assertEqual(self.settle(), [PutStatus.PUT_OK])
        self.follow()
        self.slaves = False
        self.assertEqual(self.settle(), [PutStatus.PUT_OK] * 2)

    def test_slave_that_hangs_costs_one_timeout(self):
        fields = self.follow()
        self.settle()
        self.reactor.pump([0.25] * 8)
        self.assertEqual(self.statuses, [PutStatus.FLUSH_SLAVE_TIMEOUT])
        self.assertEqual(self.settle()[1:], [PutStatus.SLAVE_NOT_AVAILABLE])
        self.ask(**fields)
        self.assertEqual(self.settle()[2:], [])
        self.ask(**fields)
        self.assertEqual(self.statuses[2:], [PutStatus.PUT_OK])

    def test_slave_that_is_gone_leaves_the_answer_to_the_log(self):
        self.follow()
        self.settle()
        self.slaves = False
        self.reactor.advance(0.25)
        self.assertEqual(self.statuses, [PutStatus.PUT_OK])
