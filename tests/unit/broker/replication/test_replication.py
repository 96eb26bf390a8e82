"""Master and slave over fake transports: sent bytes and their times, closed connections, answers to waiting sends."""

import os
from struct import pack, unpack_from

from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred
from twisted.internet.error import CannotListenError, ConnectError, ConnectionDone
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.logger import LogLevel, formatEvent, globalLogPublisher
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from rocketd.broker.replication.as_master.master import STOP_SECONDS, ReplicationMaster
from rocketd.broker.replication.as_slave.log_follower import RECONNECT_SECONDS, ReplicationSlave
from rocketd.broker.replication.as_slave.master_connection import WAITING_BYTES
from rocketd.broker.replication.as_slave.synchronize import FIRST_SECONDS, PERIOD_SECONDS, SlaveSynchronize
from rocketd.broker.replication.service import Replication
from rocketd.broker.replication.trusted_peers import TrustedPeers
from rocketd.remoting.bodies.tables import (
    ConsumerOffsetSerializeWrapper,
    DataVersion,
    DelayOffsetSerializeWrapper,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from rocketd.remoting.errors import RemotingConnectError
from rocketd.remoting.headers.client import RegisterBrokerResponseHeader
from rocketd.remoting.serving.server import ListenError
from rocketd.remoting.wire.codes import RequestCode
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.store.format.message import PutStatus
from rocketd.store.log.transfer import TransferDecoder, encode_header
from rocketd.store.message_store import MessageStore
from rocketd.store.testing import STORE_HOST, make_message, small_config
from tests.support.broker import InlineDispatcher, SmallBroker

FILE_SIZE = 4096
MASTER, TABLES = "10.0.0.1:10912", "10.0.0.1:10911"
PEER = IPv4Address("TCP", "10.0.0.9", 4097)


class Reactor(MemoryReactorClock):
    def callFromThread(self, function, *arguments):
        self.callLater(0, function, *arguments)


class Transport(StringTransport):
    aborted = False

    def setTcpNoDelay(self, enabled):
        self.nodelay = enabled

    def abortConnection(self):
        self.aborted = True

    def take(self):
        data = self.value()
        self.clear()
        return data


class ReplicationTestCase(SynchronousTestCase):
    def setUp(self):
        self.reactor = Reactor()
        self.events = []
        globalLogPublisher.addObserver(self.events.append)
        self.addCleanup(globalLogPublisher.removeObserver, self.events.append)

    def open_store(self, role="ASYNC_MASTER", **settings):
        settings = {"ha_allowed_addresses": "10.0.0.0/24", **settings}
        self.config = small_config(os.path.abspath(self.mktemp()), broker_role=role, **settings)
        store = MessageStore(self.config, STORE_HOST)
        store.start()
        self.addCleanup(store.stop)
        return store

    def errors(self):
        """Take the lines of errors."""
        events, self.events[:] = list(self.events), []
        return [formatEvent(event) for event in events if event.get("log_level") is LogLevel.error]

    def turn(self):
        """Run the reactor calls of other threads."""
        self.reactor.advance(0)


class MasterTestCase(ReplicationTestCase):
    settings = {}

    def setUp(self):
        super().setUp()
        self.store = self.open_store("SYNC_MASTER", **self.settings)
        self.master = ReplicationMaster(self.config, self.reactor, TrustedPeers(self.config, self.reactor))
        self.master.listen()
        self.master.start(self.store)
        self.answers = []

    def put(self, count=1):
        for _ in range(count):
            self.store.put_messages([make_message(b"x" * 100)])
        self.turn()

    def connect(self, offset=None):
        connection = self.reactor.tcpServers[0][1].buildProtocol(PEER)
        connection.makeConnection(Transport(peerAddress=PEER))
        if offset is not None:
            connection.dataReceived(pack(">q", offset))
        return connection

    def lose(self, connection):
        connection.connectionLost(Failure(ConnectionDone()))

    def transfers(self, connection):
        return TransferDecoder().feed(connection.transport.take())

    def wait(self):
        end = self.store.max_physical_offset()
        self.master.when_replicated(end, lambda status: self.answers.append((end, status)))
        self.turn()
        return end


class SendingTests(MasterTestCase):
    def test_master_sends_nothing_before_first_report(self):
        self.put()
        connection = self.connect()
        self.reactor.advance(6)
        self.assertEqual(connection.transport.value(), b"")
        connection.dataReceived(pack(">q", 0)[:5])
        self.assertEqual(connection.transport.value(), b"")
        connection.dataReceived(pack(">q", 0)[5:])
        self.assertEqual(self.transfers(connection), [(0, bytes(self.store.commit_log.data_from(0)))])
        self.assertTrue(connection.transport.nodelay)

    def test_empty_slave_gets_last_file(self):
        self.put(60)
        connection = self.connect(0)
        begin = self.store.max_physical_offset() // FILE_SIZE * FILE_SIZE
        self.assertEqual([offset for offset, _ in self.transfers(connection)], [begin])

    def test_slave_with_data_continues_at_its_end(self):
        self.put(2)
        half = self.store.max_physical_offset() // 2
        (transfer,) = self.transfers(self.connect(half))
        self.assertEqual(transfer, (half, bytes(self.store.commit_log.data_from(half))))
        self.assertEqual(self.transfers(self.connect(2 * half)), [])

    def test_appended_bytes_are_sent_at_once(self):
        connection = self.connect(0)
        self.put()
        first = self.store.max_physical_offset()
        self.put()
        self.assertEqual([(t.offset, len(t.body)) for t in self.transfers(connection)], [(0, first), (first, first)])

    def test_full_socket_pauses_sending(self):
        connection = self.connect(0)
        connection.transport.producer.pauseProducing()
        self.put(3)
        self.reactor.advance(6)
        self.assertEqual(self.transfers(connection), [])
        connection.transport.producer.resumeProducing()
        self.assertEqual(sum(len(t.body) for t in self.transfers(connection)), self.store.max_physical_offset())

    def test_heartbeats_when_idle(self):
        connection = self.connect(0)
        self.put()
        self.transfers(connection)
        end = self.store.max_physical_offset()
        for _ in range(3):
            self.reactor.pump([1] * 4)
            self.assertEqual(self.transfers(connection), [])
            connection.dataReceived(pack(">q", end))
            self.reactor.advance(1)
            self.assertEqual(self.transfers(connection), [(end, b"")])

    def test_silent_slave_is_disconnected(self):
        connection = self.connect(0)
        self.reactor.pump([1] * 20)
        self.assertFalse(connection.transport.aborted)
        self.reactor.advance(1)
        self.assertTrue(connection.transport.aborted)
        self.assertIn("slave 10.0.0.9:4097 is disconnected: nothing was received from it for 21 s", self.errors())

    def test_behind_bytes_of_master(self):
        self.put()
        self.assertEqual(self.master.behind_bytes(), self.store.max_physical_offset())
        self.connect(self.store.max_physical_offset())
        self.assertEqual(self.master.behind_bytes(), 0)

    def test_listen_on_used_port_fails(self):
        taken = CannotListenError("", 10912, OSError(98, "Address already in use"))
        self.patch(self.reactor, "listenTCP", lambda *_, **__: (_ for _ in ()).throw(taken))
        with self.assertRaisesRegex(ListenError, "stop that process or set another haListenPort"):
            ReplicationMaster(self.config, self.reactor, TrustedPeers(self.config, self.reactor)).listen()


class BatchTests(MasterTestCase):
    settings = {"ha_transfer_batch_size": 1000}

    def test_pieces_have_a_limit_and_do_not_cross_files(self):
        connection = self.connect(0)
        self.put(60)
        self.transfers(connection)
        self.store.put_messages([make_message(b"x" * 100) for _ in range(40)])
        self.turn()
        found = self.transfers(connection)
        self.assertEqual(max(len(t.body) for t in found), 1000)
        self.assertTrue(all(t.offset // FILE_SIZE == (t.offset + len(t.body) - 1) // FILE_SIZE for t in found))
        self.assertEqual(found[-1].offset + len(found[-1].body), self.store.max_physical_offset())


class RefusedSlaveTests(MasterTestCase):
    def assert_dropped(self, connection, text):
        self.assertTrue(connection.transport.aborted)
        (line,) = self.errors()
        self.assertRegex(line, f"^slave 10.0.0.9:4097 is disconnected: .*{text}")

    def test_slave_ahead_of_master_is_disconnected(self):
        self.put()
        end = self.store.max_physical_offset()
        connection = self.connect(end + 1)
        self.assert_dropped(
            connection, f"up to offset {end + 1}, but the log of this master ends at {end}: .* move the slave's store"
        )
        self.assertEqual(self.master.behind_bytes(), end)

    def test_slave_reporting_ahead_later_is_disconnected(self):
        connection = self.connect(0)
        connection.dataReceived(pack(">q", 1))
        self.assert_dropped(connection, "the logs have diverged")

    def test_negative_report_is_disconnected(self):
        self.assert_dropped(self.connect(-1), "up to offset -1")

    def test_slave_asking_for_expired_bytes_is_disconnected(self):
        self.put(60)
        first = self.store.commit_log.queue.files[0]
        self.store.wait_until_flushed(self.store.max_physical_offset())
        self.assertTrue(self.store.commit_log.queue.delete_first(first))
        self.assert_dropped(
            self.connect(500), f"the messages after it have expired: the log of this master begins at {FILE_SIZE}"
        )

    def test_slave_too_slow_for_expiry_is_disconnected(self):
        connection = self.connect(0)
        connection.transport.producer.pauseProducing()
        self.put(60)
        self.store.wait_until_flushed(self.store.max_physical_offset())
        self.assertTrue(self.store.commit_log.queue.delete_first(self.store.commit_log.queue.files[0]))
        connection.transport.producer.resumeProducing()
        self.assert_dropped(connection, "it was too slow, and the messages after offset 0 have expired")


class WaitingTests(MasterTestCase):
    def test_wait_without_slave_is_not_available(self):
        self.put()
        end = self.wait()
        self.assertEqual(self.answers, [(end, PutStatus.SLAVE_NOT_AVAILABLE)])

    def test_wait_is_answered_at_report(self):
        connection = self.connect(0)
        self.put()
        end = self.wait()
        self.assertEqual(self.answers, [])
        connection.dataReceived(pack(">q", end))
        self.assertEqual(self.answers, [(end, PutStatus.PUT_OK)])

    def test_wait_is_answered_by_fastest_slave(self):
        self.connect(0)
        other = self.connect(0)
        self.put()
        end = self.wait()
        other.dataReceived(pack(">q", end))
        self.assertEqual(self.answers, [(end, PutStatus.PUT_OK)])

    def test_hanging_slave_costs_one_timeout_below_client_timeout(self):
        connection = self.connect(0)
        self.put()
        first = self.wait()
        self.reactor.advance(1)
        self.put()
        second = self.wait()
        self.reactor.advance(0.9)
        self.assertEqual(self.answers, [])
        self.reactor.advance(0.1)
        timeout = PutStatus.FLUSH_SLAVE_TIMEOUT
        self.assertEqual(self.answers, [(first, timeout), (second, timeout)])
        for _ in range(7):
            self.put()
            end = self.wait()
            self.assertEqual(self.answers[-1], (end, PutStatus.SLAVE_NOT_AVAILABLE))
        connection.dataReceived(pack(">q", end))
        self.put()
        end = self.wait()
        connection.dataReceived(pack(">q", end))
        self.assertEqual(self.answers[-1], (end, PutStatus.PUT_OK))

    def test_slave_behind_limit_is_not_waited_for(self):
        self.connect(0)
        self.put(3)
        end = self.store.max_physical_offset()
        self.config.ha_slave_fallbehind_max = end
        self.wait()
        self.assertEqual(self.answers, [(end, PutStatus.SLAVE_NOT_AVAILABLE)])
        self.config.ha_slave_fallbehind_max = end + 1
        self.wait()
        self.assertEqual(len(self.answers), 1)

    def test_lost_slave_leaves_waits_until_timeout(self):
        connection = self.connect(0)
        self.put()
        end = self.wait()
        self.lose(connection)
        self.assertEqual(self.answers, [])
        self.reactor.advance(3)
        self.assertEqual(self.answers, [(end, PutStatus.FLUSH_SLAVE_TIMEOUT)])
        end = self.wait()
        self.assertEqual(self.answers[1:], [(end, PutStatus.SLAVE_NOT_AVAILABLE)])


class StopTests(MasterTestCase):
    def stop(self):
        return Deferred.fromCoroutine(self.master.stop())

    def test_stop_without_slaves_ends_at_once(self):
        self.successResultOf(self.stop())

    def test_stop_waits_until_slaves_have_all(self):
        connection = self.connect(0)
        self.connect()
        self.put()
        result = self.stop()
        self.assertNoResult(result)
        connection.dataReceived(pack(">q", self.store.max_physical_offset()))
        self.successResultOf(result)
        self.assertTrue(connection.transport.aborted)
        self.assertEqual(self.reactor.getDelayedCalls(), [])

    def test_stop_does_not_wait_for_lost_slave(self):
        connection = self.connect(0)
        self.put()
        result = self.stop()
        self.lose(connection)
        self.successResultOf(result)

    def test_stop_waits_for_limited_time(self):
        self.connect(0)
        self.put()
        end = self.wait()
        result = self.stop()
        self.reactor.advance(STOP_SECONDS - 0.1)
        self.assertNoResult(result)
        self.reactor.advance(0.1)
        self.successResultOf(result)
        self.assertEqual(self.answers, [(end, PutStatus.FLUSH_SLAVE_TIMEOUT)])


class SlaveTestCase(ReplicationTestCase):
    def setUp(self):
        super().setUp()
        self.source = self.open_store()
        self.store = self.open_store("SLAVE")
        self.dispatcher = InlineDispatcher()
        self.reached = []
        self.slave = ReplicationSlave(self.config, self.reactor, self.dispatcher.pool("send"), self.reached.append)
        self.slave.start(self.store)
        self.addCleanup(self.slave.stop)
        self.source.put_messages([make_message(b"x" * 100) for _ in range(3)])
        self.data = bytes(self.source.commit_log.data_from(0))

    def accept(self):
        """Accept the last attempt to connect."""
        self.assertIsNone(self.slave.connection)
        host, port, factory = self.reactor.tcpClients[-1][:3]
        protocol = factory.buildProtocol(None)
        self.transport = Transport()
        protocol.makeConnection(self.transport)
        self.connection = self.slave.connection
        self.turn()
        return f"{host}:{port}"

    def attempts(self):
        return len(self.reactor.tcpClients)

    def connect(self):
        self.slave.follow(MASTER)
        self.accept()

    def reports(self):
        data = self.transport.take()
        return [unpack_from(">q", data, at)[0] for at in range(0, len(data), 8)]

    def send(self, offset, body):
        self.connection.dataReceived(encode_header(offset, len(body)) + body)
        self.turn()

    def lose(self):
        self.connection.connectionLost(Failure(ConnectionDone()))
        self.turn()


class FollowingTests(SlaveTestCase):
    def test_slave_connects_once_address_is_known(self):
        self.assertEqual(self.attempts(), 0)
        self.slave.follow(MASTER)
        self.assertEqual(self.accept(), MASTER)
        self.slave.follow(MASTER)
        self.assertEqual(self.attempts(), 1)

    def test_reports_and_appends(self):
        self.connect()
        self.assertEqual(self.reports(), [0])
        self.assertTrue(self.transport.nodelay)
        self.send(0, self.data)
        self.assertEqual(self.reports(), [len(self.data)])
        self.assertEqual(bytes(self.store.commit_log.data_from(0)), self.data)

    def test_part_of_a_record_is_not_reported(self):
        self.connect()
        self.send(0, self.data[:-1])
        end = len(self.data) // 3 * 2
        self.assertEqual(self.reports(), [0, end])
        self.send(len(self.data) - 1, b"")
        self.assertEqual(self.reports(), [])
        self.send(len(self.data) - 1, self.data[-1:])
        self.assertEqual(self.reports(), [len(self.data)])

    def test_several_bodies_are_appended_together(self):
        self.connect()
        self.dispatcher.delay = True
        for at in range(0, len(self.data), 50):
            self.send(at, self.data[at : at + 50])
        self.assertEqual(len(self.dispatcher.calls), 1)
        self.dispatcher.run()
        self.turn()
        self.assertEqual(self.reports(), [0, len(self.data)])

    def test_idle_slave_reports_again(self):
        self.connect()
        self.reports()
        for _ in range(3):
            self.reactor.pump([1] * 4)
            self.assertEqual(self.reports(), [])
            self.send(0, b"")
            self.reactor.advance(1)
            self.assertEqual(self.reports(), [0])

    def test_fast_master_is_paused(self):
        self.connect()
        self.dispatcher.delay = True
        body = bytes(1 << 20)
        for number in range(WAITING_BYTES // len(body)):
            self.send(number * len(body), body)
        self.assertEqual(self.transport.producerState, "producing")
        self.send(WAITING_BYTES, b"x")
        self.assertEqual(self.transport.producerState, "paused")
        self.connection.appended(WAITING_BYTES, 0)
        self.assertEqual(self.transport.producerState, "producing")

    def test_restarted_slave_continues(self):
        self.connect()
        self.send(0, self.data)
        self.lose()
        self.accept()
        # The end of the log is compared first.
        self.assertEqual(self.reports(), [1])
        self.send(1, self.data[1:])
        self.assertEqual(self.reports(), [len(self.data)])
        self.send(len(self.data), b"")
        self.assertFalse(self.transport.aborted)


class TroubleTests(SlaveTestCase):
    def fail(self):
        """Have the last attempt to connect fail."""
        self.reactor.tcpClients[-1][2].clientConnectionFailed(None, Failure(ConnectError()))

    def assert_given_up(self, text):
        self.assertTrue(self.transport.aborted)
        (line,) = self.errors()
        self.assertRegex(line, text)
        before = self.attempts()
        self.lose()
        self.reactor.advance(RECONNECT_SECONDS - 0.1)
        self.assertEqual(self.attempts(), before)
        self.reactor.advance(0.2)
        self.assertEqual(self.attempts(), before + 1)

    def test_unreachable_master_is_retried_every_5_s_and_logged_once(self):
        self.slave.follow(MASTER)
        for number in range(1, 4):
            self.assertEqual(self.attempts(), number)
            self.fail()
            self.reactor.advance(RECONNECT_SECONDS)
        (line,) = self.errors()
        self.assertIn(f"cannot connect to the master at {MASTER}: ", line)
        self.accept()
        self.send(0, b"")
        self.assertTrue(any("is followed again" in formatEvent(event) for event in self.events))

    def test_lost_useful_connection_is_retried_at_once(self):
        self.connect()
        self.send(0, b"")
        self.lose()
        self.assertEqual(self.attempts(), 2)

    def test_lost_useless_connection_is_retried_later(self):
        self.connect()
        self.lose()
        self.assertEqual(self.attempts(), 1)
        self.reactor.advance(RECONNECT_SECONDS)
        self.assertEqual(self.attempts(), 2)

    def test_other_offset_than_expected_is_given_up(self):
        self.connect()
        self.send(0, self.data)
        self.send(len(self.data) + 1, b"x")
        self.assert_given_up(
            f"from offset {len(self.data) + 1}, but this log goes on at {len(self.data)}: .*store away"
        )

    def test_heartbeat_at_other_offset_is_given_up(self):
        self.connect()
        self.send(0, self.data)
        self.send(5, b"")
        self.assert_given_up("cannot follow the master at .*: the master sends from offset 5")

    def restart(self):
        """Have the slave connect again with all of the data."""
        self.connect()
        self.send(0, self.data)
        self.lose()
        self.accept()
        self.errors()

    def test_master_log_ending_earlier_is_given_up(self):
        self.restart()
        self.send(1, self.data[1:400])
        self.send(400, b"")
        self.assertFalse(self.transport.aborted)
        self.send(400, b"")
        self.assert_given_up(
            f"sends nothing from offset 400 on, but this log ends at {len(self.data)}: .*make this broker the master"
        )

    def test_heartbeat_before_first_bytes_is_accepted(self):
        self.restart()
        self.send(1, b"")
        self.send(1, self.data[1:400])
        self.send(400, b"")
        self.assertFalse(self.transport.aborted)

    def test_master_with_other_bytes_is_given_up(self):
        self.restart()
        self.send(1, bytes(100))
        self.assert_given_up("the master's log has other bytes at 1 than this one")

    def test_malformed_frame_is_given_up(self):
        self.connect()
        self.connection.dataReceived(b"\xff" * 12)
        self.assert_given_up("are not a replication header")

    def test_bytes_refused_by_log_are_given_up(self):
        self.connect()
        self.send(0, bytes(100))
        self.assert_given_up("are not a record that fits")
        self.assertEqual(self.store.max_physical_offset(), 0)

    def test_bytes_after_refusal_are_dropped(self):
        self.connect()
        self.dispatcher.delay = True
        self.send(0, bytes(100))
        self.dispatcher.run()
        self.turn()
        self.connection.dataReceived(encode_header(100, 1) + b"x")
        self.assertEqual(self.dispatcher.calls, [])

    def test_silent_master_is_given_up(self):
        self.connect()
        self.reactor.pump([1] * 20)
        self.assertFalse(self.transport.aborted)
        self.reactor.advance(1)
        self.assert_given_up("nothing was received from the master")

    def test_other_master_address_is_followed_at_once(self):
        self.connect()
        old = self.transport
        self.slave.follow("[2001:db8::1]:7")
        self.assertTrue(old.aborted)
        self.assertEqual(self.reactor.tcpClients[-1][:2], ("2001:db8::1", 7))
        self.connection.connectionLost(Failure(ConnectionDone()))
        self.reactor.advance(RECONNECT_SECONDS + 1)
        self.assertEqual(self.attempts(), 2)

    def test_other_master_address_replaces_running_attempt(self):
        self.slave.follow(MASTER)
        self.slave.follow("10.0.0.2:1")
        self.assertEqual(self.accept(), "10.0.0.2:1")

    def test_malformed_master_address_is_logged(self):
        self.slave.follow("nonsense")
        self.assertRegex(self.errors()[0], "connect to nonsense failed: an address is host:port")

    def test_stopped_slave_does_not_reconnect(self):
        self.connect()
        self.slave.stop()
        self.assertTrue(self.transport.aborted)
        self.lose()
        self.reactor.advance(60)
        self.assertEqual(self.attempts(), 1)
        self.slave.start(self.store)


class FakeClient:
    """Answers requests with bodies by code; an exception is raised instead."""

    class name_servers:  # noqa: N801 - an attribute of the real client
        addresses = ("n1", "n2")

    def __init__(self):
        self.asked = []
        self.answers = {}
        self.watch_code = 3

    async def invoke_sync(self, address, request, timeout_ms):
        if request.code == RequestCode.AWAIT_TABLE_CHANGES:
            return RemotingCommand.response(self.watch_code, "not supported")
        self.asked.append((address, request.code))
        answer = self.answers[request.code]
        if isinstance(answer, Exception):
            raise answer
        return answer


class TablesTestCase(ReplicationTestCase):
    def setUp(self):
        super().setUp()
        self.broker = SmallBroker(os.path.abspath(self.mktemp()), brokerRole="SLAVE", brokerId="1")
        self.broker.start()
        self.addCleanup(self.broker.stop)
        self.client = FakeClient()
        version = DataVersion(5, 77)
        self.topics = TopicConfigSerializeWrapper({"Made": TopicConfig("Made", 3, 3)}, version)
        self.groups = SubscriptionGroupWrapper({"G": SubscriptionGroupConfig("G")}, version)
        self.client.answers = {
            21: RemotingCommand.response(body=self.topics.encode()),
            43: RemotingCommand.response(body=ConsumerOffsetSerializeWrapper({"T@G": {0: 7}}).encode()),
            45: RemotingCommand.response(body=DelayOffsetSerializeWrapper({3: 9}).encode()),
            201: RemotingCommand.response(body=self.groups.encode()),
        }


class SynchronizeTests(TablesTestCase):
    def setUp(self):
        super().setUp()
        self.synchronize = SlaveSynchronize(self.broker, self.client, self.reactor)
        self.synchronize.master_address = "10.0.0.1:10911"

    def run_once(self):
        self.successResultOf(self.synchronize.synchronize())
        self.turn()

    def file(self, name):
        with open(os.path.join(self.broker.settings.store.store_path_root_dir, "config", name + ".json")) as file:
            return file.read()

    def test_tables_are_copied_from_master(self):
        self.broker.offsets.commit("c", "Own", "T", 0, 5)
        self.run_once()
        self.assertEqual(self.client.asked, [("10.0.0.1:10911", code) for code in (21, 43, 45, 201)])
        self.assertEqual(self.broker.topics.snapshot(), self.topics)
        self.assertEqual(self.broker.topics.select("SELF_TEST_TOPIC"), None)
        self.assertEqual(self.broker.groups.snapshot(), self.groups)
        self.assertEqual(self.broker.offsets.snapshot().offset_table, {"T@G": {0: 7}, "T@Own": {0: 5}})
        self.assertEqual(self.broker.schedule.snapshot().offset_table, {3: 9})
        for name, part in (
            ("topics", "Made"),
            ("consumerOffset", "T@G"),
            ("delayOffset", "3:9"),
            ("subscriptionGroup", "G"),
        ):
            self.assertIn(part, self.file(name))

    def test_watch_by_unknown_slave_is_repeated_soon(self):
        for code, seconds in ((2, 1.0), (3, 10.0)):
            self.client.watch_code = code
            self.assertEqual(self.successResultOf(Deferred.fromCoroutine(self.synchronize._watch_once())), seconds)

    def test_same_table_version_is_not_written_again(self):
        heard = []
        self.broker.topics.on_change(heard.append)
        self.run_once()
        self.run_once()
        self.assertEqual(heard, ["the topics of the master were copied"])

    def test_failed_table_leaves_other_tables_alone(self):
        good = self.client.answers[21]
        self.client.answers[21] = RemotingConnectError("10.0.0.1:10911", "no way")
        self.client.answers[43] = RemotingCommand.response(1, "not now")
        self.client.answers[201] = RemotingCommand.response(body=b"nonsense")
        self.run_once()
        self.run_once()
        self.assertEqual(self.broker.schedule.snapshot().offset_table, {3: 9})
        lines = self.errors()
        self.assertEqual(len(lines), 3)
        for line, part in zip(
            lines, ("topics.*no way", "consumer offsets.*it answered 1: not now", "groups"), strict=True
        ):
            self.assertRegex(line, f"the master's {part}|the master's consumer {part}")
        self.client.answers[21] = good
        self.run_once()
        self.assertEqual(self.broker.topics.snapshot(), self.topics)
        self.assertTrue(any("topics are copied again" in formatEvent(event) for event in self.events))

    def test_unwritable_table_is_logged_and_used(self):
        self.broker.topics._file.save = lambda snapshot: (_ for _ in ()).throw(OSError(28, "No space left on device"))
        self.run_once()
        self.assertRegex(self.errors()[0], "topics.json cannot be written: .*No space left.*lost if the process ends")
        self.assertIsNotNone(self.broker.topics.select("Made"))
        del self.broker.topics._file.save

    def test_tables_are_copied_soon_and_every_period(self):
        self.synchronize.start()
        self.reactor.advance(FIRST_SECONDS - 0.1)
        self.assertEqual(self.client.asked, [])
        self.reactor.advance(0.2)
        self.assertEqual(len(self.client.asked), 4)
        self.reactor.advance(PERIOD_SECONDS)
        self.assertEqual(len(self.client.asked), 8)
        self.synchronize.stop()
        self.reactor.advance(60)
        self.assertEqual(len(self.client.asked), 8)

    def test_synchronize_without_master_asks_nothing(self):
        for address in (None, self.broker.address):
            self.synchronize.master_address = address
            self.run_once()
        self.assertEqual(self.client.asked, [])


class AdoptTests(SynchronousTestCase):
    """Entries that a master adopts from a slave's tables."""

    def setUp(self):
        self.broker = SmallBroker(os.path.abspath(self.mktemp()))
        self.broker.start()
        self.addCleanup(self.broker.stop)
        self.now = self.broker.now_ms()

    def topics(self, timestamp, *names, queues=3):
        table = {name: TopicConfig(name, queues, queues) for name in names}
        return TopicConfigSerializeWrapper(table, DataVersion(timestamp, 9))

    def groups(self, timestamp, *names, retries=16):
        table = {name: SubscriptionGroupConfig(name, retry_max_times=retries) for name in names}
        return SubscriptionGroupWrapper(table, DataVersion(timestamp, 9))

    def test_adopt_later_table_adds_missing_entries_only(self):
        self.broker.topics.update(TopicConfig("Old", 1, 1))
        self.broker.groups.update(SubscriptionGroupConfig("Old", retry_max_times=1))
        self.assertEqual(self.broker.topics.adopt(self.topics(self.now + 1, "Old", "New")), 1)
        self.assertEqual(self.broker.groups.adopt(self.groups(self.now + 1, "Old", "New")), 1)
        queues = [self.broker.topics.select(name).read_queue_nums for name in ("Old", "New")]
        retries = [self.broker.groups.find(name).retry_max_times for name in ("Old", "New")]
        self.assertEqual((queues, retries), ([1, 3], [1, 16]))

    def test_adopt_earlier_table_adds_nothing(self):
        self.broker.topics.update(TopicConfig("Old", 1, 1))
        self.broker.groups.update(SubscriptionGroupConfig("Old"))
        self.assertEqual(self.broker.topics.adopt(self.topics(self.now - 1, "Gone")), 0)
        self.assertEqual(self.broker.groups.adopt(self.groups(self.now - 1, "Gone")), 0)

    def test_adopt_compares_changes_of_tables_with_equal_times(self):
        for _ in range(9):
            self.broker.topics.update(TopicConfig("Old", 1, 1))
            self.broker.groups.update(SubscriptionGroupConfig("Old"))
        for changes, expected in ((9, 0), (10, 1)):
            version = DataVersion(self.now, changes)
            topics, groups = self.topics(self.now, f"T{changes}"), self.groups(self.now, f"G{changes}")
            topics.data_version = groups.data_version = version
            self.assertEqual(self.broker.topics.adopt(topics), expected)
            self.assertEqual(self.broker.groups.adopt(groups), expected)

    def test_adopt_into_lost_tables_takes_all(self):
        self.assertEqual(self.broker.topics.adopt(self.topics(self.now - 5, "Old", "TBW102")), 2)
        self.assertEqual(self.broker.groups.adopt(self.groups(self.now - 5, "Old")), 1)
        self.assertEqual(self.broker.topics.select("TBW102").read_queue_nums, 3)

    def test_adopt_takes_larger_offsets_up_to_queue_end(self):
        offsets = self.broker.offsets
        for queue_id, offset in ((0, 5), (1, 5), (2, 5)):
            offsets.commit("c", "G", "T", queue_id, offset)
        theirs = ConsumerOffsetSerializeWrapper({"T@G": {0: 4, 1: 7, 2: 99}, "T@H": {0: 1}, "T@I": {}})
        self.assertEqual(offsets.take_larger(theirs, lambda topic, queue_id: 20), 3)
        self.assertEqual(offsets.snapshot().offset_table, {"T@G": {0: 5, 1: 7, 2: 20}, "T@H": {0: 1}})
        self.assertEqual(offsets.take_larger(theirs, lambda topic, queue_id: None), 1)
        self.assertEqual(offsets.query("G", "T", 2), 99)


class Connected:
    """A connection to a master at a host."""

    def __init__(self, host):
        self.transport = Transport(peerAddress=IPv4Address("TCP", host, 10912))

    def close(self):
        pass


class ServiceTests(TablesTestCase):
    def setUp(self):
        super().setUp()
        self.config = self.broker.settings.store
        self.config.ha_allowed_addresses = "10.0.0.0/24"
        self.replication = Replication(self.broker, self.client, self.reactor)
        self.followed = []
        self.replication.slave.follow = self.followed.append

    def answer(self, name_server, ha_address, master):
        self.replication.registered(name_server, RegisterBrokerResponseHeader(ha_address, master))

    def reach(self, address):
        """Connect the slave's side to the master at an address."""
        slave = self.replication.slave
        slave.start(self.broker.store)
        self.addCleanup(slave.stop)
        slave.master_address = address
        slave.connected(Connected(address.partition(":")[0]))

    def test_master_address_comes_from_name_servers(self):
        self.answer("n1", None, None)
        self.assertEqual((self.followed, self.replication.synchronize.master_address), ([], None))
        self.answer("n2", MASTER, TABLES)
        self.assertEqual((self.followed, self.replication.synchronize.master_address), ([MASTER], TABLES))

    def test_departed_master_is_not_asked_for_tables(self):
        self.answer("n1", MASTER, TABLES)
        self.answer("n1", None, None)
        self.assertEqual((self.followed, self.replication.synchronize.master_address), ([MASTER], None))

    def test_master_at_host_that_is_not_trusted_is_ignored_until_host_is_listed(self):
        self.config.ha_allowed_addresses = "10.0.0.9"
        self.answer("n1", MASTER, TABLES)
        self.assertEqual((self.followed, self.replication.synchronize.master_address), ([], None))
        lines = self.errors()
        for address, line in zip((TABLES, MASTER), lines, strict=True):
            self.assertIn(
                f"name servers name {address} as the master, which is not followed: its host is not in haAllowed", line
            )
        self.config.ha_allowed_addresses = "10.0.0.1"
        self.answer("n1", MASTER, TABLES)
        self.assertEqual((self.followed, self.replication.synchronize.master_address), ([MASTER], TABLES))

    def test_host_of_configured_master_is_trusted_once_it_is_reached(self):
        self.config.ha_allowed_addresses = "10.0.0.9"
        self.config.ha_master_address = MASTER
        self.answer("n1", "10.0.0.3:10912", TABLES)
        self.assertEqual((self.followed, self.replication.synchronize.master_address), ([MASTER], None))
        self.reach(MASTER)
        self.assertEqual(self.replication.synchronize.master_address, TABLES)

    def test_host_at_learnt_address_is_not_trusted_for_being_reached(self):
        self.config.ha_allowed_addresses = "10.0.0.9"
        self.answer("n1", None, TABLES)
        self.reach(MASTER)
        self.assertIsNone(self.replication.synchronize.master_address)

    def test_removed_name_server_is_ignored(self):
        self.answer("n3", MASTER, TABLES)
        self.assertEqual((self.followed, self.replication.synchronize.master_address), ([], None))

    def test_master_address_setting_wins_and_may_change(self):
        self.config.ha_master_address = "10.0.0.7:1"
        self.replication.listen()
        self.replication.start(self.broker.store)
        self.answer("n1", MASTER, TABLES)
        self.config.ha_master_address = "10.0.0.8:1"
        self.reactor.advance(1)
        self.assertEqual(list(dict.fromkeys(self.followed)), ["10.0.0.7:1", "10.0.0.8:1"])
        self.assertEqual(self.replication.synchronize.master_address, TABLES)
        table = self.replication.table()
        self.assertEqual((table["haMasterAddress"], table["haMasterConnected"]), ("", "false"))
        self.assertEqual((table["haRole"], table["haBrokerName"]), ("SLAVE", "broker-a"))
        self.replication.stop_following()
        self.successResultOf(Deferred.fromCoroutine(self.replication.stop()))
        self.assertEqual(self.reactor.getDelayedCalls(), [])

    def test_master_does_not_follow(self):
        broker = SmallBroker(os.path.abspath(self.mktemp()))
        broker.start()
        self.addCleanup(broker.stop)
        replication = Replication(broker, self.client, self.reactor)
        replication.listen()
        replication.start(broker.store)
        replication.registered("n1", RegisterBrokerResponseHeader(MASTER, TABLES))
        self.reactor.advance(10)
        self.assertEqual((self.client.asked, self.reactor.tcpClients), ([], []))
        broker.settings.store.ha_allowed_addresses = "10.0.0.0/24"
        connection = self.reactor.tcpServers[0][1].buildProtocol(PEER)
        connection.makeConnection(Transport(peerAddress=PEER))
        connection.dataReceived(pack(">q", 0))
        expected = {"haSlave_10.0.0.9:4097": "0", "haSlavesBehindBytes": "0", "haSlavesLagging": "false"}
        self.assertEqual(replication.table(), replication.table() | expected)
        replication.stop_following()
        self.successResultOf(Deferred.fromCoroutine(replication.stop()))
