"""Waits of a send: for flush, replication, both or neither."""

import os

from twisted.logger import LogLevel, formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from rocketd.broker.send.durability import Durability
from rocketd.broker.send.processor import SendMessageProcessor
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.store.format.message import MessageInner, PutStatus
from tests.support.broker import BORN_HOST, RecordingConnection, SmallBroker, job_of

OK = PutStatus.PUT_OK
FIELDS = {
    "a": "P", "b": "T", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1700000000000", "h": "0", "j": "0", "k": "false",
    "m": "false",
}  # fmt: skip


class DurabilityTestCase(SynchronousTestCase):
    options = {}

    def setUp(self):
        self.broker = SmallBroker(os.path.abspath(self.mktemp()), **self.options)
        self.broker.start()
        self.addCleanup(self.broker.stop)
        self.flushes = []
        self.broker.store.when_flushed = lambda offset, callback: self.flushes.append((offset, callback))
        self.replicas = self.broker.replication.waiting
        self.answers = []


class NeitherTests(DurabilityTestCase):
    def test_async_flush_without_slave_needs_no_wait(self):
        self.assertFalse(Durability(self.broker).needed)


class ReplicaTests(DurabilityTestCase):
    options = {"brokerRole": "SYNC_MASTER"}

    def send(self, **properties):
        text = "\x02".join(f"{name}\x01{value}" for name, value in properties.items())
        connection = RecordingConnection()
        processor = SendMessageProcessor(self.broker)
        processor.process_jobs([job_of(processor, connection, RemotingCommand(310, {**FIELDS, "i": text}, b"x"))])
        return connection

    def test_send_is_answered_after_replication(self):
        for status, code in ((OK, 0), (PutStatus.FLUSH_SLAVE_TIMEOUT, 12), (PutStatus.SLAVE_NOT_AVAILABLE, 11)):
            connection = self.send()
            self.assertEqual(connection.answers(), [])
            ((end, callback),) = self.replicas
            self.assertEqual(end, self.broker.store.max_physical_offset())
            callback(status)
            answer = connection.answer()
            self.assertEqual((answer.code, answer.remark), (code, None))
            self.assertIn("msgId", answer.ext_fields)
            self.replicas.clear()
        self.assertEqual(self.flushes, [])

    def test_send_without_wait_is_answered_at_once(self):
        self.assertEqual(self.send(WAIT="false").answer().code, 0)
        self.assertEqual(self.replicas, [])

    def test_group_is_answered_in_the_thread_of_the_report(self):
        processor = SendMessageProcessor(self.broker)
        connections = [RecordingConnection() for _ in range(3)]
        command = RemotingCommand(310, FIELDS, b"x")
        processor.process_jobs([job_of(processor, connection, command) for connection in connections])
        ((_, callback),) = self.replicas
        calls = []
        self.broker.dispatcher.call_from_thread = lambda *arguments: calls.append(arguments)
        callback(OK)
        self.assertEqual([connection.answer().code for connection in connections], [0] * 3)
        self.assertEqual(calls, [])


class BothTests(DurabilityTestCase):
    options = {"brokerRole": "SYNC_MASTER", "flushDiskType": "SYNC_FLUSH"}

    def answer(self, flush, replica, first):
        Durability(self.broker).when_safe(5, self.answers.append)
        ((flush_end, flushed),) = self.flushes
        ((replica_end, replicated),) = self.replicas
        self.assertEqual((flush_end, replica_end), (5, 5))
        self.flushes.clear()
        self.replicas.clear()
        calls = [lambda: flushed(flush), lambda: replicated(replica)]
        if first == "replica":
            calls.reverse()
        calls[0]()
        self.assertEqual(self.answers, [])
        calls[1]()
        return self.answers.pop()

    def test_send_waits_for_flush_and_slave_and_slave_status_wins(self):
        disk, slave = PutStatus.FLUSH_DISK_TIMEOUT, PutStatus.FLUSH_SLAVE_TIMEOUT
        for first in ("flush", "replica"):
            self.assertIs(self.answer(OK, OK, first), OK)
            self.assertIs(self.answer(disk, OK, first), disk)
            self.assertIs(self.answer(OK, slave, first), slave)
            self.assertIs(self.answer(disk, slave, first), slave)


class TimesTests(DurabilityTestCase):
    """A waiting put is counted when it is durable, with the time since its append began."""

    options = {"flushDiskType": "SYNC_FLUSH"}

    def setUp(self):
        super().setUp()
        self.events = []
        globalLogPublisher.addObserver(self.events.append)
        self.addCleanup(globalLogPublisher.removeObserver, self.events.append)
        self.counted = []
        self.broker.stats.puts_took = lambda puts, took_ms: self.counted.append((puts, int(took_ms)))
        self.broker.store.put_listener = self.broker.stats.puts_took

    def send(self, *waits):
        processor = SendMessageProcessor(self.broker)
        commands = [RemotingCommand(310, {**FIELDS, "i": f"WAIT\x01{wait}"}, b"x") for wait in waits]
        processor.process_jobs([job_of(processor, RecordingConnection(), *commands)])

    def slow_append(self, seconds):
        next_file = self.broker.store.commit_log.next_file

        def late():
            self.broker.clock.advance(seconds)
            return next_file()

        self.broker.store.commit_log.next_file = late

    def warnings(self):
        return [formatEvent(event) for event in self.events if event["log_level"] is LogLevel.warn]

    def test_put_time_is_counted_at_flush(self):
        self.slow_append(0.25)
        self.send("true", "true")
        self.assertEqual(self.counted, [])
        self.broker.clock.advance(0.125)
        ((_, flushed),) = self.flushes
        flushed(OK)
        self.assertEqual(self.counted, [(2, 375)])
        self.assertEqual(self.warnings(), [])

    def test_put_without_wait_is_counted_at_append(self):
        self.slow_append(0.25)
        self.send("true", "false", "false")
        self.assertEqual(self.counted, [(2, 250)])

    def test_slow_flush_is_logged(self):
        self.send("true")
        self.broker.clock.advance(0.7)
        ((_, flushed),) = self.flushes
        flushed(PutStatus.FLUSH_DISK_TIMEOUT)
        (warning,) = self.warnings()
        self.assertEqual(
            warning,
            "a put took 700 ms, more than 500, 0 of them in the append, the rest until its flush: FLUSH_DISK_TIMEOUT",
        )

    def test_slow_flushes_are_logged_once_a_second(self):
        durability = Durability(self.broker)
        for _ in range(4):
            durability.when_safe(5, self.answers.append)
        for seconds in (0.75, 0.25, 0.5, 0.5):
            self.broker.clock.advance(seconds)
            self.flushes.pop(0)[1](OK)
        _, second = self.warnings()
        self.assertTrue(second.endswith(" (2 more like this were not logged)"), second)
        self.assertEqual((len(self.counted), self.answers), (4, [OK] * 4))

    def test_slow_append_is_logged(self):
        self.slow_append(0.75)
        self.send("false", "false")
        (warning,) = self.warnings()
        self.assertEqual(
            warning,
            "appending 2 messages to the log took 750 ms, more than 500: the disk or the machine is slow",
        )
        self.assertEqual(self.counted, [(2, 750)])


class AsyncTimesTests(TimesTests):
    options = {}

    def test_put_time_is_counted_at_flush(self):
        """There is none to wait for: all are counted at the append, a batch as one."""
        self.slow_append(0.25)
        self.send("true", "true")
        self.assertEqual(self.counted, [(2, 250)])
        message = MessageInner("T", 0, 0, 0, 0, BORN_HOST, 0, 0, b"x", b"", 0)
        self.broker.store.put_batch([message, message])
        self.assertEqual(self.counted, [(2, 250), (1, 250)])

    def test_put_without_wait_is_counted_at_append(self):
        self.send("true", "false", "false")
        self.assertEqual(self.counted, [(3, 0)])

    def test_slow_flushes_are_logged_once_a_second(self):
        """Without waiting sends, no flush is logged as slow."""
        self.send("true", "true")
        self.broker.clock.advance(5)
        self.assertEqual(self.warnings(), [])

    def test_slow_flush_is_logged(self):
        """Without a waiting send, no put is slow."""
        self.send("true")
        self.broker.clock.advance(0.7)
        self.assertEqual((self.flushes, self.warnings()), ([], []))
