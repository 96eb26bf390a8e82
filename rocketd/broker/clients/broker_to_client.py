"""Notices and requests from the broker to its clients.

No thread waits for a client: a request to one returns a Deferred.

Counterpart: `Broker2Client`, `DefaultConsumerIdsChangeListener` (Apache).
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from rocketd.broker.base.settings import BrokerConfig
from rocketd.remoting.errors import RemotingError
from rocketd.remoting.headers.client import CheckTransactionStateRequestHeader, ConsumerGroupRequestHeader, write_header
from rocketd.remoting.interfaces import IConnection
from rocketd.remoting.wire.codes import RequestCode, SerializeType
from rocketd.remoting.wire.command import RemotingCommand

NOTICE_TIMEOUT_MS = 10
CALL_TIMEOUT_MS = 10_000
"""The default time for a client's answer."""

T = TypeVar("T")

Finish = Callable[[RemotingCommand | RemotingError], T]
"""Converts a client's answer, or the error in its place. ``call`` and ``push`` say in which thread."""


class Invoke(Protocol):
    """The part of the invoke layer needed here."""

    def oneway_from_thread(self, connection: IConnection, request: RemotingCommand, timeout_ms: float) -> None:
        """Send a one-way request. A failure is only logged."""

    def from_thread(self, invoke: Callable[..., Deferred[T]], *arguments: Any) -> Deferred[T]:
        """Call a function in the reactor thread. The Deferred of its result is for the dispatcher."""

    def invoke_async(
        self, connection: IConnection, request: RemotingCommand, timeout_ms: float
    ) -> Deferred[RemotingCommand]:
        """Send a request once a permit is free, and return its answer. Reactor thread."""

    def invoke_sync(
        self, connection: IConnection, request: RemotingCommand, timeout_ms: float
    ) -> Deferred[RemotingCommand]:
        """Send a request and return its answer. Reactor thread."""

    def in_executor(self, function: Callable[..., T], *arguments: Any) -> Deferred[T]:
        """Run a function in the callback executor; fires in the reactor thread."""


class BrokerToClient:
    """Sends requests to clients, with headers of ``serialize_type``. Any thread."""

    def __init__(self, settings: BrokerConfig, invoke: Invoke, serialize_type: int = SerializeType.JSON) -> None:
        self._settings = settings
        self._invoke = invoke
        self._serialize_type = serialize_type

    def notify_consumer_ids_changed(self, group: str, connections: Sequence[IConnection]) -> None:
        """Notify consumers that their group has changed (40), so that they rebalance at once."""
        if not self._settings.notify_consumer_ids_changed_enable:
            return
        fields = write_header(ConsumerGroupRequestHeader(consumer_group=group))
        for connection in connections:
            request = RemotingCommand(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, dict(fields))
            self.tell(connection, request, NOTICE_TIMEOUT_MS)

    def check_producer_transaction_state(
        self, connection: IConnection, header: CheckTransactionStateRequestHeader, body: bytes
    ) -> None:
        """Ask a producer (39) about the transaction of a half message, whose record is the body."""
        request = RemotingCommand(RequestCode.CHECK_TRANSACTION_STATE, write_header(header), body=body)
        self.tell(connection, request, NOTICE_TIMEOUT_MS)

    def tell(self, connection: IConnection, request: RemotingCommand, timeout_ms: float) -> None:
        """Send a one-way request. A failure is only logged."""
        request.serialize_type = self._serialize_type
        self._invoke.oneway_from_thread(connection, request, timeout_ms)

    def call(
        self,
        connection: IConnection,
        request: RemotingCommand,
        finish: Finish[T],
        timeout_ms: float = CALL_TIMEOUT_MS,
    ) -> Deferred[T]:
        """Send a request to a client. Fires in the reactor thread with the result or the error of ``finish``.

        ``finish`` runs in a thread of the callback executor, because answers may be long and slow to decode. At most
        ``serverAsyncSemaphoreValue`` such requests are in progress; waiting for one counts against the timeout.

        A processor may return this Deferred as it is. Only the reactor thread may add callbacks to it.
        """
        return self._ask(self._invoke.invoke_async, connection, request, timeout_ms, partial(self._in_executor, finish))

    def push(
        self, connection: IConnection, request: RemotingCommand, finish: Finish[T], timeout_ms: float = CALL_TIMEOUT_MS
    ) -> Deferred[T]:
        """Send a request to a client at once, without a limit on their number. ``finish`` runs in the reactor thread.

        Replies go this way: a client slow to take its replies must not delay those of others.
        """
        return self._ask(self._invoke.invoke_sync, connection, request, timeout_ms, finish)

    def _ask(
        self,
        invoke: Callable[[IConnection, RemotingCommand, float], Deferred[RemotingCommand]],
        connection: IConnection,
        request: RemotingCommand,
        timeout_ms: float,
        finish: Callable[[RemotingCommand | RemotingError], T | Deferred[T]],
    ) -> Deferred[T]:
        def failed(failure: Failure) -> RemotingError:
            failure.trap(RemotingError)
            return failure.value  # type: ignore[return-value]

        request.serialize_type = self._serialize_type

        def ask() -> Deferred[T]:
            answered: Deferred[Any] = invoke(connection, request, timeout_ms)
            return answered.addErrback(failed).addCallback(finish)

        return self._invoke.from_thread(ask)

    def _in_executor(self, finish: Finish[T], answer: RemotingCommand | RemotingError) -> Deferred[T]:
        return self._invoke.in_executor(finish, answer)
