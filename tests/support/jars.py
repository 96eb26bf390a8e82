"""Jars of the peers, fetched by Maven once and kept.

In use for Apache RocketMQ's servers, and for Kafka with Spark's connector.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path


class PeerUnavailableError(RuntimeError):
    """Java or Maven is missing, or the jars could not be fetched."""


def cache_dir() -> Path:
    """Return the directory of the jars: the environment's ROCKETD_PEERS, or ``rocketd/peers`` in the user's cache."""
    given = os.environ.get("ROCKETD_PEERS")
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rocketd" / "peers"


def jars_of(pom: Path, name: str) -> Path:
    """Return the directory with the jars that ``pom`` depends on, filled by Maven the first time; raises
    PeerUnavailableError if that fails. A changed pom gets a new directory.
    """
    missing = [program for program in ("java", "mvn") if shutil.which(program) is None]
    if missing:
        raise PeerUnavailableError(f"not found in PATH: {', '.join(missing)}")
    root = cache_dir()
    root.mkdir(parents=True, exist_ok=True)
    jars = root / f"{name}-{hashlib.sha256(pom.read_bytes()).hexdigest()[:12]}"
    with (root / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not jars.is_dir():
            with tempfile.TemporaryDirectory(dir=root) as scratch:
                fetched = Path(scratch) / "lib"
                command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
                done = subprocess.run([*command, f"-DoutputDirectory={fetched}"], capture_output=True, text=True)
                if done.returncode != 0:
                    raise PeerUnavailableError(f"Maven failed:\n{done.stdout}{done.stderr}")
                fetched.rename(jars)
    return jars
