"""A slave that receives the log on a real socket in a thread of its own."""

import socket
import threading
from struct import unpack_from
from time import monotonic, sleep

from twisted.internet.interfaces import ITCPTransport
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from rocketd.broker.replication.as_slave import log_receiver
from rocketd.broker.replication.as_slave.log_follower import RECONNECT_SECONDS
from rocketd.broker.replication.as_slave.log_receiver import LogReceiver, ReportSender
from rocketd.store.log.transfer import encode_header, encode_report
from tests.unit.broker.replication.test_replication import MASTER, SlaveTestCase, Transport

WAIT = 10.0


def wait_for(condition):
    deadline = monotonic() + WAIT
    while not condition():
        assert monotonic() < deadline
        sleep(0.001)


class Sockets(SynchronousTestCase):
    def setUp(self):
        self.ours, self.theirs = socket.socketpair()
        self.ours.setblocking(False)
        self.theirs.settimeout(WAIT)
        self.addCleanup(self.ours.close)
        self.addCleanup(self.theirs.close)


class ReportSenderTests(Sockets):
    def setUp(self):
        super().setUp()
        self.ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        self.reports = ReportSender(self.ours)

    def received(self):
        self.theirs.setblocking(False)
        data = b""
        try:
            while more := self.theirs.recv(1 << 16):
                data += more
        except BlockingIOError:
            pass
        return data

    def test_full_socket_drops_reports_but_not_parts_of_one(self):
        offset, data = 0, b""
        while not self.reports.unsent:
            offset += 1
            self.reports.send(offset)
        for _ in range(100):
            offset += 1
            self.reports.send(offset)
            data += self.theirs.recv(3)
        data += self.received()
        self.reports.send(offset)
        data += self.received()
        found = [unpack_from(">q", data, at)[0] for at in range(0, len(data), 8)]
        self.assertEqual(len(data) % 8, 0)
        self.assertEqual(found, sorted(found))
        self.assertEqual(found[-1], offset)
        self.assertFalse(self.reports.unsent)

    def test_partly_sent_report_is_completed_first(self):
        class Small:
            sent = b""

            def send(self, data):
                self.sent += data[:5]
                return min(5, len(data))

        small = self.reports._direct = Small()
        for offset in (1, 2, 3, 4, 5, 6, 7, 8):
            self.reports.send(offset)
        found = [unpack_from(">q", small.sent, at)[0] for at in range(0, 40, 8)]
        self.assertEqual(found, sorted(found))
        self.assertLess(found[-1], 9)

    def test_repeated_report_is_never_smaller(self):
        self.reports.send(7)
        self.reports.send(5)
        self.assertEqual(self.received(), encode_report(7) * 2)

    def test_closed_socket_gets_nothing(self):
        self.reports.close()
        self.reports.send(7)
        self.reports.shut_down()
        self.assertEqual(self.received(), b"")

    def test_lost_peer_does_not_raise(self):
        self.theirs.close()
        self.reports.send(7)
        self.reports.send(7)


class ReceiverTests(Sockets):
    def start(self, received):
        self.ends = []
        self.dispatched = []
        ended = threading.Event()

        def end(failure):
            self.ends.append(failure)
            ended.set()

        self.ended = ended
        receiver = LogReceiver(self.ours.dup(), received, lambda: self.dispatched.append(monotonic()), end)
        receiver.start()
        self.addCleanup(receiver.join)
        self.addCleanup(receiver.stop)
        return receiver

    def test_bytes_are_received_until_the_end(self):
        data = []
        self.start(data.append)
        self.theirs.send(b"abc")
        wait_for(lambda: data == [b"abc"])
        self.theirs.close()
        self.assertTrue(self.ended.wait(WAIT))
        self.assertEqual(self.ends, [None])

    def test_stop_ends_the_thread_and_the_connection(self):
        receiver = self.start(lambda data: None)
        receiver.stop()
        receiver.join()
        self.assertEqual(self.ends, [None])
        self.assertEqual(self.theirs.recv(9), b"")

    def test_data_is_dispatched_soon_and_together(self):
        data = []
        self.patch(log_receiver, "DISPATCH_SECONDS", 0.2)
        self.start(lambda received: data.append((received, monotonic())))
        for number in range(2):
            self.theirs.send(b"abc")
            wait_for(lambda: len(data) == number + 1)  # noqa: B023 - called at once
        wait_for(lambda: self.dispatched)
        self.assertGreaterEqual(self.dispatched[0], data[0][1] + 0.19)
        sleep(0.3)
        self.assertEqual(len(self.dispatched), 1)

    def test_data_is_dispatched_while_more_arrives(self):
        self.start(lambda _: None)
        while len(self.dispatched) < 3:
            self.theirs.send(b"abc")

    def test_data_is_dispatched_at_the_end(self):
        self.patch(log_receiver, "DISPATCH_SECONDS", WAIT)
        received = threading.Event()
        receiver = self.start(lambda _: received.set())
        self.theirs.send(b"abc")
        received.wait(WAIT)
        receiver.stop()
        receiver.join()
        self.assertEqual(len(self.dispatched), 1)

    def test_exception_ends_the_thread(self):
        error = RuntimeError("no")

        def fail(data):
            raise error

        self.start(fail)
        self.theirs.send(b"abc")
        self.assertTrue(self.ended.wait(WAIT))
        self.assertEqual(self.ends, [error])


@implementer(ITCPTransport)
class SocketTransport(Transport):
    def __init__(self, plain):
        super().__init__()
        self.socket = plain

    def abortConnection(self):
        super().abortConnection()
        self.socket.close()


class DirectSlaveTests(Sockets, SlaveTestCase):
    def setUp(self):
        Sockets.setUp(self)
        SlaveTestCase.setUp(self)
        self.addCleanup(self.slave.join)
        self.addCleanup(self.slave.stop)
        self.slave.follow(MASTER)
        self.begin()

    def begin(self):
        protocol = self.reactor.tcpClients[-1][2].buildProtocol(None)
        self.transport = SocketTransport(self.ours)
        protocol.makeConnection(self.transport)
        self.connection = self.slave.connection
        self.turn()

    def reconnect(self):
        self.connection.connectionLost()
        Sockets.setUp(self)
        self.turn()
        self.begin()

    def transfer(self, offset, body):
        self.theirs.sendall(encode_header(offset, len(body)) + body)

    def report(self):
        return unpack_from(">q", self.theirs.recv(8, socket.MSG_WAITALL))[0]

    def test_log_is_appended_reported_and_dispatched_without_the_reactor(self):
        self.dispatcher.delay = True
        self.store.holds_dispatch = True
        calls = self.reactor.getDelayedCalls()
        self.assertEqual(self.report(), 0)
        self.assertEqual(self.transport.producerState, "paused")
        self.transfer(0, self.data)
        self.assertEqual(self.report(), len(self.data))
        self.assertEqual(bytes(self.store.commit_log.data_from(0)), self.data)
        wait_for(lambda: self.store.dispatch_behind_bytes() == 0)
        self.assertEqual(self.reactor.getDelayedCalls(), calls)
        self.assertEqual(self.dispatcher.calls, [])
        self.assertTrue(self.connection.useful)

    def test_part_of_a_record_is_not_reported(self):
        self.report()
        self.transfer(0, self.data[:-1])
        self.assertEqual(self.report(), len(self.data) // 3 * 2)
        self.transfer(len(self.data) - 1, self.data[-1:])
        self.assertEqual(self.report(), len(self.data))

    def test_next_connection_begins_after_the_last_append(self):
        self.report()
        entered, go_on = threading.Event(), threading.Event()
        append = self.store.append_replica

        def slow(offset, data):
            entered.set()
            go_on.wait(WAIT)
            return append(offset, data)

        self.patch(self.store, "append_replica", slow)
        self.transfer(0, self.data)
        entered.wait(WAIT)
        threading.Timer(0.05, go_on.set).start()
        self.reconnect()
        self.assertEqual(self.store.max_physical_offset(), len(self.data))
        self.assertEqual(self.report(), 1)

    def test_end_of_the_connection_is_found_by_the_reactor(self):
        self.report()
        self.transfer(0, b"")
        self.theirs.close()
        self.slave.join()
        self.turn()
        self.assertEqual(self.transport.producerState, "producing")

    def test_unusable_bytes_are_given_up(self):
        self.report()
        self.transfer(0, self.data)
        self.transfer(5, b"x")
        self.slave.join()
        self.turn()
        self.assertTrue(self.transport.aborted)
        (line,) = self.errors()
        self.assertIn("the master sends from offset 5, but this log goes on at", line)
        self.assertEqual(self.store.max_physical_offset(), len(self.data))

    def test_unexpected_failure_is_logged_and_given_up(self):
        def fail(offset, data):
            raise RuntimeError("no such thing")

        self.patch(self.store, "append_replica", fail)
        self.transfer(0, self.data)
        self.slave.join()
        self.turn()
        self.assertTrue(self.transport.aborted)
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)
        self.assertIn("cannot follow the master at 10.0.0.1:10912: no such thing", self.errors())

    def test_stopped_slave_appends_nothing_more(self):
        self.report()
        self.slave.stop()
        self.slave.join()
        self.assertEqual(self.theirs.recv(9), b"")

    def test_idle_slave_reports_again(self):
        self.report()
        self.reactor.pump([1] * 5)
        self.assertEqual(self.report(), 0)

    def test_unsent_report_is_repeated_soon(self):
        self.report()
        self.connection.receiver.reports.unsent = True
        self.reactor.advance(1)
        self.assertEqual(self.report(), 0)

    def test_topic_is_deleted_between_appends(self):
        self.report()
        with self.store._turn:
            deleting = threading.Thread(target=self.store.delete_topic, args=("T",))
            deleting.start()
            self.transfer(0, self.data)
            sleep(0.02)
            self.assertTrue(deleting.is_alive())
            self.assertEqual(self.store.max_physical_offset(), 0)
        deleting.join(WAIT)
        self.assertEqual(self.report(), len(self.data))

    def test_bytes_before_the_first_report_keep_the_reactor_reading(self):
        self.report()
        self.connection.connectionLost()
        Sockets.setUp(self)
        self.dispatcher.delay = True
        self.reactor.advance(RECONNECT_SECONDS)
        protocol = self.reactor.tcpClients[-1][2].buildProtocol(None)
        transport = SocketTransport(self.ours)
        protocol.makeConnection(transport)
        protocol.dataReceived(encode_header(0, len(self.data))[:5])
        self.dispatcher.run()
        self.turn()
        self.assertIsNone(self.slave.connection.receiver)
        protocol.dataReceived(encode_header(0, len(self.data))[5:] + self.data)
        self.dispatcher.run()
        self.turn()
        self.assertEqual(transport.value(), encode_report(0) + encode_report(len(self.data)))
