"""The cores of a default broker's threads."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rocketd.common.process.cpu_affinity import cores_of_process
from tests.support.server_processes import SOURCES, START_LIMIT, ServerProcesses

CORES = cores_of_process()
ENVIRONMENT = {**os.environ, "PYTHONPATH": SOURCES}
pytestmark = pytest.mark.skipif(len(CORES) < 2, reason="needs two cores")


@pytest.fixture
def servers(tmp_path):
    servers = ServerProcesses(tmp_path)
    try:
        yield servers
    finally:
        servers.kill_all()


def cores_of_threads(process_id):
    """The cores of each thread of a process."""
    cores = []
    for task in Path(f"/proc/{process_id}/task").iterdir():
        with contextlib.suppress(ProcessLookupError):  # it has ended
            cores.append(os.sched_getaffinity(int(task.name)))
    return cores


def test_default_broker_binds_threads_to_one_core_except_those_for_files(servers):
    for server in (servers.start_namesrv(), servers.start_broker()):
        cores = cores_of_threads(server.pid)
        bound = {frozenset(of_thread) for of_thread in cores if len(of_thread) == 1}
        assert len(bound) == 1
    assert sum(of_thread == CORES for of_thread in cores) >= 2  # flush and allocation


def test_daemon_binds_its_main_thread(servers, tmp_path):
    """twistd forks twice: Python's number of the main thread is then that of another process."""
    pid_file = tmp_path / "namesrv.pid"
    port = servers.namesrv_address.partition(":")[2]
    twistd = str(Path(sys.executable).with_name("twistd"))
    command = (sys.executable, twistd, f"--pidfile={pid_file}", "--logfile=namesrv.log", "rocketd-namesrv")
    settings = (f"listenPort={port}", f"kvConfigPath={tmp_path}/kv.json", f"configStorePath={tmp_path}/n.properties")
    options = [text for setting in settings for text in ("-o", setting)]
    subprocess.run([*command, *options], cwd=tmp_path, timeout=START_LIMIT, check=True, env=ENVIRONMENT)
    daemon = int(pid_file.read_text())
    try:
        cores = cores_of_threads(daemon)
        assert len(cores) > 1
        assert {len(of_thread) for of_thread in cores} == {1}
    finally:
        os.kill(daemon, signal.SIGKILL)


def test_broker_without_affinity_uses_all_cores(servers):
    servers.start_namesrv()
    servers.broker_config["cpuAffinity"] = "off"
    broker = servers.start_broker()
    assert all(of_thread == CORES for of_thread in cores_of_threads(broker.pid))
