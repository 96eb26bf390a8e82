"""Who a client is, and the unique keys it gives its messages.

Answers to ClientConfig.buildMQClientId and MessageClientIDSetter.
"""

import socket
from collections.abc import Callable
from datetime import datetime
from ipaddress import ip_address
from struct import Struct

_TAIL = Struct(">IH")
_CLOCK_STEP_MS = 1_000_000


def local_address() -> str:
    """Return the address of this machine that outgoing traffic has; the loopback address where there is no network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing: it only makes the system choose a route
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


def client_id(address: str, instance_name: str) -> str:
    """Name a client: its address and what tells it from others on that machine."""
    return f"{address}@{instance_name}"


class UniqueKeys:
    """Makes unique keys: address, process and ``salt`` (4 bytes), then milliseconds of this month and a counter.

    ``now_ms`` gives Unix milliseconds. One object a process, used in one thread.
    """

    def __init__(self, address: str, process_id: int, salt: bytes, now_ms: Callable[[], float]) -> None:
        if len(salt) != 4:
            raise ValueError("the salt has four bytes")
        self._head = ip_address(address).packed + (process_id & 0xFFFF).to_bytes(2, "big") + salt
        self._now_ms = now_ms
        self._counter = 0
        self._month_began_ms = 0
        self._month_ends_ms = 0

    def next_key(self) -> str:
        """Make a key: upper-case hexadecimal, 32 characters (56 with an IPv6 address)."""
        now = int(self._now_ms())
        if now >= self._month_ends_ms:
            self._begin_month(now)
        since = now - self._month_began_ms
        if -_CLOCK_STEP_MS < since < 0:
            since = 0
        tail = _TAIL.pack(since & 0xFFFFFFFF, self._counter)
        self._counter = (self._counter + 1) & 0xFFFF
        return (self._head + tail).hex().upper()

    def _begin_month(self, now_ms: int) -> None:
        first = datetime.fromtimestamp(now_ms / 1000).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        following = first.replace(year=first.year + first.month // 12, month=first.month % 12 + 1)
        self._month_began_ms = int(first.timestamp() * 1000)
        self._month_ends_ms = int(following.timestamp() * 1000)
