"""Check that mypy finds misspelt attributes: ``python -m tests.support.typos``, after a run of mypy.

All are written into a copy of the package and of mypy's cache, so that only their modules are checked anew. One run of
mypy looks for all of them: its cache knows a file by its size and the second of its change, so that it would take two
misspellings of the same file within a second for each other.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support.places import ROOT

COPIED = ("rocketd", "pyspark_rocketd", ".mypy_cache", "setup.cfg")
SECONDS = 600

TYPOS = (
    ("rocketd/broker/send/processor.py", "_broker.store.put_messages", "_broker.stroe.put_messages"),
    ("rocketd/broker/send/processor.py", "_broker.store.put_batch", "_broker.store.put_bacth"),
    ("rocketd/broker/pull/processor.py", "broker.store.add_arrival_listener", "broker.store.add_arival_listener"),
    ("rocketd/broker/transaction/service.py", "_broker.topics", "_broker.topisc"),
    ("rocketd/broker/admin/changes.py", "context.connection.address", "context.connection.adress"),
    ("rocketd/namesrv/processor.py", "_name_server.store_settings", "_name_server.stroe_settings"),
)
"""A module, an expression of it, and the expression misspelt: on each path of requests, and of the name server."""


def misspelt(right: str, wrong: str) -> str:
    """Return the one name of an expression that is misspelt."""
    return next(bad for good, bad in zip(right.split("."), wrong.split("."), strict=True) if bad != good)


def complaints(copy: Path) -> str:
    """Return what mypy prints of a copy that has all the misspelt expressions."""
    for path, right, wrong in TYPOS:
        source = copy / path
        text = source.read_text()
        if right not in text:
            raise ValueError(f"{path} has no {right}: choose another expression for TYPOS")
        source.write_text(text.replace(right, wrong, 1))
    done = subprocess.run(
        [sys.executable, "-m", "mypy"], cwd=copy, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    return done.stdout + done.stderr


def main() -> int:
    """Return 0 if mypy finds all of them."""
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(directory)
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
            elif source.exists():
                shutil.copy2(source, copy / name)
        printed = complaints(copy)
    missed = 0
    for path, right, wrong in TYPOS:
        found = any(
            line.startswith(path) and f'has no attribute "{misspelt(right, wrong)}"' in line
            for line in printed.splitlines()
        )
        print(f"{path}: {wrong}: {'found' if found else 'NOT FOUND'}", flush=True)
        missed += not found
    if missed:
        print(printed)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
