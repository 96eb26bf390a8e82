"""``rocketd try``, the first command of the README, as a child process."""

import subprocess
import sys

import pytest

from rocketd.common.command_line.errors import CommandError
from rocketd.tools.servers import try_out
from tests.support.cli_processes import COMMAND, DEADLINE
from tests.support.complaints import complaints


def test_try_prints_a_consumed_message_and_leaves_no_files(tmp_path):
    environment = {"PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path), "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run([*COMMAND, "try"], env=environment, capture_output=True, text=True, timeout=DEADLINE)
    assert (done.returncode, complaints(done.stderr)) == (0, [])
    lines = done.stdout.splitlines()
    assert [line.split("  ")[0] for line in lines[:2]] == ["name server", "broker"]
    assert lines[2].endswith("Hello 'it works'")
    assert lines[-1].endswith("it works")
    assert list(tmp_path.iterdir()) == []


def test_try_if_the_servers_do_not_start_names_their_status(monkeypatch):
    monkeypatch.setattr(try_out, "_rocketd", lambda name: [sys.executable, "-c", "raise SystemExit(3)"])
    with pytest.raises(CommandError, match="status 3 before they were ready"):
        try_out.try_command.callback()


def test_try_if_a_command_fails_names_it(monkeypatch):
    ready = "print('name server  127.0.0.1:1', 'stop  Ctrl-C', sep='\\n', flush=True); import time; time.sleep(600)"
    commands = {"up": ready, "produce": "raise SystemExit(1)"}
    monkeypatch.setattr(try_out, "_rocketd", lambda name: [sys.executable, "-c", commands[name]])
    with pytest.raises(CommandError, match="rocketd produce ended with status 1"):
        try_out.try_command.callback()
