"""`rocketd spark dlq`: dead letters that a broker has made, and back with them."""

import pytest

from rocketd.remoting.headers.client import ConsumerSendMsgBackRequestHeader
from rocketd.remoting.wire.codes import RequestCode
from rocketd.spark.errors import OptionError
from rocketd.spark.jobs.dlq.state import RedriveState
from rocketd.spark.ranges import QueueRange, ReadPlan
from rocketd.spark.wire.message import RawMessage
from rocketd.spark.wire.read import read_range
from tests.spark.clusters import await_condition
from tests.spark.running import run_job
from tests.support.stores import message, write_store


def given_up(cluster, topic, group, bodies, tag=""):
    """Messages that a group has sent back for good; their offset message ids."""
    sent = cluster.send(topic, [RawMessage(topic, body, tags=tag) for body in bodies])
    for position in sent:
        header = ConsumerSendMsgBackRequestHeader(
            position.commit_log_offset, group, -1, position.offset_msg_id, topic, False, 16
        )
        cluster.cluster.ask("broker-a", RequestCode.CONSUMER_SEND_MSG_BACK, header)
    return [position.offset_msg_id for position in sent]


def read(cluster, topic, start, count):
    """Bodies and properties of messages, once so many are there."""
    queues = cluster.cluster.queues(topic)

    def there():
        ends = {queue: cluster.catalog.bounds(queue)[1] for queue in queues}
        return ends if sum(ends.values()) >= start + count else None

    found = []
    for queue, end in await_condition(f"{topic} has {start + count} messages", there).items():
        for batch in read_range(
            cluster.cluster, QueueRange(queue, 0, end), ReadPlan(("body", "properties", "uniq_key"))
        ):
            found += batch.to_pylist()
    return found


def test_dead_letters_are_grouped_and_redriven(spark, live_cluster, tmp_path):
    topic = live_cluster.create_topic(queues=1)
    group = f"dead-{topic}"
    first = given_up(live_cluster, topic, group, [b"a1", b"a2", b"a3"], "TagA")
    second = given_up(live_cluster, topic, group, [b"b1"], "TagB")
    live_cluster.await_end(live_cluster.queue(f"%DLQ%{group}"), 4)
    source = ("--namesrv", live_cluster.namesrv, "--group", group, "--cause", "TAGS")
    report = run_job(spark, "dlq", *source)
    assert [(row["group"], row["topic"], row["cause"], row["messages"]) for row in report.facts["groups"]] == [
        (group, topic, "TagA", 3),
        (group, topic, "TagB", 1),
    ]
    assert report.facts["groups"][1]["ids"] == second
    redrive = (*source, "--redrive", "--to-original-topic", "--state", tmp_path / "state")
    words = (*redrive, "--tag", "TagA", "--sql", "reconsume_times >= 0")
    assert run_job(spark, "dlq", *words).facts["redriven"] == 3
    again = read(live_cluster, topic, 4, 3)[4:]
    assert sorted(row["body"] for row in again) == [b"a1", b"a2", b"a3"]
    assert sorted(dict(row["properties"])["ORIGIN_MESSAGE_ID"] for row in again) == sorted(first)
    # All have gone back: a repetition sends nothing, until something new is there.
    assert run_job(spark, "dlq", *words).facts["redriven"] == 0
    given_up(live_cluster, topic, group, [b"a4"], "TagA")
    live_cluster.await_end(live_cluster.queue(f"%DLQ%{group}"), 5)
    assert run_job(spark, "dlq", *words).facts["redriven"] == 1
    assert [row["body"] for row in read(live_cluster, topic, 8, 1)[8:]] == [b"a4"]


def interrupted(*_):
    raise KeyboardInterrupt


def test_dead_letters_of_a_store_go_to_another_cluster(spark, rocketd_cluster, tmp_path, monkeypatch):
    rows = [
        message(
            b"one",
            "%DLQ%g",
            properties={
                "RETRY_TOPIC": "orders",
                "ORIGIN_MESSAGE_ID": "X1",
                "DELAY": "0",
                "DEAD_LETTER_EXCEPTION": "builtins.KeyError",
            },
        ),
        message(b"two", "%DLQ%g", keys="k1 k2"),
        message(b"three", "%RETRY%g", properties={"RETRY_TOPIC": "orders"}),
    ]
    write_store(tmp_path / "store", rows)
    report = run_job(spark, "dlq", "--store", tmp_path / "store", "--retried")
    assert sorted((row["kind"], row["topic"], row["messages"]) for row in report.facts["groups"] if row["topic"]) == [
        ("dead", "orders", 1),
        ("retried", "orders", 1),
    ]
    assert {row["cause"] for row in report.facts["groups"]} == {"builtins.KeyError", None}
    topic = rocketd_cluster.create_topic(queues=1)
    words = ("--store", tmp_path / "store", "--redrive", "--to-namesrv", rocketd_cluster.namesrv)
    sent = (*words, "--key", "k2", "--to-topic", topic, "--state", tmp_path / "state")
    # Ended between the last send and the note that all is sent.
    monkeypatch.setattr(RedriveState, "finish", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_job(spark, "dlq", *sent)
    monkeypatch.undo()
    assert run_job(spark, "dlq", *sent).facts["redriven"] == 1
    assert [row["body"] for row in read(rocketd_cluster, topic, 0, 1)] == [b"two"]
    # To the group alone, as by default: its topic of retries has to say where the message came from.
    rocketd_cluster.create_topic(queues=1, name="%RETRY%g")
    report = run_job(spark, "dlq", *words, "--sql", "keys is null", "--state", tmp_path / "group")
    assert report.facts["redriven"] == 1
    (row,) = read(rocketd_cluster, "%RETRY%g", 0, 1)
    properties = dict(row["properties"])
    assert (row["body"], properties["RETRY_TOPIC"], properties["ORIGIN_MESSAGE_ID"]) == (b"one", "orders", "X1")
    report = run_job(spark, "dlq", *words, "--key", "k2", "--state", tmp_path / "other")
    assert (report.status, report.facts["redriven"]) == (1, 0)
    assert "1 messages do not say which topic they came from" in report.problems[0]


def test_wrong_arguments(spark, tmp_path):
    write_store(tmp_path, 1)
    with pytest.raises(OptionError, match="--state must name"):
        run_job(spark, "dlq", "--store", tmp_path, "--redrive")
    with pytest.raises(OptionError, match="--rate goes with --redrive"):
        run_job(spark, "dlq", "--store", tmp_path, "--rate", "5")
    assert run_job(spark, "dlq", "--store", tmp_path, "--group", "nobody").facts["messages"] == 0
