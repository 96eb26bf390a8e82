"""mqadmin prints the same about a broker with a slave for rocketd and for Apache's in the same state."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.interop.mqadmin_sides import CLUSTER, TOPIC, Both, fill
from tests.interop.mqadmin_text import without_moments, without_rates
from tests.support.jars import PeerUnavailableError


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory, lacking: Callable[[str], None]) -> Iterator[Both]:
    """Both sides with a slave equal to its master."""
    try:
        sides = Both(tmp_path_factory.mktemp("slaves"))
    except PeerUnavailableError as e:
        lacking(str(e))
    try:
        sides.each(lambda side: side.start_slave())
        fill(sides)
        yield sides
    finally:
        sides.stop()


def test_cluster_list(pairs: Both) -> None:
    row = r"broker-a +1 +SLAVE"
    pairs.become_same("clusterList", wanted=row, change=without_rates)


def test_topic_route(pairs: Both) -> None:
    assert '1:"SLAVE"' in pairs.same("topicRoute", "-t", TOPIC)


def test_broker_status(pairs: Both) -> None:
    printed = pairs.become_same("brokerStatus", "-b", "SLAVE", wanted=r"commitLogMaxOffset *: [^0]", change=_status)
    assert "brokerVersionDesc" in printed
    pairs.become_same("brokerStatus", "-c", CLUSTER, in_any_order=True, change=_status)


def _status(printed: str) -> str:
    """Listed in docs/compatibility.md: Apache's broker tells nothing of replication."""
    return "\n".join(line for line in without_moments(printed).splitlines() if not re.search(r"(^|\s)ha[A-Z]", line))


def test_get_broker_config(pairs: Both) -> None:
    printed = pairs.each(lambda side: side.mqadmin("getBrokerConfig", "-c", CLUSTER)["out"])
    titles = [re.findall(r"^=+.*=+$", side, re.MULTILINE) for side in printed]
    assert titles[0] == titles[1] == ["============Master: BROKER============", *titles[0][1:]]
    assert "Slave: SLAVE" in titles[0][1]
    roles = [re.findall(r"^broker(?:Role|Id) *=.*$", side, re.MULTILINE) for side in printed]
    assert sorted(" ".join(role.split()) for role in roles[0]) == sorted(" ".join(role.split()) for role in roles[1])


def test_export_configs(pairs: Both) -> None:
    pairs.same("exportConfigs", "-c", CLUSTER, "-f", "DIRECTORY/export")
    for side in (pairs.apache, pairs.rocketd):
        exported = json.loads(Path(side.directory, "export", "configs.json").read_text())
        assert exported["clusterScale"] == {"masterBrokerSize": 1, "namesrvSize": 1, "slaveBrokerSize": 1}


def test_a_slave_changes_nothing(pairs: Both) -> None:
    refusal = "Can't modify topic or subscription group from slave broker"
    pairs.same("updateTopic", "-b", "SLAVE", "-t", "OfTheSlave", err=refusal)
    pairs.same("updateSubGroup", "-b", "SLAVE", "-g", "of-the-slave", err=refusal)
    pairs.same("deleteSubGroup", "-b", "SLAVE", "-g", "of-the-slave", err=refusal)


def test_a_slave_has_the_clients_too(pairs: Both) -> None:
    pairs.become_same("brokerConsumeStats", "-b", "SLAVE", wanted=rf"{TOPIC} +basic-consumers +broker-a +3 +3 +3 +0")
    pairs.become_same("producer", "-b", "SLAVE", in_any_order=True)
