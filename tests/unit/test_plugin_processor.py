"""Processors of third parties in real pools: coroutines, wrong results, and what a stop does with those that block."""

import threading
from functools import partial

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread
from twisted.logger import LogLevel, globalLogPublisher
from twisted.trial.unittest import TestCase
from zope.interface import implementer

from rocketd.remoting.codes import ResponseCode
from rocketd.remoting.command import ONEWAY_FLAG, RemotingCommand
from rocketd.remoting.dispatch import Dispatcher
from rocketd.remoting.errors import RequestError
from rocketd.remoting.frame import FrameDecoder
from rocketd.remoting.interfaces import IRequestProcessor
from rocketd.remoting.plugin_processor import PluginProcessor

CODE = 9001
LIMIT = 60


class Connection:
    """Fires a Deferred for each answer."""

    address = "10.0.0.1:5000"
    behind = False

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


class PluginProcessorTests(TestCase):
    def setUp(self):
        self.dispatcher = Dispatcher(reactor.callFromThread)
        self.connection = Connection()
        self.events = []
        globalLogPublisher.addObserver(self.events.append)
        self.addCleanup(globalLogPublisher.removeObserver, self.events.append)

    def serve(self, process, threads=1):
        self.dispatcher.add_pool("p", threads=threads)
        plugin = PluginProcessor("greeter", Processor(process), reactor.callFromThread)
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

    async def test_coroutine_that_refuses_is_answered_with_its_code(self):
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

    async def test_threads_of_a_pool_work_at_the_same_time(self):
        together = threading.Barrier(3)

        def process(request, context):
            together.wait(LIMIT)
            return RemotingCommand.response()

        self.serve(process, threads=3)
        answers = [self.ask() for _ in range(3)]
        for answer in answers:
            self.assertEqual((await answer).code, ResponseCode.SUCCESS)

    async def test_stop_leaves_a_blocked_plugin_behind_and_names_it(self):
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

    async def test_stop_cancels_coroutines_that_do_not_end(self):
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
