"""Permissions of an account for topics and groups, and their text form.

Counterpart: `Permission` (Apache). Groups are stored under their retry topics, as resources beside topics. Pure
functions.
"""

from collections.abc import Iterable
from enum import IntFlag

from rocketd.acl.errors import AclError

RETRY_PREFIX = "%RETRY%"
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
"""Every account may send traces to this topic."""


class Permission(IntFlag):
    """Rights to a resource. DENY outweighs the others."""

    DENY = 1
    ANY = 2
    """Only needed, never owned: either PUB or SUB is enough."""
    PUB = 4
    SUB = 8


_and = int.__and__
_DENY, _ANY, _PUB_OR_SUB = int(Permission.DENY), int(Permission.ANY), int(Permission.PUB | Permission.SUB)

_BY_TEXT = {
    "DENY": Permission.DENY,
    "PUB": Permission.PUB,
    "SUB": Permission.SUB,
    "PUB|SUB": Permission.PUB | Permission.SUB,
    "SUB|PUB": Permission.PUB | Permission.SUB,
}

PERMISSIONS = tuple(_BY_TEXT)
"""All text forms of permissions."""


def parse_permission(text: str | None) -> Permission:
    """Parse a permission. Absent or unknown ones are DENY."""
    return Permission.DENY if text is None else _BY_TEXT.get(text.strip(), Permission.DENY)


def describe(permission: Permission) -> str:
    """Return a permission in its text form."""
    return "|".join(flag.name or "" for flag in Permission if flag & permission)


def grants(owned: Permission, needed: Permission) -> bool:
    """Return whether an account's permission is enough for a request."""
    # On plain numbers: an operator of IntFlag costs a microsecond, for each message.
    if _and(owned, _DENY):
        return False
    return bool(_and(owned, _PUB_OR_SUB if _and(needed, _ANY) else needed))


def parse_resources(entries: Iterable[str], *, topics: bool) -> dict[str, Permission]:
    """Parse entries such as ``topicA=PUB|SUB``. Groups are returned as their retry topics. Raises AclError."""
    resources = {}
    for entry in entries:
        parts = _split(entry)
        if len(parts) != 2:
            raise AclError(f"Parse resource permission failed for {'topic' if topics else 'group'}:{entry}")
        name = parts[0].strip()
        resources[name if topics else retry_topic(name)] = parse_permission(parts[1])
    return resources


def check_entries(entries: Iterable[str] | None) -> None:
    """Refuse obviously wrong entries before they are stored. Raises AclError."""
    for entry in entries or ():
        parts = _split(entry)
        if len(parts) != 2:
            raise AclError(
                f"Parse Resource format error for {entry}.\n"
                "The expected resource format is 'Res=Perm'. For example: topicA=SUB"
            )
        if parts[1].strip() not in _BY_TEXT:
            raise AclError(
                f"Parse resource permission error for {entry}.\n"
                "The expected permissions are 'SUB' or 'PUB' or 'SUB|PUB' or 'PUB|SUB'."
            )


def retry_topic(group: str) -> str:
    """Return the resource of a group."""
    return RETRY_PREFIX + group


def shown(resource: str) -> str:
    """Return a resource for people: ``topic:T`` or ``group:G``."""
    if resource.startswith(RETRY_PREFIX):
        return "group:" + resource[len(RETRY_PREFIX) :]
    return "topic:" + resource


def _split(entry: str) -> list[str]:
    return [part for part in entry.split("=") if part]
