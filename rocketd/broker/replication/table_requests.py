"""Slaves following the tables of this broker: AWAIT_TABLE_CHANGES (30003), a request of rocketd."""

from typing import Protocol

from zope.interface import implementer

from rocketd.broker.replication.service import Replication
from rocketd.remoting.interfaces import IRequestContext, IRequestProcessor
from rocketd.remoting.wire.command import RemotingCommand


class ServedReplication(Protocol):
    """The broker, as this processor sees it."""

    replication: Replication


@implementer(IRequestProcessor)
class TableChangesProcessor:
    """Passes the request to replication, which answers when a table has changed."""

    def __init__(self, broker: ServedReplication) -> None:
        self._broker = broker

    def process(self, request: RemotingCommand, context: IRequestContext) -> None:
        """Handle one request; see IRequestProcessor."""
        self._broker.replication.table_changes.watch(request, context)
