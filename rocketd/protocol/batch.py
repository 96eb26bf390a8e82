"""Several messages as the body of one request.

Counterpart: `MessageBatch` and `MessageDecoder.encodeMessages` (Apache). Pure functions.
"""

from struct import Struct
from typing import Final

from rocketd.common.message_properties import WAIT, encode_properties

_HEAD: Final = Struct(">iiiii")
_PROPERTIES_SIZE: Final = Struct(">h")

ENTRY_OVERHEAD: Final = _HEAD.size + _PROPERTIES_SIZE.size
"""Bytes of an entry in addition to the body and the properties."""

RECORD_OVERHEAD: Final = 150
"""Upper bound for the bytes of a stored record in addition to topic, body and properties."""


def batch_entry(body: bytes, properties: bytes, flag: int) -> bytes:
    """Encode one message of a batch. ``properties`` is the property string in UTF-8. Bodies are not compressed."""
    head = _HEAD.pack(ENTRY_OVERHEAD + len(body) + len(properties), 0, 0, flag, len(body))
    return b"".join((head, body, _PROPERTIES_SIZE.pack(len(properties)), properties))


def batch_properties(wait_stored: bool) -> str:
    """Return the properties of a request with a batch: whether the broker waits for its flush or replication."""
    return encode_properties({WAIT: "true" if wait_stored else "false"})
