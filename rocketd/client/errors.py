"""What can go wrong in a client, beside the errors of remoting.

Answers to MQClientException and MQBrokerException.
"""

from rocketd.remoting.codes import ResponseCode
from rocketd.remoting.command import RemotingCommand


class ClientError(Exception):
    """Base of a client's own errors: one line that names the cause."""


class NoRouteError(ClientError):
    """No broker is known for a topic."""


class IllegalMessageError(ClientError):
    """A message that no broker would take."""


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


def check_response(address: str, response: RemotingCommand) -> RemotingCommand:
    """Return a response whose code is success. Raises BrokerError for any other."""
    if response.code != ResponseCode.SUCCESS:
        raise BrokerError(address, response)
    return response
