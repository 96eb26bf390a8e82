"""The common part of the three faces of administration."""

from dataclasses import dataclass
from itertools import count

from rocketd.client.admin import AdminEngine
from rocketd.client.faces.lifecycle import Face, RunCoroutine
from rocketd.client.faces.push import Cluster
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.client.settings.option_types import check_types

_numbers = count(1)


@dataclass(eq=False, repr=False)
class AdminFace(Face[AdminEngine]):
    """Administration of a cluster. ``cluster`` is the name servers, or a ClientConfig. Raises IllegalOptionError."""

    _kind = "admin"

    cluster: Cluster = None

    def __post_init__(self) -> None:
        # Not a group at brokers: it distinguishes several of one process.
        self.group = f"admin-{next(_numbers)}"
        check_types(self)
        self._make_life("admin", self.cluster)

    def _make_engine(self, instance: ClientInstance, run_coroutine: RunCoroutine) -> AdminEngine:
        """Create the engine. Reactor thread."""
        return AdminEngine(instance)
