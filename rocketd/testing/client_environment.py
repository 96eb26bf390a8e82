"""The environment of a cluster's clients: reactors in its time, on its network.

See ClientEnvironment of rocketd.client.settings.config.
"""

import threading

from rocketd.common.event_loop.reactor import IReactor
from rocketd.testing.simulated.memory_network import MemoryNetwork
from rocketd.testing.simulated.virtual_time import VirtualReactor, VirtualTime


class ClusterEnvironment:
    """Environment of the cluster's clients."""

    def __init__(self, virtual: VirtualTime, network: MemoryNetwork) -> None:
        self._virtual = virtual
        self._network = network
        self._lock = threading.Lock()
        self._reactors: list[VirtualReactor] = []

    def reactor_on(self, reactor: IReactor) -> VirtualReactor:
        """Return the virtual reactor that wraps a real one. Call it in the real reactor's thread."""
        with self._lock:
            self._reactors = [known for known in self._reactors if known.in_use]
            for known in self._reactors:
                if known.base is reactor:
                    return known
            fresh = VirtualReactor(reactor, self._virtual, self._network)
            self._reactors.append(fresh)
            return fresh

    def now_ms(self) -> float:
        """Return Unix milliseconds. Any thread."""
        return self._virtual.time() * 1000

    def reactors(self) -> list[VirtualReactor]:
        """Return the reactors in use. Any thread."""
        with self._lock:
            return [known for known in self._reactors if known.in_use]
