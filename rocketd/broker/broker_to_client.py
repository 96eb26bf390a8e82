"""What the broker sends to its clients without being asked.

Answers to Apache's Broker2Client and DefaultConsumerIdsChangeListener.
"""

from collections.abc import Sequence
from typing import Protocol

from rocketd.broker.settings import BrokerConfig
from rocketd.remoting.codes import RequestCode
from rocketd.remoting.command import RemotingCommand
from rocketd.remoting.headers import ConsumerGroupRequestHeader, write_header
from rocketd.remoting.interfaces import IConnection

NOTICE_TIMEOUT_MS = 10


class OnewaySender(Protocol):
    """The part of the invoke layer that is needed here."""

    def oneway_from_thread(self, connection: IConnection, request: RemotingCommand, timeout_ms: float) -> None:
        """Send a one-way request; that it could not be sent is only logged."""


class BrokerToClient:
    """Sends requests to clients. Methods may be called from any thread."""

    def __init__(self, settings: BrokerConfig, invoke: OnewaySender) -> None:
        self._settings = settings
        self._invoke = invoke

    def notify_consumer_ids_changed(self, group: str, connections: Sequence[IConnection]) -> None:
        """Tell consumers that their group has changed (40), so that they share its queues anew at once."""
        if not self._settings.notify_consumer_ids_changed_enable:
            return
        fields = write_header(ConsumerGroupRequestHeader(consumer_group=group))
        for connection in connections:
            request = RemotingCommand(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, dict(fields))
            self._invoke.oneway_from_thread(connection, request, NOTICE_TIMEOUT_MS)
