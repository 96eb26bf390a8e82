"""`rocketd spark replay`: an archive's messages sent again, each once, those of a queue in order."""

import pytest

from rocketd.spark.errors import ArchiveError
from tests.spark.archives import JobProcess
from tests.spark.clusters import await_condition
from tests.spark.kills import KILLS
from tests.spark.running import run_job
from tests.spark.write_helpers import count_of, rows_of
from tests.support.stores import read_store, write_store


@pytest.fixture(scope="module")
def archived(spark, tmp_path_factory):
    """A store with a topic of three queues, and the archive of it."""
    root = tmp_path_factory.mktemp("archived")
    write_store(root / "store", 900, queues=3)
    run_job(spark, "archive", "--store", root / "store", "--to", root / "archive")
    return root / "store", root / "archive"


def stored_bodies(store):
    found = {}
    for message in read_store(store):
        found.setdefault(message.queue_id, []).append(message.body)
    return found


def test_messages_are_sent_once_and_in_order(spark, archived, rocketd_cluster, tmp_path):
    store, archive = archived
    topic = rocketd_cluster.create_topic(queues=3)
    words = ("replay", "--archive", archive, "--to-namesrv", rocketd_cluster.namesrv, "--to-topic", topic)
    words += ("--state", tmp_path / "state")
    report = run_job(spark, *words).facts
    assert report["messages"] == 900
    found = rows_of(rocketd_cluster, topic, 900, "body", "tags", "keys", "uniq_key")
    assert {queue: [row["body"] for row in rows] for queue, rows in found.items()} == stored_bodies(store)
    assert found[0][0]["keys"] == "key-0"
    assert found[0][0]["tags"] == "TagA"
    assert run_job(spark, *words).facts["messages"] == 0
    assert count_of(rocketd_cluster, topic) == 900
    with pytest.raises(ArchiveError, match="begun with another selection"):
        run_job(spark, *words, "--until", '{"orders": {"0": 5}}')
    other = rocketd_cluster.create_topic(queues=2)
    words = (*words[:5], "--to-topic", other, "--state", tmp_path / "other", "--from", '{"orders": {"1": 290}}')
    report = run_job(
        spark, *words, "--topic", "orders", "--until", '{"orders": {"0": 10, "2": 0}}', "--rate", 1000
    ).facts
    assert report["messages"] == 20
    found = rows_of(rocketd_cluster, other, 20, "body")
    assert [row["body"] for row in found[0]] == stored_bodies(store)[0][:10]
    assert [row["body"] for row in found[1]] == stored_bodies(store)[1][290:]


@pytest.mark.timeout(900)
def test_killed_replay_sends_each_message_once(archived, rocketd_cluster, tmp_path):
    store, archive = archived
    topic = rocketd_cluster.create_topic(queues=3)
    words = ("replay", "--archive", archive, "--to-namesrv", rocketd_cluster.namesrv, "--to-topic", topic)
    words += ("--state", tmp_path / "state", "--option", "batchBytes=4096", "--master", "local[2]", "--quiet")
    for number in range((KILLS + 1) // 2):
        more = count_of(rocketd_cluster, topic) + 20 + 50 * number
        process = JobProcess(tmp_path, *words)
        process.kill_when("messages come", lambda more=more: count_of(rocketd_cluster, topic) >= min(more, 900))
    JobProcess(tmp_path, *words).wait()
    await_condition("all have come", lambda: count_of(rocketd_cluster, topic) >= 900)
    found = rows_of(rocketd_cluster, topic, 900, "body")
    assert {queue: [row["body"] for row in rows] for queue, rows in found.items()} == stored_bodies(store)
