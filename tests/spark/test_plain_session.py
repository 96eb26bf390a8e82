"""Sessions started by other code, and the defaults of rocketd's, in programs whose environment is not activated."""

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from rocketd.spark.sessions.confs import DEFAULT_MASTER
from tests.support.stores import write_store

DRIVER = Path(__file__).with_name("plain_driver.py")
MESSAGES = 30
LIMIT = 240


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    directory = tmp_path_factory.mktemp("plain") / "store"
    write_store(directory, MESSAGES)
    return str(directory)


@pytest.fixture(scope="module")
def other_python(tmp_path_factory):
    """A Python without any package, which comes first in PATH."""
    directory = tmp_path_factory.mktemp("other")
    venv.EnvBuilder(with_pip=False).create(directory)
    return directory / "bin" / "python3"


def run(how, store, other_python, **environment):
    own = {name: value for name, value in os.environ.items() if name not in ("PYSPARK_PYTHON", "PYTHONPATH")}
    own["PATH"] = f"{other_python.parent}{os.pathsep}{own['PATH']}"
    done = subprocess.run(
        [sys.executable, str(DRIVER), how, store, "orders"],
        env={**own, **environment},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.stdout, done.stderr
    return done.stdout.splitlines()[-1]


@pytest.mark.parametrize("how", ["register", "read"])
def test_plain_session_of_inactive_environment_reads(how, store, other_python):
    assert run(how, store, other_python) == f"rows {MESSAGES}"


def test_register_with_python_without_rocketd_is_refused(store, other_python):
    said = run("register", store, other_python, PYSPARK_PYTHON=str(other_python))
    assert said.startswith(f"refused PYSPARK_PYTHON is {other_python}, which has no rocketd: ")


def test_stream_with_default_master_outlives_a_killed_worker(store, other_python):
    assert DEFAULT_MASTER == "local[*,4]"
    assert run("stream", store, other_python) == f"rows {MESSAGES}"
