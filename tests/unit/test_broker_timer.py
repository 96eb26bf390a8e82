"""Messages with a time of their own: delivered when due and once, cancelled, rolled, and their table made anew."""

import os
import sqlite3

from twisted.logger import LogLevel, formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from rocketd.broker.message_check import Destination, MessageCheck
from rocketd.broker.testing import BORN_HOST, SmallBroker
from rocketd.broker.timer import reader, records
from rocketd.broker.timer.service import GROUP_MESSAGES
from rocketd.common.java_hash import java_string_hash
from rocketd.common.names import TIMER_TOPIC
from rocketd.common.properties import encode_properties
from rocketd.remoting.errors import RequestError
from rocketd.remoting.headers import SendMessageRequestHeader
from rocketd.store.message import MessageInner, PutResult, PutStatus
from rocketd.store.record import decode_message

HOUR = 3_600


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
        """Let time go on, and the timer thread do everything that there is to do."""
        self.broker.clock.advance(seconds)
        self.broker.settle()
        for _ in range(50):
            before = (self.timers.delivered, self.timers._reader.next_offset)
            self.timers.run_once()
            self.broker.settle()
            if before == (self.timers.delivered, self.timers._reader.next_offset):
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


class DeliveryTests(TimerTestCase):
    def test_not_before_its_time_and_once(self):
        self.after(12.345)
        self.run_timers(12.344)
        self.assertEqual((self.bodies(), self.timers.waiting.count), ([], 1))
        self.run_timers(0.001)
        self.assertEqual((self.bodies(), self.timers.waiting.count), ([b"late"], 0))
        self.run_timers(100)
        self.assertEqual(self.bodies(), [b"late"])

    def test_each_property(self):
        self.put(b"2", TIMER_DELAY_SEC="2")
        self.put(b"1", TIMER_DELAY_MS="1500")
        self.put(b"0", TIMER_DELIVER_MS=str(self.broker.now_ms() + 1_000))
        for seconds, bodies in ((0.999, []), (0.001, [b"0"]), (0.5, [b"0", b"1"]), (0.5, [b"0", b"1", b"2"])):
            self.run_timers(seconds)
            self.assertEqual(self.bodies(), bodies)

    def test_seconds_go_before_milliseconds_and_these_before_a_time(self):
        self.put(b"s", TIMER_DELAY_SEC="1", TIMER_DELAY_MS="2", TIMER_DELIVER_MS="3")
        self.put(b"ms", TIMER_DELAY_MS="500", TIMER_DELIVER_MS="3")
        self.run_timers(0.4)
        self.assertEqual(self.bodies(), [])
        self.run_timers(0.1)
        self.assertEqual(self.bodies(), [b"ms"])

    def test_as_it_was_sent(self):
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

    def test_by_time_then_as_they_came(self):
        for body, seconds in ((b"c", 3), (b"a", 1), (b"b1", 2), (b"b2", 2)):
            self.after(seconds, body)
        self.run_timers(5)
        self.assertEqual(self.bodies(), [b"a", b"b1", b"b2", b"c"])

    def test_many_at_one_instant(self):
        count = 2 * GROUP_MESSAGES + 7
        messages = [self.build(b"%d" % number, key=str(number), TIMER_DELAY_MS="50") for number in range(count)]
        self.store(*messages)
        self.run_timers(0.049)
        self.assertEqual((self.timers.waiting.count, self.bodies()), (count, []))
        self.run_timers(0.001)
        self.assertEqual(self.bodies(), [b"%d" % number for number in range(count)])
        notes = [record for record in self.records() if "TIMER_DONE" in record.properties_map()]
        self.assertEqual(len(notes), 3)

    def test_a_time_that_has_gone_is_no_delay(self):
        self.put(b"now", TIMER_DELIVER_MS=str(self.broker.now_ms()))
        self.put(b"zero", TIMER_DELAY_MS="0")
        self.put(b"negative", TIMER_DELAY_SEC="-5")
        self.assertEqual(self.bodies(), [b"now", b"zero", b"negative"])

    def test_a_level_goes_before_a_time(self):
        self.put(b"level", TIMER_DELAY_SEC="1", DELAY="2")
        self.run_timers(1)
        self.assertEqual(self.records(), [])
        self.broker.clock.advance(4)
        self.broker.schedule.deliver_due()
        self.broker.settle()
        (message,) = self.delivered()
        self.assertNotIn("TIMER_DELAY_SEC", message.properties_map())

    def test_what_was_delivered_once_does_not_wait_again(self):
        self.put(b"again", TIMER_DELAY_SEC="9", TIMER_OUT_MS="1")
        self.assertEqual(self.bodies(), [b"again"])

    def test_a_half_message_waits_for_its_transaction_first(self):
        message = self.build(b"half")
        message.sys_flag = 4
        self.broker.message_builder.delay(message, {"TIMER_DELAY_SEC": "9"}, self.broker.now_ms())
        self.assertEqual(message.topic, "T")

    def test_a_committed_message_waits(self):
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

    def test_nobody_else_may_send_to_the_topic(self):
        check = MessageCheck(self.broker)
        header = SendMessageRequestHeader("P", TIMER_TOPIC, "TBW102", 4, 0, 0, 17, 0, "")
        for _ in range(2):
            error = self.assertRaises(RequestError, check.destination, header, 399, "somebody", self.broker.now_ms())
            self.assertEqual(error.code, 16)
            self.after(1)  # which makes the topic
        self.assertIsNotNone(self.broker.topics.select(TIMER_TOPIC))

    def test_the_longest_properties_are_delivered_though_nothing_can_be_added(self):
        spare = 32_767 - len(self.build(TIMER_DELAY_MS="10", x="").properties) - 3
        self.put(TIMER_DELAY_MS="10", x="x" * spare)
        self.assertEqual(len(self.records()[0].properties), 32_767)
        self.run_timers(1)
        self.assertNotIn("REAL_TOPIC", self.delivered()[0].properties_map())

    def test_figures(self):
        self.assertEqual(self.timers.table(), {})
        self.after(5)
        self.after(9)
        self.run_timers(5)
        self.after(3)
        expected = {"timerCongestNum": "1", "timerOffsetBehind": "1", "timerDeliveredTotal": "1"}
        self.assertEqual(self.timers.table(), expected | {"timerCancelledTotal": "0", "timerLostTotal": "0"})

    def test_counted_as_put(self):
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
    def test_too_far_ahead(self):
        code, remark = self.refusal(TIMER_DELAY_SEC=str(72 * HOUR + 1))
        self.assertEqual(code, 13)
        begin = (
            "timer message illegal, the delay time should not be bigger than the max delay 259200000ms; or if set del "
            "msg, the delay time should be bigger than the current time; cause: the message is to be delivered in "
            "259201000 ms, at most 259200000 are allowed (setting timerMaxDelaySec)"
        )
        self.assertEqual(remark[: len(begin)], begin)
        self.put(TIMER_DELAY_SEC=str(72 * HOUR))

    def test_the_limit_may_be_changed_while_running(self):
        self.broker.settings.store.timer_max_delay_sec = 10
        self.assertIn("the max delay 10000ms", self.refusal(TIMER_DELAY_SEC="11")[1])

    def test_no_number(self):
        for text in ("soon", "1.5", "1_0", "٣", "+"):
            code, remark = self.refusal(TIMER_DELAY_MS=text)
            self.assertEqual(code, 13)
            self.assertTrue(remark.startswith("timer message illegal, the delay time should not be bigger"), remark)
            self.assertTrue(
                remark.endswith(
                    f"cause: the property TIMER_DELAY_MS of the message is {text!r}, which is no whole number; "
                    "give it a whole number of milliseconds [timer-no-number]"
                ),
                remark,
            )
        self.assertIn("give it a whole number of seconds [", self.refusal(TIMER_DELAY_SEC="1.5")[1])
        self.assertIn("a whole number of milliseconds since 1970 [", self.refusal(TIMER_DELIVER_MS="noon")[1])

    def test_a_number_too_large(self):
        for text in ("9" * 20, "+" + "9" * 5_000):
            code, remark = self.refusal(TIMER_DELAY_MS=text)
            self.assertEqual(code, 13)
            self.assertIn(f"the property TIMER_DELAY_MS of the message is {text[:50]}, a number too large", remark)
            self.assertTrue(remark.endswith("[timer-illegal]"), remark)
        self.put(TIMER_DELAY_MS="0" * 5_000 + "5")
        self.run_timers(1)
        self.assertEqual(len(self.delivered()), 1)

    def test_a_cancellation_needs_a_time_to_come(self):
        for table in ({}, {"TIMER_DELIVER_MS": "1"}, {"TIMER_DELAY_SEC": "0"}):
            code, remark = self.refusal(TIMER_DEL_UNIQKEY="u", **table)
            self.assertEqual(code, 13)
            self.assertIn("has no time to come itself; send it while the other still waits", remark)


class SecondsTests(TimerTestCase):
    def logged(self):
        return [formatEvent(event) for event in self.events if event.get("log_level") == LogLevel.warn]

    def setUp(self):
        super().setUp()
        self.events = []
        globalLogPublisher.addObserver(self.events.append)
        self.addCleanup(globalLogPublisher.removeObserver, self.events.append)

    def test_a_time_in_seconds_is_warned_of_once_a_minute(self):
        for seconds, count in ((0, 1), (30, 1), (31, 2)):
            self.broker.clock.advance(seconds)
            self.put(TIMER_DELIVER_MS="1795254904")
            self.assertEqual(len(self.logged()), count)
        self.assertEqual(len(self.delivered()), 3)
        self.assertIn(
            "a message to T was delivered at once: its TIMER_DELIVER_MS is 1795254904, which is", self.logged()[0]
        )

    def test_other_times_are_not(self):
        for text in ("0", "-1", "999999999", "10000000000", str(self.broker.now_ms())):
            self.put(TIMER_DELIVER_MS=text)
        self.put(TIMER_DELIVER_MS="1795254904", TIMER_DELAY_MS="0")
        self.put(TIMER_DELIVER_MS="1795254904", DELAY="1")
        self.assertEqual(self.logged(), [])


class DisabledTests(RefusalTestCase):
    options = {"timerWheelEnable": "false"}

    def test_new_ones_are_refused(self):
        code, remark = self.refusal(TIMER_DELAY_SEC="1")
        self.assertEqual(code, 1)
        self.assertIn("accurate timer message is not enabled, timerWheelEnable is false; cause: ", remark)

    def test_no_thread(self):
        self.timers.start()
        self.assertIsNone(self.timers._thread)


class CancelTests(TimerTestCase):
    def test_by_key(self):
        for key in ("a", "b", "c"):
            self.after(10, key.encode(), key=key)
        self.run_timers()
        self.cancel("b", 10)
        self.run_timers(1)
        self.assertEqual((self.timers.waiting.count, self.timers.table()["timerCancelledTotal"]), (2, "1"))
        self.run_timers(20)
        self.assertEqual(self.bodies(), [b"a", b"c"])

    def test_by_topic_and_key(self):
        self.after(10, b"a", key="a")
        self.after(10, b"b", key="a", topic="U")
        self.cancel("U+a", topic="whatever")
        self.run_timers(20)
        self.assertEqual((self.bodies(), self.bodies("U")), ([b"a"], []))

    def test_of_another_topic(self):
        self.after(10, b"a", key="a")
        self.cancel("a", topic="U")
        self.run_timers(20)
        self.assertEqual(self.bodies(), [b"a"])

    def test_is_never_delivered_itself(self):
        self.cancel("nothing", 1)
        self.run_timers(20)
        self.assertEqual((self.bodies(), self.timers.waiting.count), ([], 0))

    def test_nothing_later_is_cancelled(self):
        self.cancel("a")
        self.after(10, b"a", key="a")
        self.run_timers(20)
        self.assertEqual(self.bodies(), [b"a"])

    def test_in_one_go(self):
        self.after(10, b"a", key="a")
        self.cancel("a")
        self.after(10, b"again", key="a")
        self.run_timers(20)
        self.assertEqual(self.bodies(), [b"again"])

    def test_keys_of_one_hash_are_told_apart(self):
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

    def test_one_acknowledged_at_the_last_moment_counts(self):
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

    def test_one_that_was_not_stored_does_not_count(self):
        self.after(10, b"a", key="a")
        self.run_timers()
        self.build(key="c", TIMER_DEL_UNIQKEY="a", TIMER_DELAY_SEC="1")
        self.run_timers(10)
        self.assertEqual(self.bodies(), [b"a"])

    def test_messages_without_a_key_cannot_be_cancelled(self):
        self.after(10, b"a", key="")
        self.cancel("T+")
        self.run_timers(20)
        self.assertEqual(self.bodies(), [b"a"])


class RestartTests(TimerTestCase):
    def test_goes_on_where_it_was(self):
        self.after(1, b"a")
        self.after(5, b"b")
        self.run_timers(1)
        self.restart()
        self.run_timers(3.999)
        self.assertEqual(self.bodies(), [b"a"])
        self.run_timers(0.001)
        self.assertEqual(self.bodies(), [b"a", b"b"])

    def test_what_became_due_meanwhile(self):
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

    def test_a_deleted_table_is_made_again(self):
        self.with_changed_table(os.remove)

    def test_a_damaged_table_is_made_again(self):
        def damage(path):
            with open(path, "r+b") as file:
                file.write(b"no database at all" * 100)

        self.with_changed_table(damage)

    def test_a_table_damaged_inside_is_made_again(self):
        def damage(path):
            size = os.path.getsize(path)
            with open(path, "r+b") as file:
                file.seek(4096)
                file.write(b"\xff" * (size - 4096))

        self.with_changed_table(damage)

    def test_a_table_of_another_version_is_made_again(self):
        def change(path):
            with sqlite3.connect(path) as database:
                database.execute("PRAGMA user_version = 99")

        self.with_changed_table(change)

    def test_a_table_that_knows_more_than_the_log_is_made_again(self):
        def change(path):
            with sqlite3.connect(path) as database:
                database.execute("DELETE FROM waiting")
                database.execute("UPDATE progress SET next_offset = 1000")

        self.with_changed_table(change)

    def test_a_table_of_another_log_is_made_again(self):
        def change(path):
            with sqlite3.connect(path) as database:
                database.execute("DELETE FROM waiting")
                database.execute("UPDATE progress SET checksum = checksum + 1")

        self.with_changed_table(change)

    def test_a_table_that_is_behind_the_log_follows_it(self):
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

    def test_damage_found_while_running(self):
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

    def test_a_slave_does_not_deliver(self):
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
    def test_a_clock_set_back_delivers_nothing_early(self):
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

    def test_what_cannot_be_stored_is_tried_again_and_told_once(self):
        self.after(1)
        good = self.broker.store.put_messages
        failed = PutResult(PutStatus.SERVICE_NOT_AVAILABLE, cause="full")
        self.broker.store.put_messages = lambda messages: [failed] * len(messages)
        told = self.timers._log = Silent()
        self.run_timers(1)
        self.run_timers(1)
        self.assertEqual(told.errors, ["cannot deliver, trying again: full"])
        self.broker.store.put_messages = good
        self.run_timers(1)
        self.assertEqual(self.bodies(), [b"late"])

    def test_a_group_of_which_a_part_was_stored_is_finished_and_not_repeated(self):
        self.after(1, b"a")
        self.after(1, b"b")
        self.timers._log = Silent()
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

    def test_what_no_try_can_store_holds_nothing_up_and_repeats_nothing(self):
        self.after(1, b"a")
        self.raw(b"TIMER_OUT_MS\x011\x02REAL_TOPIC\x01%RETRY%a/b\x02REAL_QID\x012")
        self.after(1, b"b")
        told = self.timers._log = Silent()
        for _ in range(3):
            self.run_timers(1)
        self.assertEqual((self.bodies(), self.timers.lost, len(told.errors)), ([b"a", b"b"], 1, 1))

    def raw(self, properties):
        self.store(MessageInner(TIMER_TOPIC, 0, 0, 0, 0, BORN_HOST, 0, 0, b"raw", properties, 0))

    def test_records_that_say_nothing_are_passed_over(self):
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

    def test_a_message_whose_record_is_gone_is_told_of(self):
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

    def test_nothing_is_delivered_before_the_log_is_dispatched(self):
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

    def test_a_queue_that_was_deleted_begins_anew(self):
        self.after(1, b"a")
        self.after(50, b"gone")
        self.run_timers(1)
        self.timers._reader._log = Silent()
        self.broker.store.delete_topic(TIMER_TOPIC)
        self.broker.settle()
        self.after(1, b"b")
        self.run_timers(100)
        self.assertEqual((self.bodies(), self.timers.waiting.count), ([b"a", b"b"], 0))

    def test_a_full_disk_of_the_table_ends_nothing(self):
        self.after(1)
        told = self.timers._log = Silent()
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

    def test_too_many_light_queues_lose_nothing(self):
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

    def test_a_long_delay_is_stored_anew_before_its_file_expires(self):
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

    def test_a_short_one_is_not(self):
        self.after(HOUR)
        self.roll(HOUR - 1)
        self.assertEqual(len(self.records()), 1)

    def test_what_was_rolled_can_be_cancelled(self):
        self.after(5 * HOUR, key="a")
        self.roll(2 * HOUR)
        self.cancel("a", HOUR)
        self.run_timers(9 * HOUR)
        self.assertEqual(self.bodies(), [])

    def test_a_cancellation_that_meets_the_rolling_counts(self):
        self.after(5 * HOUR, key="a")
        self.run_timers()
        self.broker.clock.advance(2 * HOUR)
        self.store(self.build(key="c", TIMER_DEL_UNIQKEY="a", TIMER_DELAY_SEC="1"))
        self.timers._next_roll = None
        self.timers._roll_some()
        self.run_timers(9 * HOUR)
        self.assertEqual((self.bodies(), self.timers.waiting.count), ([], 0))

    def test_survives_a_lost_table(self):
        self.after(5 * HOUR)
        self.roll(2 * HOUR)
        clock = self.broker.clock
        self.stop()
        os.remove(os.path.join(self.directory, "timer", "waiting.db"))
        self.start(clock)
        self.roll(3 * HOUR)
        self.assertEqual(self.bodies(), [b"late"])


class Silent:
    """Keeps what is logged as an error, its text or cause."""

    def __init__(self, errors=None):
        self.errors = [] if errors is None else errors
        self.warnings = []

    def error(self, *line, **values):
        self.errors.append(line[0].format(**values).removeprefix("timers: "))

    def warn(self, *line, **values):
        self.warnings.append(line[0].format(**values))

    def info(self, *line, **values):
        pass
