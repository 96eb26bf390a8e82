"""The remoting client on a fake reactor, and against a listening server on loopback."""

from random import Random
from threading import Barrier, Event, current_thread

from twisted.internet import defer, error, reactor
from twisted.internet.endpoints import TCP4ServerEndpoint
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.logger import formatEvent, globalLogPublisher
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase, TestCase
from zope.interface import implementer

from rocketd.common.logs.throttle import INTERVAL
from rocketd.remoting.calling.channel_table import split_address
from rocketd.remoting.calling.client import RemotingClient
from rocketd.remoting.calling.invoke import InvokeLayer
from rocketd.remoting.errors import (
    PermitTimeoutError,
    RemotingCommandError,
    RemotingConnectError,
    RemotingSendRequestError,
    RemotingTimeoutError,
    RequestError,
)
from rocketd.remoting.headers.client import PullMessageRequestHeader, read_header
from rocketd.remoting.interfaces import ConnectionEvent, EventKind, IRequestProcessor
from rocketd.remoting.serving.dispatch import Dispatcher
from rocketd.remoting.serving.server import RemotingServer
from rocketd.remoting.settings import NettyClientConfig, TlsConfig
from rocketd.remoting.tls.contexts import ClientTLS
from rocketd.remoting.tls.port import wrap_server_factory
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.remoting.wire.frame import FrameDecoder

ADDRESS = "10.0.0.1:10911"


class FakeTransport(StringTransport):
    """A transport that knows TCP's options."""

    nodelay = False
    aborted = False

    def setTcpNoDelay(self, enabled):
        self.nodelay = enabled

    def abortConnection(self):
        self.aborted = True


class FakePeer:
    """The other end of an attempt to connect."""

    def __init__(self, attempt):
        self.address = f"{attempt[0]}:{attempt[1]}"
        self.factory = attempt[2]
        self.decoder = FrameDecoder()

    def accept(self):
        self.factory.doStart()
        self.protocol = self.factory.buildProtocol(None)
        self.transport = FakeTransport()
        self.protocol.makeConnection(self.transport)
        self.connection = self.protocol._wrappedProtocol
        return self

    def refuse(self):
        self.factory.clientConnectionFailed(None, Failure(error.ConnectionRefusedError()))

    def requests(self):
        data = self.transport.value()
        self.transport.clear()
        return [RemotingCommand.decode(frame) for frame in self.decoder.feed(data)]

    def answer(self, request, remark=None):
        self.protocol.dataReceived(RemotingCommand.response(0, remark).answering(request).encode())

    def send(self, command):
        self.protocol.dataReceived(command.encode())

    def lose(self):
        self.protocol.connectionLost(Failure(error.ConnectionDone()))


class ClientTestCase(SynchronousTestCase):
    config = {}

    def setUp(self):
        self.reactor = MemoryReactorClock()
        self.client = RemotingClient(
            self.reactor,
            NettyClientConfig(**self.config),
            callback_executor=lambda function: function(),
            random=Random(1),
        )
        self.reactor.callFromThread = lambda function, *arguments: function(*arguments)
        self.client.startService()
        self.taken = 0
        self.events = []

    def peer(self):
        """Return the other end of the next attempt to connect."""
        peer = FakePeer(self.reactor.tcpClients[self.taken])
        self.taken += 1
        return peer


class ExecutorTests(SynchronousTestCase):
    def test_callback_runs_in_a_thread_of_the_client_by_default(self):
        clock = MemoryReactorClock()
        returned = []
        clock.callFromThread = lambda function, *arguments: returned.append(function)
        client = RemotingClient(clock, NettyClientConfig(client_callback_executor_threads=1))
        client.startService()
        names, called = [], Event()

        def callback():
            names.append(current_thread().name)
            called.set()

        client.invoke.in_executor(callback)
        self.assertTrue(called.wait(60))
        self.assertEqual(names, ["rocketd-callback-1"])
        client.stopService()

    def test_callback_thread_count_follows_setting(self):
        clock = MemoryReactorClock()
        clock.callFromThread = lambda function, *arguments: None
        client = RemotingClient(clock, NettyClientConfig(client_callback_executor_threads=3))
        client.startService()
        self.addCleanup(client.stopService)
        together = Barrier(4)
        for _ in range(3):
            client.invoke.in_executor(together.wait, 60)
        together.wait(60)  # three of them wait at the same time


class PermitTests(ClientTestCase):
    config = {"client_async_semaphore_value": 1}

    def test_permit_timeout_keeps_connection_open(self):
        first = self.client.invoke_async(ADDRESS, RemotingCommand(1), 9000)
        peer = self.peer().accept()
        second = self.client.invoke_async(ADDRESS, RemotingCommand(2), 1000)
        self.reactor.advance(1.1)
        self.failureResultOf(second, PermitTimeoutError)
        self.assertFalse(peer.connection.closed)
        requests = peer.requests()
        self.assertEqual([request.code for request in requests], [1])
        peer.answer(requests[0])
        self.successResultOf(first)


class InvokeTests(ClientTestCase):
    def test_many_calls_share_one_connection(self):
        calls = [self.client.invoke_sync(ADDRESS, RemotingCommand(n), 3000) for n in range(20)]
        self.assertEqual(len(self.reactor.tcpClients), 1)
        peer = self.peer().accept()
        self.assertTrue(peer.transport.nodelay)
        requests = peer.requests()
        self.assertEqual([request.code for request in requests], list(range(20)))
        for request in reversed(requests):
            peer.answer(request, str(request.code))
        self.assertEqual([self.successResultOf(call).remark for call in calls], [str(n) for n in range(20)])
        later = self.client.invoke_sync(ADDRESS, RemotingCommand(1), 3000)
        peer.answer(peer.requests()[0])
        self.successResultOf(later)
        self.assertEqual(len(self.reactor.tcpClients), 1)

    def test_refused_connection_fails_all_calls_and_next_call_retries(self):
        calls = [self.client.invoke_sync(ADDRESS, RemotingCommand(n), 3000) for n in range(3)]
        self.peer().refuse()
        for call in calls:
            self.assertIn(ADDRESS, str(self.failureResultOf(call, RemotingConnectError).value))
        again = self.client.invoke_sync(ADDRESS, RemotingCommand(1), 3000)
        peer = self.peer().accept()
        peer.answer(peer.requests()[0])
        self.successResultOf(again)

    def test_refused_connection_with_call_cancelled_in_errback_fails_others(self):
        calls = [self.client.invoke_sync(ADDRESS, RemotingCommand(1), 3000) for _ in range(3)]
        calls[0].addErrback(lambda _: calls[1].cancel())
        self.peer().refuse()
        self.successResultOf(calls[0])
        self.failureResultOf(calls[1], defer.CancelledError)
        self.failureResultOf(calls[2], RemotingConnectError)

    def test_lost_connection_with_call_cancelled_in_errback_fails_others(self):
        calls = [self.client.invoke_sync(ADDRESS, RemotingCommand(1), 3000) for _ in range(3)]
        peer = self.peer().accept()
        calls[0].addErrback(lambda _: calls[1].cancel())
        peer.lose()
        self.successResultOf(calls[0])
        self.failureResultOf(calls[1], defer.CancelledError)
        self.failureResultOf(calls[2], RemotingSendRequestError)

    def test_silent_address_fails_after_the_connect_timeout(self):
        call = self.client.invoke_sync(ADDRESS, RemotingCommand(1), 30_000)
        self.reactor.advance(2.9)
        self.assertNoResult(call)
        self.reactor.advance(0.2)
        self.assertIn("no connection within 3 s", str(self.failureResultOf(call, RemotingConnectError).value))

    def test_time_to_connect_is_taken_from_the_timeout(self):
        sync = self.client.invoke_sync(ADDRESS, RemotingCommand(1), 1000)
        asynchronous = self.client.invoke_async(ADDRESS, RemotingCommand(2), 1000)
        longer = self.client.invoke_sync(ADDRESS, RemotingCommand(3), 2000)
        oneway = self.client.invoke_oneway(ADDRESS, RemotingCommand(4), 10)
        self.reactor.advance(1.01)
        for call in (sync, asynchronous):
            self.assertIn("no connection within 1000 ms", str(self.failureResultOf(call, RemotingConnectError).value))
        self.reactor.advance(0.49)
        peer = self.peer().accept()
        self.successResultOf(oneway)
        self.assertEqual([request.code for request in peer.requests()], [3, 4])
        self.reactor.advance(0.51)
        self.failureResultOf(longer, RemotingTimeoutError)

    def test_silence_of_a_peer_is_logged_once_a_minute(self):
        events = []
        globalLogPublisher.addObserver(events.append)
        self.addCleanup(globalLogPublisher.removeObserver, events.append)

        def silences():
            return [formatEvent(event) for event in events if "no answer to" in formatEvent(event)]

        for _ in range(5):
            asked = self.client.invoke_sync(ADDRESS, RemotingCommand(4), 1000)
            self.peer().accept()
            self.reactor.advance(1.1)
            self.failureResultOf(asked, RemotingTimeoutError)
        self.assertEqual(len(silences()), 1)

    def test_timeout_closes_the_connection(self):
        call = self.client.invoke_sync(ADDRESS, RemotingCommand(1), 1000)
        peer = self.peer().accept()
        self.reactor.advance(1.1)
        self.failureResultOf(call, RemotingTimeoutError)
        self.assertTrue(peer.transport.disconnecting)
        self.client.invoke_sync(ADDRESS, RemotingCommand(1), 1000).addErrback(lambda _: None)
        self.assertEqual(len(self.reactor.tcpClients), 2)

    def test_timeout_keeps_connection_with_recent_traffic(self):
        slow = self.client.invoke_sync(ADDRESS, RemotingCommand(1), 1000)
        other = self.client.invoke_sync(ADDRESS, RemotingCommand(2), 3000)
        peer = self.peer().accept()
        requests = peer.requests()
        self.reactor.advance(0.5)
        peer.answer(requests[1])
        self.successResultOf(other)
        self.reactor.advance(0.6)
        self.failureResultOf(slow, RemotingTimeoutError)
        self.assertFalse(peer.transport.disconnecting)
        again = self.client.invoke_sync(ADDRESS, RemotingCommand(3), 1000)
        peer.answer(requests[0], "late")
        peer.answer(peer.requests()[0], "its own")
        self.assertEqual(self.successResultOf(again).remark, "its own")
        self.assertEqual(len(self.reactor.tcpClients), 1)

    def test_connection_that_does_not_close_is_aborted(self):
        """Pending bytes may never leave over a half-open connection."""
        call = self.client.invoke_sync(ADDRESS, RemotingCommand(1), 1000)
        peer = self.peer().accept()
        self.reactor.advance(1.1)
        self.failureResultOf(call, RemotingTimeoutError)
        self.reactor.advance(1.9)
        self.assertFalse(peer.transport.aborted)
        self.reactor.advance(0.2)
        self.assertTrue(peer.transport.aborted)

    def test_connection_that_closes_is_not_aborted(self):
        call = self.client.invoke_sync(ADDRESS, RemotingCommand(1), 1000)
        peer = self.peer().accept()
        self.reactor.advance(1.1)
        self.failureResultOf(call, RemotingTimeoutError)
        peer.lose()
        self.reactor.advance(5)
        self.assertFalse(peer.transport.aborted)

    def test_lost_connection_fails_requests_and_next_call_reconnects(self):
        call = self.client.invoke_sync(ADDRESS, RemotingCommand(1), 3000)
        asynchronous = self.client.invoke_async(ADDRESS, RemotingCommand(2), 3000)
        peer = self.peer().accept()
        peer.lose()
        self.failureResultOf(call, RemotingSendRequestError)
        self.failureResultOf(asynchronous, RemotingSendRequestError)
        self.client.invoke_sync(ADDRESS, RemotingCommand(1), 3000).addErrback(lambda _: None)
        self.assertEqual(len(self.reactor.tcpClients), 2)

    def test_closing_an_old_connection_keeps_the_new_one(self):
        self.client.invoke_sync(ADDRESS, RemotingCommand(1), 3000).addErrback(lambda _: None)
        old = self.peer().accept()
        self.client.channels.close(old.connection)
        call = self.client.invoke_sync(ADDRESS, RemotingCommand(1), 3000)
        new = self.peer().accept()
        self.client.channels.close(old.connection)
        old.lose()
        self.assertIs(self.client.channels.get(ADDRESS), new.connection)
        new.answer(new.requests()[0])
        self.successResultOf(call)

    def test_garbage_closes_the_connection(self):
        call = self.client.invoke_sync(ADDRESS, RemotingCommand(1), 3000)
        peer = self.peer().accept()
        peer.protocol.dataReceived(b"HTTP/1.1 400 Bad Request\r\n")
        self.assertTrue(peer.transport.aborted)
        peer.lose()
        self.failureResultOf(call, RemotingSendRequestError)

    def test_oneway_waits_while_peer_reads_nothing(self):
        client = self.client
        client.invoke.oneway_permits._available = 1
        client.invoke_oneway(ADDRESS, RemotingCommand(1), 100)
        peer = self.peer().accept()
        peer.connection.pauseProducing()
        self.successResultOf(client.invoke_oneway(ADDRESS, RemotingCommand(2), 100))
        waits = client.invoke_oneway(ADDRESS, RemotingCommand(3), 100)
        self.assertEqual([request.code for request in peer.requests()], [1, 2])
        self.assertNoResult(waits)
        peer.connection.resumeProducing()
        self.successResultOf(waits)
        self.assertEqual([request.code for request in peer.requests()], [3])

    def test_idle_connection_is_closed_with_events(self):
        self.client.listeners.append(self.events.append)
        call = self.client.invoke_sync(ADDRESS, RemotingCommand(1), 3000)
        peer = self.peer().accept()
        self.reactor.advance(1)
        peer.answer(peer.requests()[0])
        self.successResultOf(call)
        self.reactor.pump([1] * 119)
        self.assertFalse(peer.transport.disconnecting)
        self.reactor.pump([1] * 3)
        self.assertTrue(peer.transport.disconnecting)
        peer.lose()
        reasons = [(event.kind.name, event.reason) for event in self.events]
        self.assertEqual(reasons, [("CONNECT", ""), ("IDLE", "idle for 120 s"), ("CLOSE", "")])
        self.assertEqual({event.address for event in self.events}, {ADDRESS})

    def test_failed_connection_is_closed_with_events(self):
        self.client.listeners.append(self.events.append)
        self.client.invoke_sync(ADDRESS, RemotingCommand(1), 3000).addErrback(lambda _: None)
        self.peer().refuse()
        self.assertEqual(self.events, [], "there was no connection")
        self.client.invoke_sync(ADDRESS, RemotingCommand(1), 3000).addErrback(lambda _: None)
        peer = self.peer().accept()
        peer.protocol.dataReceived(b"HTTP/1.1 400 Bad Request\r\n")
        peer.lose()
        self.assertEqual(
            self.events,
            [
                ConnectionEvent(EventKind.CONNECT, ADDRESS),
                ConnectionEvent(EventKind.EXCEPTION, ADDRESS, "an HTTP server answers there"),
                ConnectionEvent(EventKind.CLOSE, ADDRESS),
            ],
        )

    def test_wrong_address_fails(self):
        for address in ("nothing", "host:", ":1", "host:99999", "host:1x"):
            call = self.client.invoke_sync(address, RemotingCommand(1), 3000)
            self.assertIn("host:port", str(self.failureResultOf(call, RemotingConnectError).value))
        self.assertEqual(split_address("[::1]:9876"), ("::1", 9876))

    def test_http_server_is_named_in_error(self):
        call = self.client.invoke_sync(ADDRESS, RemotingCommand(1), 3000)
        peer = self.peer().accept()
        peer.protocol.dataReceived(b"HTTP/1.1 400 Bad Request\r\n")
        peer.lose()
        self.assertIn("an HTTP server", str(self.failureResultOf(call, RemotingSendRequestError).value))

    def test_unreachable_address_is_logged_with_throttle(self):
        events = []
        globalLogPublisher.addObserver(events.append)
        self.addCleanup(globalLogPublisher.removeObserver, events.append)

        def fail():
            call = self.client.invoke_sync(ADDRESS, RemotingCommand(1), 3000)
            self.peer().refuse()
            self.failureResultOf(call, RemotingConnectError)
            return sum("refused" in formatEvent(event) for event in events)

        self.assertEqual([fail() for _ in range(20)], [1] * 20)
        self.reactor.advance(INTERVAL)
        self.assertEqual(fail(), 2)
        self.assertIn("(19 more like this", formatEvent(events[-1]))
        call = self.client.invoke_sync(ADDRESS, RemotingCommand(1), 3000)
        peer = self.peer().accept()
        peer.answer(peer.requests()[0])
        self.successResultOf(call)
        peer.lose()
        self.assertEqual(fail(), 3)


class KeepOpenTests(ClientTestCase):
    config = {"client_close_socket_if_timeout": False}

    def test_timeout_leaves_the_connection_open(self):
        call = self.client.invoke_sync(ADDRESS, RemotingCommand(1), 1000)
        peer = self.peer().accept()
        self.reactor.advance(1.1)
        self.failureResultOf(call, RemotingTimeoutError)
        self.assertFalse(peer.transport.disconnecting)


class StopTests(ClientTestCase):
    def test_stop_fails_pending_calls_and_waits_for_connections(self):
        call = self.client.invoke_sync(ADDRESS, RemotingCommand(1), 3000)
        peer = self.peer().accept()
        connecting = self.client.invoke_sync("10.0.0.2:1", RemotingCommand(1), 3000)
        stopped = self.client.stopService()
        self.failureResultOf(call, RemotingSendRequestError)
        self.failureResultOf(connecting, RemotingConnectError)
        self.assertTrue(peer.transport.disconnecting)
        self.assertNoResult(stopped)
        peer.lose()
        self.successResultOf(stopped)
        self.assertEqual(self.reactor.getDelayedCalls(), [])
        self.failureResultOf(self.client.invoke_sync(ADDRESS, RemotingCommand(1), 3000), RemotingConnectError)

    def test_stop_aborts_a_connection_that_does_not_close(self):
        self.client.invoke_sync(ADDRESS, RemotingCommand(1), 3000).addErrback(lambda _: None)
        peer = self.peer().accept()
        stopped = self.client.stopService()
        self.reactor.advance(2.1)
        self.assertTrue(peer.transport.aborted)
        peer.lose()
        self.successResultOf(stopped)


class NameServerTests(ClientTestCase):
    def setUp(self):
        super().setUp()
        self.client.update_name_server_addresses(["10.0.1.1:9876", "10.0.1.2:9876", "10.0.1.3:9876"])

    def ask(self):
        return self.client.invoke_sync(None, RemotingCommand(105), 3000)

    def test_chosen_name_server_is_kept(self):
        calls = [self.ask() for _ in range(5)]
        peer = self.peer().accept()
        self.assertEqual(self.client.name_servers.chosen, peer.address)
        for request in peer.requests():
            peer.answer(request)
        for call in calls:
            self.successResultOf(call)
        self.ask().addErrback(lambda _: None)
        self.assertEqual(len(self.reactor.tcpClients), 1)

    def test_next_name_server_takes_over(self):
        call = self.ask()
        first = self.peer().accept()
        first.lose()
        self.failureResultOf(call, RemotingSendRequestError)
        call = self.ask()
        dead = self.peer()
        dead.refuse()
        alive = self.peer().accept()
        self.assertEqual(len({first.address, dead.address, alive.address}), 3)
        alive.answer(alive.requests()[0])
        self.successResultOf(call)

    def test_call_with_all_name_servers_down_fails(self):
        calls = [self.ask(), self.ask()]
        for _ in range(3):
            self.peer().refuse()
        for call in calls:
            text = str(self.failureResultOf(call, RemotingConnectError).value)
            for number in (1, 2, 3):
                self.assertIn(f"10.0.1.{number}:9876", text)
        self.ask().addErrback(lambda _: None)
        self.assertEqual(len(self.reactor.tcpClients), 4)

    def test_call_without_name_server_fails(self):
        client = RemotingClient(self.reactor)
        client.startService()
        call = client.invoke_sync(None, RemotingCommand(105), 3000)
        self.assertIn("no name server address is set", str(self.failureResultOf(call, RemotingConnectError).value))


class PeersRequestTests(ClientTestCase):
    def setUp(self):
        super().setUp()
        self.client.invoke_oneway(ADDRESS, RemotingCommand(34), 3000)
        self.end = self.peer().accept()
        self.end.requests()

    def respond(self, request):
        self.end.send(request)
        return self.end.requests()

    def test_processor_answers(self):
        seen = []

        def process(connection, request):
            seen.append(connection.address)
            return RemotingCommand.response(0, "done")

        self.client.register_processor(307, process)
        (response,) = self.respond(RemotingCommand(307, opaque=77))
        self.assertEqual((response.opaque, response.remark, response.is_response), (77, "done", True))
        self.assertEqual(seen, [ADDRESS])

    def test_processor_answers_later(self):
        later = defer.Deferred()
        self.client.register_processor(307, lambda connection, request: later)
        self.assertEqual(self.respond(RemotingCommand(307)), [])
        later.callback(RemotingCommand.response(0))
        self.assertEqual(len(self.end.requests()), 1)

    def test_oneway_gets_no_answer(self):
        self.client.register_processor(40, lambda connection, request: RemotingCommand.response(0))
        self.assertEqual(self.respond(RemotingCommand(40, flag=2)), [])

    def test_unknown_code_is_refused(self):
        self.assertEqual(self.respond(RemotingCommand(999))[0].code, 3)

    def test_refusal_and_failure_are_answered(self):
        def refuse(connection, request):
            raise RequestError(16, "not yours")

        self.client.register_processor(1, refuse)
        self.client.register_processor(2, lambda connection, request: {}["hunter2"])
        (refused,) = self.respond(RemotingCommand(1))
        self.assertEqual((refused.code, refused.remark), (16, "not yours"))
        (failed,) = self.respond(RemotingCommand(2))
        self.assertEqual(failed.code, 1)
        self.assertEqual(failed.remark, "request type 2 failed; the log of the client has the error")
        self.assertEqual(len(self.flushLoggedErrors(KeyError)), 1)

    def test_answer_names_faults_of_request_header_only(self):
        other = RemotingCommand(9, {"queueId": "hunter2"})
        self.client.register_processor(1, lambda connection, request: read_header(PullMessageRequestHeader, request))
        self.client.register_processor(2, lambda connection, request: read_header(PullMessageRequestHeader, other))
        (unreadable,) = self.respond(RemotingCommand(1))
        self.assertEqual(unreadable.remark, "the custom field <consumerGroup> is null")
        (failed,) = self.respond(RemotingCommand(2))
        self.assertIn("request type 2 failed", failed.remark)
        self.assertEqual(len(self.flushLoggedErrors(RemotingCommandError)), 2)


class EchoServer(Protocol):
    """Answers requests with their bodies; code 99 closes the connection instead."""

    def connectionMade(self):
        self.decoder = FrameDecoder()
        self.factory.accepted.append(self)

    def dataReceived(self, data):
        for frame in self.decoder.feed(data):
            request = RemotingCommand.decode(frame)
            if request.code == 99:
                self.transport.abortConnection()
            else:
                self.transport.write(RemotingCommand.response(0, body=request.body).answering(request).encode())


class LoopbackTests(TestCase):
    @defer.inlineCallbacks
    def listen(self, tls=None):
        factory = self.factory = Factory.forProtocol(EchoServer)
        factory.accepted = []
        wrapped = wrap_server_factory(tls or TlsConfig(), reactor)(factory)
        port = yield TCP4ServerEndpoint(reactor, 0, interface="127.0.0.1").listen(wrapped)
        self.addCleanup(port.stopListening)
        return f"127.0.0.1:{port.getHost().port}"

    def make_client(self, **arguments):
        client = RemotingClient(reactor, **arguments)
        client.startService()
        self.addCleanup(client.stopService)
        return client

    @defer.inlineCallbacks
    def test_loopback_calls_share_one_connection(self):
        address = yield self.listen()
        client = self.make_client()
        bodies = [bytes([n]) * 50_000 for n in range(100)]
        calls = [client.invoke_sync(address, RemotingCommand(1, body=body), 5000) for body in bodies]
        answers = yield defer.gatherResults(calls)
        self.assertEqual([answer.body for answer in answers], bodies)
        self.assertEqual(len(self.factory.accepted), 1)

    @defer.inlineCallbacks
    def test_call_after_close_by_peer_reconnects(self):
        address = yield self.listen()
        client = self.make_client()
        yield self.assertFailure(client.invoke_sync(address, RemotingCommand(99), 5000), RemotingSendRequestError)
        yield client.invoke_sync(address, RemotingCommand(1), 5000)
        self.assertEqual(len(self.factory.accepted), 2)

    @defer.inlineCallbacks
    def test_call_to_closed_port_fails(self):
        port = yield TCP4ServerEndpoint(reactor, 0, interface="127.0.0.1").listen(Factory())
        address = f"127.0.0.1:{port.getHost().port}"
        yield port.stopListening()
        failed = yield self.assertFailure(
            self.make_client().invoke_sync(address, RemotingCommand(1), 5000), RemotingConnectError
        )
        self.assertIn("refused", str(failed))

    @defer.inlineCallbacks
    def test_host_name_is_resolved(self):
        address = yield self.listen()
        client = self.make_client()
        answer = yield client.invoke_sync(
            address.replace("127.0.0.1", "localhost"), RemotingCommand(1, body=b"x"), 5000
        )
        self.assertEqual(answer.body, b"x")

    @defer.inlineCallbacks
    def test_call_over_tls_is_answered(self):
        address = yield self.listen(TlsConfig(server_mode="enforcing"))
        client = self.make_client(tls=ClientTLS(TlsConfig()))
        answer = yield client.invoke_sync(address, RemotingCommand(1, body=b"x" * 100_000), 5000)
        self.assertEqual(answer.body, b"x" * 100_000)

    @defer.inlineCallbacks
    def test_untrusted_server_certificate_fails_call(self):
        address = yield self.listen()
        strict = ClientTLS(TlsConfig(test_mode_enable=False, client_auth_server=True))
        client = self.make_client(tls=strict)
        events = []
        client.listeners.append(events.append)
        failed = yield self.assertFailure(client.invoke_sync(address, RemotingCommand(1), 5000), RemotingConnectError)
        self.assertIn("certificate verify failed", str(failed))
        yield client.stopService()
        self.assertEqual([event.kind.name for event in events], ["CONNECT", "EXCEPTION", "CLOSE"])
        self.assertIn("certificate verify failed", events[1].reason)

    @defer.inlineCallbacks
    def test_tls_to_a_plain_server(self):
        address = yield self.listen(TlsConfig(server_mode="disabled"))
        client = self.make_client(tls=ClientTLS(TlsConfig()))
        yield self.assertFailure(client.invoke_sync(address, RemotingCommand(1), 5000), RemotingConnectError)

    @defer.inlineCallbacks
    def test_from_a_thread(self):
        address = yield self.listen()
        client = self.make_client()
        request = RemotingCommand(1, body=b"x")
        result = defer.Deferred()

        def in_thread():
            call = client.invoke.from_thread(client.invoke_sync, address, request, 5000)
            reactor.callFromThread(call.chainDeferred, result)

        reactor.callInThread(in_thread)
        answer = yield result
        self.assertEqual(answer.body, b"x")


@implementer(IRequestProcessor)
class Remember:
    """Keeps the connection of each request, and answers."""

    def __init__(self):
        self.connections = []

    def process(self, request, context):
        self.connections.append(context.connection)
        return RemotingCommand.response(0)


class ServerCallsClientTests(TestCase):
    """A RemotingServer and a RemotingClient on loopback: requests of the server over the client's connection."""

    tls = False

    @defer.inlineCallbacks
    def setUp(self):
        dispatcher = Dispatcher(reactor.callFromThread)
        self.processor = Remember()
        dispatcher.register(34, self.processor, "heartbeat")
        self.invoke = dispatcher.answers.responses = InvokeLayer(reactor, 2, 2)
        self.addCleanup(self.invoke.stop)
        self.server = RemotingServer(
            reactor, dispatcher, port=0, interface="127.0.0.1", wrap=wrap_server_factory(TlsConfig(), reactor)
        )
        self.server.listeners.append(self.invoke)
        self.server.startService()
        self.addCleanup(self.server.stopService)
        self.client = RemotingClient(reactor, tls=ClientTLS(TlsConfig()) if self.tls else None)
        self.client.startService()
        self.addCleanup(self.client.stopService)
        yield self.client.invoke_sync(f"127.0.0.1:{self.server.port}", RemotingCommand(34), 5000)
        (self.connection,) = self.processor.connections

    @defer.inlineCallbacks
    def test_request_of_server_is_answered_by_client(self):
        self.client.register_processor(307, lambda connection, request: RemotingCommand.response(0, body=request.body))
        bodies = [bytes([n]) * 100_000 for n in range(20)]
        calls = [self.invoke.invoke_sync(self.connection, RemotingCommand(307, body=body), 5000) for body in bodies]
        answers = yield defer.gatherResults(calls)
        self.assertEqual([answer.body for answer in answers], bodies)

    @defer.inlineCallbacks
    def test_oneway_from_a_thread(self):
        told = defer.Deferred()
        self.client.register_processor(40, lambda connection, request: told.callback(request.is_oneway))
        reactor.callInThread(self.invoke.oneway_from_thread, self.connection, RemotingCommand(40), 10)
        self.assertTrue((yield told))

    @defer.inlineCallbacks
    def test_disconnected_client_fails_request_at_once(self):
        self.client.register_processor(307, lambda connection, request: connection.abort())
        call = self.invoke.invoke_sync(self.connection, RemotingCommand(307), 60_000)
        yield self.assertFailure(call, RemotingSendRequestError)
        self.assertEqual(len(self.invoke.pending), 0)


class ServerCallsClientOverTLSTests(ServerCallsClientTests):
    tls = True
