"""Starts by twistd that go wrong, in the foreground and as a daemon: one line, status 1, nothing left behind."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import rocketd

LIMIT = 60  # seconds
SOURCES = str(Path(rocketd.__file__).parents[1])


@pytest.fixture
def twistd(tmp_path):
    """Run twistd in a directory of its own; returns what came of it, also when the daemon runs on."""

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


def test_a_daemon_that_starts_lets_go_of_the_terminal(twistd, tmp_path):
    result = twistd("--logfile=twistd.log", "rocketd-namesrv", "-o", "listenPort=0")
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    assert (tmp_path / "twistd.pid").exists()


def test_what_else_twistd_reports_is_shown(twistd):
    result = twistd("--logfile=twistd.log", "--pidfile=missing/twistd.pid", "rocketd-namesrv", "-o", "listenPort=0")
    assert result.returncode == 1
    assert "FileNotFoundError" in result.stderr
