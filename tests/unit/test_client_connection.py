"""What a connection that we made writes, to a peer that does not always read."""

from twisted.internet import reactor
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.endpoints import TCP4ServerEndpoint
from twisted.internet.protocol import Factory, Protocol
from twisted.trial.unittest import TestCase

from rocketd.remoting.client import RemotingClient
from rocketd.remoting.command import RemotingCommand
from rocketd.remoting.frame import FrameDecoder

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


class BackPressureTests(TestCase):
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

    def test_what_the_peer_does_not_take_is_sent_later_and_in_order(self):
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

    def test_who_waits_is_told_when_the_connection_is_lost(self):
        async def run():
            connection, peer = await self.connect()
            waiting = None
            while waiting is None:
                waiting = connection.send(RemotingCommand(34, body=bytes(SIZE)))
            peer.transport.abortConnection()
            await waiting.addTimeout(60, reactor)
            self.assertTrue(connection.closed)

        return Deferred.fromCoroutine(run())
