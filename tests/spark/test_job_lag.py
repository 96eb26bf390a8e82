"""`rocketd spark lag` against live brokers."""

import json

from rocketd.spark.cli import main
from rocketd.spark.ranges import Queue
from tests.support.stores import write_group_offsets, write_store


def test_lag_of_a_group_at_a_broker(live_cluster, capsys):
    topic = live_cluster.create_topic(queues=2)
    live_cluster.send(topic, [b"one", b"two", b"three"], queue_id=0)
    live_cluster.send(topic, [b"four"], queue_id=1)
    group = f"lag-{topic}"
    broker = live_cluster.queue(topic).broker
    live_cluster.catalog.commit_group(group, {Queue(topic, broker, 0): 1, Queue(topic, broker, 1): 1})
    arguments = [
        "lag",
        "--namesrv",
        live_cluster.namesrv,
        "--group",
        group,
        "--interval",
        "10ms",
        "--by-queue",
        "--json",
    ]
    assert main(arguments) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["groups"][0]["behind"] == 2
    assert [(row["queue"], row["committed"], row["end"]) for row in report["queues"]] == [(0, 1, 3), (1, 1, 1)]
    assert report["queues"][0]["behindSeconds"] >= 0
    assert report["queues"][1]["etaSeconds"] == 0
    assert main([*arguments, "--group", "ghost"]) == 1
    assert "no broker knows the group ghost" in " ".join(json.loads(capsys.readouterr().out)["problems"])


def test_lag_of_an_unknown_group(live_cluster, capsys):
    assert main(["lag", "--namesrv", live_cluster.namesrv, "--group", "ghost", "--samples", "1"]) == 1
    assert "no broker knows the group ghost" in capsys.readouterr().err


def test_lag_in_a_store(tmp_path, capsys):
    write_store(tmp_path, 100)
    write_group_offsets(tmp_path, {("orders", "g"): {0: 25, 1: 20}})
    assert main(["lag", "--store", str(tmp_path), "--samples", "1"]) == 0
    assert "behind" in capsys.readouterr().out
    assert main(["lag", "--store", str(tmp_path), "--samples", "0"]) == 2
