"""One account: as configured, and as enforced.

Counterpart: `PlainAccessConfig` and `PlainAccessResource` (Apache). Both hide their secret when printed. Pure
functions.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from rocketd.acl.addresses import AddressRule, address_rule
from rocketd.acl.errors import AclError, NoPermissionError, NotAdminError
from rocketd.acl.permissions import (
    RETRY_PREFIX,
    Permission,
    describe,
    grants,
    parse_permission,
    parse_resources,
    shown,
)
from rocketd.acl.signature import KEY_LENGTH, Secret

ADMIN_CODES = frozenset((17, 25, 200, 207, 215))
"""Changes of topics, groups and settings."""

OWN_ADMIN_CODES = frozenset((30004,))
"""Requests of rocketd: the audit of all changes."""


@dataclass
class AccountConfig:
    """An account in files and requests. None means absent."""

    access_key: str | None = None
    secret_key: str | None = field(default=None, repr=False)
    white_remote_address: str | None = None
    admin: bool = False
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: list[str] | None = None
    group_perms: list[str] | None = None

    @property
    def has_good_keys(self) -> bool:
        """Whether access key and secret are present and long enough."""
        return len(self.access_key or "") > KEY_LENGTH and len(self.secret_key or "") > KEY_LENGTH


@dataclass(frozen=True, slots=True)
class Account:
    """An account as enforced. ``resources`` maps topics, and groups by their retry topics, to permissions."""

    access_key: str
    secret: Secret = field(repr=False)
    is_white: AddressRule
    admin: bool
    default_topic: Permission
    default_group: Permission
    resources: Mapping[str, Permission]

    @classmethod
    def of(cls, config: AccountConfig) -> "Account":
        """Return the account of a configuration. Raises AclError; its text does not contain the secret."""
        if config.access_key is None or config.secret_key is None or not config.has_good_keys:
            raise AclError(f"accessKey and secretKey must both be present and longer than {KEY_LENGTH} characters")
        return cls(
            access_key=config.access_key,
            secret=Secret(config.secret_key.encode("utf-8", "replace")),
            is_white=address_rule(config.white_remote_address),
            admin=config.admin,
            default_topic=parse_permission(config.default_topic_perm),
            default_group=parse_permission(config.default_group_perm),
            resources={
                **parse_resources(config.group_perms or (), topics=False),
                **parse_resources(config.topic_perms or (), topics=True),
            },
        )

    def check(self, code: int, needed: Mapping[str, Permission], *, needs_admin: bool) -> None:
        """Refuse requests beyond this account's rights. Raises NotAdminError or NoPermissionError."""
        if needs_admin and not self.admin:
            raise NotAdminError(code, self.access_key)
        if self.admin and not self.resources:
            return
        for resource, permission in needed.items():
            owned = self.resources.get(resource)
            if owned is None:
                owned = self.default_group if resource.startswith(RETRY_PREFIX) else self.default_topic
            if not grants(owned, permission):
                raise NoPermissionError(shown(resource), self.access_key, describe(permission), describe(owned))
