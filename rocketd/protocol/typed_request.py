"""A request and the decoder of its answer.

`rocketd.client` awaits the answer. `rocketd.spark.wire` blocks, and repeats the request after a transient error. Neither
needs to know the header, the accepted codes or the answer's form.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from rocketd.protocol.errors import BrokerError
from rocketd.remoting.headers.client import Header, write_header
from rocketd.remoting.wire.codes import RequestCode, ResponseCode
from rocketd.remoting.wire.command import RemotingCommand

R = TypeVar("R")
"""The result of a request."""

_R_co = TypeVar("_R_co", covariant=True)


class TypedRequest(msgspec.Struct, Generic[_R_co], frozen=True):
    """A request without a body. ``read`` converts an answer to the result if its code is one of ``good``.

    ``read`` raises RemotingError if the answer cannot be decoded.
    """

    code: RequestCode
    read: Callable[[RemotingCommand], _R_co]
    header: Header | None = None
    good: tuple[ResponseCode, ...] = (ResponseCode.SUCCESS,)

    def command(self) -> RemotingCommand:
        """Return a new request."""
        return RemotingCommand(self.code, None if self.header is None else write_header(self.header))

    def result(self, server: str, answer: RemotingCommand) -> _R_co:
        """Return the result.

        Raises BrokerError if ``server`` refuses, and the errors of ``read``.
        """
        if answer.code not in self.good:
            raise BrokerError(server, answer)
        return self.read(answer)


def no_result(answer: RemotingCommand) -> None:
    """Accept an answer without content: the request was carried out."""
