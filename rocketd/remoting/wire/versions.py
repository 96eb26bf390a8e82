"""Version numbers of commands: their names, and the one written by this process.

Counterpart: `MQVersion` and `RemotingCommand` (Apache). The numbers are the ordinals of that enum. Except for the first
16, they follow a regular sequence.
"""

import os
from functools import cache

from rocketd.remoting.errors import RemotingCommandError
from rocketd.remoting.wire.codes import CURRENT_VERSION, MAX_VERSION, VERSION_VARIABLE

V3_0_7_SNAPSHOT = 28
"""First version whose consumers accept new offsets, or report theirs."""
V3_1_8_SNAPSHOT = 62
"""First version whose consumers report their state and consume on request."""

_own: int | None = None


def own_version() -> int:
    """Return the version of all commands of this process. The environment is read at the first call only.

    Any thread. Raises RemotingCommandError if the environment variable is not a version.
    """
    global _own
    if _own is None:
        _own = _version_of_environment()
    return _own


def set_own_version(version: int | None) -> None:
    """Set the version of this process before its first command is created. None means that of the environment."""
    global _own
    _own = version


def _version_of_environment() -> int:
    text = os.environ.get(VERSION_VARIABLE, "").strip()
    if not text:
        return CURRENT_VERSION
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(MAX_VERSION)) and int(text) <= MAX_VERSION):
        raise RemotingCommandError(
            f"environment variable {VERSION_VARIABLE}={text!r:.100} is not a version: accepted is a whole number from 0 to "
            f"{MAX_VERSION}"
        )
    return int(text)


@cache
def _names() -> tuple[str, ...]:
    first = [
        "0_SNAPSHOT",
        "0_ALPHA1",
        *(f"0_BETA{number}" for number in range(1, 6)),
        *(f"0_BETA{number}{state}" for number in range(6, 10) for state in ("_SNAPSHOT", "")),
        "0_FINAL",
    ]
    places = [
        *((3, 0, patch) for patch in range(1, 16)),
        *((3, minor, patch) for minor in (1, 2) for patch in range(10)),
        *((3, minor, patch) for minor in range(3, 10) for patch in range(1, 10)),
        *((major, minor, patch) for major in (4, 5) for minor in range(10) for patch in range(10)),
    ]
    regular = [f"V{a}_{b}_{c}{state}" for a, b, c in places for state in ("_SNAPSHOT", "")]
    return (*(f"V3_0_{name}" for name in first), *regular, "HIGHER_VERSION")


def version_name(number: int) -> str:
    """Return the name of a version, HIGHER_VERSION if it is newer than all known ones, or its number if it is negative."""
    names = _names()
    return names[min(number, len(names) - 1)] if number >= 0 else str(number)
