"""Delayed messages: delivered when due, as they were sent, across restarts and odd clocks and offsets."""

import json
import os
import threading

from twisted.trial.unittest import SynchronousTestCase

from rocketd.broker.tables.implied_topics import ImpliedTopics
from rocketd.broker.timer import schedule
from rocketd.broker.timer.delay_levels import DelayLevels
from rocketd.common.java_hash import java_string_hash
from rocketd.common.logs.throttle import INTERVAL
from rocketd.common.settings.declaration import ConfigError
from rocketd.remoting.bodies.tables import TopicConfig
from rocketd.store.format.message import MessageInner, PutResult, PutStatus
from rocketd.store.format.record import decode_message
from tests.support.broker import BORN_HOST
from tests.support.schedules import ScheduleTestCase
from tests.support.store_reading import search_for


class DelayLevelsTests(SynchronousTestCase):
    def test_delay_level_units(self):
        levels = DelayLevels("1s 5m  2h 1d")
        self.assertEqual(levels.delays_ms, [1_000, 300_000, 7_200_000, 86_400_000])
        self.assertEqual(levels.highest, 4)
        self.assertEqual([levels.deliver_ms(level, 10) for level in (1, 4, 0, 5)], [1_010, 86_400_010, 1_010, 1_010])

    def test_invalid_delay_levels_are_named(self):
        for text, said in (("1s 5x", "'5x'"), ("s", "'s'"), ("-1s", "'-1s'"), (" ", "is empty")):
            self.assertIn(said, str(self.assertRaises(ConfigError, DelayLevels, text)))


class DeliveryTests(ScheduleTestCase):
    def test_delivery_creates_topic_lost_in_kill(self):
        self.put()
        self.assertIsNone(self.broker.topics.select("T"))
        self.tick(1)
        self.assertGreater(self.broker.topics.select("T").read_queue_nums, 2)

    def test_delivery_to_deleted_topic_stores_nothing(self):
        """Nor does the next start, which looks for topics of messages in the log."""
        for delivered in (False, True):
            self.put()
            if delivered:
                self.tick(1)
                self.put()
            self.delete()
            self.tick(1)
            self.assertIsNone(self.broker.topics.select("T"))
            self.assertEqual(self.bodies(), [])
            ImpliedTopics(self.broker).make()
            self.assertIsNone(self.broker.topics.select("T"))

    def delete(self):
        self.broker.topics.delete("T")
        self.broker.store.delete_topic("T")
        removed = threading.Event()
        self.broker.store._reput.call(removed.set)
        self.assertTrue(removed.wait(60))

    def test_delivery_during_deletion_does_not_create_topic(self):
        self.put()
        self.broker.topics.deleting.add("T")
        self.tick(1)
        self.assertIsNone(self.broker.topics.select("T"))

    def test_delivery_to_topic_created_again_is_stored(self):
        self.put()
        self.delete()
        self.broker.topics.update(TopicConfig("T", 4, 4))
        self.tick(1)
        self.assertEqual(self.bodies(), [b"late"])

    def test_delivery_without_automatic_creation_creates_only_retry_topics(self):
        """The message is kept, for an administrator who creates the topic again."""
        self.broker.settings.broker.auto_create_topic_enable = False
        for topic, created in (("T", False), ("%RETRY%G", True)):
            self.put(topic=topic)
            self.tick(1)
            self.assertEqual(self.broker.topics.select(topic) is not None, created, topic)
        self.assertEqual(self.bodies(), [b"late"])
        ImpliedTopics(self.broker).make()
        self.assertIsNone(self.broker.topics.select("T"))

    def test_delivery_is_on_time_and_once(self):
        self.put()
        self.tick(0.999)
        self.assertEqual(self.bodies(), [])
        self.tick(0.001)
        self.assertEqual(self.bodies(), [b"late"])
        self.tick(10)
        self.assertEqual(self.bodies(), [b"late"])

    def test_delivered_message_is_as_sent(self):
        self.put(mine="x")
        self.tick(1)
        (message,) = self.delivered()
        self.assertEqual(
            message.properties_map(),
            {"DELAY": "1", "TAGS": "A", "UNIQ_KEY": "u", "KEYS": "k", "CLUSTER": "DefaultCluster", "REAL_TOPIC": "T",
             "REAL_QID": "2", "mine": "x", "WAIT": "true"},
        )  # fmt: skip
        self.assertEqual(
            (message.flag, message.sys_flag, message.born_timestamp, message.reconsume_times, message.born_host),
            (3, 1, 17, 2, BORN_HOST),
        )
        (entry,) = self.broker.store.queue_entries("T", 2, 0, 9)
        self.assertEqual(entry[2], java_string_hash("A"))
        for key in ("u", "k"):
            self.assertEqual(len(self.broker.store.query_messages("T", key, 9, 0, 1 << 60).buffers), 1)

    def test_delay_levels_are_independent(self):
        self.put(b"5 s", 2)
        self.put(b"1 s", 1)
        self.tick(1)
        self.assertEqual(self.bodies(), [b"1 s"])
        self.tick(4)
        self.assertEqual(self.bodies(), [b"1 s", b"5 s"])

    def test_many_deliveries_take_several_rounds(self):
        for number in range(300):
            self.put(b"%d" % number)
        self.broker.clock.advance(1)
        self.assertTrue(self.broker.schedule.deliver_due())
        self.broker.settle()
        self.assertEqual(len(self.bodies()), 256)
        self.assertTrue(self.broker.schedule.deliver_due())
        self.assertFalse(self.broker.schedule.deliver_due())
        self.broker.settle()
        self.assertEqual(self.bodies(), [b"%d" % number for number in range(300)])

    def test_asynchronous_delivery_has_larger_rounds(self):
        self.broker.stop()
        self.start(enableScheduleAsyncDeliver="true", scheduleAsyncDeliverMaxPendingLimit="280")
        for number in range(290):
            self.put(b"%d" % number)
        self.tick(1)
        self.assertEqual(self.bodies(), [b"%d" % number for number in range(280)])
        self.tick()
        self.assertEqual(self.bodies(), [b"%d" % number for number in range(290)])

    def test_long_messages_limit_rounds_by_bytes(self):
        self.patch(schedule, "LEVEL_BYTES", 1_000)
        for number in range(5):
            self.put(b"%d" % number * 600)
        self.broker.clock.advance(1)
        counts = []
        while self.broker.schedule.deliver_due():
            self.broker.settle()
            counts.append(len(self.bodies()))
        self.assertEqual(counts, [2, 4, 5])

    def test_failed_delivery_is_not_retried_at_once(self):
        self.put()
        failed = PutResult(PutStatus.SERVICE_NOT_AVAILABLE, cause="full")
        self.broker.store.put_messages = lambda messages: [failed]
        self.broker.schedule._log = Told([])
        self.broker.clock.advance(1)
        self.assertFalse(self.broker.schedule.deliver_due())

    def test_level_is_delivered_in_queue_order(self):
        for number in range(20):
            self.put(b"%d" % number, queue_id=number % 2)
            self.broker.clock.advance(0.1)
        self.tick(1)
        for queue_id in range(2):
            bodies = [message.body for message in self.delivered(queue_id)]
            self.assertEqual(bodies, [b"%d" % number for number in range(queue_id, 20, 2)])

    def test_delivery_progress_per_level(self):
        self.put()
        self.put()
        self.tick(1)
        self.put()
        self.assertEqual(list(self.broker.schedule.progress()), [(1, 2, 3)])
        self.assertEqual(self.broker.schedule.snapshot().offset_table, {1: 2})


class RestartTests(ScheduleTestCase):
    def test_delivery_continues_after_restart(self):
        self.put(b"a")
        self.tick(1)
        self.put(b"b", 2)
        clock = self.broker.clock
        self.broker.stop()
        with open(os.path.join(self.directory, "config", "delayOffset.json")) as file:
            self.assertEqual(file.read(), '{\n\t"offsetTable":{1:1\n\t}\n}')
        self.start(clock)
        self.tick(4.999)
        self.assertEqual(self.bodies(), [b"a"])
        self.tick(0.001)
        self.assertEqual(self.bodies(), [b"a", b"b"])

    def test_offset_outside_queue_is_corrected(self):
        self.put(b"a")
        self.tick(1)
        clock = self.broker.clock
        self.broker.stop()
        path = os.path.join(self.directory, "config", "delayOffset.json")
        for offset, corrected in ((99, 1), (-3, 0)):
            with open(path, "w") as file:
                json.dump({"offsetTable": {"1": offset}}, file)
            self.start(clock)
            self.assertEqual(self.broker.schedule.snapshot().offset_table, {1: corrected})
            self.broker.stop()
        self.start(clock)
        self.put(b"b")
        self.tick(1)
        self.assertEqual(self.bodies()[-1], b"b")

    def test_removed_level_is_logged(self):
        self.put(b"a", 2)
        clock = self.broker.clock
        self.broker.stop()
        warnings = []
        self.patch(schedule.ScheduleMessageService, "_log", Warnings(warnings))
        self.start(clock, messageDelayLevel="1s")
        self.assertEqual(warnings, [(2, 1, 1)])
        self.tick(100)
        self.assertEqual(self.bodies(), [])
        self.broker.stop()
        self.start(clock)
        self.assertEqual(len(warnings), 1)
        self.tick()
        self.assertEqual(self.bodies(), [b"a"])


class ClockStepTests(ScheduleTestCase):
    """The wall clock is set while messages wait: each waits for its delay, no longer and no shorter."""

    def check_step(self, seconds):
        self.put(b"before", level=3)  # 10 s
        self.broker.clock.advance(4)
        self.broker.wall_steps += seconds
        self.put(b"after", level=3)
        self.tick(5)
        self.assertEqual(self.bodies(), [])
        self.tick(1.1)
        self.assertEqual(self.bodies(), [b"before"])
        self.tick(2)
        self.assertEqual(self.bodies(), [b"before"])
        self.tick(2.1)
        self.assertEqual(self.bodies(), [b"before", b"after"])

    def test_delay_is_unchanged_by_clock_set_back(self):
        self.check_step(-300)

    def test_delay_is_unchanged_by_clock_set_forward(self):
        self.check_step(300)

    def test_delay_of_hours_is_not_shortened_by_clock_set_back(self):
        self.put(b"hours", level=18)
        self.broker.wall_steps -= 300
        self.tick(60)
        self.assertEqual(self.bodies(), [])
        self.tick(7200)
        self.assertEqual(self.bodies(), [b"hours"])


class TroubleTests(ScheduleTestCase):
    def test_clock_set_back_far_does_not_hold_messages(self):
        self.put()
        self.broker.clock.rightNow -= 1_000_000
        self.tick()
        self.assertEqual(self.bodies(), [b"late"])

    def test_failed_delivery_is_retried_and_logged_once(self):
        self.put()
        good = self.broker.store.put_messages
        self.broker.store.put_messages = lambda messages: [PutResult(PutStatus.SERVICE_NOT_AVAILABLE, cause="full")]
        told = []
        self.broker.schedule._trouble._log = Told(told)
        full = self.broker.store.put_messages
        self.tick(1)
        self.tick(1)
        self.assertEqual(told, ["full"])
        self.tick(INTERVAL)
        self.assertEqual(told, ["full"] * 2)
        self.broker.store.put_messages = good
        self.tick(1)
        self.assertEqual(self.bodies(), [b"late"])
        self.put()
        self.broker.store.put_messages = full
        self.tick(1)
        self.assertEqual(told, ["full"] * 3, "another trouble")

    def test_error_in_level_does_not_stop_other_levels(self):
        self.put(b"1 s", 1)
        self.put(b"5 s", 2)
        entries = self.broker.store.queue_entries

        def failing(topic, queue_id, offset, limit):
            if queue_id == 0:
                raise OSError("unreadable")
            return entries(topic, queue_id, offset, limit)

        self.broker.store.queue_entries = failing
        told = []
        self.broker.schedule._trouble._log = Told(told)
        self.tick(5)
        self.tick()
        self.broker.store.queue_entries = entries
        self.assertEqual((self.bodies(), told), ([b"5 s"], ["OSError: unreadable"]))

    def raw(self, properties, body=b"raw"):
        self.store(
            MessageInner("SCHEDULE_TOPIC_XXXX", 0, 0, 0, 0, BORN_HOST, 0, 0, body, properties, self.broker.now_ms())
        )

    def test_undeliverable_messages_are_skipped(self):
        self.raw(b"DELAY\x011")
        self.raw(b"DELAY\x011\x02REAL_TOPIC\x01T\x02REAL_QID\x01two")
        self.raw(b"DELAY\x011\x02REAL_TOPIC\x01RMQ_SYS_TRANS_HALF_TOPIC\x02REAL_QID\x012")
        self.put(b"good")
        self.tick(1)
        self.assertEqual(self.bodies(), [b"good"])

    def test_unstorable_message_is_skipped_without_repeats(self):
        self.put(b"a")
        self.raw(b"DELAY\x011\x02REAL_TOPIC\x01%RETRY%a/b\x02REAL_QID\x012")
        self.put(b"b")
        for _ in range(3):
            self.tick(1)
        self.assertEqual(self.bodies(), [b"a", b"b"])
        self.assertEqual(self.broker.schedule.snapshot().offset_table, {1: 3})

    def test_too_many_light_queues_do_not_stop_or_repeat_level(self):
        self.broker.stop()
        self.start(enableLmq="true", enableMultiDispatch="true", maxLmqConsumeQueueNum="0")
        for name in "ab":
            self.put(name.encode(), INNER_MULTI_DISPATCH=f"%LMQ%{name}")
        self.put(b"c")
        for _ in range(3):
            self.tick(1)
        self.assertEqual(self.bodies(), [b"a", b"b", b"c"])
        self.assertEqual([self.broker.store.get_max_offset(f"%LMQ%{name}", 0) for name in "ab"], [1, 0])

    def test_properties_without_room_for_offsets_lose_nothing(self):
        self.broker.stop()
        self.start(enableLmq="true", enableMultiDispatch="true")
        self.put(b"short", INNER_MULTI_DISPATCH="%LMQ%x", x="x")
        store = self.broker.store
        waiting = decode_message(store.look_message(store.queue_entries("SCHEDULE_TOPIC_XXXX", 0, 0, 1)[0][0]))
        self.put(b"long", INNER_MULTI_DISPATCH="%LMQ%x", x="x" * (1 + 32_767 - len(waiting.properties)))
        self.tick(1)
        self.assertEqual(self.bodies(), [b"short", b"long"])
        self.assertEqual(store.get_max_offset("%LMQ%x", 0), 1)

    def test_lost_delivery_time_is_recomputed(self):
        self.put(b"late")
        entries = self.broker.store.queue_entries
        self.broker.store.queue_entries = lambda *queue: [(at, size, -(2**63) + 7) for at, size, _ in entries(*queue)]
        self.tick(0.5)
        self.assertEqual(self.delivered_to(entries), [])
        self.tick(0.5)
        self.assertEqual(self.delivered_to(entries), [b"late"])

    def delivered_to(self, entries):
        store = self.broker.store
        return [decode_message(store.look_message(entry[0])).body for entry in entries("T", 2, 0, 9)]

    def test_search_for_record_of_damaged_entry_delays_delivery(self):
        self.put(b"a")
        self.put(b"b")
        done = search_for(self.broker.store, "SCHEDULE_TOPIC_XXXX", 1, 3)
        self.tick(1)
        self.assertEqual((self.bodies(), len(done)), ([b"a"], 1))
        self.tick()
        self.tick()
        self.assertEqual((self.bodies(), len(done)), ([b"a"], 3))
        self.tick()
        self.assertEqual(self.bodies(), [b"a", b"b"])

    def test_removed_messages_are_skipped(self):
        self.put(b"a")
        self.put(b"b")
        self.broker.store.get_min_offset = lambda topic, queue_id: 1 if queue_id == 0 else 0
        self.tick(1)
        self.assertEqual(self.bodies(), [b"b"])


class Warnings:
    def __init__(self, values):
        self._values = values

    def warn(self, text, **values):
        self._values.append((values["number"], values["waiting"], values["highest"]))


class Told:
    def __init__(self, causes):
        self._causes = causes

    def emit(self, level, text, **values):
        self._causes.append(values["cause"])
