"""The lag of a consumer group: GET_CONSUMER_LAG (30002), a request of rocketd."""

from zope.interface import implementer

from rocketd.broker.lag.measure import LagMeter
from rocketd.broker.lag.parts import LagParts
from rocketd.remoting.headers.admin import ConsumerLagRequestHeader
from rocketd.remoting.headers.client import read_header
from rocketd.remoting.interfaces import IRequestContext, IRequestProcessor
from rocketd.remoting.wire.command import RemotingCommand


@implementer(IRequestProcessor)
class LagProcessor:
    """Answers administrators. ``process`` belongs to a separate thread, because counting may take seconds."""

    def __init__(self, broker: LagParts) -> None:
        self._lag = LagMeter(broker, broker.last_subscriptions)

    def process(self, request: RemotingCommand, context: IRequestContext) -> RemotingCommand:
        """Handle one request; see IRequestProcessor."""
        header = read_header(ConsumerLagRequestHeader, request)
        return RemotingCommand.response(body=self._lag.of_group(header.consumer_group, header.topic).encode())
