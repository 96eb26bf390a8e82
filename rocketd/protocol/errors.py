"""Errors of both clients: mistakes of the caller, and refusals by a server.

`rocketd.client.errors` has all of them, and the errors of that client alone. Applications import from there.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rocketd.common.names import consumer_group_fault, group_fault, topic_fault
from rocketd.common.pickling import PickledWhole
from rocketd.remoting.wire.codes import ResponseCode
from rocketd.remoting.wire.command import RemotingCommand

if TYPE_CHECKING:
    from rocketd.protocol.send import SendResult


@dataclass(frozen=True)
class Attempt:
    """One try of a call: the broker's name or address, how long it took in ms, and its outcome.

    ``may_be_stored`` tells whether the broker may have stored the message although the try failed.
    """

    broker: str
    milliseconds: float
    outcome: str
    may_be_stored: bool = False

    def __str__(self) -> str:
        return f"{self.broker} after {self.milliseconds:.0f} ms: {self.outcome}"


class RocketMQError(PickledWhole, Exception):
    """Base of all errors of a client. It can be pickled with all its attributes.

    - ``code``: the response code, if a server refused.
    - ``broker``: the name or address of the server.
    - ``attempts``: all tries, including the last.
    - ``retriable``: whether the same call may succeed later.
    - ``results``: after a failed batch, the results of its first messages, which are stored nevertheless.
    - ``others``: after a change at several servers, the errors of the other servers that did not take it.
    """

    retriable = False
    results: "tuple[SendResult, ...]" = ()
    others: "tuple[RocketMQError, ...]" = ()

    def __init__(
        self, message: str, *, code: int | None = None, broker: str | None = None, attempts: Sequence[Attempt] = ()
    ) -> None:
        super().__init__(message)
        self.code = code
        self.broker = broker
        self.attempts = tuple(attempts)

    def __str__(self) -> str:
        return "; ".join([self._text(), *map(str, self.others)])

    def _text(self) -> str:
        text = super().__str__()
        if len(self.attempts) > 1:
            equal: dict[tuple[str, str], list[Attempt]] = {}
            for attempt in self.attempts:
                equal.setdefault((attempt.broker, attempt.outcome), []).append(attempt)
            tries = "; ".join(
                str(alike[0]) if len(alike) == 1 else f"{broker} {len(alike)} times: {outcome}"
                for (broker, outcome), alike in equal.items()
            )
            return f"{text} ({len(self.attempts)} tries: {tries})"
        return text


# ------------------------------------------------------------ the caller's mistakes


class UsageError(RocketMQError):
    """Arguments that can never work."""


class IllegalOptionError(UsageError, ValueError):
    """An option with an invalid value."""


class IllegalGroupError(UsageError, ValueError):
    """An invalid group name."""


class IllegalTopicError(UsageError, ValueError):
    """An invalid topic name, or a topic closed to clients."""


class IllegalMessageError(UsageError, ValueError):
    """A message that every broker would refuse, or an unreadable received message."""


class MessageTooLargeError(IllegalMessageError):
    """A body above the limit."""


def check_group(group: str) -> None:
    """Raise IllegalGroupError if the group name is invalid."""
    _refuse_group(group, group_fault)


def check_consumer_group(group: str) -> None:
    """Raise IllegalGroupError if the name is invalid for a group of consumers: it has to be shorter."""
    _refuse_group(group, consumer_group_fault)


def _refuse_group(group: str, fault_of: Callable[[str], str | None]) -> None:
    if not isinstance(group, str):
        raise IllegalGroupError(f"group {group!r}: the name of a group is a text")
    fault = fault_of(group)
    if fault is not None:
        raise IllegalGroupError(f"group {group!r}: {fault}")


def check_topic(topic: str) -> None:
    """Raise IllegalTopicError if the topic name is invalid."""
    if not isinstance(topic, str):
        raise IllegalTopicError(f"topic {topic!r}: the name of a topic is a text")
    fault = topic_fault(topic)
    if fault is not None:
        raise IllegalTopicError(f"topic {topic!r}: {fault}")


# ------------------------------------------------------------ refusals


class BrokerError(RocketMQError):
    """A refusal by a server: the code and the remark of the response."""

    def __init__(self, broker: str, response: RemotingCommand) -> None:
        name = response_name(response.code) or f"code {response.code}"
        super().__init__(
            f"{broker} answers {name}: {response.remark or 'without a remark'}", code=response.code, broker=broker
        )
        self.remark = response.remark

    @property
    def retriable(self) -> bool:  # type: ignore[override]
        """Whether the server was only busy or starting."""
        return self.code in _PASSING


_PASSING: Final = (
    ResponseCode.SYSTEM_ERROR,
    ResponseCode.SYSTEM_BUSY,
    ResponseCode.SERVICE_NOT_AVAILABLE,
)


def response_name(code: int) -> str | None:
    """Return the name of a response code for a text: ``SYSTEM_BUSY (2)``. Return None for an unknown code."""
    try:
        return f"{ResponseCode(code).name} ({code})"
    except ValueError:
        return None


def check_response(broker: str, response: RemotingCommand) -> RemotingCommand:
    """Return the response if its code is SUCCESS. Raises BrokerError for any other code."""
    if response.code != ResponseCode.SUCCESS:
        raise BrokerError(broker, response)
    return response
