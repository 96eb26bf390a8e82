"""A stop waits for calls into plugins of each kind, and names those that do not come back."""

import threading
from functools import partial
from types import SimpleNamespace

from twisted.internet import reactor
from twisted.internet.threads import deferToThread
from twisted.logger import globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase, TestCase
from zope.interface import implementer

from rocketd.broker.base import extensions
from rocketd.broker.base.extensions import Extensions
from rocketd.broker.base.interfaces import (
    IAccessValidator,
    IArrivalListener,
    IConsumeMessageHook,
    ILogDispatcher,
    ISendMessageHook,
    ITransactionListener,
)
from rocketd.broker.base.message_hooks import MessageHooks
from rocketd.broker.timer.service import TimerMessageService
from rocketd.remoting.interfaces import EventKind, IConnectionListener, IFieldsHook, IJobProcessor, IRPCHook
from rocketd.remoting.serving import plugins
from rocketd.remoting.serving.answers import fields_hooks
from rocketd.remoting.serving.dispatch import Dispatcher
from rocketd.remoting.serving.server import RemotingServer
from rocketd.remoting.serving.third_party import connection_events
from rocketd.remoting.serving.third_party.running_calls import LOG_DISPATCHER, PROCESSOR, RPC_HOOK, PluginCalls
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.remoting.wire.frame import FrameDecoder
from rocketd.store.base.running_flags import RunningFlags
from rocketd.store.queue import dispatch
from rocketd.store.queue.consume_queue_table import ConsumeQueueTable
from rocketd.store.queue.dispatch import RecordDispatcher, ReputMessageService

LIMIT = 60
CODE = 9001


class Blocking:
    """Something of a third party: all its methods block until the test is over."""

    def __init__(self):
        self.entered = threading.Event()
        self.free = threading.Event()
        self.left = threading.Event()

    def block(self, *_):
        self.entered.set()
        self.free.wait(LIMIT)
        self.left.set()


@implementer(
    IRPCHook,
    IConnectionListener,
    IAccessValidator,
    ILogDispatcher,
    IArrivalListener,
    ITransactionListener,
    ISendMessageHook,
    IConsumeMessageHook,
)
class Everything(Blocking):
    before_request = after_response = Blocking.block
    connected = closed = idle = failed = Blocking.block
    validate = dispatch = arrived = checked = given_up = Blocking.block
    send_message_before = send_message_after = Blocking.block
    consume_message_before = consume_message_after = Blocking.block


@implementer(IFieldsHook)
class FieldsHook(Blocking):
    before_request = after_response = before_fields = Blocking.block


@implementer(IJobProcessor)
class Jobs(Blocking):
    process = process_jobs = Blocking.block


class Peer:
    """A connection whose answers are ignored."""

    behind = closed = False

    def pause_reading(self, reason):
        pass

    resume_reading = pause_reading


class Plugin:
    """A descriptor of every kind, whose extension is the given one."""

    name, daemon, codes, pool = "theirs", "broker", (CODE,), "p"

    def __init__(self, extension):
        self._extension = extension

    def create(self, _):
        return self._extension

    create_rpc_hook = create_connection_listener = create_access_validator = create_log_dispatcher = create
    create_arrival_listener = create_transaction_listener = create_hook = create


class Store:
    """Records the additions of extensions."""

    def __init__(self):
        self.dispatchers, self.listeners = [], []

    def add_dispatcher(self, function):
        self.dispatchers.append(function)

    def add_arrival_listener(self, function):
        self.listeners.append(function)


class StopTestCase(TestCase):
    """A dispatcher that gives plugins no time at its stop, and a plugin that blocks."""

    def setUp(self):
        self.dispatcher = Dispatcher(reactor.callFromThread)
        self.dispatcher.plugin_stop_seconds = 0
        self.broker = SimpleNamespace(dispatcher=self.dispatcher)
        self.theirs = Everything()
        self.lines = []
        globalLogPublisher.addObserver(self._line)
        self.addCleanup(globalLogPublisher.removeObserver, self._line)

    def _line(self, event):
        if "the server stops without waiting" in event.get("log_format", ""):
            self.lines.append(event["busy"])

    def install(self, extension):
        self.theirs = extension
        self.addCleanup(extension.free.set)
        found = lambda interface: [Plugin(extension)]  # noqa: E731
        self.patch(plugins, "find_plugins", found)
        self.patch(extensions, "find_plugins", found)

    async def check_stop_names(self, kind, what, function):
        """Have a pool's thread call a function in which the plugin blocks: the stop leaves it behind and names it."""
        pool = self.dispatcher.add_pool("called")
        self.dispatcher.start()
        pool.call(function)
        await self.check_stop(kind, what)

    async def check_stop(self, kind, what):
        await deferToThread(self.theirs.entered.wait, LIMIT)
        await deferToThread(self.dispatcher.stop)
        self.assertFalse(self.theirs.left.is_set())
        (line,) = self.lines
        self.assertIn(f"{kind} theirs: 1 call of {what} since", line)
        self.theirs.free.set()
        await deferToThread(self.theirs.left.wait, LIMIT)


class KindTests(StopTestCase):
    async def test_blocking_job_processor_is_named(self):
        self.install(Jobs())
        plugins.load_processors(self.dispatcher, "broker", self.broker)
        self.dispatcher.start()
        (frame,) = FrameDecoder().feed(RemotingCommand(CODE).encode())
        self.dispatcher.dispatch(Peer(), [frame])
        await self.check_stop("processor plugin", "process_jobs")

    def load_server_extensions(self, extension):
        self.install(extension)
        server = RemotingServer(reactor, self.dispatcher, port=0)
        plugins.load_server_extensions(server, "broker", self.broker)
        return server

    async def test_blocking_rpc_hook_is_named(self):
        for method in ("before_request", "after_response"):
            self.setUp()
            self.load_server_extensions(Everything())
            (hook,) = self.dispatcher.answers.hooks
            arguments = ["1.2.3.4:5", RemotingCommand(CODE), None][: 2 + (method == "after_response")]
            await self.check_stop_names("RPC hook", method, partial(getattr(hook, method), *arguments))

    async def test_blocking_fields_hook_is_named(self):
        self.load_server_extensions(FieldsHook())
        (check,) = fields_hooks(self.dispatcher.answers.hooks)
        await self.check_stop_names("RPC hook", "before_fields", lambda: check("1.2.3.4:5", CODE, {}, None))
        self.flushLoggedErrors(TypeError)  # it is not a connection listener

    async def test_blocking_connection_listener_is_named_and_left_at_once(self):
        self.patch(connection_events, "_STOP_SECONDS", LIMIT)
        server = self.load_server_extensions(Everything())
        server.events.start()
        server.events.put(EventKind.CONNECT, "1.2.3.4:5")
        thread = server.events._thread
        await deferToThread(self.theirs.entered.wait, LIMIT)
        await deferToThread(self.dispatcher.stop)
        await deferToThread(server.events.stop)
        self.assertTrue(thread.is_alive())
        self.assertIn("connection listener theirs: 1 call of connected since", self.lines[0])
        self.theirs.free.set()
        await deferToThread(thread.join, LIMIT)

    async def test_blocking_access_validator_is_named(self):
        self.install(Everything())
        (hook,), _ = Extensions(self.broker).access_validators()
        await self.check_stop_names(
            "access validator", "before_request", lambda: hook.before_request("1.2.3.4:5", RemotingCommand(CODE))
        )

    def loaded(self):
        self.install(Everything())
        store, loaded = Store(), Extensions(self.broker)
        loaded.load(store)
        return store, loaded

    async def test_blocking_log_dispatcher_is_named(self):
        (function,) = self.loaded()[0].dispatchers
        await self.check_stop_names("log dispatcher", "dispatch", lambda: function([]))

    async def test_blocking_arrival_listener_is_named(self):
        (function,) = self.loaded()[0].listeners
        await self.check_stop_names("arrival listener", "arrived", lambda: function([]))

    async def test_blocking_transaction_listener_is_named(self):
        for method in ("checked", "given_up"):
            self.setUp()
            _, loaded = self.loaded()
            function = getattr(loaded, f"transaction_{method}")
            await self.check_stop_names("transaction listener", method, partial(function, None))

    async def test_blocking_message_hook_is_named(self):
        for method in ("before_send", "after_send", "before_consume", "after_consume"):
            self.setUp()
            self.install(Everything())
            hooks = MessageHooks(self.dispatcher.plugin_calls)
            hooks.load(self.broker)
            what, when = method.split("_")[::-1]
            function = getattr(hooks, method)
            await self.check_stop_names("message hook", f"{what}_message_{when}", partial(function, None))


class StopTests(StopTestCase):
    async def test_stop_waits_for_pool_without_plugin_beyond_deadline(self):
        self.install(Everything())
        gate, done = threading.Event(), []
        self.addCleanup(gate.set)
        calls = self.dispatcher.plugin_calls
        theirs, ours = self.dispatcher.add_pool("theirs"), self.dispatcher.add_pool("ours")

        def blocked():
            call = calls.begin(PROCESSOR, "theirs", "x")
            self.theirs.block()
            calls.end(call)

        self.dispatcher.start()
        theirs.call(blocked)
        ours.call(lambda: done.append(gate.wait(LIMIT)))
        await deferToThread(self.theirs.entered.wait, LIMIT)
        stopping = deferToThread(self.dispatcher.stop)
        reactor.callLater(0.3, gate.set)
        await stopping
        self.assertEqual(done, [True])

    async def test_system_exit_of_extension_ends_no_thread(self):
        self.install(Everything())

        def leave(*_):
            raise SystemExit(3)

        self.theirs.dispatch = leave
        self.theirs.send_message_before = leave
        store = Store()
        Extensions(self.broker).load(store)
        hooks = MessageHooks(self.dispatcher.plugin_calls)
        hooks.load(self.broker)
        store.dispatchers[0]([])
        hooks.before_send(None)
        self.assertEqual(self.dispatcher.plugin_calls.busy(), [])
        self.assertEqual(len(self.flushLoggedErrors(SystemExit)), 1)

    async def test_timers_do_not_wait_for_storage_thread_in_a_plugin(self):
        self.install(Everything())
        calls = self.dispatcher.plugin_calls
        broker = SimpleNamespace(
            dispatcher=self.dispatcher,
            settings=SimpleNamespace(store=SimpleNamespace(store_path_root_dir=self.mktemp())),
        )
        timers = TimerMessageService(broker)
        timers._thread = threading.Thread(target=self.theirs.block, daemon=True)
        timers._thread.start()
        call = calls.begin(LOG_DISPATCHER, "theirs", "dispatch")
        self.dispatcher.begin_stop()
        await deferToThread(timers.stop)
        self.assertFalse(self.theirs.left.is_set())
        calls.end(call)

    async def test_store_stop_skips_calls_already_given_up(self):
        log = SimpleNamespace(max_offset=100, min_offset=0)
        begun, free = threading.Event(), threading.Event()
        self.addCleanup(free.set)
        self.patch(dispatch, "STOP_SECONDS", LIMIT)
        dispatcher = RecordDispatcher(ConsumeQueueTable(None, "", 20), None, RunningFlags(), threading.Event())
        reput = ReputMessageService(log, dispatcher, None)
        reput.reput_from_offset = 100
        reput.start()
        thread = reput._thread
        reput.call(lambda: begun.set() or free.wait(LIMIT))
        await deferToThread(begun.wait, LIMIT)
        events = []
        globalLogPublisher.addObserver(events.append)
        self.addCleanup(globalLogPublisher.removeObserver, events.append)
        await deferToThread(reput.stop, lambda given_up: "log dispatcher theirs")
        self.assertTrue(thread.is_alive())
        self.assertEqual(events[0]["waits"], "; it waits for log dispatcher theirs")
        free.set()
        await deferToThread(thread.join, LIMIT)


class PluginCallsTests(SynchronousTestCase):
    def setUp(self):
        self.now = 0.0
        self.calls = PluginCalls(lambda: self.now)

    def test_busy_counts_calls_and_age_of_oldest(self):
        for self.now in (1.0, 2.0):
            self.calls.begin(PROCESSOR, "a", "code 5", "request")
        self.now = 4.0
        self.assertEqual(
            [str(busy) for busy in self.calls.busy()], ["processor plugin a: 2 requests of code 5 since 3.0 s"]
        )

    def test_stop_deadline_is_set_once_and_reset_at_start(self):
        call = self.calls.begin(PROCESSOR, "a", "code 5")
        self.calls.begin_stop(3)
        self.now = 2.0
        self.calls.begin_stop(3)
        self.assertFalse(self.calls.is_stuck([call.thread]))
        self.now = 3.0
        self.assertTrue(self.calls.is_stuck([call.thread]))
        self.assertFalse(self.calls.is_stuck([call.thread + 1]))
        self.assertIn("processor plugin a", self.calls.stuck())
        self.calls.start()
        self.assertFalse(self.calls.is_stuck([call.thread]))
        self.assertEqual(self.calls.stuck(), "")

    def test_wait_gives_up_remaining_calls_only(self):
        self.calls.begin_stop(0)
        self.assertTrue(self.calls.wait())
        self.calls.begin(PROCESSOR, "a", "code 5")
        self.assertFalse(self.calls.wait())
        self.assertTrue(self.calls.given_up(PROCESSOR))
        self.assertFalse(self.calls.given_up(RPC_HOOK))
