"""The listening server on real loopback ports: serving, stopping in order, idle connections, slow readers."""

import errno
import socket
from threading import Event

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import HostnameEndpoint, TCP4ClientEndpoint, connectProtocol, wrapClientTLS
from twisted.internet.error import CannotListenError
from twisted.internet.protocol import Protocol
from twisted.internet.task import Clock, deferLater
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import SynchronousTestCase, TestCase
from zope.interface import implementer

from rocketd.remoting.command import RemotingCommand
from rocketd.remoting.connection import OUTBOUND_LIMIT
from rocketd.remoting.dispatch import Dispatcher
from rocketd.remoting.frame import FrameDecoder
from rocketd.remoting.interfaces import IRequestProcessor
from rocketd.remoting.server import ListenError, RemotingServer
from rocketd.remoting.settings import TlsConfig
from rocketd.remoting.tls import ClientTLS
from rocketd.remoting.tls_port import wrap_server_factory

CODE = 105
WAIT_SECONDS = 60


class Client(Protocol):
    """Collects answers."""

    def __init__(self):
        self.answers = []
        self.closed = Deferred()
        self._decoder = FrameDecoder()
        self._wanted = 0
        self._enough = None

    def send(self, *commands):
        self.transport.write(b"".join(command.encode() for command in commands))

    def got(self, count):
        """Fire when that many answers have come."""
        self._wanted, self._enough = count, Deferred()
        self._enough.addTimeout(WAIT_SECONDS, reactor)
        result = self._enough
        self._look()
        return result

    def dataReceived(self, data):
        self.answers += map(RemotingCommand.decode, self._decoder.feed(data))
        self._look()

    def _look(self):
        if self._enough is not None and len(self.answers) >= self._wanted:
            enough, self._enough = self._enough, None
            enough.callback(None)

    def connectionLost(self, reason=None):
        self.closed.callback(None)


@implementer(IRequestProcessor)
class Processor:
    """Answers with a body of the size asked for, when the gate is open."""

    def __init__(self):
        self.gate = Event()
        self.gate.set()
        self.entered = Event()
        self.count = 0

    def process(self, request, context):
        self.entered.set()
        self.gate.wait(WAIT_SECONDS)
        self.count += 1
        size = int((request.ext_fields or {}).get("size", 0))
        return RemotingCommand.response(body=bytes([request.opaque % 256]) * size)


class Listener:
    def __init__(self):
        self.lost = []

    def connection_lost(self, connection):
        self.lost.append(connection)


class OtherReactor:
    """The reactor, on a system that opens ports differently."""

    def __getattr__(self, name):
        return getattr(reactor, name)


class WithoutIPv6(OtherReactor):
    def listenTCP(self, port, factory, backlog, interface):  # noqa: N802 - the name is Twisted's
        if ":" in interface:
            raise CannotListenError(interface, port, OSError(errno.EAFNOSUPPORT, "Address family not supported"))
        return reactor.listenTCP(port, factory, backlog, interface)


class Strict(OtherReactor):
    """As with net.ipv6.bindv6only = 1."""

    def listenTCP(self, port, factory, backlog, interface):  # noqa: N802 - the name is Twisted's
        if ":" not in interface:
            return reactor.listenTCP(port, factory, backlog, interface)
        opened = socket.socket(socket.AF_INET6)
        opened.setblocking(False)
        opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        opened.bind((interface, port))
        opened.listen(backlog)
        try:
            return reactor.adoptStreamPort(opened.fileno(), socket.AF_INET6, factory)
        finally:
            opened.close()


def has_ipv6():
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


class ServerTestCase(TestCase):
    timeout = 60

    def start(self, *, on=reactor, **options):
        self.processor = Processor()
        self.dispatcher = Dispatcher(reactor.callFromThread)
        self.dispatcher.register(CODE, self.processor, "p")
        self.server = RemotingServer(on, self.dispatcher, **{"port": 0, "interface": "127.0.0.1", **options})
        self.listener = Listener()
        self.server.listeners.append(self.listener)
        self.server.startService()
        self.addCleanup(self.server.stopService)
        self.addCleanup(self.processor.gate.set)

    async def connect(self, port=None, tls=None):
        endpoint = TCP4ClientEndpoint(reactor, "127.0.0.1", port or self.server.port)
        if tls is not None:
            endpoint = wrapClientTLS(tls.connection_creator("127.0.0.1"), endpoint)
        client = await connectProtocol(endpoint, Client())
        self.addCleanup(lambda: client.closed.called or client.transport.abortConnection())
        return client


class ServeTests(ServerTestCase):
    async def test_answers(self):
        self.start()
        client = await self.connect()
        client.send(*[RemotingCommand(CODE, {"size": "3"}, opaque=n) for n in range(10)])
        await client.got(10)
        self.assertEqual([answer.opaque for answer in client.answers], list(range(10)))
        self.assertEqual(client.answers[7].body, b"\7\7\7")

    async def test_one_more_port(self):
        self.start()
        client = await self.connect(self.server.listen(0))
        client.send(RemotingCommand(CODE))
        await client.got(1)

    async def test_listeners_hear_of_a_lost_connection(self):
        self.start()
        client = await self.connect()
        client.send(RemotingCommand(CODE))
        await client.got(1)
        (connection,) = self.server.connections
        client.transport.loseConnection()
        await client.closed
        while self.server.connections:
            await deferLater(reactor, 0.001)
        self.assertEqual(self.listener.lost, [connection])
        self.assertTrue(connection.closed)

    async def test_a_port_in_use_is_an_error_that_says_so(self):
        self.start()
        other = RemotingServer(
            reactor, Dispatcher(reactor.callFromThread), port=self.server.port, interface="127.0.0.1"
        )
        error = self.assertRaises(ListenError, other.startService)
        self.assertIn(f"cannot listen on port {self.server.port}: it is in use", str(error))
        await other.stopService()

    async def test_a_slow_reader_holds_up_nobody_and_gets_everything(self):
        self.start()
        size, count = 1 << 20, 64
        slow = socket.create_connection(("127.0.0.1", self.server.port))
        self.addCleanup(slow.close)
        request = RemotingCommand(CODE, {"size": str(size)})
        for opaque in range(count):
            request.opaque = opaque
            slow.sendall(request.encode())
            await deferLater(reactor, 0)
        (connection,) = self.server.connections
        while connection._outbound_bytes <= OUTBOUND_LIMIT:
            await deferLater(reactor, 0.001)
        quick = await self.connect()
        for opaque in range(count):
            quick.send(RemotingCommand(CODE, opaque=opaque))
            await quick.got(opaque + 1)
        slow.settimeout(WAIT_SECONDS)

        def read_all():
            decoder, seen = FrameDecoder(), []
            while len(seen) < count:
                for frame in decoder.feed(slow.recv(1 << 20)):
                    answer = RemotingCommand.decode(frame)
                    seen.append((answer.opaque, answer.body == bytes([answer.opaque]) * size))
            return seen

        seen = await deferToThread(read_all)
        self.assertEqual(seen, [(opaque, True) for opaque in range(count)])


class FamiliesTests(ServerTestCase):
    async def test_both_families_reach_one_port(self):
        self.start(interface=None)
        for host, address in (("127.0.0.1", "127.0.0.1:{}"), ("::1", "[::1]:{}")):
            client = await connectProtocol(HostnameEndpoint(reactor, host, self.server.port), Client())
            client.send(RemotingCommand(CODE))
            await client.got(1)
            (connection,) = self.server.connections
            mine = client.transport.getHost()
            self.assertEqual(connection.address, address.format(mine.port))
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            self.assertEqual(connection.host, socket.inet_pton(family, host) + mine.port.to_bytes(4, "big"))
            client.transport.loseConnection()
            await client.closed
            while self.server.connections:
                await deferLater(reactor, 0.001)

    test_both_families_reach_one_port.skip = None if has_ipv6() else "no IPv6 on this machine"

    async def test_a_system_that_gives_ipv6_only_is_asked_for_ipv4_too(self):
        self.start(interface=None, on=Strict())
        for host in ("127.0.0.1", "::1"):
            client = await connectProtocol(HostnameEndpoint(reactor, host, self.server.port), Client())
            client.send(RemotingCommand(CODE))
            await client.got(1)
            client.transport.loseConnection()

    test_a_system_that_gives_ipv6_only_is_asked_for_ipv4_too.skip = test_both_families_reach_one_port.skip

    async def test_a_system_without_ipv6_serves_ipv4(self):
        self.start(interface=None, on=WithoutIPv6())
        client = await self.connect()
        client.send(RemotingCommand(CODE))
        await client.got(1)


class StopTests(ServerTestCase):
    async def test_what_is_queued_is_answered_before_the_close(self):
        self.start()
        clients = [await self.connect() for _ in range(3)]
        self.processor.gate.clear()
        for client in clients:
            client.send(*[RemotingCommand(CODE, {"size": "200000"}, opaque=n) for n in range(20)])
        pool = self.dispatcher.pool("p")
        while pool.queued_requests < 60:
            await deferLater(reactor, 0.001)
        stopping = self.server.stopService()
        self.assertFalse(stopping.called)
        self.processor.gate.set()
        await stopping
        for client in clients:
            await client.closed
            self.assertEqual([answer.opaque for answer in client.answers], list(range(20)))
        self.assertEqual(self.server.connections, {})
        self.assertEqual(len(self.listener.lost), 3)

    async def test_no_connection_is_accepted_while_it_stops(self):
        self.start()
        client = await self.connect()
        self.processor.gate.clear()
        client.send(RemotingCommand(CODE))
        self.assertTrue(await deferToThread(self.processor.entered.wait, WAIT_SECONDS))
        stopping = self.server.stopService()
        with self.assertRaises(ConnectionRefusedError):
            for _ in range(1000):  # the port closes with the reactor's next turn
                (await deferToThread(socket.create_connection, ("127.0.0.1", self.server.port))).close()
        self.assertFalse(stopping.called)
        self.processor.gate.set()
        await stopping

    async def test_start_twice_and_stop_twice(self):
        self.start()
        self.server.startService()
        client = await self.connect()
        client.send(RemotingCommand(CODE))
        await client.got(1)
        first = self.server.stopService()
        second = self.server.stopService()
        await second
        await first
        await self.server.stopService()
        await client.closed

    async def test_start_again_after_a_stop(self):
        self.start()
        await self.server.stopService()
        self.server.startService()
        client = await self.connect()
        client.send(RemotingCommand(CODE))
        await client.got(1)

    async def test_stop_without_start(self):
        await RemotingServer(reactor, Dispatcher(reactor.callFromThread), port=0).stopService()


class TLSTests(ServerTestCase):
    """The same over TLS, where the reactor does all the writing."""

    async def start_tls(self):
        self.start(wrap=wrap_server_factory(TlsConfig(), reactor))
        return await self.connect(tls=ClientTLS(TlsConfig()))

    async def test_plain_and_tls_side_by_side(self):
        secret = await self.start_tls()
        plain = await self.connect()
        for client in (secret, plain):
            client.send(*[RemotingCommand(CODE, {"size": "100000"}, opaque=n) for n in range(30)])
        for client in (secret, plain):
            await client.got(30)
            self.assertEqual([answer.opaque for answer in client.answers], list(range(30)))

    async def test_a_slow_reader_gets_everything(self):
        client = await self.start_tls()
        client.send(RemotingCommand(CODE, opaque=0))
        await client.got(1)
        client.transport.pauseProducing()
        (connection,) = self.server.connections
        for opaque in range(1, 24):
            client.send(RemotingCommand(CODE, {"size": str(1 << 20)}, opaque=opaque))
        while not connection._pauses:
            await deferLater(reactor, 0.001)
        client.transport.resumeProducing()
        await client.got(24)
        self.assertEqual([answer.opaque for answer in client.answers], list(range(24)))
        while connection._pauses:
            await deferLater(reactor, 0.001)

    async def test_what_is_queued_is_answered_before_the_close(self):
        client = await self.start_tls()
        client.send(RemotingCommand(CODE, opaque=0))
        await client.got(1)
        self.processor.gate.clear()
        client.send(*[RemotingCommand(CODE, {"size": "200000"}, opaque=n) for n in range(1, 20)])
        while self.dispatcher.pool("p").queued_requests < 19:
            await deferLater(reactor, 0.001)
        stopping = self.server.stopService()
        self.processor.gate.set()
        await stopping
        await client.closed
        self.assertEqual([answer.opaque for answer in client.answers], list(range(20)))


class IdleTests(SynchronousTestCase):
    """On a Clock and transports in memory."""

    def setUp(self):
        self.reactor = MemoryReactorClock()
        self.server = RemotingServer(self.reactor, Dispatcher(lambda *_: None), port=9876, idle_seconds=120)
        self.server.startService()
        self.addCleanup(self.server.dispatcher.stop)
        self.addCleanup(self.server._idle_scan.stop)

    def connect(self):
        connection = self.server.make_connection()
        transport = StringTransport()
        connection.makeConnection(transport)
        return connection, transport

    def test_silence_is_closed_and_talk_is_not(self):
        silent, talking = self.connect(), self.connect()
        for _ in range(24):
            self.reactor.advance(5)
            talking[0].dataReceived(b"\0\0\0" if talking[0]._decoder.buffered == 0 else b"")
        self.assertFalse(silent[1].disconnected)
        self.reactor.advance(5)
        self.assertTrue(silent[1].disconnected)
        self.assertFalse(talking[1].disconnected)

    def test_half_a_frame_then_silence_is_closed(self):
        connection, transport = self.connect()
        connection.dataReceived(RemotingCommand(CODE).encode()[:9])
        self.reactor.pump([5] * 25)
        self.assertTrue(transport.disconnected)


class ListenErrorTests(SynchronousTestCase):
    def test_other_reasons_are_named(self):
        server = RemotingServer(reactor, Dispatcher(Clock().callLater), port=0, interface="192.0.2.1")
        error = self.assertRaises(ListenError, server.listen)
        self.assertEqual(str(error), "cannot listen on port 0: Cannot assign requested address; set another listenPort")
        self.assertTrue(error.advise("--port").endswith("; set another --port"))
