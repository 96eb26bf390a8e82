"""Lists of addresses and networks, as settings name the peers that are allowed.

No counterpart in Apache. Pure.
"""

from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

NETWORKS = (
    "any, none, or a list separated by commas of loopback, private, addresses and networks, "
    "like private,203.0.113.7,2001:db8::/32"
)

BROKERS = "brokers"
"""Word for addresses that a list does not say itself: see `is_broker_list`."""
BROKER_NETWORKS = NETWORKS.replace("loopback, ", "brokers, loopback, ")

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
    """The hosts that a text allows; ``brokers`` tells whether the word is in it.

    Raises ValueError for a text that is not such a list.
    """

    def __init__(self, text: str) -> None:
        parts = [part.strip() for part in text.split(",")]
        words = [part.lower() for part in parts]
        self.brokers = BROKERS in words
        self._networks: list[Network] = []
        for part, word in zip(parts, words, strict=True):
            if word != BROKERS:
                known = _WORDS.get(word)
                self._networks += (ip_network(part),) if known is None else known

    @property
    def takes_everybody(self) -> bool:
        """Whether all addresses of a family are in the list."""
        return any(network.prefixlen == 0 for network in self._networks)

    def allows(self, host: str) -> bool:
        """Tell whether a host is in the list: an IP address, with or without brackets and zone. Names are not."""
        address = parse_host(host)
        return address is not None and any(
            address.version == network.version and address in network for network in self._networks
        )


def parse_host(host: str) -> IPv4Address | IPv6Address | None:
    """Read an IP address, an IPv4 address that is mapped to IPv6 as the IPv4 address; None if it is neither."""
    try:
        address = ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


@lru_cache(maxsize=64)
def network_list(text: str) -> NetworkList:
    """Return the list of a text, parsed once. Raises ValueError."""
    return NetworkList(text)


def is_network_list(text: str) -> bool:
    """Tell whether a text is a list of networks, without the word for brokers."""
    return is_broker_list(text) and not network_list(text).brokers


def is_broker_list(text: str) -> bool:
    """Tell whether a text is a list of networks, in which ``brokers`` may stand for the addresses of known brokers."""
    try:
        network_list(text)
    except ValueError:
        return False
    return True
