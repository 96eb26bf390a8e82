"""Lanes: a pool's thread reads the connections that it serves, and the reactor thread stands in for it.

Real sockets, Twisted's own transports, and real threads; the reactor thread is the test.
"""

import socket
from collections import deque
from threading import Event, get_ident
from time import monotonic, sleep

from twisted.internet.address import IPv4Address
from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.internet.tcp import Server
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from rocketd.remoting.serving.connection import Connection
from rocketd.remoting.serving.dispatch import Dispatcher
from rocketd.remoting.serving.lane import STAND_IN_SECONDS, Lane
from rocketd.remoting.wire.codes import RequestCode
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.remoting.wire.frame import FrameDecoder

WAIT_SECONDS = 60
PEER = IPv4Address("TCP", "127.0.0.1", 4000)


class Home(Clock):
    """The reactor of the test: ``turn`` runs the calls of other threads. ``readers`` are the transports to read from."""

    def __init__(self):
        super().__init__()
        self.readers = set()
        self.writers = set()
        self.thread_calls = deque()

    def seconds(self):
        return monotonic()

    def callFromThread(self, function, *arguments):
        self.thread_calls.append((function, arguments))

    def turn(self):
        while self.thread_calls:
            function, arguments = self.thread_calls.popleft()
            function(*arguments)

    def addReader(self, reader):  # noqa: N802 - the name is Twisted's
        self.readers.add(reader)

    def removeReader(self, reader):  # noqa: N802 - the name is Twisted's
        self.readers.discard(reader)

    def addWriter(self, writer):  # noqa: N802 - the name is Twisted's
        self.writers.add(writer)

    def removeWriter(self, writer):  # noqa: N802 - the name is Twisted's
        self.writers.discard(writer)


class Handler:
    """Answers every request; ``may_go`` holds it up until it is set."""

    def __init__(self):
        self.threads = set()
        self.groups = []
        self.may_go = Event()
        self.may_go.set()
        self.began = Event()

    def process_jobs(self, jobs):
        self.threads.add(get_ident())
        self.groups.append([len(job.frames) for job in jobs])
        self.began.set()
        assert self.may_go.wait(WAIT_SECONDS)
        for job in jobs:
            for frame in job.frames:
                answer = RemotingCommand.response(0)
                answer.opaque = RemotingCommand.decode(frame).opaque
                job.connection.write((answer.encode(),))


class Heartbeats:
    """A processor of another pool."""

    def process_jobs(self, jobs):
        for job in jobs:
            for frame in job.frames:
                answer = RemotingCommand.response(0, "alive")
                answer.opaque = RemotingCommand.decode(frame).opaque
                job.connection.write((answer.encode(),))


class Peer:
    """A client with its connection at the server."""

    def __init__(self, home, dispatcher, lost):
        self.socket, served = socket.socketpair()
        self.socket.settimeout(WAIT_SECONDS)
        served.setblocking(False)
        self._decoder = FrameDecoder()
        self._frames = []
        self.connection = Connection(home, dispatcher.dispatch, lost.append)
        self.transport = _PairServer(served, self.connection, (PEER.host, PEER.port), None, 0, home)
        self.connection.makeConnection(self.transport)
        self.transport.startReading()

    def ask(self, code, *opaques):
        self.socket.sendall(b"".join(RemotingCommand(code, {}, opaque=opaque).encode() for opaque in opaques))

    def read_here(self):
        """Read as the reactor does."""
        self.transport.doRead()

    def answers(self, count):
        while len(self._frames) < count:
            self._frames += self._decoder.feed(self.socket.recv(1 << 16))
        answered, self._frames = self._frames[:count], self._frames[count:]
        return [RemotingCommand.decode(frame).opaque for frame in answered]


class _PairServer(Server):
    def setTcpNoDelay(self, enabled):
        """A pair of sockets does not have it."""

    def getPeer(self):  # noqa: N802 - the name is Twisted's
        return PEER


def wait_until(condition):
    end = monotonic() + WAIT_SECONDS
    while not condition():
        assert monotonic() < end
        sleep(0.001)


SEND, BEAT = RequestCode.SEND_MESSAGE_V2, RequestCode.HEART_BEAT


class LaneTests(SynchronousTestCase):
    def setUp(self):
        self.home = Home()
        self.dispatcher = Dispatcher(self.home.callFromThread)
        self.handler = Handler()
        for code, handler, pool in ((SEND, self.handler, "send"), (BEAT, Heartbeats(), "heartbeat")):
            self.dispatcher._targets[code] = (self.dispatcher.pool(pool), handler)
        self.pool = self.dispatcher.pool("send")
        self.lane = self.pool.loop = Lane(self.pool, self.home)
        self.lost = []
        self.dispatcher.start()
        self.running = True
        self.peers = []
        self.addCleanup(self.close)

    def stop_pools(self):
        self.handler.may_go.set()
        if self.running:
            self.running = False
            self.dispatcher.stop()

    def stop(self):
        self.stop_pools()
        self.home.turn()

    def close(self):
        self.stop()
        for peer in self.peers:
            peer.socket.close()
            peer.transport.connectionLost(Failure(ConnectionDone()))

    def peer(self):
        peer = Peer(self.home, self.dispatcher, self.lost)
        self.peers.append(peer)
        return peer

    def peer_on_lane(self):
        peer = self.peer()
        peer.ask(SEND, 1)
        peer.read_here()
        self.assertEqual(peer.answers(1), [1])
        self.home.turn()
        self.assertIs(peer.connection.lane, self.lane)
        wait_until(lambda: peer.transport in self.lane.reactor.getReaders())
        return peer

    def test_first_request_moves_the_connection_to_the_lane(self):
        peer = self.peer_on_lane()
        self.assertEqual(self.home.readers, set())
        peer.ask(SEND, 2, 3)
        self.assertEqual(peer.answers(2), [2, 3])
        self.assertEqual(len(self.handler.threads), 1)
        self.assertNotIn(get_ident(), self.handler.threads)

    def test_connection_of_other_pools_stays_at_the_reactor(self):
        peer = self.peer()
        peer.ask(BEAT, 1)
        peer.read_here()
        self.assertEqual(peer.answers(1), [1])
        self.home.turn()
        self.assertIsNone(peer.connection.lane)
        self.assertEqual(self.home.readers, {peer.transport})

    def test_paused_connection_stays_at_the_reactor(self):
        peer = self.peer()
        peer.connection.pause_reading("test")
        peer.ask(SEND, 1)
        peer.read_here()
        self.home.turn()
        self.assertIsNone(peer.connection.lane)

    def test_requests_read_in_one_turn_are_one_group(self):
        peers = [self.peer_on_lane() for _ in range(3)]
        self.handler.may_go.clear()
        self.handler.began.clear()
        peers[0].ask(SEND, 2)
        self.assertTrue(self.handler.began.wait(WAIT_SECONDS))
        for peer in peers:
            peer.ask(SEND, 5, 6)
        self.handler.may_go.set()
        for peer in peers:
            self.assertEqual(peer.answers(3 if peer is peers[0] else 2)[-2:], [5, 6])
        self.assertEqual(self.handler.groups[-1], [2, 2, 2])

    def test_requests_of_other_pools_are_answered_by_them(self):
        peer = self.peer_on_lane()
        self.handler.may_go.clear()
        peer.ask(SEND, 2)
        peer.ask(BEAT, 3)
        self.handler.may_go.set()
        self.assertEqual(sorted(peer.answers(2)), [2, 3])

    def test_reactor_reads_for_a_lane_that_is_held_up(self):
        peer, other = self.peer_on_lane(), self.peer_on_lane()
        self.handler.began.clear()
        self.handler.may_go.clear()
        peer.ask(SEND, 2)
        self.assertTrue(self.handler.began.wait(WAIT_SECONDS))
        peer.ask(BEAT, 3)
        other.ask(SEND, 4)

        def stood_in():
            self.lane.stand_in()
            return self.pool.has_waiting

        wait_until(stood_in)
        self.assertEqual(peer.answers(1), [3])
        (job,) = self.pool.take_waiting(1 << 60)
        self.assertIs(job.connection, other.connection)
        self.handler.may_go.set()
        self.assertEqual(peer.answers(1), [2])

    def test_reactor_does_not_stand_in_for_a_lane_that_waits(self):
        peer = self.peer_on_lane()
        reads = []
        self.lane.reactor.doPoll, original = (
            lambda timeout: (reads.append(get_ident()), original(timeout))[1],
            (self.lane.reactor.doPoll),
        )
        peer.ask(SEND, 2)
        self.assertEqual(peer.answers(1), [2])
        sleep(2 * STAND_IN_SECONDS)
        self.lane.stand_in()
        self.assertNotIn(get_ident(), reads)

    def test_order_of_a_connection_holds_after_the_reactor_stood_in(self):
        peer = self.peer_on_lane()
        self.handler.began.clear()
        self.handler.may_go.clear()
        peer.ask(SEND, 2)
        self.assertTrue(self.handler.began.wait(WAIT_SECONDS))
        peer.ask(SEND, 3)

        def stood_in():
            self.lane.stand_in()
            return self.pool.has_waiting

        wait_until(stood_in)
        peer.ask(SEND, *range(4, 40))
        self.handler.may_go.set()
        self.assertEqual(peer.answers(38), list(range(2, 40)))

    def test_requests_read_by_the_lane_come_after_all_that_wait_in_the_queue(self):
        peer = self.peer_on_lane()
        self.handler.began.clear()
        self.handler.may_go.clear()
        peer.ask(SEND, 2)
        self.assertTrue(self.handler.began.wait(WAIT_SECONDS))
        for number in range(3, 103):  # more than one round takes from the queue
            peer.ask(SEND, number)

            def stood_in(jobs=number - 2):
                self.lane.stand_in()
                return self.pool.waiting_requests(Handler) == jobs

            wait_until(stood_in)
        peer.ask(SEND, *range(103, 110))
        self.handler.may_go.set()
        self.assertEqual(peer.answers(108), list(range(2, 110)))

    def test_pause_by_another_thread_stops_reading_until_resumed(self):
        peer = self.peer_on_lane()
        peer.connection.pause_reading("test")
        wait_until(lambda: peer.connection.reading_paused)
        wait_until(lambda: peer.transport not in self.lane.reactor.getReaders())
        peer.ask(SEND, 2)
        peer.connection.resume_reading("test")
        self.assertEqual(peer.answers(1), [2])

    def test_lost_connection_is_reported_in_the_reactor_thread(self):
        peer = self.peer_on_lane()
        peer.socket.close()
        wait_until(lambda: self.home.thread_calls)
        self.assertEqual(self.lost, [])
        self.home.turn()
        self.assertEqual(self.lost, [peer.connection])

    def test_bad_frame_closes_its_connection_only(self):
        peer, other = self.peer_on_lane(), self.peer_on_lane()
        peer.socket.sendall(b"\xff" * 8)
        wait_until(lambda: peer.connection.closed)
        other.ask(SEND, 2)
        self.assertEqual(other.answers(1), [2])

    def test_abort_by_another_thread_closes_the_connection(self):
        peer = self.peer_on_lane()
        peer.connection.abort()
        wait_until(lambda: peer.connection.closed)

    def test_stop_gives_connections_back(self):
        peer = self.peer_on_lane()
        self.stop()
        self.assertIsNone(peer.connection.lane)
        self.assertEqual(self.home.readers, {peer.transport})
        called = []
        self.lane.call(called.append, 1)
        self.home.turn()
        self.assertEqual(called, [1])

    def test_stop_gives_back_a_connection_whose_reading_is_paused(self):
        peer = self.peer_on_lane()
        peer.connection.pause_reading("test")
        wait_until(lambda: peer.connection.reading_paused)
        self.stop()
        self.assertIsNone(peer.connection.lane)
        self.assertEqual(self.home.readers, set())
        peer.connection.resume_reading("test")
        self.assertEqual(self.home.readers, {peer.transport})

    def test_connection_does_not_move_to_a_closed_lane(self):
        peer = self.peer()
        peer.ask(SEND, 1)
        peer.read_here()
        self.assertEqual(peer.answers(1), [1])
        self.stop_pools()
        self.home.turn()
        self.assertIsNone(peer.connection.lane)
        self.assertEqual(self.home.readers, {peer.transport})

    def test_aborted_connection_does_not_move(self):
        peer = self.peer()
        peer.ask(SEND, 1)
        peer.read_here()
        peer.transport.abortConnection = lambda: None  # ends in a later turn
        peer.connection.abort()
        self.home.turn()
        self.assertIsNone(peer.connection.lane)

    def test_requests_that_were_read_come_before_those_that_the_reactor_reads_meanwhile(self):
        """They wait for a call in the queue, which holds the lane up."""
        first, second = self.peer_on_lane(), self.peer_on_lane()
        self.handler.began.clear()
        self.handler.may_go.clear()
        first.ask(SEND, 2)
        self.assertTrue(self.handler.began.wait(WAIT_SECONDS))
        entered, may_end = Event(), Event()

        def hold_up():
            entered.set()
            assert may_end.wait(WAIT_SECONDS)

        first.ask(SEND, 3)
        second.ask(SEND, 10)
        turn = self.lane._turn
        with turn:  # the lane reads after its handler, and finds a call in its queue
            self.handler.may_go.set()
            wait_until(lambda: first.answers(1) == [2])
            self.pool.call(hold_up)
        self.assertTrue(entered.wait(WAIT_SECONDS))
        second.ask(SEND, 11)

        def stood_in():
            self.lane.stand_in()
            return self.pool.waiting_requests(Handler) >= 3

        wait_until(stood_in)
        may_end.set()
        self.assertEqual(second.answers(2), [10, 11])

    def test_stop_answers_the_requests_that_were_read(self):
        peer = self.peer_on_lane()
        self.handler.began.clear()
        self.handler.may_go.clear()
        peer.ask(SEND, 2)
        self.assertTrue(self.handler.began.wait(WAIT_SECONDS))
        self.pool.call(self.handler.may_go.set)
        self.handler.may_go.set()
        self.stop()
        self.assertEqual(peer.answers(1), [2])

    def test_lag_is_the_time_of_a_round_of_requests(self):
        peer = self.peer_on_lane()
        self.handler.began.clear()
        self.handler.may_go.clear()
        peer.ask(SEND, 2)
        self.assertTrue(self.handler.began.wait(WAIT_SECONDS))
        sleep(0.05)
        self.handler.may_go.set()
        self.assertEqual(peer.answers(1), [2])
        self.stop()
        self.lane.lag.roll()
        self.assertGreaterEqual(self.lane.lag.summary().longest, 50.0)

    def test_calls_run_between_requests(self):
        called = Event()
        self.pool.call(called.set)
        self.assertTrue(called.wait(WAIT_SECONDS))
