"""Test support for programs that use RocketMQ: the real servers in the test's process, in memory, in virtual time.

``Cluster`` is the interface of tests; with pytest there is the fixture ``rocketd_cluster``. Imports are delayed until
use, because pytest imports this package wherever rocketd is installed.

- `cluster`: starts, stops and inspects the servers. `cluster_broker`: one of its brokers. `options`: their options.
- `machines`: machines and their servers over restarts. `servers`: name server and broker of a test.
- `files`: accounts and certificates. `authority`: makes the certificates. `stored_messages`: reads stores.
- `simulated`: files in memory, with power cuts; connections in memory; the clock, and reactors that follow it.
- `quiescence`: waits until all threads are quiescent.
- `faults`: lost requests, answers and connections. `sockets`: real clients connected by sockets.
- `client_environment`: the environment of clients. `__main__`: a cluster controlled by lines of text, with `console`.
"""

from typing import TYPE_CHECKING

from rocketd.common.lazy_names import lazy_names

if TYPE_CHECKING:
    from rocketd.acl.accounts import AccountConfig
    from rocketd.testing.cluster import Cluster
    from rocketd.testing.cluster_broker import ClusterBroker
    from rocketd.testing.faults import Drop
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "rocketd.acl.accounts": ("AccountConfig",),
            "rocketd.testing.cluster": ("Cluster",),
            "rocketd.testing.cluster_broker": ("ClusterBroker",),
            "rocketd.testing.faults": ("Drop",),
        },
    )

__all__ = ["AccountConfig", "Cluster", "ClusterBroker", "Drop"]
