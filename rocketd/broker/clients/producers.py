"""The online producers.

Unlike in Apache's broker, a group without members is always forgotten, however the last one left.

Counterpart: `ProducerManager` (Apache).
"""

import threading
from collections.abc import Callable, Collection

from twisted.logger import Logger

from rocketd.broker.clients.client import ClientChannelInfo
from rocketd.common.logs.throttle import LogThrottle, ThrottledLog
from rocketd.remoting.interfaces import IConnection


class ProducerManager:
    """All producer groups with online clients. Any thread.

    ``clock_ms`` returns monotonic milliseconds. Call ``scan_not_active`` every 10 s.
    """

    _log = Logger()

    def __init__(self, clock_ms: Callable[[], int]) -> None:
        self._clock_ms = clock_ms
        self._peer_log = ThrottledLog(self._log, LogThrottle(kinds=100))
        self._guard = threading.Lock()
        self._groups: dict[str, dict[IConnection, ClientChannelInfo]] = {}
        self._groups_of: dict[IConnection, set[str]] = {}
        self._client_of: dict[IConnection, str] = {}
        # Several connections of one client id, in the order of arrival: an old one may live longer than a new one.
        self._connections: dict[str, dict[IConnection, None]] = {}
        self._turn = 0

    def register(self, group: str, client: ClientChannelInfo) -> None:
        """Record that a heartbeat names a group."""
        with self._guard:
            if client.connection.closed:
                # Its close is handled before or after this, never again: the client would stay for ever.
                return
            channels = self._groups.setdefault(group, {})
            old = channels.get(client.connection)
            if old is not None and old.client_id == client.client_id:
                old.last_update = client.last_update
                return
            channels[client.connection] = client
            self._groups_of.setdefault(client.connection, set()).add(group)
            if self._client_of.get(client.connection) != client.client_id:
                self._forget_client(client.connection)
                self._client_of[client.connection] = client.client_id
                self._connections.setdefault(client.client_id, {})[client.connection] = None
        self._peer_log.info(
            f"joined {group}", "producer group {group}: {client} has joined", group=group, client=str(client)
        )

    def unregister(self, group: str, connection: IConnection) -> None:
        """Remove a client from a group at its request."""
        with self._guard:
            self._remove(group, connection, "has left")

    def connection_closed(self, connection: IConnection) -> None:
        """Remove the client of a closed connection from all its groups."""
        with self._guard:
            for group in sorted(self._groups_of.get(connection, ())):
                self._remove(group, connection, "has closed its connection to")

    def scan_not_active(self) -> None:
        """Remove clients without a heartbeat for 120 s, and close their connections."""
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

    def count_further(self, connection: IConnection, names: Collection[str]) -> int:
        """Return the number of a connection's groups not in ``names``."""
        with self._guard:
            return len(self._groups_of.get(connection, set()).difference(names))

    def clients(self, group: str) -> list[ClientChannelInfo]:
        """Copy the clients of a group; empty if it is unknown."""
        with self._guard:
            return list(self._groups.get(group, {}).values())

    def all_clients(self) -> dict[str, list[ClientChannelInfo]]:
        """Copy the clients of all groups."""
        with self._guard:
            return {group: list(channels.values()) for group, channels in self._groups.items()}

    def available_connection(self, group: str) -> IConnection | None:
        """Return the connection of one of a group's clients, in rotation; None if none is online."""
        with self._guard:
            open_ones = [connection for connection in self._groups.get(group, {}) if not connection.closed]
            if not open_ones:
                return None
            self._turn += 1
            return open_ones[self._turn % len(open_ones)]

    def find_connection(self, client_id: str) -> IConnection | None:
        """Return the connection for requests to a client: its latest open one, None without one."""
        with self._guard:
            connections = reversed(self._connections.get(client_id, {}))
            return next((connection for connection in connections if not connection.closed), None)

    def _forget_client(self, connection: IConnection) -> None:
        """Forget which client a connection belongs to. Called with the lock."""
        client_id = self._client_of.pop(connection, None)
        if client_id is not None:
            connections = self._connections[client_id]
            del connections[connection]
            if not connections:
                del self._connections[client_id]

    def _remove(self, group: str, connection: IConnection, how: str) -> None:
        channels = self._groups.get(group, {})
        client = channels.pop(connection, None)
        if client is None:
            return
        if not channels:
            del self._groups[group]
        groups = self._groups_of[connection]
        groups.discard(group)
        if not groups:
            del self._groups_of[connection]
            self._forget_client(connection)
        self._peer_log.info(
            f"left {group}", "{client} {how} producer group {group}", client=str(client), how=how, group=group
        )
