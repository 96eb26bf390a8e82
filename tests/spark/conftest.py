"""One Spark for all tests of the ring: it takes longer to start than most of them to run."""

import sys
from pathlib import Path

import pytest

import rocketd.spark

# These tests use modules beside them and in benchmarks/: neither is installed with rocketd.
HERE = Path(__file__).resolve().parent
for directory in (str(HERE.parents[1]), str(HERE)):
    if directory not in sys.path:
        sys.path.insert(0, directory)

from clusters import apache_cluster, live_cluster, rocketd_cluster  # noqa: E402, F401
from guarded import apache_guarded, guarded, rocketd_guarded  # noqa: E402, F401


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    """A session of two cores, whose tasks are tried three times; all its files in temporary directories."""
    root = tmp_path_factory.mktemp("spark")
    session = rocketd.spark.session(
        "local[2,3]",
        "tests",
        {
            "spark.local.dir": str(root / "local"),
            "spark.sql.warehouse.dir": str(root / "warehouse"),
            "spark.sql.streaming.stopTimeout": "300s",
            "spark.sql.shuffle.partitions": "2",
        },
        driver_memory="1g",
    )
    yield session
    session.stop()
