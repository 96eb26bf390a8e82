"""A streaming query is killed at random while a producer runs: its archive holds every stored message exactly once.

``ROCKETD_SPARK_KILLS`` is the number of kills; 2 by default. ``ROCKETD_SPARK_SEED`` repeats the moments of a run.
"""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from rocketd.spark.archive.reader import dataset
from rocketd.spark.wire import ClusterClient, RawMessage, Sender
from tests.spark.clusters import ROCKETD, await_condition, start_cluster
from tests.spark.kills import KILLS

HERE = Path(__file__).resolve().parent
QUEUES = 4
LIMIT = 300.0


class Producer:
    """Sends numbered messages until it is stopped; `positions` are those that the broker has acknowledged."""

    def __init__(self, cluster, topic):
        self._cluster = cluster
        self._topic = topic
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.positions = Counter()
        self.bodies = Counter()
        self.error = None

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self.finish()

    def finish(self):
        """Stop, and raise the first error."""
        self._stop.set()
        self._thread.join()
        if self.error is not None:
            raise self.error

    def _run(self):
        number = 0
        try:
            # A separate cluster: connections belong to one thread.
            sender = Sender(ClusterClient(self._cluster.options), window=1)
            while not self._stop.wait(0.05):
                queue = self._cluster.queue(self._topic, number % QUEUES)
                some = [RawMessage(self._topic, b"%d" % each) for each in range(number * 10, number * 10 + 10)]
                for receipt in sender.deliver([(queue, some)], repeat_doubtful=True):
                    for position in receipt.positions:
                        self.positions[queue.queue_id, position.queue_offset] += 1
                self.bodies.update(message.body for message in some)
                number += 1
        except Exception as error:
            self.error = error


class Driver:
    """A run of the query in separate processes, which are one group. Its output goes to a file."""

    def __init__(self, cluster, topic, directory, stop):
        self._log = directory / "driver.log"
        self._at = self._log.stat().st_size if self._log.exists() else 0
        command = [sys.executable, HERE / "stream_driver.py", cluster.namesrv, topic, directory, stop]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE.parents[1]), *sys.path])}
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                list(map(str, command)), stdout=log, stderr=log, start_new_session=True, env=environment
            )

    def output(self):
        with self._log.open() as log:
            log.seek(self._at)
            return log.read()

    def await_running(self):
        def runs():
            assert self.process.poll() is None, self.output()
            return "running" in self.output()

        await_condition("the query runs", runs, LIMIT)

    def await_batches(self, count):
        """Return when so many batches have been committed."""

        def committed():
            assert self.process.poll() is None, self.output()
            return commits(self._log.parent) >= count

        await_condition("batches are committed", committed, LIMIT)

    def kill(self):
        """Kill driver, JVM and workers at once."""
        if self.process.poll() is None:
            self.members(signal.SIGKILL)
        self.process.wait(LIMIT)

    def members(self, number, named=b""):
        """Send a signal to the processes of the group, or to those with this word among their arguments."""
        sent = []
        for path in Path("/proc").glob("[0-9]*"):
            try:
                words = (path / "cmdline").read_bytes().split(b"\0")
                session = int((path / "stat").read_text().rpartition(")")[2].split()[3])
                if session == self.process.pid and (not named or named in words):
                    os.kill(int(path.name), number)
                    sent.append(int(path.name))
            except OSError:
                continue
        return sent


def commits(directory):
    """How many batches have been committed; Spark keeps the files of the last hundred only."""
    path = directory / "checkpoint" / "commits"
    numbers = [int(one.name) for one in path.iterdir() if one.name.isdigit()] if path.is_dir() else []
    return max(numbers, default=-1) + 1


def archived(directory):
    """Queue id, offset and body of all rows."""
    rows = dataset(str(directory / "archive")).to_table(["queue_id", "queue_offset", "body"]).to_pylist()
    return Counter((row["queue_id"], row["queue_offset"]) for row in rows), Counter(row["body"] for row in rows)


@pytest.mark.timeout(1500)
def test_every_message_once_through_kills_of_driver_worker_and_broker(tmp_path):
    seed = int(os.environ.get("ROCKETD_SPARK_SEED", time.time_ns() % 1_000_000))
    chance = random.Random(seed)
    print(f"ROCKETD_SPARK_SEED={seed}")
    began = time.monotonic()

    def say(what):
        print(f"{time.monotonic() - began:6.1f} s: {what}, {commits(tmp_path)} batches", flush=True)

    stop = tmp_path / "stop"
    pause = threading.Event()
    killed = Counter()
    with start_cluster(ROCKETD, tmp_path / "cluster") as cluster:
        topic = cluster.create_topic(QUEUES)
        with Producer(cluster, topic) as producer:
            for _ in range(KILLS):
                driver = Driver(cluster, topic, tmp_path, stop)
                try:
                    driver.await_running()
                    driver.await_batches(commits(tmp_path) + chance.randint(0, 3))
                    pause.wait(chance.random())
                finally:
                    driver.kill()
                killed["driver"] += 1
                say("driver killed")
            driver = Driver(cluster, topic, tmp_path, stop)
            try:
                driver.await_running()
                for _ in range(KILLS):
                    # Spark runs the tasks of workers that died again.
                    await_condition("workers", lambda: driver.members(signal.SIGKILL, b"pyspark.worker"), LIMIT)
                    killed["worker"] += 1
                    say("workers killed")
                    driver.await_batches(commits(tmp_path) + 2)
                    cluster.process.kill()
                    cluster.start_broker()
                    killed["broker"] += 1
                    say("broker killed")
                    driver.await_batches(commits(tmp_path) + 2)
                producer.finish()
                stop.touch()
                assert driver.process.wait(LIMIT) == 0, driver.output()
                say("done")
            finally:
                driver.kill()
        assert "done" in driver.output()
        stored = sum(cluster.catalog.bounds(queue)[1] for queue in cluster.catalog.queues(topic))
    assert killed == dict.fromkeys(("driver", "worker", "broker"), KILLS)
    positions, bodies = archived(tmp_path)
    assert set(positions.values()) == {1}
    assert set(producer.positions) <= set(positions)
    assert set(producer.bodies) <= set(bodies)
    assert sum(positions.values()) == stored
