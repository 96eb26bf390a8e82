"""Errors of the remoting layer, one tree.

Counterpart: the ``RemotingException`` family (Apache, org.apache.rocketmq.remoting.exception).
"""

from typing import Any

import msgspec

from rocketd.common.pickling import PickledWhole

JSON_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""Errors raised by msgspec's JSON decoders for texts they reject."""


class RemotingError(PickledWhole, Exception):
    """Base of all errors between two peers."""

    command: Any = None
    """The command with an unreadable header, None if the error is about something else."""

    def __reduce__(self) -> tuple[Any, ...]:
        make, arguments, attributes = super().__reduce__()
        # The command may hold a view of memory, and views cannot be pickled.
        return make, arguments, {name: value for name, value in attributes.items() if name != "command"}


class RemotingConnectError(RemotingError):
    """The connection to the peer could not be made."""

    def __init__(self, address: str, reason: object = None) -> None:
        super().__init__(f"connect to {address} failed" + (f": {reason}" if reason else ""))
        self.address = address


class RemotingSendRequestError(RemotingError):
    """The request could not be written, or its connection closed before the answer came."""

    def __init__(self, address: str, reason: object = None) -> None:
        super().__init__(f"send request to <{address}> failed" + (f": {reason}" if reason else ""))
        self.address = address


class RemotingTimeoutError(RemotingError):
    """No answer, or no permit to send, within the given time."""


class PermitTimeoutError(RemotingTimeoutError):
    """No permit to send within the given time. Nothing was sent."""


class RemotingTooMuchRequestError(RemotingError):
    """The limit of outstanding requests is reached, and the caller gave no time to wait."""


class RemotingCommandError(RemotingError):
    """A command cannot be understood: a header field is missing or has the wrong type."""


MAX_FIELDS = 1000
"""Greatest number of fields in a header. Clients send about 20 at most; message properties are one field."""


class FrameError(RemotingError):
    """Bytes that are not a valid frame.

    ``limit`` is the kind under which it is counted if the frame exceeds a limit, "" otherwise. ``is_answerable`` is
    whether code, opaque and flag are known. Then ``command`` has them, a server answers a request, and the connection
    stays. Otherwise the connection closes, because the bytes after these cannot be trusted.
    """

    def __init__(self, text: str, limit: str = "", is_answerable: bool = False) -> None:
        super().__init__(text)
        self.limit = limit
        self.is_answerable = is_answerable


def too_many_fields(count: int) -> FrameError:
    """Return the error of a header with more than ``MAX_FIELDS`` fields."""
    return FrameError(
        f"header with {count} fields is over the limit of {MAX_FIELDS}", "headers with too many fields", True
    )


class PluginError(RemotingError):
    """An exception of a plugin. The peer must not read its text. ``error`` is the exception."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(f"a plugin raised {type(error).__name__}")
        self.error = error


class RequestError(RemotingError):
    """A processor's refusal. The dispatcher turns it into code and remark of the answer.

    ``problem`` is the id of its problem, empty if it has none.
    """

    def __init__(self, code: int, remark: str, problem: str = "") -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark
        self.problem = problem
