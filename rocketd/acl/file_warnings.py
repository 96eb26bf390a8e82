"""Warnings about meaningless keys and permissions in account files, likely typos.

Apache's broker silently ignores unknown members and takes unknown permissions for DENY. The effect is the same here,
but the operator is warned. Pure functions.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from rocketd.acl.permissions import PERMISSIONS
from rocketd.common.suggest import did_you_mean

_DEFAULTS = ("defaultTopicPerm", "defaultGroupPerm")
_ENTRIES = ("topicPerms", "groupPerms")


def unknown_members(document: Mapping[Any, Any], known: Collection[str], shared: Collection[str]) -> Iterator[str]:
    """Describe the members of a file that are neither known nor referenced by others."""
    for name in document:
        if name not in known and name not in shared:
            yield f"{name} is not a known key{did_you_mean(str(name), known)}"


def warnings_of_account(entry: Mapping[Any, Any], known: Sequence[str]) -> Iterator[str]:
    """Describe the meaningless parts of an account whose members have the right types."""
    for name in entry:
        if name not in known:
            yield f"{name} is not a known key{did_you_mean(str(name), known)}"
    for name in _DEFAULTS:
        text = entry.get(name)
        if text:
            yield from _warning(text, f"{name}: {text}")
    for name in _ENTRIES:
        for text in entry.get(name) or ():
            yield from _warning(text.rpartition("=")[2], f"{name}: {text}")


def _warning(permission: str, where: str) -> Iterator[str]:
    if permission.strip() not in PERMISSIONS:
        hint = did_you_mean(permission.strip(), PERMISSIONS) or f"; known are {', '.join(PERMISSIONS)}"
        yield f"{where} is not a permission and counts as DENY{hint}"
