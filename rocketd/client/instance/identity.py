"""The identity of a client: its id, and the beginning of its messages' unique keys.

Counterpart: `ClientConfig.buildMQClientId` and `MessageClientIDSetter` (Apache).
"""

import socket
from ipaddress import ip_address


def local_address() -> str:
    """Return this machine's address for outgoing traffic; the loopback address without a network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing: it only makes the system choose a route
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


def client_id(address: str, instance_name: str) -> str:
    """Return the id of a client: its address and a name unique on this machine."""
    return f"{address}@{instance_name}"


def key_head(address: str, process_id: int, salt: bytes) -> bytes:
    """Return the beginning of this process's unique keys: 10 bytes, or 22 with an IPv6 address. ``salt`` has 4 bytes."""
    if len(salt) != 4:
        raise ValueError("the salt has four bytes")
    return ip_address(address).packed + (process_id & 0xFFFF).to_bytes(2, "big") + salt
