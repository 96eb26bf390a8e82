"""Blocking sends in the calling thread, against a scripted broker on real sockets."""

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from twisted.trial.unittest import SynchronousTestCase

from rocketd.acl.credentials import Credentials
from rocketd.client import ClientConfig, Message, ProducerStats, sync
from rocketd.client.errors import (
    BrokerError,
    ConnectionLostError,
    ForkedClientError,
    RequestTimeoutError,
    RocketMQError,
    TooManyRequestsError,
)
from rocketd.client.hooks import ProducerHook
from rocketd.client.messages.codec import TEXT
from rocketd.client.producer.direct_links import MAX_ANSWER, LinkPool
from rocketd.common.message_properties import decode_properties
from rocketd.remoting.bodies.tables import BrokerData, MessageQueue, QueueData, TopicRouteData
from rocketd.remoting.wire.codes import RequestCode
from rocketd.remoting.wire.command import RemotingCommand
from tests.support.ports import free_port
from tests.support.scripted_server import ScriptedServer

SECONDS = 60.0
QUEUES = 4


def stored(request, queue_offset=7):
    where = {"msgId": "OFFSETID", "queueId": request.ext_fields["e"], "queueOffset": str(queue_offset)}
    return RemotingCommand.response(0, ext_fields=where)


def not_flushed(request):
    answer = stored(request)
    answer.code = 10
    return answer


class Broker(ScriptedServer):
    """Name server and broker in one. ``answer`` answers each send; ``connections`` has the connection of each send."""

    def __init__(self):
        self.answer = stored
        self.connections = []
        done = lambda _: RemotingCommand.response(0)  # noqa: E731
        super().__init__(
            {
                RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route,
                RequestCode.SEND_MESSAGE_V2: self._send,
                RequestCode.HEART_BEAT: done,
                RequestCode.UNREGISTER_CLIENT: done,
            }
        )

    def _route(self, _):
        route = TopicRouteData([QueueData("b", QUEUES, QUEUES, 6)], [BrokerData("c", "b", self.brokers)])
        return RemotingCommand.response(0, body=route.encode(standard=True))

    def _send(self, request):
        self.connections.append(threading.get_ident())  # each connection has a thread
        return self.answer(request)

    @property
    def sends(self):
        return [request for request in self.asked if request.code == RequestCode.SEND_MESSAGE_V2]


class DirectCase(SynchronousTestCase):
    def setUp(self):
        self.broker = Broker()
        self.addCleanup(self.broker.close)

    def producer(self, cluster=None, **options):
        producer = sync.Producer("pg", cluster or self.broker.address, **{"send_timeout": SECONDS, **options})
        producer.open()
        self.addCleanup(producer.close)
        return producer

    def ready(self, **options):
        """Return a producer that knows the route and has a link."""
        producer = self.producer(**options)
        for _ in range(2):
            producer.send(Message("T", b"x"))
        assert len(producer._direct.pool) == 1
        self.broker.connections.clear()
        self.broker.asked.clear()
        return producer


class SendTests(DirectCase):
    def test_sends_after_the_first_use_a_connection_of_their_own(self):
        producer = self.producer()
        results = [producer.send(Message("T", b"x")) for _ in range(9)]
        first, *others = self.broker.connections
        assert len(set(others)) == 1
        assert first not in others
        assert [result.queue_offset for result in results] == [7] * 9
        numbers = [int(request.ext_fields["e"]) for request in self.broker.sends]
        assert numbers == [(numbers[0] + turn) % QUEUES for turn in range(9)]

    def test_request_of_direct_send_equals_the_engines(self):
        fields = []
        for direct in (True, False):
            producer = self.ready(direct=direct) if direct else self.producer(direct=False)
            message = Message("T", b"x", "tag", ["k1", "k2"], {"p": "v"}, 5, wait_stored=False)
            producer.send(message, queue=MessageQueue("T", "b", 2))
            request = self.broker.sends[-1]
            made = dict(request.ext_fields)
            del made["g"]
            made["i"] = {**decode_properties(made["i"]), "UNIQ_KEY": None}
            fields.append((request.code, request.flag, request.language, request.version, bytes(request.body), made))
            producer.close()
        assert fields[0] == fields[1]

    def test_threads_get_different_keys_and_their_own_results(self):
        producer = self.ready()
        self.broker.answer = lambda request: stored(request, int(request.body))
        with ThreadPoolExecutor(8) as pool:
            results = list(pool.map(lambda n: producer.send(Message("T", b"%d" % n)), range(400)))
        assert [result.queue_offset for result in results] == list(range(400))
        assert len({result.msg_id for result in results}) == 400
        assert 1 < len(producer._direct.pool) <= 8
        assert len(self.broker.sends) == 400
        assert producer.stats() == ProducerStats(sent=402, failed=0, retries=0, in_flight=0)

    def test_key_and_queue_choose_the_queue(self):
        producer = self.ready()
        chosen = {producer.send(Message("T", b"x"), key="A17").queue.queue_id for _ in range(4)}
        assert len(chosen) == 1
        queue = MessageQueue("T", "b", 3)
        assert producer.send(Message("T", b"x"), queue=queue).queue == queue
        assert len(set(self.broker.connections)) == 1

    def test_credentials_sign_the_request(self):
        credentials = Credentials("name", "secret-secret")
        producer = self.producer(ClientConfig(namesrv=self.broker.address, credentials=credentials))
        for _ in range(2):
            producer.send(Message("T", b"x"))
        assert len(set(self.broker.connections)) == 2
        for request in self.broker.sends:
            fields = {name: text for name, text in request.ext_fields.items() if name not in ("AccessKey", "Signature")}
            assert credentials.sign(fields, request.body) == request.ext_fields

    def test_long_and_compressed_bodies_use_the_engine(self):
        producer = self.ready(compress_over=1 << 20)
        producer.send(Message("T", bytes(64 << 10)))
        direct = self.broker.connections[-1]
        producer.send(Message("T", bytes((64 << 10) + 1)))
        producer.send(Message("T", bytes(1 << 20)))
        assert direct not in self.broker.connections[1:]
        assert self.broker.sends[-1].ext_fields["f"] != "0"

    def test_options_with_a_part_in_the_reactor_use_the_engine(self):
        class Hook(ProducerHook):
            def send_before(self, context):
                pass

        class Upper:
            def encode(self, value):
                return value.upper()

            def decode(self, body):
                return body

        for options in (
            {"direct": False},
            {"send_hooks": [Hook()]},
            {"trace": True},
            {"latency_fault_tolerance": True},
            {"retry_another_broker": True},
            {"codec": Upper()},
        ):
            assert self.producer(**options)._direct is None, options
        assert self.producer(ClientConfig(namesrv=self.broker.address, tls=True))._direct is None
        assert self.producer(codec=TEXT)._direct is not None

    def test_new_route_is_found_by_the_engine(self):
        producer = self.ready()
        other = Broker()
        self.addCleanup(other.close)
        producer._call(self._move_to, producer._engine, other)
        for _ in range(3):
            producer.send(Message("T", b"x"))
        assert (len(self.broker.sends), len(other.sends)) == (0, 3)
        assert len(set(other.connections)) == 2

    async def _move_to(self, engine, other):
        self.broker.brokers = other.brokers
        engine.instance.routes.forget("T")


class FailureTests(DirectCase):
    def outcome(self, answer, *, direct, queue=None, timeout=None, **options):
        """Return (error, attempts, requests) of a send after two that were answered."""
        self.broker.answer = stored
        producer = self.producer(direct=direct, **options)
        for _ in range(2):
            producer.send(Message("T", b"x"))
        before = len(self.broker.sends)
        self.broker.answer = answer
        try:
            failed = None
            producer.send(Message("T", b"x"), queue=queue, timeout=timeout)
        except RocketMQError as raised:
            failed = raised
        producer.close()
        sends = self.broker.sends[before:]
        keys = {decode_properties(request.ext_fields["i"])["UNIQ_KEY"] for request in sends}
        assert len(keys) == 1
        return type(failed), len(failed.attempts) if failed else 0, len(sends)

    def test_failed_sends_are_tried_as_often_as_the_engines(self):
        cases = {
            "closed": (lambda _: None, {}, (ConnectionLostError, 3, 3)),
            "closed, one try": (lambda _: None, {"retries": 0}, (ConnectionLostError, 1, 1)),
            "closed, queue": (lambda _: None, {"queue": MessageQueue("T", "b", 1)}, (ConnectionLostError, 1, 1)),
            "no answer": (lambda _: b"", {"timeout": 0.3}, (RequestTimeoutError, 1, 1)),
            "retried": (lambda _: RemotingCommand.response(1, "no"), {}, (BrokerError, 3, 3)),
            "final": (lambda _: RemotingCommand.response(13, "no"), {}, (BrokerError, 1, 1)),
            "not flushed": (not_flushed, {}, (type(None), 0, 1)),
        }
        for name, (answer, options, expected) in cases.items():
            for direct in (True, False):
                assert self.outcome(answer, direct=direct, **options) == expected, (name, direct)

    def test_answer_to_another_request_is_a_failed_try(self):
        producer = self.ready()
        link = next(iter(producer._direct.pool._open))
        spoiled = []

        def answer(request):
            if spoiled:
                return stored(request)
            spoiled.append(request)
            other = stored(request).answering(request)
            other.opaque += 1
            return other.encode()

        self.broker.answer = answer
        assert producer.send(Message("T", b"x")).status == 0
        assert len(self.broker.sends) == 2
        assert link not in producer._direct.pool._open
        assert not producer._direct.pool.in_use

    def test_answer_that_is_too_long_is_a_failed_try(self):
        producer = self.ready(retries=0)
        self.broker.answer = lambda request: stored(request).answering(request).encode() + bytes(MAX_ANSWER)
        self.assertRaises(ConnectionLostError, producer.send, Message("T", b"x"))
        self.broker.answer = lambda request: RemotingCommand.response(0, "x" * MAX_ANSWER)
        self.assertRaises(ConnectionLostError, producer.send, Message("T", b"x"))
        assert len(producer._direct.pool) == 0

    def test_link_closed_by_the_broker_meanwhile_costs_no_try(self):
        producer = self.ready(retries=0)
        pool = producer._direct.pool
        for link in pool._open:
            link._socket.shutdown(1)  # the broker closes, too
        deadline = time.monotonic() + SECONDS
        while any(link.is_quiet() for link in pool._open) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert producer.send(Message("T", b"x")).status == 0
        assert len(self.broker.sends) == 1
        assert len(pool) == 1

    def test_timeout_holds_while_signals_come(self):
        producer = self.ready(retries=0)
        self.broker.answer = lambda _: b""
        before = signal.signal(signal.SIGALRM, lambda *_: None)
        signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
        try:
            began = time.monotonic()
            self.assertRaises(RequestTimeoutError, producer.send, Message("T", b"x"), timeout=0.5)
            assert 0.45 < time.monotonic() - began < SECONDS / 4
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    def test_exception_of_a_signal_handler_drops_the_link(self):
        class InterruptedSendError(Exception):
            pass

        def interrupt(*_):
            raise InterruptedSendError

        producer = self.ready()
        self.broker.answer = lambda _: b""
        before = signal.signal(signal.SIGALRM, interrupt)
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        try:
            self.assertRaises(InterruptedSendError, producer.send, Message("T", b"x"))
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        assert len(producer._direct.pool) == 0
        assert not producer._direct.pool.in_use

    def test_direct_sends_count_as_under_way(self):
        producer = self.ready(max_pending=1)
        go_on = threading.Event()
        self.addCleanup(go_on.set)
        self.broker.answer = lambda request: go_on.wait(SECONDS) and stored(request)
        with ThreadPoolExecutor(1) as pool:
            sending = pool.submit(producer.send, Message("T", b"x"))
            self.wait_for(lambda: self.broker.sends)
            self.assertRaises(TooManyRequestsError, producer.send, Message("T", b"x"))
            go_on.set()
            assert sending.result(SECONDS).status == 0

    def test_close_ends_an_open_send_and_closes_all_links(self):
        producer = self.ready()
        links = producer._direct.pool
        self.broker.answer = lambda _: b""
        with ThreadPoolExecutor(1) as pool:
            sending = pool.submit(producer.send, Message("T", b"x"))
            self.wait_for(lambda: self.broker.sends)
            producer.close()
            raised = sending.exception(SECONDS)
        assert isinstance(raised, ConnectionLostError), raised
        assert (len(links), len(links.in_use), len(self.broker.sends)) == (0, 0, 1)

    def wait_for(self, condition):
        deadline = time.monotonic() + SECONDS
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def test_forked_child_refuses_and_leaves_the_parents_link(self):
        producer = self.ready()
        (link,) = producer._direct.pool._open
        inode = os.fstat(link._socket.fileno()).st_ino
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(int(SECONDS))
            status = 1
            try:
                producer.send(Message("T", b"x"))
            except ForkedClientError:
                held = [os.stat(f"/proc/self/fd/{name}").st_ino for name in os.listdir("/proc/self/fd") if valid(name)]
                status = 2 if inode in held else 0
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        producer.send(Message("T", b"x"))
        assert set(producer._direct.pool._open) == {link}
        assert len(set(self.broker.connections)) == 1


def valid(name):
    return os.path.exists(f"/proc/self/fd/{name}")


class LinkPoolTests(DirectCase):
    def pool(self, *arguments):
        pool = LinkPool(*arguments)
        self.addCleanup(pool.close)
        return pool

    def test_links_are_bounded_and_used_again(self):
        pool = self.pool(1)
        link = pool.take(self.broker.address, SECONDS)
        assert pool.take(self.broker.address, SECONDS) is None
        pool.give_back(link)
        assert pool.take(self.broker.address, SECONDS) is link
        pool.give_back(link)

    def test_idle_links_are_closed(self):
        pool = self.pool(4, 0.5)
        link = pool.take(self.broker.address, SECONDS)
        pool.give_back(link)
        pool.close_idle()
        assert len(pool) == 1
        link.used -= 1
        pool.close_idle()
        assert len(pool) == 0
        assert link._socket.fileno() == -1

    def test_link_in_use_is_closed_when_its_thread_returns_it_to_a_closed_pool(self):
        pool = self.pool()
        link = pool.take(self.broker.address, SECONDS)
        pool.close()
        pool.give_back(link)
        assert len(pool) == 0
        assert link._socket.fileno() == -1
        assert pool.take(self.broker.address, SECONDS) is None

    def test_unreachable_address_is_avoided_for_a_while(self):
        pool = self.pool()
        address = f"127.0.0.1:{free_port()}"
        assert pool.take(address, SECONDS) is None
        assert address in pool._avoided
        assert len(pool) == 0

    def test_names_of_hosts_are_left_to_the_engine(self):
        port = self.broker.address.rpartition(":")[2]
        pool = self.pool()
        assert pool.take(f"localhost:{port}", SECONDS) is None
        assert len(pool) == 0
