"""Checks of the values of options and arguments, for click's ``type``.

Each is a function that reads a text and raises `click.BadParameter`. Its message continues the option's name:
``--count '0': accepted is a number from 1 on``. A default is written as on the command line, and read the same way.
"""

from collections.abc import Callable

import click

from rocketd.common.names import group_fault, topic_fault
from rocketd.common.settings.checks import ADDRESSES, is_address_list


def whole_number(minimum: int, maximum: int | None = None) -> Callable[[str], int]:
    """Return a check for whole numbers between two bounds, both included."""
    bounds = f"from {minimum} on" if maximum is None else f"from {minimum} to {maximum}"

    def number(text: str) -> int:
        # No number that fits has more digits; int() refuses thousands of them with another error.
        value = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else minimum - 1
        if value < minimum or (maximum is not None and value > maximum):
            raise click.BadParameter(f"{text!r}: accepted is a number {bounds}")
        return value

    return number


def one_of(*words: str) -> Callable[[str], str]:
    """Return a check for one of several words."""

    def word(text: str) -> str:
        if text not in words:
            raise click.BadParameter(f"{text!r}: accepted is {' or '.join(words)}")
        return text

    return word


def seconds(text: str) -> float:
    """Read a positive number of seconds. Infinity is refused."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise click.BadParameter(f"{text!r}: accepted is a number of seconds above 0")
    return value


def name_servers(text: str) -> list[str]:
    """Read addresses separated by semicolons: a list of ``host:port``."""
    if not is_address_list(text):
        raise click.BadParameter(f"{text!r}: accepted is {ADDRESSES}")
    return [part.strip() for part in text.rstrip("; ").split(";")]


def topic_name(text: str) -> str:
    """Read the name of a topic."""
    return _sound_name(text, topic_fault(text))


def group_name(text: str) -> str:
    """Read the name of a consumer or producer group."""
    return _sound_name(text, group_fault(text))


def _sound_name(text: str, fault: str | None) -> str:
    if fault is not None:
        raise click.BadParameter(f"{text!r}: {fault}")
    return text


def key_value(text: str) -> tuple[str, str]:
    """Read KEY=VALUE. Blanks around the key are dropped; the value is kept as it is."""
    key, separator, value = text.partition("=")
    if not separator or not key.strip():
        raise click.BadParameter(f"{text!r}: accepted is KEY=VALUE")
    return key.strip(), value


POSITIVE = whole_number(1)
PORT = whole_number(0, 65535)
"""A TCP port; 0 stands for a free one."""
