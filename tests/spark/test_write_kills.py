"""Writes with driver, JVM and workers all killed during commits of batches, and started again."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path

from tests.spark.clusters import await_condition
from tests.spark.kills import KILLS
from tests.spark.write_helpers import bodies, count_of

BATCH = 200
BATCHES = 3
ROWS = BATCH * BATCHES
RATE = 60
DRIVER = str(Path(__file__).with_name("write_driver.py"))


def kill_session(leader):
    """Kill every process of a session: Spark's workers leave the group of their driver, but not its session."""
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with suppress(ProcessLookupError):
                if os.getsid(int(entry)) == leader:
                    os.kill(int(entry), signal.SIGKILL)


def run_and_kill(command, log, is_time):
    with open(log, "ab") as output:
        running = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
    try:
        await_condition("the batches are sent in part", lambda: is_time() or running.poll() is not None, limit=400)
        assert running.poll() is None, Path(log).read_text()
    finally:
        kill_session(running.pid)
        running.wait()


def test_writes_survive_kills_of_committing_driver(rocketd_cluster, tmp_path):
    names = ("effectively-once", "at-least-once", "transactional", "job")
    topics = {name: rocketd_cluster.create_topic(2) for name in names}
    (tmp_path / "topics.json").write_text(json.dumps({**topics, "rows": ROWS}))
    (tmp_path / "source").mkdir()
    for number in range(BATCHES):
        lines = "".join(f"body {n}\n" for n in range(number * BATCH, number * BATCH + BATCH))
        (tmp_path / "source" / f"{number}.txt").write_text(lines)
    command = [sys.executable, DRIVER, rocketd_cluster.namesrv, str(tmp_path)]
    kills = max(1, KILLS - 1)
    for _ in range(kills):
        before = {name: count_of(rocketd_cluster, topics[name]) for name in ("effectively-once", "job")}

        def is_time(before=before):
            return all(count_of(rocketd_cluster, topics[name]) > count + RATE for name, count in before.items())

        run_and_kill([*command, str(RATE)], tmp_path / "log", is_time)
    # On a busy machine one of them may be through before the other has begun.
    counts = [count_of(rocketd_cluster, topics[name]) for name in ("effectively-once", "job")]
    assert all(RATE < count <= ROWS for count in counts), counts
    assert min(counts) < ROWS, counts
    done = subprocess.run([*command, "0"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    wanted = {b"body %d" % n for n in range(ROWS)}
    for name, topic in topics.items():
        found = Counter(body for some in bodies(rocketd_cluster, topic, ROWS).values() for body in some)
        assert set(found) == wanted, name
        if name in ("effectively-once", "job"):
            assert set(found.values()) == {1}, name
    assert not list(tmp_path.glob("**/*.arrow"))
