"""The Python client when brokers die, networks swallow, name servers are gone: with rocketd's servers and Apache's."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import pytest_twisted
from fault_proxy import Direction, Harm
from fault_world import FACES, A, B, Net, TwoBrokers, clean
from python_client_faces import Got, eventually
from python_client_world import fresh, numbered
from twisted.internet.task import deferLater

from benchmarks.peers.apache import PeerUnavailableError
from rocketd.client import Message
from rocketd.client.errors import (
    NoNameServerError,
    RequestTimeoutError,
    UnreachableError,
)
from rocketd.remoting.codes import RequestCode
from rocketd.remoting.settings import NettyClientConfig

LATE = 15.0  # seconds beyond its timeout that a call may end: machines are slow at times
ROUTE = RequestCode.GET_ROUTEINFO_BY_TOPIC
SENDS = (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)


@pytest.fixture(scope="module", params=["rocketd", "apache"])
def servers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoBrokers]:
    from conftest import end_test_lacking
    from twisted.internet import reactor

    # The tests' own reactor begins with the first test otherwise, and what it opens would count.
    pytest_twisted.blockon(deferLater(reactor, 0.0))
    try:
        servers = TwoBrokers(request.param, tmp_path_factory.mktemp(f"faults-{request.param}"))
    except PeerUnavailableError as e:
        end_test_lacking(str(e))
    yield servers
    servers.stop()


@pytest.fixture(params=FACES)
def net(request: pytest.FixtureRequest, servers: TwoBrokers) -> Iterator[Net]:
    with clean(request.param, servers) as net:
        yield net


class Clock:
    """How long a with block takes."""

    seconds = 0.0

    def __enter__(self) -> "Clock":
        self._began = time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.monotonic() - self._began


# ---------------------------------------------------------------- half-open connections


def test_sends_leave_a_broker_that_does_not_answer(net: Net) -> None:
    topic, got = net.topic(), Got()
    bodies = numbered("sent", 8)
    with net.producer(send_timeout=1.5) as producer:
        producer.send(Message(topic, b"first"))
        producer.send(Message(topic, b"second"))
        net.a.black_hole()
        for body in bodies:
            with Clock() as clock:
                sent = producer.send(Message(topic, body))
            assert sent.queue.broker_name == B
            assert clock.seconds < 1.5 + LATE
        net.a.heal()
        eventually("both get messages", lambda: producer.send(Message(topic, b"after")).queue.broker_name == A)
    with net.consumer(topic, got):
        got.wait_bodies([b"first", b"second", *bodies, b"after"])


def test_a_send_to_the_only_broker_ends_in_time(net: Net) -> None:
    topic = net.topic(A)
    with net.producer(send_timeout=0.5) as producer:
        producer.send(Message(topic, b"first"))
        net.a.black_hole()
        with Clock() as clock, pytest.raises(RequestTimeoutError) as caught:
            producer.send(Message(topic, b"lost"))
        assert clock.seconds < 0.5 + LATE
        assert [attempt.broker for attempt in caught.value.attempts] == [A]
        assert caught.value.attempts[0].milliseconds >= 400
        net.a.refuse()
        with Clock() as clock, pytest.raises(UnreachableError) as unreachable:
            producer.send(Message(topic, b"lost"))
        assert clock.seconds < 0.5 + LATE
        assert [attempt.broker for attempt in unreachable.value.attempts] == [A] * 3
        net.a.heal()
        assert producer.send(Message(topic, b"after"), timeout=5).queue.broker_name == A


def test_consuming_goes_on_after_a_black_hole(net: Net) -> None:
    topic, got = net.topic(A), Got()
    bodies = numbered("meanwhile", 8)
    with net.producer() as producer, net.consumer(topic, got):
        producer.send(Message(topic, b"first"))
        got.wait_bodies([b"first"])
        net.a.black_hole()
        net.a.heal()  # but the connections there are stay dead
        for body in bodies:
            producer.send(Message(topic, body), timeout=10)
        got.wait_bodies(bodies)
    assert got.bodies.count(b"first") == 1


# ---------------------------------------------------------------- a broker that is slow


def test_late_answers_are_told_from_others(net: Net) -> None:
    """On a connection that stays open, where they do come."""
    topic, got = net.topic(A), Got()
    config = net.config(remoting=NettyClientConfig(client_close_socket_if_timeout=False))
    with net.producer(config, retries=0) as producer:
        producer.send(Message(topic, b"first"))
        net.a.harm(Direction.TO_CLIENT, Harm.DELAY, *SENDS, seconds=0.6, times=4)
        for _ in range(4):
            with Clock() as clock, pytest.raises(RequestTimeoutError):
                producer.send(Message(topic, b"late"), timeout=0.2)
            assert clock.seconds < 0.2 + LATE
        with ThreadPoolExecutor(8) as threads:
            sent = list(threads.map(lambda body: producer.send(Message(topic, body)), numbered("in time", 100)))
    with net.consumer(topic, got):
        got.wait("all are there", lambda: len(got.messages) >= 105)
    assert got.bodies.count(b"late") == 4
    places = {(message.queue, message.queue_offset): message.msg_id for message in got.messages}
    assert [places[result.queue, result.queue_offset] for result in sent] == [result.msg_id for result in sent]


def test_sends_avoid_a_broker_that_was_slow(net: Net) -> None:
    topic = net.topic()
    with net.producer(latency_fault_tolerance=True) as producer:
        net.a.harm(Direction.TO_CLIENT, Harm.DELAY, *SENDS, seconds=0.6)
        eventually("one was slow", lambda: producer.send(Message(topic, b"x")).queue.broker_name == A)
        after = [producer.send(Message(topic, b"x")).queue.broker_name for _ in range(20)]
    assert after == [B] * 20


# ---------------------------------------------------------------- name servers


def test_name_servers_that_are_gone(net: Net) -> None:
    """Who has a route goes on with it; who has none is told why; who comes when they are back notices nothing."""
    topic, got = net.topic(), Got()
    first, second = net.names
    bodies = numbered("sent", 8)

    def send_anew(body: bytes) -> None:
        with net.producer(net.config(instance_name=fresh("new")), send_timeout=2.0) as producer:
            producer.send(Message(topic, body))

    with net.producer() as producer, net.consumer(topic, got):
        producer.send(Message(topic, b"first"))
        for gone, there in ((first, second), (second, first)):
            there.heal()
            gone.refuse()
            send_anew(bodies[0])
            there.passed.clear()
            eventually("the other is asked", lambda passed=there.passed: passed[ROUTE] > 2)
        first.refuse()
        with Clock() as clock, pytest.raises(NoNameServerError) as caught:
            send_anew(b"lost")
        assert clock.seconds < 2 + LATE
        assert caught.value.retriable
        with pytest.raises(NoNameServerError):
            net.consumer(topic, got, net.config(instance_name=fresh("new"))).open()
        for name in net.names:
            name.heal()
            name.black_hole()
        for body in bodies:
            producer.send(Message(topic, body))
        got.wait_bodies(bodies)
        with Clock() as clock, pytest.raises(NoNameServerError):
            send_anew(b"lost")
        assert clock.seconds < 2 + LATE
        second.heal()
        send_anew(b"last")
        got.wait_bodies([b"last"])
