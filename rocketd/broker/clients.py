"""One client on one connection, as heartbeats describe it.

Answers to Apache's ClientChannelInfo.
"""

from dataclasses import dataclass

from rocketd.remoting.command import RemotingCommand
from rocketd.remoting.interfaces import IConnection

CHANNEL_EXPIRED_TIMEOUT_MS = 120_000
"""How long a client counts as there after its last heartbeat."""


@dataclass(slots=True)
class ClientChannelInfo:
    """A client: its id, its LanguageCode, its version, and when it was last heard of (Unix milliseconds)."""

    connection: IConnection
    client_id: str
    language: int
    version: int
    last_update: int

    @classmethod
    def of(cls, request: RemotingCommand, connection: IConnection, client_id: str, now: int) -> "ClientChannelInfo":
        """Describe the sender of a request."""
        return cls(connection, client_id, request.language, request.version, now)

    def is_expired(self, now: int) -> bool:
        """Whether its heartbeats have stopped."""
        return now - self.last_update > CHANNEL_EXPIRED_TIMEOUT_MS

    def __str__(self) -> str:
        return f"{self.client_id} ({self.connection.address}, language {self.language}, version {self.version})"
