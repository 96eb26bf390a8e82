"""The invoke layer on a fake clock and fake connections."""

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.logger import LogLevel, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from rocketd.remoting.calling.invoke import ONEWAYS_TOGETHER, InvokeLayer
from rocketd.remoting.errors import (
    PermitTimeoutError,
    RemotingCommandError,
    RemotingConnectError,
    RemotingError,
    RemotingSendRequestError,
    RemotingTimeoutError,
    RemotingTooMuchRequestError,
)
from rocketd.remoting.wire.command import RemotingCommand


class FakeConnection:
    """Records sent commands; ``broken`` makes sending raise, ``written`` is its return value."""

    def __init__(self, address="10.0.0.1:10911"):
        self.address = address
        self.closed = False
        self.sent = []
        self.broken = None
        self.written = None

    def send(self, command):
        if self.broken is not None:
            raise self.broken
        self.sent.append(command)
        return self.written

    def close(self):
        self.closed = True


class FakeReactor(Clock):
    """A clock whose calls from threads wait in a list."""

    def __init__(self):
        super().__init__()
        self.from_threads = []

    def callFromThread(self, function, *arguments):
        self.from_threads.append((function, arguments))

    def run_thread_calls(self):
        calls, self.from_threads = self.from_threads, []
        for function, arguments in calls:
            function(*arguments)


class Hook:
    def __init__(self, trace, name, before=None):
        self.trace, self.name, self.before = trace, name, before

    def before_request(self, address, request):
        self.trace.append(f"{self.name} before {address}")
        if self.before is not None:
            self.before()

    def after_response(self, address, request, response):
        self.trace.append(f"{self.name} after {response.remark}")


def answer_to(request, remark=None):
    return RemotingCommand.response(0, remark).answering(request)


class InvokeTestCase(SynchronousTestCase):
    def setUp(self):
        self.reactor = FakeReactor()
        self.connection = FakeConnection()
        self.layer = self.make_layer()
        self.events = []
        globalLogPublisher.addObserver(self.events.append)
        self.addCleanup(globalLogPublisher.removeObserver, self.events.append)

    def make_layer(self, oneway=1, asynchronous=1, **arguments):
        return InvokeLayer(self.reactor, oneway, asynchronous, **arguments)

    def warnings(self):
        return [event["log_format"] for event in self.events if event["log_level"] is LogLevel.warn]


class InvokeSyncTests(InvokeTestCase):
    def test_answers_out_of_order_reach_their_callers(self):
        first, second = RemotingCommand(1), RemotingCommand(2)
        calls = [self.layer.invoke_sync(self.connection, request, 3000) for request in (first, second)]
        self.layer.process_response(self.connection, answer_to(second, "two"))
        self.layer.process_response(self.connection, answer_to(first, "one"))
        self.assertEqual([self.successResultOf(call).remark for call in calls], ["one", "two"])
        self.assertEqual(len(self.layer.pending), 0)
        self.assertEqual(len(self.layer.deadlines), 0)

    def test_silent_peer_times_out_and_its_late_answer_is_dropped(self):
        request = RemotingCommand(1)
        call = self.layer.invoke_sync(self.connection, request, 300)
        self.reactor.advance(0.299)
        self.assertNoResult(call)
        self.reactor.advance(0.002)
        error = self.failureResultOf(call, RemotingTimeoutError).value
        self.assertIn("10.0.0.1:10911", str(error))
        self.assertIn("300 ms", str(error))
        self.assertEqual(len(self.layer.pending), 0)
        self.layer.process_response(self.connection, answer_to(request))
        self.assertEqual([event["why"] for event in self.events if "why" in event], ["its request was given up"])
        self.assertEqual(self.warnings(), [])

    def test_answer_to_cancelled_request_is_logged_at_debug(self):
        request = RemotingCommand(11)
        call = self.layer.invoke_sync(self.connection, request, 300)
        call.cancel()
        self.failureResultOf(call, CancelledError)
        self.layer.process_response(self.connection, answer_to(request))
        ((why, level),) = [(event["why"], event["log_level"]) for event in self.events if "why" in event]
        self.assertEqual((why, level), ("its request was cancelled", LogLevel.debug))

    def test_answers_during_stop_are_logged_at_debug(self):
        requests = RemotingCommand(1), RemotingCommand(2)
        calls = [self.layer.invoke_sync(self.connection, request, 300) for request in requests]
        calls[0].cancel()
        self.layer.stop()
        for call, error in zip(calls, (CancelledError, RemotingSendRequestError), strict=True):
            self.failureResultOf(call, error)
        for request in requests:
            self.layer.process_response(self.connection, answer_to(request))
        levels = [event["log_level"] for event in self.events if "why" in event]
        self.assertEqual(levels, [LogLevel.debug], "of both, within a minute")

    def test_unexpected_answer_is_logged_and_dropped(self):
        self.layer.process_response(self.connection, RemotingCommand.response(0))
        self.assertEqual(len(self.warnings()), 1)

    def test_closed_connection_fails_at_once(self):
        self.connection.closed = True
        self.failureResultOf(
            self.layer.invoke_sync(self.connection, RemotingCommand(1), 3000), RemotingSendRequestError
        )
        self.assertEqual(len(self.layer.pending), 0)
        self.assertEqual(len(self.layer.deadlines), 0)

    def test_raising_connection_fails_at_once_with_its_cause(self):
        self.connection.broken = OSError("no route")
        call = self.layer.invoke_sync(self.connection, RemotingCommand(1), 3000)
        self.assertIn("no route", str(self.failureResultOf(call, RemotingSendRequestError).value))
        self.assertEqual(len(self.layer.pending), 0)
        self.assertEqual(len(self.layer.deadlines), 0)

    def test_lost_connection_fails_its_requests_at_once(self):
        other = FakeConnection()
        mine = self.layer.invoke_sync(self.connection, RemotingCommand(1), 3000)
        theirs = self.layer.invoke_sync(other, RemotingCommand(1), 3000)
        self.layer.connection_lost(self.connection)
        self.failureResultOf(mine, RemotingSendRequestError)
        self.assertNoResult(theirs)
        self.layer.stop()
        self.failureResultOf(theirs, RemotingSendRequestError)
        self.assertEqual(self.reactor.getDelayedCalls(), [])

    def test_cancelled_call_leaves_no_state(self):
        call = self.layer.invoke_sync(self.connection, RemotingCommand(1), 3000)
        call.cancel()
        self.failureResultOf(call)
        self.assertEqual(len(self.layer.pending), 0)
        self.assertEqual(len(self.layer.deadlines), 0)

    def test_sync_requests_need_no_permit(self):
        for _ in range(5):
            self.layer.invoke_sync(self.connection, RemotingCommand(1), 3000).addErrback(lambda _: None)
        self.assertEqual(len(self.connection.sent), 5)


class HookTests(InvokeTestCase):
    def test_hooks_run_in_order_before_and_after(self):
        trace = []
        first, second = Hook(trace, "first"), Hook(trace, "second")
        layer = self.make_layer(hooks=(first, second))
        layer.register_hook(first)
        request = RemotingCommand(1)
        call = layer.invoke_sync(self.connection, request, 3000)
        layer.process_response(self.connection, answer_to(request, "done"))
        self.successResultOf(call)
        self.assertEqual(
            trace,
            [
                "first before 10.0.0.1:10911",
                "second before 10.0.0.1:10911",
                "first after done",
                "second after done",
            ],
        )

    def test_slow_hook_times_out_before_sending(self):
        layer = self.make_layer(hooks=[Hook([], "slow", lambda: self.reactor.advance(0.2))])
        self.failureResultOf(layer.invoke_sync(self.connection, RemotingCommand(1), 100), RemotingTimeoutError)
        self.failureResultOf(layer.invoke_async(self.connection, RemotingCommand(1), 100), RemotingTimeoutError)
        self.assertEqual(self.connection.sent, [])

    def test_time_of_hooks_is_taken_from_the_timeout(self):
        layer = self.make_layer(hooks=[Hook([], "slow", lambda: self.reactor.advance(0.2))])
        call = layer.invoke_sync(self.connection, RemotingCommand(1), 300)
        self.reactor.advance(0.11)
        self.failureResultOf(call, RemotingTimeoutError)

    def test_refusal_of_a_hook_reaches_the_caller(self):
        def refuse():
            raise PermissionError("no")

        layer = self.make_layer(hooks=[Hook([], "acl", refuse)])
        self.failureResultOf(layer.invoke_sync(self.connection, RemotingCommand(1), 100), PermissionError)
        self.failureResultOf(layer.invoke_oneway(self.connection, RemotingCommand(1), 100), PermissionError)
        self.assertEqual(self.connection.sent, [])


class InvokeAsyncTests(InvokeTestCase):
    def invoke(self, number, timeout_ms=3000):
        request = RemotingCommand(number)
        return request, self.layer.invoke_async(self.connection, request, timeout_ms)

    def assert_permit_is_back(self):
        self.assertEqual(self.layer.async_permits.available, 1)

    def sent(self):
        return [request.code for request in self.connection.sent]

    def test_requests_beyond_permits_are_sent_as_earlier_ones_end(self):
        calls = [self.invoke(number) for number in range(4)]
        self.assertEqual(self.sent(), [0])
        self.layer.process_response(self.connection, answer_to(calls[0][0]))
        self.assertEqual(self.sent(), [0, 1])
        calls[1][1].addErrback(lambda failure: failure.trap(CancelledError)).cancel()
        self.assertEqual(self.sent(), [0, 1, 2])
        self.reactor.advance(3)
        for _, call in calls[2:]:
            self.failureResultOf(call, RemotingTimeoutError)
        self.assertEqual((self.layer.async_permits.available, len(self.layer.pending)), (1, 0))

    def test_waiting_for_a_permit_counts_against_the_timeout(self):
        first, _ = self.invoke(1)
        _, second = self.invoke(2, 1000)
        self.reactor.advance(0.9)
        self.layer.process_response(self.connection, answer_to(first))
        self.assertEqual(self.sent(), [1, 2])
        self.reactor.advance(0.2)
        self.assertNotIsInstance(self.failureResultOf(second, RemotingTimeoutError).value, PermitTimeoutError)

    def test_async_request_without_permit_in_time_fails_unsent(self):
        self.invoke(1)
        _, second = self.invoke(2, 1000)
        self.reactor.advance(1)
        text = str(self.failureResultOf(second, PermitTimeoutError).value)
        self.assertIn("within 1000 ms: 0 waiting, 0 permits free", text)
        self.failureResultOf(self.invoke(3, 0)[1], RemotingTooMuchRequestError)
        self.assertEqual(self.sent(), [1])

    def test_failed_write_of_async_request_releases_permit(self):
        self.connection.broken = OSError("gone")
        self.failureResultOf(self.invoke(1)[1], RemotingSendRequestError)
        self.connection.broken, self.connection.closed = None, True
        self.failureResultOf(self.invoke(2)[1], RemotingSendRequestError)
        self.assertEqual(self.layer.async_permits.available, 1)

    def test_late_permit_is_released(self):
        first, _ = self.invoke(1)
        _, second = self.invoke(2, 100)
        self.reactor.rightNow += 0.2  # the permit comes in the same turn, before the timer
        self.layer.process_response(self.connection, answer_to(first))
        self.assertIn("waiting for a permit", str(self.failureResultOf(second, PermitTimeoutError).value))
        self.assertEqual(self.sent(), [1])
        self.assert_permit_is_back()

    def test_silent_peer_ends_request_at_its_timeout(self):
        self.layer.start()
        self.addCleanup(self.layer.stop)
        request, call = self.invoke(1)
        self.reactor.pump([0.1] * 29)
        self.assertNoResult(call)
        self.reactor.pump([0.1] * 2)
        self.failureResultOf(call, RemotingTimeoutError)
        self.layer.process_response(self.connection, answer_to(request))
        self.layer.connection_lost(self.connection)
        self.assert_permit_is_back()

    def test_lost_connection_fails_async_request_at_once(self):
        _, call = self.invoke(1)
        self.layer.connection_lost(self.connection)
        self.failureResultOf(call, RemotingSendRequestError)
        self.assert_permit_is_back()

    def test_opaque_in_use_is_refused_and_the_permit_returns(self):
        self.layer = self.make_layer(asynchronous=2)
        request, call = self.invoke(1)
        again = self.layer.invoke_async(self.connection, request, 3000)
        self.failureResultOf(again, ValueError)
        self.assertEqual(self.layer.async_permits.available, 1)
        self.layer.process_response(self.connection, answer_to(request, "done"))
        self.assertEqual(self.successResultOf(call).remark, "done")

    def test_raising_callback_keeps_no_permit(self):
        calls = [self.invoke(number) for number in range(2)]
        for request, call in calls:  # one that got its permit at once, and one that waited
            call.addCallback(lambda _: 1 / 0)
            self.layer.process_response(self.connection, answer_to(request))
            self.failureResultOf(call, ZeroDivisionError)
        self.assert_permit_is_back()

    def test_stop_fails_waiting_requests_unsent(self):
        self.layer.start()
        calls = [self.invoke(number)[1] for number in range(3)]
        self.layer.stop()
        for call in calls:
            self.failureResultOf(call, RemotingSendRequestError)
        self.assertEqual(self.sent(), [0])


class ExecutorTests(InvokeTestCase):
    def test_in_executor_result_arrives_in_reactor_thread(self):
        tasks = []
        layer = self.make_layer(callback_executor=tasks.append)
        results = [layer.in_executor(divmod, 7, 2), layer.in_executor(divmod, 7, 0)]
        for task in tasks:
            task()
        self.assertNoResult(results[0])
        self.reactor.run_thread_calls()
        self.assertEqual(self.successResultOf(results[0]), (3, 1))
        self.failureResultOf(results[1], ZeroDivisionError)

    def test_in_executor_without_usable_executor_runs_directly(self):
        def refuse(function):
            raise RuntimeError("full")

        for executor in (None, refuse):
            layer = self.make_layer(callback_executor=executor)
            self.assertEqual(self.successResultOf(layer.in_executor(divmod, 7, 2)), (3, 1))


class ErrorTests(SynchronousTestCase):
    def test_remoting_errors_share_one_base(self):
        kinds = (
            RemotingCommandError,
            RemotingConnectError,
            RemotingSendRequestError,
            RemotingTimeoutError,
            RemotingTooMuchRequestError,
        )
        for kind in kinds:
            self.assertEqual(kind.__bases__, (RemotingError,))


class InvokeOnewayTests(InvokeTestCase):
    def test_oneway_is_marked_and_not_entered(self):
        request = RemotingCommand(1)
        self.successResultOf(self.layer.invoke_oneway(self.connection, request, 100))
        self.assertTrue(request.is_oneway)
        self.assertEqual(self.connection.sent, [request])
        self.assertEqual(len(self.layer.pending), 0)
        self.assertEqual(self.layer.oneway_permits.available, 1)

    def test_permit_is_kept_until_the_bytes_are_out(self):
        self.connection.written = Deferred()
        self.layer.invoke_oneway(self.connection, RemotingCommand(1), 100)
        refused = self.layer.invoke_oneway(self.connection, RemotingCommand(1), 0)
        self.failureResultOf(refused, RemotingTooMuchRequestError)
        timed_out = self.layer.invoke_oneway(self.connection, RemotingCommand(1), 50)
        waits = self.layer.invoke_oneway(self.connection, RemotingCommand(1), 100)
        self.reactor.advance(0.051)
        text = str(self.failureResultOf(timed_out, RemotingTimeoutError).value)
        self.assertIn("1 waiting, 0 permits free", text)
        self.connection.written.callback(None)
        self.successResultOf(waits)
        self.assertEqual(len(self.connection.sent), 2)

    def test_failed_write_gives_the_permit_back(self):
        self.connection.written = Deferred()
        self.layer.invoke_oneway(self.connection, RemotingCommand(1), 100)
        self.connection.written.errback(OSError())
        self.assertEqual(self.layer.oneway_permits.available, 1)

    def test_closed_connection_is_only_logged(self):
        self.connection.closed = True
        self.successResultOf(self.layer.invoke_oneway(self.connection, RemotingCommand(1), 100))
        self.assertEqual(len(self.warnings()), 1)
        self.assertEqual(self.layer.oneway_permits.available, 1)

    def test_raising_connection_fails_and_gives_the_permit_back(self):
        self.connection.broken = OSError("no route")
        failed = self.layer.invoke_oneway(self.connection, RemotingCommand(1), 100)
        self.failureResultOf(failed, RemotingSendRequestError)
        self.assertEqual(self.layer.oneway_permits.available, 1)


class FromThreadTests(InvokeTestCase):
    def test_oneway_from_a_thread_is_sent_in_the_reactor_thread(self):
        self.layer.oneway_from_thread(self.connection, RemotingCommand(40), 10)
        self.assertEqual(self.connection.sent, [])
        self.reactor.run_thread_calls()
        self.assertEqual(len(self.connection.sent), 1)

    def test_failing_oneway_from_thread_is_logged(self):
        self.connection.broken = OSError("no route")
        self.layer.oneway_from_thread(self.connection, RemotingCommand(40), 10)
        self.reactor.run_thread_calls()
        self.assertEqual(len(self.warnings()), 1)

    def test_oneways_from_thread_wake_reactor_once_and_are_sent_in_parts(self):
        requests = [RemotingCommand(40, {"number": str(number)}) for number in range(2 * ONEWAYS_TOGETHER + 10)]
        for request in requests:
            self.layer.oneway_from_thread(self.connection, request, 10)
        self.assertEqual(len(self.reactor.from_threads), 1)
        later = []
        self.patch(self.reactor, "callLater", lambda _, function: later.append(function))
        self.reactor.run_thread_calls()
        sent = [len(self.connection.sent)]
        while later:
            later.pop()()
            sent.append(len(self.connection.sent))
        self.assertEqual(sent, [ONEWAYS_TOGETHER, 2 * ONEWAYS_TOGETHER, len(requests)])
        self.assertEqual(self.connection.sent, requests)
        self.layer.oneway_from_thread(self.connection, RemotingCommand(40), 10)
        self.assertEqual(len(self.reactor.from_threads), 1)

    def test_answer_to_a_request_from_a_thread(self):
        request = RemotingCommand(307)
        call = self.layer.from_thread(self.layer.invoke_sync, self.connection, request, 10_000)
        self.reactor.run_thread_calls()
        self.assertNoResult(call)
        response = answer_to(request)
        self.layer.process_response(self.connection, response)
        self.assertIs(self.successResultOf(call), response)
