"""The fixture ``rocketd_cluster`` for pytest; ``-p no:rocketd`` does without it.

No counterpart in Apache. Nothing of rocketd is imported before a test asks for the fixture.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from rocketd.testing.cluster import Cluster


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line(
        "markers",
        "rocketd_cluster(topics=..., broker=..., namesrv=...): how the fixture rocketd_cluster makes its Cluster",
    )


@pytest.fixture
def rocketd_cluster(request: pytest.FixtureRequest) -> "Iterator[Cluster]":
    """A cluster of this test's own: name server and broker on memory, in virtual time; see rocketd.testing.Cluster."""
    from rocketd.testing.cluster import Cluster

    marker = request.node.get_closest_marker("rocketd_cluster")
    with Cluster(**(marker.kwargs if marker is not None else {})) as cluster:
        yield cluster
