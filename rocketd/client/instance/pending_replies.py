"""Requests waiting for their replies, by correlation id.

Counterpart: `RequestFutureHolder` (Apache). Reactor thread.
"""

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from rocketd.common.message_properties import CORRELATION_ID, decode_properties
from rocketd.remoting.headers.client import ReplyMessageRequestHeader


class PendingReplies:
    """The waiters by correlation id. A waiter sets its time limit itself, and cancels."""

    _log = Logger()

    def __init__(self) -> None:
        self._waiting: dict[str, Deferred[tuple[ReplyMessageRequestHeader, bytes]]] = {}
        self.looked_up: dict[str, float] = {}
        """The time in seconds at which the brokers of a cluster's reply topic were last looked up, by cluster."""

    def expect(self, correlation_id: str) -> Deferred[tuple[ReplyMessageRequestHeader, bytes]]:
        """Return a Deferred for the reply's header and body. Cancelling it ends the wait."""

        def forget(_: object) -> None:
            self._waiting.pop(correlation_id, None)

        waiting: Deferred[tuple[ReplyMessageRequestHeader, bytes]] = Deferred(forget)
        self._waiting[correlation_id] = waiting
        return waiting

    def arrived(self, header: ReplyMessageRequestHeader, body: bytes) -> None:
        """Pass a reply to its waiter. Log it if nothing waits."""
        correlation_id = decode_properties(header.properties).get(CORRELATION_ID, "")
        waiting = self._waiting.pop(correlation_id, None)
        if waiting is None:
            self._log.warn(
                "no request waits for a reply from {host}: correlation id {id}",
                host=header.born_host,
                id=correlation_id,
            )
        else:
            waiting.callback((header, body))
