"""Fixtures of the interop ring: the servers, started once, and the client programs that drive them.

``ROCKETD_INTEROP_SERVERS=apache`` runs Apache's servers instead of rocketd's, to check the programs and the tests
themselves.
"""

import os
from collections.abc import Callable, Iterator
from itertools import count
from typing import TYPE_CHECKING

import pytest

from tests.interop.clients import Clients, Cluster
from tests.interop.toolchain import PROGRAMS
from tests.support.apache import ApacheCluster, fetch_jars
from tests.support.jars import PeerUnavailableError
from tests.support.lacking import end_test_lacking
from tests.support.ports import free_port

if TYPE_CHECKING:
    from tests.interop.mqadmin_sides import Both
    from tests.interop.python_client_servers import Servers
    from tests.interop.python_client_world import World


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
        from tests.support.twistd_servers import RocketdCluster

        servers = RocketdCluster(directory)
        servers.start()
    yield Cluster(servers.namesrv_address, servers.broker_address)
    servers.stop()


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
    """Address of a name server for brokers of both kinds, in tests with both."""
    reason = PROGRAMS["java"].missing()
    if reason is not None:
        end_test_lacking(reason)
    try:
        fetch_jars()
    except PeerUnavailableError as e:
        end_test_lacking(str(e))
    from tests.support.store_brokers import IPV4
    from tests.support.twistd_servers import start_namesrv

    port = free_port()
    server = start_namesrv(tmp_path_factory.mktemp("namesrv"), port)
    yield f"{IPV4}:{port}"
    server.stop()


@pytest.fixture(scope="session")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator["Both"]:
    """Apache's servers and rocketd's in the same state, and mqadmin beside each."""
    from tests.interop.mqadmin_sides import Both, fill

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
    from tests.interop.python_client_servers import Servers

    try:
        servers = Servers(request.param, tmp_path_factory.mktemp(request.param))
    except PeerUnavailableError as e:
        end_test_lacking(str(e))
    yield servers
    servers.stop()


@pytest.fixture
def world(python_servers: "Servers") -> Iterator["World"]:
    """The world of tests of the Python client that need only one face."""
    from tests.interop.python_client_faces import AioFace
    from tests.interop.python_client_world import World

    face = AioFace()
    yield World(python_servers, face)
    face.close()
