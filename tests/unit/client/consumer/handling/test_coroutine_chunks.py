"""Chunks of messages for coroutine functions: one task for handlers that do not wait, tasks of their own for others."""

import asyncio
from contextvars import ContextVar

from twisted.internet.defer import CancelledError, Deferred
from twisted.trial.unittest import SynchronousTestCase

from rocketd.client.consumer.handling.chunks import CHUNK_SECONDS, MAX_CHUNK, ChunkSize
from rocketd.client.consumer.handling.coroutine_chunks import CoroutineChunk
from rocketd.client.consumer.pulling.assigned_queue import PulledMessage
from rocketd.client.consumer.retries.handler_results import Reject, Retry
from tests.support.consuming import ConsumingTestCase

seen: ContextVar[int] = ContextVar("seen", default=-1)


class LoopTests(SynchronousTestCase):
    """Chunks in a task of asyncio."""

    def work_off(self, handle, count=3):
        """Return the values of the chunk's results, and what was taken back when a handler waited."""
        self.time_ms = 0.0
        self.pulled = [PulledMessage.__new__(PulledMessage) for _ in range(count)]
        self.chunk = CoroutineChunk(handle, list(enumerate(self.pulled)), lambda: self.time_ms)
        self.taken = []

        def on_wait():
            self.taken.append(self.chunk.take_back())

        asyncio.run(self.chunk.work_off_in_loop(on_wait))
        return [value for _, value, _ in self.chunk.results()]

    def test_all_messages_have_the_same_task(self):
        tasks = set()

        async def handle(n):
            tasks.add(asyncio.current_task())

        self.assertEqual(self.work_off(handle), [None] * 3)
        self.assertEqual((len(tasks), self.taken), (1, []))

    def test_each_message_has_a_context_of_its_own(self):
        before, after = [], []

        async def handle(n):
            before.append(seen.get())
            seen.set(n)
            if n == 2:
                await asyncio.sleep(0)
            after.append(seen.get())

        self.work_off(handle)
        self.assertEqual((before, after), ([-1] * 3, [0, 1, 2]))

    def test_handler_that_waits_is_finished_and_the_rest_taken_back(self):
        async def handle(n):
            for _ in range(n):
                await asyncio.sleep(0)
            return "ignored"

        self.assertEqual(self.work_off(handle), [None, None])
        self.assertEqual(self.taken, [self.pulled[2:]])

    def test_timeouts_and_errors_reach_the_handler_that_waits(self):
        told = []

        async def handle(n):
            try:
                async with asyncio.timeout(0):
                    await asyncio.Event().wait()
            except TimeoutError:
                told.append(n)
            failed = asyncio.get_running_loop().create_future()
            failed.set_exception(KeyError("k"))
            await failed

        (failure,) = self.work_off(handle)
        self.assertEqual((told, failure.type), ([0], KeyError))

    def test_cancelled_handler_fails_with_cancelled_error(self):
        async def handle(n):
            asyncio.current_task().cancel()
            await asyncio.sleep(0)

        (failure,) = self.work_off(handle)
        self.assertIs(failure.type, CancelledError)

    def test_task_that_waited_or_was_cancelled_is_not_used_for_another_message(self):
        async def wait(n):
            await asyncio.sleep(0)

        self.pulled = [PulledMessage.__new__(PulledMessage) for _ in range(2)]
        chunk = CoroutineChunk(wait, list(enumerate(self.pulled)), lambda: 0.0)
        asyncio.run(chunk.work_off_in_loop())
        self.assertEqual(chunk.take_back(), self.pulled[1:])

        async def cancel(n):
            asyncio.current_task().cancel()

        chunk = CoroutineChunk(cancel, list(enumerate(self.pulled)), lambda: 0.0)

        async def main():
            task = asyncio.create_task(chunk.work_off_in_loop())
            await asyncio.wait([task])
            return task.cancelled()

        self.assertTrue(asyncio.run(main()))
        self.assertEqual([value for _, value, _ in chunk.results()], [None])
        self.assertEqual(chunk.take_back(), self.pulled[1:])

    def test_result_with_consequences_is_the_last(self):
        for result in (Retry(), Reject()):

            async def handle(n, result=result):
                return result if n == 1 else None

            self.assertEqual(self.work_off(handle), [None, result])
            self.assertTrue(self.chunk.has_more)

    def test_returned_awaitable_means_success(self):
        async def handle(n):
            return asyncio.get_running_loop().create_future()

        self.assertEqual(self.work_off(handle), [None] * 3)

    def test_callable_that_returns_another_awaitable_is_awaited(self):
        told = []

        def handle(n):
            return asyncio.ensure_future(asyncio.sleep(0)).add_done_callback(told.append) or asyncio.sleep(0)

        self.assertEqual(self.work_off(handle, 1), [None])
        self.assertEqual(len(told), 1)

    def test_interrupt_ends_the_loop_after_its_result(self):
        async def handle(n):
            raise KeyboardInterrupt

        with self.assertRaises(KeyboardInterrupt):
            self.work_off(handle)
        ((_, failure, _),) = self.chunk.results()
        self.assertIs(failure.type, KeyboardInterrupt)

    def test_chunk_ends_after_its_time(self):
        async def handle(n):
            self.time_ms += 1000 * CHUNK_SECONDS * 0.6

        self.assertEqual(self.work_off(handle), [None, None])
        self.assertTrue(self.chunk.has_more)


class CoroutineConsumptionTests(ConsumingTestCase):
    """A consumer whose handler is a coroutine function that has been fast so far."""

    def setUp(self):
        super().setUp()
        self.patch(ChunkSize, "size", MAX_CHUNK)
        self.handled = []
        self.gate = Deferred()

    async def handler(self, message):
        self.handled.append(message.body)
        if message.body == b"slow":
            await self.gate

    def test_other_messages_do_not_wait_for_one_that_waits(self):
        consumer = self.start(self.handler)
        self.deliver(b"0", b"slow", b"2", b"3")
        self.assertEqual(self.handled, [b"0", b"slow", b"2", b"3"])
        self.assertEqual(self.stored(), 1)
        self.gate.callback(None)
        self.assertEqual(self.stored(), 4)
        self.end_of(consumer.stop())

    def test_timeout_counts_from_the_begin_of_the_message(self):
        self.start(self.handler, consume_timeout=20)
        self.deliver(b"0", b"slow", b"2")
        self.clock.advance(19)
        self.assertEqual(self.given_back(), [])
        for _ in range(2):
            self.clock.advance(20)
        self.assertEqual(self.given_back(), [1])
        self.assertEqual(self.stored(), 3)

    def test_failed_message_alone_comes_again(self):
        async def handler(message):
            self.handled.append(message.body)
            if message.body == b"1":
                raise KeyError("no such key")

        self.start(handler)
        self.deliver(b"0", b"1", b"2")
        self.assertEqual((self.handled, self.given_back()), ([b"0", b"1", b"2"], [1]))
        self.assertEqual(self.stored(), 3)

    def test_stop_cancels_the_handler_that_waits_and_leaves_its_message(self):
        consumer = self.start(self.handler, grace=2)
        self.deliver(b"0", b"slow", b"2")
        stopping = Deferred.fromCoroutine(consumer.stop())
        self.clock.advance(2)
        self.successResultOf(stopping)
        self.assertEqual((self.cluster.offsets["a:10911", "T"], self.given_back()), (1, []))

    def test_order_of_a_queue_waits_for_each_message(self):
        consumer = self.start(self.handler, order="queue")
        self.deliver(b"0", b"slow", b"2")
        self.assertEqual(self.handled, [b"0", b"slow"])
        self.clock.advance(1)
        self.assertEqual(self.stored(), 1)
        self.gate.callback(None)
        self.assertEqual((self.handled, self.stored()), ([b"0", b"slow", b"2"], 3))
        self.end_of(consumer.stop())
