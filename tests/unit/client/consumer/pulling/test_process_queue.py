"""The messages a consumer holds of a queue, and which of them may be handled at once."""

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from twisted.trial.unittest import SynchronousTestCase

from rocketd.client.consumer.handling.keyed_order import KeyedOrder
from rocketd.client.consumer.options.flow_limits import FlowLimit, FlowLimits
from rocketd.client.consumer.pulling.process_queue import Blocking, ProcessQueue
from rocketd.client.errors import IllegalOptionError
from tests.support.examples import examples

NOW = 1_700_000_000_000
MIB = 1 << 20
SETTINGS = settings(max_examples=examples(150), stateful_step_count=40, deadline=None, database=None)


@dataclass(frozen=True)
class PulledMessage:
    queue_offset: int
    key: str | None = None
    size: int = 10


def pulled(*offsets):
    return [PulledMessage(offset) for offset in offsets]


def offsets(messages):
    return [message.queue_offset for message in messages]


def new_queue():
    return ProcessQueue(NOW, lambda message: message.size)


class PutAndRemoveTests(SynchronousTestCase):
    def setUp(self):
        self.queue = new_queue()

    def test_empty(self):
        self.assertEqual((self.queue.count, self.queue.size, self.queue.span), (0, 0, 0))
        self.assertIsNone(self.queue.first_offset)
        self.assertIsNone(self.queue.last_offset)
        self.assertIsNone(self.queue.remove(pulled(1), NOW))

    def test_duplicates_are_ignored(self):
        self.assertEqual(offsets(self.queue.put(pulled(5, 6))), [5, 6])
        self.assertEqual(offsets(self.queue.put(pulled(6, 7))), [7])
        self.assertEqual((self.queue.count, self.queue.size), (3, 30))
        self.queue.take_messages(1, NOW)
        self.assertEqual(self.queue.put(pulled(5)), [])
        self.assertEqual(self.queue.count, 3)

    def test_offset_to_commit_is_the_lowest_left(self):
        self.queue.put(pulled(10, 11, 12))
        self.assertEqual(self.queue.remove(pulled(11), NOW), 10)
        self.assertEqual(self.queue.remove(pulled(10), NOW), 12)
        self.assertEqual(self.queue.remove(pulled(12), NOW + 5), 13)
        self.assertEqual(self.queue.last_consume_ms, NOW + 5)
        self.assertEqual((self.queue.count, self.queue.size), (0, 0))

    def test_remove_of_unknown_messages_changes_nothing(self):
        self.queue.put(pulled(10, 11))
        self.assertEqual(self.queue.remove(pulled(9, 12), NOW), 10)
        self.assertEqual((self.queue.count, self.queue.size), (2, 20))

    def test_out_of_order(self):
        self.queue.put(pulled(10, 4, 7, 12, 1))
        self.assertEqual(offsets(self.queue.waiting()), [1, 4, 7, 10, 12])
        self.assertEqual((self.queue.first_offset, self.queue.last_offset, self.queue.span), (1, 12, 11))

    def test_put_again_after_its_removal(self):
        self.queue.put(pulled(1, 2, 3))
        self.queue.remove(pulled(2), NOW)
        self.queue.put(pulled(2))
        self.assertEqual(offsets(self.queue.waiting()), [1, 2, 3])
        self.queue.remove(pulled(3), NOW)
        self.queue.put(pulled(3))
        self.assertEqual(offsets(self.queue.take_messages(9, NOW)), [1, 2, 3])

    def test_cleared(self):
        self.queue.put(pulled(10, 11, 12))
        self.queue.take_messages(1, NOW)
        self.queue.clear()
        self.assertEqual((self.queue.count, self.queue.size), (0, 0))
        self.assertIsNone(self.queue.commit())
        self.queue.put(pulled(3))
        self.assertEqual(self.queue.remove(pulled(3), NOW), 4)

    def test_many_messages_leave_nothing_behind(self):
        for offset in range(20_000):
            self.queue.put(pulled(offset, offset + 1))
            self.assertEqual(self.queue.remove(pulled(offset), NOW), offset + 1)
        self.assertEqual(self.queue.count, 1)
        self.assertLess(len(self.queue._order), 5000)


class FlowControlTests(SynchronousTestCase):
    def setUp(self):
        self.queue = new_queue()

    def control(self, limits, queues=1, in_order=False):
        return self.queue.flow_control(limits.of_queue(queues, in_order=in_order))

    def limit(self, limits=FlowLimits(), *how):  # noqa: B008
        control = self.control(limits, *how)
        return control and (control.limit, control.threshold)

    def test_apaches_defaults(self):
        self.assertEqual(
            FlowLimits(),
            FlowLimits(messages=1000, size_mib=100, max_span=2000, topic_messages=None, topic_size_mib=None),
        )
        self.assertFalse(FlowLimits().of_topics)

    def test_apaches_ranges(self):
        limits = {
            "messages": 65535,
            "size_mib": 1024,
            "max_span": 65535,
            "topic_messages": 6_553_500,
            "topic_size_mib": 102_400,
        }
        for option, limit in limits.items():
            FlowLimits(**{option: 1})
            FlowLimits(**{option: limit})
            for value in (0, -1, -3, limit + 1, 1.5, True, "5", b"5"):
                with self.assertRaisesRegex(IllegalOptionError, f"{option}={value!r}: accepted"):
                    FlowLimits(**{option: value})
        for option in ("messages", "size_mib"):
            with self.assertRaises(IllegalOptionError):
                FlowLimits(**{option: None})
        self.assertEqual(FlowLimits(max_span=None).max_span, None)

    def test_limits_of_a_topic_are_shared_by_its_queues(self):
        limits = FlowLimits(topic_messages=10, topic_size_mib=9)
        self.queue.put(pulled(0, 1, 2))
        self.assertIsNone(self.limit(limits, 3))
        self.assertEqual(self.limit(limits, 4), (FlowLimit.COUNT, 2))
        self.assertEqual(self.limit(limits, 1000), (FlowLimit.COUNT, 1))
        self.queue.put([PulledMessage(3, size=4 * MIB)])
        self.assertIsNone(self.limit(limits, 2))
        limits = FlowLimits(topic_size_mib=9)
        self.assertIsNone(self.limit(limits, 2))
        self.assertEqual(self.limit(limits, 3), (FlowLimit.SIZE, 3))
        self.assertEqual(self.limit(limits, 1000), (FlowLimit.SIZE, 1))

    def test_topic_limits_replace_queue_limits(self):
        self.queue.put(pulled(*range(8)))
        self.assertEqual(self.limit(FlowLimits(messages=2)), (FlowLimit.COUNT, 2))
        self.assertIsNone(self.limit(FlowLimits(messages=2, topic_messages=20), 2))

    def test_count(self):
        self.queue.put(pulled(*range(1000)))
        self.assertIsNone(self.limit())
        self.queue.put(pulled(1000))
        self.assertEqual(self.limit(), (FlowLimit.COUNT, 1000))

    def test_size_counts_whole_mib(self):
        self.queue.put([PulledMessage(1, size=101 * MIB - 1)])
        self.assertIsNone(self.limit())
        self.queue.put([PulledMessage(2, size=1)])
        self.assertEqual(self.limit(), (FlowLimit.SIZE, 100))
        self.queue.remove(pulled(2), NOW)
        self.assertIsNone(self.limit())

    def test_span_but_not_in_order(self):
        self.queue.put(pulled(0, 2000))
        self.assertIsNone(self.limit())
        self.queue.put(pulled(2001))
        self.assertEqual(self.limit(), (FlowLimit.SPAN, 2000))
        self.assertIsNone(self.limit(FlowLimits(max_span=None)))
        self.assertIsNone(self.limit(FlowLimits(), 1, True))
        self.queue.remove(pulled(2001), NOW)
        self.assertIsNone(self.limit())

    def test_taken_messages_count_for_limits(self):
        self.queue.put([PulledMessage(1, size=2 * MIB), PulledMessage(2, size=2 * MIB)])
        self.queue.take_messages(2, NOW)
        control = self.control(FlowLimits(messages=1))
        self.assertEqual((control.count, control.size_mib, control.min_offset), (2, 4, None))
        self.assertEqual(self.limit(FlowLimits(size_mib=3)), (FlowLimit.SIZE, 3))

    def test_text(self):
        self.queue.put([PulledMessage(7, size=3 * MIB), PulledMessage(9)])
        for limits, words in (
            (FlowLimits(messages=1), "more messages are held than the 1 allowed"),
            (FlowLimits(size_mib=2), "larger than the 2 MiB allowed"),
            (FlowLimits(max_span=1), "further apart than the 1 offsets allowed"),
        ):
            text = str(self.control(limits))
            self.assertIn(words, text)
            self.assertTrue(text.endswith("minOffset=7, maxOffset=9, count=2, size=3 MiB, maxSpan=2"), text)


class HandlerTimesTests(SynchronousTestCase):
    def setUp(self):
        self.queue = new_queue()

    def test_expired_are_those_at_the_head(self):
        self.queue.put(pulled(*range(10)))
        self.queue.begin(pulled(0, 1, 3), NOW)
        self.queue.begin(pulled(2), NOW + 1)
        self.assertEqual(self.queue.expired(1000, NOW + 1000), [])
        self.assertEqual(offsets(self.queue.expired(1000, NOW + 1001)), [0, 1])
        self.assertEqual(offsets(self.queue.expired(1000, NOW + 1002)), [0, 1, 2, 3])
        self.queue.remove(pulled(0, 1), NOW)
        self.assertEqual(offsets(self.queue.expired(1000, NOW + 1001)), [])

    def test_sixteen_expire_at_once(self):
        self.queue.put(pulled(*range(40)))
        self.queue.begin(pulled(*range(40)), NOW)
        self.assertEqual(offsets(self.queue.expired(0, NOW + 1)), list(range(16)))

    def test_message_begun_again_expires_later(self):
        self.queue.put(pulled(1))
        self.queue.begin(pulled(1), NOW)
        self.queue.begin(pulled(1, 2), NOW + 500)
        self.assertEqual(self.queue.expired(1000, NOW + 1001), [])

    def test_orderly_never_expires(self):
        self.queue.put(pulled(1, 2))
        self.queue.take_messages(1, NOW)
        self.assertEqual(self.queue.expired(0, NOW + 10), [])
        self.queue.rollback()
        self.assertEqual(self.queue.expired(0, NOW + 10), [])

    def test_blocking_at_once(self):
        self.assertIsNone(self.queue.blocking(NOW))
        self.queue.put(pulled(4, 5))
        self.assertIsNone(self.queue.blocking(NOW))
        self.queue.begin(pulled(5), NOW)
        self.assertIsNone(self.queue.blocking(NOW))
        self.queue.begin(pulled(4), NOW + 1)
        self.assertEqual(self.queue.blocking(NOW + 61), Blocking(4, NOW + 1, 60, 2))
        self.queue.begin(pulled(4), NOW + 50)
        self.assertEqual(self.queue.blocking(NOW + 61), Blocking(4, NOW + 1, 60, 2))
        self.queue.remove(pulled(4), NOW)
        self.assertEqual(self.queue.blocking(NOW + 61), Blocking(5, NOW, 61, 1))

    def test_blocking_in_order(self):
        self.queue.put(pulled(4, 5))
        self.queue.take_messages(1, NOW)
        self.assertEqual(self.queue.blocking(NOW + 60), Blocking(4, NOW, 60, 2))
        self.queue.rollback()
        self.assertEqual(self.queue.blocking(NOW + 70), Blocking(4, NOW, 70, 2))
        self.queue.take_messages(1, NOW + 80)
        self.assertEqual(self.queue.blocking(NOW + 90), Blocking(4, NOW, 90, 2))
        self.queue.commit()
        self.assertIsNone(self.queue.blocking(NOW + 90))


class OrderlyTests(SynchronousTestCase):
    def setUp(self):
        self.queue = new_queue()
        self.queue.put(pulled(1, 2, 3, 4))

    def test_take_and_commit(self):
        self.assertIsNone(self.queue.commit())
        self.assertEqual(offsets(self.queue.take_messages(3, NOW + 9)), [1, 2, 3])
        self.assertEqual((self.queue.count, self.queue.size, self.queue.first_offset), (4, 40, 4))
        self.assertEqual(self.queue.last_consume_ms, NOW + 9)
        self.assertEqual(self.queue.commit(), 4)
        self.assertEqual((self.queue.count, self.queue.size), (1, 10))
        self.assertEqual(offsets(self.queue.take_messages(3, NOW)), [4])
        self.assertEqual(self.queue.commit(), 5)

    def test_rollback(self):
        self.queue.take_messages(3, NOW)
        self.queue.rollback()
        self.assertIsNone(self.queue.commit())
        self.assertEqual(offsets(self.queue.take_messages(9, NOW)), [1, 2, 3, 4])

    def test_to_consume_again(self):
        self.queue.take_messages(2, NOW)
        last = self.queue.take_messages(1, NOW)
        self.queue.make_to_consume_again(last + pulled(77))
        self.assertEqual(offsets(self.queue.waiting()), [3, 4])
        self.assertEqual(self.queue.commit(), 3)

    def test_commit_stops_before_messages_put_back(self):
        self.queue.take_messages(3, NOW)
        self.queue.make_to_consume_again(pulled(2))
        self.assertEqual(self.queue.commit(), 2)
        self.assertEqual(offsets(self.queue.waiting()), [2, 4])

    def test_turns(self):
        self.assertTrue(self.queue.take_turn())
        self.assertFalse(self.queue.take_turn())
        self.queue.take_messages(9, NOW)
        self.queue.put(pulled(5))
        self.assertFalse(self.queue.take_turn())
        self.queue.take_messages(9, NOW)
        self.assertEqual(self.queue.take_messages(9, NOW), [])
        self.assertFalse(self.queue.take_turn())
        self.queue.put(pulled(6))
        self.assertTrue(self.queue.take_turn())


class StateTests(SynchronousTestCase):
    def setUp(self):
        self.queue = new_queue()

    def test_lock_expires(self):
        self.assertFalse(self.queue.locked)
        self.queue.lock(NOW + 1)
        self.assertTrue(self.queue.locked)
        self.assertFalse(self.queue.is_lock_expired(NOW + 30_001))
        self.assertTrue(self.queue.is_lock_expired(NOW + 30_002))

    def test_pull_expires(self):
        self.assertFalse(self.queue.is_pull_expired(NOW + 120_000))
        self.assertTrue(self.queue.is_pull_expired(NOW + 120_001))
        self.queue.pulled(NOW + 1)
        self.assertFalse(self.queue.is_pull_expired(NOW + 120_001))

    def test_info(self):
        info = self.queue.info()
        self.assertEqual(
            (info.cached_msg_count, info.transaction_msg_count, info.locked, info.droped), (0, 0, False, False)
        )
        self.queue.put([PulledMessage(offset, size=MIB) for offset in range(5, 10)])
        self.queue.take_messages(2, NOW + 1)
        self.queue.lock(NOW + 2)
        self.queue.pulled(NOW + 3)
        self.queue.dropped = True
        self.queue.try_unlock_times += 1
        info = self.queue.info(commit_offset=4)
        self.assertEqual(
            (
                info.cached_msg_min_offset,
                info.cached_msg_max_offset,
                info.cached_msg_count,
                info.cached_msg_size_in_mib,
            ),
            (7, 9, 3, 5),
        )
        self.assertEqual(
            (info.transaction_msg_min_offset, info.transaction_msg_max_offset, info.transaction_msg_count), (5, 6, 2)
        )
        self.assertEqual((info.commit_offset, info.locked, info.droped, info.try_unlock_times), (4, True, True, 1))
        self.assertEqual(
            (info.last_consume_timestamp, info.last_lock_timestamp, info.last_pull_timestamp),
            (NOW + 1, NOW + 2, NOW + 3),
        )


class QueueMachine(RuleBasedStateMachine):
    """The model: plain dicts that are sorted and summed up at every question."""

    some_offsets = st.lists(st.integers(0, 30), max_size=6)

    def __init__(self):
        super().__init__()
        self.queue = new_queue()
        self.held = {}
        self.out = {}
        self.highest = -1
        self.now = NOW

    def lowest(self):
        return min(self.held, default=None)

    @rule(given=some_offsets)
    def put(self, given):
        new = []
        for offset in given:
            if offset not in self.held and offset not in self.out:
                self.held[offset] = PulledMessage(offset, size=offset + 1)
                self.highest = max(self.highest, offset)
                new.append(offset)
        assert offsets(self.queue.put(PulledMessage(offset, size=offset + 1) for offset in given)) == new

    @rule(count=st.integers(1, 8))
    def put_next(self, count):
        self.put(range(self.highest + 1, self.highest + 1 + count))

    @rule(given=some_offsets)
    def remove(self, given):
        wanted = None
        if self.held:
            for offset in given:
                self.held.pop(offset, None)
            wanted = min(self.held, default=self.highest + 1)
        assert self.queue.remove(pulled(*given), NOW) == wanted

    @rule(count=st.integers(0, 4))
    def take(self, count):
        wanted = sorted(self.held)[:count]
        for offset in wanted:
            self.out[offset] = self.held.pop(offset)
        assert offsets(self.queue.take_messages(count, NOW)) == wanted

    @rule()
    def commit(self):
        wanted = min(max(self.out) + 1, *self.held) if self.out and self.held else None
        if self.out and not self.held:
            wanted = max(self.out) + 1
        self.out.clear()
        assert self.queue.commit() == wanted

    @rule()
    def rollback(self):
        self.held.update(self.out)
        self.out.clear()
        self.queue.rollback()

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def again(self, data):
        chosen = data.draw(st.lists(st.sampled_from(sorted(self.out)), unique=True))
        for offset in chosen:
            self.held[offset] = self.out.pop(offset)
        self.queue.make_to_consume_again(pulled(*chosen))

    @rule()
    def clear(self):
        self.held.clear()
        self.out.clear()
        self.highest = -1
        self.queue.clear()

    @invariant()
    def alike(self):
        everything = [*self.held.values(), *self.out.values()]
        assert self.queue.count == len(everything)
        assert self.queue.size == sum(message.size for message in everything)
        assert offsets(self.queue.waiting()) == sorted(self.held)
        assert self.queue.first_offset == self.lowest()
        assert self.queue.last_offset == max(self.held, default=None)
        assert self.queue.span == max(self.held, default=0) - min(self.held, default=0)
        assert self.queue.has_waiting == bool(self.held)


class ModelTests(SynchronousTestCase):
    def test_process_queue_against_model(self):
        run_state_machine_as_test(QueueMachine, settings=SETTINGS)

    def test_keyed_order_against_model(self):
        run_state_machine_as_test(KeyedMachine, settings=SETTINGS)


class KeyedOrderTests(SynchronousTestCase):
    def setUp(self):
        self.order = KeyedOrder(lambda message: message.key, 3)

    def put(self, *keys, first=0):
        messages = [PulledMessage(first + index, key) for index, key in enumerate(keys)]
        self.order.put(messages)
        return messages

    def test_messages_of_one_key_are_handled_in_order(self):
        messages = self.put("a", "a", "a")
        for message in messages:
            self.assertEqual(self.order.take(), [message])
            self.assertEqual(self.order.take(), [])
            self.assertTrue(self.order.done(message))
        self.assertEqual((self.order.waiting, self.order.in_flight), (0, 0))
        self.assertEqual(self.order._behind, {})

    def test_keys_run_at_once_up_to_the_limit(self):
        self.put("a", "b", "a", "c", "d")
        self.assertEqual(offsets(self.order.take()), [0, 1, 3])
        self.assertEqual((self.order.waiting, self.order.in_flight), (2, 3))
        self.order.concurrency = 4
        self.assertEqual(offsets(self.order.take()), [4])
        self.order.concurrency = 1
        self.order.done(PulledMessage(0))
        self.assertEqual(self.order.take(), [])

    def test_take_no_more_than_wanted(self):
        self.put("a", "b", "c")
        self.assertEqual(offsets(self.order.take(2)), [0, 1])
        self.assertEqual(offsets(self.order.take(2)), [2])

    def test_messages_without_key_do_not_wait(self):
        self.put(None, None, None)
        self.assertEqual(offsets(self.order.take()), [0, 1, 2])

    def test_lowest_offset_first(self):
        self.put("a", "a", None, None)
        self.order.concurrency = 1
        first = self.order.take()
        self.order.done(first[0])
        self.assertEqual(offsets(self.order.take()), [1])

    def test_message_put_back_precedes_others_of_its_key(self):
        messages = self.put("a", "a", "b")
        self.order.take()
        self.assertTrue(self.order.again(messages[0]))
        self.assertFalse(self.order.again(messages[0]))
        self.assertEqual(offsets(self.order.take()), [0])
        self.order.done(messages[0])
        self.assertEqual(offsets(self.order.take()), [1])

    def test_resting_message_blocks_its_key_and_takes_no_place(self):
        messages = self.put("a", "a", "b", "c", "d")
        self.order.concurrency = 3
        self.assertEqual(offsets(self.order.take()), [0, 2, 3])
        self.assertTrue(self.order.rest(messages[0]))
        self.assertFalse(self.order.rest(messages[0]))
        self.assertEqual(offsets(self.order.take()), [4])
        self.assertTrue(self.order.again(messages[0]))
        self.order.concurrency = 9
        self.assertEqual(offsets(self.order.take()), [0])

    def test_done_of_resting_message_frees_its_key(self):
        messages = self.put("a", "a")
        self.order.take()
        self.order.rest(messages[0])
        self.assertTrue(self.order.done(messages[0]))
        self.assertFalse(self.order.again(messages[0]))
        self.assertEqual(offsets(self.order.take()), [1])

    def test_given_up_and_ended_later(self):
        messages = self.put("a", "a", "a")
        self.order.take()
        self.assertTrue(self.order.done(messages[0]))
        self.assertEqual(offsets(self.order.take()), [1])
        self.assertFalse(self.order.done(messages[0]))
        self.assertEqual(self.order.take(), [])

    def test_duplicates_are_ignored(self):
        self.put("a", "b")
        self.order.take(1)
        self.put("a", "b")
        self.assertEqual((self.order.waiting, self.order.in_flight), (1, 1))

    def test_cleared(self):
        messages = self.put("a", "a", "b", None)
        self.order.take(1)
        self.assertEqual(offsets(self.order.clear()), [1, 2, 3])
        self.put("a", "b", first=10)
        self.assertEqual(offsets(self.order.take()), [11])
        self.order.done(messages[0])
        self.assertEqual(offsets(self.order.take()), [10])

    def test_bad_key_adds_nothing(self):
        def key_of(message):
            if message.key == "bad":
                raise ValueError("no key")
            return [] if message.key == "list" else message.key

        self.order = KeyedOrder(key_of, 3)
        self.assertRaises(ValueError, self.put, "a", "bad")
        self.assertRaises(TypeError, self.put, "a", "list")
        self.assertEqual((self.order.waiting, self.order.take()), (0, []))


class KeyedMachine(RuleBasedStateMachine):
    """The model: lists of waiting, of taken and of resting messages. The next ones are found by looking at all of them."""

    def __init__(self):
        super().__init__()
        self.order = KeyedOrder(lambda message: message.key, 2)
        self.limit = 2
        self.next = 0
        self.waits = []
        self.out = []
        self.resting = []

    @rule(keys=st.lists(st.sampled_from((None, "a", "b", "c")), max_size=6))
    def put(self, keys):
        messages = [PulledMessage(self.next + index, key) for index, key in enumerate(keys)]
        self.next += len(keys)
        self.waits += messages
        self.order.put(messages)

    @rule(count=st.none() | st.integers(0, 3))
    def take(self, count):
        room = self.limit - len(self.out)
        room = room if count is None else min(room, count)
        busy = {message.key for message in (*self.out, *self.resting)}
        wanted = []
        for message in sorted(self.waits, key=lambda message: message.queue_offset):
            if len(wanted) < room and (message.key is None or message.key not in busy):
                wanted.append(message)
            busy.add(message.key)
        self.waits = [message for message in self.waits if message not in wanted]
        self.out += wanted
        assert self.order.take(count) == wanted

    @precondition(lambda self: self.out)
    @rule(data=st.data(), again=st.booleans())
    def end(self, data, again):
        message = data.draw(st.sampled_from(self.out))
        self.out.remove(message)
        if again:
            self.waits.append(message)
            assert self.order.again(message)
        else:
            assert self.order.done(message)

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def rest(self, data):
        message = data.draw(st.sampled_from(self.out))
        if message.key is not None:
            self.out.remove(message)
            self.resting.append(message)
        assert self.order.rest(message) is (message.key is not None)

    @precondition(lambda self: self.resting)
    @rule(data=st.data(), again=st.booleans())
    def end_rest(self, data, again):
        message = data.draw(st.sampled_from(self.resting))
        self.resting.remove(message)
        if again:
            self.waits.append(message)
            assert self.order.again(message)
        else:
            assert self.order.done(message)

    @rule(limit=st.integers(1, 4))
    def change_limit(self, limit):
        self.limit = self.order.concurrency = limit

    @rule()
    def clear(self):
        wanted = sorted(self.waits, key=lambda message: message.queue_offset)
        self.waits = []
        assert self.order.clear() == wanted

    @invariant()
    def alike(self):
        assert (self.order.waiting, self.order.in_flight) == (len(self.waits), len(self.out))
