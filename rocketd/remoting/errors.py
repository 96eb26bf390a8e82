"""Errors of the remoting layer, one tree.

Answers to Apache's ``RemotingException`` family (org.apache.rocketmq.remoting.exception).
"""

import msgspec

from rocketd.common.pickling import PickledWhole

JSON_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What msgspec's JSON decoders raise for a text that they do not take."""


class RemotingError(PickledWhole, Exception):
    """Base of all that can go wrong between two peers."""


class RemotingConnectError(RemotingError):
    """No connection to the peer could be had."""

    def __init__(self, address: str, reason: object = None) -> None:
        super().__init__(f"connect to {address} failed" + (f": {reason}" if reason else ""))
        self.address = address


class RemotingSendRequestError(RemotingError):
    """The request could not be written, or its connection closed before the answer came."""

    def __init__(self, address: str, reason: object = None) -> None:
        super().__init__(f"send request to <{address}> failed" + (f": {reason}" if reason else ""))
        self.address = address


class RemotingTimeoutError(RemotingError):
    """No answer, or no permit to send, within the time given."""


class PermitTimeoutError(RemotingTimeoutError):
    """No permit to send within the time given: nothing was sent."""


class RemotingTooMuchRequestError(RemotingError):
    """The limit of outstanding requests is reached and the caller gave no time to wait."""


class RemotingCommandError(RemotingError):
    """A command that cannot be understood: a header field is missing or has the wrong type."""


class FrameError(RemotingError):
    """Bytes that are no frame: nothing after them can be trusted, so the connection closes."""


class RequestError(RemotingError):
    """A processor's refusal: the dispatcher turns it into the answer's code and remark."""

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark
