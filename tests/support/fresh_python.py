"""Runs of Python with the sources of this clone, for tests of test runners."""

import os
import subprocess
import sys
from pathlib import Path

from tests.support.places import ROOT

SECONDS = 250


def run_python(*command: object, cwd: str | Path, **variables: str) -> tuple[int, str]:
    """Return the exit status and all output. The variables of pytest in this process do not reach the other one."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        cwd=cwd,
        env={**environment, "PYTHONPATH": path, **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr
