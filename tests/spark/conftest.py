"""One Spark for all tests of the ring: it takes longer to start than most of them to run."""

import pytest

import rocketd.spark


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
