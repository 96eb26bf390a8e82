"""The reason why a message became a dead letter, as properties of the dead letter.

Apache's clients have no counterpart.
"""

from typing import Final

from rocketd.client import errors
from rocketd.client.consumer.retries.handler_results import Reject, Retry
from rocketd.common.message_properties import DEAD_LETTER_EXCEPTION

CONSUMER: Final = "DEAD_LETTER_CONSUMER"
"""The client id of the consumer."""

ATTEMPTS: Final = "DEAD_LETTER_ATTEMPTS"
"""The number of times the handler got the message."""

EXCEPTION: Final = DEAD_LETTER_EXCEPTION
"""The class of the handler's exception, with its module."""

REASON: Final = "DEAD_LETTER_REASON"
"""The first line of the exception's text."""

REDRIVEN_FROM: Final = "DEAD_LETTER_REDRIVEN_FROM"
"""The id of the dead letter's place. Only messages that a redrive has sent have it."""

MAX_REASON = 200
"""Maximum length of the first line. Properties of a message are limited."""


_PUBLIC: Final = {"rocketd.client.errors": errors.__all__, "rocketd.client": [Reject.__name__, Retry.__name__]}
"""The exceptions and results that applications import, by module."""

_NO_TEXT: Final = ("", str(Retry()))
"""First lines of a Reject and a Retry without a text of their own."""


def reason_properties(error: BaseException | None, client_id: str, attempts: int) -> dict[str, str]:
    """Return the properties. Without an error the message has only the consumer and the attempts.

    A Retry or Reject raised from an exception has the class of that exception, and its text unless it has its own one.
    """
    properties = {CONSUMER: client_id, ATTEMPTS: str(attempts)}
    if error is None:
        return properties
    cause = error.__cause__ if isinstance(error, Retry | Reject) and error.__cause__ is not None else error
    properties[EXCEPTION] = class_name(type(cause))
    line = _first_line(error)
    if line in _NO_TEXT:
        line = _first_line(cause) or line
    if line:
        properties[REASON] = line
    return properties


def _first_line(error: BaseException) -> str:
    try:
        line = next(iter(str(error).strip().splitlines()), "")
    except Exception:  # a faulty __str__ of the application
        return ""
    return "".join(character if character.isprintable() else " " for character in line)[:MAX_REASON].strip()


def class_name(kind: type[BaseException]) -> str:
    """Return the name of an exception's class, with its module unless that is builtins."""
    return kind.__qualname__ if kind.__module__ == "builtins" else public_name(f"{kind.__module__}.{kind.__qualname__}")


def public_name(name: str) -> str:
    """Return the name by which applications import a class of rocketd. The names of other classes are unchanged."""
    package, _, word = name.rpartition(".")
    if package.startswith("rocketd."):
        for public, words in _PUBLIC.items():
            if word in words:
                return f"{public}.{word}"
    return name
