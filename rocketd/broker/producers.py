"""Which producers are online.

Answers to Apache's ProducerManager. Unlike there, a group that has nobody left is forgotten, however it was left.
"""

import threading
from collections.abc import Callable

from twisted.logger import Logger

from rocketd.broker.clients import ClientChannelInfo
from rocketd.common.log_throttle import LogThrottle, ThrottledLog
from rocketd.remoting.interfaces import IConnection


class ProducerManager:
    """All producer groups that have clients online. Methods may be called from any thread.

    ``clock_ms`` tells monotonic milliseconds; ``scan_not_active`` is to be called every 10 s.
    """

    _log = Logger()

    def __init__(self, clock_ms: Callable[[], int]) -> None:
        self._clock_ms = clock_ms
        self._peer_log = ThrottledLog(self._log, LogThrottle(kinds=100))
        self._guard = threading.Lock()
        self._groups: dict[str, dict[IConnection, ClientChannelInfo]] = {}
        self._connections: dict[str, IConnection] = {}
        self._turn = 0

    def register(self, group: str, client: ClientChannelInfo) -> None:
        """Take in that a heartbeat names a group."""
        with self._guard:
            if client.connection.closed:
                # Its close is dealt with before or after this, never again: the client would stay for ever.
                return
            channels = self._groups.setdefault(group, {})
            old = channels.get(client.connection)
            if old is not None and old.client_id == client.client_id:
                old.last_update = client.last_update
                return
            if old is not None and self._connections.get(old.client_id) is client.connection:
                del self._connections[old.client_id]
            channels[client.connection] = client
            self._connections[client.client_id] = client.connection
        self._peer_log.info(
            f"joined {group}", "producer group {group}: {client} has joined", group=group, client=str(client)
        )

    def unregister(self, group: str, connection: IConnection) -> None:
        """Take a client out of a group because it says so."""
        with self._guard:
            self._remove(group, connection, "has left")

    def connection_closed(self, connection: IConnection) -> None:
        """Take a client out of all its groups because its connection is gone."""
        with self._guard:
            for group in [name for name, channels in self._groups.items() if connection in channels]:
                self._remove(group, connection, "has closed its connection to")

    def scan_not_active(self) -> None:
        """Take out the clients whose heartbeats have stopped for 120 s, and close their connections."""
        self._peer_log.flush()
        now = self._clock_ms()
        with self._guard:
            expired = [
                (group, connection)
                for group, channels in self._groups.items()
                for connection, client in channels.items()
                if client.is_expired(now)
            ]
            for group, connection in expired:
                self._remove(group, connection, "has sent no heartbeat for 120 s to")
        for connection in dict.fromkeys(connection for _, connection in expired):
            connection.close()

    def clients(self, group: str) -> list[ClientChannelInfo]:
        """Copy the clients of a group; empty when it is unknown."""
        with self._guard:
            return list(self._groups.get(group, {}).values())

    def all_clients(self) -> dict[str, list[ClientChannelInfo]]:
        """Copy the clients of all groups."""
        with self._guard:
            return {group: list(channels.values()) for group, channels in self._groups.items()}

    def available_connection(self, group: str) -> IConnection | None:
        """Return the connection of one of a group's clients, each in its turn, or None when it has nobody online."""
        with self._guard:
            open_ones = [connection for connection in self._groups.get(group, {}) if not connection.closed]
            if not open_ones:
                return None
            self._turn += 1
            return open_ones[self._turn % len(open_ones)]

    def find_connection(self, client_id: str) -> IConnection | None:
        """Return the connection over which a client can be called."""
        return self._connections.get(client_id)

    def _remove(self, group: str, connection: IConnection, how: str) -> None:
        channels = self._groups.get(group, {})
        client = channels.pop(connection, None)
        if client is None:
            return
        if not channels:
            del self._groups[group]
        still_here = any(connection in others for others in self._groups.values())
        if not still_here and self._connections.get(client.client_id) is connection:
            del self._connections[client.client_id]
        self._peer_log.info(
            f"left {group}", "{client} {how} producer group {group}", client=str(client), how=how, group=group
        )
