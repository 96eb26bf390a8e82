"""Processors of third parties in real pools: coroutines, wrong results, and blocked calls at a stop."""

import threading
from functools import partial
from itertools import product

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread
from twisted.logger import LogLevel, globalLogPublisher
from twisted.trial.unittest import TestCase
from zope.interface import implementer

from rocketd.remoting.errors import RemotingCommandError, RequestError
from rocketd.remoting.headers.client import PullMessageRequestHeader, read_header
from rocketd.remoting.interfaces import IRequestProcessor, IRPCHook
from rocketd.remoting.serving.dispatch import Dispatcher
from rocketd.remoting.serving.third_party.guarded_hook import guarded_hook
from rocketd.remoting.serving.third_party.guarded_processor import PluginProcessor
from rocketd.remoting.wire.codes import ResponseCode
from rocketd.remoting.wire.command import ONEWAY_FLAG, RemotingCommand
from rocketd.remoting.wire.frame import FrameDecoder

CODE = 9001
LIMIT = 60


class Connection:
    """Fires a Deferred for each answer."""

    address = "10.0.0.1:5000"
    behind = False
    closed = False

    def __init__(self):
        self.answers = []
        self._waiting = []

    def write(self, buffers):
        reactor.callFromThread(self._written, b"".join(buffers))

    def send(self, command):
        self.write((command.encode(),))

    def pause_reading(self, reason):
        pass

    def resume_reading(self, reason):
        pass

    def next_answer(self):
        waiting = Deferred()
        self._waiting.append(waiting)
        return waiting.addTimeout(LIMIT, reactor)

    def _written(self, data):
        for frame in FrameDecoder().feed(data):
            self._waiting.pop(0).callback(RemotingCommand.decode(frame))


@implementer(IRequestProcessor)
class Processor:
    def __init__(self, process):
        self.process = process


class PluginProcessorTestCase(TestCase):
    def setUp(self):
        self.dispatcher = Dispatcher(reactor.callFromThread)
        self.connection = Connection()
        self.events = []
        globalLogPublisher.addObserver(self.events.append)
        self.addCleanup(globalLogPublisher.removeObserver, self.events.append)

    def serve(self, process, threads=1):
        self.dispatcher.add_pool("p", threads=threads)
        plugin = PluginProcessor("greeter", Processor(process), reactor.callFromThread, self.dispatcher.plugin_calls)
        self.dispatcher.register(CODE, plugin, "p")
        self.dispatcher.start()
        self.addCleanup(deferToThread, self.dispatcher.stop)
        return plugin

    def request(self, oneway=False):
        command = RemotingCommand(CODE, flag=ONEWAY_FLAG if oneway else 0)
        (frame,) = FrameDecoder().feed(command.encode())
        self.dispatcher.dispatch(self.connection, [frame])

    def ask(self):
        answer = self.connection.next_answer()
        self.request()
        return answer

    def errors(self):
        return [event for event in self.events if event.get("log_level") in (LogLevel.error, LogLevel.critical)]

    @property
    def calls(self):
        return self.dispatcher.plugin_calls


class PluginProcessorTests(PluginProcessorTestCase):
    async def test_coroutine_runs_in_the_reactor_thread_and_answers(self):
        threads = []

        async def process(request, context):
            await deferLater(reactor, 0, lambda: None)
            threads.append(threading.current_thread())
            return RemotingCommand.response(body=b"late")

        self.serve(process)
        answer = await self.ask()
        self.assertEqual((answer.code, answer.body), (ResponseCode.SUCCESS, b"late"))
        self.assertEqual(threads, [threading.current_thread()])

    async def test_refusal_of_coroutine_is_answered_with_its_code(self):
        async def process(request, context):
            raise RequestError(ResponseCode.NO_PERMISSION, "not you")

        self.serve(process)
        answer = await self.ask()
        self.assertEqual((answer.code, answer.remark), (ResponseCode.NO_PERMISSION, "not you"))

    async def test_error_text_does_not_reach_the_peer(self):
        def process(request, context):
            raise ValueError("password is hunter2")

        self.serve(process)
        answer = await self.ask()
        self.assertEqual(answer.code, ResponseCode.SYSTEM_ERROR)
        self.assertNotIn("hunter2", answer.remark)
        self.assertNotIn("ValueError", answer.remark)
        self.assertIn("[processor-failed]", answer.remark)
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)

    async def test_wrong_result_is_named_in_the_log(self):
        async def late(request, context):
            return b"bytes"

        for process in (lambda request, context: "text", late):
            self.dispatcher = Dispatcher(reactor.callFromThread)
            self.serve(process)
            answer = await self.ask()
            self.assertEqual(answer.code, ResponseCode.SYSTEM_ERROR)
        lines = [event["error"] for event in self.errors()]
        self.assertEqual(len(lines), 2)
        self.assertIn("processor plugin greeter returned str for code 9001: return a RemotingCommand", lines[0])
        self.assertIn("returned bytes", lines[1])

    async def test_threads_of_pool_run_in_parallel(self):
        together = threading.Barrier(3)

        def process(request, context):
            together.wait(LIMIT)
            return RemotingCommand.response()

        self.serve(process, threads=3)
        answers = [self.ask() for _ in range(3)]
        for answer in answers:
            self.assertEqual((await answer).code, ResponseCode.SUCCESS)

    async def test_pipelined_requests_of_connection_run_in_parallel_and_answers_do_not_wait(self):
        together, free = threading.Barrier(4), threading.Event()
        self.addCleanup(free.set)

        def process(request, context):
            together.wait(LIMIT)
            if request.opaque == 0:
                free.wait(LIMIT)
            return RemotingCommand.response()

        self.serve(process, threads=4)
        answers = [self.connection.next_answer() for _ in range(4)]
        frames = FrameDecoder().feed(b"".join(RemotingCommand(CODE, opaque=number).encode() for number in range(4)))
        self.dispatcher.dispatch(self.connection, frames)
        self.assertEqual({(await answer).opaque for answer in answers[:3]}, {1, 2, 3})
        free.set()
        self.assertEqual((await answers[3]).opaque, 0)

    async def test_stop_abandons_blocked_plugin_and_names_it(self):
        blocked, free = threading.Event(), threading.Event()
        self.addCleanup(free.set)

        def process(request, context):
            blocked.set()
            free.wait(LIMIT)

        self.serve(process)
        self.dispatcher.plugin_stop_seconds = 0.2
        self.request(oneway=True)
        await deferToThread(blocked.wait, LIMIT)
        await deferToThread(self.dispatcher.stop)
        (event,) = self.errors()
        self.assertIn("processor plugin greeter: 1 request of code 9001 since", event["busy"])

    async def test_stop_cancels_endless_coroutines(self):
        begun, ended = Deferred(), []

        async def process(request, context):
            begun.callback(None)
            try:
                await Deferred()
            finally:
                ended.append(True)

        self.serve(process)
        self.dispatcher.plugin_stop_seconds = 0.2
        self.request(oneway=True)
        await begun
        await deferToThread(self.dispatcher.stop)
        await deferLater(reactor, 0, lambda: None)
        self.assertEqual(ended, [True])
        self.assertIn("1 request of code 9001", self.errors()[0]["busy"])

    async def test_stop_waits_for_answers_within_the_limit(self):
        begun, go_on = Deferred(), Deferred()

        async def process(request, context):
            reactor.callFromThread(begun.callback, None)
            await go_on
            return RemotingCommand.response(body=b"in time")

        self.serve(process)
        self.dispatcher.plugin_stop_seconds = LIMIT
        answer = self.ask()
        await begun
        stopped = deferToThread(self.dispatcher.stop)
        reactor.callLater(0.1, partial(go_on.callback, None))
        self.assertEqual((await answer).body, b"in time")
        await stopped
        self.assertEqual(self.errors(), [])


class LateAnswerTests(PluginProcessorTestCase):
    """Plugins that return None and call ``context.answer`` later."""

    def keep_contexts(self):
        self.contexts = []
        self.begun = Deferred()

        def process(request, context):
            self.contexts.append(context)
            reactor.callFromThread(self.begun.callback, None)

        self.serve(process)

    async def ask_and_stop(self, seconds):
        self.dispatcher.plugin_stop_seconds = seconds
        answer = self.ask()
        await self.begun
        return answer, deferToThread(self.dispatcher.stop)

    async def test_stop_waits_for_the_answer(self):
        self.keep_contexts()
        answer, stopped = await self.ask_and_stop(LIMIT)
        await deferLater(reactor, 0.2, lambda: None)
        self.assertFalse(stopped.called)
        await deferToThread(self.contexts.pop().answer, RemotingCommand.response(body=b"at last"))
        self.assertEqual((await answer).body, b"at last")
        await stopped
        self.assertEqual(self.errors(), [])

    async def test_stop_names_unanswered_request(self):
        self.keep_contexts()
        answer, stopped = await self.ask_and_stop(0)
        await stopped
        self.assertIn("processor plugin greeter: 1 request of code 9001 since", self.errors()[0]["busy"])
        self.contexts[0].answer(RemotingCommand.response())
        await answer

    async def test_loss_of_the_connection_ends_the_wait(self):
        self.keep_contexts()
        self.request()
        await self.begun
        await self.waits(True)
        self.dispatcher.connection_lost(Connection())
        self.assertTrue(self.calls.busy())
        self.dispatcher.connection_lost(self.connection)
        self.assertEqual(self.calls.busy(), [])

    async def test_connection_lost_during_the_call_is_not_waited_for(self):
        self.connection.closed = True
        self.keep_contexts()
        self.request()
        await self.begun
        await self.waits(False)

    async def test_dropped_context_ends_wait(self):
        self.keep_contexts()
        self.request()
        await self.begun
        await self.waits(True)
        self.contexts.clear()
        await self.waits(False)

    async def test_oneway_request_is_not_waited_for(self):
        self.keep_contexts()
        self.request(oneway=True)
        await self.begun
        await self.waits(False)

    async def test_answer_within_the_call_leaves_its_thread_known(self):
        free = threading.Event()
        self.addCleanup(free.set)

        def process(request, context):
            context.answer(RemotingCommand.response())
            free.wait(LIMIT)

        self.serve(process)
        self.dispatcher.plugin_stop_seconds = 0
        await self.ask()
        await deferToThread(self.dispatcher.stop)
        self.assertEqual(len(self.errors()), 1)

    async def test_stop_waits_for_coroutine_answering_later(self):
        contexts, begun = [], Deferred()

        async def process(request, context):
            contexts.append(context)
            reactor.callLater(0, begun.callback, None)

        self.serve(process)
        answer = self.ask()
        await begun
        await self.waits(True)
        contexts[0].answer(RemotingCommand.response(body=b"later"))
        self.assertEqual((await answer).body, b"later")
        self.assertEqual(self.calls.busy(), [])

    async def test_stop_does_not_wait_for_coroutine_without_answer(self):
        begun = Deferred()

        async def process(request, context):
            reactor.callLater(0, begun.callback, None)

        self.serve(process)
        self.request()
        await begun
        await self.waits(False)

    async def waits(self, expected):
        """Return when the pool's thread is out of the plugin, and a request waits for its answer or none does."""
        done = Deferred()
        self.dispatcher.pool("p").call(lambda: reactor.callFromThread(done.callback, None))
        await done
        await deferLater(reactor, 0, lambda: None)
        self.assertEqual(bool(self.calls.busy()), expected)


class HiddenErrorTests(PluginProcessorTestCase):
    """The part of a plugin's exception that reaches the peer."""

    async def check_hidden(self, process, logged):
        self.serve(process)
        answer = await self.ask()
        self.assertEqual(answer.code, ResponseCode.SYSTEM_ERROR)
        self.assertNotIn("hunter2", answer.remark)
        self.assertIn("[processor-failed]", answer.remark)
        self.assertEqual(len(self.flushLoggedErrors(logged)), 1)
        self.assertEqual(self.calls.busy(), [])

    async def test_text_of_command_error_does_not_reach_the_peer(self):
        def process(request, context):
            raise RemotingCommandError("hunter2")

        await self.check_hidden(process, RemotingCommandError)

    async def test_text_of_command_error_in_a_coroutine_does_not_reach_the_peer(self):
        async def process(request, context):
            raise RemotingCommandError("hunter2")

        await self.check_hidden(process, RemotingCommandError)

    async def test_header_of_other_command_does_not_reach_peer(self):
        def process(request, context):
            read_header(PullMessageRequestHeader, RemotingCommand(CODE, {"queueId": "hunter2"}))

        await self.check_hidden(process, RemotingCommandError)

    async def test_fault_in_the_header_of_the_request_reaches_the_peer(self):
        def process(request, context):
            read_header(PullMessageRequestHeader, request)

        async def later(request, context):
            read_header(PullMessageRequestHeader, request)

        for each in (process, later):
            self.dispatcher = Dispatcher(reactor.callFromThread)
            self.serve(each)
            answer = await self.ask()
            self.assertEqual(answer.remark, "the custom field <consumerGroup> is null")

    async def test_exit_of_a_plugin_is_answered(self):
        def process(request, context):
            raise SystemExit("hunter2")

        await self.check_hidden(process, SystemExit)

    async def test_text_of_command_error_in_a_hook_does_not_reach_the_peer(self):
        for error, method in product((RemotingCommandError, SystemExit), ("before_request", "after_response")):
            self.dispatcher = Dispatcher(reactor.callFromThread)
            hook = Hook()
            setattr(hook, method, raising(error("hunter2")))
            self.dispatcher.answers.hooks = (guarded_hook("RPC hook", "theirs", hook, self.dispatcher.plugin_calls),)
            await self.check_hidden(lambda request, context: RemotingCommand.response(), error)


@implementer(IRPCHook)
class Hook:
    """Lets all pass."""

    def before_request(self, address, request):
        pass

    def after_response(self, address, request, response):
        pass


def raising(error):
    def function(*_):
        raise error

    return function
