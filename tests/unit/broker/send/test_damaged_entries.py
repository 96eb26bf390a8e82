"""Damaged queue entries of delayed, timed and half messages: the broker finds the records in the log."""

import os

from twisted.logger import globalLogPublisher

from rocketd.common.names import SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC
from rocketd.store.base.layout import CONSUME_QUEUE_UNIT
from tests.support.schedules import ScheduleTestCase
from tests.support.timers import TimerTestCase
from tests.support.transaction_checks import CheckTestCase


class Damage:
    """A mixin for test cases with a broker: damages entries and records, and collects log lines of the search for them."""

    def watch(self):
        self.lines = []
        globalLogPublisher.addObserver(self._observe)
        self.addCleanup(globalLogPublisher.removeObserver, self._observe)

    def _observe(self, event):
        if str(event.get("log_namespace", "")).endswith("entry_finder"):
            self.lines.append(event["log_format"].format(**event))

    def patch_entry(self, topic, index, data):
        path = os.path.join(self.broker.store.root, "consumequeue", topic, "0", f"{0:020d}")
        with open(path, "r+b") as file:
            file.seek(index * CONSUME_QUEUE_UNIT)
            file.write(data)

    def flip_bit(self, topic, index):
        """Flip a bit of the offset."""
        offset = self.broker.store.queue_entries(topic, 0, index, 1)[0][0]
        self.patch_entry(topic, index, (offset ^ 16).to_bytes(8, "big"))

    def swap(self, topic, first, second):
        """Let two entries lead to each other's records, which are whole and of equal size."""
        entries = self.broker.store.queue_entries(topic, 0, 0, 9)
        self.assertEqual(entries[first][1], entries[second][1])
        self.patch_entry(topic, first, entries[second][0].to_bytes(8, "big"))
        self.patch_entry(topic, second, entries[first][0].to_bytes(8, "big"))

    def remove_record(self, topic, index):
        offset, size, _ = self.broker.store.queue_entries(topic, 0, index, 1)[0]
        with open(os.path.join(self.broker.store.root, "commitlog", f"{0:020d}"), "r+b") as file:
            file.seek(offset)
            file.write(bytes(size))


RANDOM = bytes.fromhex("7a19c40e55d2f1836bb09e27")
BODIES = [b"a", b"b", b"c", b"d"]


class ScheduleTests(Damage, ScheduleTestCase):
    def setUp(self):
        super().setUp()
        self.watch()
        for body in BODIES:
            self.put(body)

    def test_delayed_messages_of_damaged_entries_are_delivered(self):
        self.flip_bit(SCHEDULE_TOPIC, 1)
        self.patch_entry(SCHEDULE_TOPIC, 2, RANDOM)
        self.tick(1)
        self.assertEqual(self.bodies(), BODIES)
        self.assertIn("queue SCHEDULE_TOPIC_XXXX-0: entry 1 has offset", self.lines[0])

    def test_delayed_message_of_destroyed_entry_is_not_early(self):
        self.patch_entry(SCHEDULE_TOPIC, 0, bytes(CONSUME_QUEUE_UNIT))
        self.tick(0.5)
        self.assertEqual(self.bodies(), [])
        self.tick(0.5)
        self.assertEqual(self.bodies(), BODIES)

    def test_delayed_messages_of_swapped_entries_are_delivered_once(self):
        self.swap(SCHEDULE_TOPIC, 0, 2)
        self.tick(1)
        self.assertEqual(self.bodies(), BODIES)

    def test_lost_delayed_message_is_skipped_and_logged(self):
        self.remove_record(SCHEDULE_TOPIC, 1)
        self.tick(1)
        self.assertEqual(self.bodies(), [b"a", b"c", b"d"])
        self.assertIn("so the message is skipped", self.lines[0])


class TimerTests(Damage, TimerTestCase):
    def test_timed_messages_of_damaged_entries_are_delivered(self):
        self.watch()
        for body in BODIES:
            self.after(1, body)
        self.broker.settle()
        self.flip_bit(TIMER_TOPIC, 1)
        self.patch_entry(TIMER_TOPIC, 2, RANDOM)
        self.run_timers(2)
        self.assertEqual(sorted(self.bodies()), BODIES)
        self.assertIn(f"queue {TIMER_TOPIC}-0: entry 1 has offset", self.lines[0])

    def test_lost_timed_message_is_skipped_and_logged(self):
        self.watch()
        for body in BODIES:
            self.after(1, body)
        self.broker.settle()
        self.remove_record(TIMER_TOPIC, 1)
        self.run_timers(2)
        self.assertEqual(sorted(self.bodies()), [b"a", b"c", b"d"])
        self.assertIn("so the message is skipped", self.lines[0])


class HalfMessageTests(Damage, CheckTestCase):
    def test_half_messages_of_damaged_entries_are_checked(self):
        self.watch()
        for body in BODIES:
            self.half(body)
        self.flip_bit(TRANS_HALF_TOPIC, 1)
        self.patch_entry(TRANS_HALF_TOPIC, 2, RANDOM)
        self.assertEqual(self.asked(), BODIES)
        self.assertIn(f"queue {TRANS_HALF_TOPIC}-0: entry 1 has offset", self.lines[0])
