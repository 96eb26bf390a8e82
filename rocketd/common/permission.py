"""What clients may do with a topic, a queue or a broker: four bits.

Answers to Apache's PermName. Pure functions on the number that travels and is stored.
"""

from typing import Final

INHERIT: Final = 0x1
"""New topics may be made after this one."""
WRITE: Final = 0x2
READ: Final = 0x4
PRIORITY: Final = 0x8
"""Declared by Apache and checked by nobody."""


def is_readable(perm: int) -> bool:
    """Whether messages may be pulled."""
    return bool(perm & READ)


def is_writable(perm: int) -> bool:
    """Whether messages may be sent."""
    return bool(perm & WRITE)


def is_inherited(perm: int) -> bool:
    """Whether a topic of this permission is a template for new ones."""
    return bool(perm & INHERIT)


def describe(perm: int) -> str:
    """Write the three checked bits the way Apache's logs and tools do, such as ``RW-``."""
    return "".join(letter if perm & bit else "-" for letter, bit in (("R", READ), ("W", WRITE), ("X", INHERIT)))
