"""A test case for brokers that deliver messages at their own times."""

import os

from twisted.trial.unittest import SynchronousTestCase

from rocketd.broker.send.message_check import Destination
from rocketd.common.message_properties import encode_properties
from rocketd.common.names import TIMER_TOPIC
from rocketd.remoting.headers.client import SendMessageRequestHeader
from rocketd.store.format.message import PutStatus
from rocketd.store.format.record import decode_message
from tests.support.broker import BORN_HOST, SmallBroker


class TimerTestCase(SynchronousTestCase):
    options: dict[str, str] = {}

    def setUp(self):
        self.directory = os.path.abspath(self.mktemp())
        self.start()
        self.addCleanup(lambda: self.stop())

    def start(self, clock=None):
        self.broker = SmallBroker(self.directory, clock, **self.options)
        self.broker.start()
        self.timers = self.broker.timers
        self.timers.prepare()

    def stop(self):
        self.timers.stop()
        self.broker.stop()

    def restart(self):
        clock = self.broker.clock
        self.stop()
        self.start(clock)

    def build(self, body=b"late", topic="T", key="u", queue_id=2, **properties):
        table = {"UNIQ_KEY": key, **properties}
        header = SendMessageRequestHeader("P", topic, "TBW102", 4, queue_id, 1, 17, 3, encode_properties(table), 2)
        destination = Destination(topic, queue_id, 0)
        return self.broker.message_builder.single(header, destination, BORN_HOST, body, self.broker.now_ms())

    def put(self, body=b"late", **given):
        self.store(self.build(body, **given))

    def store(self, *messages):
        results = self.broker.store.put_messages(messages)
        self.assertEqual({result.status for result in results}, {PutStatus.PUT_OK})
        self.broker.settle()

    def after(self, seconds, body=b"late", **given):
        self.put(body, TIMER_DELIVER_MS=str(self.broker.now_ms() + int(seconds * 1000)), **given)

    def cancel(self, key, seconds=1_000, topic="T", **properties):
        due = str(self.broker.now_ms() + int(seconds * 1000))
        self.put(b"cancel", topic=topic, key="c", TIMER_DEL_UNIQKEY=key, TIMER_DELIVER_MS=due, **properties)

    def run_timers(self, seconds=0.0):
        """Let time go on, and the timer thread do all its work."""
        self.broker.clock.advance(seconds)
        self.broker.settle()
        for _ in range(50):
            before = (self.timers.delivered, self.timers._reader.next_offset)
            pause = self.timers.run_once()
            self.broker.settle()
            if pause and before == (self.timers.delivered, self.timers._reader.next_offset):
                return
        self.fail("it does not come to rest")

    def delivered(self, topic="T", queue_id=2):
        return self.messages(topic, queue_id)

    def bodies(self, topic="T"):
        return [message.body for message in self.delivered(topic)]

    def records(self):
        """Messages of the timer topic."""
        return self.messages(TIMER_TOPIC, 0)

    def messages(self, topic, queue_id):
        store = self.broker.store
        offset = store.get_min_offset(topic, queue_id)
        found = []
        while offset + len(found) < store.get_max_offset(topic, queue_id):
            entries = store.queue_entries(topic, queue_id, offset + len(found), 9999)
            found += [decode_message(store.look_message(entry[0])) for entry in entries]
        return found
