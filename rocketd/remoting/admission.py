"""Which accepted connections are kept: by their number in all, by their number from one address, and by further rules.

No counterpart in Apache, whose servers accept until they have no descriptor left. Reactor thread only.
"""

import resource
from collections import Counter
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address

from rocketd.common.networks import network_list
from rocketd.remoting.limit_log import LimitLog

Rule = Callable[[str], str | None]
"""Given the host of a peer, returns why it is refused, or None."""

_OTHER_FILES = 1000
"""Descriptors that are left to the store and to outgoing connections."""
_DESCRIPTORS = 2
"""Descriptors of one connection: see `Connection.connectionMade`."""


class Admission:
    """Counts connections and refuses those beyond a limit. 0 is no limit of its own.

    ``rules`` are asked first, with the peer's host: an IPv4 address, or an IPv6 address without scope.
    """

    def __init__(self, log: LimitLog, max_connections: int = 0, max_per_address: int = 0) -> None:
        self.rules: list[Rule] = []
        self.max_connections = min(max_connections or descriptor_limit(), descriptor_limit())
        self.max_per_address = max_per_address or self.max_connections
        self._log = log
        self._connections = 0
        self._by_address: Counter[str] = Counter()

    @property
    def connections(self) -> int:
        """Connections that are open."""
        return self._connections

    def admit(self, peer_host: str) -> str | None:
        """Count a connection from a host, as a transport tells it; None if it is refused.

        Returns the key for ``leave``.
        """
        host = plain_host(peer_host)
        for rule in self.rules:
            why = rule(host)
            if why is not None:
                self._log.reached(
                    "connections refused by address", "{host}: connection refused: {why}", host=host, why=why
                )
                return None
        if self._connections >= self.max_connections:
            self._log.reached(
                "connections refused",
                "{host}: connection refused: {limit} are open, the limit (serverMaxConnections, open files of the process)",
                host=host,
                limit=self.max_connections,
            )
            return None
        key = address_key(host)
        if self._by_address[key] >= self.max_per_address:
            self._log.reached(
                "connections refused of one address",
                "{host}: connection refused: {limit} are open from {key}, the limit (serverMaxConnectionsPerAddress)",
                host=host,
                key=key,
                limit=self.max_per_address,
            )
            return None
        self._connections += 1
        self._by_address[key] += 1
        return key

    def leave(self, key: str) -> None:
        """Count the end of a connection that was admitted."""
        self._connections -= 1
        self._by_address[key] -= 1
        if not self._by_address[key]:
            del self._by_address[key]


def only_from(text: str) -> Rule:
    """Make the rule of a list of networks, ``serverAllowedAddresses``."""
    allowed = network_list(text)

    def rule(host: str) -> str | None:
        return None if allowed.allows(host) else f"its address is not in serverAllowedAddresses = {text}"

    return rule


def descriptor_limit() -> int:
    """Return how many connections the limit of open files of this process allows."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return 1 << 30
    return int(max(soft - _OTHER_FILES, soft // 2) // _DESCRIPTORS)


def plain_host(host: str) -> str:
    """Return an address without its scope, and a mapped one as IPv4."""
    parsed = ip_address(host.partition("%")[0])
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is not None:
        parsed = parsed.ipv4_mapped
    return str(parsed)


def address_key(host: str) -> str:
    """Return the unit in which connections are counted: an IPv4 address, or the /64 network of an IPv6 address."""
    parsed = ip_address(host)
    if isinstance(parsed, IPv6Address) and not parsed.is_loopback:
        return str(IPv6Address(int(parsed) >> 64 << 64)) + "/64"
    return host
