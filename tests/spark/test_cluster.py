"""A standalone Spark cluster of a master and two workers, on loopback, from the pip package: our code comes as a zip."""

import json
import os
import re
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest
from pyspark.find_spark_home import _find_spark_home

from rocketd.spark.sessions.java import choose_java
from rocketd.spark.wire.message import RawMessage
from tests.support.process import ServerProcess
from tests.support.stores import read_store, write_store

DRIVER = Path(__file__).with_name("cluster_driver.py")
LIMIT = 240
PATIENCE = "-Dspark.worker.timeout=600 -Dspark.network.timeout=600s"
MASTER = re.compile(r"Starting Spark master at (spark://\S+)")


def start(name, directory, *arguments):
    """One of Spark's daemons. Its environment has nothing of this process's that would help it to find our code."""
    directory.mkdir()
    environment = {
        "JAVA_HOME": choose_java().home,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": f"-Dspark.master.rest.enabled=false {PATIENCE}",
        "PYTHONPATH": "",
    }
    command = [os.path.join(_find_spark_home(), "bin", "spark-class"), f"org.apache.spark.deploy.{name}", *arguments]
    return ServerProcess(name, command, directory / "log", directory, environment)


@pytest.fixture(scope="module")
def master(tmp_path_factory):
    """The master's URL; both workers, of one core each, have registered with it."""
    root = tmp_path_factory.mktemp("cluster")
    with ExitStack() as end:
        server = start("master.Master", root / "master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        end.callback(server.kill)
        server.wait_for("it names its port", lambda: MASTER.search(server.log.read_text()) is not None, LIMIT)
        url = MASTER.search(server.log.read_text())[1]
        for number in (1, 2):
            directory = root / f"worker{number}"
            arguments = (
                "--host",
                "127.0.0.1",
                "--cores",
                "1",
                "--memory",
                "1G",
                "--webui-port",
                "0",
                "-d",
                "work",
                url,
            )
            end.callback(start("worker.Worker", directory, *arguments).kill)
        server.wait_for("both have come", lambda: server.log.read_text().count("Registering worker") == 2, LIMIT)
        yield url


def run(command, tmp_path):
    """Return the standard output of a successful program, started in a directory without rocketd's sources."""
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_standalone_cluster_runs_tasks_and_reads_both_sources(master, rocketd_cluster, tmp_path):
    store = tmp_path / "store"
    write_store(store, 1000)
    topic = rocketd_cluster.create_topic(2)
    for queue_id, tag in ((0, "A"), (1, "B")):
        rocketd_cluster.send(topic, [RawMessage(topic, b"x", tag) for _ in range(40)], queue_id)
    seen = json.loads(run([sys.executable, DRIVER, master, store, rocketd_cluster.namesrv, topic], tmp_path))

    assert sorted(look["item"] for look in seen["looks"]) == list(range(6))
    assert len({look["directory"] for look in seen["looks"]}) == 2, "one executor did all"
    for look in seen["looks"]:
        work, application, executor = Path(look["directory"]).parts[-3:]
        assert (work, application[:4], executor.isdecimal()) == ("work", "app-", True)
        assert re.search(r"rocketd-[0-9a-f]{16}\.zip/rocketd/__init__\.py$", look["rocketd"])
        assert re.search(r"\.zip/pyspark_rocketd/__init__\.py$", look["source"])
        assert look["python"] == sys.executable
    assert seen["store"] == Counter(each.properties_map().get("TAGS", "") for each in read_store(store))
    assert seen["broker"] == {"A": 40, "B": 40}
    assert seen["hidden"].startswith("/proc/self/fd/250 is not there or not readable on ")
    assert re.fullmatch("item [0-2] is bad", seen["failure"])


def test_submit_ships_the_package(master, tmp_path):
    command = [
        sys.executable, "-m", "rocketd", "spark", "submit", "--master", master, "--driver-memory", "1g",
        "--conf", "spark.executor.memory=512m", "doctor", "--json",
    ]  # fmt: skip
    report = json.loads(run(command, tmp_path))
    assert report["problems"] == []
    assert report["master"] == master
    assert report["dataSource"] is True
    for worker in report["workers"]:
        assert re.search(r"rocketd-[0-9a-f]{16}\.zip$", worker["from"])
