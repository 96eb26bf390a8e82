"""The broker as pull processors see it. Consumers and the group guard belong to other subpackages, so they are protocols."""

from collections.abc import Callable
from typing import Protocol

from rocketd.broker.send.parts import SendParts
from rocketd.broker.tables.parts import QueueWatch
from rocketd.remoting.bodies.tables import MessageModel, SubscriptionData


class OnlineGroup(Protocol):
    """An online consumer group."""

    @property
    def message_model(self) -> MessageModel:
        """Whether members share the queues, or each reads all of them."""

    def find_subscription(self, topic: str) -> SubscriptionData | None:
        """Return the subscription to a topic; None if there is none."""


class OnlineGroups(Protocol):
    """The online consumer groups. Any thread."""

    def find(self, group: str) -> OnlineGroup | None:
        """Return a group; None if it is offline."""


class PullParts(SendParts, Protocol):
    """Everything sends use, and the online groups."""

    held_pull_checks: list[Callable[[], None]]
    """Functions the broker calls every second in the pull pool's thread."""

    @property
    def consumers(self) -> OnlineGroups:
        """The online consumer groups."""

    @property
    def group_guard(self) -> QueueWatch:
        """The guard of consumer groups."""
