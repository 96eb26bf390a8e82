"""``rocketd spark compact``: the newest of each key, from a store and an archive, into a topic and an archive."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rocketd.spark.archive.reader import archive_files
from rocketd.spark.errors import OptionError
from rocketd.spark.jobs.compact import key_of
from tests.spark.running import run_job
from tests.support.stores import START_MS, message, write_store

DAY_MS = 24 * 3600 * 1000


@pytest.fixture
def store(tmp_path):
    """Keys a to d: b is changed, c is gone for two days, d was gone just now; one message has no key."""
    rows = [
        message(b"a1", keys="a"),
        message(b"b1", keys="b"),
        message(b"c1", keys="c"),
        message(b"none"),
        message(b"c2", keys="c", properties={"TOMBSTONE": "true"}),
    ]
    write_store(tmp_path / "store", rows, start_ms=START_MS)
    later = [
        message(b"b2", keys="b", properties={"TOMBSTONE": "false"}),
        message(b"d1", keys="d"),
        message(b"d2", keys="d", properties={"TOMBSTONE": "yes"}),
    ]
    write_store(tmp_path / "store", later, start_ms=START_MS + 2 * DAY_MS)
    return tmp_path / "store"


FACTS = {
    "messages": 8,
    "without_key": 1,
    "keys": 4,
    "tombstones": 2,
    "tombstones_expired": 1,
    "keys_in_several_queues": 0,
    "written": 3,
}


def rows_of(lake):
    tables = [pq.read_table(path, columns=["keys", "body"]) for path in archive_files(str(lake))]
    return sorted((row["keys"], row["body"]) for row in pa.concat_tables(tables).to_pylist())


def test_compact_from_store_and_archive_into_archive(spark, store, tmp_path):
    report = run_job(spark, "compact", "--store", store, "--topic", "orders", "--to-archive", tmp_path / "lake")
    assert {name: report.facts[name] for name in FACTS} == FACTS
    assert rows_of(tmp_path / "lake") == [("a", b"a1"), ("b", b"b2"), ("d", b"d2")]
    with pytest.raises(OptionError, match="has rows already"):
        run_job(spark, "compact", "--store", store, "--topic", "orders", "--to-archive", tmp_path / "lake")
    run_job(spark, "archive", "--store", store, "--to", tmp_path / "archive")
    again = run_job(spark, "compact", "--archive", tmp_path / "archive", "--to-archive", tmp_path / "lake2")
    assert {name: again.facts[name] for name in FACTS} == FACTS
    assert rows_of(tmp_path / "lake2") == rows_of(tmp_path / "lake")


def test_compact_into_topic_keeps_each_key_in_one_queue(spark, store, rocketd_cluster, tmp_path):
    topic = rocketd_cluster.create_topic(queues=4)
    words = ("--to-topic", topic, "--to-namesrv", rocketd_cluster.namesrv, "--state", tmp_path / "state")
    run_job(spark, "compact", "--store", store, "--topic", "orders", "--tombstones-kept", "365d", *words)
    read = spark.read.format("rocketd").option("namesrv", rocketd_cluster.namesrv).option("subscribe", topic)
    rows = read.schema("keys string, body binary").load().collect()
    assert sorted((row["keys"], bytes(row.body)) for row in rows) == [
        ("a", b"a1"),
        ("b", b"b2"),
        ("c", b"c2"),
        ("d", b"d2"),
    ]
    # Compacting again has the same result, and its messages go to the same queues.
    again = run_job(
        spark, "compact", "--namesrv", rocketd_cluster.namesrv, "--topic", topic, "--to-archive", tmp_path / "lake"
    )
    assert again.facts["keys_in_several_queues"] == 0
    assert again.facts["written"] == 4


def test_newest_is_by_offset_within_and_by_time_between_queues(spark, tmp_path):
    store = tmp_path / "store"
    write_store(store, [message(b"first", keys="k"), message(b"other", queue_id=1, keys="k")], start_ms=START_MS + 5000)
    write_store(store, [message(b"clock went back", keys="k")], start_ms=START_MS)
    report = run_job(spark, "compact", "--store", store, "--topic", "orders", "--to-archive", tmp_path / "lake")
    assert report.facts["keys_in_several_queues"] == 1
    assert rows_of(tmp_path / "lake") == [("k", b"other")]


def test_compact_with_contradicting_options_raises(spark, store, tmp_path):
    source = ("--store", store, "--topic", "orders")
    with pytest.raises(OptionError, match="--state must name a directory"):
        run_job(spark, "compact", *source, "--to-topic", "Out")
    with pytest.raises(OptionError, match="--rate goes with --to-topic"):
        run_job(spark, "compact", *source, "--to-archive", tmp_path / "lake", "--rate", "5")
    with pytest.raises(OptionError, match="--key body is not a field"):
        run_job(spark, "compact", *source, "--to-archive", tmp_path / "lake", "--key", "body")
    assert key_of("properties.user") == "properties['user']"
