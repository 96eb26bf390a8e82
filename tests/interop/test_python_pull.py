"""Python consumers that are asked for messages, and administration from Python, against rocketd's and Apache's servers."""

from typing import Any

import pytest

from tests.interop.python_client_faces import Got, SyncFace, eventually
from tests.interop.python_client_polling import SCENARIOS, administration, lite
from tests.interop.python_client_servers import Servers
from tests.interop.python_client_twisted import played_on_twisted
from tests.interop.python_client_world import World


@pytest.fixture(scope="module")
def on_twisted(python_servers: Servers) -> dict[str, str]:
    """The error of each scenario on the Twisted face, by its name."""
    return played_on_twisted("python_client_polling", python_servers)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_aio(world: World, scenario: Any) -> None:
    scenario(world)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_sync(python_servers: Servers, scenario: Any) -> None:
    scenario(World(python_servers, SyncFace()))


@pytest.mark.parametrize("scenario", [*(scenario.__name__ for scenario in SCENARIOS), "reactor"])
def test_twisted(on_twisted: dict[str, str], scenario: str) -> None:
    assert on_twisted[scenario] == ""


def test_watched_topic_and_mqadmin(world: World) -> None:
    topic, group, told = world.topic(2), world.group(), Got()
    with lite(world, group, topic, watch_interval=0.5) as consumer, administration(world) as admin:
        consumer.watch_queues(topic, lambda name, queues: told((name, len(queues))))
        admin.create_topic(topic, queues=3)
        told.wait("the third queue is seen", lambda: (topic, 3) in told.messages)
        eventually("it has the third queue", lambda: len(consumer.queues()) == 3)
        printed = world.servers.mqadmin("consumerStatus", "-g", group, "-i", consumer.client_id)
    assert "CONSUME_ACTIVELY" in printed
    assert topic in printed
