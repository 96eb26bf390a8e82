"""What can go wrong in a client, one tree: each text says what was wrong and what to do.

Answers to MQClientException, MQBrokerException, RequestTimeoutException and the remoting exceptions of Apache's client.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rocketd.common.names import group_fault, topic_fault
from rocketd.common.pickling import PickledWhole
from rocketd.remoting.codes import ResponseCode
from rocketd.remoting.command import RemotingCommand
from rocketd.remoting.errors import (
    RemotingConnectError,
    RemotingError,
    RemotingSendRequestError,
    RemotingTimeoutError,
    RemotingTooMuchRequestError,
)

if TYPE_CHECKING:
    from rocketd.client.message import SendResult


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try of a call: the broker's name or address, how long it took in ms, and what came of it."""

    broker: str
    milliseconds: float
    outcome: str

    def __str__(self) -> str:
        return f"{self.broker} after {self.milliseconds:.0f} ms: {self.outcome}"


class RocketMQError(PickledWhole, Exception):
    """Base of all errors of a client, which other processes can be given whole.

    ``code`` is the response code where a server refused, ``broker`` the name or address of who was asked, ``attempts`` the
    tries that were made, the last included. ``retriable`` says whether the same call may succeed later. ``results`` has
    those of the messages of a batch that are stored all the same, the first ones.
    """

    retriable = False
    results: "tuple[SendResult, ...]" = ()

    def __init__(
        self, message: str, *, code: int | None = None, broker: str | None = None, attempts: Sequence[Attempt] = ()
    ) -> None:
        super().__init__(message)
        self.code = code
        self.broker = broker
        self.attempts = tuple(attempts)

    def __str__(self) -> str:
        text = super().__str__()
        if len(self.attempts) > 1:
            tries = "; ".join(map(str, self.attempts))
            return f"{text} ({len(self.attempts)} tries: {tries})"
        return text


# ------------------------------------------------------------ the caller's mistakes


class UsageError(RocketMQError):
    """What the caller gave can never work."""


class IllegalOptionError(UsageError, ValueError):
    """An option whose value is not accepted."""


class IllegalGroupError(UsageError, ValueError):
    """A name that no group may have."""


class IllegalTopicError(UsageError, ValueError):
    """A name that no topic may have, or one that clients may not send to."""


class IllegalMessageError(UsageError, ValueError):
    """A message that no broker would take, or one that came and cannot be read."""


class MessageTooLargeError(IllegalMessageError):
    """A body above the limit."""


class ClientStateError(RocketMQError):
    """The client is not in a state in which it can do that."""


class NotStartedError(ClientStateError):
    """It was not started yet."""


class ClientClosedError(ClientStateError):
    """It was stopped."""


class ForkedClientError(ClientStateError):
    """It was started in the parent process of this one."""


class GroupInUseError(ClientStateError):
    """Another producer, or consumer, of the same group has the same client id."""


class SendForbiddenError(RocketMQError):
    """A hook of the application's has refused the send; what it raised is the cause."""


class CommitError(RocketMQError):
    """Offsets that were not stored."""

    retriable = True


class AllocationError(RocketMQError, ValueError):
    """What a strategy was given cannot be shared out; the shares stay as they are until the next time."""


# ------------------------------------------------------------ no route


class NoRouteError(RocketMQError):
    """No broker is known that has the topic."""


class NoNameServerError(NoRouteError):
    """No name server is given, or none can be reached."""

    retriable = True


class NoBrokerError(NoRouteError):
    """The name servers know no broker at all."""

    retriable = True


class TopicNotFoundError(NoRouteError):
    """No broker has the topic, and none would make it by itself."""


class BrokerUnreachableError(NoRouteError):
    """Brokers would make the topic, but cannot be reached from here, or none takes messages of it."""

    retriable = True


# ------------------------------------------------------------ between client and server


class BrokerError(RocketMQError):
    """A refusal: the response's code and remark."""

    def __init__(self, broker: str, response: RemotingCommand) -> None:
        try:
            name = f"{ResponseCode(response.code).name} ({response.code})"
        except ValueError:
            name = f"code {response.code}"
        super().__init__(
            f"{broker} answers {name}: {response.remark or 'without a remark'}", code=response.code, broker=broker
        )
        self.remark = response.remark

    @property
    def retriable(self) -> bool:  # type: ignore[override]
        """Whether the server was only busy or starting."""
        return self.code in _PASSING


_PASSING = (
    ResponseCode.SYSTEM_ERROR,
    ResponseCode.SYSTEM_BUSY,
    ResponseCode.SERVICE_NOT_AVAILABLE,
)


class UnreachableError(RocketMQError):
    """No connection could be made."""

    retriable = True


class ConnectionLostError(RocketMQError):
    """The connection closed before the answer came: whether the request was carried out is not known."""

    retriable = True


class RequestTimeoutError(RocketMQError, TimeoutError):
    """No answer within the time given: whether the request was carried out is not known."""

    retriable = True


class TooManyRequestsError(RocketMQError):
    """More requests are under way than the limit allows."""

    retriable = True


_OF_REMOTING: tuple[tuple[type[RemotingError], type[RocketMQError]], ...] = (
    (RemotingConnectError, UnreachableError),
    (RemotingSendRequestError, ConnectionLostError),
    (RemotingTimeoutError, RequestTimeoutError),
    (RemotingTooMuchRequestError, TooManyRequestsError),
)


def of_remoting(error: RemotingError, broker: str) -> RocketMQError:
    """Make an error of the client of one that its connection to ``broker`` had."""
    for remoting_error, client_error in _OF_REMOTING:
        if isinstance(error, remoting_error):
            return client_error(str(error), broker=broker)
    return RocketMQError(str(error), broker=broker)


class StopConsuming(Exception):  # noqa: N818 - it is no error of the client's
    """Raised by a listener that has not consumed the message and takes no more: the message stays where it is.

    The consumer hands out nothing more, and pulls nothing, until it is resumed or stopped.
    """


# ------------------------------------------------------------ checks


def check_group(group: str) -> None:
    """Raise IllegalGroupError when no group may have this name."""
    if not isinstance(group, str):
        raise IllegalGroupError(f"group {group!r}: the name of a group is a text")
    fault = group_fault(group)
    if fault is not None:
        raise IllegalGroupError(f"group {group!r}: {fault}")


def check_topic(topic: str) -> None:
    """Raise IllegalTopicError when no topic may have this name."""
    if not isinstance(topic, str):
        raise IllegalTopicError(f"topic {topic!r}: the name of a topic is a text")
    fault = topic_fault(topic)
    if fault is not None:
        raise IllegalTopicError(f"topic {topic!r}: {fault}")


def check_response(broker: str, response: RemotingCommand) -> RemotingCommand:
    """Return a response whose code is success. Raises BrokerError for any other."""
    if response.code != ResponseCode.SUCCESS:
        raise BrokerError(broker, response)
    return response
