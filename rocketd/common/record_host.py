"""Host fields of records, and the message ids that begin with one.

Counterpart: `MessageDecoder.createMessageId` (Apache). A field is an address of 4 or 16 bytes and a port of 4,
big-endian.
"""

from functools import lru_cache
from socket import AF_INET, AF_INET6, inet_ntop

_IPV4_SIZE = 4
_OFFSET_SIZE = 8
_ID_SIZES = (4 + 4 + _OFFSET_SIZE, 16 + 4 + _OFFSET_SIZE)


@lru_cache(1024)  # all records of a client share its host
def host_text(host: bytes) -> str:
    """Return a host field as ``address:port``, with an IPv6 address in brackets."""
    address, port = host[:-4], int.from_bytes(host[-4:], "big")
    if len(address) == _IPV4_SIZE:
        return f"{inet_ntop(AF_INET, address)}:{port}"
    return f"[{inet_ntop(AF_INET6, address)}]:{port}"


def offset_message_id(store_host: bytes, physical_offset: int) -> str:
    """Return the id of a message's place: the broker's host field and the offset in its log, in hexadecimal."""
    return f"{store_host.hex()}{physical_offset:016x}".upper()


def physical_offset(message_id: str) -> int:
    """Return the offset in the broker's log from an id of `offset_message_id`."""
    return int(message_id[-2 * _OFFSET_SIZE :], 16)


def parse_offset_message_id(text: str) -> tuple[str, int] | None:
    """Parse such an id into (``address:port``, physical offset). None if it is invalid."""
    try:
        data = bytes.fromhex(text)
    except ValueError:
        return None
    if len(data) not in _ID_SIZES:
        return None
    return host_text(data[:-_OFFSET_SIZE]), int.from_bytes(data[-_OFFSET_SIZE:], "big")
