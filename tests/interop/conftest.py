"""Fixtures of the interop ring: the servers, started once, and the client programs that drive them.

``ROCKETD_INTEROP_SERVERS=apache`` puts Apache's own servers in the place of rocketd's: what the programs and the tests
themselves are proved against.
"""

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

HERE = Path(__file__).resolve().parent
# These tests use modules beside them and in benchmarks/: neither is installed with rocketd.
for directory in (str(HERE.parents[1]), str(HERE)):
    if directory not in sys.path:
        sys.path.insert(0, directory)

from lacking import end_test_lacking  # noqa: E402
from toolchain import PROGRAMS, Run, run_client  # noqa: E402

from benchmarks.peers import wire  # noqa: E402
from benchmarks.peers.apache import ApacheCluster, fetch_jars  # noqa: E402
from benchmarks.peers.jars import PeerUnavailableError  # noqa: E402
from benchmarks.peers.ports import free_port  # noqa: E402

if TYPE_CHECKING:
    from mqadmin_sides import Both
    from python_client_servers import Servers
    from python_client_world import World


@dataclass(frozen=True)
class Cluster:
    """Where the servers under test are."""

    namesrv: str
    broker: str


@pytest.fixture(scope="session")
def lacking() -> Callable[[str], None]:
    return end_test_lacking


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("servers")
    if os.environ.get("ROCKETD_INTEROP_SERVERS") == "apache":
        servers = ApacheCluster(directory)
        try:
            servers.start()
        except PeerUnavailableError as e:
            end_test_lacking(str(e))
    else:
        from twistd_servers import RocketdCluster

        servers = RocketdCluster(directory)
        servers.start()
    yield Cluster(servers.namesrv_address, servers.broker_address)
    servers.stop()


@dataclass(frozen=True)
class Clients:
    """Runs the programs against the cluster, each in a home directory of its own run."""

    cluster: Cluster
    homes: Callable[[str], Path]

    def require(self, *names: str) -> None:
        """Skip (or fail) unless these programs can be built here."""
        for name in names:
            reason = PROGRAMS[name].missing()
            if reason is not None:
                end_test_lacking(reason)

    def run(self, name: str, command: str, topic: str, *arguments: object, jvm: tuple[str, ...] = ()) -> Run:
        """Run one program once; see toolchain.run_client."""
        self.require(name)
        namesrv = self.cluster.namesrv
        home = self.homes(f"{name}-{command}")
        return run_client(name, command, "--namesrv", namesrv, "--topic", topic, *arguments, home=home, jvm=jvm)

    def create_topic(self, topic: str, queues: int = 4) -> None:
        """Create a topic at the broker; the name server has its route when this returns."""
        wire.create_topic(self.cluster.broker, topic, queues)
        wire.await_route(self.cluster.namesrv, topic, self.cluster.broker)


@pytest.fixture(scope="session")
def clients(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Clients:
    return Clients(cluster, tmp_path_factory.mktemp)


_names = count(1)


@pytest.fixture
def fresh() -> Callable[[str], str]:
    """Topic and group names that nothing has used: ``fresh("T")`` is T-1, T-2, ..."""
    return lambda prefix: f"{prefix}-{os.getpid()}-{next(_names)}"


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a name server for brokers of both kinds, where there are both."""
    reason = PROGRAMS["java"].missing()
    if reason is not None:
        end_test_lacking(reason)
    try:
        fetch_jars()
    except PeerUnavailableError as e:
        end_test_lacking(str(e))
    from store_brokers import IPV4
    from twistd_servers import start_namesrv

    port = free_port()
    server = start_namesrv(tmp_path_factory.mktemp("namesrv"), port)
    yield f"{IPV4}:{port}"
    server.stop()


@pytest.fixture(scope="session")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator["Both"]:
    """Apache's servers and rocketd's in the same state, and mqadmin beside each."""
    from mqadmin_sides import Both, fill

    try:
        sides = Both(tmp_path_factory.mktemp("mqadmin"))
    except PeerUnavailableError as e:
        end_test_lacking(str(e))
    try:
        fill(sides)
        yield sides
    finally:
        sides.stop()


@pytest.fixture(scope="session", params=["rocketd", "apache"])
def python_servers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator["Servers"]:
    """The servers that the Python client is tested with, one kind after the other."""
    from python_client_servers import Servers

    try:
        servers = Servers(request.param, tmp_path_factory.mktemp(request.param))
    except PeerUnavailableError as e:
        end_test_lacking(str(e))
    yield servers
    servers.stop()


@pytest.fixture
def world(python_servers: "Servers") -> Iterator["World"]:
    """What those tests of the Python client play in that need not be played on every face."""
    from python_client_faces import AioFace
    from python_client_world import World

    face = AioFace()
    yield World(python_servers, face)
    face.close()
