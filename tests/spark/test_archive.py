"""`rocketd spark archive`: of stores and of live brokers, again and again, killed, with losses."""

import json
import os
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from rocketd.spark.archive.archive import Archive
from rocketd.spark.archive.format.journal import Journal
from rocketd.spark.archive.reader import archive_files, config_of, uncommitted
from rocketd.spark.errors import ArchiveError, DataLossError, OptionError
from rocketd.spark.ranges import Queue, QueueRange
from rocketd.spark.wire import RawMessage
from tests.spark.archives import JobProcess, archived_queues, moments, rows_of, stored_queues
from tests.spark.kills import KILLS
from tests.spark.running import run_job
from tests.support.broker_settings import QUICK
from tests.support.stores import START_MS, messages, write_store

DAY_MS = 86_400_000


def test_store_is_archived_and_later_messages_are_added(spark, tmp_path):
    store, root = tmp_path / "store", tmp_path / "archive"
    write_store(store, 3000, variants=True)
    write_store(store, 300, topic="%RETRY%group|a", queues=1, start_ms=START_MS + 60_000)
    report = run_job(spark, "archive", "--store", store, "--to", root, "--check").facts
    assert (report["messages"], report["gaps"], report["archived"]["messages"]) == (3300, [], 3300)
    assert report["bytes"] > report["file_bytes"] > 0
    assert archived_queues(root) == stored_queues(store)
    # Any reader, given the list of files.
    assert ds.dataset(archive_files(str(root))).count_rows() == 3300
    counts = spark.read.parquet(*archive_files(str(root))).groupBy("topic").count()
    assert {tuple(row) for row in counts.collect()} == {("orders", 3000), ("%RETRY%group|a", 300)}
    before = archive_files(str(root))
    assert run_job(spark, "archive", "--store", store, "--to", root).facts["messages"] == 0
    assert archive_files(str(root)) == before
    write_store(store, messages(500, first=3000), start_ms=START_MS + DAY_MS)
    report = run_job(spark, "archive", "--store", store, "--to", root, "--max-file-bytes", "10k", "--check-all")
    assert (report.facts["messages"], report.status) == (500, 0)
    assert archived_queues(root) == stored_queues(store)
    queue = Queue("orders", "broker-a", 1)
    assert Archive.open(str(root)).ranges(queue) == [QueueRange(queue, 0, 875)]
    # Each day has separate directories.
    assert {path.parent.name for path in Path(root).glob("data/topic=orders/*/*")} == {
        "date=2023-11-14",
        "date=2023-11-15",
    }


def test_damage_is_found_by_a_check(spark, tmp_path):
    store, root = tmp_path / "store", tmp_path / "archive"
    write_store(store, 200)
    run_job(spark, "archive", "--store", store, "--to", root, "--columns", "body,tags")
    path = Path(archive_files(str(root))[1])
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 0x40
    path.write_bytes(data)
    report = run_job(spark, "archive", "--store", store, "--to", root, "--check-all")
    assert report.status == 1
    assert len(report.problems) == 1
    assert str(path) in report.problems[0]


def test_lost_messages_are_an_error_or_a_named_gap(spark, tmp_path):
    store, root = tmp_path / "store", tmp_path / "archive"
    write_store(store, 400, queues=2, log_file_size=1 << 16)
    run_job(spark, "archive", "--store", store, "--to", root)
    write_store(store, messages(400, queues=2, first=400), log_file_size=1 << 16)
    kept = sorted((store / "commitlog").iterdir())[-1]
    for path in sorted((store / "commitlog").iterdir()):
        if path != kept:
            path.unlink()
    with pytest.raises(DataLossError, match=r"orders/broker-a/0\[200, \d+\)"):
        run_job(spark, "archive", "--store", store, "--to", root)
    report = run_job(spark, "archive", "--store", store, "--to", root, "--allow-loss").facts
    gaps = Archive.open(str(root)).gaps
    assert [(gap["queue_id"], gap["start"], gap["end"]) for gap in report["gaps"]] == [
        (gap.queue.queue_id, gap.start, gap.end) for gap in gaps
    ]
    found = sorted(rows_of(root, ("queue_id", "queue_offset")))
    lost = {(gap.queue.queue_id, offset) for gap in gaps for offset in range(gap.start, gap.end)}
    assert sorted({*found, *lost}) == [(queue, offset) for queue in range(2) for offset in range(400)]
    assert len(found) + len(lost) == 800
    assert Archive.open(str(root)).ranges(gaps[0].queue) == [QueueRange(gaps[0].queue, 0, 400)]


def test_archive_refuses_another_store_and_filters(spark, tmp_path):
    store, other, root = tmp_path / "store", tmp_path / "other", tmp_path / "archive"
    write_store(store, 100)
    write_store(other, 40)
    run_job(spark, "archive", "--store", store, "--to", root)
    with pytest.raises(ArchiveError, match="is another one"):
        run_job(spark, "archive", "--store", other, "--to", root)
    with pytest.raises(OptionError, match="subExpression"):
        run_job(spark, "archive", "--store", store, "--to", root, "--option", "subExpression=TagA")
    with pytest.raises(ArchiveError, match="neither an archive nor empty"):
        run_job(spark, "archive", "--store", store, "--to", store)


@pytest.mark.timeout(900)
def test_archive_job_killed_repeatedly_archives_each_offset_once(tmp_path):
    store, root = tmp_path / "store", tmp_path / "archive"
    write_store(store, 4000, queues=3)
    words: tuple = ("archive", "--store", store, "--to", root, "--master", "local[2]", "--quiet")
    words += ("--option", "maxBytesPerPartition=64k")
    killed = 0
    for number in range(KILLS):
        what, condition = moments(root, number)
        killed += JobProcess(tmp_path, *words).kill_when(what, condition)
        if (root / "rocketd-archive.json").exists():
            # However it ended, no reader sees an offset twice.
            found = rows_of(root)
            assert len(set(found)) == len(found)
    assert killed
    JobProcess(tmp_path, *words, "--check-all").wait()
    assert archived_queues(root) == stored_queues(store)
    assert uncommitted(str(root)) == []
    assert os.listdir(root / "staging") == []


def test_a_live_broker_is_archived(spark, live_cluster, tmp_path):
    root = tmp_path / "archive"
    topic = live_cluster.create_topic(queues=2)
    sent = {queue: [RawMessage(topic, b"%d %d" % (queue, n)) for n in range(60)] for queue in range(2)}
    for queue, some in sent.items():
        live_cluster.send(topic, some[:40], queue)
    words = ("archive", "--namesrv", live_cluster.namesrv, "--topic", topic, "--to", root)
    assert run_job(spark, *words, "--check").facts["messages"] == 80
    for queue, some in sent.items():
        live_cluster.send(topic, some[40:], queue)
    assert run_job(spark, *words).facts["messages"] == 40
    stored = {
        queue: facts for queue, facts in stored_queues(live_cluster.directory / "store").items() if queue[0] == topic
    }
    assert archived_queues(root) == stored
    # A live broker tells the facts of its files that a restore needs.
    sizes = config_of(Archive.open(str(root)))["broker-a"]
    assert [sizes[name] for name in ("commitLogFileSize", "queueFileSize", "indexSlots", "indexEntries")] == [
        int(QUICK[name])
        for name in ("mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue", "maxHashSlotNum", "maxIndexNum")
    ]
    restored = tmp_path / "restored"
    assert run_job(spark, "restore", "--archive", root, "--to", restored).facts["messages"] == 120
    assert {queue: facts for queue, facts in stored_queues(restored).items() if queue[0] == topic} == stored


@pytest.mark.timeout(600)
def test_a_job_follows_a_store(tmp_path):
    store, root, told = tmp_path / "store", tmp_path / "archive", tmp_path / "report.json"
    write_store(store, 300)
    words = ("archive", "--store", store, "--to", root, "--follow", "--interval", "0.1", "--report", told)
    process = JobProcess(tmp_path, *words, "--master", "local[2]", "--quiet")
    try:
        process.await_that("the first are archived", lambda: len(committed(root)) == 300)
        write_store(store, messages(200, first=300))
        process.await_that("more are archived", lambda: len(committed(root)) == 500)
    finally:
        process.interrupt()
    assert archived_queues(root) == stored_queues(store)
    assert json.loads(told.read_text())["messages"] == 500


@pytest.mark.timeout(600)
def test_archive_job_follows_restarting_broker(rocketd_cluster, tmp_path):
    topic, root, told = rocketd_cluster.create_topic(1), tmp_path / "archive", tmp_path / "report.json"
    rocketd_cluster.send(topic, [b"0"])
    words = ("archive", "--namesrv", rocketd_cluster.namesrv, "--topic", topic, "--to", root, "--follow")
    words += ("--interval", "0.1", "--report", told, "--option", "retryTimeout=1s", "--option", "timeout=1s")
    words += ("--option", "startingOffsets=" + json.dumps({topic: {"broker-a": {"0": 0}}}))
    process = JobProcess(tmp_path, *words, "--master", "local[1]")
    try:
        process.await_that("the first is archived", lambda: len(committed(root)) == 1)
        # The name server still has the broker's address, but the broker does not answer.
        with rocketd_cluster.process.paused():
            process.await_that("it tells that it waits", lambda: "waiting: " in process.output())
        rocketd_cluster.send(topic, [b"1"])
        process.await_that("the second is archived", lambda: len(committed(root)) == 2)
        # Then the name server knows no topic any more, after a kill as soon as it sees that the connection ends.
        for count, end in ((3, rocketd_cluster.stop_broker), (4, lambda: rocketd_cluster.process.kill())):
            end()
            rocketd_cluster.start_broker()
            rocketd_cluster.send(topic, [b"%d" % count])
            process.await_that("later messages are archived", lambda count=count: len(committed(root)) == count)
    finally:
        process.interrupt()
    assert "going on" in process.output()
    assert json.loads(told.read_text())["messages"] == 4


def test_archive_interrupted_right_after_a_commit_reports_the_commit(spark, tmp_path, monkeypatch):
    store, root = tmp_path / "store", tmp_path / "archive"
    write_store(store, 300)
    append = Journal.append

    def append_and_interrupt(journal, entry):
        append(journal, entry)
        raise KeyboardInterrupt

    monkeypatch.setattr(Journal, "append", append_and_interrupt)
    report = run_job(spark, "archive", "--store", store, "--to", root, "--follow").facts
    rows = len(committed(root))
    assert rows > 0
    assert (report["messages"], report["archived"]["messages"]) == (rows, rows)
    assert sum(one["end"] - one["start"] for one in report["ranges"]) == rows


def committed(root):
    return rows_of(root) if (root / "rocketd-archive.json").exists() else []
