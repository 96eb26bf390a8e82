"""Timed messages: delivered once when due, cancelled, rolled; rebuild of their table."""

import os
import sqlite3

from twisted.logger import LogLevel, formatEvent, globalLogPublisher

from rocketd.broker.send.message_check import MessageCheck
from rocketd.broker.timer import reader, records
from rocketd.broker.timer.service import GROUP_MESSAGES
from rocketd.common.java_hash import java_string_hash
from rocketd.common.logs.throttle import INTERVAL
from rocketd.common.message_properties import encode_properties
from rocketd.common.names import TIMER_TOPIC
from rocketd.remoting.bodies.tables import TopicConfig
from rocketd.remoting.errors import RequestError
from rocketd.remoting.headers.client import SendMessageRequestHeader
from rocketd.store.format.message import MessageInner, PutResult, PutStatus
from tests.support.broker import BORN_HOST, SmallBroker
from tests.support.store_reading import search_for
from tests.support.timers import TimerTestCase

HOUR = 3_600


class DeliveryTests(TimerTestCase):
    def test_delivery_is_on_time_and_once(self):
        self.after(12.345)
        self.run_timers(12.344)
        self.assertEqual((self.bodies(), self.timers.waiting.count), ([], 1))
        self.run_timers(0.001)
        self.assertEqual((self.bodies(), self.timers.waiting.count), ([b"late"], 0))
        self.run_timers(100)
        self.assertEqual(self.bodies(), [b"late"])

    def test_timer_properties_set_delivery_time(self):
        self.put(b"2", TIMER_DELAY_SEC="2")
        self.put(b"1", TIMER_DELAY_MS="1500")
        self.put(b"0", TIMER_DELIVER_MS=str(self.broker.now_ms() + 1_000))
        for seconds, bodies in ((0.999, []), (0.001, [b"0"]), (0.5, [b"0", b"1"]), (0.5, [b"0", b"1", b"2"])):
            self.run_timers(seconds)
            self.assertEqual(self.bodies(), bodies)

    def test_delay_ignores_clock_steps(self):
        for step in 300, -300:
            for properties in {"TIMER_DELAY_SEC": "20"}, {"TIMER_DELAY_MS": "20000"}:
                self.put(b"read before", **properties)
                self.run_timers()
                self.put(b"read after", **properties)
                self.broker.wall_steps += step
                self.run_timers(1)
                self.put(b"sent after", **properties)
                delivered = len(self.bodies())
                for seconds, more in ((18.999, 0), (0.001, 2), (0.999, 2), (0.001, 3)):
                    self.run_timers(seconds)
                    self.assertEqual(len(self.bodies()), delivered + more, (step, seconds))

    def test_delay_due_at_step_back_is_not_delivered_early(self):
        self.put(TIMER_DELAY_SEC="20")
        self.run_timers()
        now_ms = self.broker.now_ms

        def step_after_reading_the_clock():
            before = now_ms()
            self.broker.now_ms = now_ms
            self.broker.wall_steps -= 300
            return before

        self.broker.now_ms = step_after_reading_the_clock
        self.timers.run_once()
        self.run_timers(19)
        self.assertEqual(self.bodies(), [])
        self.run_timers(1)
        self.assertEqual(self.bodies(), [b"late"])

    def test_absolute_time_follows_clock_steps(self):
        self.after(100)
        self.after(400)
        self.run_timers(1)
        self.broker.wall_steps += 300
        self.run_timers()
        self.assertEqual(len(self.bodies()), 1)
        self.broker.wall_steps -= 300
        self.run_timers(300)
        self.assertEqual(len(self.bodies()), 1)
        self.run_timers(99)
        self.assertEqual(len(self.bodies()), 2)

    def test_delay_is_kept_by_a_restart_after_a_step(self):
        self.put(TIMER_DELAY_SEC="20")
        self.run_timers(1)
        self.broker.wall_steps += 300
        self.run_timers()
        clock, steps = self.broker.clock, self.broker.wall_steps
        self.stop()
        clock.advance(steps)  # the clock of the next one is the same wall clock
        self.start(clock)
        self.run_timers(18.999)
        self.assertEqual(self.bodies(), [])
        self.run_timers(0.001)
        self.assertEqual(self.bodies(), [b"late"])

    def test_rebuilt_table_after_clock_step_keeps_delays(self):
        self.put(TIMER_DELAY_SEC="20")
        self.after(330, b"time")
        self.run_timers(1)
        self.broker.wall_steps += 300
        self.run_timers()
        self.timers._discard()
        self.run_timers(18.999)
        self.assertEqual(self.bodies(), [])
        self.run_timers(0.001)
        self.assertEqual(self.bodies(), [b"late"])
        self.run_timers(10)
        self.assertEqual(self.bodies(), [b"late", b"time"])

    def test_rebuilt_table_uses_stored_delivery_time(self):
        self.put(TIMER_DELAY_SEC="20")
        self.run_timers(1)
        self.broker.wall_steps -= 10
        self.run_timers()
        clock, steps = self.broker.clock, self.broker.wall_steps
        self.stop()
        self.timers.waiting.discard()
        clock.advance(5)
        self.start(clock)
        self.broker.wall_steps = steps
        self.broker.stamps.__init__(lambda: self.broker.now_ms() / 1000, clock.seconds)
        self.run_timers(23.999)
        self.assertEqual(self.bodies(), [])
        self.run_timers(0.001)
        self.assertEqual(self.bodies(), [b"late"])

    def test_table_of_first_version_is_migrated(self):
        self.after(20)
        self.run_timers()
        self.timers.waiting._execute("ALTER TABLE waiting DROP COLUMN is_delay")
        self.timers.waiting._execute("PRAGMA user_version = 1")
        self.restart()
        self.timers.run_once()
        self.assertEqual(self.timers.waiting.count, 1)
        self.put(b"delay", TIMER_DELAY_SEC="30")
        self.run_timers(20)
        self.assertEqual(self.bodies(), [b"late"])
        self.run_timers(10)
        self.assertEqual(self.bodies(), [b"late", b"delay"])

    def test_delay_sec_precedes_delay_ms_and_deliver_ms(self):
        self.put(b"s", TIMER_DELAY_SEC="1", TIMER_DELAY_MS="2", TIMER_DELIVER_MS="3")
        self.put(b"ms", TIMER_DELAY_MS="500", TIMER_DELIVER_MS="3")
        self.run_timers(0.4)
        self.assertEqual(self.bodies(), [])
        self.run_timers(0.1)
        self.assertEqual(self.bodies(), [b"ms"])

    def test_delivered_message_is_as_sent(self):
        began = self.broker.now_ms()
        due = began + 2_000
        self.put(TIMER_DELIVER_MS=str(due), TAGS="A", KEYS="k", mine="x")
        (waits,) = self.records()
        self.assertEqual((waits.topic, waits.queue_id), (TIMER_TOPIC, 0))
        table = {
            "UNIQ_KEY": "u", "TIMER_DELIVER_MS": str(due), "TAGS": "A", "KEYS": "k", "mine": "x",
            "CLUSTER": "DefaultCluster", "TIMER_OUT_MS": str(due),
        }  # fmt: skip
        self.assertEqual(waits.properties_map(), {**table, "REAL_TOPIC": "T", "REAL_QID": "2"})
        self.run_timers(2)
        (message,) = self.delivered()
        table |= {"TIMER_ENQUEUE_MS": str(began), "TIMER_DEQUEUE_MS": str(due)}
        self.assertEqual(message.properties_map(), table)
        self.assertEqual(
            (message.flag, message.sys_flag, message.born_timestamp, message.reconsume_times, message.born_host),
            (3, 1, 17, 2, BORN_HOST),
        )
        (entry,) = self.broker.store.queue_entries("T", 2, 0, 9)
        self.assertEqual(entry[2], java_string_hash("A"))
        for key in ("u", "k"):
            self.assertEqual(len(self.broker.store.query_messages("T", key, 9, 0, 1 << 60).buffers), 1)

    def test_delivery_to_a_queue_that_the_topic_no_longer_has_goes_to_another(self):
        self.after(1)
        self.broker.topics.update(TopicConfig("T", 1, 1, 6))
        self.run_timers(1)
        self.assertEqual([message.body for message in self.delivered(queue_id=0)], [b"late"])

    def test_delivery_order_is_time_then_arrival(self):
        for body, seconds in ((b"c", 3), (b"a", 1), (b"b1", 2), (b"b2", 2)):
            self.after(seconds, body)
        self.run_timers(5)
        self.assertEqual(self.bodies(), [b"a", b"b1", b"b2", b"c"])

    def test_many_messages_of_same_instant_are_delivered(self):
        count = 2 * GROUP_MESSAGES + 7
        messages = [self.build(b"%d" % number, key=str(number), TIMER_DELAY_MS="50") for number in range(count)]
        self.store(*messages)
        self.run_timers(0.049)
        self.assertEqual((self.timers.waiting.count, self.bodies()), (count, []))
        self.run_timers(0.001)
        self.assertEqual(self.bodies(), [b"%d" % number for number in range(count)])
        notes = [record for record in self.records() if "TIMER_DONE" in record.properties_map()]
        self.assertEqual(len(notes), 3)

    def test_past_time_is_delivered_at_once(self):
        self.put(b"now", TIMER_DELIVER_MS=str(self.broker.now_ms()))
        self.put(b"zero", TIMER_DELAY_MS="0")
        self.put(b"negative", TIMER_DELAY_SEC="-5")
        self.assertEqual(self.bodies(), [b"now", b"zero", b"negative"])

    def test_delay_level_precedes_timer(self):
        self.put(b"level", TIMER_DELAY_SEC="1", DELAY="2")
        self.run_timers(1)
        self.assertEqual(self.records(), [])
        self.broker.clock.advance(4)
        self.broker.schedule.deliver_due()
        self.broker.settle()
        (message,) = self.delivered()
        self.assertNotIn("TIMER_DELAY_SEC", message.properties_map())

    def test_delivered_message_sent_again_does_not_wait(self):
        self.put(b"again", TIMER_DELAY_SEC="9", TIMER_OUT_MS="1")
        self.assertEqual(self.bodies(), [b"again"])

    def test_half_message_is_not_delayed_before_commit(self):
        message = self.build(b"half")
        message.sys_flag = 4
        self.broker.message_builder.delay(message, {"TIMER_DELAY_SEC": "9"}, self.broker.now_ms())
        self.assertEqual(message.topic, "T")

    def test_committed_message_is_delayed(self):
        message = self.build(b"committed", TIMER_OUT_MS="1")
        message.sys_flag = 8
        table = {"UNIQ_KEY": "u", "TIMER_DELAY_SEC": "9"}
        self.broker.message_builder.delay(message, table, self.broker.now_ms())
        message.properties = encode_properties(table).encode()
        self.store(message)
        self.run_timers(8.999)
        self.assertEqual(self.bodies(), [])
        self.run_timers(0.001)
        self.assertEqual(self.bodies(), [b"committed"])

    def test_send_to_timer_topic_is_refused(self):
        check = MessageCheck(self.broker)
        header = SendMessageRequestHeader("P", TIMER_TOPIC, "TBW102", 4, 0, 0, 17, 0, "")
        for _ in range(2):
            error = self.assertRaises(RequestError, check.destination, header, 399, "somebody", self.broker.now_ms())
            self.assertEqual(error.code, 16)
            self.after(1)  # which makes the topic
        self.assertIsNotNone(self.broker.topics.select(TIMER_TOPIC))

    def test_longest_properties_are_delivered_unchanged(self):
        spare = 32_767 - len(self.build(TIMER_DELAY_MS="10", x="").properties) - 3
        self.put(TIMER_DELAY_MS="10", x="x" * spare)
        self.assertEqual(len(self.records()[0].properties), 32_767)
        self.run_timers(1)
        self.assertNotIn("REAL_TOPIC", self.delivered()[0].properties_map())

    def test_table_of_timer_figures(self):
        self.assertEqual(self.timers.table(), {})
        self.after(5)
        self.after(9)
        self.run_timers(5)
        self.after(3)
        expected = {"timerCongestNum": "1", "timerOffsetBehind": "1", "timerDeliveredTotal": "1"}
        self.assertEqual(self.timers.table(), expected | {"timerCancelledTotal": "0", "timerLostTotal": "0"})

    def test_delivery_counts_as_put(self):
        self.after(1)
        self.after(1)
        self.run_timers(1)
        self.broker.broker_stats.sample()
        item = self.broker.broker_stats._item("TOPIC_PUT_NUMS", "T")
        self.assertEqual(item.value, 2)


class RefusalTestCase(TimerTestCase):
    def refusal(self, **properties):
        before = self.broker.store.max_physical_offset()
        error = self.assertRaises(RequestError, self.build, **properties)
        self.assertEqual(self.broker.store.max_physical_offset(), before)
        return error.code, error.remark


class LimitTests(RefusalTestCase):
    def test_delay_beyond_limit_is_refused(self):
        code, remark = self.refusal(TIMER_DELAY_SEC=str(72 * HOUR + 1))
        self.assertEqual(code, 13)
        begin = (
            "timer message illegal, the delay time should not be bigger than the max delay 259200000ms; or if set del "
            "msg, the delay time should be bigger than the current time; cause: the message is to be delivered in "
            "259201000 ms, at most 259200000 are allowed (setting timerMaxDelaySec)"
        )
        self.assertEqual(remark[: len(begin)], begin)
        self.put(TIMER_DELAY_SEC=str(72 * HOUR))

    def test_delay_limit_is_changed_while_running(self):
        self.broker.settings.store.timer_max_delay_sec = 10
        self.assertIn("the max delay 10000ms", self.refusal(TIMER_DELAY_SEC="11")[1])

    def test_delay_without_number_is_refused(self):
        for text in ("soon", "1.5", "1_0", "٣", "+"):
            code, remark = self.refusal(TIMER_DELAY_MS=text)
            self.assertEqual(code, 13)
            self.assertTrue(remark.startswith("timer message illegal, the delay time should not be bigger"), remark)
            self.assertTrue(
                remark.endswith(
                    f"cause: the property TIMER_DELAY_MS of the message is {text!r}, which is not a whole number; "
                    "give it a whole number of milliseconds [timer-no-number]"
                ),
                remark,
            )
        self.assertIn("give it a whole number of seconds [", self.refusal(TIMER_DELAY_SEC="1.5")[1])
        self.assertIn("a whole number of milliseconds since 1970 [", self.refusal(TIMER_DELIVER_MS="noon")[1])

    def test_too_large_delay_number_is_refused(self):
        for text in ("9" * 20, "+" + "9" * 5_000):
            code, remark = self.refusal(TIMER_DELAY_MS=text)
            self.assertEqual(code, 13)
            self.assertIn(f"the property TIMER_DELAY_MS of the message is {text[:50]}, a number too large", remark)
            self.assertTrue(remark.endswith("[timer-illegal]"), remark)
        self.put(TIMER_DELAY_MS="0" * 5_000 + "5")
        self.run_timers(1)
        self.assertEqual(len(self.delivered()), 1)

    def test_cancellation_without_future_time_is_refused(self):
        for table in ({}, {"TIMER_DELIVER_MS": "1"}, {"TIMER_DELAY_SEC": "0"}):
            code, remark = self.refusal(TIMER_DEL_UNIQKEY="u", **table)
            self.assertEqual(code, 13)
            self.assertIn(
                "its own time is missing or not in the future; send it while the other one still waits", remark
            )


class SecondsTests(TimerTestCase):
    def logged(self):
        return [formatEvent(event) for event in self.events if event.get("log_level") == LogLevel.warn]

    def setUp(self):
        super().setUp()
        self.events = []
        globalLogPublisher.addObserver(self.events.append)
        self.addCleanup(globalLogPublisher.removeObserver, self.events.append)

    def test_deliver_ms_in_seconds_warns_once_a_minute(self):
        for seconds, count in ((0, 1), (30, 1), (31, 2)):  # also if the clock is set
            self.broker.wall_steps -= seconds
            self.broker.clock.advance(seconds)
            self.put(TIMER_DELIVER_MS="1795254904")
            self.assertEqual(len(self.logged()), count)
        self.assertEqual(len(self.delivered()), 3)
        self.assertIn(
            "a message to T was delivered at once: its TIMER_DELIVER_MS is 1795254904, a time of", self.logged()[0]
        )

    def test_other_deliver_times_give_no_warning(self):
        for text in ("0", "-1", "999999999", "10000000000", str(self.broker.now_ms())):
            self.put(TIMER_DELIVER_MS=text)
        self.put(TIMER_DELIVER_MS="1795254904", TIMER_DELAY_MS="0")
        self.put(TIMER_DELIVER_MS="1795254904", DELAY="1")
        self.assertEqual(self.logged(), [])


class DisabledTests(RefusalTestCase):
    options = {"timerWheelEnable": "false"}

    def test_disabled_timer_refuses_new_messages(self):
        code, remark = self.refusal(TIMER_DELAY_SEC="1")
        self.assertEqual(code, 1)
        self.assertIn("accurate timer message is not enabled, timerWheelEnable is false; cause: ", remark)

    def test_disabled_timer_has_no_thread(self):
        self.timers.start()
        self.assertIsNone(self.timers._thread)


class CancelTests(TimerTestCase):
    def test_cancel_by_key(self):
        for key in ("a", "b", "c"):
            self.after(10, key.encode(), key=key)
        self.run_timers()
        self.cancel("b", 10)
        self.run_timers(1)
        self.assertEqual((self.timers.waiting.count, self.timers.table()["timerCancelledTotal"]), (2, "1"))
        self.run_timers(20)
        self.assertEqual(self.bodies(), [b"a", b"c"])

    def test_cancel_by_topic_and_key(self):
        self.after(10, b"a", key="a")
        self.after(10, b"b", key="a", topic="U")
        self.cancel("U+a", topic="whatever")
        self.run_timers(20)
        self.assertEqual((self.bodies(), self.bodies("U")), ([b"a"], []))

    def test_cancel_of_other_topic_has_no_effect(self):
        self.after(10, b"a", key="a")
        self.cancel("a", topic="U")
        self.run_timers(20)
        self.assertEqual(self.bodies(), [b"a"])

    def test_cancellation_is_never_delivered(self):
        self.cancel("nothing", 1)
        self.run_timers(20)
        self.assertEqual((self.bodies(), self.timers.waiting.count), ([], 0))

    def test_cancellation_does_not_affect_later_message(self):
        self.cancel("a")
        self.after(10, b"a", key="a")
        self.run_timers(20)
        self.assertEqual(self.bodies(), [b"a"])

    def test_cancel_between_two_messages_of_key(self):
        self.after(10, b"a", key="a")
        self.cancel("a")
        self.after(10, b"again", key="a")
        self.run_timers(20)
        self.assertEqual(self.bodies(), [b"again"])

    def test_cancel_distinguishes_keys_of_same_hash(self):
        self.patch_hash()
        self.after(10, b"a", key="a")
        self.after(10, b"b", key="b")
        self.run_timers()
        self.after(10, b"c", key="c")
        self.cancel("b")
        self.cancel("c")
        self.run_timers(20)
        self.assertEqual(self.bodies(), [b"a"])

    def patch_hash(self):
        self.patch(records, "hash_of", lambda identity: 7)
        self.patch(reader, "hash_of", lambda identity: 7)

    def test_cancellation_stored_before_delivery_is_effective(self):
        self.after(10, b"a", key="a")
        self.after(10, b"b", key="b")
        self.run_timers(9.9)
        # The timer thread has chosen both when the cancellation comes; the storage thread stores it before.
        put = self.broker.store.put_messages
        pool = self.broker.dispatcher.call
        cancellation = self.build(key="c", TIMER_DEL_UNIQKEY="b", TIMER_DELAY_SEC="1")

        def call(function):
            self.broker.dispatcher.call = pool
            put([cancellation])
            pool(function)

        self.broker.dispatcher.call = call
        self.run_timers(0.1)
        self.run_timers(10)
        self.assertEqual((self.bodies(), self.timers.waiting.count), ([b"a"], 0))
        self.assertEqual(self.timers.gate._coming, {})

    def test_unstored_cancellation_has_no_effect(self):
        self.after(10, b"a", key="a")
        self.run_timers()
        self.build(key="c", TIMER_DEL_UNIQKEY="a", TIMER_DELAY_SEC="1")
        self.run_timers(10)
        self.assertEqual(self.bodies(), [b"a"])

    def test_message_without_key_is_not_cancellable(self):
        self.after(10, b"a", key="")
        self.cancel("T+")
        self.run_timers(20)
        self.assertEqual(self.bodies(), [b"a"])


class RestartTests(TimerTestCase):
    def test_timer_continues_after_restart(self):
        self.after(1, b"a")
        self.after(5, b"b")
        self.run_timers(1)
        self.restart()
        self.run_timers(3.999)
        self.assertEqual(self.bodies(), [b"a"])
        self.run_timers(0.001)
        self.assertEqual(self.bodies(), [b"a", b"b"])

    def test_message_due_during_downtime_is_delivered(self):
        self.after(1, b"a")
        clock = self.broker.clock
        self.stop()
        clock.advance(100)
        self.start(clock)
        self.run_timers()
        self.assertEqual(self.bodies(), [b"a"])

    def table_path(self):
        return os.path.join(self.directory, "timer", "waiting.db")

    def with_changed_table(self, change):
        """Deliver some, change the table's file while the broker is stopped, and see that all goes on as if not."""
        self.after(1, b"done")
        self.after(10, b"waits")
        self.after(10, b"cancelled", key="x")
        self.cancel("x")
        self.run_timers(1)
        clock = self.broker.clock
        self.stop()
        change(self.table_path())
        self.start(clock)
        self.timers._log = Silent()
        self.timers._guarded_run()
        self.run_timers(8.999)
        self.assertEqual((self.bodies(), self.timers.waiting.count), ([b"done"], 1))
        self.run_timers(0.001)
        self.assertEqual(self.bodies(), [b"done", b"waits"])

    def test_deleted_table_is_rebuilt(self):
        self.with_changed_table(os.remove)

    def test_damaged_table_is_rebuilt(self):
        def damage(path):
            with open(path, "r+b") as file:
                file.write(b"no database at all" * 100)

        self.with_changed_table(damage)

    def test_table_damaged_inside_is_rebuilt(self):
        def damage(path):
            size = os.path.getsize(path)
            with open(path, "r+b") as file:
                file.seek(4096)
                file.write(b"\xff" * (size - 4096))

        self.with_changed_table(damage)

    def test_table_of_other_version_is_rebuilt(self):
        def change(path):
            with sqlite3.connect(path) as database:
                database.execute("PRAGMA user_version = 99")

        self.with_changed_table(change)

    def test_table_ahead_of_log_is_rebuilt(self):
        def change(path):
            with sqlite3.connect(path) as database:
                database.execute("DELETE FROM waiting")
                database.execute("UPDATE progress SET next_offset = 1000")

        self.with_changed_table(change)

    def test_table_of_other_log_is_rebuilt(self):
        def change(path):
            with sqlite3.connect(path) as database:
                database.execute("DELETE FROM waiting")
                database.execute("UPDATE progress SET checksum = checksum + 1")

        self.with_changed_table(change)

    def test_table_behind_log_catches_up(self):
        self.after(1, b"a")
        self.after(5, b"b")
        self.run_timers()
        with open(self.table_path(), "rb") as file, open(self.table_path() + "-wal", "rb") as wal:
            kept = file.read(), wal.read()
        self.run_timers(1)
        clock = self.broker.clock
        self.stop()
        for suffix, data in zip(("", "-wal"), kept, strict=True):
            with open(self.table_path() + suffix, "wb") as file:
                file.write(data)
        self.start(clock)
        self.run_timers(4)
        self.assertEqual(self.bodies(), [b"a", b"b"])

    def test_damage_found_while_running_rebuilds_table(self):
        self.after(10)
        self.run_timers()

        def fail(*_):
            raise sqlite3.DatabaseError("malformed")

        self.timers.waiting.next_due = fail
        told = self.timers._log = Silent()
        self.timers._guarded_run()
        del self.timers.waiting.next_due
        self.run_timers(10)
        self.assertEqual((self.bodies(), len(told.warnings)), ([b"late"], 1))

    def test_slave_does_not_deliver(self):
        self.after(1)
        clock = self.broker.clock
        self.stop()
        self.broker = SmallBroker(self.directory, clock, brokerRole="SLAVE", brokerId="1")
        self.broker.start()
        self.timers = self.broker.timers
        clock.advance(10)
        self.timers.start()
        self.assertEqual((self.timers._thread, self.timers.table(), self.bodies()), (None, {}, []))


class TroubleTests(TimerTestCase):
    def test_clock_set_back_delivers_nothing_early(self):
        self.after(10, b"a")
        self.run_timers(5)
        self.broker.clock.rightNow -= 100
        self.after(10, b"b")
        self.run_timers(10)
        self.assertEqual(self.bodies(), [b"b"])
        self.run_timers(94.999)
        self.assertEqual(self.bodies(), [b"b"])
        self.run_timers(0.001)
        self.assertEqual(self.bodies(), [b"b", b"a"])

    def test_failed_delivery_is_retried_and_logged_once(self):
        self.after(1)
        good = self.broker.store.put_messages
        failed = PutResult(PutStatus.SERVICE_NOT_AVAILABLE, cause="full")
        self.broker.store.put_messages = lambda messages: [failed] * len(messages)
        told = self.timers._trouble._log = Silent()
        self.run_timers(1)
        self.run_timers(1)
        self.assertEqual(told.errors, ["cannot deliver, trying again: full"])
        full, self.broker.store.put_messages = self.broker.store.put_messages, good
        self.run_timers(1)
        self.assertEqual(self.bodies(), [b"late"])
        self.after(1)
        self.broker.store.put_messages = full
        self.run_timers(1)
        self.assertEqual(len(told.errors), 2, "another trouble")
        self.run_timers(INTERVAL)
        self.assertIn("more like this were not logged", told.errors[2])

    def test_partly_stored_group_is_finished_without_repeats(self):
        self.after(1, b"a")
        self.after(1, b"b")
        self.timers._trouble._log = Silent()
        good = self.broker.store.put_messages

        def one(messages):
            failed = PutResult(PutStatus.SERVICE_NOT_AVAILABLE, cause="full")
            return good(messages[:1]) + [failed] * (len(messages) - 1)

        self.broker.store.put_messages = one
        self.timers.run_once()
        self.broker.clock.advance(1)
        self.timers.run_once()
        self.broker.store.put_messages = good
        self.run_timers(1)
        self.assertEqual((self.bodies(), self.timers.waiting.count), ([b"a", b"b"], 0))
        self.restart()
        self.run_timers(1)
        self.assertEqual(self.bodies(), [b"a", b"b"])

    def test_unstorable_message_is_skipped_without_repeats(self):
        self.after(1, b"a")
        self.raw(b"TIMER_OUT_MS\x011\x02REAL_TOPIC\x01%RETRY%a/b\x02REAL_QID\x012")
        self.after(1, b"b")
        told = self.timers._log = Silent()
        for _ in range(3):
            self.run_timers(1)
        self.assertEqual((self.bodies(), self.timers.lost, len(told.errors)), ([b"a", b"b"], 1, 1))

    def raw(self, properties):
        self.store(MessageInner(TIMER_TOPIC, 0, 0, 0, 0, BORN_HOST, 0, 0, b"raw", properties, 0))

    def test_records_without_usable_properties_are_skipped(self):
        told = []
        self.timers._reader._log = Silent(told)
        for properties in (
            b"",
            b"TIMER_OUT_MS\x01soon\x02REAL_TOPIC\x01T",
            b"TIMER_OUT_MS\x011",
            b"TIMER_OUT_MS\x011\x02REAL_TOPIC\x01RMQ_SYS_TRANS_HALF_TOPIC\x02REAL_QID\x010",
            b"TIMER_OUT_MS\x011\x02REAL_TOPIC\x01T\x02REAL_QID\x01two",
            b"TIMER_DONE\x011",
            b"TIMER_OUT_MS\x01" + b"9" * 30 + b"\x02REAL_TOPIC\x01T\x02REAL_QID\x012",
        ):
            self.raw(properties)
        self.timers._log = Silent()
        self.after(1, b"good")
        self.run_timers(1)
        self.assertEqual((self.bodies(), self.timers.lost, len(told)), ([b"good"], 2, 5))

    def test_search_for_record_of_damaged_entry_delays_delivery(self):
        self.after(1, b"a")
        self.after(1, b"b")
        done = search_for(self.broker.store, TIMER_TOPIC, 1, 3)
        self.run_timers(1)
        self.assertEqual((self.bodies(), self.timers.lost, len(done)), ([b"a", b"b"], 0, 3))

    def test_search_for_last_read_record_does_not_rebuild_the_table(self):
        self.after(1, b"a")
        self.run_timers()
        clock = self.broker.clock
        self.stop()
        self.start(clock)
        done = search_for(self.broker.store, TIMER_TOPIC, 0, 3)
        clear = self.timers.waiting.clear
        cleared = []
        self.timers.waiting.clear = lambda: cleared.append(1) or clear()
        self.run_timers(1)
        self.assertEqual((self.bodies(), cleared, len(done)), ([b"a"], [], 3))

    def test_lost_record_is_logged(self):
        self.after(1)
        self.run_timers()
        look = self.broker.store.look_message
        self.broker.store.look_message = lambda offset: None
        told = self.timers._log = Silent()
        self.broker.clock.advance(1)
        self.timers.run_once()
        self.broker.store.look_message = look
        self.run_timers(1)
        self.assertEqual((self.bodies(), self.timers.lost, self.timers.waiting.count), ([], 1, 0))
        self.assertIn("its record is gone from the log", told.errors[0])

    def test_delivery_waits_for_dispatch_of_log(self):
        self.after(1)
        self.timers._log_end = self.broker.store.max_physical_offset() + 1
        self.broker.clock.advance(5)
        for _ in range(3):
            self.timers.run_once()
        self.broker.settle()
        self.assertEqual(self.bodies(), [])
        self.timers._log_end -= 1
        self.run_timers()
        self.assertEqual(self.bodies(), [b"late"])

    def test_deleted_timer_queue_begins_anew(self):
        self.after(1, b"a")
        self.after(50, b"gone")
        self.run_timers(1)
        self.timers._reader._log = Silent()
        self.broker.store.delete_topic(TIMER_TOPIC)
        self.broker.settle()
        self.after(1, b"b")
        self.run_timers(100)
        self.assertEqual((self.bodies(), self.timers.waiting.count), ([b"a", b"b"], 0))

    def test_delivery_creates_topic_lost_in_kill(self):
        self.after(1)
        self.assertIsNone(self.broker.topics.select("T"))
        self.run_timers(1)
        self.assertIsNotNone(self.broker.topics.select("T"))

    def test_delivery_to_deleted_topic_stores_nothing(self):
        self.after(1)
        self.after(1, topic="U")
        for topic in ("T", "U"):
            self.broker.topics.delete(topic)
            self.broker.store.delete_topic(topic)
        self.broker.topics.update(TopicConfig("U", 4, 4))
        self.run_timers(1)
        self.assertIsNone(self.broker.topics.select("T"))
        self.assertEqual((self.bodies(), self.timers.waiting.count, self.timers.lost), ([], 0, 0))
        self.assertEqual(len(self.bodies("U")), 1)

    def test_full_disk_of_table_is_retried(self):
        self.after(1)
        told = self.timers._trouble._log = Silent()
        apply = self.timers.waiting.apply

        def full(*_):
            raise sqlite3.OperationalError("database or disk is full")

        self.timers.waiting.apply = full
        self.assertEqual([self.timers._guarded_run() for _ in range(2)], [1.0, 1.0])
        self.assertEqual(len(told.errors), 1)
        self.timers.waiting.apply = apply
        self.run_timers(1)
        self.assertEqual(self.bodies(), [b"late"])


class FurtherQueuesTests(TimerTestCase):
    options = {"enableLmq": "true", "enableMultiDispatch": "true", "maxLmqConsumeQueueNum": "0"}

    def test_too_many_light_queues_lose_no_message(self):
        self.after(1, b"a", INNER_MULTI_DISPATCH="%LMQ%x")
        self.after(1, b"b", INNER_MULTI_DISPATCH="%LMQ%y")
        self.after(1, b"c")
        self.run_timers(1)
        self.assertEqual((self.bodies(), self.timers.lost), ([b"a", b"b", b"c"], 0))
        self.assertEqual([len(self.messages(f"%LMQ%{name}", 0)) for name in "xy"], [1, 0])
        self.restart()
        self.run_timers(1)
        self.assertEqual(self.bodies(), [b"a", b"b", b"c"])


class RollTests(TimerTestCase):
    options = {"fileReservedTime": "4"}

    def roll(self, seconds):
        self.timers._next_roll = None
        self.run_timers(seconds)

    def test_long_delay_is_rolled_before_its_file_expires(self):
        self.after(5 * HOUR, mine="x")
        self.roll(2 * HOUR - 1)
        self.assertEqual(len(self.records()), 1)
        self.roll(1)
        first, second, note = self.records()
        self.assertEqual((second.topic, second.body, second.queue_offset), (TIMER_TOPIC, b"late", 1))
        table = first.properties_map()
        table |= {"TIMER_ROLL_TIMES": "1", "TIMER_ENQUEUE_MS": str(first.store_timestamp)}
        self.assertEqual((second.properties_map(), note.body), (table, bytes(8)))
        self.roll(2 * HOUR)
        self.assertEqual(self.records()[-2].properties_map()["TIMER_ROLL_TIMES"], "2")
        self.assertEqual((self.bodies(), self.timers.waiting.count), ([], 1))
        self.roll(HOUR)
        (message,) = self.delivered()
        self.assertEqual((message.body, message.properties_map()["mine"]), (b"late", "x"))
        self.assertEqual(message.properties_map()["TIMER_ENQUEUE_MS"], str(first.store_timestamp))
        self.assertEqual((self.timers.delivered, self.timers.waiting.count), (1, 0))

    def test_delay_of_deleted_topic_is_not_rolled(self):
        """The copy would be younger than the deletion, and bring the topic back."""
        self.after(5 * HOUR)
        self.broker.topics.delete("T")
        self.broker.store.delete_topic("T")
        self.roll(2 * HOUR)
        _, note = self.records()
        self.assertEqual((note.body, self.timers.waiting.count, self.timers.lost), (bytes(8), 0, 0))

    def test_short_delay_is_not_rolled(self):
        self.after(HOUR)
        self.roll(HOUR - 1)
        self.assertEqual(len(self.records()), 1)

    def test_rolled_delay_ignores_clock_steps(self):
        self.put(TIMER_DELAY_SEC=str(4 * HOUR))
        self.run_timers()
        self.broker.wall_steps -= HOUR
        self.run_timers()
        self.roll(3 * HOUR + 1)
        self.assertEqual(len(self.records()), 3)
        self.run_timers(HOUR - 2)
        self.assertEqual(self.bodies(), [])
        self.run_timers(1)
        self.assertEqual(self.bodies(), [b"late"])

    def test_rolled_message_is_cancellable(self):
        self.after(5 * HOUR, key="a")
        self.roll(2 * HOUR)
        self.cancel("a", HOUR)
        self.run_timers(9 * HOUR)
        self.assertEqual(self.bodies(), [])

    def test_cancellation_during_roll_is_effective(self):
        self.after(5 * HOUR, key="a")
        self.run_timers()
        self.broker.clock.advance(2 * HOUR)
        self.store(self.build(key="c", TIMER_DEL_UNIQKEY="a", TIMER_DELAY_SEC="1"))
        self.timers._next_roll = None
        self.timers._roll_some()
        self.run_timers(9 * HOUR)
        self.assertEqual((self.bodies(), self.timers.waiting.count), ([], 0))

    def test_rolled_message_survives_lost_table(self):
        self.after(5 * HOUR)
        self.roll(2 * HOUR)
        clock = self.broker.clock
        self.stop()
        os.remove(os.path.join(self.directory, "timer", "waiting.db"))
        self.start(clock)
        self.roll(3 * HOUR)
        self.assertEqual(self.bodies(), [b"late"])


class Silent:
    """Records logged errors: their text or cause."""

    def __init__(self, errors=None):
        self.errors = [] if errors is None else errors
        self.warnings = []

    def error(self, *line, **values):
        self.errors.append(line[0].format(**values).removeprefix("timers: "))

    def emit(self, level, text, **values):
        self.error(text, **values)

    def warn(self, *line, **values):
        self.warnings.append(line[0].format(**values))

    def info(self, *line, **values):
        pass
