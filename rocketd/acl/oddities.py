"""What in a file of accounts means nothing, and was probably meant.

Answers to nothing in Apache's broker, which passes over unknown members and takes unknown permissions for DENY in silence.
The effect is the same here; the operator is told. Pure.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from rocketd.acl.permissions import PERMISSIONS
from rocketd.common.suggest import did_you_mean

_DEFAULTS = ("defaultTopicPerm", "defaultGroupPerm")
_ENTRIES = ("topicPerms", "groupPerms")


def unknown_members(document: Mapping[Any, Any], known: Collection[str], shared: Collection[str]) -> Iterator[str]:
    """Describe the members of a file that are none of the known ones, nor those that others refer to."""
    for name in document:
        if name not in known and name not in shared:
            yield f"{name} means nothing there{did_you_mean(str(name), known)}"


def oddities_of_account(entry: Mapping[Any, Any], known: Sequence[str]) -> Iterator[str]:
    """Describe what means nothing in an account whose members have the right types."""
    for name in entry:
        if name not in known:
            yield f"{name} means nothing there{did_you_mean(str(name), known)}"
    for name in _DEFAULTS:
        text = entry.get(name)
        if text:
            yield from _oddity(text, f"{name}: {text}")
    for name in _ENTRIES:
        for text in entry.get(name) or ():
            yield from _oddity(text.rpartition("=")[2], f"{name}: {text}")


def _oddity(permission: str, where: str) -> Iterator[str]:
    if permission.strip() not in PERMISSIONS:
        hint = did_you_mean(permission.strip(), PERMISSIONS) or f"; known are {', '.join(PERMISSIONS)}"
        yield f"{where} names no permission and counts as DENY{hint}"
