"""Features of a broker, shown by unmodified Java clients that go on while their broker is killed.

Java's clients notice a lost connection only when their pull's 30 s are over. Therefore all stories live through one and
the same kill.
"""

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

from tests.interop.feature_stories import KIND, STORIES, Story, World
from tests.interop.java_features import JavaFeatures
from tests.support.store_brokers import StoreBrokers

PROPERTIES = {
    "messageDelayLevel": "1s 6s 6s 7s",
    "traceTopicEnable": "true",
    "groupGuardGraceTime": "1000",
    "mappedFileSizeCommitLog": "1048576",
    "mappedFileSizeConsumeQueue": "60000",
    "diskMaxUsedSpaceRatio": "95",
    "brokerClusterName": "DefaultCluster",
}


@pytest.fixture(scope="module")
def told(namesrv: str, tmp_path_factory: Any) -> Iterator[dict[Story, Any]]:
    """All stories, played up to the kill and restart of the broker; or the error of a story before that."""
    brokers = StoreBrokers(tmp_path_factory.mktemp("features"), namesrv, PROPERTIES)
    try:
        brokers.start(KIND)
        java = JavaFeatures(namesrv, tmp_path_factory.mktemp("java"))
        try:
            java.do("producer", "sender", "P-sender", "")
            names = count(1)
            world = World(java, brokers, namesrv, lambda prefix: f"{prefix}-{next(names)}")
            began = {story: begin(story, world) for story in STORIES}
            brokers.kill()
            brokers.start(KIND)
            yield began
        finally:
            java.stop()
        brokers.stop()
    finally:
        brokers.close()


def begin(story: Story, world: World) -> Iterator[None] | Exception:
    """Play a story up to the kill; return the rest of it, or its error before the kill."""
    rest = story(world)
    try:
        next(rest)
    except Exception as error:
        return error
    return rest


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_feature_survives_a_kill_of_the_broker(told: dict[Story, Any], story: Story) -> None:
    rest = told[story]
    if isinstance(rest, Exception):
        raise rest
    assert next(rest, "the end") == "the end"


# ---------------------------------------------------------------- another client


def test_go_gets_replies(clients: Any, fresh: Callable[[str], str]) -> None:
    topic = fresh("Conversation")
    clients.create_topic(topic)
    lines = clients.run("go", "converse", topic, "--group", fresh("G"), "--count", 5).lines
    assert lines == [{"request": f"request {number}", "reply": f"re: request {number}"} for number in range(5)]
