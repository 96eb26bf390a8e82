"""Starts by twistd: as the README has them, and those that go wrong, which say so in one line and leave nothing behind."""

import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import rocketd
from tests.support import wire
from tests.support.places import ROOT
from tests.support.ports import free_broker_port, free_port
from tests.support.process import ServerProcess

LIMIT = 60  # seconds
SOURCES = str(Path(rocketd.__file__).parents[1])


@pytest.fixture
def twistd(tmp_path):
    """Run twistd in a new directory; returns its outcome, also if the daemon runs on."""

    def run(*arguments, **more):
        path = os.pathsep.join(filter(None, (SOURCES, os.environ.get("PYTHONPATH"))))
        command = [sys.executable, str(Path(sys.executable).with_name("twistd")), "--pidfile=twistd.pid"]
        return subprocess.run(
            [*command, *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": path, "HOME": str(tmp_path)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
            **more,
        )

    yield run
    pid_file = tmp_path / "twistd.pid"
    if pid_file.exists():
        os.kill(int(pid_file.read_text()), signal.SIGKILL)


def readme_commands():
    """The README's commands that start the two servers, each as its words."""
    lines = (ROOT / "README.md").read_text().splitlines()
    return [shlex.split(line) for line in lines if line.startswith("twistd ")]


def test_commands_of_readme_run_side_by_side_in_one_directory(tmp_path):
    shutil.copytree(ROOT / "etc", tmp_path / "etc")
    namesrv, broker = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_broker_port()}"
    # Other ports than those of the sample files: these may be in use.
    options = {
        "rocketd-namesrv": ("-o", f"listenPort={namesrv.partition(':')[2]}"),
        "rocketd-broker": (
            *("-o", f"listenPort={broker.partition(':')[2]}", "-o", f"namesrvAddr={namesrv}"),
            *("-o", "brokerIP1=127.0.0.1", "-o", "diskMaxUsedSpaceRatio=99"),
        ),
    }
    path = os.pathsep.join(filter(None, (SOURCES, os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": path, "HOME": str(tmp_path)}
    processes = []
    try:
        for program, *words in readme_commands():
            name = next(word for word in words if word in options)
            command = [sys.executable, str(Path(sys.executable).with_name(program)), *words, *options[name]]
            processes.append(ServerProcess(name, command, tmp_path / f"{name}.log", tmp_path, environment))
            if name == "rocketd-namesrv":
                processes[0].wait_for("it accepts", lambda: wire.accepts(namesrv), LIMIT)
        assert len(processes) == 2
        processes[1].wait_for("it is registered", lambda: wire.has_broker(namesrv, broker), LIMIT)
        assert [process.stop() for process in reversed(processes)] == [0, 0]
    finally:
        for process in processes:
            if process.exit_code is None:
                process.kill()


def assert_one_line(result, *words):
    assert result.returncode == 1, result
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    for word in words:
        assert word in lines[0], lines[0]
    assert "Traceback" not in result.stdout


@pytest.mark.parametrize("mode", [(), ("-n",)], ids=["daemon", "foreground"])
def test_a_port_in_use(mode, twistd, tmp_path):
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        result = twistd(*mode, "--logfile=twistd.log", "rocketd-namesrv", "-o", f"listenPort={port}")
    assert_one_line(result, f"rocketd-namesrv: cannot listen on port {port}: it is in use")
    assert not (tmp_path / "twistd.pid").exists()
    log = (tmp_path / "twistd.log").read_text()
    assert f"rocketd-namesrv ends: cannot listen on port {port}" in log
    assert "Traceback" not in log


def test_started_daemon_leaves_the_terminal(twistd, tmp_path):
    result = twistd("--logfile=twistd.log", "rocketd-namesrv", "-o", "listenPort=0")
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    assert (tmp_path / "twistd.pid").exists()


def test_other_errors_of_twistd_are_shown(twistd):
    result = twistd("--logfile=twistd.log", "--pidfile=missing/twistd.pid", "rocketd-namesrv", "-o", "listenPort=0")
    assert result.returncode == 1
    assert "FileNotFoundError" in result.stderr
