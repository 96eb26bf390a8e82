"""Clients of a cluster that are connected by sockets, such as programs in other languages, while time is put forward.

No counterpart in Apache. Such a client has the time of the machine. It is not asked whether it rests, but is given a moment
after what it did last, and no jump counts as its silence.
"""

from collections.abc import Callable
from time import monotonic
from typing import Any

from rocketd.remoting.connection import Connection
from rocketd.remoting.frame import Frame
from rocketd.testing.memory_transport import MemoryTransport

QUIET_SECONDS = 0.03
"""How long it has to be silent before it counts as resting, in real time."""
LONGEST_SECONDS = 2.0
"""How long it is waited for at most."""


class Sockets:
    """What is known of them. ``watching`` is called by the servers' reactor, all else by any thread."""

    def __init__(self) -> None:
        self._heard_at = 0.0

    def watching(self, dispatch: Callable[[Any, list[Frame]], None]) -> Callable[[Any, list[Frame]], None]:
        """Note what comes over sockets, on its way to a server's processors."""

        def watched(connection: Any, frames: list[Frame]) -> None:
            if is_real(connection):
                self._heard_at = monotonic()
            dispatch(connection, frames)

        return watched

    def rest(self, begun: float, servers: list[Any]) -> bool:
        """Whether those connected have been silent for a while; ``begun`` is when they were first asked."""
        now = monotonic()
        if now - begun > LONGEST_SECONDS or now - self._heard_at > QUIET_SECONDS:
            # After a step they need the time to hear of it.
            return now - begun > QUIET_SECONDS or not any(map(_has_sockets, servers))
        return False

    def time_passes(self, seconds: float, servers: list[Any]) -> None:
        """Have nobody who is connected be silent for longer than before, after so many seconds more."""
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
    """Whether a server's connection is a socket."""
    return not isinstance(connection.transport, MemoryTransport)


def _has_sockets(server: Any) -> bool:
    return any(is_real(connection) for connection in list(server.server.connections))
