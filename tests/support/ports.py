"""Free ports on loopback for servers to be started."""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
import threading

# Below Linux's usual range for outgoing connections, so that none of those takes the port in between.
_LOWEST, _BLOCK, _BLOCKS = 20_000, 250, 44
_TRIES = 250

# Ports given out by this process, in use or not, so that none is given out twice.
_given: set[int] = set()
_choosing = threading.Lock()


class Blocks:
    """Blocks of ports of this process: a lock on a file keeps other processes of this user off each."""

    def __init__(self, directory: str) -> None:
        """``directory`` is that of the files, the same for all processes."""
        self._directory = directory
        self._held: dict[int, int] = {}

    def one_more(self) -> int | None:
        """Take a further block, and return its first port; None if all are taken."""
        for block in random.sample(range(_BLOCKS), _BLOCKS):
            if block in self._held:
                continue
            path = os.path.join(self._directory, f"rocketd-ports-{os.getuid()}-{block}")
            fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(fd)
                continue
            self._held[block] = fd
            return _LOWEST + block * _BLOCK
        return None

    def first_ports(self) -> list[int]:
        """The first port of each block of this process."""
        return [_LOWEST + block * _BLOCK for block in self._held]


_blocks = Blocks(tempfile.gettempdir())


def free_port() -> int:
    """Return a free port of 127.0.0.1, another one each time."""
    return _search(())


def free_ports(count: int) -> int:
    """Return the first of so many free ports in a row."""
    return _search(tuple(range(1, count)))


def free_broker_port(brokers: int = 1) -> int:
    """A port for a broker: free itself, and so are the one 2 below (Apache's fast port) and the one above (HA).

    With more brokers, the same is true for each 10 ports further.
    """
    ports = {10 * number + distance for number in range(brokers) for distance in (-2, 0, 1)}
    return _search(tuple(sorted(ports - {0})))


def _search(around: tuple[int, ...]) -> int:
    with _choosing:
        for first in _blocks.first_ports():
            if (port := _search_block(first, around)) is not None:
                return port
        while (more := _blocks.one_more()) is not None:
            if (port := _search_block(more, around)) is not None:
                return port
    raise OSError(f"no free port found between {_LOWEST} and {_LOWEST + _BLOCKS * _BLOCK}")


def _search_block(first: int, around: tuple[int, ...]) -> int | None:
    low, high = first - min(0, *around, 0), first + _BLOCK - max(0, *around, 0)
    for _ in range(_TRIES):
        port = random.randrange(low, high)
        ports = {port + step for step in (0, *around)}
        if not ports & _given and all(map(_is_free, ports)):
            _given.update(ports)
            return port
    return None


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
