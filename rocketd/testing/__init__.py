"""For tests of programs that use RocketMQ: the real servers in the test's process, on memory, in virtual time.

No counterpart in Apache. ``Cluster`` is what a test uses; with pytest there is the fixture ``rocketd_cluster``.
"""

from rocketd.testing.cluster import Cluster
from rocketd.testing.faults import Drop

__all__ = ["Cluster", "Drop"]
