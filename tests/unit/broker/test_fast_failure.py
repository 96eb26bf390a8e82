"""Waiting requests that are answered by another thread than their pool's: which, after how long, and how."""

import os

from twisted.trial.unittest import SynchronousTestCase

from rocketd.broker.fast_failure import FastFailure
from rocketd.broker.send.processor import SendMessageProcessor
from rocketd.broker.transaction.processor import EndTransactionProcessor
from rocketd.remoting.serving.dispatch import Dispatcher
from rocketd.remoting.serving.pools import Job
from rocketd.remoting.wire.command import ONEWAY_FLAG, RemotingCommand
from rocketd.remoting.wire.frame import FrameDecoder
from tests.support.broker import RecordingConnection, SmallBroker


class WaitingTests(SynchronousTestCase):
    """The threads of these pools never start: everything waits."""

    def setUp(self):
        self.broker = SmallBroker(os.path.abspath(self.mktemp()))
        self.broker.start()
        self.addCleanup(self.broker.stop)
        self.dispatcher = Dispatcher(lambda function, *arguments: function(*arguments))
        self.now = 0
        self.fast_failure = FastFailure(
            self.broker.settings.broker, self.dispatcher, self.broker.store, lambda: self.now, lambda: "an append, 7 ms"
        )
        self.connection = RecordingConnection()
        self.send = SendMessageProcessor(self.broker)
        self.end = EndTransactionProcessor(self.broker)

    def submit(self, handler, code, flag=0, pool="send"):
        frames = FrameDecoder().feed(RemotingCommand(code, {}, flag=flag).encode())
        self.assertTrue(self.dispatcher.pool(pool).submit(Job(handler, self.connection, frames, self.now)))

    def submit_mixed(self, flags):
        commands = [RemotingCommand(310, {}, flag=flag, opaque=n) for n, flag in enumerate(flags)]
        frames = FrameDecoder().feed(b"".join(command.encode() for command in commands))
        self.dispatcher.pool("send").submit(Job(self.send, self.connection, frames, self.now))

    def answers_at(self, milliseconds):
        self.now = milliseconds
        self.fast_failure.check()
        return [(answer.code, answer.remark.partition(";")[0]) for answer in self.connection.answers()]

    def test_send_limit_is_shorter_than_end_transaction_limit(self):
        self.submit(self.end, 37)
        self.submit(self.send, 310)
        self.submit(self.end, 37, ONEWAY_FLAG)
        pool = self.dispatcher.pool("send")
        kinds = EndTransactionProcessor, SendMessageProcessor
        self.assertEqual([pool.waiting_requests(kind) for kind in kinds], [2, 1])
        self.assertEqual(self.answers_at(200), [])
        ((code, remark),) = self.answers_at(201)
        self.assertEqual(code, 2)
        self.assertIn("period in queue: 201ms, size of queue: 3", remark)
        self.assertEqual(self.answers_at(3000), [])
        ((code, remark),) = self.answers_at(3001)
        self.assertEqual(code, 2)
        self.assertIn("period in queue: 3001ms, size of queue: 2", remark)
        self.assertEqual(self.dispatcher.pool("send").queued_requests, 1)

    def test_oneway_sends_stay_in_the_queue_at_their_place(self):
        self.submit_mixed([ONEWAY_FLAG, 0, ONEWAY_FLAG, 0])
        self.submit_mixed([ONEWAY_FLAG])
        self.submit_mixed([0])
        self.assertEqual(len(self.answers_at(201)), 3)
        self.assertEqual(self.answers_at(10_000), [])
        pool = self.dispatcher.pool("send")
        self.assertEqual((pool.queued_requests, pool.head_wait_ms(self.now)), (3, 10_000))
        handled = []
        self.patch(SendMessageProcessor, "process_jobs", lambda _, jobs: handled.extend(jobs))
        pool.start()
        pool.stop()
        opaques = [RemotingCommand.decode(frame).opaque for job in handled for frame in job.frames]
        self.assertEqual(opaques, [0, 2, 0])
        self.assertEqual((pool.queued_requests, pool.queued_bytes, pool.head_wait_ms(self.now)), (0, 0, 0))

    def test_end_transaction_limit_is_changed_while_running(self):
        self.submit(self.end, 37)
        self.broker.settings.broker.wait_time_mills_in_transaction_queue = 10
        self.assertEqual(len(self.answers_at(11)), 1)

    def test_send_limit_is_changed_while_running(self):
        self.broker.settings.broker.wait_time_mills_in_send_queue = 1000
        self.submit(self.send, 310)
        self.assertEqual(self.answers_at(1000), [])
        self.assertEqual([code for code, _ in self.answers_at(1001)], [2])

    def test_pull_and_heartbeat_limits_follow_settings(self):
        for name, limit in (("pull", 5000), ("heartbeat", 31_000)):
            with self.subTest(name):
                self.connection = RecordingConnection()
                self.now = 0
                self.submit(self.send, 11, pool=name)
                self.assertEqual(self.answers_at(limit), [])
                ((code, remark),) = self.answers_at(limit + 1)
                self.assertEqual(code, 2)
                self.assertIn(f"period in queue: {limit + 1}ms, size of queue: 1", remark)
                self.assertEqual(self.dispatcher.pool(name).queued_requests, 0)

    def test_pull_and_heartbeat_limits_are_changed_while_running(self):
        settings = self.broker.settings.broker
        settings.wait_time_mills_in_pull_queue = settings.wait_time_mills_in_heartbeat_queue = 10
        self.submit(self.send, 11, pool="pull")
        self.submit(self.send, 34, pool="heartbeat")
        self.assertEqual(self.answers_at(10), [])
        self.assertEqual([code for code, _ in self.answers_at(11)], [2, 2])

    def test_disabled_fast_failure_answers_nothing(self):
        self.broker.settings.broker.broker_fast_failure_enable = False
        self.submit(self.end, 37)
        self.submit(self.send, 310)
        self.assertEqual(self.answers_at(10_000), [])

    def test_hanging_append_answers_all_requests(self):
        self.submit(self.end, 37)
        self.submit(self.send, 310)
        self.patch(self.broker.store, "is_os_page_cache_busy", lambda: True)
        self.assertEqual([code for code, _ in self.answers_at(1)], [2, 2])
