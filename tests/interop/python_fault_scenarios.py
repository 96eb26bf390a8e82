"""Scenarios of network faults that every face of the Python client passes, each a function of a net.

``python -m tests.interop.python_fault_scenarios KIND NAMESRV BROKERS`` plays some on the Twisted face, as
python_client_basics does.
"""

import gc
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from functools import wraps
from threading import Event
from typing import Any

from rocketd.client import ClientConfig, Message
from rocketd.client.errors import (
    ClientClosedError,
    ConnectionLostError,
    NoNameServerError,
    RequestTimeoutError,
    UnreachableError,
)
from rocketd.remoting.calling.client_connection import ClientConnection
from rocketd.remoting.settings import NettyClientConfig
from rocketd.remoting.wire.codes import RequestCode
from tests.interop import python_client_basics
from tests.interop.fault_net import QUEUES, A, B, Net, Where
from tests.interop.fault_proxy import Direction, Harm, Proxies
from tests.interop.python_client_faces import LIMIT, Face, Got, Held, eventually
from tests.interop.python_client_world import World, fresh, numbered, send_all

LATE = 20.0  # seconds beyond its timeout that a call may end: machines are slow at times
ROUTE = RequestCode.GET_ROUTEINFO_BY_TOPIC
SENDS = (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
ROUNDS = 50
CUTS_SECONDS = 8.0
CUTS_AGAIN = 0.14
"""The share of messages that may be handled twice."""


class Ends:
    """A with block that must end within a time and LATE, with one of the given exceptions, if any; ``error`` is it."""

    def __init__(self, within: float, *errors: type[BaseException]) -> None:
        self._within = within
        self._wanted = errors
        self.error: Any = None

    def __enter__(self) -> "Ends":
        self._began = time.monotonic()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> bool:
        took = time.monotonic() - self._began
        assert took < self._within + LATE, f"took {took:.1f} s"
        if not self._wanted or (kind is not None and not issubclass(kind, self._wanted)):
            return False
        assert error is not None, f"none of {self._wanted}"
        self.error = error
        return True


# ---------------------------------------------------------------- half-open connections


def sends_leave_a_silent_broker(net: Net) -> None:
    topic, got = net.topic(), Got()
    bodies = numbered("sent", 6)
    with net.producer(send_timeout=5.0) as producer:
        producer.send(Message(topic, b"first"), timeout=LATE)
        producer.send(Message(topic, b"second"), timeout=LATE)
        net.a.black_hole()
        for body in bodies:
            with Ends(5.0):
                sent = producer.send(Message(topic, body))
            assert sent.queue.broker_name == B
        net.a.heal()
        eventually("both get messages", lambda: producer.send(Message(topic, b"after")).queue.broker_name == A)
    with net.consumer(topic, got):
        got.wait_bodies([b"first", b"second", *bodies, b"after"])


def send_to_the_only_broker_ends_in_time(net: Net) -> None:
    topic = net.topic(A)
    quiet = net.config(instance_name=fresh("quiet"), heartbeat_interval=60.0)  # a heartbeat might find out before
    with net.producer(quiet, send_timeout=2.0) as producer:
        producer.send(Message(topic, b"first"), timeout=LATE)
        net.a.black_hole()
        with Ends(2.0, RequestTimeoutError) as ends:
            producer.send(Message(topic, b"lost"))
        (attempt,) = ends.error.attempts
        assert attempt.broker == A
        assert attempt.milliseconds >= 100
        net.a.refuse()
        with Ends(2.0, UnreachableError) as ends:
            producer.send(Message(topic, b"lost"))
        assert {attempt.broker for attempt in ends.error.attempts} == {A}
        assert ends.error.retriable
        net.a.heal()
        assert producer.send(Message(topic, b"after"), timeout=LATE).queue.broker_name == A


def requests_end_in_time(net: Net) -> None:
    """Requests end in time if a needed server is silent: a broker that gets a heartbeat first, or all name servers."""
    topic = net.topic()

    def others(name: str) -> ClientConfig:
        return net.config(instance_name=fresh(name), timeout=3 * LATE, heartbeat_interval=600.0)

    with net.producer() as answering, net.producer(others("asking")) as asking:
        got = Got(lambda message: answering.reply(message, b"re: " + message.body) and None)
        with net.consumer(topic, got):
            asking.publish_queues(topic)  # which tells no broker who is here
            net.a.black_hole()

            def answered() -> bool:
                try:
                    with Ends(6.0):
                        return bool(asking.request(Message(topic, b"ask B"), timeout=6.0).body == b"re: ask B")
                except RequestTimeoutError:
                    return False

            eventually("the other broker answers", answered)
            net.a.heal()
        for name in net.names:
            name.black_hole()
        with net.producer(others("anew")) as anew, Ends(0.5, RequestTimeoutError) as ends:
            anew.request(Message(topic, b"nobody knows where"), timeout=0.5)
        assert ends.error.retriable


def consumption_continues_after_a_black_hole(net: Net) -> None:
    """Also in order, and by polling: the request for the group's members finds out that the connection is dead."""
    topic = net.topic(A)
    bodies = numbered("meanwhile", 8)
    got = {"none": Got(), "queue": Got()}
    with (
        net.producer() as producer,
        net.consumer(topic, got["none"]),
        net.consumer(topic, got["queue"], order="queue"),
        net.polling(topic) as polling,
    ):
        queues = producer.publish_queues(topic)
        producer.send(Message(topic, b"first"), queue=queues[0], timeout=LATE)
        for each in got.values():
            each.wait_bodies([b"first"])
        polled = polled_until(polling, [b"first"])
        net.a.black_hole()
        net.a.heal()  # but the connections there are stay dead
        for body in bodies:
            persistently(lambda body=body: producer.send(Message(topic, body), queue=queues[1]))
        # A message without an answer in time was sent again, so it may be there twice; all consumers get all copies.
        stored = net.stored(topic)
        for each in got.values():
            each.wait("all come", lambda each=each: len(each.bodies) >= stored)
        polled += polled_until(polling, bodies, stored - len(polled))
    in_order = [message.body for message in got["queue"].messages if message.queue == queues[1]]
    assert in_order == sorted(in_order), "the order of a queue is lost"
    for each in (polled, *(each.bodies for each in got.values())):
        assert (set(each), len(each)) == ({b"first", *bodies}, stored)


def consumption_continues_without_a_heartbeat(net: Net) -> None:
    """A broker forgets a client with its connection; it gets a new heartbeat if it answers that it does not know it."""
    topic, got = net.topic(), Got()
    config = net.config(instance_name=fresh("quiet"), heartbeat_interval=600.0)
    with net.producer() as producer, net.consumer(topic, got, config):
        for number in range(3):
            bodies = numbered(f"round {number}", 2 * QUEUES)
            queues = producer.publish_queues(topic)
            for body, queue in zip(bodies, queues, strict=True):
                persistently(lambda body=body, queue=queue: producer.send(Message(topic, body), queue=queue))
            got.wait_bodies(bodies)
            net.a.cut()
            net.b.cut()


def persistently(send: Callable[[], Any]) -> None:
    """Send until it succeeds: to one queue nothing is tried again."""

    def sent() -> bool:
        try:
            send()
        except (ConnectionLostError, RequestTimeoutError):
            return False
        return True

    eventually("it is sent", sent)


def polled_until(consumer: Any, wanted: Sequence[bytes], least: int = 0) -> list[bytes]:
    """Poll until all of these, and at least so many messages, have come; return their bodies."""
    bodies: list[bytes] = []

    def poll() -> bool:
        bodies.extend(message.body for message in consumer.poll(0.5))
        return set(wanted) <= set(bodies) and len(bodies) >= least

    eventually(f"{wanted} are polled", poll)
    return bodies


def consumer_starts_beside_a_silent_broker(net: Net) -> None:
    topic, got = net.topic(), Got()
    with net.producer(net.config(instance_name=fresh("sends"))) as producer:
        send_all(producer, topic, numbered("both", 2 * QUEUES))
    net.a.black_hole()
    with Ends(10.0), net.consumer(topic, got) as consumer:
        assert [queue.broker_name for queue in consumer.queues()] == [B] * QUEUES
        net.a.heal()
        got.wait_bodies(numbered("both", 2 * QUEUES))


def close_does_not_wait_for_silent_servers(net: Net) -> None:
    topic, got = net.topic(), Got()
    with Ends(20.0), net.producer() as producer, net.consumer(topic, got), net.polling(topic):
        producer.send(Message(topic, b"first"), timeout=LATE)
        got.wait_bodies([b"first"])
        for proxy in (net.a, net.b, *net.names):
            proxy.black_hole()


def close_ends_an_open_under_way(net: Net) -> None:
    topic = net.topic()
    for proxy in (net.a, net.b):
        proxy.black_hole()
    consumer = net.consumer(topic, Got(), net.config(instance_name=fresh("slow")))
    with ThreadPoolExecutor() as threads, Ends(2.0):
        opening = threads.submit(consumer.open)
        eventually("it asks brokers", lambda: net.a.harmed + net.b.harmed >= 2)
        consumer.close()
        error = opening.exception(LIMIT)
    assert isinstance(error, ClientClosedError), error


# ---------------------------------------------------------------- a broker that is slow


def late_answers_are_not_confused_with_others(net: Net) -> None:
    """Late answers arrive on a connection that stays open: the one that all sends share without ``direct``."""
    topic, got = net.topic(A), Got()
    config = net.config(remoting=NettyClientConfig(client_close_socket_if_timeout=False))
    with net.producer(config, retries=0, direct=False) as producer:
        producer.send(Message(topic, b"first"), timeout=LATE)
        net.a.harm(Direction.TO_CLIENT, Harm.DELAY, *SENDS, seconds=2.0, times=4)
        for _ in range(4):
            with Ends(0.3, RequestTimeoutError):
                producer.send(Message(topic, b"late"), timeout=0.3)
        with ThreadPoolExecutor(8) as threads:
            sent = list(
                threads.map(
                    lambda body: producer.send(Message(topic, body), timeout=LATE),
                    numbered("in time", 100),
                )
            )
        assert net.a.connections == 1
    with net.consumer(topic, got):
        got.wait("all are there", lambda: len(got.messages) >= 105)
    assert got.bodies.count(b"late") == 4
    places = {(message.queue, message.queue_offset): message.msg_id for message in got.messages}
    assert [places[result.queue, result.queue_offset] for result in sent] == [result.msg_id for result in sent]


def lost_answer_does_not_end_other_requests(net: Net) -> None:
    topic, stop = net.topic(A), Event()
    with net.producer(retries=0, direct=False) as producer:
        producer.send(Message(topic, b"first"), timeout=LATE)

        def send_beside() -> None:
            while not stop.is_set():
                producer.send(Message(topic, b"beside"), timeout=LATE)

        with ThreadPoolExecutor() as threads:
            beside = threads.submit(send_beside)
            try:
                net.a.harm(Direction.TO_CLIENT, Harm.LOSE, RequestCode.SEND_BATCH_MESSAGE)
                with Ends(2.0, RequestTimeoutError):
                    producer.send_batch([Message(topic, b"lost")] * 2, timeout=2.0)
            finally:
                stop.set()
        beside.result()
        assert net.a.connections == 1


def sends_avoid_a_slow_broker(net: Net) -> None:
    topic = net.topic()
    with net.producer(latency_fault_tolerance=True, send_timeout=LATE) as producer:
        net.a.harm(Direction.TO_CLIENT, Harm.DELAY, *SENDS, seconds=4.0)
        eventually("one was slow", lambda: producer.send(Message(topic, b"x")).queue.broker_name == A)
        net.a.heal()

        def it_is_avoided() -> bool:
            return all(producer.send(Message(topic, b"x")).queue.broker_name == B for _ in range(20))

        # The other may have been slow, too, for a moment, on a machine that is.
        eventually("all go to the other", it_is_avoided)


# ---------------------------------------------------------------- name servers


def name_servers_fail_and_return(net: Net) -> None:
    """Clients with a route go on with it; those without get an error; later ones, after the return, notice nothing."""
    topic, got = net.topic(), Got()
    first, second = net.names
    bodies = numbered("sent", 8)

    def send_anew(body: bytes, timeout: float = LATE) -> None:
        with net.producer(net.config(instance_name=fresh("new"))) as producer:
            producer.send(Message(topic, body), timeout=timeout)

    with net.producer() as producer, net.consumer(topic, got):
        producer.send(Message(topic, b"first"), timeout=LATE)
        for gone, there in ((first, second), (second, first)):
            there.heal()
            gone.refuse()
            send_anew(bodies[0])
            there.passed.clear()
            eventually("the other is asked", lambda passed=there.passed: passed[ROUTE] > 2)
        first.refuse()
        with Ends(3.0, NoNameServerError) as ends:
            send_anew(b"lost")
        assert ends.error.retriable
        with Ends(3.0, NoNameServerError):
            net.consumer(topic, got, net.config(instance_name=fresh("new")), missing="raise").open()
        for name in net.names:
            name.heal()
            name.black_hole()
        for body in bodies:
            producer.send(Message(topic, body), timeout=LATE)
        got.wait_bodies(bodies)
        with Ends(3.0, NoNameServerError):
            send_anew(b"lost")
        with Ends(0.3, RequestTimeoutError):
            send_anew(b"lost", timeout=0.3)
        second.heal()
        send_anew(b"last")
        got.wait_bodies([b"last"])


# ---------------------------------------------------------------- frames that come in part, or not at all


def cut_requests_are_sent_again(net: Net) -> None:
    """Nothing is lost; only messages stored before their answer was cut may come twice."""
    topic, got = net.topic(A), Got()
    batch = [Message(topic, body) for body in numbered("batch", 10)]
    with net.producer(send_timeout=LATE) as producer, net.consumer(topic, got):
        for direction in Direction:
            net.a.harm(direction, Harm.CUT, *SENDS, times=1)
            producer.send(Message(topic, f"one {direction.name}".encode()))
            net.a.harm(direction, Harm.CUT, *SENDS, times=1)
            with Ends(LATE, ConnectionLostError) as ends:
                producer.send(Message(topic, b"unsure"), queue=producer.publish_queues(topic)[0])
            assert ends.error.retriable
        net.a.harm(Direction.TO_SERVER, Harm.CUT, *SENDS, times=1)
        assert len(producer.send_batch(batch)) == len(batch)
        net.a.harm(Direction.TO_CLIENT, Harm.CUT, *SENDS, times=1)
        assert len(producer.send_batch(batch)) == len(batch)
        got.wait("all come", lambda: len(got.messages) >= 34)
    once = {b"one TO_SERVER": 1, b"one TO_CLIENT": 2, b"unsure": 1}
    counted = Counter(got.bodies)
    assert counted == {**once, **{message.body: 3 for message in batch}}, counted


def pulled_messages_are_cut_and_lost(net: Net) -> None:
    """None is missing, and none comes twice: offsets move on with the messages that came."""
    topic, got = net.topic(A), Got()
    bodies = numbered("pulled", 24)
    sends = net.config(instance_name=fresh("sends"))
    with net.producer(sends) as producer, net.consumer(topic, got, pull_batch=4) as consumer:
        eventually("it has queues", lambda: len(consumer.queues()) == 2)
        net.a.harm(Direction.TO_CLIENT, Harm.CUT, RequestCode.PULL_MESSAGE, times=3)
        for body in bodies[:12]:
            producer.send(Message(topic, body), timeout=LATE)
        got.wait_bodies(bodies[:12])
        net.a.heal()
        net.a.harm(Direction.TO_CLIENT, Harm.LOSE)
        waits = net.a.harmed
        producer.publish_queues(topic)
        eventually("answers are lost", lambda: net.a.harmed > waits + 2)
        net.a.heal()
        net.a.narrow(0.01)
        for body in bodies[12:]:
            producer.send(Message(topic, body), timeout=LATE)
        got.wait_bodies(bodies)
    # A send without an answer in time is repeated, so a body may be stored twice: places are compared.
    places = [(message.queue, message.queue_offset) for message in got.messages]
    assert len(set(places)) == len(places)


# ---------------------------------------------------------------- again and again


def fifty_reconnects_leave_nothing(net: Net) -> None:
    topic, got = net.topic(), Got()
    bodies = numbered("sent", ROUNDS)
    with net.producer(send_timeout=LATE) as producer, net.consumer(topic, got) as consumer:
        remoting = consumer.client._engine.instance.remoting
        for number, body in enumerate(bodies):
            producer.send(Message(topic, body))
            for proxy in (net.a, net.b, net.names[number % 2]):
                proxy.cut()
        got.wait_bodies(bodies)
        eventually("one connection is left to each", lambda: len(open_connections(net, remoting)) <= 4)
        # Closed connections are forgotten, too; tracebacks of their errors may still hold the last ones.
        kept = net.face.run(lambda: kept_connections(remoting))
        assert kept < ROUNDS, kept
        # A pull for each queue, and the current request.
        eventually("few requests are outstanding", lambda: len(remoting.invoke.pending) <= 12)


def cut_members_keep_their_queues(net: Net) -> None:
    """Members of a group whose connections are cut again and again handle few messages twice, in order none."""
    topic, end = net.topic(A), time.monotonic() + CUTS_SECONDS
    sent: list[bytes] = []
    got = {order: Got(lambda _: time.sleep(0.005)) for order in ("none", "queue")}
    with ExitStack() as stack:
        producer = stack.enter_context(net.producer(send_timeout=LATE))
        for order, handler in got.items():
            group = fresh("G")
            for _ in range(2):
                config = net.config(instance_name=fresh("member"), heartbeat_interval=30.0)
                options = {"topics": topic, "handler": handler, "begin": "earliest", "order": order}
                stack.enter_context(Held(net.face, net.face.module.Consumer(group, config, **options)))
        cut = time.monotonic()
        while time.monotonic() < end:
            sent.append(f"sent-{len(sent)}".encode())
            producer.send(Message(topic, sent[-1]))
            if time.monotonic() > cut + 0.7:
                cut = time.monotonic()
                net.a.cut()
        for handler in got.values():
            handler.wait_bodies(sent)
    again = {order: len(handler.bodies) - len(sent) for order, handler in got.items()}
    assert again["queue"] == 0, again
    assert again["none"] <= len(sent) * CUTS_AGAIN, (again, len(sent))


def unread_bytes_do_not_keep_a_connection(net: Net) -> None:
    """A connection to a peer that reads nothing cannot end by itself: the written bytes would have to leave first."""
    topic = net.topic(A)
    with net.producer(max_message_size=16 << 20, compress_over=32 << 20, retries=0) as producer:
        producer.send(Message(topic, b"first"), timeout=LATE)
        remoting = producer.client._engine.instance.remoting
        net.a.black_hole(deaf=True)
        for _ in range(2):
            with Ends(0.5, RequestTimeoutError, ConnectionLostError):  # a heartbeat may find out first
                producer.send(Message(topic, os.urandom(12 << 20)), timeout=0.5)
        eventually("they are gone", lambda: net.a.address not in open_connections(net, remoting))
        net.a.heal()
        persistently(lambda: producer.send(Message(topic, b"after")))


def open_connections(net: Net, remoting: Any) -> list[str]:
    """Return the peers of a client's connections, including those of connections to be closed."""
    return net.face.run(lambda: [one.address for one in remoting.channels._connections])


def kept_connections(remoting: Any) -> int:
    """How many connections of a client are in memory."""
    gc.collect()
    return sum(type(one) is ClientConnection and one._owner is remoting.channels for one in gc.get_objects())


SCENARIOS: tuple[Callable[[Net], None], ...] = (
    sends_leave_a_silent_broker,
    send_to_the_only_broker_ends_in_time,
    requests_end_in_time,
    consumption_continues_after_a_black_hole,
    consumption_continues_without_a_heartbeat,
    consumer_starts_beside_a_silent_broker,
    close_does_not_wait_for_silent_servers,
    close_ends_an_open_under_way,
    late_answers_are_not_confused_with_others,
    lost_answer_does_not_end_other_requests,
    sends_avoid_a_slow_broker,
    name_servers_fail_and_return,
    cut_requests_are_sent_again,
    pulled_messages_are_cut_and_lost,
    fifty_reconnects_leave_nothing,
    unread_bytes_do_not_keep_a_connection,
    cut_members_keep_their_queues,
)

ON_TWISTED = (
    sends_leave_a_silent_broker,
    consumption_continues_after_a_black_hole,
    close_ends_an_open_under_way,
    name_servers_fail_and_return,
    cut_requests_are_sent_again,
    fifty_reconnects_leave_nothing,
    unread_bytes_do_not_keep_a_connection,
)
"""Those that are played on that face, too, which differs from the others in little but its reactor."""


def main(kind: str, namesrv: str, brokers: str) -> None:
    """Play scenarios on the Twisted face, at once, and print their results."""
    where = Where.of(kind, namesrv, brokers)
    playing: dict[str, Future[None]] = {}

    def play(scenario: Callable[[Net], None], face: Face) -> None:
        with Proxies() as proxies:
            scenario(Net(where, face, proxies))

    def awaited(scenario: Callable[[Net], None]) -> Callable[[World], None]:
        @wraps(scenario)
        def wait(world: World) -> None:
            if not playing:
                playing.update({each.__name__: threads.submit(play, each, world.face) for each in ON_TWISTED})
            playing[scenario.__name__].result()

        return wait

    with ThreadPoolExecutor(len(ON_TWISTED)) as threads:
        python_client_basics.main(kind, namesrv, brokers, scenarios=[awaited(scenario) for scenario in ON_TWISTED])


if __name__ == "__main__":
    main(*sys.argv[1:])
