"""Checks of numeric options.

Counterpart: `checkConfig` of `DefaultMQPushConsumerImpl` (Apache). Pure functions.
"""

from rocketd.client.errors import IllegalOptionError


def check_number(option: str, value: object, least: int, most: int) -> None:
    """Raise IllegalOptionError unless an option's value is a whole number from ``least`` to ``most``."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise IllegalOptionError(f"{option}={value!r}: accepted is a whole number from {least} to {most}")
