"""`rocketd spark restore`: the records of an archive back at their places, in a store that both brokers open."""

import os
import shutil
from pathlib import Path

import pytest

from rocketd.spark.errors import ArchiveError, OptionError
from tests.spark.archives import JobProcess, stored_queues
from tests.spark.clusters import APACHE, ROCKETD
from tests.spark.kills import KILLS
from tests.spark.running import run_job
from tests.support import apache, wire
from tests.support.broker_settings import QUICK
from tests.support.jars import PeerUnavailableError
from tests.support.lacking import end_test_lacking
from tests.support.ports import free_port
from tests.support.store_brokers import StoreBrokers
from tests.support.store_directory import read_log, read_queues
from tests.support.store_wire import max_offset, pull_records
from tests.support.stores import START_MS, write_store

SIZES = ("--index-slots", 10_000, "--index-entries", 40_000)
FILES = {
    "mappedFileSizeCommitLog": str(1 << 20),
    "mappedFileSizeConsumeQueue": str(20_000),
    "maxHashSlotNum": "10000",
    "maxIndexNum": "40000",
}


def write(root, scale=1):
    """Write a store of two topics with their records mixed in its log."""
    for turn in range(3):
        start = START_MS + turn * 100_000
        write_store(root, 700 * scale, queues=3, variants=True, index=True, start_ms=start)
        write_store(root, 200 * scale, topic="payments", queues=2, index=True, start_ms=start + 50_000)


@pytest.fixture(scope="module")
def archived(spark, tmp_path_factory):
    """A store, and the archive of it."""
    root = tmp_path_factory.mktemp("archived")
    write(root / "store")
    run_job(spark, "archive", "--store", root / "store", "--to", root / "archive")
    return root / "store", root / "archive"


def contents(root, *names):
    """The bytes of all files below some directories, by path."""
    return {
        str(path.relative_to(root)): path.read_bytes() for name in names for path in sorted((Path(root) / name).rglob("*"))
        if path.is_file()
    }  # fmt: skip


def test_restored_store_equals_the_archived_one(spark, archived, tmp_path):
    store, archive = archived
    report = run_job(spark, "restore", "--archive", archive, "--to", tmp_path / "new", *SIZES)
    assert report.status == 0
    assert contents(tmp_path / "new", "commitlog", "consumequeue") == contents(store, "commitlog", "consumequeue")
    made, wanted = contents(tmp_path / "new", "index"), contents(store, "index")
    assert list(made.values()) == list(wanted.values())
    digests = {(row["topic"], row["queue_id"]): (row["messages"], row["sha256"]) for row in report.facts["queues"]}
    assert digests == stored_queues(store)
    assert run_job(spark, "verify", "--store", tmp_path / "new").status == 0
    with pytest.raises(ArchiveError, match="is not empty"):
        run_job(spark, "restore", "--archive", archive, "--to", tmp_path / "new", *SIZES)


def test_some_topics_and_ranges_are_restored_to_their_places(spark, archived, tmp_path):
    store, archive = archived
    known = {record.physical_offset: record for record in read_log(store)}
    words = ("--archive", archive, "--topic", "payments", "--until", '{"payments": {"0": 250}}', *SIZES)
    report = run_job(spark, "restore", "--to", tmp_path / "new", *words)
    assert [(row["topic"], row["queue_id"], row["messages"]) for row in report.facts["queues"]] == [
        ("payments", 0, 250), ("payments", 1, 300)
    ]  # fmt: skip
    records = read_log(tmp_path / "new")
    real = [record for record in records if record.topic == "payments"]
    assert [record.raw for record in real] == [known[record.physical_offset].raw for record in real]
    assert {record.sys_flag & 0xC for record in records if record.topic != "payments"} == {0xC}
    assert {queue: len(entries) for queue, entries in read_queues(tmp_path / "new").items()} == {
        ("payments", 0): 250, ("payments", 1): 300
    }  # fmt: skip
    assert run_job(spark, "verify", "--store", tmp_path / "new").status == 0
    times = ("--from", str(START_MS + 100_000), "--until", str(START_MS + 200_000))
    report = run_job(spark, "restore", "--archive", archive, "--to", tmp_path / "later", *times, *SIZES)
    assert report.facts["messages"] == 900
    # The queues go on with the offsets that the messages had.
    firsts = {(row["topic"], row["queue_id"]): row["first"] for row in report.facts["queues"]}
    assert firsts == {
        ("orders", 0): 234, ("orders", 1): 233, ("orders", 2): 233, ("payments", 0): 100, ("payments", 1): 100
    }  # fmt: skip
    assert run_job(spark, "verify", "--store", tmp_path / "later").status == 0


def test_restore_with_wrong_options_raises(spark, archived, tmp_path):
    _, archive = archived
    with pytest.raises(OptionError, match="the archive has orders, payments"):
        run_job(spark, "restore", "--archive", archive, "--to", tmp_path / "new", "--topic", "order")
    with pytest.raises(ArchiveError, match="--commit-log-file-size"):
        run_job(spark, "restore", "--archive", archive, "--to", tmp_path / "new", "--commit-log-file-size", "30k")
    with pytest.raises(ArchiveError, match="no messages"):
        run_job(spark, "restore", "--archive", archive, "--to", tmp_path / "other", "--from", "2100-01-01T00:00:00Z")


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory):
    """A name server of Apache's, which both brokers register with."""
    try:
        apache.fetch_jars()
    except PeerUnavailableError as error:
        end_test_lacking(str(error))
    port = free_port()
    server = apache.start_namesrv(tmp_path_factory.mktemp("namesrv"), port)
    yield f"127.0.0.1:{port}"
    server.kill()


@pytest.mark.parametrize("kind", [APACHE, ROCKETD])
def test_broker_opens_restored_store_and_continues_it(spark, archived, namesrv, tmp_path, kind):
    store, archive = archived
    brokers = StoreBrokers(tmp_path / "broker", namesrv, {**QUICK, **FILES})
    shutil.rmtree(brokers.store, ignore_errors=True)
    run_job(spark, "restore", "--archive", archive, "--to", brokers.store, "--topic", "orders", *SIZES)
    wanted = {}
    for record in read_log(store):
        if record.topic == "orders":
            wanted.setdefault(record.queue_id, []).append(record.raw)
    brokers.start(kind)
    try:
        for queue_id, raw in wanted.items():
            assert max_offset(brokers.address, "orders", queue_id) == len(raw)
            assert pull_records(brokers.address, "orders", queue_id) == raw
        fields = {
            "a": "writers", "b": "orders", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1700000000000", "h": "0",
            "i": "", "j": "0", "k": "false", "m": "false",
        }  # fmt: skip
        answer = wire.call(brokers.address, 310, fields, b"one more")
        assert (answer.code, int(answer.ext_fields["queueOffset"])) == (wire.SUCCESS, len(wanted[0]))
        brokers.stop()
    finally:
        brokers.close()
    assert read_log(brokers.store)[-1].body == b"one more"


@pytest.mark.timeout(900)
def test_killed_restore_is_continued(spark, archived, tmp_path):
    store, archive = archived
    target = tmp_path / "new"
    words = ("restore", "--archive", archive, "--to", target, *SIZES, "--master", "local[2]", "--quiet")
    for number in range((KILLS + 1) // 2):
        condition = (
            lambda: any((target / ".rocketd-restore/store/commitlog").glob("0*")),
            lambda: any((target / ".rocketd-restore/made").rglob("*")),
        )[number % 2]
        JobProcess(tmp_path, *words).kill_when("a part is made", condition)
        # Nothing of it can be taken for a store before it is whole.
        assert not (target / "commitlog").exists() or (target / "consumequeue").exists()
        if (target / ".rocketd-restore").exists():
            with pytest.raises(ArchiveError, match=r"--delay-levels 1s 5s.* now 2s; --no-light-queues not given, now"):
                run_job(spark, *words[:-3], "--delay-levels", "2s", "--no-light-queues")
    if not (target / "commitlog").exists():
        JobProcess(tmp_path, *words).wait()
    assert contents(target, "commitlog", "consumequeue") == contents(store, "commitlog", "consumequeue")
    assert not [name for name in os.listdir(target) if name.startswith(".")]
