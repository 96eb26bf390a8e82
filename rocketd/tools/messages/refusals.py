"""Detects permanent refusals in brokers' answers to a consumer.

Apache's consumers log these and try again forever.
"""

from collections.abc import Callable

from zope.interface import implementer

from rocketd.client.errors import BrokerError
from rocketd.remoting.interfaces import IRPCHook
from rocketd.remoting.wire.codes import RequestCode, ResponseCode
from rocketd.remoting.wire.command import RemotingCommand

_FINAL = (
    ResponseCode.SYSTEM_ERROR,  # what access control refuses has this code
    ResponseCode.NO_PERMISSION,
    ResponseCode.TOPIC_NOT_EXIST,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
    ResponseCode.SUBSCRIPTION_PARSE_FAILED,
)


def is_final(code: int | None) -> bool:
    """Return whether a broker that answers with this code answers every such request with it."""
    return code in _FINAL


@implementer(IRPCHook)
class RefusalWatch:
    """Calls ``refused`` with a BrokerError for each permanently refused heartbeat, and each refused pull of ``topic``.

    Reactor thread.
    """

    def __init__(self, topic: str, refused: Callable[[BrokerError], None]) -> None:
        self._topic = topic
        self._refused = refused

    def before_request(self, address: str, request: RemotingCommand) -> None:
        """Do nothing."""

    def after_response(self, address: str, request: RemotingCommand, response: RemotingCommand | None) -> None:
        """Examine an answer."""
        if response is not None and is_final(response.code) and self._is_watched(request):
            self._refused(BrokerError(address, response))

    def _is_watched(self, request: RemotingCommand) -> bool:
        if request.code == RequestCode.PULL_MESSAGE:
            return (request.ext_fields or {}).get("topic") == self._topic
        return request.code == RequestCode.HEART_BEAT
