"""Messages that appear in further queues, over restarts, crashes and full disks."""

import os
import shutil
import threading

from twisted.trial.unittest import SynchronousTestCase

from rocketd.store.format.compose import TopicQueue
from rocketd.store.format.message import DispatchRequest, GetStatus, PutStatus
from rocketd.store.format.record import decode_message, decode_messages
from rocketd.store.message_store import MessageStore
from rocketd.store.testing import STORE_HOST, FaultyFileSystem, make_message, small_config
from tests.support.killed_stores import copy_of_killed

WAIT = 60
LIGHT = "%LMQ%"


class MultiDispatchTestCase(SynchronousTestCase):
    def setUp(self):
        self.root = os.path.abspath(self.mktemp())
        self.fs = FaultyFileSystem()
        self.store = None
        self.addCleanup(lambda: self.store and self.store.stop())
        self.start()

    def start(self, **changes):
        changes = {"enable_lmq": True, "enable_multi_dispatch": True, **changes}
        self.store = MessageStore(small_config(self.root, **changes), STORE_HOST, fs=self.fs)
        self.arrived = []
        self.store.add_arrival_listener(self.arrived.extend)
        self.store.start()

    def message(self, body, further="", **more):
        properties = f"KEYS\x01k\x02INNER_MULTI_DISPATCH\x01{further}\x02TAGS\x01t" if further else "KEYS\x01k"
        return make_message(body=body, properties=properties.encode(), **more)

    def put(self, *messages):
        results = self.store.put_messages(messages)
        done = threading.Event()
        self.store._reput.call(done.set)
        self.assertTrue(done.wait(WAIT))
        return results

    def bodies(self, topic, queue_id=0):
        found, offset = [], 0
        while (result := self.store.get_messages(topic, queue_id, offset, 32, None)).status is GetStatus.FOUND:
            for view in result.buffers:
                found += [message.body for message in decode_messages(view)]
            offset = result.next_begin_offset
        return found

    def offsets(self, result):
        return decode_message(self.store.look_message(result.physical_offset)).properties_map()


class PutTests(MultiDispatchTestCase):
    def test_queues_have_separate_offsets(self):
        results = self.put(
            self.message(b"a", f"{LIGHT}x,{LIGHT}y"),
            self.message(b"b"),
            self.message(b"c", f"{LIGHT}y", queue_id=1),
            self.message(b"d", f"{LIGHT}y,{LIGHT}z", queue_id=1),
        )
        self.assertEqual([result.status for result in results], [PutStatus.PUT_OK] * 4)
        self.assertEqual([result.queue_offset for result in results], [0, 1, 0, 1])
        self.assertEqual(self.bodies("TopicTest"), [b"a", b"b"])
        self.assertEqual(self.bodies("TopicTest", 1), [b"c", b"d"])
        self.assertEqual(self.bodies(LIGHT + "x"), [b"a"])
        self.assertEqual(self.bodies(LIGHT + "y"), [b"a", b"c", b"d"])
        self.patch(self.store._finder, "find", lambda *_: self.fail("an entry of a light queue is not damage"))
        self.assertEqual(self.bodies(LIGHT + "z"), [b"d"])
        table = self.offsets(results[3])
        self.assertEqual((table["INNER_MULTI_QUEUE_OFFSET"], table["TAGS"]), ("2,0", "t"))

    def test_arrival_listener_is_called_for_further_queue(self):
        self.put(self.message(b"a", f"{LIGHT}x"))
        self.assertEqual([arrival[:3] for arrival in self.arrived], [("TopicTest", 0, 1), (LIGHT + "x", 0, 1)])

    def test_message_in_several_queues_is_found_once_by_key(self):
        self.put(self.message(b"a", f"{LIGHT}x", index_keys=("k",)))
        self.assertEqual(len(self.store.query_messages("TopicTest", "k", 32, 0, 1 << 62).buffers), 1)
        self.assertEqual(self.store.query_messages(LIGHT + "x", "k", 32, 0, 1 << 62).buffers, [])

    def test_client_given_offsets_are_ignored(self):
        properties = b"INNER_MULTI_QUEUE_OFFSET\x0199999999\x02INNER_MULTI_DISPATCH\x01%LMQ%x"
        (result,) = self.put(make_message(body=b"a", properties=properties))
        self.assertEqual(self.offsets(result)["INNER_MULTI_QUEUE_OFFSET"], "0")
        self.assertEqual(self.bodies(LIGHT + "x"), [b"a"])
        (result,) = self.store.put_batch([make_message(body=b"b", properties=properties)])
        self.assertEqual(result.status, PutStatus.MESSAGE_ILLEGAL)

    def test_invalid_queue_names_are_refused(self):
        for name in ("../x", f"{LIGHT}a/b", LIGHT + "x" * 128, f"{LIGHT}ok,{LIGHT}/"):
            (result,) = self.put(self.message(b"a", name))
            self.assertEqual(result.status, PutStatus.MESSAGE_ILLEGAL, name)
        self.assertEqual(self.store.queue_keys(), [])

    def test_names_without_light_prefix_are_refused(self):
        for name in (
            "TopicTest",
            "other",
            "rmq_sys_wheel_timer",
            "RMQ_SYS_TRANS_OP_HALF_TOPIC",
            f"{LIGHT}x,other",
            "%LM",
        ):
            (result,) = self.put(self.message(b"a", name))
            self.assertEqual(result.status, PutStatus.MESSAGE_ILLEGAL, name)
            self.assertIn("queues that begin with %LMQ%", result.cause)
        self.assertEqual(self.store.queue_keys(), [])

    def test_stored_names_without_light_prefix_are_skipped(self):
        properties = b"INNER_MULTI_DISPATCH\x01rmq_sys_wheel_timer,%LMQ%x\x02INNER_MULTI_QUEUE_OFFSET\x015,7"
        request = DispatchRequest("T", 0, 0, 10, 0, 0, 0, (), 0, 0, properties)
        (found,) = self.store._multi_dispatch.further([request])
        self.assertEqual((found.topic, found.queue_offset), (LIGHT + "x", 7))

    def test_write_failure_fails_later_messages_of_group(self):
        self.put(self.message(b"first", f"{LIGHT}x"))
        self.fs.fail("pwrite", OSError(28, "full"), nth=2)
        results = self.put(
            self.message(b"a", f"{LIGHT}x"),
            self.message(b"b", f"{LIGHT}x"),
            self.message(b"c", f"{LIGHT}x"),
            self.message(b"d"),
        )
        self.assertEqual(
            [result.status for result in results], [PutStatus.PUT_OK] + [PutStatus.SERVICE_NOT_AVAILABLE] * 3
        )
        self.assertEqual(self.bodies("TopicTest"), [b"first", b"a"])
        results = self.put(self.message(b"b", f"{LIGHT}x"), self.message(b"d"))
        self.assertEqual([result.queue_offset for result in results], [2, 3])
        self.assertEqual(self.bodies(LIGHT + "x"), [b"first", b"a", b"b"])

    def test_refused_message_leaves_later_messages_alone(self):
        results = self.put(self.message(b"a", "other"), self.message(b"b", f"{LIGHT}x"), self.message(b"c"))
        self.assertEqual(
            [result.status for result in results], [PutStatus.MESSAGE_ILLEGAL, PutStatus.PUT_OK, PutStatus.PUT_OK]
        )

    def test_accepted_message_is_stored_without_unavailable_queues(self):
        self.put(self.message(b"a", f"{LIGHT}x"), self.message(b"b", f"{LIGHT}y"))
        self.store.config.max_lmq_consume_queue_num = 1
        results = self.put(
            self.message(b"many", f"{LIGHT}z", is_accepted=True),
            self.message(b"name", "other", is_accepted=True),
        )
        self.assertEqual([result.status for result in results], [PutStatus.PUT_OK] * 2)
        self.assertEqual(self.offsets(results[0]), {"KEYS": "k", "TAGS": "t"})
        self.assertEqual(self.bodies("TopicTest"), [b"a", b"b", b"many", b"name"])
        self.assertEqual([self.bodies(LIGHT + name) for name in "xyz"], [[b"a"], [b"b"], []])

    def test_refused_message_uses_no_offset(self):
        refused, stored = self.put(
            self.message(b"x" * 100_000, f"{LIGHT}x"),
            self.message(b"a", f"{LIGHT}x"),
        )
        self.assertEqual((refused.status, stored.status), (PutStatus.MESSAGE_ILLEGAL, PutStatus.PUT_OK))
        self.assertEqual(self.offsets(stored)["INNER_MULTI_QUEUE_OFFSET"], "0")

    def test_delayed_and_half_messages_are_not_dispatched(self):
        self.put(
            self.message(b"delayed", f"{LIGHT}x", topic="SCHEDULE_TOPIC_XXXX"),
            self.message(b"half", f"{LIGHT}x", topic="RMQ_SYS_TRANS_HALF_TOPIC"),
            self.message(b"prepared", f"{LIGHT}x", sys_flag=4),
        )
        self.assertEqual(self.bodies(LIGHT + "x"), [])

    def test_too_many_light_queues(self):
        self.store.config.max_lmq_consume_queue_num = 1
        results = self.put(
            self.message(b"a", f"{LIGHT}x"), self.message(b"b", f"{LIGHT}y"), self.message(b"c", f"{LIGHT}y")
        )
        self.assertEqual(
            [result.status for result in results],
            [PutStatus.PUT_OK, PutStatus.PUT_OK, PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED],
        )
        (result,) = self.put(self.message(b"d"))
        self.assertEqual(result.status, PutStatus.PUT_OK)

    def test_light_queue_count_follows_creation_and_removal(self):
        dispatch, queues = self.store._multi_dispatch, self.store._appender.topic_queues

        def count():
            found = sum(topic.startswith(LIGHT) for topic, _ in queues)
            self.assertEqual(dispatch._light_queues(), found)
            self.assertEqual(dispatch._light_queues(), found)
            return found

        self.assertEqual(count(), 0)
        self.put(self.message(b"a", f"{LIGHT}x,{LIGHT}y"), self.message(b"b", topic="Other"))
        self.assertEqual(count(), 2)
        self.put(self.message(b"c", topic="Another"), self.message(b"d", topic=f"{LIGHT}z"))
        self.assertEqual(count(), 3)
        # As many come as go.
        self.store.delete_topic(LIGHT + "x")
        self.put(self.message(b"e", topic="Third"))
        self.assertEqual(count(), 2)
        self.store.delete_topic("Third")
        self.put(self.message(b"f", topic=f"{LIGHT}w"))
        self.assertEqual(count(), 3)
        for topic in {topic for topic, _ in queues}:
            self.store.delete_topic(topic)
        self.assertEqual(count(), 0)
        self.put(self.message(b"g", f"{LIGHT}x"))
        self.assertEqual(count(), 1)

    def test_light_queue_count_is_incremental(self):
        queues = self.store._appender.topic_queues
        queues.update({(f"{LIGHT}{number}", 0): TopicQueue(f"{LIGHT}{number}") for number in range(1_000)})
        dispatch = self.store._multi_dispatch
        self.assertEqual(dispatch._light_queues(), 1_000)
        looked_at = []

        class Keys(dict):
            def __iter__(self):
                looked_at.append(len(self))
                return super().__iter__()

        dispatch._topic_queues = lambda: Keys(queues)
        self.assertEqual(dispatch._light_queues(), 1_000)
        queues[f"{LIGHT}new", 0] = TopicQueue(f"{LIGHT}new")
        self.assertEqual(dispatch._light_queues(), 1_001)
        self.assertEqual(looked_at, [])

    def test_queue_limit_applies_with_light_queues_disabled(self):
        self.store.stop()
        self.start(enable_lmq=False, max_lmq_consume_queue_num=0)
        results = self.put(self.message(b"a", f"{LIGHT}x"), self.message(b"b", f"{LIGHT}y"))
        self.assertEqual(
            [result.status for result in results], [PutStatus.PUT_OK, PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED]
        )

    def test_queue_id_is_that_of_message_with_light_queues_disabled(self):
        self.store.stop()
        self.start(enable_lmq=False)
        self.put(self.message(b"a", f"{LIGHT}x", queue_id=3))
        self.assertEqual(self.bodies(LIGHT + "x", 3), [b"a"])

    def test_disabled_multi_dispatch_ignores_property(self):
        self.store.stop()
        self.start(enable_multi_dispatch=False)
        self.put(self.message(b"a", f"{LIGHT}x"))
        self.assertEqual(self.store.queue_keys(), [("TopicTest", 0)])

    def test_lists_of_different_length_are_ignored(self):
        properties = b"INNER_MULTI_DISPATCH\x01a,b\x02INNER_MULTI_QUEUE_OFFSET\x010"
        request = DispatchRequest("T", 0, 0, 10, 0, 0, 0, (), 0, 0, properties)
        self.assertEqual(self.store._multi_dispatch.further([request]), [])


class RestartTests(MultiDispatchTestCase):
    def fill(self):
        self.put(*[self.message(str(number).encode(), f"{LIGHT}x,{LIGHT}{number % 2}") for number in range(40)])
        self.assertEqual(len(self.bodies(LIGHT + "x")), 40)

    def check(self):
        self.assertEqual(self.bodies(LIGHT + "x"), [str(number).encode() for number in range(40)])
        self.assertEqual(self.bodies(LIGHT + "1"), [str(number).encode() for number in range(1, 40, 2)])
        (result,) = self.put(self.message(b"next", f"{LIGHT}x,{LIGHT}1"))
        self.assertEqual(self.offsets(result)["INNER_MULTI_QUEUE_OFFSET"], "40,20")
        self.assertEqual(self.bodies(LIGHT + "1")[-1], b"next")

    def test_offsets_continue_after_restart(self):
        self.fill()
        self.store.stop()
        self.start()
        self.check()

    def test_offsets_continue_after_kill(self):
        self.fill()
        # A kill leaves the files as they are while the store runs.
        copied = copy_of_killed(self.store, self.root + "-killed")
        self.store.stop()
        self.root = copied
        self.start()
        self.check()

    def test_entries_lost_in_crash_are_dispatched_again(self):
        self.fill()
        copied = copy_of_killed(self.store, self.root + "-crashed")
        self.store.stop()
        # A crash of the machine may leave nothing of queues that were not flushed yet.
        shutil.rmtree(os.path.join(copied, "consumequeue"))
        self.root = copied
        self.start()
        self.check()
