"""``rocketd consume``: the start of queues that appear later, and the commit after the last message."""

from contextlib import asynccontextmanager, redirect_stderr
from datetime import UTC, datetime
from io import StringIO

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from rocketd.client.consumer.membership.group_beginning import CLOCK_SKEW_SECONDS
from rocketd.remoting.wire.codes import RequestCode
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.tools.messages.consume import ConsumeLimits, print_messages
from rocketd.tools.messages.positions import StartPosition
from tests.support.client_cluster import ClientTestCase

A, B = "a:10911", "b:10911"
BEGIN_MS = 1_700_000_000_000 - CLOCK_SKEW_SECONDS * 1000
"""Time of the test's start, less the assumed skew."""
LOOK_SECONDS = 6
"""Seconds after which new queues are found."""


class Printer:
    """Stands in for a MessagePrinter that wants ``count`` messages."""

    def __init__(self, count):
        self.count = count
        self.bodies = []

    @property
    def complete(self):
        return len(self.bodies) == self.count

    @property
    def seen(self):
        return len(self.bodies)

    def print(self, message):
        self.bodies.append(message.body)
        return not self.complete


class ConsumeTestCase(ClientTestCase):
    def setUp(self):
        super().setUp()
        self.cluster.brokers = ["a"]

    @asynccontextmanager
    async def client_of_test(self, reactor, hooks=()):
        yield self.client

    def start(self, start, *, group=None, count=None, timeout=None):
        """Start the command for topic T."""
        self.printer = Printer(count)
        limits = ConsumeLimits("T", group, "*", start, count, timeout, True)
        access = type("Access", (), {"client": staticmethod(self.client_of_test)})
        with redirect_stderr(StringIO()):
            return Deferred.fromCoroutine(print_messages(self.clock, access, limits, self.printer))

    def advance(self, seconds):
        for _ in range(int(seconds * 10)):
            self.clock.advance(0.1)

    def end(self, work):
        """Cancel the command, and wait for its end."""
        outcomes = []
        work.addBoth(outcomes.append)
        work.cancel()
        while not outcomes:
            self.clock.run_call()

    def timestamps(self, address):
        """Return the times for which a broker was asked for an offset."""
        asked = self.cluster.of(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP)
        return [int(fields["timestamp"]) for at, fields in asked if at == address]


class LaterQueueTests(ConsumeTestCase):
    def test_later_queue_from_latest_starts_at_the_start_of_the_command(self):
        work = self.start(StartPosition("latest"))
        self.assertEqual(self.cluster.pulls(), {A: 7})
        self.cluster.brokers.append("b")
        self.advance(LOOK_SECONDS)
        self.assertEqual(self.cluster.pulls(), {A: 7, B: 5})
        self.assertEqual((self.timestamps(A), self.timestamps(B)), ([], [BEGIN_MS]))
        self.cluster.deliver(B, [(b"old", "")], 5)
        self.assertEqual(self.printer.bodies, [])
        self.end(work)

    def test_later_queue_from_offset_or_time_starts_there(self):
        moment = datetime(2020, 1, 1, tzinfo=UTC)
        for start, offset in ((StartPosition("offset", 3), 3), (StartPosition("time", moment=moment), 5)):
            self.setUp()
            work = self.start(start)
            self.cluster.brokers.append("b")
            self.advance(LOOK_SECONDS)
            self.assertEqual(self.cluster.pulls(), {A: offset, B: offset})
            self.assertEqual(self.timestamps(B), [] if start.moment is None else [int(moment.timestamp() * 1000)])
            self.end(work)

    def test_later_queue_from_earliest_starts_at_its_beginning(self):
        work = self.start(StartPosition("earliest"))
        self.cluster.brokers.append("b")
        self.advance(LOOK_SECONDS)
        self.assertEqual(self.cluster.pulls(), {A: 0, B: 0})
        self.end(work)

    def test_missing_topic_from_latest_starts_at_the_start_of_the_command(self):
        self.cluster.topics.clear()
        for group in (None, "cg"):
            self.setUp()
            self.cluster.topics.clear()
            work = self.start(StartPosition("latest"), group=group)
            self.assertEqual(self.cluster.pulls(), {})
            self.cluster.topics.add("T")
            with redirect_stderr(StringIO()):
                self.advance(2)
            self.assertEqual(self.cluster.pulls()[A], 5)
            self.assertEqual(self.timestamps(A), [BEGIN_MS])
            self.end(work)


class CommitTests(ConsumeTestCase):
    def committed_late(self, disturb):
        """Print the one wanted message, disturb the command during the commit, and return the exit status."""
        self.cluster.offsets[A, "T"] = 3
        work = self.start(StartPosition("earliest"), group="cg", count=1, timeout=60)
        answers = []

        def hold(address, request, fields):
            answers.append((fields, Deferred()))
            return answers[-1][1]

        self.cluster.answer_15 = hold
        self.cluster.deliver(A, [(b"one", "")], 3)
        while not answers:
            self.clock.run_call()
        disturb(work)
        self.assertNoResult(work)
        ((fields, answer),) = answers
        self.assertEqual((fields["topic"], fields["commitOffset"], answer.called), ("T", "4", False))
        answer.callback(RemotingCommand.response(0))
        self.assertEqual(self.printer.bodies, [b"one"])
        outcomes = []
        work.addBoth(outcomes.append)
        while not outcomes:
            self.clock.run_call()
        return outcomes[0]

    def test_timeout_during_the_last_commit_does_not_cut_it_off(self):
        self.assertEqual(self.committed_late(lambda work: Clock.advance(self.clock, 61)), 0)

    def test_ctrl_c_during_the_last_commit_does_not_cut_it_off(self):
        self.assertEqual(self.committed_late(lambda work: (work.cancel(), work.cancel())), 0)
