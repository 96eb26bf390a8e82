"""For tests of programs that use RocketMQ: the real servers in the test's process, on memory, in virtual time.

No counterpart in Apache. ``Cluster`` is what a test uses; with pytest there is the fixture ``rocketd_cluster``. Nothing is
imported until it is used, since pytest imports this package wherever rocketd is installed.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rocketd.testing.cluster import Cluster
    from rocketd.testing.faults import Drop

__all__ = ["Cluster", "Drop"]


def __getattr__(name: str) -> Any:
    if name == "Cluster":
        from rocketd.testing.cluster import Cluster

        return Cluster
    if name == "Drop":
        from rocketd.testing.faults import Drop

        return Drop
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
