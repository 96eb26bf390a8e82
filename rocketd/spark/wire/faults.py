"""What servers refuse, as errors of the pipeline: which of them pass by themselves, and which leave a send in doubt."""

from collections.abc import Callable, Collection
from time import monotonic, sleep
from typing import Final, NoReturn, TypeVar

from rocketd.remoting.bodies import Body
from rocketd.remoting.codes import ResponseCode, request_name
from rocketd.remoting.command import RemotingCommand
from rocketd.remoting.errors import RemotingError
from rocketd.remoting.headers import HeaderT, read_header
from rocketd.spark.errors import BrokerError, UnreachableError

T = TypeVar("T")
BodyT = TypeVar("BodyT", bound=Body)

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
"""Answers after which the same request may pass later."""

_LASTING: Final = (
    "AclException",
    "signature",
    "is illegal",
    "not exist",
    "does not support",
    "producer group wrong",
    "Find prepared",
)
"""What the remark of a SYSTEM_ERROR has where it will not pass by itself."""

_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 2.0

_HINTS: Final = {
    ResponseCode.TOPIC_NOT_EXIST: "create the topic, or check its name",
    ResponseCode.NO_PERMISSION: "check the permission of the topic and of the account",
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: "create the consumer group, or name one that exists",
}


class NoMasterError(UnreachableError):
    """A broker's master is not registered with any name server at this moment."""


class UnknownTopicError(BrokerError):
    """No name server has a route of the topic."""


def response_name(code: int) -> str:
    """Name a response code for an error: ``SYSTEM_BUSY (2)``."""
    try:
        return f"{ResponseCode(code).name} ({code})"
    except ValueError:
        return str(code)


def refusal(address: str, request: int, answer: RemotingCommand) -> BrokerError:
    """Make the error of an answer that is no success. One of a send or an update is doubtful where Apache's brokers
    answer so although the message may be stored.
    """
    code, remark = answer.code, (answer.remark or "no reason given").strip()
    retriable = code in PASSING
    if code == ResponseCode.SYSTEM_ERROR and any(word in remark for word in _LASTING):
        retriable = False
    hint = _HINTS.get(code)  # type: ignore[call-overload]
    if "does not support consumer to filter" in remark and "enablePropertyFilter" not in remark:
        hint = "filtering by SQL92 needs enablePropertyFilter=true at the broker"
    text = f"{address} refused {request_name(request)}: {response_name(code)}: {remark.splitlines()[0].rstrip()}"
    return BrokerError(
        f"{text}; {hint}" if hint else text,
        code,
        retriable=retriable,
        doubtful=retriable and code == ResponseCode.SYSTEM_ERROR,
    )


def header_of(kind: type[HeaderT], answer: RemotingCommand) -> HeaderT:
    """The typed header of an answer. Raises BrokerError for one that makes no sense."""
    try:
        return read_header(kind, answer)
    except RemotingError as error:
        raise _nonsense(error) from error


def body_of(kind: type[BodyT], answer: RemotingCommand) -> BodyT:
    """The typed body of an answer. Raises BrokerError for one that makes no sense."""
    try:
        return kind.decode(answer.body)
    except RemotingError as error:
        raise _nonsense(error) from error


def _nonsense(error: RemotingError) -> BrokerError:
    return BrokerError(f"a server's answer makes no sense: {error}")


def check(address: str, request: int, answer: RemotingCommand, good: Collection[int] = (0,)) -> RemotingCommand:
    """Return the answer where its code is good. Raises BrokerError."""
    if answer.code in good:
        return answer
    raise refusal(address, request, answer)


def patiently(attempt: Callable[[], T], patience: float, repeat_doubtful: bool = True) -> T:
    """Return what `attempt` does, trying again after a retriable error, with growing pauses, for so many seconds.

    A doubtful error ends it unless the attempt may be made twice.
    """
    ends = monotonic() + patience
    pause = _FIRST_PAUSE
    tries = 1
    while True:
        try:
            return attempt()
        except BrokerError as error:
            if not error.retriable or (error.doubtful and not repeat_doubtful):
                raise
            if monotonic() + pause > ends:
                give_up(error, tries, patience)
        sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE)
        tries += 1


def give_up(error: BrokerError, tries: int, patience: float) -> NoReturn:
    """Raise the error again, with how often and how long it was tried."""
    if tries == 1:
        raise error
    raise type(error)(
        f"{error} (tried {tries} times in {patience:g} s)",
        error.code,
        retriable=error.retriable,
        doubtful=error.doubtful,
    ) from error


def unreachable(address: str, what: str, reason: object, *, doubtful: bool = False) -> UnreachableError:
    """Make the error of a server that does not answer."""
    return UnreachableError(f"{address} {what}: {reason}", retriable=True, doubtful=doubtful)
