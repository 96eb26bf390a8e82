"""The signature of a request.

Answers to Apache's AclSigner and AclUtils.combineRequestContent: HMAC-SHA1, under the account's secret, of the values of all
fields in the order of their names, followed by the body, in Base64. Pure.
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
"""Fields that brokers leave out of what is signed: the signature itself, and one of queries by key."""

_REMEMBERED_NAMES = 64
_REMEMBERED_LENGTH = 1024
"""Names of fields that are more, or longer together, are not remembered: no client of RocketMQ has such."""

_BLOCK = 64
"""Bytes that SHA-1 works on at a time."""


def signed_content(fields: Mapping[str, str], body: bytes | memoryview | None) -> bytes:
    """Join what is signed of a request, as brokers do."""
    names = tuple(fields)
    few = len(names) <= _REMEMBERED_NAMES and sum(map(len, names)) <= _REMEMBERED_LENGTH
    values = (_signed_values if few else _signed_values.__wrapped__)(names)(fields)
    content = "".join(values).encode("utf-8", "replace")
    return b"".join((content, body)) if body else content


def query_content(fields: Mapping[str, str], body: bytes | memoryview | None) -> bytes:
    """Join what Java's clients sign of a query by key: ``UNIQUE_KEY_QUERY`` as well, which Apache's broker leaves out."""
    content = "".join(fields[name] for name in sorted(fields) if name != SIGNATURE).encode("utf-8", "replace")
    return b"".join((content, body)) if body else content


@lru_cache(maxsize=1024)
def _signed_values(names: tuple[str, ...]) -> Callable[[Mapping[str, str]], Iterable[str]]:
    """Make what picks the signed values of fields of these names, in their order: a client's come in few orders."""
    signed = sorted(set(names) - NOT_SIGNED)
    if len(signed) > 1:
        return itemgetter(*signed)
    return lambda fields: [fields[name] for name in signed]


class Secret:
    """What signs. It is not shown when this is printed, and may be used by any thread.

    The halves of HMAC that depend on the key alone are made once: they are most of the cost of a small request.
    """

    __slots__ = ("_inner", "_outer")

    def __init__(self, key: bytes) -> None:
        block = (sha1(key).digest() if len(key) > _BLOCK else key).ljust(_BLOCK, b"\0")
        self._inner = sha1(bytes(byte ^ 0x36 for byte in block))
        self._outer = sha1(bytes(byte ^ 0x5C for byte in block))

    def sign(self, content: bytes) -> bytes:
        """Sign content: 28 bytes of Base64."""
        inner = self._inner.copy()
        inner.update(content)
        outer = self._outer.copy()
        outer.update(inner.digest())
        return b2a_base64(outer.digest(), newline=False)

    def has_signed(self, content: bytes, signature: str | None) -> bool:
        """Whether a signature of content is this one's; takes as long for every wrong one."""
        return compare_digest(self.sign(content), (signature or "").encode("utf-8", "replace"))
