"""`rocketd spark verify` with a real Spark."""

import json

from running import run_job
from stores import log_files, write_store

from rocketd.spark.cli import main
from rocketd.store.examine import Examination
from rocketd.store.filesystem import RealFileSystem
from rocketd.store.layout import LOCK_CONTENT, lock_path
from rocketd.store.stopped_store import StoppedStore


def test_verify_finds_what_the_store_itself_finds(spark, tmp_path):
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


def test_verify_refuses_a_store_that_is_open(tmp_path, capsys):
    write_store(tmp_path, 10)
    fs = RealFileSystem()
    lock = fs.lock(lock_path(str(tmp_path)), LOCK_CONTENT)
    try:
        assert main(["verify", "--store", str(tmp_path)]) == 1
    finally:
        fs.unlock(lock)
    assert "stop the broker, or name a snapshot" in capsys.readouterr().err
    assert main(["verify", "--store", str(tmp_path / "nothing")]) == 1
    assert "is no store" in capsys.readouterr().err
