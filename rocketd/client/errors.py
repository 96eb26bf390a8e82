"""What can go wrong in a client, beside the errors of remoting.

Answers to MQClientException and MQBrokerException.
"""

from rocketd.common.names import group_fault
from rocketd.remoting.codes import ResponseCode
from rocketd.remoting.command import RemotingCommand


class ClientError(Exception):
    """Base of a client's own errors: one line that names the cause."""


class NoRouteError(ClientError):
    """No broker is known for a topic."""


class IllegalGroupError(ClientError):
    """A name that no group may have."""


class IllegalMessageError(ClientError):
    """A message that no broker would take."""


class StopConsuming(Exception):  # noqa: N818 - it is no error of the client's
    """Raised by a listener that has not consumed the message and takes no more: the message stays where it is.

    Its queue is pulled no further; the other queues go on until the consumer is stopped.
    """


class BrokerError(ClientError):
    """A refusal: the response's code and remark."""

    def __init__(self, address: str, response: RemotingCommand) -> None:
        try:
            name = f"{ResponseCode(response.code).name} ({response.code})"
        except ValueError:
            name = f"code {response.code}"
        super().__init__(f"{address} answers {name}: {response.remark or 'without a remark'}")
        self.code = response.code
        self.remark = response.remark


def check_group(group: str) -> None:
    """Raise IllegalGroupError when no group may have this name."""
    fault = group_fault(group)
    if fault is not None:
        raise IllegalGroupError(f"group {group!r}: {fault}")


def check_response(address: str, response: RemotingCommand) -> RemotingCommand:
    """Return a response whose code is success. Raises BrokerError for any other."""
    if response.code != ResponseCode.SUCCESS:
        raise BrokerError(address, response)
    return response
