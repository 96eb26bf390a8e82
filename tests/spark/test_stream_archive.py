"""Streams into an archive: every batch is one commit, however often it is run."""

import json
import os
import shutil
import sys
from collections import Counter
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from rocketd.spark.archive.archive import Archive
from rocketd.spark.archive.reader import archive_files, dataset, uncommitted
from tests.spark.archive_stream_driver import MESSAGES, RANGES, start
from tests.spark.archives import JobProcess, archived_queues, moments, rows_of, stored_queues
from tests.spark.kills import KILLS
from tests.spark.running import run_job
from tests.support.stores import messages, write_store


@pytest.mark.parametrize("schema", [MESSAGES, RANGES], ids=["messages", "ranges"])
def test_archive_made_by_a_stream_of_messages_can_be_restored(spark, tmp_path, schema):
    store, root = tmp_path / "store", tmp_path / "archive"
    write_store(store, 1000, queues=3, variants=True)
    start(spark, str(store), str(root), str(tmp_path / "checkpoint"), schema).awaitTermination()
    assert archived_queues(root) == stored_queues(store)
    assert len(Archive.open(str(root)).commits) == 3
    write_store(store, messages(200, queues=3, first=1000))
    start(spark, str(store), str(root), str(tmp_path / "checkpoint"), schema).awaitTermination()
    assert archived_queues(root) == stored_queues(store)
    assert uncommitted(str(root)) == []
    # The job continues the archive of the stream.
    write_store(store, messages(100, queues=3, first=1200))
    words = ("archive", "--store", store, "--to", root, "--check-all")
    report = run_job(spark, *words)
    assert (report.status, report.facts["messages"]) == (0, 100)
    restored = tmp_path / "restored"
    run_job(spark, "restore", "--archive", root, "--to", restored, "--commit-log-file-size", 1 << 20, "--no-index")
    assert stored_queues(restored) == stored_queues(store)


def test_restarted_stream_does_not_archive_twice(spark, tmp_path):
    store, root = tmp_path / "store", tmp_path / "archive"
    write_store(store, 300)
    start(spark, str(store), str(root), str(tmp_path / "one")).awaitTermination()
    before = archived_queues(root)
    with pytest.raises(Exception, match="is to be archived, but"):
        start(spark, str(store), str(root), str(tmp_path / "two")).awaitTermination()
    assert archived_queues(root) == before


def test_rows_of_any_shape_are_archived(spark, tmp_path):
    store, root = tmp_path / "store", tmp_path / "archive"
    write_store(store, 900)
    columns = "tags string, queue_offset bigint, store_time timestamp"
    start(spark, str(store), str(root), str(tmp_path / "checkpoint"), columns).awaitTermination()
    found = dataset(str(root)).to_table().to_pylist()
    assert len(found) == 900
    assert Counter(row["tags"] for row in found) == {"TagA": 228, "TagB": 224, "TagC": 224, None: 224}
    frame = spark.read.parquet(*archive_files(str(root)))
    frame.where("tags = 'TagA'").write.format("rocketd").mode("append").option("archive", str(root)).save()
    assert dataset(str(root)).count_rows() == 900 + 228
    with pytest.raises(Exception, match="only added to"):
        frame.write.format("rocketd").mode("overwrite").option("archive", str(root)).save()
    with pytest.raises(Exception, match="option nonsense"):
        frame.write.format("rocketd").mode("append").options(archive=str(root), nonsense="1").save()
    with pytest.raises(Exception, match="has the columns"):
        frame.select("tags").write.format("rocketd").mode("append").option("archive", str(root)).save()


def test_rows_in_any_order_are_archived_and_duplicates_refused(spark, tmp_path):
    store, root = tmp_path / "store", tmp_path / "archive"
    write_store(store, 900, queues=2)
    frame = spark.read.format("rocketd").schema(MESSAGES).options(store=str(store), subscribe="orders").load()
    shuffled = frame.repartition(3, "tags", "queue_offset")

    def archive(rows):
        rows.write.format("rocketd").mode("append").option("archive", str(root)).save()

    with pytest.raises(Exception, match=r"have 2 messages of orders/broker-a/1 more than once \(offsets 7, 8\)"):
        archive(frame.union(frame.where("queue_id = 1 and queue_offset in (7, 8)")))  # two tasks
    with pytest.raises(Exception, match="more than once"):
        archive(frame.union(frame).coalesce(1).sortWithinPartitions("queue_offset"))  # one batch of rows
    assert archive_files(str(root)) == uncommitted(str(root)) == []
    archive(shuffled)
    assert archived_queues(root) == stored_queues(store)
    restored = tmp_path / "restored"
    run_job(spark, "restore", "--archive", root, "--to", restored, "--commit-log-file-size", 1 << 20, "--no-index")
    assert stored_queues(restored) == stored_queues(store)


def test_deleted_archive_is_begun_again_by_next_stream(spark, tmp_path):
    store, root = tmp_path / "store", tmp_path / "archive"
    write_store(store, 500)
    for checkpoint in ("one", "two"):
        start(spark, str(store), str(root), str(tmp_path / checkpoint)).awaitTermination()
        assert archived_queues(root) == stored_queues(store)
        shutil.rmtree(root)


def test_ranges_are_read_by_the_archiving_tasks(spark, tmp_path):
    store, root = tmp_path / "store", tmp_path / "archive"
    write_store(store, 300)
    given = {"store": str(store), "subscribe": "orders"}

    def ranges(**options):
        return spark.read.format("rocketd").schema(RANGES).options(**{**given, **options}).load()

    ranges(subExpression="TagA").write.format("rocketd").mode("append").options(
        archive=str(root), columns="tags,body"
    ).save()
    table = dataset(str(root)).to_table()
    assert {"tags", "body", "raw", "queue_offset"} <= set(table.column_names)
    assert "keys" not in table.column_names
    assert set(table.column("tags").to_pylist()) == {"TagA"}
    assert table.num_rows == spark.read.format("rocketd").options(**given, subExpression="TagA").load().count()
    # Without an option, the existing archive decides the columns.
    write_store(store, messages(10, first=300))
    archive = Archive.open(str(root))
    starts = {str(queue.queue_id): archive.ranges(queue)[-1].end for queue in archive.queues}
    later = ranges(startingOffsets=json.dumps({"orders": starts}))
    later.write.format("rocketd").mode("append").option("archive", str(root)).save()
    assert dataset(str(root)).count_rows() >= table.num_rows + 10
    assert set(dataset(str(root)).schema.names) == set(table.column_names)


def test_wrong_use_of_ranges_raises(spark, tmp_path):
    store, root = tmp_path / "store", tmp_path / "archive"
    write_store(store, 30)

    def archive(frame, **options):
        frame.write.format("rocketd").mode("append").options(archive=str(root), **options).save()

    secret = {"namesrv": "127.0.0.1:9", "subscribe": "orders", "accessKey": "a", "secretKey": "hidden secret"}
    with pytest.raises(Exception, match=r"secretKey would stand in the rows .* give option credentialsFile"):
        archive(spark.read.format("rocketd").schema(RANGES).options(**secret).load())
    with pytest.raises(Exception, match="has a row that no read made: 'orders'"):
        archive(spark.createDataFrame([("orders",)], RANGES))
    frame = spark.read.format("rocketd").options(store=str(store), subscribe="orders").load()
    with pytest.raises(Exception, match="option columns is for a read of ranges"):
        archive(frame, columns="tags")
    with pytest.raises(Exception, match="messages have no column 'range'"):
        spark.read.format("rocketd").options(store=str(store), subscribe="orders").schema(
            "range string, body binary"
        ).load().collect()


class StreamProcess(JobProcess):
    """The driver program as a process that can be killed."""

    command = (sys.executable, str(Path(__file__).with_name("archive_stream_driver.py")))


@pytest.mark.timeout(900)
def test_archive_stream_killed_repeatedly_archives_each_offset_once(tmp_path):
    store, root, checkpoint = tmp_path / "store", tmp_path / "archive", tmp_path / "checkpoint"
    write_store(store, 4000, queues=3)
    killed = 0
    for number in range(KILLS):
        what, condition = moments(root, number)
        schema = (RANGES, MESSAGES)[number % 2]
        killed += StreamProcess(tmp_path, store, root, checkpoint, schema).kill_when(what, condition)
        if (root / "rocketd-archive.json").exists():
            found = rows_of(root)
            assert len(set(found)) == len(found)
            assert ds.dataset(archive_files(str(root))).count_rows() == len(found) if found else True
    assert killed
    StreamProcess(tmp_path, store, root, checkpoint, RANGES).wait()
    assert archived_queues(root) == stored_queues(store)
    assert uncommitted(str(root)) == []
    assert not [name for _, _, names in os.walk(root / "staging") for name in names]
