"""Clients connected to a cluster by sockets, such as programs in other languages, while time is advanced.

Such a client uses the machine's time. It cannot be polled, so it gets a moment after its last action, and jumps of time
do not count as its silence.
"""

from collections.abc import Callable
from time import monotonic
from typing import Any

from rocketd.remoting.serving.connection import Connection
from rocketd.remoting.wire.frame import Frame
from rocketd.testing.simulated.memory_transport import MemoryTransport

QUIET_SECONDS = 0.03
"""Silence in real time after which a client counts as quiescent."""
LONGEST_SECONDS = 2.0
"""Longest wait for clients, in real time."""


class Sockets:
    """State of these clients. ``watching`` is called by the servers' reactor, everything else by any thread."""

    def __init__(self) -> None:
        self._heard_at = 0.0

    def watching(self, dispatch: Callable[[Any, list[Frame]], None]) -> Callable[[Any, list[Frame]], None]:
        """Wrap a server's dispatch function to record activity on sockets."""

        def watched(connection: Any, frames: list[Frame]) -> None:
            if is_real(connection):
                self._heard_at = monotonic()
            dispatch(connection, frames)

        return watched

    def rest(self, begun: float, servers: list[Any]) -> bool:
        """Return whether the connected clients have been silent for a while. ``begun`` is the time of the first poll."""
        now = monotonic()
        if now - begun > LONGEST_SECONDS or now - self._heard_at > QUIET_SECONDS:
            # After a step, they need time to notice it.
            return now - begun > QUIET_SECONDS or not any(map(_has_sockets, servers))
        return False

    def time_passes(self, seconds: float, servers: list[Any]) -> None:
        """Exclude a jump of time from the silence of connected clients."""
        for server in servers:
            for connection in list(server.server.connections):
                if is_real(connection):
                    connection.last_active += seconds
            producers, consumers = getattr(server, "producers", None), getattr(server, "consumers", None)
            if producers is None or consumers is None:
                continue
            known = [client for clients in producers.all_clients().values() for client in clients]
            known += [client for group in consumers.all_groups() for client in group.clients()]
            for client in {id(client): client for client in known}.values():
                if is_real(client.connection):
                    client.last_update += int(seconds * 1000)


def is_real(connection: Connection) -> bool:
    """Return whether a server's connection is a socket."""
    transport = connection.transport
    # With TLS, it is a wrapper with the transport of the encrypted bytes.
    return not isinstance(getattr(transport, "transport", transport), MemoryTransport)


def _has_sockets(server: Any) -> bool:
    return any(is_real(connection) for connection in list(server.server.connections))
