"""Writes with speculation: two attempts of a task at the same time, on a cluster of two hosts, which it needs."""

import json
import os
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pyspark
import pytest

from rocketd.spark.sessions.java import choose_java
from tests.spark.clusters import await_condition
from tests.spark.write_helpers import bodies, count_of
from tests.support.ports import free_port

ROWS = 400
DELIVERIES = ("at-least-once", "transactional", "effectively-once")


@pytest.fixture
def spark_cluster(tmp_path):
    """A master and two workers of one core each, on two addresses of this machine."""
    environment = {**os.environ, "JAVA_HOME": choose_java().home, "SPARK_LOCAL_DIRS": str(tmp_path / "local")}
    environment.pop("SPARK_LOCAL_IP", None)
    program = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    with ExitStack() as end:

        def start(kind, *words):
            log = end.enter_context(open(tmp_path / f"{kind}-{len(words[1])}-{words[1]}.log", "wb"))
            command = [program, f"org.apache.spark.deploy.{kind.lower()}.{kind}", *words]
            running = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
            end.callback(running.wait)
            end.callback(running.terminate)
            return Path(log.name)

        log = start("Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", str(free_port()))
        for host in ("127.0.0.1", "127.0.0.2"):
            folder = ("-d", str(tmp_path / f"work-{host}"))
            web = ("--webui-port", str(free_port()))
            start("Worker", "--host", host, "--cores", "1", "--memory", "800m", *folder, *web, master)
        await_condition("two workers are there", lambda: log.read_text().count("Registering worker") >= 2, 300)
        yield master


def test_speculative_attempts_do_not_lose_rows(rocketd_cluster, spark_cluster, tmp_path):
    topics = {delivery: rocketd_cluster.create_topic(2) for delivery in DELIVERIES}
    (tmp_path / "topics.json").write_text(json.dumps(topics))
    program = str(Path(__file__).with_name("speculation_driver.py"))
    done = subprocess.run(
        [sys.executable, program, rocketd_cluster.namesrv, str(tmp_path), spark_cluster], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    for delivery, topic in topics.items():
        attempts = {path.name for path in (tmp_path / delivery).iterdir()}
        assert attempts >= {"attempt-0", "attempt-1"}, delivery
        found = Counter(
            b" ".join(body.split()[:2]) for some in bodies(rocketd_cluster, topic, ROWS).values() for body in some
        )
        assert set(found) == {b"body %d" % n for n in range(ROWS)}
        # The lost attempt had rows at the brokers: at-least-once delivery shows them.
        assert (count_of(rocketd_cluster, topic) > ROWS) is (delivery == "at-least-once"), delivery
    assert not list(tmp_path.glob("staging/**/*.arrow"))
