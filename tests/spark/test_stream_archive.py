"""Streams into an archive: every batch is one commit, however often it is run."""

import os
import sys
from collections import Counter
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from archive_stream_driver import start
from archives import KILLS, JobProcess, archived_queues, moments, rows_of, stored_queues
from running import run_job

from rocketd.spark.archive.archive import Archive
from rocketd.spark.archive.reader import archive_files, dataset, uncommitted
from tests.spark.stores import messages, write_store


def test_a_stream_of_whole_messages_makes_an_archive_that_can_be_restored(spark, tmp_path):
    store, root = tmp_path / "store", tmp_path / "archive"
    write_store(store, 1000, queues=3, variants=True)
    start(spark, str(store), str(root), str(tmp_path / "checkpoint")).awaitTermination()
    assert archived_queues(root) == stored_queues(store)
    assert len(Archive.open(str(root)).commits) == 3
    write_store(store, messages(200, queues=3, first=1000))
    start(spark, str(store), str(root), str(tmp_path / "checkpoint")).awaitTermination()
    assert archived_queues(root) == stored_queues(store)
    assert uncommitted(str(root)) == []
    # The job goes on with what the stream began.
    write_store(store, messages(100, queues=3, first=1200))
    words = ("archive", "--store", store, "--to", root, "--check-all")
    report = run_job(spark, *words)
    assert (report.status, report.facts["messages"]) == (0, 100)
    restored = tmp_path / "restored"
    run_job(spark, "restore", "--archive", root, "--to", restored, "--commit-log-file-size", 1 << 20, "--no-index")
    assert stored_queues(restored) == stored_queues(store)


def test_a_stream_that_begins_anew_does_not_archive_anything_twice(spark, tmp_path):
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
    columns = ("tags", "queue_offset", "store_time")
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


class StreamProcess(JobProcess):
    """The driver program as a process that can be killed."""

    command = (sys.executable, str(Path(__file__).with_name("archive_stream_driver.py")))


@pytest.mark.timeout(900)
def test_a_stream_that_is_killed_again_and_again_archives_each_offset_once(tmp_path):
    store, root, checkpoint = tmp_path / "store", tmp_path / "archive", tmp_path / "checkpoint"
    write_store(store, 4000, queues=3)
    killed = 0
    for number in range(KILLS):
        what, condition = moments(root, number)
        killed += StreamProcess(tmp_path, store, root, checkpoint).kill_when(what, condition)
        if (root / "rocketd-archive.json").exists():
            found = rows_of(root)
            assert len(set(found)) == len(found)
            assert ds.dataset(archive_files(str(root))).count_rows() == len(found) if found else True
    assert killed
    StreamProcess(tmp_path, store, root, checkpoint).wait()
    assert archived_queues(root) == stored_queues(store)
    assert uncommitted(str(root)) == []
    assert not [name for _, _, names in os.walk(root / "staging") for name in names]
