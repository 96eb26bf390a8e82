"""Problems within consumer groups: GET_GROUP_PROBLEMS (30001), a request of rocketd."""

from zope.interface import implementer

from rocketd.broker.lag.parts import LagParts
from rocketd.remoting.headers.admin import GroupProblemsRequestHeader
from rocketd.remoting.headers.client import read_header
from rocketd.remoting.interfaces import IRequestContext, IRequestProcessor
from rocketd.remoting.wire.command import RemotingCommand


@implementer(IRequestProcessor)
class GroupProblemsProcessor:
    """Answers administrators. ``process`` may run in several threads at once."""

    def __init__(self, broker: LagParts) -> None:
        self._guard = broker.group_guard

    def process(self, request: RemotingCommand, context: IRequestContext) -> RemotingCommand:
        """Handle one request; see IRequestProcessor."""
        header = read_header(GroupProblemsRequestHeader, request)
        return RemotingCommand.response(body=self._guard.answer(header.consumer_group or None).encode())
