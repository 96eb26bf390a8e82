"""How far a consumer group is behind: GET_CONSUMER_LAG (30002).

No counterpart in Apache; the number is of our own.
"""

from typing import Any

from zope.interface import implementer

from rocketd.broker.lag import Lag
from rocketd.remoting.admin_headers import ConsumerLagRequestHeader
from rocketd.remoting.codes import RequestCode
from rocketd.remoting.command import RemotingCommand
from rocketd.remoting.headers import read_header
from rocketd.remoting.interfaces import IRequestProcessor

CODES = (RequestCode.GET_CONSUMER_LAG,)


@implementer(IRequestProcessor)
class LagProcessor:
    """Answers administrators. ``process`` belongs to one thread of its own, since counting may take seconds."""

    def __init__(self, broker: Any) -> None:
        """``broker`` is an IBroker."""
        self._lag = Lag(broker, broker.last_subscriptions)

    def process(self, request: RemotingCommand, context: Any) -> RemotingCommand:
        """Handle one request; see IRequestProcessor."""
        header = read_header(ConsumerLagRequestHeader, request)
        return RemotingCommand.response(body=self._lag.of_group(header.consumer_group, header.topic).encode())
