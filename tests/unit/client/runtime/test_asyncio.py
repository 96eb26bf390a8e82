"""The reactor on an asyncio loop, and awaiting across the border."""

import asyncio
import gc
import os
import threading
import warnings

from twisted.internet.asyncioreactor import AsyncioSelectorReactor
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.endpoints import TCP4ServerEndpoint
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.threads import deferToThreadPool
from twisted.trial.unittest import SynchronousTestCase

from rocketd.client.runtime import asyncio_host
from rocketd.client.runtime.asyncio_host import AsyncioHost, answer_to_future, received, to_deferred, to_future
from rocketd.remoting.calling.host_endpoint import HostEndpoint
from tests.support.lacking import need_package
from tests.support.left_open import LeftOpen

SECONDS = 60.0


class Echo(Protocol):
    def dataReceived(self, data):
        self.transport.write(data)


class Caller(Protocol):
    """Sends a text; ``answered`` fires when as much came back, ``lost`` when the connection is closed."""

    def __init__(self, text):
        self.text = text
        self.seen = b""
        self.answered = Deferred()
        self.lost = Deferred()

    def connectionMade(self):
        self.transport.write(self.text)

    def dataReceived(self, data):
        self.seen += data
        if len(self.seen) == len(self.text):
            self.answered.callback(self.seen)

    def connectionLost(self, reason=None):
        self.lost.callback(None)


async def echo_over(reactor, name="localhost"):
    """Send 1 MB to a server on the same reactor and back, after a look-up of a host name in the pool."""
    port = await TCP4ServerEndpoint(reactor, 0, interface="127.0.0.1").listen(Factory.forProtocol(Echo))
    caller = Caller(os.urandom(1 << 20))
    endpoint = HostEndpoint(reactor, name, port.getHost().port, SECONDS)
    await endpoint.connect(Factory.forProtocol(lambda: caller))
    answer = await caller.answered
    caller.transport.loseConnection()
    await caller.lost
    await port.stopListening()
    return answer == caller.text


class LoopCase(SynchronousTestCase):
    make_loop = staticmethod(asyncio.new_event_loop)

    def run_in_loop(self, function):
        """Run in a new loop in debug mode; resources left open and logged complaints fail the test."""

        async def limited():
            async with asyncio.timeout(SECONDS):
                return await function()

        left = LeftOpen(young=True)
        complaints = []
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            with asyncio.Runner(debug=True, loop_factory=self.make_loop) as runner:
                loop = runner.get_loop()
                loop.slow_callback_duration = SECONDS
                loop.set_exception_handler(lambda _, context: complaints.append(context))
                result = runner.run(limited())
            del loop, runner
            gc.collect()
        self.assertEqual(complaints, [])
        self.assertEqual([str(warning.message) for warning in warned], [])
        self.assertEqual(left.found(), [])
        return result


class HostTests(LoopCase):
    def test_tcp_and_host_names_work_and_nothing_is_left(self):
        async def main():
            host = AsyncioHost.acquire()
            try:
                return await to_future(echo_over(host.reactor))
            finally:
                await host.release()

        self.assertTrue(self.run_in_loop(main))

    def test_users_share_one_and_the_next_gets_a_new_one(self):
        async def main():
            first, second = AsyncioHost.acquire(), AsyncioHost.acquire()
            self.assertIs(first, second)
            await first.release()
            self.assertTrue(second.reactor.running)
            await second.release()
            self.assertFalse(second.reactor.running)
            third = AsyncioHost.acquire()
            self.assertIsNot(third, first)
            self.assertTrue(await to_future(echo_over(third.reactor)))
            await third.release()

        self.run_in_loop(main)
        self.assertEqual(len(asyncio_host._hosts), 0)

    def test_release_closes_connections_and_drops_timers(self):
        async def main():
            host = AsyncioHost.acquire()
            fired = []
            host.reactor.callLater(0, fired.append, "timer")
            later = host.reactor.callLater(3600, fired.append, "late timer")
            endpoint = TCP4ServerEndpoint(host.reactor, 0, interface="127.0.0.1")
            port = await to_future(endpoint.listen(Factory.forProtocol(Echo)))
            caller = Caller(b"x")
            await to_future(
                HostEndpoint(host.reactor, "localhost", port.getHost().port, SECONDS).connect(
                    Factory.forProtocol(lambda: caller)
                )
            )
            await to_future(caller.answered)
            await host.release()
            self.assertTrue(caller.lost.called)
            self.assertFalse(later.active())
            self.assertEqual(host.reactor.getReaders() + host.reactor.getWriters(), [])

        self.run_in_loop(main)

    def test_thread_pool(self):
        async def main():
            host = AsyncioHost.acquire()
            pool = host.reactor.getThreadPool()
            thread = await to_future(deferToThreadPool(host.reactor, pool, threading.current_thread))
            self.assertTrue(thread.daemon)
            self.assertIsNot(thread, threading.current_thread())
            await host.release()
            self.assertFalse(thread.is_alive())

        self.run_in_loop(main)

    def test_call_from_a_thread_after_the_loop_closed_does_nothing(self):
        async def main():
            host = AsyncioHost.acquire()
            await host.release()
            return host.reactor

        loop = self.make_loop()
        reactor = loop.run_until_complete(main())
        loop.close()
        reactor.callFromThread(self.fail)

    def test_thousand_hosts_leave_nothing_open(self):
        async def main():
            left = LeftOpen()
            for _ in range(1000):
                await AsyncioHost.acquire().release()
            self.assertEqual(left.found(), [])

        self.run_in_loop(main)

    def test_without_a_loop(self):
        self.assertRaises(RuntimeError, AsyncioHost.acquire)

    def test_installed_reactor_on_the_same_loop_is_used_and_left_running(self):
        loop = asyncio.new_event_loop()
        installed = AsyncioSelectorReactor(loop)
        self.addCleanup(loop.close)
        self.patch(asyncio_host.sys, "modules", {**asyncio_host.sys.modules, "twisted.internet.reactor": installed})
        seen = []

        async def main():
            host = AsyncioHost.acquire()
            seen.append(host.reactor)
            await host.release()
            seen.append(installed.running)

        installed.callLater(0, lambda: to_deferred(main()).addBoth(lambda _: loop.stop()))
        installed.run(installSignalHandlers=False)
        self.assertEqual(seen, [installed, True])
        waker = installed.waker
        installed.removeReader(waker)
        waker.connectionLost(None)


class UvloopTests(HostTests):
    def setUp(self):
        need_package("uvloop")
        import uvloop

        self.make_loop = uvloop.new_event_loop
        self.make_loop().close()  # libuv's first loop in a process makes a pipe that stays


class BorderTests(LoopCase):
    def test_results_and_errors(self):
        async def fails():
            await succeed(None)
            raise KeyError("one")

        async def stops():
            raise StopAsyncIteration

        async def main():
            self.assertEqual(await to_future(succeed(3)), 3)
            later = Deferred()
            asyncio.get_running_loop().call_soon(later.callback, 4)
            self.assertEqual(await to_future(later), 4)
            with self.assertRaises(KeyError) as caught:
                await to_future(fails())
            names = []
            trace = caught.exception.__traceback__
            while trace is not None:
                names.append(trace.tb_frame.f_code.co_name)
                trace = trace.tb_next
            self.assertIn("fails", names)
            with self.assertRaises(StopAsyncIteration):
                await to_future(stops())

        self.run_in_loop(main)

    def test_cancelled_task_cancels_the_deferred_and_waits_for_its_end(self):
        async def main():
            events = []
            cleaning = Deferred()

            async def engine():
                try:
                    await Deferred(lambda _: events.append("cancelled"))
                finally:
                    await cleaning
                    events.append("cleaned")

            task = asyncio.ensure_future(to_future(engine()))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.sleep(0)
            self.assertEqual(events, ["cancelled"])
            self.assertFalse(task.done())
            cleaning.callback(None)
            with self.assertRaises(asyncio.CancelledError):
                await task
            self.assertEqual(events, ["cancelled", "cleaned"])
            with self.assertRaises(TimeoutError):
                async with asyncio.timeout(0):
                    await to_future(Deferred())

        self.run_in_loop(main)

    def test_cancelled_task_keeps_the_message_of_its_cancellation(self):
        """AnyIO tells its own cancellations by their message."""

        async def wait_for(awaitable):
            await awaitable

        async def main():
            for awaitable in (to_future(Deferred()), answer_to_future(Deferred())):
                task = asyncio.ensure_future(wait_for(awaitable))
                await asyncio.sleep(0)
                task.cancel("by a scope")
                with self.assertRaises(asyncio.CancelledError) as caught:
                    await task
                self.assertEqual(caught.exception.args, ("by a scope",))

        self.run_in_loop(main)

    def test_answer_to_future_has_results_errors_and_cancellation(self):
        async def main():
            loop = asyncio.get_running_loop()
            self.assertEqual(await answer_to_future(succeed(3)), 3)
            later, failing = Deferred(), Deferred()
            loop.call_soon(later.callback, 4)
            loop.call_soon(failing.errback, KeyError("one"))
            self.assertEqual(await answer_to_future(later), 4)
            with self.assertRaises(KeyError):
                await answer_to_future(failing)
            events = []
            answer = Deferred(lambda _: events.append("cancelled"))
            task = asyncio.ensure_future(self.waits(answer))
            await asyncio.sleep(0)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            self.assertEqual(events, ["cancelled"])
            cancelled = Deferred()
            loop.call_soon(cancelled.cancel)
            with self.assertRaises(asyncio.CancelledError):
                await answer_to_future(cancelled)

        self.run_in_loop(main)

    def test_result_of_a_task_cancelled_at_the_same_time_is_put_back(self):
        async def main():
            for cancelled, put_back in ((True, [1]), (False, [])):
                work, unwanted = Deferred(), []
                task = asyncio.ensure_future(received(self.result(work), unwanted.append))
                await asyncio.sleep(0)
                work.callback(1)
                if cancelled:
                    task.cancel()
                await asyncio.wait([task])
                self.assertEqual((task.cancelled(), unwanted), (cancelled, put_back))

        self.run_in_loop(main)

    def test_work_cancelled_before_its_result_puts_nothing_back(self):
        async def main():
            unwanted = []
            task = asyncio.ensure_future(received(self.result(Deferred()), unwanted.append))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            self.assertEqual((task.cancelled(), unwanted), (True, []))

        self.run_in_loop(main)

    async def result(self, work):
        return await work

    async def waits(self, answer):
        return await answer_to_future(answer)

    def test_cancelled_deferred_cancels_the_waiting_task(self):
        async def main():
            work = Deferred()
            task = asyncio.ensure_future(to_future(work))
            await asyncio.sleep(0)
            work.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task

        self.run_in_loop(main)

    def test_handlers_of_asyncio_are_awaited_from_deferreds(self):
        async def handler(number):
            await asyncio.sleep(0)
            if number < 0:
                raise ValueError(number)
            return number + 1

        async def engine():
            return await to_deferred(handler(1))

        async def main():
            self.assertEqual(await to_future(engine()), 2)
            with self.assertRaises(ValueError):
                await to_future(to_deferred(handler(-1)))

        self.run_in_loop(main)

    def test_cancelled_deferred_cancels_the_handler_and_waits_for_its_end(self):
        async def main():
            events = []
            begun = asyncio.Event()

            async def handler():
                begun.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    await asyncio.sleep(0)
                    events.append("cleaned")

            deferred = to_deferred(handler())
            ended = asyncio.Event()
            deferred.addBoth(lambda result: events.append(result.type) or ended.set())
            await begun.wait()
            deferred.cancel()
            self.assertEqual(events, [])
            await ended.wait()
            self.assertEqual(events, ["cleaned", CancelledError])

        self.run_in_loop(main)
