"""Plays scenarios on the Twisted face, in a process of its own: its reactor is that process's only one."""

import json
import subprocess
import sys
from pathlib import Path

from python_client_servers import RunningServers

RUN_LIMIT = 240.0  # seconds


def played_on_twisted(program: str, servers: RunningServers) -> dict[str, str]:
    """By the name of each scenario of a program beside this file, what went wrong with it."""
    path = Path(__file__).resolve().with_name(program)
    command = [sys.executable, str(path), servers.kind, servers.namesrv, servers.broker]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_LIMIT)
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines()]
    return {each["scenario"]: each["trouble"] for each in told}
