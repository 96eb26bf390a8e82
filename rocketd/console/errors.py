"""Errors of the console, and the status and text with which each error of a page is answered."""

from typing import Final

from twisted.internet.defer import CancelledError

from rocketd.client.errors import (
    BrokerError,
    ConnectionLostError,
    IllegalGroupError,
    IllegalMessageError,
    IllegalTopicError,
    NoNameServerError,
    RequestTimeoutError,
    RocketMQError,
    TopicNotFoundError,
    UnreachableError,
    UsageError,
)
from rocketd.remoting.wire.codes import ResponseCode

MAX_CHARACTERS: Final = 2000
"""Length of an error's text on a page."""


class ConsoleError(Exception):
    """An error for the user. The text is shown. ``status`` is that of HTTP."""

    status = 400


class NotFoundError(ConsoleError):
    """The page, or the thing it is about, does not exist."""

    status = 404


class ForbiddenError(ConsoleError):
    """The request is refused."""

    status = 403


class LoginError(ConsoleError):
    """The account is refused."""

    status = 403


class ClusterTimeoutError(ConsoleError):
    """The cluster did not answer in time."""

    status = 504


_STATUS: Final[tuple[tuple[tuple[type[RocketMQError], ...], int], ...]] = (
    ((TopicNotFoundError,), 404),
    ((IllegalTopicError, IllegalGroupError, IllegalMessageError, UsageError), 400),
    ((RequestTimeoutError,), 504),
    ((NoNameServerError, UnreachableError, ConnectionLostError), 502),
)
_NOT_FOUND: Final = (ResponseCode.TOPIC_NOT_EXIST, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST)


def is_refusal(error: BrokerError) -> bool:
    """Return whether a broker refused an account. Apache's answer is SYSTEM_ERROR with the name of an exception."""
    return error.code == ResponseCode.NO_PERMISSION or "AclException" in (error.remark or "")


def answer_to(error: BaseException) -> tuple[int, str] | None:
    """Return the status and the text for an error; None if it is a fault of the console, whose text is not shown."""
    if isinstance(error, ConsoleError):
        return error.status, str(error)[:MAX_CHARACTERS]
    if isinstance(error, CancelledError):
        return 504, "The request was cancelled."
    if not isinstance(error, RocketMQError):
        return None
    text = str(error)[:MAX_CHARACTERS]
    if isinstance(error, BrokerError):
        if is_refusal(error):
            return 403, f"The broker refuses it: {text}"
        return (404 if error.code in _NOT_FOUND else 502), text
    for kinds, status in _STATUS:
        if isinstance(error, kinds):
            return status, text
    return 502, text
