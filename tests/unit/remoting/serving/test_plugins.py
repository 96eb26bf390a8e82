"""Finding processors: the built-in ones, order, taken codes, plugins that are broken."""

from twisted.logger import LogLevel, globalLogPublisher
from twisted.plugin import getPlugins
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer
from zope.interface.verify import verifyObject

from rocketd.remoting.interfaces import IProcessorPlugin, IRequestProcessor
from rocketd.remoting.serving import plugins
from rocketd.remoting.serving.dispatch import Dispatcher


@implementer(IRequestProcessor)
class Processor:
    def process(self, request, context):
        return None


@implementer(IProcessorPlugin)
class Plugin:
    def __init__(self, name, codes, daemon="broker", pool="p", create=lambda daemon: Processor()):
        self.name, self.codes, self.daemon, self.pool, self._create = name, codes, daemon, pool, create
        self.created_with = []

    def create(self, daemon):
        self.created_with.append(daemon)
        return self._create(daemon)


def failing(error):
    def create(daemon):
        raise error

    return create


class LoadTestCase(SynchronousTestCase):
    def setUp(self):
        self.dispatcher = Dispatcher(lambda *_: None)
        self.events = []
        globalLogPublisher.addObserver(self.events.append)
        self.addCleanup(globalLogPublisher.removeObserver, self.events.append)

    def load(self, *found, daemon="broker"):
        self.patch(plugins, "find_plugins", lambda interface: found)
        return plugins.load_processors(self.dispatcher, daemon, "the service")

    def errors(self):
        return [event for event in self.events if event.get("log_level", LogLevel.info) >= LogLevel.warn]


class LoadTests(LoadTestCase):
    def test_plugins_of_the_daemon_are_made_and_registered(self):
        ours, theirs = Plugin("a", (1, 2)), Plugin("b", (3,), daemon="namesrv")
        self.assertEqual(self.load(ours, theirs), ["a"])
        self.assertEqual((ours.created_with, theirs.created_with), (["the service"], []))
        self.assertEqual([self.dispatcher.handles(code) for code in (1, 2, 3)], [True, True, False])
        self.assertEqual(list(self.dispatcher.pools), ["p"])

    def test_built_in_plugins_load_first_then_by_name(self):
        order = self.load(Plugin("b", (1,)), Plugin("a", (2,)), Plugin("rocketd.z", (3,)), Plugin("rocketd.y", (4,)))
        self.assertEqual(order, ["rocketd.y", "rocketd.z", "a", "b"])

    def test_plugin_with_taken_code_gets_free_codes_only(self):
        mine = Plugin("mine", (10, 9001))
        self.assertEqual(self.load(mine, Plugin("rocketd.send", (10,))), ["rocketd.send", "mine"])
        self.assertTrue(self.dispatcher.handles(9001))
        (event,) = self.errors()
        self.assertEqual((event["name"], event["code"]), ("mine", 10))

    def test_plugin_without_free_code_is_not_created(self):
        mine = Plugin("mine", (10,))
        self.assertEqual(self.load(mine, Plugin("rocketd.send", (10,))), ["rocketd.send"])
        self.assertEqual(mine.created_with, [])

    def test_repeated_code_of_plugin_is_registered_once(self):
        self.assertEqual(self.load(Plugin("mine", (9001, 9001))), ["mine"])
        self.assertEqual(self.errors(), [])

    def test_plugin_with_undeclared_jobs_is_skipped_with_one_line(self):
        class Undeclared(Processor):
            def process_jobs(self, jobs):
                pass

        self.assertEqual(self.load(Plugin("mine", (9001,), create=lambda daemon: Undeclared())), [])
        self.assertFalse(self.dispatcher.handles(9001))
        (event,) = self.errors()
        self.assertIn("declare IJobProcessor", str(event["log_failure"].value))
        self.flushLoggedErrors(TypeError)

    def test_failing_plugin_is_skipped_with_one_line(self):
        for broken in (
            Plugin("broken", (9001,), create=failing(ImportError("no module"))),
            Plugin("broken", (9001,), create=lambda daemon: object()),
            Plugin("broken", 9001),
        ):
            self.events.clear()
            self.assertEqual(self.load(broken, Plugin("fine", (9002,))), ["fine"])
            self.assertEqual(len(self.errors()), 1)
            self.assertEqual(len(self.flushLoggedErrors()), 1)
            self.dispatcher = Dispatcher(lambda *_: None)

    def test_plugin_without_attributes_is_skipped_with_one_line(self):
        @implementer(IProcessorPlugin)
        class Empty:
            pass

        self.assertEqual(self.load(Empty(), Plugin("fine", (9002,))), ["fine"])
        self.assertEqual(len(self.flushLoggedErrors(AttributeError)), 1)

    def test_failing_built_in_plugin_fails_start(self):
        broken = Plugin("rocketd.broken", (1,), create=failing(ValueError("x")))
        self.assertRaises(ValueError, self.load, broken)


class BuiltInTests(SynchronousTestCase):
    def test_built_in_descriptors_are_complete(self):
        """Every code of a daemon has one plugin, and the descriptors are whole."""
        found = list(getPlugins(IProcessorPlugin))
        names = [plugin.name for plugin in found]
        self.assertEqual(len(names), len(set(names)))
        for daemon in ("broker", "namesrv"):
            codes = [code for plugin in found if plugin.daemon == daemon for code in plugin.codes]
            self.assertGreater(len(codes), 10)
            self.assertEqual(len(codes), len(set(codes)))
        for plugin in found:
            self.assertTrue(verifyObject(IProcessorPlugin, plugin))


class ThreadsTests(LoadTestCase):
    def test_pool_of_plugin_has_requested_threads(self):
        plugin = Plugin("a", (1,))
        plugin.threads = 3
        self.assertEqual(self.load(plugin, Plugin("b", (2,), pool="q")), ["a", "b"])
        self.assertEqual({name: pool.threads for name, pool in self.dispatcher.pools.items()}, {"p": 3, "q": 1})
        self.assertEqual(self.errors(), [])

    def test_existing_pool_keeps_its_threads_with_warning(self):
        self.dispatcher.add_pool("p", threads=2)
        plugin = Plugin("a", (1,))
        plugin.threads = 3
        self.assertEqual(self.load(plugin), ["a"])
        self.assertEqual(self.dispatcher.pools["p"].threads, 2)
        self.assertEqual(len(self.errors()), 1)

    def test_wrong_number_of_threads_leaves_the_plugin_out(self):
        for threads in (0, 65, "4", True):
            plugin = Plugin("a", (1,))
            plugin.threads = threads
            self.assertEqual(self.load(plugin), [])
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 4)
