"""mqadmin writes the same files about rocketd and about Apache's broker in the same state."""

import json
from pathlib import Path
from typing import Any

from tests.interop.mqadmin_sides import CLUSTER, GROUP, TOPIC, Both, Side, assert_same_fields


def _exported(both: Both, *words: str, file: str, drop: tuple[str, ...] = ()) -> Any:
    """Run an export into a directory of each side's; the file, without some of its members, has to be the same."""
    directory = f"DIRECTORY/export-{words[0]}{len(words)}"
    assert f"export {directory}/{file} success" in both.same(*words, "-f", directory)

    def read(side: Side) -> Any:
        path = Path(directory.replace("DIRECTORY", str(side.directory)), file)
        return _without(json.loads(path.read_text()), drop)

    def named(side: Side) -> str:
        return side.names.given_to(json.dumps(read(side), indent=1, sort_keys=True))

    of_apache, of_rocketd = both.each(named)
    assert_same_fields(file, of_apache, of_rocketd)
    return read(both.apache)


def _without(content: Any, drop: tuple[str, ...]) -> Any:
    if isinstance(content, dict):
        return {name: _without(member, drop) for name, member in content.items() if name not in drop}
    return content


def test_export_configs(both: Both) -> None:
    exported = _exported(both, "exportConfigs", "-c", CLUSTER, file="configs.json")
    assert exported["clusterScale"] == {"masterBrokerSize": 1, "namesrvSize": 1, "slaveBrokerSize": 0}


def test_export_metadata(both: Both) -> None:
    exported = _exported(both, "exportMetadata", "-c", CLUSTER, file="metadata.json")
    assert TOPIC in exported["topicConfigTable"]
    assert GROUP in exported["subscriptionGroupTable"]


def test_export_metadata_of_topics(both: Both) -> None:
    # The counter of changes is not compared: Apache counts some that change nothing.
    _exported(both, "exportMetadata", "-b", "BROKER", "-t", file="topic.json", drop=("dataVersion",))
    _exported(both, "exportMetadata", "-b", "BROKER", "-t", "-s", file="topic.json", drop=("dataVersion",))


def test_export_metadata_of_groups(both: Both) -> None:
    _exported(both, "exportMetadata", "-b", "BROKER", "-g", file="subscriptionGroup.json", drop=("dataVersion",))


def test_export_metrics(both: Both) -> None:
    # Rates, and how full the disk is, are of the moment.
    drop = ("tps", "totalTps", "diskRatio")
    exported = _exported(both, "exportMetrics", "-c", CLUSTER, file="metrics.json", drop=drop)
    assert exported["evaluateReport"]["broker-a"]["runtimeVersion"]["rocketmqVersion"] == "V4_9_7"
