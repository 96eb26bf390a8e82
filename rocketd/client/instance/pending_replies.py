"""Requests that wait for their replies, by correlation id.

Answers to RequestFutureHolder. Reactor thread.
"""

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from rocketd.common.properties import CORRELATION_ID, decode_properties
from rocketd.remoting.headers import ReplyMessageRequestHeader


class PendingReplies:
    """Who waits for which reply. Time limits are those who wait's own: they cancel."""

    _log = Logger()

    def __init__(self) -> None:
        self._waiting: dict[str, Deferred[tuple[ReplyMessageRequestHeader, bytes]]] = {}

    def expect(self, correlation_id: str) -> Deferred[tuple[ReplyMessageRequestHeader, bytes]]:
        """Fires with the reply's header and body; cancelling it ends the wait."""

        def forget(_: object) -> None:
            self._waiting.pop(correlation_id, None)

        waiting: Deferred[tuple[ReplyMessageRequestHeader, bytes]] = Deferred(forget)
        self._waiting[correlation_id] = waiting
        return waiting

    def arrived(self, header: ReplyMessageRequestHeader, body: bytes) -> None:
        """Give a reply to who waits for it; log it where nobody does any more."""
        correlation_id = decode_properties(header.properties).get(CORRELATION_ID, "")
        waiting = self._waiting.pop(correlation_id, None)
        if waiting is None:
            self._log.warn(
                "a reply from {host} came for nobody: correlation id {id}", host=header.born_host, id=correlation_id
            )
        else:
            waiting.callback((header, body))
