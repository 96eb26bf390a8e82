"""Accounts and TLS: converts FastStream's security objects for the client, and the client's for the AsyncAPI document.

Counterpart: `AclClientRPCHook` (Apache).
"""

from dataclasses import replace
from typing import Any

from faststream.exceptions import SetupError
from faststream.security import BaseSecurity, SASLPlaintext

from rocketd.acl.credentials import Credentials
from rocketd.client.settings.config import ClientConfig


class AccountSecurity(BaseSecurity):
    """An account whose secret key signs requests, for the AsyncAPI document."""

    def get_requirement(self) -> list[dict[str, Any]]:
        """Return the name of the scheme."""
        return [{"account": []}]

    def get_schema(self) -> dict[str, dict[str, str]]:
        """Return the scheme: an access key and a secret key; the secret key itself is never sent."""
        return {"account": {"type": "userPassword", "description": "access key and secret key, which signs requests"}}


def secured(config: ClientConfig, security: BaseSecurity | None) -> ClientConfig:
    """Return the config with the values of a security object: TLS, and the account of SASLPlaintext.

    Raises SetupError for mechanisms that RocketMQ lacks.
    """
    if security is None:
        return config
    if security.ssl_context is not None:
        raise SetupError(
            "the client makes its own TLS context: give ClientConfig(tls=True, ca=...) or ClientConfig(tls=TlsConfig(...)) "
            "instead"
        )
    if type(security) not in (BaseSecurity, SASLPlaintext):
        raise SetupError(
            f"RocketMQ has no {type(security).__name__}: accounts are SASLPlaintext(access key, secret key)"
        )
    if isinstance(security, SASLPlaintext):
        config = replace(config, credentials=Credentials(security.username, security.password))
    return replace(config, tls=config.tls or security.use_ssl)


def documented(config: ClientConfig) -> BaseSecurity | None:
    """Return the description of a config for the AsyncAPI document."""
    if config.credentials is not None:
        return AccountSecurity(use_ssl=bool(config.tls))
    return BaseSecurity(use_ssl=True) if config.tls else None
