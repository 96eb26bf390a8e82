"""CPU time of the longest steps that a hostile peer can cause: others are served within 100 ms.

The time of the thread is measured, so other processes and tests do not count.
"""

import gc
import os
from itertools import pairwise
from time import thread_time

from twisted.trial.unittest import SynchronousTestCase

from rocketd.broker.clients.heartbeats import ClientManageProcessor
from rocketd.broker.registration import Registration
from rocketd.filter.selector import compile_selector
from rocketd.remoting.bodies.tables import TopicConfig
from rocketd.remoting.fastjson import dialect as fastjson
from rocketd.remoting.serving.dispatch import Dispatcher
from rocketd.remoting.wire.codes import RequestCode
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.remoting.wire.frame import FrameDecoder
from tests.support.broker import RecordingConnection, SmallBroker
from tests.unit.broker.test_registration import FakeClient, ReactorClock

LONGEST_SECONDS = 0.1
"""The longest CPU time of one step."""

SUBSCRIPTIONS = 5
"""Subscriptions of each group: 2,000 groups have as many as maxSubscriptionsPerConnection."""


class ShortStepsTests(SynchronousTestCase):
    def setUp(self):
        self.broker = SmallBroker(os.path.abspath(self.mktemp()), namesrvAddr="10.0.0.1:9876")
        self.broker.start()
        self.addCleanup(self.broker.stop)
        # A collection of the garbage of all earlier tests is not part of a step.
        gc.disable()
        self.addCleanup(gc.enable)

    def cpu_seconds(self, step):
        began = thread_time()
        step()
        return thread_time() - began

    def assert_short(self, steps):
        self.assertLess(max(self.cpu_seconds(step) for step in steps), LONGEST_SECONDS)

    def write_in_thread(self):
        self.broker.table_writer.start()
        self.addCleanup(self.broker.table_writer.stop)

    def largest_heartbeat(self):
        """Return a heartbeat at the limits of groups and subscriptions."""
        limits = self.broker.settings.broker
        limits.max_new_groups_per_heartbeat = limits.max_new_groups_per_second = 0
        groups = limits.max_groups_per_connection
        consumers = [
            {
                "groupName": f"invented-{number}",
                "subscriptionDataSet": [
                    {"topic": f"T{number}-{n}", "subString": f"a > {n}", "expressionType": "SQL92", "subVersion": 1}
                    for n in range(SUBSCRIPTIONS)
                ],
            }
            for number in range(groups)
        ]
        producers = [{"groupName": f"P{number}"} for number in range(groups)]
        body = {"clientID": "c", "consumerDataSet": consumers, "producerDataSet": producers}
        return RemotingCommand(RequestCode.HEART_BEAT, {}, fastjson.dumps(body))

    def test_largest_heartbeat_is_received_by_short_steps(self):
        data = self.largest_heartbeat().encode()
        calls = []
        dispatcher = Dispatcher(lambda *call: calls.append(call))
        dispatcher.register(RequestCode.HEART_BEAT, ClientManageProcessor(self.broker), "heartbeat")
        decoder, connection = FrameDecoder(), RecordingConnection()

        def receive(at):
            if frames := decoder.feed(data[at : at + 65_536]):
                dispatcher.dispatch(connection, frames)

        self.assert_short([lambda at=at: receive(at) for at in range(0, len(data), 65_536)])
        self.assertEqual(dispatcher.pool("heartbeat").queued_requests, 1)

    def test_largest_heartbeat_and_its_end_are_handled_by_short_steps(self):
        self.write_in_thread()
        compile_selector("SQL92", "a > 1")  # the first one imports the parser, once in a process
        request, connection = self.largest_heartbeat(), RecordingConnection()
        context = type("Context", (), {"connection": connection})()
        self.broker.dispatcher.delay = True
        answer = ClientManageProcessor(self.broker).process(request, context)
        steps = []
        while not answer.called:
            steps.append(self.cpu_seconds(self.broker.dispatcher.run))
        self.assertEqual(self.successResultOf(answer).code, 0)
        self.assertLess(max(steps), LONGEST_SECONDS)
        self.assertEqual(len(self.broker.consumers.all_groups()), 2000)
        self.broker.dispatcher.delay = False
        connection.closed = True
        self.assert_short([lambda: self.broker.producers.connection_closed(connection)])
        # Other threads get the lock between two groups, so each group is a step.
        ends = [thread_time()]
        self.broker.consumers.on_group_gone(lambda _: ends.append(thread_time()))
        self.broker.consumers.connection_closed(connection)
        self.assertEqual(len(ends), 2001)
        self.assertLess(max(end - begin for begin, end in pairwise(ends)), LONGEST_SECONDS)
        self.assertLess(ends[-1] - ends[0], 10 * LONGEST_SECONDS, "a group costs as little among many filters")

    def test_change_among_most_topics_is_noted_and_registered_by_short_steps(self):
        topics = self.broker.topics
        number = self.broker.settings.broker.max_topics
        topics._table.update({f"topic-{n}": TopicConfig(f"topic-{n}", 8, 8) for n in range(number - 20)})
        self.write_in_thread()
        client = FakeClient()
        registration = Registration(self.broker, client, ReactorClock())
        self.successResultOf(registration.start())
        self.assert_short(
            [
                lambda: topics.create_topic_in_send_message("new", "TBW102", "10.0.0.1:5000", 4, 0),
                lambda: self.successResultOf(registration.register(force=True)),
            ]
        )
        self.assertGreater(len(client.asked[-1][1].body), 10 * number)
