"""Pools: bounds, pausing and resuming of connections, order, failing handlers, start and stop."""

from threading import Event, current_thread

from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.logger import Logger
from twisted.trial.unittest import SynchronousTestCase

from rocketd.remoting.limits.limit_log import LimitLog
from rocketd.remoting.serving.connection import Connection
from rocketd.remoting.serving.fair_queue import each_connection, each_host
from rocketd.remoting.serving.pools import DRAIN_LIMIT, Job, Pool
from rocketd.remoting.wire.command import ONEWAY_FLAG, RemotingCommand

WAIT_SECONDS = 60


class FakeConnection:
    """Records its pause reasons."""

    address = "10.1.2.3:4"

    def __init__(self):
        self.pauses = set()

    def pause_reading(self, reason):
        self.pauses.add(reason)

    def resume_reading(self, reason):
        self.pauses.discard(reason)


class Recorder:
    """Handles jobs by noting them; ``gate`` holds it up, ``entered`` tells that it has begun."""

    def __init__(self, gate=None):
        self.groups = []
        self.threads = set()
        self.entered = Event()
        self.gate = gate
        self.error = None

    @property
    def bodies(self):
        return [frame[2] for group in self.groups for job in group for frame in job.frames]

    def process_jobs(self, jobs):
        self.entered.set()
        if self.gate is not None:
            self.gate.wait(WAIT_SECONDS)
        self.groups.append(list(jobs))
        self.threads.add(current_thread().name)
        if self.error is not None:
            raise self.error


def frames(count=1, size=0, body=b""):
    return [(0, b"h" * size, body) for _ in range(count)]


class PoolTestCase(SynchronousTestCase):
    def make_pool(self, **limits):
        self.reactor_calls = []
        pool = Pool("send", call_from_thread=self.call_from_thread, **limits)
        pool.max_bytes_per_connection = pool.max_bytes
        self.addCleanup(pool.stop)
        return pool

    def call_from_thread(self, function, *arguments):
        self.reactor_calls.append((function, arguments))

    def run_reactor_calls(self):
        while self.reactor_calls:
            function, arguments = self.reactor_calls.pop(0)
            function(*arguments)

    def submit(self, pool, handler, job_frames, connection=None):
        return pool.submit(Job(handler, connection or FakeConnection(), job_frames, 0))


class BoundTests(PoolTestCase):
    """Without threads, so that nothing leaves the queue."""

    def test_jobs_beyond_request_limit_are_refused(self):
        pool = self.make_pool(max_requests=10)
        self.assertTrue(self.submit(pool, Recorder(), frames(7)))
        self.assertFalse(self.submit(pool, Recorder(), frames(4)))
        self.assertTrue(self.submit(pool, Recorder(), frames(3)))
        self.assertFalse(self.submit(pool, Recorder(), frames(1)))
        self.assertEqual(pool.queued_requests, 10)

    def test_jobs_beyond_byte_limit_are_refused(self):
        pool = self.make_pool(max_bytes=1000)
        self.assertTrue(self.submit(pool, Recorder(), frames(2, size=300)))
        self.assertFalse(self.submit(pool, Recorder(), frames(1, size=401)))
        self.assertTrue(self.submit(pool, Recorder(), frames(1, size=400)))
        self.assertEqual(pool.queued_bytes, 1000)

    def test_byte_limit_covers_header_and_body(self):
        pool = self.make_pool()
        self.submit(pool, Recorder(), [(0, b"12345", b"678"), (1, b"9", b"")])
        self.assertEqual((pool.queued_requests, pool.queued_bytes), (2, 9))

    def test_oversized_request_is_taken_by_empty_pool(self):
        pool = self.make_pool(max_bytes=100)
        self.assertTrue(self.submit(pool, Recorder(), frames(1, size=101)))
        self.assertFalse(self.submit(pool, Recorder(), frames(1)))

    def test_head_wait_is_that_of_oldest_job(self):
        pool = self.make_pool()
        self.assertEqual(pool.head_wait_ms(5000), 0)
        for received_ms in (1000, 1200):
            pool.submit(Job(Recorder(), FakeConnection(), frames(2), received_ms))
        pool.call(lambda: None)
        self.assertEqual(pool.head_wait_ms(5000), 4000)
        self.assertEqual(pool.head_wait_ms(900), 0)
        pool.start()
        pool.stop()
        self.assertEqual(pool.head_wait_ms(5000), 0)

    def test_refused_job_leaves_no_trace(self):
        pool = self.make_pool(max_requests=1)
        connection = FakeConnection()
        self.assertFalse(self.submit(pool, Recorder(), frames(2, size=5), connection))
        self.assertEqual((pool.queued_requests, pool.queued_bytes, connection.pauses), (0, 0, set()))


class ShareTests(PoolTestCase):
    """How much of a pool one connection may fill."""

    def test_connection_over_request_share_is_paused_until_half_done(self):
        pool = self.make_pool(max_requests=1000)
        pool.max_per_connection = 10
        handler, greedy, other = Recorder(), FakeConnection(), FakeConnection()
        self.submit(pool, handler, frames(10), greedy)
        self.assertEqual(greedy.pauses, set())
        self.submit(pool, handler, frames(1), greedy)
        self.submit(pool, handler, frames(10), other)
        self.assertEqual((len(greedy.pauses), other.pauses), (1, set()))
        pool.start()
        pool.stop()
        self.run_reactor_calls()
        self.assertEqual((greedy.pauses, pool._shares), (set(), {}))

    def test_connection_over_byte_share_is_paused_and_counted(self):
        limits = LimitLog(Logger())
        self.reactor_calls = []
        pool = Pool("p", call_from_thread=self.call_from_thread, max_bytes=8000, limits=limits)
        greedy, handler = FakeConnection(), Recorder()
        self.submit(pool, handler, frames(size=1000), greedy)
        self.assertEqual(greedy.pauses, set())
        for _ in range(2):
            self.submit(pool, handler, frames(size=1), greedy)
        self.assertEqual((len(greedy.pauses), limits.counts), (1, {"connections paused for unanswered requests": 1}))
        pool.start()
        pool.stop()
        self.run_reactor_calls()
        self.assertEqual((greedy.pauses, pool._shares), (set(), {}))


class TurnTests(PoolTestCase):
    def bodies(self, turns, *jobs):
        """Return the bodies of jobs, given as (connection, body), in the order in which a pool handles them."""
        pool = self.make_pool(turns=turns)
        handler = Recorder()
        for connection, body in jobs:
            self.submit(pool, handler, frames(body=body), connection)
        pool.start()
        pool.stop()
        return b"".join(handler.bodies)

    def test_connections_take_turns_and_each_keeps_its_order(self):
        greedy, other, third = FakeConnection(), FakeConnection(), FakeConnection()
        jobs = [(greedy, b"%d" % number) for number in range(6)] + [(other, b"a"), (third, b"x"), (other, b"b")]
        self.assertEqual(self.bodies(each_connection, *jobs), b"0ax1b2345")
        self.assertEqual(self.bodies(None, *jobs), b"012345axb")

    def test_connections_of_host_share_a_turn(self):
        first, second, other = FakeConnection(), FakeConnection(), FakeConnection()
        first.host, second.host, other.host = b"\1\1\1\1\0\0\0\1", b"\1\1\1\1\0\0\0\2", b"\2\1\1\1\0\0\0\1"
        jobs = [(first, b"0"), (first, b"1"), (second, b"2"), (other, b"a")]
        self.assertEqual(self.bodies(each_host, *jobs), b"0a12")

    def test_new_connection_waits_for_few_jobs_of_others(self):
        pool = self.make_pool(turns=each_connection)
        handler, greedy = Recorder(), FakeConnection()
        for _ in range(9):
            self.submit(pool, handler, frames(), greedy)
        pool.start()
        pool.stop()
        self.assertEqual([len(group) for group in handler.groups], [4, 4, 1])

    def test_call_for_connection_runs_after_its_jobs(self):
        pool = self.make_pool(turns=each_connection)
        handler, connection, seen = Recorder(), FakeConnection(), []
        for number in range(3):
            self.submit(pool, handler, frames(body=b"%d" % number), connection)
        pool.call(lambda: seen.append(list(handler.bodies)), connection)
        pool.start()
        pool.stop()
        self.assertEqual(seen, [[b"0", b"1", b"2"]])


class PauseTests(PoolTestCase):
    def test_pauses_above_half_of_the_requests(self):
        pool = self.make_pool(max_requests=8)
        first, second = FakeConnection(), FakeConnection()
        self.submit(pool, Recorder(), frames(4), first)
        self.assertEqual(first.pauses, set())
        self.submit(pool, Recorder(), frames(1), second)
        self.assertEqual((first.pauses, second.pauses), (set(), {pool}))

    def test_pauses_above_half_of_the_bytes(self):
        pool = self.make_pool(max_bytes=100)
        connection = FakeConnection()
        self.submit(pool, Recorder(), frames(1, size=50), connection)
        self.assertEqual(connection.pauses, set())
        self.submit(pool, Recorder(), frames(1, size=1), connection)
        self.assertEqual(connection.pauses, {pool})

    def check_resuming(self, limits, first, then):
        """Queue ``first``, above half of the limits, and ``then``; only when both are done reading goes on."""
        pool = self.make_pool(**limits)
        gates = [Event(), Event()]
        handlers = [Recorder(gate) for gate in gates]
        connection = FakeConnection()
        pool.start()
        self.submit(pool, handlers[0], first)
        self.assertTrue(handlers[0].entered.wait(WAIT_SECONDS))
        self.submit(pool, handlers[1], then, connection)
        self.assertEqual(connection.pauses, {pool})
        gates[0].set()
        self.assertTrue(handlers[1].entered.wait(WAIT_SECONDS))
        self.run_reactor_calls()
        self.assertEqual(connection.pauses, {pool}, "more than a quarter is still there")
        gates[1].set()
        pool.stop()
        self.run_reactor_calls()
        self.assertEqual(connection.pauses, set())
        self.assertEqual((pool.queued_requests, pool.queued_bytes), (0, 0))

    def test_resumes_at_a_quarter_of_the_requests(self):
        self.check_resuming({"max_requests": 8}, frames(2), frames(3))

    def test_resumes_at_a_quarter_of_the_bytes(self):
        self.check_resuming({"max_bytes": 80}, frames(1, size=20), frames(1, size=21))

    def test_resumes_at_exactly_a_quarter(self):
        pool = self.make_pool(max_requests=8)
        gate = Event()
        slow, quick = Recorder(gate), Recorder()
        connection = FakeConnection()
        pool.start()
        self.submit(pool, quick, frames(5), connection)
        pool.call(gate.wait)
        self.submit(pool, slow, frames(2))
        gate.set()
        pool.stop()
        self.run_reactor_calls()
        self.assertEqual(connection.pauses, set())

    def test_pause_of_already_empty_pool_resumes(self):
        """The thread may finish between the hand-off and the pause, with no connection to resume."""
        pool = self.make_pool(max_requests=2)
        connection = FakeConnection()
        handler = Recorder()

        class EagerQueue:
            def put(self, job):
                pool.handle([job])

        pool._queue = EagerQueue()
        self.submit(pool, handler, frames(2), connection)
        self.assertEqual((len(handler.bodies), self.reactor_calls), (2, []))
        self.assertEqual(connection.pauses, set())


class HoldTests(PoolTestCase):
    def test_held_job_pauses_connection_until_pool_has_room(self):
        pool, handler = self.make_pool(max_requests=1, max_bytes=1000), Recorder()
        self.submit(pool, handler, frames(1, body=b"first"))

        def dispatch(connection, arrived):
            self.assertTrue(pool.hold(Job(handler, connection, arrived, 0)))

        connection = Connection(Clock(), dispatch, lambda _: None)
        transport = StringTransport()
        connection.makeConnection(transport)
        connection.dataReceived(RemotingCommand(10, body=b"held", flag=ONEWAY_FLAG).encode())
        self.assertEqual((transport.producerState, pool.held_bytes > 0), ("paused", True))
        pool.start()
        pool.stop()
        self.run_reactor_calls()
        self.assertEqual(handler.bodies, [b"first", b"held"])
        self.assertEqual(transport.producerState, "producing")


class RunTests(PoolTestCase):
    def test_jobs_keep_order_and_are_grouped_by_handler(self):
        pool = self.make_pool()
        one, other = Recorder(), Recorder()
        order = []
        for number, handler in enumerate((one, one, other, one)):
            self.submit(pool, handler, frames(1, body=b"%d" % number))
        pool.call(lambda: order.append(list(one.bodies)))
        self.submit(pool, one, frames(1, body=b"4"))
        pool.start()
        pool.stop()
        self.assertEqual(one.bodies, [b"0", b"1", b"3", b"4"])
        self.assertEqual([len(group) for group in one.groups], [2, 1, 1])
        self.assertEqual(other.bodies, [b"2"])
        self.assertEqual(order, [[b"0", b"1", b"3"]])

    def test_jobs_are_drained_up_to_limit(self):
        pool = self.make_pool()
        handler = Recorder()
        for _ in range(DRAIN_LIMIT + 1):
            self.submit(pool, handler, frames(1))
        pool.start()
        pool.stop()
        self.assertEqual([len(group) for group in handler.groups], [DRAIN_LIMIT, 1])

    def test_failing_handler_is_logged_once_and_others_run(self):
        for error in (RuntimeError("broken"), SystemExit(3)):
            with self.subTest(error=error):
                pool = self.make_pool()
                bad, good = Recorder(), Recorder()
                bad.error = error
                self.submit(pool, bad, frames(2, size=5))
                self.submit(pool, good, frames(1))
                pool.start()
                pool.call(lambda good=good: good.process_jobs([]))
                pool.stop()
                self.assertEqual(len(good.groups), 2)
                self.assertEqual((pool.queued_requests, pool.queued_bytes), (0, 0))
                self.assertEqual(len(self.flushLoggedErrors(type(error))), 1)

    def test_failing_call_is_logged_and_next_runs(self):
        pool = self.make_pool()
        done = []
        pool.call(lambda: 1 // 0)
        pool.call(lambda: done.append(1))
        pool.start()
        pool.stop()
        self.assertEqual(done, [1])
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_after_jobs_runs_after_each_round_and_may_fail(self):
        pool = self.make_pool()
        handler = Recorder()
        rounds = []

        def after(is_empty):
            rounds.append((len(handler.bodies), is_empty))
            raise RuntimeError("broken")

        pool.after_jobs = after
        for _ in range(DRAIN_LIMIT + 1):
            self.submit(pool, handler, frames(1))
        pool.start()
        pool.stop()
        self.assertEqual(rounds, [(DRAIN_LIMIT, False), (DRAIN_LIMIT + 1, True)])
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 2)

    def test_work_left_by_after_jobs_is_done_before_the_end(self):
        pool = self.make_pool()
        handler = Recorder(gate := Event())
        calls = []

        def after(idle):
            calls.append(idle)
            return not idle

        pool.after_jobs = after
        pool.start()
        self.submit(pool, handler, frames(1))
        self.assertTrue(handler.entered.wait(WAIT_SECONDS))
        pool._queue.put(None)  # the queue is not empty after the round
        gate.set()
        pool.stop()
        self.assertEqual(calls, [False, True])

    def test_threads_run_in_parallel(self):
        pool = self.make_pool(threads=2)
        gate = Event()
        handlers = [Recorder(gate), Recorder(gate)]
        pool.start()
        for handler in handlers:
            self.submit(pool, handler, frames(1))
            self.assertTrue(handler.entered.wait(WAIT_SECONDS))
        gate.set()
        pool.stop()
        self.assertEqual(len(handlers[0].threads | handlers[1].threads), 2)


class TakeWaitingTests(PoolTestCase):
    """Jobs that the reactor's thread takes back while those of the pool are held up."""

    def test_taken_jobs_are_never_handled(self):
        pool = self.make_pool(max_requests=10)
        gate = Event()
        recorder = Recorder(gate)
        pool.start()
        pool.submit(Job(recorder, FakeConnection(), frames(body=b"first"), 100))
        self.assertTrue(recorder.entered.wait(WAIT_SECONDS))
        for received_ms in (200, 300, 400):
            pool.submit(Job(recorder, FakeConnection(), frames(2, body=b"%d" % received_ms), received_ms))
        self.assertEqual(pool.head_wait_ms(1000), 800)
        taken = pool.take_waiting(350)
        self.assertEqual([job.received_ms for job in taken], [200, 300])
        self.assertEqual(pool.take_waiting(350), [])
        self.assertEqual(pool.queued_requests, 3)
        self.assertEqual(pool.head_wait_ms(1000), 600)
        gate.set()
        pool.stop()
        self.assertEqual(recorder.bodies, [b"first", b"400", b"400"])
        self.assertEqual((pool.queued_requests, pool.queued_bytes), (0, 0))

    def test_calls_stay_after_jobs_are_taken(self):
        pool = self.make_pool()
        called = Event()
        pool.submit(Job(Recorder(), FakeConnection(), frames(), 0))
        pool.call(called.set)
        self.assertEqual(len(pool.take_waiting(1)), 1)
        pool.start()
        self.assertTrue(called.wait(WAIT_SECONDS))


class StartAndStopTests(PoolTestCase):
    def test_stop_waits_for_queued_jobs(self):
        pool = self.make_pool(threads=3)
        handler = Recorder()
        for _ in range(500):
            self.submit(pool, handler, frames(3))
        pool.start()
        pool.stop()
        self.assertEqual(len(handler.bodies), 1500)
        self.assertEqual(pool.queued_requests, 0)

    def test_repeated_start_adds_no_threads(self):
        pool = self.make_pool()
        gate = Event()
        handler = Recorder(gate)
        pool.start()
        pool.start()
        self.submit(pool, handler, frames(1))
        self.assertTrue(handler.entered.wait(WAIT_SECONDS))
        self.submit(pool, handler, frames(1))
        gate.set()
        pool.stop()
        self.assertEqual(handler.threads, {"send-0"})

    def test_stop_twice_and_stop_before_start(self):
        pool = self.make_pool()
        pool.stop()
        pool.start()
        pool.stop()
        pool.stop()

    def test_stopped_pool_is_restartable(self):
        pool = self.make_pool()
        handler = Recorder()
        for _ in range(2):
            pool.start()
            self.submit(pool, handler, frames(1))
            pool.stop()
        self.assertEqual(len(handler.bodies), 2)
