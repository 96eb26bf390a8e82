"""Frames of the log on a real socket, and a connection to a slave that sends on one."""

import os
import socket
from struct import pack
from threading import Thread

from twisted.internet.interfaces import ISSLTransport, ITCPTransport
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import directlyProvides, implementer

from rocketd.broker.replication.as_master import log_sender
from rocketd.broker.replication.as_master.log_sender import LogFrames, LogSender, duplicate_socket
from rocketd.store.format.message import PutStatus
from rocketd.store.log.transfer import TransferDecoder
from rocketd.store.message_store import MessageStore
from rocketd.store.testing import STORE_HOST, make_message, small_config
from tests.unit.broker.replication.test_replication import PEER, MasterTestCase, Transport

WAIT = 10


class Plain:
    """A transport with a socket."""

    def __init__(self, plain):
        self.socket = plain
        directlyProvides(self, ITCPTransport)


class SocketPairTestCase(SynchronousTestCase):
    def setUp(self):
        self.ours, self.theirs = socket.socketpair()
        for end in (self.ours, self.theirs):
            end.setblocking(False)
            self.addCleanup(end.close)
        self.ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        self.decoder = TransferDecoder()

    def received(self):
        """Take the frames that have arrived."""
        frames = []
        try:
            while data := self.theirs.recv(1 << 16):
                frames += self.decoder.feed(data)
        except BlockingIOError:
            pass
        return frames


class DuplicateTests(SocketPairTestCase):
    def test_duplicate_of_plain_connection_is_another_descriptor(self):
        duplicate = duplicate_socket(Plain(self.ours))
        self.addCleanup(duplicate.close)
        self.assertNotEqual(duplicate.fileno(), self.ours.fileno())
        duplicate.send(b"x")
        self.assertEqual(self.theirs.recv(9), b"x")

    def test_tls_and_closed_connections_have_none(self):
        encrypted = Plain(self.ours)
        directlyProvides(encrypted, ITCPTransport, ISSLTransport)
        self.assertIsNone(duplicate_socket(encrypted))
        self.assertIsNone(duplicate_socket(Transport()))
        self.ours.close()
        self.assertIsNone(duplicate_socket(Plain(self.ours)))


class SenderTests(SocketPairTestCase):
    def setUp(self):
        super().setUp()
        self.store = MessageStore(small_config(os.path.abspath(self.mktemp())), STORE_HOST)
        self.store.start()
        self.addCleanup(self.store.stop)
        self.frames = LogFrames(self.store, 1000)
        self.frames.next_offset = 0
        self.sender = LogSender(self.ours.dup(), self.frames)
        self.addCleanup(self.sender.close)

    def put(self, count):
        self.store.put_messages([make_message(b"x" * 100) for _ in range(count)])

    def log(self):
        return b"".join(bytes(file.view[: file.wrote_position]) for file in self.store.commit_log.queue.files)

    def test_frames_have_the_whole_log_in_order(self):
        self.put(70)
        found, done = [], False
        while not done:
            done = self.sender.send()
            found += self.received()
        at = 0
        for frame in found:
            self.assertEqual(frame.offset, at)
            self.assertLessEqual(len(frame.body), 1000)
            at += len(frame.body)
        self.assertEqual(b"".join(frame.body for frame in found), self.log())
        self.assertFalse(self.sender.has_work)

    def test_full_socket_keeps_the_rest_for_later(self):
        self.put(70)
        while self.frames.next_offset < self.frames.end:
            before = self.frames.next_offset
            self.assertFalse(self.sender.send())
            if self.frames.next_offset == before:
                break
        self.assertTrue(self.sender.has_work)
        self.assertFalse(self.sender.send_heartbeat())
        found = self.received()
        while not self.sender.send():
            found += self.received()
        self.assertTrue(self.sender.send_heartbeat())
        found += self.received()
        self.assertEqual(b"".join(frame.body for frame in found), self.log())
        self.assertEqual(found[-1], (len(self.log()), b""))

    def test_rest_of_the_last_frames_is_work(self):
        self.put(20)
        while self.sender.send_recent():
            self.put(20)
        self.assertEqual(self.frames.next_offset, self.frames.end)
        self.assertTrue(self.sender.has_work)
        found = self.received()
        while not self.sender.send():
            found += self.received()
        found += self.received()
        self.assertEqual(b"".join(frame.body for frame in found), self.log())
        self.assertFalse(self.sender.has_work)

    def test_recent_data_is_sent_but_not_old(self):
        self.put(1)
        self.assertTrue(self.sender.send_recent())
        self.put(5)
        self.patch(log_sender, "RECENT_BYTES", self.frames.end - self.frames.next_offset - 1)
        before = self.frames.next_offset
        self.assertFalse(self.sender.send_recent())
        self.assertEqual(self.frames.next_offset, before)

    def test_recent_data_does_not_wait_for_another_thread(self):
        self.put(1)
        with self.sender._lock:
            self.assertFalse(self.sender.send_recent())
        self.assertEqual(self.received(), [])

    def test_closed_sender_sends_nothing(self):
        self.sender.close()
        self.put(1)
        self.sender.send()
        self.sender.send_heartbeat()
        self.assertEqual(self.received(), [])
        self.ours.close()
        self.assertEqual(self.theirs.recv(9), b"")

    def test_lost_peer_ends_without_error(self):
        self.theirs.close()
        self.put(1)
        self.sender.send()
        self.assertTrue(self.sender.send())


@implementer(ITCPTransport)
class SocketTransport(Transport):
    """A transport of a socket that the test flushes with ``producer.resumeProducing``."""

    def __init__(self, plain):
        super().__init__(peerAddress=PEER)
        self.socket = plain

    def startWriting(self):  # noqa: N802 - Twisted's name
        pass


class DirectTests(MasterTestCase, SocketPairTestCase):
    settings = {"ha_transfer_batch_size": 500}

    def setUp(self):
        SocketPairTestCase.setUp(self)
        super().setUp()

    def connect_directly(self, offset=0):
        connection = self.reactor.tcpServers[0][1].buildProtocol(PEER)
        connection.makeConnection(SocketTransport(self.ours))
        self.addCleanup(lambda: connection.closed or self.lose(connection))
        connection.dataReceived(pack(">q", offset))
        return connection

    def append(self, count=1):
        self.store.put_messages([make_message(b"x" * 100) for _ in range(count)])

    def test_appended_bytes_are_sent_without_the_reactor(self):
        self.connect_directly()
        thread = Thread(target=self.append)
        calls = self.reactor.getDelayedCalls()
        thread.start()
        thread.join(WAIT)
        (frame,) = self.received()
        self.assertEqual(frame, (0, bytes(self.store.commit_log.data_from(0))))
        self.assertEqual(self.reactor.getDelayedCalls(), calls)

    def test_only_first_of_waiting_sends_wakes_the_reactor(self):
        connection = self.connect_directly()
        self.append()
        self.wait()
        calls = len(self.reactor.getDelayedCalls())
        for _ in range(3):
            self.append()
            self.master.when_replicated(self.store.max_physical_offset(), lambda status: self.answers.append(status))
        self.assertEqual(len(self.reactor.getDelayedCalls()), calls)
        connection.dataReceived(pack(">q", self.store.max_physical_offset()))
        self.assertEqual(self.answers[1:], [PutStatus.PUT_OK] * 3)

    def test_send_that_a_slave_has_already_is_answered(self):
        connection = self.connect_directly()
        self.append()
        connection.dataReceived(pack(">q", self.store.max_physical_offset()))
        end = self.wait()
        self.assertEqual(self.answers, [(end, PutStatus.PUT_OK)])

    def test_full_socket_is_flushed_by_the_reactor_in_order(self):
        connection = self.connect_directly()
        while connection.transport.producer is None:
            self.append(3)
            self.turn()
        self.append(3)
        found = self.received()
        while connection.transport.producer is not None:
            connection.transport.producer.resumeProducing()
            found += self.received()
        self.assertEqual(connection.transport.value(), b"")
        self.append()
        found += self.received()
        offsets = [frame.offset for frame in found]
        self.assertEqual(offsets, sorted(offsets))
        self.assertEqual(sum(len(frame.body) for frame in found), self.store.max_physical_offset())

    def test_slave_too_slow_for_expiry_is_disconnected_while_flushing(self):
        connection = self.connect_directly()
        while connection.transport.producer is None:
            self.append(3)
            self.turn()
        self.append(90)
        self.store.wait_until_flushed(self.store.max_physical_offset())
        files = self.store.commit_log.queue
        for file in list(files.files)[:-1]:
            self.assertTrue(files.delete_first(file))
        for _ in range(9):
            self.received()
            if connection.transport.producer is not None:
                connection.transport.producer.resumeProducing()
        self.assertTrue(connection.transport.aborted)
        self.assertIn("have expired", self.errors()[0])

    def test_lost_connection_closes_the_duplicate(self):
        connection = self.connect_directly()
        self.lose(connection)
        self.append()
        self.turn()
        self.ours.close()
        self.assertEqual(self.theirs.recv(9), b"")

    def test_idle_master_sends_heartbeats(self):
        self.connect_directly()
        self.append()
        self.received()
        self.reactor.pump([1] * 5)
        self.assertEqual(self.received(), [(self.store.max_physical_offset(), b"")])
