"""The fixture ``rocketd_cluster`` for pytest; ``-p no:rocketd`` disables it.

rocketd itself is imported when a test first uses the fixture.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from rocketd.testing.cluster import Cluster


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line(
        "markers",
        "rocketd_cluster(topics=..., brokers=..., slaves=..., broker=..., namesrv=..., tls=..., accounts=...): options of "
        "the Cluster of the fixture rocketd_cluster",
    )


@pytest.fixture
def rocketd_cluster(request: pytest.FixtureRequest) -> "Iterator[Cluster]":
    """A cluster for one test: name server and brokers in memory, in virtual time; see rocketd.testing.Cluster."""
    from rocketd.testing.cluster import Cluster

    marker = request.node.get_closest_marker("rocketd_cluster")
    with Cluster(**(marker.kwargs if marker is not None else {})) as cluster:
        yield cluster
