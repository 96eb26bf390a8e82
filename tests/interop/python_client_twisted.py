"""Plays scenarios on the Twisted face, in a separate process: its reactor is that process's only one."""

import json
import subprocess
import sys
from pathlib import Path

from tests.interop.python_client_servers import RunningServers

ROOT = Path(__file__).resolve().parents[2]
RUN_LIMIT = 240.0  # seconds


def played_on_twisted(program: str, servers: RunningServers) -> dict[str, str]:
    """Return the error of each scenario of a module beside this file, by its name; "" if it passed."""
    command = [sys.executable, "-m", f"tests.interop.{program}", servers.kind, servers.namesrv, servers.broker]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_LIMIT, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines()]
    return {each["scenario"]: each["trouble"] for each in told}
