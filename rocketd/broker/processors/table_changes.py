"""Slaves that follow the tables of this broker: AWAIT_TABLE_CHANGES (30003).

No counterpart in Apache; the number is of our own.
"""

from typing import Any

from zope.interface import implementer

from rocketd.remoting.codes import RequestCode
from rocketd.remoting.command import RemotingCommand
from rocketd.remoting.interfaces import IRequestProcessor

CODES = (RequestCode.AWAIT_TABLE_CHANGES,)


@implementer(IRequestProcessor)
class TableChangesProcessor:
    """Hands the request over to replication, which answers when a table has changed."""

    def __init__(self, broker: Any) -> None:
        """``broker`` is an IBroker."""
        self._broker = broker

    def process(self, request: RemotingCommand, context: Any) -> None:
        """Handle one request; see IRequestProcessor."""
        self._broker.replication.table_changes.watch(request, context)
