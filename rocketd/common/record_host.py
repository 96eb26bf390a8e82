"""Host fields of records, and the message ids that begin with one.

Answers to Apache's MessageDecoder.createMessageId. A field is an address of 4 or 16 bytes and a port of 4, big-endian.
"""

from functools import lru_cache
from socket import AF_INET, AF_INET6, inet_ntop

_IPV4_SIZE = 4
_OFFSET_SIZE = 8
_ID_SIZES = (4 + 4 + _OFFSET_SIZE, 16 + 4 + _OFFSET_SIZE)


@lru_cache(1024)  # all records of a client have its host
def host_text(host: bytes) -> str:
    """Write a host field as ``address:port``, an IPv6 address in brackets."""
    address, port = host[:-4], int.from_bytes(host[-4:], "big")
    if len(address) == _IPV4_SIZE:
        return f"{inet_ntop(AF_INET, address)}:{port}"
    return f"[{inet_ntop(AF_INET6, address)}]:{port}"


def offset_message_id(store_host: bytes, physical_offset: int) -> str:
    """Write the id that tells where a message is: the broker's host field and the offset in its log, in hexadecimal."""
    return f"{store_host.hex()}{physical_offset:016x}".upper()


def parse_offset_message_id(text: str) -> tuple[str, int] | None:
    """Read such an id: ``address:port`` and the physical offset; None when it cannot be one."""
    try:
        data = bytes.fromhex(text)
    except ValueError:
        return None
    if len(data) not in _ID_SIZES:
        return None
    return host_text(data[:-_OFFSET_SIZE]), int.from_bytes(data[-_OFFSET_SIZE:], "big")
