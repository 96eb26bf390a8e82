"""The Python client against rocketd's servers and against Apache's: the same tests for both."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import end_test_lacking
from python_client_basics import SCENARIOS
from python_client_faces import AioFace, Face, SyncFace
from python_client_servers import APACHE, ROCKETD, Servers
from python_client_world import World

from benchmarks.peers.apache import PeerUnavailableError

HERE = Path(__file__).resolve().parent
RUN_LIMIT = 240.0  # seconds


@pytest.fixture(scope="module", params=[ROCKETD, APACHE])
def servers(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    try:
        servers = Servers(request.param, tmp_path_factory.mktemp(request.param))
    except PeerUnavailableError as error:
        end_test_lacking(str(error))
    yield servers
    servers.stop()


@pytest.fixture(scope="module")
def aio_face() -> Iterator[Face]:
    face = AioFace()
    yield face
    face.close()


@pytest.fixture
def world(servers: Servers, aio_face: Face) -> World:
    """What tests play in that need not be played on every face."""
    return World(servers, aio_face)


# ---------------------------------------------------------------- on every face


@pytest.fixture(scope="module")
def on_twisted(servers: Servers) -> dict[str, str]:
    """By the name of each scenario what went wrong with it on the Twisted face."""
    command = [sys.executable, str(HERE / "python_client_basics.py"), servers.kind, servers.namesrv, servers.broker]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_LIMIT, env=dict(os.environ))
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines()]
    return {each["scenario"]: each["trouble"] for each in told}


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_aio(servers: Servers, aio_face: Face, scenario: Any) -> None:
    scenario(World(servers, aio_face))


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_sync(servers: Servers, scenario: Any) -> None:
    scenario(World(servers, SyncFace()))


@pytest.mark.parametrize("scenario", [*(scenario.__name__ for scenario in SCENARIOS), "reactor"])
def test_twisted(on_twisted: dict[str, str], scenario: str) -> None:
    assert on_twisted[scenario] == ""
