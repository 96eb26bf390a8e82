"""The signature of a request.

Counterpart: `AclSigner` and `AclUtils.combineRequestContent` (Apache): HMAC-SHA1 with the account's secret over the
values of all fields, sorted by their names, followed by the body, in Base64. Pure functions.
"""

from binascii import b2a_base64
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from hashlib import sha1
from hmac import compare_digest
from operator import itemgetter

ACCESS_KEY = "AccessKey"
SECURITY_TOKEN = "SecurityToken"
SIGNATURE = "Signature"
UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"
NOT_SIGNED = frozenset((SIGNATURE, UNIQUE_KEY_QUERY))
"""Fields not signed by brokers: the signature itself, and one of queries by key."""

KEY_LENGTH = 6
"""Access key and secret must be longer than this."""

_REMEMBERED_NAMES = 64
_REMEMBERED_LENGTH = 1024
"""Larger sets of field names are not cached. No RocketMQ client has such."""

_BLOCK = 64
"""Block size of SHA-1 in bytes."""


def signed_content(fields: Mapping[str, str], body: bytes | memoryview | None) -> bytes:
    """Return the bytes of a request covered by its signature, as computed by brokers.

    These are the values of the fields in the order of their names, without `NOT_SIGNED`, then the body.
    """
    names = tuple(fields)
    few = len(names) <= _REMEMBERED_NAMES and sum(map(len, names)) <= _REMEMBERED_LENGTH
    values = (_signed_values if few else _signed_values.__wrapped__)(names)(fields)
    content = "".join(values).encode("utf-8", "replace")
    return b"".join((content, body)) if body else content


def query_content(fields: Mapping[str, str], body: bytes | memoryview | None) -> bytes:
    """Return the content signed by Java clients for a query by key. It includes ``UNIQUE_KEY_QUERY``, unlike Apache's
    broker.
    """
    content = "".join(fields[name] for name in sorted(fields) if name != SIGNATURE).encode("utf-8", "replace")
    return b"".join((content, body)) if body else content


@lru_cache(maxsize=1024)
def _signed_values(names: tuple[str, ...]) -> Callable[[Mapping[str, str]], Iterable[str]]:
    """Return a function of the fields with these names that returns their signed values in order. Cached: orders are
    few.
    """
    signed = sorted(set(names) - NOT_SIGNED)
    if len(signed) > 1:
        return itemgetter(*signed)
    return lambda fields: [fields[name] for name in signed]


class Secret:
    """Signs content. Hidden when printed. Any thread.

    The two hash states that depend only on the key are computed once. They are most of the cost of a small request.
    """

    __slots__ = ("_inner", "_outer")

    def __init__(self, key: bytes) -> None:
        block = (sha1(key).digest() if len(key) > _BLOCK else key).ljust(_BLOCK, b"\0")
        self._inner = sha1(bytes(byte ^ 0x36 for byte in block))
        self._outer = sha1(bytes(byte ^ 0x5C for byte in block))

    def sign(self, content: bytes) -> bytes:
        """Return the signature of content: 28 bytes of Base64."""
        inner = self._inner.copy()
        inner.update(content)
        outer = self._outer.copy()
        outer.update(inner.digest())
        return b2a_base64(outer.digest(), newline=False)

    def has_signed(self, content: bytes, signature: str | None) -> bool:
        """Return whether a signature belongs to the content, in constant time."""
        return compare_digest(self.sign(content), (signature or "").encode("utf-8", "replace"))
