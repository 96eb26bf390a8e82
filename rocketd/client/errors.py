"""All errors of a client, in one tree. Each text tells the fault and the next step.

Counterpart: `MQClientException`, `MQBrokerException`, `RequestTimeoutException` and the remoting exceptions (Apache).
"""

from rocketd.protocol.errors import (
    Attempt,
    BrokerError,
    IllegalGroupError,
    IllegalMessageError,
    IllegalOptionError,
    IllegalTopicError,
    MessageTooLargeError,
    RocketMQError,
    UsageError,
    check_consumer_group,
    check_group,
    check_response,
    check_topic,
)
from rocketd.remoting.errors import (
    RemotingConnectError,
    RemotingError,
    RemotingSendRequestError,
    RemotingTimeoutError,
    RemotingTooMuchRequestError,
)

__all__ = [
    "AllocationError",
    "Attempt",
    "BrokerError",
    "BrokerUnreachableError",
    "ClientClosedError",
    "ClientStateError",
    "CommitError",
    "ConnectionLostError",
    "ForkedClientError",
    "GroupInUseError",
    "IllegalGroupError",
    "IllegalMessageError",
    "IllegalOptionError",
    "IllegalTopicError",
    "MessageTooLargeError",
    "NoBrokerError",
    "NoNameServerError",
    "NoRouteError",
    "NotStartedError",
    "RequestTimeoutError",
    "RocketMQError",
    "SendForbiddenError",
    "StopConsuming",
    "TooManyRequestsError",
    "TopicNotFoundError",
    "UnreachableError",
    "UsageError",
    "check_consumer_group",
    "check_group",
    "check_response",
    "check_topic",
    "no_master",
    "of_remoting",
]


class ClientStateError(RocketMQError):
    """The state of the client does not allow the call."""


class NotStartedError(ClientStateError):
    """The client is not started yet."""


class ClientClosedError(ClientStateError):
    """The client is stopped."""


class ForkedClientError(ClientStateError):
    """The client was started in the parent of this process."""


class GroupInUseError(ClientStateError):
    """Another producer, or consumer, of the same group has the same client id."""


class SendForbiddenError(RocketMQError):
    """A hook of the application refused the send. The exception of the hook is the cause."""


class CommitError(RocketMQError):
    """Some offsets were not stored."""

    retriable = True


class AllocationError(RocketMQError, ValueError):
    """An allocation strategy cannot share the queues. The shares are unchanged until the next rebalance."""


# ------------------------------------------------------------ no route


class NoRouteError(RocketMQError):
    """No known broker has the topic."""


class NoNameServerError(NoRouteError):
    """No name server is given, or none can be reached."""

    retriable = True


class NoBrokerError(NoRouteError):
    """The name servers know no broker."""

    retriable = True


class TopicNotFoundError(NoRouteError):
    """No broker has the topic, and none creates topics itself."""


class BrokerUnreachableError(NoRouteError):
    """Brokers would create the topic, but cannot be reached from here, or none takes messages of it.

    Also: a request needs the master of a broker, and only slaves of it are registered.
    """

    retriable = True


def no_master(broker_name: str) -> BrokerUnreachableError:
    """Return the error for a request to the master of a broker of which only slaves are registered."""
    return BrokerUnreachableError(
        f"no master of {broker_name} is registered at the name servers, only slaves are; start the master",
        broker=broker_name,
    )


# ------------------------------------------------------------ between client and server


class UnreachableError(RocketMQError):
    """No connection could be made."""

    retriable = True


class ConnectionLostError(RocketMQError):
    """The connection closed before the answer: whether the request was carried out is unknown."""

    retriable = True


class RequestTimeoutError(RocketMQError, TimeoutError):
    """The answer did not come in time: whether the request was carried out is unknown."""

    retriable = True


class TooManyRequestsError(RocketMQError):
    """Too many requests are under way."""

    retriable = True


_OF_REMOTING: tuple[tuple[type[RemotingError], type[RocketMQError]], ...] = (
    (RemotingConnectError, UnreachableError),
    (RemotingSendRequestError, ConnectionLostError),
    (RemotingTimeoutError, RequestTimeoutError),
    (RemotingTooMuchRequestError, TooManyRequestsError),
)


def of_remoting(error: RemotingError, broker: str) -> RocketMQError:
    """Return the client's error for an error of its connection to ``broker``."""
    for remoting_error, client_error in _OF_REMOTING:
        if isinstance(error, remoting_error):
            return client_error(str(error), broker=broker)
    return RocketMQError(str(error), broker=broker)


class StopConsuming(Exception):  # noqa: N818 - it is not an error of the client
    """Raised by a listener that has not consumed the message and takes no more messages. The message stays in place.

    The consumer hands out and pulls nothing until it is resumed or stopped.
    """
