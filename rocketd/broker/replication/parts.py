"""The broker as replication sees it. The parts of the subpackages above are protocols."""

from collections.abc import Callable
from typing import Protocol

from twisted.internet.defer import Deferred

from rocketd.broker.tables.parts import TableParts
from rocketd.remoting.bodies.tables import DelayOffsetSerializeWrapper


class DelayProgress(Protocol):
    """The delivery progress of each delay level. Any thread."""

    @property
    def changes(self) -> int:
        """The number of changes since the start."""

    def take_from_master(self, wrapper: DelayOffsetSerializeWrapper) -> None:
        """Replace the progress with the master's."""


class Registering(Protocol):
    """The registration with the name servers. Reactor thread."""

    before_each: Callable[[str], Deferred[None]] | None
    before_first: Callable[[], Deferred[None]] | None

    def hold(self) -> None:
        """Do not register until ``resume``."""

    def resume(self) -> None:
        """Register again."""


class ReplicationParts(TableParts, Protocol):
    """The tables, the progress of delayed messages, and the registration."""

    @property
    def schedule(self) -> DelayProgress:
        """The delivery of delayed messages."""

    @property
    def registration(self) -> Registering:
        """The registration with the name servers."""
