"""Permissions of clients on a topic, a queue or a broker: four bits.

Counterpart: `PermName` (Apache). Pure functions on the number sent and stored.
"""

from typing import Final

INHERIT: Final = 0x1
"""New topics may be created from this one."""
WRITE: Final = 0x2
READ: Final = 0x4
PRIORITY: Final = 0x8
"""Declared but never checked by Apache."""


def is_readable(perm: int) -> bool:
    """Return whether messages may be pulled."""
    return bool(perm & READ)


def is_writable(perm: int) -> bool:
    """Return whether messages may be sent."""
    return bool(perm & WRITE)


def is_inherited(perm: int) -> bool:
    """Return whether a topic of this permission is a template for new ones."""
    return bool(perm & INHERIT)


def describe(perm: int) -> str:
    """Return the three checked bits like Apache's logs and tools, such as ``RW-``."""
    return "".join(letter if perm & bit else "-" for letter, bit in (("R", READ), ("W", WRITE), ("X", INHERIT)))
