"""How the other end of a connection is named.

Answers to RemotingHelper.parseChannelRemoteAddr and to the hosts of MessageExt. A port that serves both families sees an
IPv4 peer as ``::ffff:a.b.c.d``; here it is plain IPv4 again, so that tables, logs and records hold what the peer is. Pure.
"""

from ipaddress import IPv6Address, ip_address
from typing import Any, NamedTuple


class Peer(NamedTuple):
    """``address`` is ``host:port``, an IPv6 host in brackets; ``host`` is 8 or 20 bytes, as records hold it."""

    address: str
    host: bytes


def peer_of(peer: Any) -> Peer:
    """Name a peer of its IPv4Address or IPv6Address, as transports tell it."""
    scoped, port = peer.host, peer.port
    parsed = ip_address(scoped.partition("%")[0])
    if isinstance(parsed, IPv6Address):
        if parsed.ipv4_mapped is None:
            return Peer(f"[{scoped}]:{port}", parsed.packed + port.to_bytes(4, "big"))
        parsed = parsed.ipv4_mapped
    return Peer(f"{parsed}:{port}", parsed.packed + port.to_bytes(4, "big"))
