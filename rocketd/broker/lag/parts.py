"""The broker as the measurement of lag and the guard of groups see it."""

from typing import Protocol

from rocketd.broker.clients.last_subscriptions import LastSubscriptions
from rocketd.broker.clients.parts import GroupParts
from rocketd.broker.lag.group_guard import GroupGuard


class LagParts(GroupParts, Protocol):
    """The online groups, the last subscriptions of all groups, and their guard."""

    last_subscriptions: LastSubscriptions
    group_guard: GroupGuard
