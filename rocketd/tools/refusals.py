"""Watches what brokers answer a consumer, for refusals that trying again does not mend.

No counterpart in Apache, whose consumers log these and try again for ever.
"""

from collections.abc import Callable

from zope.interface import implementer

from rocketd.client.errors import BrokerError
from rocketd.remoting.codes import RequestCode, ResponseCode
from rocketd.remoting.command import RemotingCommand
from rocketd.remoting.interfaces import IRPCHook

_FINAL = (
    ResponseCode.SYSTEM_ERROR,  # what access control refuses has this code
    ResponseCode.NO_PERMISSION,
    ResponseCode.TOPIC_NOT_EXIST,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
    ResponseCode.SUBSCRIPTION_PARSE_FAILED,
)


@implementer(IRPCHook)
class RefusalWatch:
    """Calls ``refused`` with a BrokerError for each heartbeat, and each pull of ``topic``, that is refused for good.

    Reactor thread.
    """

    def __init__(self, topic: str, refused: Callable[[BrokerError], None]) -> None:
        self._topic = topic
        self._refused = refused

    def before_request(self, address: str, request: RemotingCommand) -> None:
        """Do nothing."""

    def after_response(self, address: str, request: RemotingCommand, response: RemotingCommand | None) -> None:
        """Look at an answer."""
        if response is not None and response.code in _FINAL and self._is_watched(request):
            self._refused(BrokerError(address, response))

    def _is_watched(self, request: RemotingCommand) -> bool:
        if request.code == RequestCode.PULL_MESSAGE:
            return (request.ext_fields or {}).get("topic") == self._topic
        return request.code == RequestCode.HEART_BEAT
