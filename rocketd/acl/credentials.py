"""Credentials of a client, for signing its requests.

Counterpart: `SessionCredentials` and `AclClientRPCHook` (Apache).
"""

from collections.abc import Mapping

from rocketd.acl.signature import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE, Secret, signed_content


class Credentials:
    """An account's name and secret. The secret is hidden when printed."""

    def __init__(self, access_key: str, secret_key: str, security_token: str | None = None) -> None:
        self.access_key = access_key
        self.security_token = security_token
        self._secret = Secret(secret_key.encode("utf-8", "replace"))

    def sign(self, fields: Mapping[str, str] | None, body: bytes | None) -> dict[str, str]:
        """Return the fields of a request including those of its signature."""
        signed = {**(fields or {}), ACCESS_KEY: self.access_key}
        if self.security_token is not None:
            signed[SECURITY_TOKEN] = self.security_token
        signed[SIGNATURE] = self._secret.sign(signed_content(signed, body)).decode()
        return signed
