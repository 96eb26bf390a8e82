"""Writes of a client connection to a peer that does not always read."""

from twisted.internet import reactor
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.endpoints import TCP4ServerEndpoint
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import deferLater
from twisted.trial.unittest import TestCase

from rocketd.remoting.calling.client import RemotingClient
from rocketd.remoting.calling.client_connection import MAX_JOINED
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.remoting.wire.frame import FrameDecoder

COUNT = 60
SIZE = 200_000


class Peer(Protocol):
    """Reads when it is told to; fires ``done`` when it has as many commands as it waits for."""

    def __init__(self, factory):
        self.factory = factory
        self.decoder = FrameDecoder()
        self.got = []

    def connectionMade(self):
        self.transport.pauseProducing()
        self.factory.peer = self
        self.factory.connected.callback(self)

    def dataReceived(self, data):
        self.got += [RemotingCommand.decode(frame) for frame in self.decoder.feed(data)]
        if len(self.got) >= self.wanted and not self.done.called:
            self.done.callback(None)

    def read(self, wanted):
        self.wanted, self.done = wanted, Deferred()
        self.transport.resumeProducing()
        if len(self.got) >= wanted:
            self.done.callback(None)
        return self.done.addTimeout(60, reactor)


class CountingSocket:
    """A socket that counts writes."""

    def __init__(self, opened):
        self.opened = opened
        self.writes = 0

    def send(self, data):
        self.writes += 1
        return self.opened.send(data)


class ConnectedCase(TestCase):
    async def connect(self):
        factory = Factory.forProtocol(Protocol)
        factory.protocol = lambda: Peer(factory)
        factory.connected = Deferred()
        port = await TCP4ServerEndpoint(reactor, 0, interface="127.0.0.1").listen(factory)
        self.addCleanup(port.stopListening)
        client = RemotingClient(reactor)
        client.startService()
        self.addCleanup(client.stopService)
        connection = await client.connection_to(f"127.0.0.1:{port.getHost().port}")
        return connection, await factory.connected


class JoinedWritesTests(ConnectedCase):
    async def counted(self):
        connection, peer = await self.connect()
        connection._socket = CountingSocket(connection._socket)
        return connection, peer

    def send(self, connection, numbers):
        for number in numbers:
            connection.send(RemotingCommand(34, body=b"%d" % number))

    def test_commands_of_one_turn_are_written_as_two(self):
        async def run():
            connection, peer = await self.counted()
            self.send(connection, range(1))
            self.assertEqual(connection._socket.writes, 1)
            self.send(connection, range(1, 20))
            self.assertEqual(connection._socket.writes, 1)
            await peer.read(20)
            self.assertEqual(connection._socket.writes, 2)
            self.assertEqual([int(command.body) for command in peer.got], list(range(20)))

        return Deferred.fromCoroutine(run())

    def test_command_after_received_bytes_is_written_at_once_unless_others_wait(self):
        async def run():
            connection, peer = await self.counted()
            self.send(connection, range(2))
            connection.dataReceived(b"")
            self.send(connection, range(2, 4))
            self.assertEqual(connection._socket.writes, 1)
            await peer.read(4)
            connection.dataReceived(b"")
            self.send(connection, range(4, 5))
            self.assertEqual(connection._socket.writes, 3)
            await peer.read(5)
            self.assertEqual([int(command.body) for command in peer.got], list(range(5)))

        return Deferred.fromCoroutine(run())

    def test_much_is_written_before_the_turn_ends(self):
        async def run():
            connection, peer = await self.counted()
            for _ in range(9):
                connection.send(RemotingCommand(34, body=bytes(MAX_JOINED // 4)))
            self.assertGreater(connection._socket.writes, 1)
            await peer.read(9)

        return Deferred.fromCoroutine(run())

    def test_closing_connection_writes_waiting_commands(self):
        async def run():
            connection, peer = await self.counted()
            self.send(connection, range(20))
            connection.close()
            await peer.read(20)
            self.assertEqual([int(command.body) for command in peer.got], list(range(20)))

        return Deferred.fromCoroutine(run())

    def test_aborted_connection_leaves_no_timer(self):
        async def run():
            connection, _ = await self.counted()
            self.send(connection, range(20))
            connection.abort()
            while not connection.closed:
                await deferLater(reactor, 0.01)
            self.assertIsNone(connection._joining)
            self.send(connection, range(20))
            self.assertEqual((connection._joined, connection._socket), ([], None))

        return Deferred.fromCoroutine(run())


class BackPressureTests(ConnectedCase):
    def test_writes_to_slow_peer_arrive_later_and_in_order(self):
        async def run():
            connection, peer = await self.connect()
            bodies = [bytes([number]) * SIZE for number in range(COUNT)]
            written = [connection.send(RemotingCommand(34, body=body)) for body in bodies]
            self.assertIsNone(written[0])
            waiting = [one for one in written if one is not None]
            self.assertTrue(waiting)
            self.assertFalse(any(one.called for one in waiting))
            await peer.read(COUNT)
            await gatherResults(waiting)
            self.assertEqual([command.body for command in peer.got], bodies)
            self.assertIsNone(connection.send(RemotingCommand(34, body=b"the last")))
            await peer.read(COUNT + 1)
            self.assertEqual(peer.got[-1].body, b"the last")

        return Deferred.fromCoroutine(run())

    def test_lost_connection_fires_waiting_writes(self):
        async def run():
            connection, peer = await self.connect()
            waiting = None
            while waiting is None:
                waiting = connection.send(RemotingCommand(34, body=bytes(SIZE)))
            peer.transport.abortConnection()
            await waiting.addTimeout(60, reactor)
            self.assertTrue(connection.closed)

        return Deferred.fromCoroutine(run())
