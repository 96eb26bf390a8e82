"""Names of the versions that commands carry as numbers.

Answers to the enum of Apache's MQVersion, whose ordinals are the numbers: in a regular sequence but for the first 16.
"""

from functools import cache

V3_0_7_SNAPSHOT = 28
"""First version whose consumers can be told new offsets, or asked for theirs."""
V3_1_8_SNAPSHOT = 62
"""First version whose consumers tell how they are and consume on request."""


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
    """Name a version; what is newer than all known ones is HIGHER_VERSION, what is no version is its number."""
    names = _names()
    return names[min(number, len(names) - 1)] if number >= 0 else str(number)
