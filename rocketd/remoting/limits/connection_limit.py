"""Admission of accepted connections: by total number, by number per address, and by further rules.

Apache's servers accept connections until they run out of descriptors. Reactor thread only.
"""

import resource
from collections import Counter
from collections.abc import Callable

from rocketd.common.networks import network_list
from rocketd.remoting.limits.limit_log import LimitLog
from rocketd.remoting.peer import address_key, plain_host

MakeRoom = Callable[[str], bool]
"""Closes a connection of the busiest address, given by its key, and calls ``leave`` for it. Returns False if there is
none.
"""

Rule = Callable[[str], str | None]
"""Given the host of a peer, returns the reason of a refusal, or None."""

_OTHER_FILES = 1000
"""Descriptors reserved for the store and for outgoing connections."""
_DESCRIPTORS = 2
"""Descriptors of one connection, see `Connection.connectionMade`."""


class AddressCounts:
    """Connections of each address, and an address that has most. Each call takes the same short time."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._levels: list[dict[str, None]] = []
        """The addresses with one connection, with two, and so on."""

    def __getitem__(self, key: str) -> int:
        """Return the number of connections of an address."""
        return self._counts[key]

    def add(self, key: str) -> None:
        """Count one connection more."""
        self._leave_level(key)
        self._counts[key] += 1
        if len(self._levels) < self._counts[key]:
            self._levels.append({})
        self._levels[self._counts[key] - 1][key] = None

    def remove(self, key: str) -> None:
        """Count one connection less."""
        self._leave_level(key)
        self._counts[key] -= 1
        if self._counts[key]:
            self._levels[self._counts[key] - 1][key] = None
        else:
            del self._counts[key]
        while self._levels and not self._levels[-1]:
            self._levels.pop()

    def busiest(self) -> str | None:
        """Return an address that has most connections, None without any."""
        return next(iter(self._levels[-1])) if self._levels else None

    def _leave_level(self, key: str) -> None:
        if self._counts[key]:
            del self._levels[self._counts[key] - 1][key]


class ConnectionAdmission:
    """Counts connections and refuses those beyond a limit. 0 means the limit of the process.

    ``rules`` are called first with the peer's host: an IPv4 address, or an IPv6 address without scope. If all places
    are taken, ``make_room`` is called for the address with the most connections, unless it is the newcomer's.
    """

    def __init__(self, log: LimitLog, max_connections: int = 0, max_per_address: int = 0) -> None:
        self.rules: list[Rule] = []
        self.make_room: MakeRoom = lambda _: False
        self.max_connections = min(max_connections or descriptor_limit(), descriptor_limit())
        self.max_per_address = max_per_address or self.max_connections
        self._log = log
        self._connections = 0
        self._by_address = AddressCounts()

    @property
    def connections(self) -> int:
        """Number of open connections."""
        return self._connections

    def admit(self, peer_host: str) -> str | None:
        """Count a connection from a host, as named by a transport. Return the key for ``leave``, or None if it is
        refused.
        """
        host = plain_host(peer_host)
        for rule in self.rules:
            why = rule(host)
            if why is not None:
                self._log.reached(
                    "connections refused by address", "{host}: connection refused: {why}", host=host, why=why
                )
                return None
        key = address_key(host)
        if self._connections >= self.max_connections and not self._take_place(key):
            self._log.reached(
                "connections refused",
                "{host}: connection refused: {limit} are open, the limit (serverMaxConnections, open files of the process)",
                host=host,
                limit=self.max_connections,
            )
            return None
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
        self._by_address.add(key)
        return key

    def _take_place(self, key: str) -> bool:
        """Take a place from the busiest address for a newcomer with fewer connections. Return whether it was possible."""
        busiest = self._by_address.busiest()
        if busiest is None:
            return False
        count = self._by_address[busiest]
        if count <= self._by_address[key] + 1 or not self.make_room(busiest):
            return False
        self._log.reached(
            "connections closed for another address",
            "{busiest}: a quiet connection of it is closed: all {limit} connections are in use, {taken} of them by this "
            "address, and {key} needs one (serverMaxConnections, open files of the process)",
            busiest=busiest,
            taken=count,
            key=key,
            limit=self.max_connections,
        )
        return True

    def leave(self, key: str) -> None:
        """Count the end of an admitted connection."""
        self._connections -= 1
        self._by_address.remove(key)


def only_from(text: str) -> Rule:
    """Return the rule for a list of networks, ``serverAllowedAddresses``."""
    allowed = network_list(text)

    def rule(host: str) -> str | None:
        return None if allowed.allows(host) else f"its address is not in serverAllowedAddresses = {text}"

    return rule


def descriptor_limit() -> int:
    """Return the number of connections allowed by the limit of open files of this process."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return 1 << 30
    return int(max(soft - _OTHER_FILES, soft // 2) // _DESCRIPTORS)
