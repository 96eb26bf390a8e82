"""Check that mypy finds misspelt attributes: ``python -m tests.support.typos``, after a run of mypy.

Each one is written into a copy of the package and of mypy's cache, so that only its own module is checked anew.
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


def is_found(copy: Path, path: str, right: str, wrong: str) -> bool:
    """Whether mypy names a misspelt expression in the copy, which is as before afterwards."""
    source = copy / path
    text = source.read_text()
    if right not in text:
        raise ValueError(f"{path} has no {right}: choose another expression for TYPOS")
    source.write_text(text.replace(right, wrong, 1))
    done = subprocess.run(
        [sys.executable, "-m", "mypy"], cwd=copy, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    source.write_text(text)
    name = next(bad for good, bad in zip(right.split("."), wrong.split("."), strict=True) if bad != good)
    found = f'has no attribute "{name}"' in done.stdout
    print(f"{path}: {wrong}: {'found' if found else 'NOT FOUND'}", flush=True)
    return found


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
        missed = [typo for typo in TYPOS if not is_found(copy, *typo)]
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
