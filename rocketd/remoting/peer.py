"""Address of the other end of a connection.

Counterpart: `RemotingHelper.parseChannelRemoteAddr`, and the hosts of `MessageExt` (Apache). A port for both families
sees an IPv4 peer as ``::ffff:a.b.c.d``. Here it becomes plain IPv4 again, for tables, logs and records. Pure functions.
"""

from ipaddress import IPv6Address, ip_address
from typing import Any, NamedTuple


def plain_host(host: str) -> str:
    """Return an address without its scope, and a mapped one as IPv4."""
    parsed = ip_address(host.partition("%")[0])
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is not None:
        parsed = parsed.ipv4_mapped
    return str(parsed)


def address_key(host: str) -> str:
    """Return the unit of limits per address: an IPv4 address, or the /64 network of an IPv6 address."""
    parsed = ip_address(host)
    if isinstance(parsed, IPv6Address) and not parsed.is_loopback:
        return str(IPv6Address(int(parsed) >> 64 << 64)) + "/64"
    return host


def peer_network(address: str) -> str:
    """Return the ``address_key`` of a peer's ``host:port``, as in ``Peer``; "" for "", the server itself."""
    host = address.rpartition(":")[0].strip("[]")
    return address_key(plain_host(host)) if host else ""


class Peer(NamedTuple):
    """``address`` is ``host:port``, an IPv6 host in brackets. ``host`` is 8 or 20 bytes, as in records."""

    address: str
    host: bytes


def peer_of(peer: Any) -> Peer:
    """Return the Peer of a transport's IPv4Address or IPv6Address."""
    scoped, port = peer.host, peer.port
    parsed = ip_address(scoped.partition("%")[0])
    if isinstance(parsed, IPv6Address):
        if parsed.ipv4_mapped is None:
            return Peer(f"[{scoped}]:{port}", parsed.packed + port.to_bytes(4, "big"))
        parsed = parsed.ipv4_mapped
    return Peer(f"{parsed}:{port}", parsed.packed + port.to_bytes(4, "big"))
