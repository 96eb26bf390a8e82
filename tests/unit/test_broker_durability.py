"""What a send waits for: flush, replication, both or nothing."""

import os

from twisted.trial.unittest import SynchronousTestCase

from rocketd.broker.durability import Durability
from rocketd.broker.processors.send import SendMessageProcessor
from rocketd.broker.testing import RecordingConnection, SmallBroker, job_of
from rocketd.remoting.command import RemotingCommand
from rocketd.store.message import PutStatus

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
    def test_nothing_is_waited_for(self):
        self.assertFalse(Durability(self.broker).needed)


class ReplicaTests(DurabilityTestCase):
    options = {"brokerRole": "SYNC_MASTER"}

    def send(self, **properties):
        text = "\x02".join(f"{name}\x01{value}" for name, value in properties.items())
        connection = RecordingConnection()
        processor = SendMessageProcessor(self.broker)
        processor.process_jobs([job_of(processor, connection, RemotingCommand(310, {**FIELDS, "i": text}, b"x"))])
        return connection

    def test_a_send_is_answered_when_a_slave_has_it(self):
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

    def test_one_that_does_not_wait_is_answered_at_once(self):
        self.assertEqual(self.send(WAIT="false").answer().code, 0)
        self.assertEqual(self.replicas, [])


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

    def test_both_are_waited_for_and_the_slave_counts_more(self):
        disk, slave = PutStatus.FLUSH_DISK_TIMEOUT, PutStatus.FLUSH_SLAVE_TIMEOUT
        for first in ("flush", "replica"):
            self.assertIs(self.answer(OK, OK, first), OK)
            self.assertIs(self.answer(disk, OK, first), disk)
            self.assertIs(self.answer(OK, slave, first), slave)
            self.assertIs(self.answer(disk, slave, first), slave)
