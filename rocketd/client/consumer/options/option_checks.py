"""Checks of numeric options.

Counterpart: `checkConfig` of `DefaultMQPushConsumerImpl` (Apache). Pure functions.
"""

from rocketd.client.errors import IllegalOptionError


def check_number(option: str, value: object, minimum: int, maximum: int) -> None:
    """Raise IllegalOptionError unless an option's value is a whole number from ``minimum`` to ``maximum``."""
    if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= maximum:
        raise IllegalOptionError(f"{option}={value!r}: accepted is a whole number from {minimum} to {maximum}")
