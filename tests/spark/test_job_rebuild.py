"""`rocketd spark rebuild` with a real Spark."""

import os
import shutil

import pytest
from running import run_job
from stores import messages, write_store

from rocketd.spark.errors import OptionError
from tests.unit.test_spark_rebuild import files


def test_rebuild_makes_what_the_broker_has_made(spark, tmp_path):
    root, target = str(tmp_path / "store"), str(tmp_path / "made")
    write_store(root, 3000, variants=True, index=True)
    report = run_job(spark, "rebuild", "--store", root, "--to", target)
    assert (report.status, report.facts["entries"]) == (0, 3000)
    assert files(target, "consumequeue") == files(root, "consumequeue")
    assert list(files(target, "index").values()) == list(files(root, "index").values())
    with pytest.raises(OptionError, match="is not empty"):
        run_job(spark, "rebuild", "--store", root, "--to", target)


def test_rebuild_in_place(spark, tmp_path):
    root = str(tmp_path)
    write_store(root, 3000, index=True)
    before = files(root, "consumequeue")
    shutil.rmtree(os.path.join(root, "consumequeue", "orders", "1"))
    report = run_job(spark, "rebuild", "--store", root, "--in-place")
    assert report.status == 0
    assert files(root, "consumequeue") == before
    # The store goes on where it was.
    written = write_store(root, messages(4, first=3000), index=True)
    assert [result.queue_offset for result in written.results] == [750] * 4
    assert run_job(spark, "verify", "--store", root).status == 0
