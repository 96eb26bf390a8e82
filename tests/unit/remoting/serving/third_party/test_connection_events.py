"""Connection events: order, a queue that is full, listeners that fail, a real server's connections."""

import threading

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import TCP4ClientEndpoint, connectProtocol
from twisted.internet.protocol import Protocol
from twisted.internet.threads import deferToThread
from twisted.logger import globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase, TestCase
from zope.interface import implementer

from rocketd.remoting.interfaces import EventKind, IConnectionListener
from rocketd.remoting.serving import server as server_module
from rocketd.remoting.serving.dispatch import Dispatcher
from rocketd.remoting.serving.server import RemotingServer
from rocketd.remoting.serving.third_party.connection_events import ConnectionEvents

LIMIT = 60


@implementer(IConnectionListener)
class Listener:
    def __init__(self):
        self.seen = []
        self.gate = threading.Event()
        self.told = threading.Event()

    def connected(self, event):
        self.told.set()
        self.gate.wait(LIMIT)
        self.seen.append((event.kind.name, event.address, event.reason))

    closed = idle = failed = connected


@implementer(IConnectionListener)
class Broken:
    def connected(self, event):
        raise ValueError("broken")

    closed = idle = failed = connected


class ConnectionEventsTests(SynchronousTestCase):
    def make(self, *listeners, limit=10):
        events = ConnectionEvents("test-events", limit)
        for listener in listeners:
            events.add(listener)
        events.start()
        self.addCleanup(events.stop)
        self.logged = []
        globalLogPublisher.addObserver(self.logged.append)
        self.addCleanup(globalLogPublisher.removeObserver, self.logged.append)
        return events

    def test_listener_gets_events_in_order_before_the_stop_ends(self):
        listener = Listener()
        listener.gate.set()
        events = self.make(listener)
        for number, kind in enumerate(EventKind):
            events.put(kind, f"a:{number}", "why")
        events.stop()
        kinds = ("CONNECT", "CLOSE", "IDLE", "EXCEPTION")
        self.assertEqual(listener.seen, [(name, f"a:{n}", "why") for n, name in enumerate(kinds)])

    def test_full_queue_drops_events_with_a_count(self):
        listener = Listener()
        events = self.make(listener, limit=2)
        events.put(EventKind.CONNECT, "a:0")
        self.assertTrue(listener.told.wait(LIMIT))
        for number in range(1, 8):
            events.put(EventKind.CONNECT, f"a:{number}")
        listener.gate.set()
        events.stop()
        self.assertEqual([address for _, address, _ in listener.seen], ["a:0", "a:1", "a:2"])
        lines = [event for event in self.logged if "limit" in event]
        self.assertEqual(len(lines), 1)

    def test_failing_listener_does_not_block_others(self):
        listener = Listener()
        listener.gate.set()
        events = self.make(Broken(), listener)
        for number in range(3):
            events.put(EventKind.CLOSE, f"a:{number}")
        events.stop()
        self.assertEqual(len(listener.seen), 3)
        self.assertEqual(len([event for event in self.logged if "listener" in event]), 1)

    def test_events_without_listener_start_no_thread(self):
        events = self.make()
        events.put(EventKind.CONNECT, "a:0")
        self.assertNotIn("test-events", [thread.name for thread in threading.enumerate()])

    def test_object_without_listener_interface_is_refused(self):
        self.assertRaises(TypeError, ConnectionEvents("x").add, object())


class Client(Protocol):
    def __init__(self):
        self.lost = Deferred()

    def connectionLost(self, reason=None):
        self.lost.callback(None)


class ServerTests(TestCase):
    async def connect(self, server):
        return await connectProtocol(TCP4ClientEndpoint(reactor, "127.0.0.1", server.port), Client())

    async def test_real_connections_give_events(self):
        self.patch(server_module, "_IDLE_SCAN_SECONDS", 0.02)
        server = RemotingServer(reactor, Dispatcher(reactor.callFromThread), port=0, idle_seconds=0.05)
        listener = Listener()
        listener.gate.set()
        server.events.add(listener)
        server.startService()
        self.addCleanup(server.stopService)
        idle = await self.connect(server)
        address = "{}:{}".format(*idle.transport.socket.getsockname())
        await idle.lost
        bad = await self.connect(server)
        bad.transport.write(b"GET / HTTP/1.1\r\n\r\n")
        await bad.lost
        await server.stopService()
        await deferToThread(server.events.stop)
        kinds = [kind for kind, of, _ in listener.seen if of == address]
        self.assertEqual(kinds, ["CONNECT", "IDLE", "CLOSE"])
        self.assertEqual([kind for kind, of, _ in listener.seen if of != address], ["CONNECT", "EXCEPTION", "CLOSE"])
