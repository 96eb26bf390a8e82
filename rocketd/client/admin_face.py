"""What the three faces of administration have in common: how it is made.

No counterpart in Apache.
"""

from dataclasses import dataclass
from itertools import count

from rocketd.client.admin import Admin
from rocketd.client.face import Cluster
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.client.life import Face, RunCoroutine
from rocketd.client.option_types import check_types

_numbers = count(1)


@dataclass(eq=False, repr=False)
class AdminFace(Face[Admin]):
    """Administers a cluster. ``cluster`` are the name servers, or a ClientConfig. Raises IllegalOptionError."""

    kind = "admin"

    cluster: Cluster = None

    def __post_init__(self) -> None:
        # No group of brokers: it tells several of one process apart.
        self.group = f"admin-{next(_numbers)}"
        check_types(self)
        self._make_life("admin", self.cluster)

    def make_engine(self, instance: ClientInstance, run_coroutine: RunCoroutine) -> Admin:
        """Make the engine. Reactor thread."""
        return Admin(instance)
