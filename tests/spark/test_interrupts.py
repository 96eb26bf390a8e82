"""Ctrl-C and SIGTERM while a job runs: one line, status 130, and nothing left behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

DRIVER = Path(__file__).with_name("slow_driver.py")
LIMIT = 240


def wait_until(condition, process):
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "it did not get so far"
        time.sleep(0.05)


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize(("kind", "number"), [("tasks", signal.SIGINT), ("stream", signal.SIGTERM)])
def test_interrupted_job_prints_one_line(kind, number, tmp_path):
    mark = tmp_path / "mark"
    process = subprocess.Popen(
        [sys.executable, DRIVER, kind, mark], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        wait_until(lambda: mark.exists() and mark.read_text(), process)
        worker = int(mark.read_text())
        process.send_signal(number)
        out, err = process.communicate(timeout=LIMIT)
    finally:
        process.kill()
    assert (out, err) == ("", "rocketd spark slow: interrupted\n")
    assert process.returncode == 130
    deadline = time.monotonic() + LIMIT
    while is_alive(worker):
        assert time.monotonic() < deadline, "its worker is still there"
        time.sleep(0.05)
