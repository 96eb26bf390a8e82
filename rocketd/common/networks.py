"""Lists of addresses and networks of allowed peers, as in settings. Pure functions."""

from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

NETWORKS = (
    "any, none, or a list separated by commas of loopback, private, addresses and networks, "
    "like private,203.0.113.7,2001:db8::/32"
)

ANY = "any"
NONE = "none"
LOOPBACK = "loopback"
PRIVATE = "private"

Network = IPv4Network | IPv6Network

_LOOPBACK = tuple(map(ip_network, ("127.0.0.0/8", "::1/128")))
_PRIVATE = (
    *_LOOPBACK,
    *map(ip_network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16", "fc00::/7", "fe80::/10")),
)
_WORDS: dict[str, tuple[Network, ...]] = {
    ANY: tuple(map(ip_network, ("0.0.0.0/0", "::/0"))),
    NONE: (),
    LOOPBACK: _LOOPBACK,
    PRIVATE: _PRIVATE,
}


class NetworkList:
    """The hosts allowed by a text. Raises ValueError if the text is not such a list."""

    def __init__(self, text: str) -> None:
        self._networks: list[Network] = []
        for part in text.split(","):
            known = _WORDS.get(part.strip().lower())
            self._networks += (ip_network(part.strip()),) if known is None else known

    @property
    def takes_everybody(self) -> bool:
        """Whether all IPv4 addresses or all IPv6 addresses are in the list."""
        return any(network.prefixlen == 0 for network in self._networks)

    def allows(self, host: str) -> bool:
        """Return whether a host is in the list. It is an IP address, with or without brackets and zone; names never
        match.
        """
        address = parse_host(host)
        return address is not None and any(
            address.version == network.version and address in network for network in self._networks
        )


def parse_host(host: str) -> IPv4Address | IPv6Address | None:
    """Parse an IP address; a mapped IPv4 address becomes plain IPv4. None if it is not an address."""
    try:
        address = ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


@lru_cache(maxsize=64)
def network_list(text: str) -> NetworkList:
    """Return the parsed list of a text, cached. Raises ValueError."""
    return NetworkList(text)


def is_network_list(text: str) -> bool:
    """Return whether a text is a list of networks."""
    try:
        network_list(text)
    except ValueError:
        return False
    return True
