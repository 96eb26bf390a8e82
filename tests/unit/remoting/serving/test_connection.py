"""Connections: received frames; whole frames sent by many threads over slow sockets; nothing sent after the close."""

import mmap
import os
import select
import socket
from collections import deque
from threading import Barrier, Event, Thread

from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.interfaces import ITCPTransport
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.logger import Logger, LogLevel, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from rocketd.remoting.errors import FrameError
from rocketd.remoting.limits.limit_log import LimitLog
from rocketd.remoting.limits.unsent_budget import UnsentBudget
from rocketd.remoting.serving.connection import OUTBOUND_LIMIT, Connection, ConnectionLimits
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.remoting.wire.frame import MAX_FRAME_LENGTH, FrameDecoder

WAIT_SECONDS = 60
HANDED_OVER = 1 << 17  # bytes that a transport holds at most


class ThreadedClock(Clock):
    """A Clock that also takes calls from threads; ``turn`` runs them."""

    def __init__(self):
        super().__init__()
        self.thread_calls = deque()

    def callFromThread(self, function, *arguments):
        self.thread_calls.append((function, arguments))

    def turn(self):
        while self.thread_calls:
            function, arguments = self.thread_calls.popleft()
            function(*arguments)


@implementer(ITCPTransport)
class SocketTransport(StringTransport):
    """A stand-in for Twisted's TCP transport: ``pump`` is one round of the reactor."""

    def __init__(self, sock):
        super().__init__(peerAddress=IPv4Address("TCP", "10.1.2.3", 40000), lenient=True)
        sock.setblocking(False)
        self.socket = sock
        self.no_delay = False
        self.aborted = False

    def setTcpNoDelay(self, enabled):
        self.no_delay = enabled

    def registerProducer(self, producer, streaming):
        super().registerProducer(producer, streaming)
        producer.resumeProducing()

    def startWriting(self):  # noqa: N802 - the name is Twisted's
        """``pump`` asks the producer in every round."""

    def pump(self):
        data = self.value()
        try:
            sent = self.socket.send(data) if data else 0
        except BlockingIOError:
            sent = 0
        self.clear()
        self.write(data[sent:])
        if sent == len(data) and self.producer is not None:
            self.producer.resumeProducing()

    def abortConnection(self):
        self.aborted = True


class ConnectionTestCase(SynchronousTestCase):
    def setUp(self):
        self.reactor = ThreadedClock()
        self.frames = []
        self.lost = []
        self.events = []
        globalLogPublisher.addObserver(self.events.append)
        self.addCleanup(globalLogPublisher.removeObserver, self.events.append)

    def warnings(self):
        return [event for event in self.events if event.get("log_level", LogLevel.info) >= LogLevel.warn]

    def make(self, **limits):
        return Connection(
            self.reactor, lambda _, frames: self.frames.append(frames), self.lost.append, ConnectionLimits(**limits)
        )

    def on_string(self, **options):
        connection = self.make()
        transport = StringTransport(**options)
        connection.makeConnection(transport)
        return connection, transport

    def on_socket(self, buffer_size=None, **limits):
        ours, self.peer = socket.socketpair()
        self.addCleanup(self.peer.close)
        self.addCleanup(ours.close)
        if buffer_size is not None:
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer_size)
        self.peer.settimeout(WAIT_SECONDS)
        connection = self.make(**limits)
        transport = SocketTransport(ours)
        connection.makeConnection(transport)
        self.addCleanup(lambda: connection.closed or connection.connectionLost())
        return connection, transport

    def drain(self, transport, size):
        """Read that many bytes at the peer while the reactor goes round."""
        got = bytearray()
        while len(got) < size:
            self.reactor.turn()
            transport.pump()
            if select.select([self.peer], [], [], 0)[0]:
                data = self.peer.recv(1 << 20)
                if not data:
                    break
                got += data
        return bytes(got)


class ReadTests(ConnectionTestCase):
    def test_connection_has_address_and_host_of_peer(self):
        connection, _ = self.on_string(peerAddress=IPv4Address("TCP", "10.1.2.3", 4660))
        self.assertEqual(connection.address, "10.1.2.3:4660")
        self.assertEqual(connection.host, bytes([10, 1, 2, 3, 0, 0, 0x12, 0x34]))

    def test_peer_with_a_six_digit_address(self):
        connection, _ = self.on_string(peerAddress=IPv6Address("TCP", "::ffff:10.1.2.3", 258))
        self.assertEqual((connection.address, connection.host), ("10.1.2.3:258", b"\x0a\1\2\3\0\0\1\2"))
        connection, _ = self.on_string(peerAddress=IPv6Address("TCP", "fe80::1%eth0", 1))
        self.assertEqual(connection.address, "[fe80::1%eth0]:1")
        self.assertEqual(connection.host, socket.inet_pton(socket.AF_INET6, "fe80::1") + b"\0\0\0\1")

    def test_frames_of_one_read_are_dispatched_together(self):
        connection, _ = self.on_string()
        one, two = RemotingCommand(1).encode(), RemotingCommand(2, body=b"x").encode()
        connection.dataReceived(one + two[:10])
        connection.dataReceived(two[10:])
        connection.dataReceived(one + two)
        self.assertEqual([len(frames) for frames in self.frames], [1, 1, 2])

    def test_bytes_without_frame_close_connection_with_one_line(self):
        for name, data in {
            "text": b"GET / HTTP/1.1\r\n\r\n",
            "oversized": (MAX_FRAME_LENGTH + 1).to_bytes(4, "big"),
            "negative": b"\xff\xff\xff\xff",
            "header over the end": b"\0\0\0\x08\0\0\0\x05{}{}",
            "serialize type": b"\0\0\0\x06\x07\0\0\x02{}",
        }.items():
            with self.subTest(name):
                self.events.clear()
                connection, transport = self.on_string()
                connection.dataReceived(data)
                self.assertTrue(transport.disconnected)
                self.assertEqual(len(self.warnings()), 1)
                self.assertEqual(self.frames, [])

    def test_frame_error_in_dispatch_closes_connection(self):
        connection, transport = self.on_string()

        def refuse(connection, frames):
            raise FrameError("header is not JSON")

        connection._dispatch = refuse
        connection.dataReceived(RemotingCommand(1).encode())
        self.assertTrue(transport.disconnected)
        self.assertEqual(len(self.warnings()), 1)

    def test_reading_counts_as_activity(self):
        connection, _ = self.on_string()
        self.reactor.advance(5)
        self.assertEqual(connection.last_active, 0)
        connection.dataReceived(b"\0")
        self.assertEqual(connection.last_active, 5)

    def test_reading_resumes_after_last_pause_reason_is_dropped(self):
        connection, transport = self.on_string()
        connection.pause_reading("a")
        connection.pause_reading("b")
        connection.resume_reading("a")
        self.assertEqual(transport.producerState, "paused")
        connection.resume_reading("b")
        self.assertEqual(transport.producerState, "producing")

    def test_closed_connection_is_not_paused_or_resumed(self):
        connection, transport = self.on_string()
        connection.pause_reading("a")
        connection.connectionLost()
        connection.resume_reading("a")
        connection.pause_reading("b")
        self.assertEqual(transport.producerState, "paused")
        self.assertEqual(self.lost, [connection])


class WriteTests(ConnectionTestCase):
    def test_write_without_pending_data_is_sent_at_once(self):
        connection, transport = self.on_socket()
        self.assertTrue(transport.no_delay)
        connection.write((b"one", memoryview(b"two"), b"", b"three"))
        connection.write((b"four",))
        self.assertEqual(self.peer.recv(100), b"onetwothreefour")
        self.assertEqual((len(self.reactor.thread_calls), transport.value()), (0, b""))

    def test_write_without_free_descriptor_uses_reactor(self):
        class Exhausted(socket.socket):
            def dup(self):
                raise OSError(24, "Too many open files")

        ours, self.peer = socket.socketpair()
        self.addCleanup(self.peer.close)
        transport = SocketTransport(Exhausted(fileno=ours.detach()))
        self.addCleanup(transport.socket.close)
        connection = self.make()
        connection.makeConnection(transport)
        connection.write((b"hello",))
        self.assertEqual(self.drain(transport, 5), b"hello")

    def test_unsent_bytes_follow_in_order(self):
        connection, transport = self.on_socket(buffer_size=4096)
        big = os.urandom(3_000_000)
        connection.write((b"head", big[:1_000_000], memoryview(big)[1_000_000:]))
        connection.write((b"tail",))
        self.assertEqual(self.drain(transport, len(big) + 8), b"head" + big + b"tail")
        connection.write((b"direct again",))
        self.assertEqual((self.peer.recv(100), len(self.reactor.thread_calls)), (b"direct again", 0))
        self.assertIsNone(transport.producer)

    def test_write_of_more_buffers_than_one_call_takes(self):
        connection, transport = self.on_socket()
        buffers = [b"%d," % number for number in range(3000)]
        connection.write(buffers)
        whole = b"".join(buffers)
        self.assertEqual(self.drain(transport, len(whole)), whole)

    def test_frames_of_many_threads_stay_whole(self):
        connection, transport = self.on_socket(buffer_size=8192)
        threads, count = 8, 40
        barrier = Barrier(threads)

        def write(number):
            barrier.wait(WAIT_SECONDS)
            for turn in range(count):
                body = bytes([number]) * (1 + turn * 997 % 50_000)
                command = RemotingCommand(number, {"turn": str(turn)}, body, opaque=turn).encode()
                if turn % 2:
                    connection.write((command[:100], memoryview(command)[100:]))
                else:
                    connection.write((command,))

        writers = [Thread(target=write, args=(number,)) for number in range(threads)]
        for writer in writers:
            writer.start()
        decoder = FrameDecoder()
        turns = {number: [] for number in range(threads)}
        while any(len(seen) < count for seen in turns.values()):
            self.reactor.turn()
            transport.pump()
            if not select.select([self.peer], [], [], 0.001)[0]:
                continue
            for frame in decoder.feed(self.peer.recv(1 << 16)):
                command = RemotingCommand.decode(frame)
                self.assertEqual(command.body, bytes([command.code]) * (1 + command.opaque * 997 % 50_000))
                turns[command.code].append(command.opaque)
        for writer in writers:
            writer.join(WAIT_SECONDS)
        self.assertEqual(turns, {number: list(range(count)) for number in range(threads)})

    def test_write_to_closed_peer_is_dropped(self):
        connection, transport = self.on_socket()
        self.peer.close()
        connection.write((b"x",))
        connection.write((b"y", b"z"))
        self.assertEqual((len(self.reactor.thread_calls), transport.value()), (0, b""))

    def test_close_writes_pending_data(self):
        connection, transport = self.on_socket(buffer_size=4096)
        connection.write((bytes(500_000),))
        connection.close()
        self.reactor.turn()
        self.assertTrue(transport.disconnecting)
        self.assertEqual(len(self.drain(transport, 500_000)), 500_000)

    def test_abort_aborts_transport(self):
        connection, transport = self.on_socket()
        connection.abort()
        self.assertTrue(transport.aborted)
        connection.connectionLost()
        connection.abort()

    def test_abort_before_connection_is_made(self):
        self.make().abort()


class SlowReaderTests(ConnectionTestCase):
    def test_large_answer_pauses_reading_until_written(self):
        connection, transport = self.on_socket(buffer_size=4096)
        size = OUTBOUND_LIMIT + (1 << 20)
        connection.write((bytes(size),))
        self.reactor.turn()
        self.assertEqual(transport.producerState, "paused")
        self.assertEqual(len(self.drain(transport, size)), size)
        transport.pump()
        self.assertEqual(transport.producerState, "producing")

    def test_reading_resumes_below_low_mark(self):
        connection, transport = self.on_socket(buffer_size=4096, unsent=4 << 20, resume=2 << 20)
        piece = bytes(1 << 18)
        for _ in range(20):
            connection.write((piece,))
        self.reactor.turn()
        self.assertEqual(transport.producerState, "paused")
        while transport.producerState == "paused":
            self.assertGreater(connection._outbound_bytes, 2 << 20)
            self.drain(transport, 1)
        self.assertGreater(connection._outbound_bytes, 0)

    def test_many_small_answers_pause_reading_too(self):
        connection, transport = self.on_socket(buffer_size=4096)
        piece = bytes(1 << 20)
        for _ in range(8):
            connection.write((piece,))
            self.reactor.turn()
        self.assertEqual(transport.producerState, "producing")
        for _ in range(2):
            connection.write((piece,))
            self.reactor.turn()
        self.assertEqual(transport.producerState, "paused")
        size = 10 << 20
        self.assertEqual(len(self.drain(transport, size)), size)
        transport.pump()
        self.assertEqual(transport.producerState, "producing")

    def test_late_pause_after_complete_write_is_ignored(self):
        connection, transport = self.on_socket(buffer_size=4096)
        first, second = bytes(1 << 20), bytes(OUTBOUND_LIMIT + 1)
        connection.write((first,))
        self.reactor.turn()
        connection.write((second,))
        late, self.reactor.thread_calls = self.reactor.thread_calls, deque()
        self.assertEqual(len(late), 1)
        self.drain(transport, len(first) + len(second))
        transport.pump()
        self.reactor.thread_calls = late
        self.reactor.turn()
        self.assertEqual(transport.producerState, "producing")

    def test_peer_reading_answers_counts_as_activity(self):
        connection, transport = self.on_socket(buffer_size=4096)
        connection.write((bytes(1_000_000),))
        self.reactor.turn()
        self.reactor.advance(7)
        transport.pump()
        self.assertEqual(connection.last_active, 0, "nothing more could be written yet")
        self.drain(transport, 1_000_000)
        self.assertEqual(connection.last_active, 7)


class CountedLimitTests(ConnectionTestCase):
    """Each limit of a connection is counted, and said once."""

    def setUp(self):
        super().setUp()
        self.limits = LimitLog(Logger())

    def test_unsent_answers_count_at_pause_and_park(self):
        connection, transport = self.on_socket(buffer_size=4096, unsent=1 << 20, log=self.limits)
        size = 4 << 20
        connection.write((bytes(size),))
        self.reactor.turn()
        self.assertEqual(self.limits.counts, {"connections paused for unsent answers": 1})
        self.assertTrue(connection.park(lambda then: then()))
        self.assertEqual(self.limits.counts["requests parked for unsent answers"], 1)
        self.assertEqual(len(self.warnings()), 2)
        self.drain(transport, size)

    def test_oversized_frames_and_headers_are_counted_separately(self):
        for kind, data in {
            "headers too long": RemotingCommand(1, {"a": "b" * 100}).encode(),
            "frames too long": (1 << 20).to_bytes(4, "big") + bytes(4),
        }.items():
            connection = self.make(frame_length=1 << 19, header_length=100, log=self.limits)
            connection.makeConnection(StringTransport())
            connection.dataReceived(data)
            self.assertEqual(self.limits.counts[kind], 1)
            self.assertTrue(connection.transport.disconnected)


class UnsentMemoryTests(ConnectionTestCase):
    """The memory of answers is counted while a peer reads nothing."""

    def setUp(self):
        super().setUp()
        self.budget = UnsentBudget(LimitLog(Logger()), 1 << 30, list)

    def mapped(self, size):
        mapped = mmap.mmap(-1, size)
        self.addCleanup(mapped.close)
        return memoryview(mapped)

    def without_descriptor(self):
        connection = self.make(all_unsent=self.budget)
        transport = StringTransport()
        connection.makeConnection(transport)
        return connection, transport

    def test_transport_gets_bounded_copies_counted_until_next_pull(self):
        connection, transport = self.without_descriptor()
        size = (2 << 20) + 5
        records = self.mapped(size)
        connection.write((b"head", records))
        self.reactor.turn()
        self.assertEqual(self.budget.total, 4, "mapped records are not copied yet")
        whole = bytearray()
        while transport.producer is not None:
            transport.producer.resumeProducing()
            piece = transport.value()
            transport.clear()
            whole += piece
            self.assertLessEqual(len(piece), HANDED_OVER)
            self.assertEqual(self.budget.total, len(piece))
            self.assertEqual(connection.unsent_memory, len(piece))
        self.assertEqual(bytes(whole), b"head" + records)
        records.release()

    def test_buffer_counts_fully_until_last_byte_is_handed_over(self):
        connection, transport = self.without_descriptor()
        size = HANDED_OVER * 2 + 1
        connection.write((bytes(size),))
        self.reactor.turn()
        for handed, left in ((HANDED_OVER, size), (HANDED_OVER, size), (1, 0)):
            transport.producer.resumeProducing()
            self.assertEqual(self.budget.total, handed + left)
        connection.connectionLost()
        self.assertEqual(self.budget.total, 0)

    def test_plain_socket_sends_mapped_records_without_copy(self):
        connection, transport = self.on_socket(buffer_size=4096, all_unsent=self.budget)
        records = self.mapped(3 << 20)
        connection.write((records,))
        self.reactor.turn()
        for _ in range(10):
            transport.pump()
            self.peer.recv(1000)
            self.assertEqual((transport.value(), self.budget.total), (b"", 0))
        connection.connectionLost()
        records.release()

    def test_partly_sent_buffer_stays_counted(self):
        connection, transport = self.on_socket(buffer_size=4096, all_unsent=self.budget)
        size = 1 << 20
        connection.write((bytes(size),))
        self.assertLess(connection._outbound_bytes, size)
        self.assertEqual(self.budget.total, size)
        self.assertEqual(len(self.drain(transport, size)), size)
        self.assertEqual((self.budget.total, connection._outbound_bytes), (0, 0))

    def test_lost_peer_leaves_no_unsent_memory(self):
        connection, transport = self.on_socket(buffer_size=4096, all_unsent=self.budget)
        connection.write((bytes(1 << 20),))
        self.reactor.turn()
        self.peer.close()
        transport.pump()
        self.assertEqual((self.budget.total, transport.producer), (0, None))


class CloseTests(ConnectionTestCase):
    def test_writes_after_the_close_are_dropped(self):
        connection, transport = self.on_socket()
        connection.connectionLost()
        connection.write((b"x",))
        connection.send(RemotingCommand(1))
        self.assertEqual((len(self.reactor.thread_calls), transport.value()), (0, b""))
        self.assertTrue(connection.closed)

    def test_flush_after_close_does_nothing(self):
        connection, transport = self.on_socket(buffer_size=4096)
        connection.write((bytes(1_000_000),))
        connection.connectionLost()
        self.reactor.turn()
        self.assertIsNone(transport.producer)

    def test_descriptor_is_closed_after_running_write(self):
        connection, _ = self.on_socket()
        entered, gate, order = Event(), Event(), []

        class Slow:
            def send(self, data):
                entered.set()
                gate.wait(WAIT_SECONDS)
                order.append("sent")
                return len(data)

            def close(self):
                order.append("closed")

        connection._direct.close()
        connection._direct = Slow()
        writer = Thread(target=connection.write, args=((b"x",),))
        closer = Thread(target=connection.connectionLost)
        writer.start()
        self.assertTrue(entered.wait(WAIT_SECONDS))
        closer.start()
        closer.join(0.05)
        gate.set()
        for thread in (writer, closer):
            thread.join(WAIT_SECONDS)
        self.assertEqual(order, ["sent", "closed"])

    def test_close_during_writes_never_writes_to_a_reused_descriptor(self):
        """Threads write without a pause while connections close and others take over their descriptor numbers."""
        for _ in range(30):
            connection, transport = self.on_socket()
            stop, begun = Event(), Event()

            def write(connection=connection, stop=stop, begun=begun):
                while not stop.is_set():
                    connection.write((b"stray",))
                    begun.set()

            writers = [Thread(target=write) for _ in range(2)]
            for writer in writers:
                writer.start()
            self.assertTrue(begun.wait(WAIT_SECONDS))
            direct = connection._direct.fileno()
            connection.connectionLost()
            others = [socket.socketpair() for _ in range(4)]
            numbers = {end.fileno() for pair in others for end in pair}
            stop.set()
            for writer in writers:
                writer.join(WAIT_SECONDS)
            self.assertIn(direct, numbers, "the number was not reused: the test shows nothing")
            for pair in others:
                self.assertEqual(select.select(pair, [], [], 0)[0], [])
                for end in pair:
                    end.close()
            transport.socket.close()
            self.peer.close()
