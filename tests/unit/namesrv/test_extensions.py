"""Extensions of a name server by third parties: hooks and connection listeners."""

import os
import threading
from types import SimpleNamespace

from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from rocketd.namesrv.service import NameServer
from rocketd.namesrv.settings import NamesrvSettings
from rocketd.remoting.interfaces import EventKind, IConnectionListener, IRPCHook
from rocketd.remoting.serving import plugins
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.store.base.filesystem import RealFileSystem

LIMIT = 60


@implementer(IRPCHook, IConnectionListener)
class Extension:
    """Records its calls."""

    def __init__(self):
        self.seen = []
        self.told = threading.Event()

    def before_request(self, address, request):
        self.seen.append((address, request.code))

    def after_response(self, address, request, response):
        pass

    def connected(self, event):
        self.seen.append(event.address)
        self.told.set()

    closed = idle = failed = connected


def plugin(name, daemon, extension):
    return SimpleNamespace(
        name=name,
        daemon=daemon,
        create_rpc_hook=lambda service: extension,
        create_connection_listener=lambda service: extension,
    )


class InlineThreads:
    """A pool of threads whose work is done by the caller."""

    def callInThreadWithCallback(self, on_result, function, *arguments, **options):
        on_result(True, function(*arguments, **options))


class ExtensionTests(SynchronousTestCase):
    def test_namesrv_plugins_are_used_and_broker_plugins_are_not(self):
        mine, other = Extension(), Extension()
        found = [plugin("a", "broker", other), plugin("b", "namesrv", mine)]
        real = plugins.find_plugins
        wanted = (plugins.IRPCHookPlugin, plugins.IConnectionListenerPlugin)
        self.patch(plugins, "find_plugins", lambda kind: found if kind in wanted else real(kind))
        given = {"kvConfigPath": os.path.abspath(self.mktemp()), "tls.server.mode": "disabled"}
        settings, _ = NamesrvSettings.load(None, list(given.items()))
        reactor = MemoryReactorClock()
        reactor.callFromThread = lambda function, *arguments: reactor.callLater(0, function, *arguments)
        reactor.getThreadPool = InlineThreads
        name_server = NameServer(settings, reactor, RealFileSystem())
        name_server.startService()
        self.addCleanup(lambda: (name_server.stopService(), reactor.advance(10)))
        (hook,) = name_server.dispatcher.answers.hooks
        hook.before_request("1.2.3.4:5", RemotingCommand(105))
        self.assertEqual(mine.seen, [("1.2.3.4:5", 105)])
        name_server.server.events.put(EventKind.CONNECT, "1.2.3.4:6")
        self.assertTrue(mine.told.wait(LIMIT))
        self.assertEqual(mine.seen[1:], ["1.2.3.4:6"])
        self.assertEqual(other.seen, [])
