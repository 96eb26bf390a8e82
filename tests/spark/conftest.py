"""One Spark for all tests of the ring: it takes longer to start than most of them to run."""

import os

import pytest

import rocketd.spark
from tests.spark.clusters import apache_cluster, live_cluster, rocketd_cluster  # noqa: F401
from tests.spark.guarded import apache_guarded, guarded, rocketd_guarded  # noqa: F401
from tests.spark.quick_jvm import quick_options


@pytest.fixture(scope="session", autouse=True)
def _quick_jvm(tmp_path_factory):
    """Give all drivers, masters and workers that the tests start JVM options for short lives."""
    options = quick_options(tmp_path_factory.mktemp("jvm"))
    os.environ.update(SPARK_SUBMIT_OPTS=options, SPARK_DAEMON_JAVA_OPTS=options)


@pytest.fixture(scope="session")
def spark(_quick_jvm, tmp_path_factory):
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
