"""A test case for brokers with delayed messages."""

import os

from twisted.trial.unittest import SynchronousTestCase

from rocketd.broker.send.message_check import Destination
from rocketd.common.message_properties import encode_properties
from rocketd.remoting.headers.client import SendMessageRequestHeader
from rocketd.store.format.message import PutStatus
from rocketd.store.format.record import decode_message
from tests.support.broker import BORN_HOST, SmallBroker


class ScheduleTestCase(SynchronousTestCase):
    def setUp(self):
        self.directory = os.path.abspath(self.mktemp())
        self.broker = None
        self.start()
        self.addCleanup(lambda: self.broker.stop())

    def start(self, clock=None, **options):
        self.broker = SmallBroker(self.directory, clock, **options)
        self.broker.start()

    def put(self, body=b"late", level=1, queue_id=2, topic="T", **properties):
        table = {"DELAY": str(level), "TAGS": "A", "UNIQ_KEY": "u", "KEYS": "k", "WAIT": "true", **properties}
        header = SendMessageRequestHeader("P", topic, "TBW102", 4, queue_id, 1, 17, 3, encode_properties(table), 2)
        message = self.broker.message_builder.single(
            header, Destination(topic, queue_id, 0), BORN_HOST, body, self.broker.now_ms()
        )
        self.store(message)

    def store(self, message):
        self.assertEqual([r.status for r in self.broker.store.put_messages([message])], [PutStatus.PUT_OK])
        self.broker.settle()

    def tick(self, seconds=0.0):
        self.broker.clock.advance(seconds)
        self.broker.schedule.deliver_due()
        self.broker.settle()

    def delivered(self, queue_id=2):
        store = self.broker.store
        return [decode_message(store.look_message(entry[0])) for entry in store.queue_entries("T", queue_id, 0, 1000)]

    def bodies(self):
        return [message.body for message in self.delivered()]
