"""The Python client when brokers die, networks swallow, name servers are gone: with rocketd's servers and Apache's.

The scenarios of one kind of servers are played at once, on all faces: most of their time is waiting.
"""

import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from threading import Event
from typing import Any

import pytest
import pytest_twisted
from twisted.internet.task import deferLater

from rocketd.client import Message
from rocketd.client.errors import UnreachableError
from tests.interop.fault_net import A, Net
from tests.interop.fault_proxy import Proxies
from tests.interop.fault_world import TwoBrokers, faces
from tests.interop.python_client_faces import Face, Got, eventually
from tests.interop.python_client_servers import RunningServers
from tests.interop.python_client_twisted import played_on_twisted
from tests.interop.python_fault_scenarios import LATE, ON_TWISTED, SCENARIOS, Ends
from tests.support.jars import PeerUnavailableError

PROGRAM = "python_fault_scenarios"


@pytest.fixture(scope="module")
def starting(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[TwoBrokers]]]:
    """The servers of each kind needed in this run, which start at once."""
    from twisted.internet import reactor

    # The reactor of the tests begins with the first test otherwise, and its files would count.
    pytest_twisted.blockon(deferLater(reactor, 0.0))
    directory = tmp_path_factory.mktemp("faults")
    with ThreadPoolExecutor() as threads, ExitStack() as stack:
        starting = {kind: threads.submit(TwoBrokers, kind, directory / kind) for kind in wanted(request, "servers")}
        stack.callback(lambda: [servers.result().stop() for servers in starting.values() if not servers.exception()])
        yield starting


def wanted(request: pytest.FixtureRequest, parameter: str) -> list[str]:
    """The values of a parameter in the selected tests of this module, in their order."""
    there = [item.callspec.params for item in request.session.items if item.module is request.module]
    return list(dict.fromkeys(values[parameter] for values in there if parameter in values))


@pytest.fixture(scope="module", params=["rocketd", "apache"])
def servers(
    request: pytest.FixtureRequest, starting: dict[str, Future[TwoBrokers]], lacking: Callable[[str], None]
) -> TwoBrokers:
    try:
        return starting[request.param].result()
    except PeerUnavailableError as e:
        lacking(str(e))
        raise


@pytest.fixture(scope="module")
def played(request: pytest.FixtureRequest, servers: TwoBrokers) -> dict[tuple[str, str], str]:
    """Errors by face and scenario, of the scenarios with tests in this run."""
    names = wanted(request, "scenario")
    scenarios = [scenario for scenario in SCENARIOS if scenario.__name__ in names]
    troubles: dict[tuple[str, str], str] = {}

    def play(face: Any, scenario: Callable[[Net], None]) -> None:
        try:
            with Proxies() as proxies:
                scenario(Net(servers, face, proxies))
            trouble = ""
        except BaseException:
            trouble = traceback.format_exc()
        troubles[face.name, scenario.__name__] = trouble

    def play_on_twisted() -> None:
        there = RunningServers(servers.kind, servers.namesrv, servers.text)
        for scenario, trouble in played_on_twisted(PROGRAM, there).items():
            troubles["twisted", scenario] = trouble

    try:
        with faces() as both, ThreadPoolExecutor(2 * len(SCENARIOS) + 1) as threads:
            playing = [threads.submit(play, face, scenario) for face in both for scenario in scenarios]
            if wanted(request, "on_twisted"):
                playing.append(threads.submit(play_on_twisted))
            for one in playing:
                one.result()
        troubles["all", "left"] = ""
    except AssertionError as error:
        troubles["all", "left"] = str(error)
    return troubles


@pytest.mark.parametrize("scenario", [scenario.__name__ for scenario in SCENARIOS])
@pytest.mark.parametrize("face", ["aio", "sync"])
def test_scenario(played: dict[tuple[str, str], str], face: str, scenario: str) -> None:
    tell(played[face, scenario])


def test_closed_clients_leave_nothing_behind(played: dict[tuple[str, str], str]) -> None:
    tell(played["all", "left"])


@pytest.mark.parametrize("on_twisted", [*(scenario.__name__ for scenario in ON_TWISTED), "reactor"])
def test_twisted(played: dict[tuple[str, str], str], on_twisted: str) -> None:
    tell(played["twisted", on_twisted])


def tell(trouble: str) -> None:
    """Fail if there was trouble."""
    if trouble:
        pytest.fail(trouble, pytrace=False)


# ---------------------------------------------------------------- a broker that is killed


class Stream:
    """A producer that sends one message after the other, in a thread; ``acknowledged`` are the bodies of those stored."""

    def __init__(self, producer: Any, topic: str) -> None:
        self.acknowledged: list[bytes] = []
        self.errors: list[Exception] = []
        self._producer = producer
        self._topic = topic
        self._stop = Event()

    def __call__(self) -> None:
        """Send until ``stop``."""
        number = 0
        while not self._stop.is_set():
            body = f"{id(self)}-{number}".encode()
            number += 1
            try:
                self._producer.send(Message(self._topic, body))
                self.acknowledged.append(body)
            except Exception as error:
                self.errors.append(error)
                if len(self.errors) > 100:
                    return

    def go_on(self, messages: int) -> None:
        """Wait for so many more."""
        wanted = len(self.acknowledged) + messages
        eventually("more are stored", lambda: len(self.acknowledged) >= wanted)

    def stop(self) -> None:
        """Send no more."""
        self._stop.set()


@pytest.mark.usefixtures("played")
def test_killed_broker_is_replaced_until_its_return(servers: TwoBrokers) -> None:
    """The other takes over; messages only on the killed one wait for its return, and then continue. Without proxies."""
    with faces() as both:
        kill_a_broker(servers, both)  # its variables are gone when faces looks for leftovers


def kill_a_broker(servers: TwoBrokers, both: list[Face]) -> None:
    """Kill A while messages are sent, and start it again."""
    with ExitStack() as stack:
        threads = stack.enter_context(ThreadPoolExecutor())
        nets = [Net(servers, face) for face in both]
        topic, only = nets[0].topic(), nets[0].topic(A)
        got, got_only = [Got() for _ in nets], [Got() for _ in nets]
        for net, each, each_only in zip(nets, got, got_only, strict=True):
            stack.enter_context(net.consumer(topic, each))
            stack.enter_context(net.consumer(only, each_only))
        producers = [stack.enter_context(net.producer(send_timeout=LATE)) for net in nets]
        streams = [Stream(producer, topic) for producer in producers]
        for stream in streams:
            stack.callback(stream.stop)
            threads.submit(stream)
        for producer, stream in zip(producers, streams, strict=True):
            producer.send(Message(only, b"before"))
            stream.go_on(20)
        servers.kill(A)
        for producer, stream in zip(producers, streams, strict=True):
            with Ends(3.0, UnreachableError) as ends:
                producer.send(Message(only, b"meanwhile"), timeout=3.0)
            assert {attempt.broker for attempt in ends.error.attempts} == {A}
            stream.go_on(20)
        servers.start(A)
        for producer, stream in zip(producers, streams, strict=True):
            eventually("it is back", lambda producer=producer: sends(producer, only, b"after"))
            eventually("both get messages", lambda producer=producer: sends(producer, topic, b"to both", A))
            stream.go_on(20)
            stream.stop()
        for each, each_only in zip(got, got_only, strict=True):
            each_only.wait_bodies([b"before", b"after"])
            each.wait_bodies([body for stream in streams for body in stream.acknowledged])
        assert [stream.errors for stream in streams] == [[], []]


def sends(producer: Any, topic: str, body: bytes, broker: str | None = None) -> bool:
    """Whether a message gets through now, to this broker."""
    try:
        sent = producer.send(Message(topic, body))
    except UnreachableError:
        return False
    return broker in (None, sent.queue.broker_name)
