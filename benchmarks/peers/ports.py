"""Free ports on loopback for servers that are about to start."""

from __future__ import annotations

import random
import socket
import threading

# Below Linux's usual range for outgoing connections, so that none of those takes the port in between.
_LOWEST, _HIGHEST = 20_000, 31_000
_TRIES = 1_000

# What this process was given, though nobody may listen there yet: no two servers of its are to get the same.
_given: set[int] = set()
_choosing = threading.Lock()


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on, another one each time."""
    return _search(())


def free_broker_port() -> int:
    """A port for a broker: free itself, and so are the one 2 below (Apache's fast port) and the one above (HA)."""
    return _search((-2, 1))


def _search(around: tuple[int, ...]) -> int:
    with _choosing:
        for _ in range(_TRIES):
            port = random.randrange(_LOWEST, _HIGHEST)
            ports = {port + step for step in (0, *around)}
            if not ports & _given and all(map(_is_free, ports)):
                _given.update(ports)
                return port
    raise OSError(f"no free port found between {_LOWEST} and {_HIGHEST}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
