"""Refusals of servers as errors of the pipeline: whether they are transient, and whether they leave a send in doubt."""

from collections.abc import Callable, Collection
from time import monotonic, sleep
from typing import Final, NoReturn, TypeVar

from rocketd.protocol.errors import response_name
from rocketd.protocol.typed_request import R, TypedRequest
from rocketd.remoting.errors import RemotingError
from rocketd.remoting.headers.client import HeaderT, read_header
from rocketd.remoting.wire.codes import ResponseCode, request_name
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.spark.errors import ClusterError, NoAnswerError

T = TypeVar("T")

PASSING: Final = frozenset(
    {
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.FLOW_CONTROL,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SLAVE_NOT_AVAILABLE,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
    }
)
"""Answers after which the same request may succeed later."""

_LASTING: Final = (
    "AclException",
    "signature",
    "is illegal",
    "not exist",
    "does not support",
    "producer group wrong",
    "Find prepared",
)
"""Words in the remark of a SYSTEM_ERROR that will not pass without a change."""

_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 2.0

_HINTS: Final = {
    ResponseCode.TOPIC_NOT_EXIST: "create the topic, or check its name",
    ResponseCode.NO_PERMISSION: "check the permission of the topic and of the account",
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: "create the consumer group, or name one that exists",
}


class NoMasterError(NoAnswerError):
    """The master of a broker is not registered with any name server at present."""


class UnknownTopicError(ClusterError):
    """No name server has a route for the topic."""


def refusal(address: str, request: int, answer: RemotingCommand) -> ClusterError:
    """Return the error for an answer that is not a success.

    The error is doubtful if Apache's brokers send such an answer to a send or an update although the message may be
    stored.
    """
    code, remark = answer.code, (answer.remark or "no reason given").strip()
    retriable = code in PASSING
    if code == ResponseCode.SYSTEM_ERROR and any(word in remark for word in _LASTING):
        retriable = False
    hint = _HINTS.get(code)  # type: ignore[call-overload]
    if "does not support consumer to filter" in remark and "enablePropertyFilter" not in remark:
        hint = "filtering by SQL92 needs enablePropertyFilter=true at the broker"
    text = (
        f"{address} refused {request_name(request)}: {response_name(code) or code}: {remark.splitlines()[0].rstrip()}"
    )
    return ClusterError(
        f"{text}; {hint}" if hint else text,
        code,
        retriable=retriable,
        doubtful=retriable and code == ResponseCode.SYSTEM_ERROR,
    )


def header_of(kind: type[HeaderT], answer: RemotingCommand) -> HeaderT:
    """Return the typed header of an answer. Raises ClusterError for an invalid header."""
    try:
        return read_header(kind, answer)
    except RemotingError as error:
        raise _nonsense(error) from error


def read_answer(request: TypedRequest[R], answer: RemotingCommand) -> R:
    """Return the result of a request from an answer with a good code. Raises ClusterError for an invalid answer."""
    try:
        return request.read(answer)
    except RemotingError as error:
        raise _nonsense(error) from error


def _nonsense(error: RemotingError) -> ClusterError:
    return ClusterError(f"a server's answer makes no sense: {error}")


def check(address: str, request: int, answer: RemotingCommand, good: Collection[int] = (0,)) -> RemotingCommand:
    """Return the answer if its code is good. Raises ClusterError."""
    if answer.code in good:
        return answer
    raise refusal(address, request, answer)


def patiently(attempt: Callable[[], T], patience: float, repeat_doubtful: bool = True) -> T:
    """Return the result of `attempt`, repeated after retriable errors, with growing pauses, for `patience` seconds.

    A doubtful error is raised at once, unless `repeat_doubtful` allows a second attempt.
    """
    ends = monotonic() + patience
    pause = _FIRST_PAUSE
    tries = 1
    while True:
        try:
            return attempt()
        except ClusterError as error:
            if not error.retriable or (error.doubtful and not repeat_doubtful):
                raise
            if monotonic() + pause > ends:
                give_up(error, tries, patience)
        sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE)
        tries += 1


def give_up(error: ClusterError, tries: int, patience: float) -> NoReturn:
    """Raise the error again, with the number of attempts and the time spent."""
    if tries == 1:
        raise error
    raise type(error)(
        f"{error} (tried {tries} times in {patience:g} s)",
        error.code,
        retriable=error.retriable,
        doubtful=error.doubtful,
    ) from error


def unreachable(address: str, what: str, reason: object, *, doubtful: bool = False) -> NoAnswerError:
    """Return the error for a server that does not answer."""
    return NoAnswerError(f"{address} {what}: {reason}", retriable=True, doubtful=doubtful)
