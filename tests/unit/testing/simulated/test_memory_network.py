"""Connections in the memory of a process, and timers of a time that is put forward."""

from twisted.internet.defer import Deferred
from twisted.internet.endpoints import TCP4ClientEndpoint
from twisted.internet.error import CannotListenError, ConnectionAborted, ConnectionDone, ConnectionLost
from twisted.internet.error import ConnectionRefusedError as RefusedError
from twisted.internet.protocol import Factory
from twisted.internet.task import LoopingCall
from twisted.trial.unittest import SynchronousTestCase

from rocketd.testing.simulated.memory_network import MemoryNetwork
from rocketd.testing.simulated.memory_transport import PIECE, WINDOW
from rocketd.testing.simulated.virtual_time import VirtualReactor, VirtualTime
from tests.support.turns import Recorder, Turns


class Producer:
    """Pushes pieces until it is paused."""

    def __init__(self, transport, left):
        self.transport = transport
        self.left = left
        self.paused = self.stopped = False

    def resumeProducing(self):
        self.paused = False
        while self.left and not self.paused:
            self.left -= 1
            self.transport.write(bytes(PIECE))
        if not self.left:
            self.transport.unregisterProducer()

    def pauseProducing(self):
        self.paused = True

    def stopProducing(self):
        self.stopped = True


class NetworkTestCase(SynchronousTestCase):
    def setUp(self):
        self.turns = Turns()
        self.network = MemoryNetwork()
        self.reactor = VirtualReactor(self.turns, VirtualTime(), self.network)
        self.accepted = []

    def listen(self, number=0):
        def accept():
            self.accepted.append(Recorder())
            return self.accepted[-1]

        factory = Factory.forProtocol(accept)
        factory.noisy = False
        return self.reactor.listenTCP(number, factory)

    def connect(self, port, reactor=None):
        factory = Factory.forProtocol(Recorder)
        factory.noisy = False
        connecting = TCP4ClientEndpoint(reactor or self.reactor, "127.0.0.1", port).connect(factory)
        self.turns.settle()
        return connecting

    def connected(self):
        port = self.listen()
        client = self.successResultOf(self.connect(port.getHost().port))
        return client, self.accepted[0]


class ConnectionTests(NetworkTestCase):
    def test_bytes_go_both_ways(self):
        client, server = self.connected()
        self.assertEqual(client.transport.getPeer(), server.transport.getHost())
        self.assertEqual(server.transport.getPeer(), client.transport.getHost())
        client.transport.write(b"ask")
        client.transport.writeSequence([b"ed", b" twice"])
        server.transport.write(b"answer")
        self.turns.settle()
        self.assertEqual((server.data, client.data), (b"asked twice", b"answer"))

    def test_pieces(self):
        client, server = self.connected()
        client.transport.write(bytes(3 * PIECE + 1))
        self.turns.settle()
        self.assertEqual(sum(server.sizes), 3 * PIECE + 1)
        self.assertLessEqual(max(server.sizes), PIECE)

    def test_close_arrives_after_all_written_bytes(self):
        client, server = self.connected()
        client.transport.write(bytes(5 * WINDOW))
        client.transport.loseConnection()
        self.turns.settle()
        self.assertEqual(len(server.data), 5 * WINDOW)
        self.assertIs(server.lost, ConnectionDone)
        self.assertIs(client.lost, ConnectionDone)

    def test_abort_arrives_at_once(self):
        client, server = self.connected()
        server.transport.pauseProducing()
        client.transport.write(b"lost")
        self.turns.settle()
        client.transport.abortConnection()
        server.transport.resumeProducing()
        self.turns.settle()
        self.assertEqual(server.data, b"")
        self.assertIs(server.lost, ConnectionLost)
        server.transport.write(b"to nobody")
        self.turns.settle()

    def test_slow_reader_pauses_the_writer(self):
        client, server = self.connected()
        server.transport.pauseProducing()
        producer = Producer(client.transport, 100)
        client.transport.registerProducer(producer, True)
        producer.resumeProducing()
        self.turns.settle()
        self.assertTrue(producer.paused)
        self.assertGreater(producer.left, 100 - 2 * WINDOW // PIECE)
        server.transport.resumeProducing()
        self.turns.settle()
        self.assertEqual(producer.left, 0)
        self.assertEqual(len(server.data), 100 * PIECE)

    def test_lost_reader_stops_the_producer(self):
        client, server = self.connected()
        server.transport.pauseProducing()
        producer = Producer(client.transport, 100)
        client.transport.registerProducer(producer, True)
        producer.resumeProducing()
        self.turns.settle()
        server.transport.abortConnection()
        self.turns.settle()
        self.assertTrue(producer.stopped)
        self.assertIsNotNone(client.lost)

    def test_pull_producer_is_asked_for_each_piece(self):
        client, server = self.connected()
        pieces = [b"a", b"b", b"c"]

        class Pulled:
            def resumeProducing(self):
                if pieces:
                    client.transport.write(pieces.pop(0))
                else:
                    client.transport.unregisterProducer()

            def stopProducing(self):
                pass

        client.transport.registerProducer(Pulled(), False)
        self.turns.settle()
        self.assertEqual(server.data, b"abc")

    def test_connection_without_listener_is_refused(self):
        self.failureResultOf(self.connect(4711), RefusedError)
        port = self.listen(4711)
        port.stopListening()
        self.failureResultOf(self.connect(4711), RefusedError)

    def test_a_port_is_taken(self):
        self.listen(4711)
        self.assertRaises(CannotListenError, self.listen, 4711)

    def test_a_connection_is_given_up(self):
        port = self.listen()
        factory = Factory.forProtocol(Recorder)
        connecting = TCP4ClientEndpoint(self.reactor, "127.0.0.1", port.getHost().port).connect(factory)
        connecting.cancel()
        self.turns.settle()
        self.failureResultOf(connecting)
        self.assertEqual(self.accepted, [])

    def connected_from_elsewhere(self):
        """The client has a reactor of its own."""
        port = self.listen()
        theirs = VirtualReactor(self.turns, VirtualTime(), self.network)
        client = self.successResultOf(self.connect(port.getHost().port, theirs))
        return client, self.accepted[0], theirs

    def test_cut_off_reactor_loses_made_connections(self):
        client, server, theirs = self.connected_from_elsewhere()
        number = client.transport.getPeer().port
        theirs.cut_off()
        self.turns.settle()
        self.assertIs(client.lost, ConnectionAborted)
        self.assertIs(server.lost, ConnectionLost)
        self.failureResultOf(self.connect(number, theirs), RefusedError)

    def test_cut_off_reactor_loses_accepted_connections(self):
        client, server, _ = self.connected_from_elsewhere()
        self.reactor.cut_off()
        self.turns.settle()
        self.assertIs(client.lost, ConnectionLost)
        self.assertIs(server.lost, ConnectionAborted)


class TimeTests(SynchronousTestCase):
    def setUp(self):
        self.turns = Turns()
        self.time = VirtualTime()
        self.reactor = VirtualReactor(self.turns, self.time, MemoryNetwork())
        self.called = []

    def jump(self, seconds):
        self.time.jump_to(self.time.seconds() + seconds + 0.001)
        self.reactor.wake()
        self.turns.advance(0)

    def later(self, seconds, name):
        return self.reactor.callLater(seconds, self.called.append, name)

    def test_timers_in_their_order(self):
        with self.time.standing():
            for seconds in (30, 10, 20):
                self.later(seconds, seconds)
            self.reactor.look()
            self.jump(25)
            self.assertEqual(self.called, [10, 20])
            self.jump(5)
            self.assertEqual(self.called, [10, 20, 30])

    def test_a_timer_cancelled_put_off_and_put_forward(self):
        with self.time.standing():
            cancelled, off, forward = self.later(5, "cancelled"), self.later(5, "off"), self.later(50, "forward")
            self.reactor.look()
            cancelled.cancel()
            off.reset(20)
            forward.reset(2)
            self.jump(6)
            self.assertEqual(self.called, ["forward"])
            self.jump(20)
            self.assertEqual(self.called, ["forward", "off"])

    def test_real_reactor_has_a_timer_only_while_calls_wait(self):
        call = self.later(5, "x")
        self.assertEqual(len(self.turns.calls), 1)
        self.later(1, "y").cancel()
        self.assertEqual(len(self.turns.calls), 1)
        call.cancel()
        self.assertEqual(self.turns.calls, [])
        self.assertFalse(self.reactor.in_use)

    def test_looping_call_runs_once_for_all_missed_turns(self):
        loop = LoopingCall(lambda: self.called.append("loop"))
        loop.clock = self.reactor
        loop.start(1, now=False)
        with self.time.standing():
            self.reactor.look()
            self.jump(10.5)
            self.assertEqual(self.called, ["loop"])
            self.assertIsNone(self.reactor.look().next_due)
        loop.stop()

    def test_timer_unseen_before_a_jump_starts_after_it(self):
        with self.time.standing():
            self.later(3, "known")
            self.reactor.look()
            self.later(3, "fresh")
            self.jump(8)
            self.assertEqual(self.called, ["known"])
            self.jump(3)
            self.assertEqual(self.called, ["known", "fresh"])

    def test_failing_timer_is_logged_and_others_run(self):
        with self.time.standing():
            self.reactor.callLater(1, lambda: 1 / 0)
            self.later(2, "behind")
            self.reactor.look()
            self.jump(3)
        self.assertEqual(self.called, ["behind"])
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_time_continues_where_it_stood(self):
        with self.time.standing():
            begin = self.time.seconds()
            self.assertEqual(self.time.seconds(), begin)
            self.assertAlmostEqual(self.time.jump_to(begin + 100), 100)
            self.assertEqual(self.time.jump_to(begin), 0)
        self.assertLess(begin + 100, self.time.seconds())
        self.assertAlmostEqual(self.time.jumped, 100)

    def test_deferreds_of_the_reactor_are_those_of_its_time(self):
        waiting = Deferred().addTimeout(60, self.reactor)
        with self.time.standing():
            self.reactor.look()
            self.jump(59)
            self.assertNoResult(waiting)
            self.jump(1)
        self.failureResultOf(waiting)
