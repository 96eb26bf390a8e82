"""Messages that appear in further queues, over restarts, crashes and full disks."""

import os
import shutil
import threading

from twisted.trial.unittest import SynchronousTestCase

from rocketd.store.message import DispatchRequest, GetStatus, PutStatus
from rocketd.store.message_store import MessageStore
from rocketd.store.record import decode_message, decode_messages
from rocketd.store.testing import STORE_HOST, FaultyFileSystem, make_message, small_config

WAIT = 10
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
    def test_each_queue_has_its_own_offsets(self):
        results = self.put(
            self.message(b"a", f"{LIGHT}x,{LIGHT}y"),
            self.message(b"b"),
            self.message(b"c", f"{LIGHT}y", queue_id=1),
            self.message(b"d", f"{LIGHT}y,other", queue_id=1),
        )
        self.assertEqual([result.status for result in results], [PutStatus.PUT_OK] * 4)
        self.assertEqual([result.queue_offset for result in results], [0, 1, 0, 1])
        self.assertEqual(self.bodies("TopicTest"), [b"a", b"b"])
        self.assertEqual(self.bodies("TopicTest", 1), [b"c", b"d"])
        self.assertEqual(self.bodies(LIGHT + "x"), [b"a"])
        self.assertEqual(self.bodies(LIGHT + "y"), [b"a", b"c", b"d"])
        self.assertEqual(self.bodies("other", 1), [b"d"])
        table = self.offsets(results[3])
        self.assertEqual((table["INNER_MULTI_QUEUE_OFFSET"], table["TAGS"]), ("2,0", "t"))

    def test_who_waits_at_a_further_queue_is_told(self):
        self.put(self.message(b"a", f"{LIGHT}x"))
        self.assertEqual([arrival[:3] for arrival in self.arrived], [("TopicTest", 0, 1), (LIGHT + "x", 0, 1)])

    def test_found_once_by_key(self):
        self.put(self.message(b"a", f"{LIGHT}x", index_keys=("k",)))
        self.assertEqual(len(self.store.query_messages("TopicTest", "k", 32, 0, 1 << 62).buffers), 1)
        self.assertEqual(self.store.query_messages(LIGHT + "x", "k", 32, 0, 1 << 62).buffers, [])

    def test_offsets_that_a_client_made_up_do_not_count(self):
        properties = b"INNER_MULTI_QUEUE_OFFSET\x0199999999\x02INNER_MULTI_DISPATCH\x01%LMQ%x"
        (result,) = self.put(make_message(body=b"a", properties=properties))
        self.assertEqual(self.offsets(result)["INNER_MULTI_QUEUE_OFFSET"], "0")
        self.assertEqual(self.bodies(LIGHT + "x"), [b"a"])
        (result,) = self.store.put_batch([make_message(body=b"b", properties=properties)])
        self.assertEqual(result.status, PutStatus.MESSAGE_ILLEGAL)

    def test_names_that_no_queue_can_have(self):
        for name in ("../x", "a/b", "x" * 128, "TopicTest", f"ok,{LIGHT}/"):
            (result,) = self.put(self.message(b"a", name))
            self.assertEqual(result.status, PutStatus.MESSAGE_ILLEGAL, name)
        self.assertEqual(self.store.queue_keys(), [])

    def test_what_is_not_stored_takes_no_offset(self):
        refused, stored = self.put(
            self.message(b"x" * 100_000, f"{LIGHT}x"),
            self.message(b"a", f"{LIGHT}x"),
        )
        self.assertEqual((refused.status, stored.status), (PutStatus.MESSAGE_ILLEGAL, PutStatus.PUT_OK))
        self.assertEqual(self.offsets(stored)["INNER_MULTI_QUEUE_OFFSET"], "0")

    def test_messages_on_their_way_wait_for_their_own_topic(self):
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

    def test_without_light_queues_the_number_is_the_messages_own(self):
        self.store.stop()
        self.start(enable_lmq=False)
        self.put(self.message(b"a", f"{LIGHT}x", queue_id=3))
        self.assertEqual(self.bodies(LIGHT + "x", 3), [b"a"])

    def test_turned_off(self):
        self.store.stop()
        self.start(enable_multi_dispatch=False)
        self.put(self.message(b"a", f"{LIGHT}x"))
        self.assertEqual(self.store.queue_keys(), [("TopicTest", 0)])

    def test_lists_that_do_not_fit_are_passed_over(self):
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

    def test_offsets_go_on(self):
        self.fill()
        self.store.stop()
        self.start()
        self.check()

    def test_after_a_kill(self):
        self.fill()
        # What is on the disk while the store runs is what a kill leaves.
        copied = self.root + "-killed"
        shutil.copytree(self.root, copied)
        self.store.stop()
        self.root = copied
        self.start()
        self.check()

    def test_entries_that_a_crash_has_taken_are_made_again(self):
        self.fill()
        copied = self.root + "-crashed"
        shutil.copytree(self.root, copied)
        self.store.stop()
        # A crash of the machine may leave nothing of queues that were not flushed yet.
        shutil.rmtree(os.path.join(copied, "consumequeue"))
        self.root = copied
        self.start()
        self.check()
