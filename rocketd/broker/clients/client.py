"""One client on one connection, as described by heartbeats.

Counterpart: `ClientChannelInfo` (Apache).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rocketd.broker.tables.filters.subscriptions import ANY_TAG, is_tag_type
from rocketd.remoting.bodies.tables import SubscriptionData
from rocketd.remoting.interfaces import IConnection
from rocketd.remoting.wire.command import RemotingCommand

TAG_SEPARATOR = "||"
CHANNEL_EXPIRED_TIMEOUT_MS = 120_000
"""The time after the last heartbeat until a client counts as gone."""


@dataclass(slots=True)
class ClientChannelInfo:
    """A client: its id, its LanguageCode, its version, and the times of its last and first heartbeat in monotonic ms.

    ``wanted`` is a consumer's subscriptions: one text per topic.
    """

    connection: IConnection
    client_id: str
    language: int
    version: int
    last_update: int
    since: int = 0
    wanted: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, request: RemotingCommand, connection: IConnection, client_id: str, now: int) -> "ClientChannelInfo":
        """Describe the sender of a request."""
        return cls(connection, client_id, request.language, request.version, now, now)

    def is_expired(self, now: int) -> bool:
        """Whether its heartbeats have stopped."""
        return now - self.last_update > CHANNEL_EXPIRED_TIMEOUT_MS

    def __str__(self) -> str:
        return f"{self.client_id} ({self.connection.address}, language {self.language}, version {self.version})"


def wanted_texts(subscriptions: Sequence[SubscriptionData]) -> dict[str, str]:
    """Return a text per topic for subscriptions.

    Equal subscriptions have equal texts, whatever the order of their tags.
    """
    return {subscription.topic: _wanted_text(subscription) for subscription in subscriptions}


def _wanted_text(subscription: SubscriptionData) -> str:
    if not is_tag_type(subscription.expression_type):
        return f"{subscription.expression_type}: {subscription.sub_string}"
    tags = {tag.strip() for tag in subscription.sub_string.split(TAG_SEPARATOR)} - {""}
    return " || ".join(sorted(tags)) or ANY_TAG
