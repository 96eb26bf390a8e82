"""Numbers as parsed and compared by Java.

Counterpart: `Integer.valueOf`, `Long.valueOf`, `Double.valueOf` and `Double.compare` (Java). Pure functions. A text
that is not a number raises ValueError. Properties are parsed by these, so `1_000` or ` 5` is not an integer, as in
Java.
"""

import re
from math import copysign, inf, nan
from typing import Final

INT_MIN: Final = -(1 << 31)
INT_MAX: Final = (1 << 31) - 1
LONG_MIN: Final = -(1 << 63)
LONG_MAX: Final = (1 << 63) - 1

_SURE_INT: Final = 9
_SURE_LONG: Final = 18
"""Any number with so few digits is in range."""

# Java accepts decimal digits of all scripts, but only those within 16 bits.
_INTEGER: Final = re.compile("[+-]?[0-9]+")
_ANY_DIGITS: Final = re.compile(r"[+-]?\d+")

# Possessive digits: a long run of digits with a letter at its end must not cause backtracking.
_DOUBLE: Final = re.compile(r"[+-]?(?:NaN|Infinity|((?:[0-9]++\.?[0-9]*+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?)[fFdD]?)")
_HEX_DOUBLE: Final = re.compile(
    r"([+-]?)0[xX](?:([0-9a-fA-F]+)\.?|([0-9a-fA-F]*)\.([0-9a-fA-F]+))[pP]([+-]?[0-9]+)[fFdD]?"
)
_TRIMMED: Final = "".join(map(chr, range(0x21)))


def parse_int(text: str) -> int:
    """Parse an integer of 32 bits. Raises ValueError."""
    if len(text) <= _SURE_INT and text.isascii() and text.isdigit():
        return int(text)
    return _parse(text, INT_MIN, INT_MAX)


def parse_long(text: str) -> int:
    """Parse an integer of 64 bits. Raises ValueError."""
    if len(text) <= _SURE_LONG and text.isascii() and text.isdigit():
        return int(text)
    return _parse(text, LONG_MIN, LONG_MAX)


def _parse(text: str, low: int, high: int) -> int:
    if _INTEGER.fullmatch(text) is None and (_ANY_DIGITS.fullmatch(text) is None or max(text) > "\uffff"):
        raise ValueError(f"{text!r} is not an integer")
    value = int(text)
    if not low <= value <= high:
        raise ValueError(f"{text} is not between {low} and {high}")
    return value


def parse_double(text: str) -> float:
    """Parse a 64-bit number with a fraction: decimal or hexadecimal, NaN or Infinity. Raises ValueError."""
    text = text.strip(_TRIMMED)
    found = _DOUBLE.fullmatch(text)
    if found is not None:
        number = found[1]
        if number is not None:
            value = float(number)
        else:
            value = nan if text.endswith("NaN") else inf
        return -value if text[0] == "-" else value
    hexadecimal = _HEX_DOUBLE.fullmatch(text)
    if hexadecimal is None:
        raise ValueError(f"{text!r} is not a number")
    sign, whole, before, after, exponent = hexadecimal.groups()
    try:
        value = float.fromhex(f"{sign}0x{whole or before or '0'}.{after or '0'}p{exponent}")
    except OverflowError:
        value = -inf if sign == "-" else inf
    return value


def compare_doubles(left: float, right: float) -> int:
    """Return -1, 0 or 1. NaN equals itself and is greater than all others, -0.0 is less than 0.0."""
    if left < right:
        return -1
    if left > right:
        return 1
    return compare_integers(_rank(left), _rank(right))


def _rank(value: float) -> int:
    """Return the order of values not ordered by ``<``."""
    if value != value:
        return 1
    return -1 if value == 0.0 and copysign(1.0, value) < 0.0 else 0


def compare_integers(left: int, right: int) -> int:
    """Return -1, 0 or 1."""
    return (left > right) - (left < right)
