"""`rocketd spark verify` with a real Spark."""

import json

from rocketd.spark.cli import main
from rocketd.store.base.filesystem import RealFileSystem
from rocketd.store.base.layout import LOCK_CONTENT, lock_path
from rocketd.store.offline.examine import Examination
from rocketd.store.offline.stopped_store import StoppedStore
from tests.spark.running import run_job
from tests.support.stores import log_files, write_store


def test_verify_findings_equal_the_stores(spark, tmp_path):
    written = write_store(tmp_path, 3000, variants=True, index=True)
    report = run_job(spark, "verify", "--store", tmp_path)
    assert (report.status, report.facts["records"], report.facts["findings"]) == (0, 3000, [])
    assert report.facts["bytes"] == sum(path.stat().st_size for path in log_files(tmp_path))
    offset = written.results[2000].physical_offset
    path = [path for path in log_files(tmp_path) if int(path.name) <= offset][-1]
    with path.open("r+b") as file:
        file.seek(offset - int(path.name) + 95)
        file.write(b"\xff\xff\xff")
    report = run_job(spark, "verify", "--store", tmp_path)
    assert report.status == 1
    found = [finding.line(str(tmp_path)) for finding in Examination(StoppedStore(str(tmp_path))).findings()]
    assert list(report.problems) == found
    assert json.loads(report.as_json())["findings"][0]["position"] == offset - int(path.name)


def test_verify_refuses_open_store(tmp_path, capsys):
    write_store(tmp_path, 10)
    fs = RealFileSystem()
    lock = fs.lock(lock_path(str(tmp_path)), LOCK_CONTENT)
    try:
        assert main(["verify", "--store", str(tmp_path)]) == 1
    finally:
        fs.unlock(lock)
    assert "stop the broker, or name a snapshot" in capsys.readouterr().err
    assert main(["verify", "--store", str(tmp_path / "nothing")]) == 1
    assert "is not a store" in capsys.readouterr().err
