"""Chunks of messages for one thread: their size, and everything that ends one early."""

from threading import Event, Semaphore, get_ident

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from rocketd.client.consumer.handling.chunks import MAX_CHUNK, Chunk, ChunkSize
from rocketd.client.consumer.pulling.assigned_queue import PulledMessage
from rocketd.client.consumer.push_consumer import LET_END_SECONDS
from rocketd.client.consumer.retries.handler_results import Reject, Retry
from rocketd.client.errors import StopConsuming
from rocketd.client.hooks import ConsumerHook
from rocketd.client.messages.codec import JsonCodec
from tests.support.client_cluster import THREAD_LIMIT
from tests.support.consuming import ConsumingTestCase


class ChunkSizeTests(SynchronousTestCase):
    def test_first_chunk_has_one_message(self):
        self.assertEqual(ChunkSize().size, 1)

    def test_fast_handler_gets_largest_chunks(self):
        size = ChunkSize()
        size.add(1, 0.000_01)
        self.assertEqual(size.size, MAX_CHUNK)

    def test_handler_of_more_than_a_millisecond_gets_single_messages(self):
        size = ChunkSize()
        size.add(1, 0.001_1)
        self.assertEqual(size.size, 1)

    def test_chunk_takes_about_a_millisecond(self):
        size = ChunkSize()
        size.add(1, 0.000_1)
        self.assertIn(size.size, (9, 10))

    def test_handler_that_gets_faster_gets_larger_chunks_soon(self):
        size = ChunkSize()
        size.add(1, 0.010)
        for _ in range(20):
            size.add(1, 0.000_01)
        self.assertEqual(size.size, MAX_CHUNK)

    def test_single_slow_message_changes_little(self):
        size = ChunkSize()
        size.add(32, 0.000_32)
        size.add(32, 0.000_31 + 0.000_3)
        self.assertEqual(size.size, MAX_CHUNK)

    def test_handler_that_gets_slower_gets_single_messages(self):
        size = ChunkSize()
        size.add(1, 0.000_01)
        for _ in range(20):
            size.add(1, 0.003)
        self.assertEqual(size.size, 1)

    def test_endless_handler_gets_single_messages_at_once(self):
        size = ChunkSize()
        size.add(1, 0.000_01)
        size.add_endless(0.005)
        self.assertEqual(size.size, 1)


class ChunkTests(SynchronousTestCase):
    def chunk(self, handle, count=3):
        self.pulled = [PulledMessage.__new__(PulledMessage) for _ in range(count)]
        return Chunk(handle, [(n, one) for n, one in enumerate(self.pulled)])

    def test_messages_taken_back_are_not_handled(self):
        handled = []

        def handle(n):
            handled.append(n)
            if n == 0:
                self.assertEqual(chunk.take_back(), self.pulled[1:])

        chunk = self.chunk(handle)
        chunk.work_off()
        self.assertEqual(handled, [0])
        self.assertFalse(chunk.has_more)

    def test_running_message_is_known_until_its_result(self):
        seen = []

        def handle(n):
            chunk.results()
            seen.append(chunk.running()[0])

        chunk = self.chunk(handle)
        self.assertIsNone(chunk.running())
        chunk.work_off()
        self.assertEqual(seen, self.pulled)
        self.assertEqual([pulled for pulled, _, _ in chunk.results()], self.pulled[2:])
        self.assertIsNone(chunk.running())

    def test_result_with_consequences_is_the_last(self):
        async def coroutine():
            pass

        awaited = coroutine()
        self.addCleanup(awaited.close)
        for result in (Retry(), Reject(), Retry, Reject, (each for each in ()), awaited):
            chunk = self.chunk([None, result, None].__getitem__)
            chunk.work_off()
            self.assertEqual([value for _, value, _ in chunk.results()], [None, result])
            self.assertEqual(chunk.take_back(), self.pulled[2:])

    def test_other_results_do_not_end_the_chunk(self):
        chunk = self.chunk([True, "done", int].__getitem__)
        chunk.work_off()
        self.assertEqual([value for _, value, _ in chunk.results()], [True, "done", int])


class ChunkedConsumptionTests(ConsumingTestCase):
    """A consumer whose handler is a function that has been fast so far."""

    def setUp(self):
        super().setUp()
        self.patch(ChunkSize, "size", MAX_CHUNK)
        self.handled = []
        self.threads = set()
        self.begun = Semaphore(0)
        self.go_on = Event()
        self.addCleanup(self.go_on.set)

    def handler(self, message):
        self.handled.append(message.body)
        self.threads.add(get_ident())
        if message.body == b"slow":
            self.begun.release()
            self.go_on.wait(THREAD_LIMIT)

    def wait_for_slow(self):
        self.assertTrue(self.begun.acquire(timeout=THREAD_LIMIT))

    def rest(self, consumer):
        while consumer.threads.running:
            self.clock.run_call()

    def check(self):
        """Let the timer look twice at the message that runs."""
        for _ in range(3):
            self.clock.advance(0.005)

    def test_one_thread_handles_all_and_reports_once(self):
        consumer = self.start(self.handler)
        self.deliver(*[b"%d" % n for n in range(32)])
        self.clock.run_call()
        self.assertEqual(self.handled, [b"%d" % n for n in range(32)])
        self.assertEqual(len(self.threads), 1)
        self.assertEqual(self.stored(), 32)
        status = consumer.running_info(False).status_table["T"]
        self.assertEqual((status.consume_ok_tps * 60, status.consume_failed_tps), (32, 0))
        self.end_of(consumer.stop())

    def test_failed_message_alone_comes_again(self):
        def handler(message):
            self.handled.append(message.body)
            if message.body == b"1":
                raise KeyError("no such key")
            return Retry() if message.body == b"2" else None

        consumer = self.start(handler)
        self.deliver(*[b"%d" % n for n in range(5)])
        self.rest(consumer)
        self.assertEqual((self.handled, self.given_back()), ([b"0", b"1", b"2", b"3", b"4"], [1, 2]))
        self.assertEqual(self.stored(), 5)
        self.assertEqual(len(self.lines), 1, self.lines)
        self.assertRegex(self.lines[0], r"handler failed on .* at 1: KeyError")
        status = consumer.running_info(False).status_table["T"]
        self.assertEqual((status.consume_ok_tps * 60, status.consume_failed_tps * 60), (3, 2))

    def test_unreadable_message_comes_again_without_the_handler(self):
        consumer = self.start(self.handler, codec=JsonCodec())
        self.deliver(b"0", b"no JSON", b"2")
        self.rest(consumer)
        self.assertEqual((sorted(self.handled), self.given_back()), ([0, 2], [1]))
        self.assertEqual(self.stored(), 3)

    def test_other_threads_take_over_behind_slow_message(self):
        consumer = self.start(self.handler)
        self.deliver(b"0", b"slow", b"2", b"3")
        self.wait_for_slow()
        self.assertEqual(self.handled, [b"0", b"slow"])
        self.check()
        self.clock.run_call()
        self.assertEqual(self.handled, [b"0", b"slow", b"2", b"3"])
        self.assertEqual(len(self.threads), 2)
        self.assertEqual(self.stored(), 1)
        self.go_on.set()
        self.rest(consumer)
        self.assertEqual(self.stored(), 4)

    def test_results_before_slow_last_message_count_at_once(self):
        self.start(self.handler)
        self.deliver(b"0", b"1", b"slow")
        self.wait_for_slow()
        self.check()
        self.assertEqual(self.stored(), 2)

    def test_timeout_counts_from_the_begin_of_the_message(self):
        consumer = self.start(self.handler, consume_timeout=20)
        self.deliver(b"0", b"slow", b"2", b"3")
        self.wait_for_slow()
        self.check()
        self.clock.run_call()
        self.clock.advance(19)
        self.assertEqual(self.given_back(), [])
        for _ in range(2):
            self.clock.advance(20)
        self.assertEqual(self.given_back(), [1])
        self.assertEqual(self.stored(), 4)
        self.go_on.set()
        self.rest(consumer)
        self.assertEqual(self.given_back(), [1])

    def test_stop_waits_for_the_running_message_only(self):
        consumer = self.start(self.handler)
        self.deliver(b"0", b"slow", b"2", b"3")
        self.wait_for_slow()
        stopping = Deferred.fromCoroutine(consumer.stop())
        self.assertNoResult(stopping)
        self.go_on.set()
        self.end_of(stopping)
        self.assertEqual(self.handled, [b"0", b"slow"])
        self.assertEqual(self.cluster.offsets["a:10911", "T"], 2)
        calls = [getattr(call.func, "__name__", "") for call in self.clock.getDelayedCalls()]
        self.assertNotIn("_check_chunks", calls)

    def test_stop_after_grace_stores_the_results_so_far(self):
        consumer = self.start(self.handler, grace=2)
        self.deliver(b"0", b"slow", b"2")
        self.wait_for_slow()
        stopping = Deferred.fromCoroutine(consumer.stop())
        self.clock.advance(2)
        self.successResultOf(stopping)
        self.assertEqual(self.cluster.offsets["a:10911", "T"], 1)
        self.assertIn("1 handlers are cancelled", self.lines[0])
        self.go_on.set()
        self.clock.run_call()
        self.assertEqual((self.handled, self.given_back()), ([b"0", b"slow"], []))

    def test_queue_given_up_stops_the_rest_of_its_chunk(self):
        for order in ("none", "key"):
            self.handled.clear()
            self.go_on.clear()
            consumer = self.start(self.handler, group=f"cg-{order}", order=order)
            self.deliver(b"0", b"slow", b"2", b"3", keys=["a", "b", "c", "a"])
            self.wait_for_slow()
            (queue,) = [queue for queue in consumer.assigned if queue.topic == "T"]
            giving = Deferred.fromCoroutine(consumer.give_up([queue]))
            self.clock.advance(LET_END_SECONDS)
            self.successResultOf(giving)
            self.assertEqual(self.cluster.offsets["a:10911", "T"], 1, order)
            self.go_on.set()
            self.rest(consumer)
            self.assertEqual(self.handled, [b"0", b"slow"])
            self.end_of(consumer.stop())
            self.assertEqual(self.cluster.offsets.pop(("a:10911", "T")), 1)

    def test_queue_given_up_stops_the_rest_of_its_chunk_while_on_revoked_runs(self):
        waiting = Deferred()

        async def on_revoked(queues):
            await waiting

        consumer = self.start(self.handler, on_revoked=on_revoked)
        self.deliver(b"0", b"slow", b"2", b"3")
        self.wait_for_slow()
        (queue,) = [queue for queue in consumer.assigned if queue.topic == "T"]
        giving = Deferred.fromCoroutine(consumer.give_up([queue]))
        self.go_on.set()
        self.rest(consumer)
        self.assertNoResult(giving)
        waiting.callback(None)
        self.successResultOf(giving)
        self.assertEqual(self.handled, [b"0", b"slow"])
        self.assertEqual(self.cluster.offsets["a:10911", "T"], 2)
        self.end_of(consumer.stop())

    def test_stop_consuming_leaves_its_message_and_the_rest(self):
        def handler(message):
            self.handled.append(message.body)
            if message.body == b"1":
                raise StopConsuming

        consumer = self.start(handler)
        self.deliver(b"0", b"1", b"2")
        self.rest(consumer)
        self.assertEqual((self.handled, self.given_back()), ([b"0", b"1"], []))
        self.assertTrue(consumer.suspended)
        self.assertEqual(self.stored(), 1)
        self.end_of(consumer.stop())

    def test_awaitable_result_is_awaited_before_the_message_is_consumed(self):
        waiting = Deferred()

        def handler(message):
            self.handled.append(message.body)
            return waiting if message.body == b"1" else None

        consumer = self.start(handler, concurrency=1)
        self.deliver(b"0", b"1", b"2")
        self.clock.run_call()
        self.assertEqual(self.handled, [b"0", b"1"])
        waiting.callback(None)
        self.rest(consumer)
        self.assertEqual(self.stored(), 3)

    def test_messages_of_one_key_stay_in_order(self):
        consumer = self.start(self.handler, order="key")
        self.deliver(b"a0", b"b0", b"a1", b"a2", keys=["a", "b", "a", "a"])
        self.rest(consumer)
        self.assertEqual(self.handled, [b"a0", b"b0", b"a1", b"a2"])
        self.assertEqual(self.stored(), 4)

    def test_hooks_see_single_messages(self):
        calls = []

        class Hook(ConsumerHook):
            def consume_before(self, context):
                calls.append([message.body for message in context.messages])

        consumer = self.start(self.handler, consume_hooks=[Hook()])
        self.deliver(b"0", b"1")
        self.rest(consumer)
        self.assertEqual(calls, [[b"0"], [b"1"]])
        self.assertEqual(self.stored(), 2)


class ChunksInOrderTests(ConsumingTestCase):
    """Order ``queue``: a chunk has the next messages of its queue."""

    def setUp(self):
        super().setUp()
        self.patch(ChunkSize, "size", MAX_CHUNK)
        self.handled = []
        self.begun = Semaphore(0)
        self.go_on = Event()
        self.addCleanup(self.go_on.set)
        self.answers = {}

    def handler(self, message):
        self.handled.append(message.body)
        answer = self.answers.pop(message.body, None)
        if message.body == b"slow":
            self.begun.release()
            self.go_on.wait(THREAD_LIMIT)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def begin(self, *bodies, **options):
        self.consumer = self.start(self.handler, order="queue", **options)
        self.deliver(*bodies)
        if b"slow" in bodies:
            self.assertTrue(self.begun.acquire(timeout=THREAD_LIMIT))

    def rest(self):
        while self.consumer.threads.running:
            self.clock.run_call()

    def test_one_chunk_has_all_messages_in_order(self):
        bodies = [b"%d" % n for n in range(32)]
        self.begin(*bodies)
        self.clock.run_call()
        self.assertEqual(self.handled, bodies)
        self.assertEqual(self.stored(), 32)
        status = self.consumer.running_info(False).status_table["T"]
        self.assertEqual((status.consume_ok_tps * 60, status.consume_failed_tps), (32, 0))
        self.end_of(self.consumer.stop())

    def test_queue_waits_for_failed_message(self):
        self.answers[b"1"] = KeyError("no such key")
        self.begin(b"0", b"1", b"2")
        self.rest()
        self.assertEqual(self.handled, [b"0", b"1"])
        self.assertEqual(list(self.consumer.offsets_of("T").values()), [1])
        self.clock.advance(1)
        self.rest()
        self.assertEqual(self.handled, [b"0", b"1", b"1", b"2"])
        self.assertEqual((self.stored(), self.given_back()), (3, []))

    def test_rejected_message_is_a_dead_letter_and_the_queue_goes_on(self):
        self.answers[b"1"] = Reject()
        self.begin(b"0", b"1", b"2")
        self.rest()
        self.assertEqual((self.handled, self.given_back()), ([b"0", b"1", b"2"], [1]))
        self.assertEqual(self.stored(), 3)

    def test_unreadable_message_holds_the_queue(self):
        self.begin(b"0", b"no JSON", b"2", codec=JsonCodec(), max_reconsume_times=0)
        self.rest()
        self.assertEqual((self.handled, self.given_back()), ([0, 2], [1]))
        self.assertEqual(self.stored(), 3)

    def test_messages_before_slow_one_are_committed(self):
        self.begin(b"0", b"1", b"slow", b"3", blocked_after=20)
        for _ in range(3):
            self.clock.advance(0.005)
        self.assertEqual(self.stored(), 2)
        self.assertEqual(self.handled, [b"0", b"1", b"slow"])
        self.clock.pump([10.0] * 3)
        self.assertEqual(len(self.lines), 1, self.lines)
        self.assertIn("blocked by offset 2", self.lines[0])
        self.go_on.set()
        self.rest()
        self.clock.advance(10)
        self.assertEqual(self.handled, [b"0", b"1", b"slow", b"3"])
        self.assertEqual((self.stored(), len(self.lines)), (4, 1))

    def test_message_behind_slow_one_is_not_tried_yet(self):
        self.begin(b"0", b"slow", b"2")
        for _ in range(3):
            self.clock.advance(0.005)
        self.clock.advance(100)
        (assigned,) = [assigned for queue, assigned in self.consumer.assigned.items() if queue.topic == "T"]
        self.assertEqual(assigned.held.blocking(100_000).queue_offset, 1)
        self.go_on.set()
        self.answers[b"2"] = Deferred()
        while len(self.handled) < 3:
            self.clock.run_call()
        self.assertEqual(assigned.held.blocking(int(self.clock.seconds() * 1000)).waited_ms, 0)

    def test_queue_given_up_waits_for_the_running_message_only(self):
        self.begin(b"0", b"slow", b"2")
        (queue,) = [queue for queue in self.consumer.assigned if queue.topic == "T"]
        giving = Deferred.fromCoroutine(self.consumer.give_up([queue]))
        self.assertNoResult(giving)
        self.go_on.set()
        self.end_of(giving)
        self.assertEqual(self.handled, [b"0", b"slow"])
        self.assertEqual(self.cluster.offsets["a:10911", "T"], 2)

    def test_reset_offset_is_not_moved_by_late_results(self):
        self.begin(b"0", b"slow", b"2")
        (queue,) = [queue for queue in self.consumer.assigned if queue.topic == "T"]
        self.consumer.reset_offsets("T", {queue: 7})
        self.go_on.set()
        self.rest()
        self.assertEqual(self.handled, [b"0", b"slow"])
        self.assertEqual(self.stored(), 7)

    def test_stop_waits_for_the_running_message_only(self):
        self.begin(b"0", b"slow", b"2")
        stopping = Deferred.fromCoroutine(self.consumer.stop())
        self.assertNoResult(stopping)
        self.go_on.set()
        self.end_of(stopping)
        self.assertEqual(self.handled, [b"0", b"slow"])
        self.assertEqual(self.cluster.offsets["a:10911", "T"], 2)
        calls = [getattr(call.func, "__name__", "") for call in self.clock.getDelayedCalls()]
        self.assertNotIn("_check", calls)

    def test_stop_after_grace_stores_the_results_so_far(self):
        self.begin(b"0", b"slow", b"2", grace=2)
        stopping = Deferred.fromCoroutine(self.consumer.stop())
        self.clock.advance(2)
        self.successResultOf(stopping)
        self.assertEqual(self.cluster.offsets["a:10911", "T"], 1)
        self.go_on.set()
        self.clock.run_call()
        self.assertEqual(self.handled, [b"0", b"slow"])

    def test_stop_consuming_leaves_its_message_and_the_rest(self):
        self.answers[b"1"] = StopConsuming()
        self.begin(b"0", b"1", b"2")
        self.rest()
        self.assertEqual(self.handled, [b"0", b"1"])
        self.assertTrue(self.consumer.suspended)
        self.assertEqual(self.stored(), 1)
        self.end_of(self.consumer.stop())

    def test_lost_lock_is_asked_for_before_the_next_chunk(self):
        self.begin(b"0", b"slow", b"2")
        (assigned,) = [assigned for queue, assigned in self.consumer.assigned.items() if queue.topic == "T"]
        for _ in range(3):
            self.clock.advance(0.005)
        self.cluster.refusals[41, "a:10911"] = 1
        assigned.held.locked = False
        self.go_on.set()
        self.rest()
        self.assertEqual(self.handled, [b"0", b"slow"])
        del self.cluster.refusals[41, "a:10911"]
        self.clock.advance(3)
        self.rest()
        self.assertEqual(self.handled, [b"0", b"slow", b"2"])
