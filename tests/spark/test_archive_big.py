"""A larger store archived, checked, restored and opened by both brokers. ROCKETD_ARCHIVE_GB is its size, else 0.03."""

import os
import shutil

import pytest

from rocketd.spark.archive.reader import archive_files
from rocketd.spark.records.parse import walk_log
from tests.spark.archives import stored_queues
from tests.spark.clusters import APACHE, ROCKETD
from tests.spark.running import run_job
from tests.support import apache
from tests.support.broker_settings import QUICK
from tests.support.jars import PeerUnavailableError
from tests.support.lacking import end_test_lacking
from tests.support.ports import free_port
from tests.support.store_brokers import StoreBrokers
from tests.support.store_wire import max_offset, view_record
from tests.support.stores import messages, write_store

GIGABYTES = float(os.environ.get("ROCKETD_ARCHIVE_GB", "0.03"))
_RECORD = 700  # bytes, about
_LOG_FILE = 1 << 26
_QUEUE_FILE = 6_000_000
FILES = {
    "mappedFileSizeCommitLog": str(_LOG_FILE),
    "mappedFileSizeConsumeQueue": str(_QUEUE_FILE),
    "maxHashSlotNum": "100000",
    "maxIndexNum": "4000000",
}


@pytest.fixture
def namesrv(tmp_path):
    """A name server of Apache's, which both brokers register with."""
    try:
        apache.fetch_jars()
    except PeerUnavailableError as error:
        end_test_lacking(str(error))
    port = free_port()
    server = apache.start_namesrv(tmp_path / "namesrv", port)
    yield f"127.0.0.1:{port}"
    server.kill()


@pytest.mark.timeout(3600)
def test_an_archive_is_checked_restored_and_opened_by_both_brokers(spark, namesrv, tmp_path):
    store, archive = tmp_path / "store", tmp_path / "archive"
    brokers = StoreBrokers(tmp_path / "broker", namesrv, {**QUICK, **FILES})
    count = int(GIGABYTES * 1e9 / _RECORD)
    sizes = {"log_file_size": _LOG_FILE, "queue_file_size": _QUEUE_FILE}
    index = {"index": True, "max_hash_slot_num": 100_000, "max_index_num": 4_000_000}
    write_store(store, messages(count, queues=8, body_size=512), group=1000, **sizes, **index)
    report = run_job(spark, "archive", "--store", store, "--to", archive, "--check-all")
    assert (report.status, report.facts["messages"], report.facts["gaps"]) == (0, count, [])
    assert report.facts["bytes"] >= 0.9 * GIGABYTES * 1e9
    assert len(archive_files(str(archive))) == report.facts["files"]

    shape = ("--index-slots", 100_000, "--index-entries", 4_000_000)
    restored = run_job(spark, "restore", "--archive", archive, "--to", brokers.store, *shape)
    assert (restored.status, restored.facts["messages"], restored.facts["bytes"]) == (0, count, report.facts["bytes"])
    for path in sorted((store / "commitlog").iterdir()):
        # Bytes of every record, and of all between them.
        assert (brokers.store / "commitlog" / path.name).read_bytes() == path.read_bytes()
    digests = {(row["topic"], row["queue_id"]): (row["messages"], row["sha256"]) for row in restored.facts["queues"]}
    if GIGABYTES <= 0.1:
        assert digests == stored_queues(store)
    assert run_job(spark, "verify", "--store", brokers.store, *shape).status == 0

    last = sorted((store / "commitlog").iterdir())[-1]
    data = last.read_bytes()
    start = int(walk_log(data).starts[-1])
    offset = int(last.name) + start
    record = data[start : start + int.from_bytes(data[start : start + 4], "big")]
    shutil.rmtree(store)
    for kind in (APACHE, ROCKETD):
        brokers.start(kind)
        try:
            ends = [max_offset(brokers.address, "orders", queue_id) for queue_id in range(8)]
            assert sum(ends) == count
            assert view_record(brokers.address, offset) == record
            brokers.stop()
        finally:
            brokers.close()
