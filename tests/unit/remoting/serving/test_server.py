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
from twisted.logger import Logger
from twisted.trial.unittest import SynchronousTestCase, TestCase
from zope.interface import implementer

from rocketd.remoting.interfaces import IRequestProcessor
from rocketd.remoting.limits.limit_log import LimitLog
from rocketd.remoting.serving.dispatch import Dispatcher
from rocketd.remoting.serving.server import ListenError, RemotingServer
from rocketd.remoting.serving.settings import ServerLimits
from rocketd.remoting.serving.third_party.running_calls import PROCESSOR
from rocketd.remoting.settings import TlsConfig
from rocketd.remoting.socket_buffers import WriteMarks
from rocketd.remoting.tls.contexts import ClientTLS
from rocketd.remoting.tls.port import wrap_server_factory
from rocketd.remoting.wire.command import ONEWAY_FLAG, RemotingCommand
from rocketd.remoting.wire.frame import FrameDecoder

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
    async def test_requests_are_answered(self):
        self.start()
        client = await self.connect()
        client.send(*[RemotingCommand(CODE, {"size": "3"}, opaque=n) for n in range(10)])
        await client.got(10)
        self.assertEqual([answer.opaque for answer in client.answers], list(range(10)))
        self.assertEqual(client.answers[7].body, b"\7\7\7")

    async def test_listen_opens_additional_port(self):
        self.start()
        client = await self.connect(self.server.listen(0))
        client.send(RemotingCommand(CODE))
        await client.got(1)

    async def test_lost_connection_ends_wait_for_plugins(self):
        self.start()
        client = await self.connect()
        client.send(RemotingCommand(CODE))
        await client.got(1)
        (connection,) = self.server.connections
        calls = self.dispatcher.plugin_calls
        calls.leave(calls.begin(PROCESSOR, "theirs", "code 1"), connection)
        self.assertEqual(len(calls.busy()), 1)
        client.transport.loseConnection()
        await client.closed
        while self.server.connections:
            await deferLater(reactor, 0.001)
        self.assertEqual(calls.busy(), [])

    async def test_listeners_are_called_for_lost_connection(self):
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

    async def test_port_in_use_is_named_in_error(self):
        self.start()
        other = RemotingServer(
            reactor, Dispatcher(reactor.callFromThread), port=self.server.port, interface="127.0.0.1"
        )
        error = self.assertRaises(ListenError, other.startService)
        self.assertIn(f"cannot listen on port {self.server.port}: it is in use", str(error))
        await other.stopService()

    async def test_slow_reader_delays_no_other_and_gets_everything(self):
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
        # Not only the moment above the limit: the socket's buffer may grow, and take some of the bytes again.
        while not connection.behind:
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
        self.assertEqual(sorted(seen), [(opaque, True) for opaque in range(count)])

    async def test_pipelined_requests_of_non_reading_peer_are_not_executed(self):
        await self.read_nothing(1 << 20, limits=ServerLimits(server_unsent_max_bytes_per_connection=1 << 20))

    async def test_water_marks_replace_connection_limit(self):
        await self.read_nothing(1 << 21, marks=WriteMarks.of(1 << 21, 1 << 20))
        self.assertEqual(WriteMarks.of(1 << 20, 0), WriteMarks())
        self.assertEqual(WriteMarks.of(1, 2), WriteMarks())

    async def read_nothing(self, limit, **options):
        size, count = 1 << 18, 400
        self.start(**options)
        greedy = socket.create_connection(("127.0.0.1", self.server.port))
        self.addCleanup(greedy.close)
        request = RemotingCommand(CODE, {"size": str(size)})
        request.opaque = 7
        greedy.sendall(request.encode() * count)
        while not self.server.connections:
            await deferLater(reactor, 0.001)
        (connection,) = self.server.connections
        pool = self.dispatcher.pool("p")
        while not connection._parked or pool.queued_requests:
            await deferLater(reactor, 0.001)
        self.assertLess(self.server.unsent.total, limit + 3 * size)
        self.assertEqual(self.server.unsent.total, connection.unsent_memory)
        quick = await self.connect()
        quick.send(RemotingCommand(CODE, opaque=1))
        await quick.got(1)
        greedy.settimeout(WAIT_SECONDS)

        def read_all():
            decoder, seen = FrameDecoder(), 0
            while seen < count:
                seen += len(decoder.feed(greedy.recv(1 << 20)))

        await deferToThread(read_all)
        greedy.sendall(request.encode())
        count = 1
        await deferToThread(read_all)
        while self.server.unsent.total:
            await deferLater(reactor, 0.001)
        self.assertFalse(connection._pauses)

    async def test_slowest_reader_is_closed_above_total_unsent_limit(self):
        size, limit = 1 << 20, 4 << 20
        self.start(limits=ServerLimits(server_unsent_max_bytes_in_all=limit))
        honest = await self.connect()
        greedy = [socket.create_connection(("127.0.0.1", self.server.port)) for _ in range(3)]
        for each in greedy:
            self.addCleanup(each.close)
            each.sendall(RemotingCommand(CODE, {"size": str(size)}, opaque=7).encode() * 7)
        while not self.dispatcher.limits.counts.get("unsent answers dropped"):
            await deferLater(reactor, 0.001)
        honest.send(RemotingCommand(CODE, opaque=1))
        await honest.got(1)
        while self.server.unsent.total > limit:
            await deferLater(reactor, 0.001)
        self.assertLess(len(self.server.connections), 4)
        self.assertEqual(self.server.unsent.total, sum(each.unsent_memory for each in self.server.connections))

    async def test_incomplete_frames_are_bounded_and_complete_ones_pass(self):
        limit = 4 << 20
        self.start(limits=ServerLimits(server_incomplete_frames_max_bytes=limit))
        frame = RemotingCommand(CODE, body=bytes(1 << 20)).encode()
        slow = [socket.create_connection(("127.0.0.1", self.server.port)) for _ in range(8)]
        for each in slow:
            self.addCleanup(each.close)
            await deferToThread(each.sendall, frame[:-1])
            self.assertLessEqual(self.server.frames.total, limit)
        while self.dispatcher.limits.counts.get("incomplete frames dropped", 0) < 5:
            await deferLater(reactor, 0.001)
        quick = await self.connect()
        quick.transport.write(frame)
        await quick.got(1)
        self.assertLessEqual(self.server.frames.total, limit)
        for each in slow:
            each.close()
        while self.server.frames.total:
            await deferLater(reactor, 0.001)


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

    async def test_ipv6_only_system_listens_on_ipv4_too(self):
        self.start(interface=None, on=Strict())
        for host in ("127.0.0.1", "::1"):
            client = await connectProtocol(HostnameEndpoint(reactor, host, self.server.port), Client())
            client.send(RemotingCommand(CODE))
            await client.got(1)
            client.transport.loseConnection()

    test_ipv6_only_system_listens_on_ipv4_too.skip = test_both_families_reach_one_port.skip

    async def test_system_without_ipv6_serves_ipv4(self):
        self.start(interface=None, on=WithoutIPv6())
        client = await self.connect()
        client.send(RemotingCommand(CODE))
        await client.got(1)


class StopTests(ServerTestCase):
    async def test_stop_answers_queued_requests_before_close(self):
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

    async def test_stop_logs_counts_of_suppressed_limit_lines(self):
        self.start()
        lines = []
        self.dispatcher.answers.limits = LimitLog(Logger(observer=lines.append))
        for _ in range(3):
            self.dispatcher.limits.reached("a limit", "text")
        await self.server.stopService()
        self.assertEqual([(line["kind"], line["count"]) for line in lines[1:]], [("a limit", 2)])

    async def test_stop_refuses_new_connections(self):
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

    async def test_unfinished_handshake_is_closed(self):
        limits = ServerLimits(server_handshake_timeout_millis=200)
        self.start(wrap=wrap_server_factory(TlsConfig(), reactor), limits=limits)
        good = await self.connect(tls=ClientTLS(TlsConfig()))
        good.send(RemotingCommand(CODE, opaque=0))
        await good.got(1)
        stalled = await self.connect()
        stalled.transport.write(b"\x16\x03\x01\x02\x00")
        await stalled.closed
        good.send(RemotingCommand(CODE, opaque=1))
        await good.got(2)
        self.assertEqual(self.dispatcher.limits.counts, {"TLS handshakes too slow": 1})

    async def test_slow_reader_over_tls_gets_everything(self):
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

    async def test_stop_over_tls_answers_queued_requests_before_close(self):
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

    def test_silent_connection_is_closed_and_active_one_is_not(self):
        silent, talking = self.connect(), self.connect()
        for _ in range(24):
            self.reactor.advance(5)
            talking[0].dataReceived(RemotingCommand(CODE, flag=ONEWAY_FLAG).encode())
        self.assertFalse(silent[1].disconnected)
        self.reactor.advance(5)
        self.assertTrue(silent[1].disconnected)
        self.assertFalse(talking[1].disconnected)

    def test_memory_of_requests_and_answers_is_sampled_for_its_return(self):
        samples = []
        self.server._memory.sample = lambda held, now: samples.append((held, now))
        self.server.unsent.add(70)
        connection, _ = self.connect()
        connection.dataReceived(RemotingCommand(CODE).encode()[:9])
        self.reactor.advance(5)
        self.assertEqual(samples, [(70 + self.server.frames.total, 5)])

    def test_suppressed_limit_lines_are_counted_after_a_minute(self):
        lines = []
        self.server.dispatcher.answers.limits = LimitLog(Logger(observer=lines.append), self.reactor.seconds)
        for _ in range(3):
            self.server.dispatcher.limits.reached("a limit", "text")
        self.assertEqual(len(lines), 1)
        self.reactor.pump([5] * 13)
        self.assertEqual([(line["kind"], line["count"]) for line in lines[1:]], [("a limit", 2)])

    def test_full_server_closes_silent_or_quietest_connection_of_busiest_address(self):
        admission = self.server.admission
        admission.max_connections = 3
        made = []
        for _ in range(3):
            connection = self.server.make_connection(admission.admit("10.0.0.1"))
            connection.makeConnection(StringTransport())
            made.append(connection)
        made[0].dataReceived(RemotingCommand(CODE, flag=ONEWAY_FLAG).encode())
        self.assertEqual(admission.admit("10.0.0.2"), "10.0.0.2")
        self.assertEqual([each.transport.disconnected for each in made], [False, True, False])
        made[1].connectionLost()
        self.assertEqual(admission.connections, 3, "its place is counted once")
        self.reactor.advance(1)
        made[2].dataReceived(RemotingCommand(CODE, flag=ONEWAY_FLAG).encode())
        self.assertEqual(admission.admit("10.0.0.3"), "10.0.0.3")
        self.assertEqual([each.transport.disconnected for each in made], [True, True, False])
        self.assertIsNone(admission.admit("10.0.0.4"), "each address has one")

    def test_incomplete_frame_then_silence_closes_connection(self):
        connection, transport = self.connect()
        connection.dataReceived(RemotingCommand(CODE).encode()[:9])
        self.reactor.pump([5] * 25)
        self.assertTrue(transport.disconnected)

    def test_trickled_frame_is_closed_and_slow_large_frame_is_not(self):
        slow, trickle = self.connect(), self.connect()
        frame = RemotingCommand(CODE, body=bytes(4 << 20), flag=ONEWAY_FLAG).encode()
        for byte, at in enumerate(range(0, len(frame), 50_000)):  # 10 KB/s
            self.reactor.advance(5)
            slow[0].dataReceived(frame[at : at + 50_000])
            if not trickle[1].disconnected:
                trickle[0].dataReceived(frame[byte : byte + 1])
            if self.reactor.seconds() == 25:
                self.assertFalse(trickle[1].disconnected)
        self.assertTrue(trickle[1].disconnected)
        self.assertFalse(slow[1].disconnected)
        self.assertEqual(self.server.frames.total, 0)
        self.assertEqual(self.server.dispatcher.limits.counts["frames too slow"], 1)

    def test_paused_reading_does_not_count_as_slow_frame(self):
        connection, transport = self.connect()
        connection.dataReceived(RemotingCommand(CODE, body=bytes(1000)).encode()[:500])
        connection.pause_reading("a pool")
        self.reactor.pump([5] * 20)
        self.assertFalse(transport.disconnected)
        connection.resume_reading("a pool")
        self.reactor.pump([5] * 8)
        self.assertTrue(transport.disconnected)


class ListenErrorTests(SynchronousTestCase):
    def test_listen_error_names_foreign_address(self):
        server = RemotingServer(reactor, Dispatcher(Clock().callLater), port=0, interface="192.0.2.1")
        error = self.assertRaises(ListenError, server.listen)
        cause = "cannot listen on 192.0.2.1: it is not an address of this machine"
        self.assertEqual(str(error), f"{cause}; set another bindAddress, or another --host of rocketd up")

    def test_listen_error_names_other_reasons(self):
        error = ListenError(80, CannotListenError("", 80, OSError(errno.EACCES, "Permission denied")))
        self.assertEqual(str(error), "cannot listen on port 80: Permission denied; set another listenPort")
        self.assertTrue(error.advise("--port").endswith("; set another --port"))
