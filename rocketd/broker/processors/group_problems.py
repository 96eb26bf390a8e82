"""What is wrong within consumer groups: GET_GROUP_PROBLEMS (30001).

No counterpart in Apache; the number is of our own.
"""

from typing import Any

from zope.interface import implementer

from rocketd.remoting.admin_headers import GroupProblemsRequestHeader
from rocketd.remoting.codes import RequestCode
from rocketd.remoting.command import RemotingCommand
from rocketd.remoting.headers import read_header
from rocketd.remoting.interfaces import IRequestProcessor

CODES = (RequestCode.GET_GROUP_PROBLEMS,)


@implementer(IRequestProcessor)
class GroupProblemsProcessor:
    """Answers administrators. ``process`` may run in several threads at once."""

    def __init__(self, broker: Any) -> None:
        """``broker`` is an IBroker."""
        self._guard = broker.group_guard

    def process(self, request: RemotingCommand, context: Any) -> RemotingCommand:
        """Handle one request; see IRequestProcessor."""
        header = read_header(GroupProblemsRequestHeader, request)
        return RemotingCommand.response(body=self._guard.answer(header.consumer_group or None).encode())
