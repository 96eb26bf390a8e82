"""``rocketd spark sql`` over a live broker: shown, sent to a topic, written to an archive, gone on with."""

import json

import pyarrow.parquet as pq
import pytest
from pyspark.errors.exceptions.captured import convert_exception

from rocketd.spark.archive.reader import archive_files
from rocketd.spark.errors import OptionError, SparkError
from rocketd.spark.jobs.sql import job as sql_job
from rocketd.spark.sessions.unwrap import unwrapped
from rocketd.spark.wire import RawMessage
from tests.spark.archives import JobProcess
from tests.spark.running import run_job


@pytest.fixture
def place(rocketd_cluster):
    """A cluster with a topic of orders in two queues, and an empty topic for payments."""
    orders, paid = rocketd_cluster.create_topic(queues=2), rocketd_cluster.create_topic(queues=1)
    for queue in (0, 1):
        rows = [RawMessage(orders, b'{"amount": %d}' % n, "odd" if n % 2 else "even") for n in range(10)]
        rocketd_cluster.send(orders, rows, queue)
    return rocketd_cluster, orders, paid


def test_sql_job_selects_inserts_and_continues(spark, place, tmp_path, capsys):
    cluster, orders, paid = place
    lake = tmp_path / "lake"
    file = tmp_path / "orders.sql"
    file.write_text(
        f"create or replace temporary view amounts as\n"
        f"  select tags, cast(get_json_object(cast(body as string), '$.amount') as int) as amount from `{orders}`;\n"
        f"select tags, sum(amount) as total from amounts group by tags; -- shown\n"
        f"insert into topic.`{paid}` select concat('paid ', amount) as body, tags from amounts where amount >= 8;\n"
        f"insert into archive.`{lake}` select tags, amount from amounts;\n"
    )
    words = (file, "--namesrv", cluster.namesrv, "--once", "--checkpoint", tmp_path / "checkpoint", "--json")
    report = run_job(spark, "sql", *words)
    shown = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert sorted(row["total"] for row in shown) == [40, 50]
    assert report.facts["topics"] == [orders]
    assert [row["rows_read"] for row in report.facts["statements"]] == [20, 20, 20]
    assert sent_bodies(spark, cluster, paid) == ["paid 8", "paid 8", "paid 9", "paid 9"]

    cluster.send(orders, [RawMessage(orders, b'{"amount": 100}', "odd")], 1)
    again = run_job(spark, "sql", *words)
    assert [row["rows_read"] for row in again.facts["statements"]] == [1, 1, 1]
    assert sent_bodies(spark, cluster, paid) == ["paid 100", "paid 8", "paid 8", "paid 9", "paid 9"]
    amounts = sorted(
        amount for path in archive_files(str(lake)) for amount in pq.read_table(path)["amount"].to_pylist()
    )
    assert amounts == sorted([*range(10), *range(10), 100])


def sent_bodies(spark, cluster, topic):
    read = spark.read.format("rocketd").option("namesrv", cluster.namesrv).option("subscribe", topic)
    return sorted(bytes(row.body).decode() for row in read.schema("body binary").load().collect())


def test_sql_errors_name_the_line(spark, place, tmp_path):
    cluster, orders, _ = place
    file = tmp_path / "wrong.sql"
    words = (file, "--namesrv", cluster.namesrv, "--once")
    file.write_text(f"select 1;\n\nselect no_such_column from `{orders}`")
    with pytest.raises(SparkError, match=r"the statement of line 3: .*no_such_column"):
        run_job(spark, "sql", *words)
    file.write_text("select * from no_such_topic")
    with pytest.raises(OptionError, match=r"name no topic that is there; there are .*topic-"):
        run_job(spark, "sql", *words)
    file.write_text(f"insert into topic.`Out` select body from `{orders}`")
    with pytest.raises(OptionError, match="--checkpoint must name a directory"):
        run_job(spark, "sql", *words)
    file.write_text("create temporary view v as select 1")
    with pytest.raises(OptionError, match="no SELECT and no INSERT"):
        run_job(spark, "sql", *words)


def test_missing_topic_is_created_with_the_first_row(spark, place, tmp_path):
    cluster, orders, _ = place
    new = f"{orders}-big"
    file = tmp_path / "new.sql"
    file.write_text(f"insert into topic.`{new}` select body from `{orders}` where queue_offset = 3")
    run_job(spark, "sql", file, "--namesrv", cluster.namesrv, "--once", "--checkpoint", tmp_path / "checkpoint")
    assert sent_bodies(spark, cluster, new) == ['{"amount": 3}', '{"amount": 3}']


def test_interrupted_sql_job_reports_all_committed_batches(spark, place, tmp_path, monkeypatch):
    cluster, orders, _ = place
    file = tmp_path / "live.sql"
    file.write_text(f"select tags, count(*) as n from `{orders}` group by tags")

    def commit_and_interrupt(running):
        for query in spark.streams.active:
            query.processAllAvailable()
        raise KeyboardInterrupt

    monkeypatch.setattr(sql_job._Running, "wait", commit_and_interrupt)
    words = (file, "--namesrv", cluster.namesrv, "--checkpoint", tmp_path / "checkpoint", "--interval", "0.1s")
    (statement,) = run_job(spark, "sql", *words).facts["statements"]
    assert (statement["rows_read"], statement["rows_shown"]) == (20, 2)


def test_failed_serialization_is_told_with_the_exception_of_java(spark):
    java = spark._jvm
    failed = java.org.apache.spark.SparkException(
        "Task not serializable", java.java.util.ConcurrentModificationException()
    )
    told = str(unwrapped(convert_exception(failed)))
    assert told.endswith("Task not serializable: java.util.ConcurrentModificationException")


def test_live_sql_job_ends_with_an_error_after_a_stream_failed(place, tmp_path):
    cluster, orders, _ = place
    file = tmp_path / "failing.sql"
    file.write_text(
        f"select tags, count(*) as n from `{orders}` group by tags;\n"
        f"select raise_error('no such amount') as amount from `{orders}`;\n"
    )
    words = ("sql", file, "--namesrv", cluster.namesrv, "--checkpoint", tmp_path / "checkpoint", "--master", "local[2]")
    process = JobProcess(tmp_path, *words)
    with pytest.raises(AssertionError, match=r"the statement of line 2: .*no such amount"):
        process.wait()
    assert process.status == 1
