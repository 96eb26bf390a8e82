"""What a slave refuses by a code of its own: the end of a transaction, 37.

Answers to the first lines of Apache's EndTransactionProcessor, remark included. Sends are refused by the store.
"""

from typing import Any

from zope.interface import implementer

from rocketd.broker.processors.admin import NOT_SET_REMARK
from rocketd.remoting.codes import RequestCode, ResponseCode
from rocketd.remoting.command import RemotingCommand
from rocketd.remoting.interfaces import IRequestProcessor

CODES = (RequestCode.END_TRANSACTION,)


@implementer(IRequestProcessor)
class SlaveRefusalProcessor:
    """Refuses, in whatever thread."""

    def process(self, request: RemotingCommand, context: Any) -> RemotingCommand:
        """Refuse one request; see IRequestProcessor."""
        return RemotingCommand.response(ResponseCode.SLAVE_NOT_AVAILABLE, NOT_SET_REMARK)
