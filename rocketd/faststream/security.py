"""Accounts and TLS: of FastStream's security objects for the client, and of the client's for the AsyncAPI document.

Answers to AclClientRPCHook, as FastStream says it.
"""

from dataclasses import replace
from typing import Any

from faststream.exceptions import SetupError
from faststream.security import BaseSecurity, SASLPlaintext

from rocketd.acl.credentials import Credentials
from rocketd.client.config import ClientConfig


class AccountSecurity(BaseSecurity):
    """An account that signs requests, as the AsyncAPI document shows it."""

    def get_requirement(self) -> list[dict[str, Any]]:
        """Name what is needed."""
        return [{"account": []}]

    def get_schema(self) -> dict[str, dict[str, str]]:
        """Describe it: a name and a secret; the secret itself is never sent."""
        return {"account": {"type": "userPassword", "description": "access key and secret key, which signs requests"}}


def secured(config: ClientConfig, security: BaseSecurity | None) -> ClientConfig:
    """Return the config with what a security object says: TLS, and of SASLPlaintext the account.

    Raises SetupError for what RocketMQ does not know.
    """
    if security is None:
        return config
    if security.ssl_context is not None:
        raise SetupError("the client makes its own TLS context: give ClientConfig(tls=TlsConfig(...)) instead")
    if type(security) not in (BaseSecurity, SASLPlaintext):
        raise SetupError(
            f"RocketMQ has no {type(security).__name__}: accounts are SASLPlaintext(access key, secret key)"
        )
    if isinstance(security, SASLPlaintext):
        config = replace(config, credentials=Credentials(security.username, security.password))
    return replace(config, tls=config.tls or security.use_ssl)


def documented(config: ClientConfig) -> BaseSecurity | None:
    """Return what the AsyncAPI document is to say of a config."""
    if config.credentials is not None:
        return AccountSecurity(use_ssl=bool(config.tls))
    return BaseSecurity(use_ssl=True) if config.tls else None
