"""The signature of a request.

Answers to Apache's AclSigner and AclUtils.combineRequestContent: HMAC-SHA1, under the account's secret, of the values of all
fields in the order of their names, followed by the body, in Base64. Pure.
"""

from binascii import b2a_base64
from collections.abc import Mapping
from hmac import compare_digest, digest

ACCESS_KEY = "AccessKey"
SECURITY_TOKEN = "SecurityToken"
SIGNATURE = "Signature"
NOT_SIGNED = frozenset((SIGNATURE, "_UNIQUE_KEY_QUERY"))
"""Fields that a signature leaves out: itself, and one that clients add to a request that is signed already."""


def signed_content(fields: Mapping[str, str], body: bytes | memoryview | None) -> bytes:
    """Join what is signed of a request."""
    content = "".join([fields[name] for name in sorted(fields) if name not in NOT_SIGNED]).encode("utf-8", "replace")
    return b"".join((content, body)) if body else content


def signature_of(content: bytes, secret: bytes) -> bytes:
    """Sign content: 28 bytes of Base64."""
    return b2a_base64(digest(secret, content, "sha1"), newline=False)


def is_signed(signature: str | None, content: bytes, secret: bytes) -> bool:
    """Whether a signature is right; takes as long for every wrong one."""
    return compare_digest(signature_of(content, secret), (signature or "").encode("utf-8", "replace"))
