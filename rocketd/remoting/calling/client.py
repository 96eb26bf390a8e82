"""The client side: requests to any address, and requests from the peers there.

Counterpart: `NettyRemotingClient` (Apache). Brokers, producers, consumers and tools connect through it. Connections are
made when the first request needs them (see ``channel_table``).
"""

from collections.abc import Callable, Iterable
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

from twisted.internet.defer import Deferred, fail, maybeDeferred, succeed
from twisted.internet.defer import TimeoutError as DeferredTimeoutError
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from rocketd.common.event_loop.reactor import IReactor
from rocketd.common.logs.throttle import LogThrottle, ThrottledLog
from rocketd.remoting.calling.callback_threads import CallbackThreads
from rocketd.remoting.calling.channel_table import ChannelTable, join, tell_all
from rocketd.remoting.calling.client_connection import ClientConnection
from rocketd.remoting.calling.invoke import CallbackExecutor, InvokeLayer
from rocketd.remoting.calling.name_servers import NameServers
from rocketd.remoting.errors import (
    PermitTimeoutError,
    RemotingCommandError,
    RemotingConnectError,
    RemotingSendRequestError,
    RemotingTimeoutError,
    RequestError,
)
from rocketd.remoting.interfaces import ConnectionEvent, EventKind, IRemotingClient, IRPCHook
from rocketd.remoting.settings import NettyClientConfig
from rocketd.remoting.wire.codes import ResponseCode, SerializeType, request_name
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.remoting.wire.frame import MAX_FRAME_LENGTH

if TYPE_CHECKING:
    from rocketd.remoting.tls.contexts import ClientTLS

T = TypeVar("T")

_Send = Callable[[ClientConnection, RemotingCommand, float], Deferred[RemotingCommand]]
ClientProcessor = Callable[[ClientConnection, RemotingCommand], RemotingCommand | Deferred[Any] | None]
"""Handles a request of a peer in the reactor thread. None means no answer, a Deferred of either answers later."""


@implementer(IRemotingClient)
class RemotingClient:
    """Requests to any address. All methods belong to the reactor thread; other threads use ``invoke.from_thread``.

    An address is ``host:port``; None means a name server of the list. Timeouts are in milliseconds. They include making
    the connection, except for one-way requests.

    - ``serialize_type`` is the header form of all requests.
    - ``listeners`` are functions. Each is called with the ConnectionEvent of every connect, close, idle connection and
      failed connection. A close is the last event of a connection.
    - ``callback_executor`` runs callbacks. The default is up to ``clientCallbackExecutorThreads`` threads.
    """

    _log = Logger()

    def __init__(
        self,
        reactor: IReactor,
        config: NettyClientConfig | None = None,
        *,
        tls: "ClientTLS | None" = None,
        serialize_type: int = SerializeType.JSON,
        max_frame_length: int = MAX_FRAME_LENGTH,
        hooks: Iterable[IRPCHook] = (),
        callback_executor: CallbackExecutor | None = None,
        random: Random | None = None,
    ) -> None:
        self.config = config or NettyClientConfig()
        self._callbacks = CallbackThreads("rocketd-callback", self.config.client_callback_executor_threads)
        self.invoke = InvokeLayer(
            reactor,
            self.config.client_oneway_semaphore_value,
            self.config.client_async_semaphore_value,
            callback_executor or self._callbacks,
            hooks,
        )
        self.name_servers = NameServers(random or Random())
        self.channels = ChannelTable(reactor, self.config, tls, max_frame_length, self)
        self._silences = ThrottledLog(self._log, LogThrottle(reactor.seconds))
        self.listeners: list[Callable[[ConnectionEvent], object]] = []
        self._serialize_type = serialize_type
        self._processors: dict[int, ClientProcessor] = {}
        self._choosers: list[Deferred[ClientConnection]] = []
        self._choosing = False

    def startService(self) -> None:
        """Start. Connections are made when they are needed."""
        self._callbacks.start()
        self.invoke.start()
        self.channels.start()

    def stopService(self) -> Deferred[None]:
        """Fail outstanding requests, write pending bytes, close all connections. Fires when they are closed."""
        self.invoke.stop()
        self._callbacks.stop()
        return self.channels.stop()

    def register_rpc_hook(self, hook: IRPCHook) -> None:
        """Add a hook around all requests. Adding it twice has no effect."""
        self.invoke.register_hook(hook)

    # ------------------------------------------------------------ requests

    def invoke_sync(
        self, address: str | None, request: RemotingCommand, timeout_ms: float
    ) -> Deferred[RemotingCommand]:
        """Send a request and return its answer.

        Fails with:

        - RemotingConnectError,
        - RemotingSendRequestError; the connection is closed then,
        - RemotingTimeoutError. The connection is closed if ``clientCloseSocketIfTimeout`` is set and nothing was
          received on it since the request was sent. If the broker is merely slow with one request, the connection is
          kept for the others.
        """
        return self._invoke(self.invoke.invoke_sync, address, request, timeout_ms)

    def invoke_async(
        self, address: str | None, request: RemotingCommand, timeout_ms: float
    ) -> Deferred[RemotingCommand]:
        """Send a request and return its answer, as one of at most ``clientAsyncSemaphoreValue`` concurrent ones.

        Waiting for a permit counts against the timeout. Fails like ``invoke_sync``, and with
        RemotingTooMuchRequestError if no time is left to wait.
        """
        return self._invoke(self.invoke.invoke_async, address, request, timeout_ms)

    def _invoke(
        self, send: _Send, address: str | None, request: RemotingCommand, timeout_ms: float
    ) -> Deferred[RemotingCommand]:
        connection = None if address is None else self.channels.get(address)
        if connection is not None:
            return self._send(send, connection, request, timeout_ms)

        async def invoke() -> RemotingCommand:
            connection, left = await self._connection_for(address, request, timeout_ms)
            return await self._send(send, connection, request, left)

        return Deferred.fromCoroutine(invoke())

    def _send(
        self, send: _Send, connection: ClientConnection, request: RemotingCommand, timeout_ms: float
    ) -> Deferred[RemotingCommand]:
        request.serialize_type = self._serialize_type
        answer = send(connection, request, timeout_ms)
        return answer.addErrback(self._unanswered, connection, request, connection.received)

    def _unanswered(
        self, failure: Failure, connection: ClientConnection, request: RemotingCommand, received: int
    ) -> Failure:
        if failure.check(RemotingSendRequestError):
            self.channels.close(connection)
        elif (
            failure.check(RemotingTimeoutError)
            and not failure.check(PermitTimeoutError)
            and self.config.client_close_socket_if_timeout
            and connection.received == received
        ):
            self._silences.warn(
                f"no answer {connection.address}",
                "{address}: closing, no answer to {request}",
                address=connection.address,
                request=request_name(request.code),
            )
            self.channels.close(connection)
        return failure

    def invoke_oneway(self, address: str | None, request: RemotingCommand, timeout_ms: float) -> Deferred[None]:
        """Send a one-way request. Fires when it was given to the connection.

        Fails like ``invoke_async``. Making the connection does not count against the timeout.
        """

        async def invoke() -> None:
            connection = await self.connection_to(address)
            request.serialize_type = self._serialize_type
            await self._closing_if_unsent(connection, self.invoke.invoke_oneway(connection, request, timeout_ms))

        return Deferred.fromCoroutine(invoke())

    async def _connection_for(
        self, address: str | None, request: RemotingCommand, timeout_ms: float
    ) -> tuple[ClientConnection, float]:
        """Return (connection, rest of the timeout)."""
        began = self.invoke.now_ms()
        connecting = self.connection_to(address)
        if not connecting.called:
            connecting.addTimeout(max(0.0, timeout_ms) / 1000, self.invoke.reactor)
        try:
            connection = await connecting
        except DeferredTimeoutError:
            if address is None:
                raise RemotingTimeoutError(f"no connection to a name server within {timeout_ms:g} ms") from None
            raise RemotingConnectError(address, f"no connection within {timeout_ms:g} ms") from None
        request.serialize_type = self._serialize_type
        return connection, max(0.0, timeout_ms - (self.invoke.now_ms() - began))

    async def _closing_if_unsent(self, connection: ClientConnection, sent: Deferred[T]) -> T:
        try:
            return await sent
        except RemotingSendRequestError:
            self.channels.close(connection)
            raise

    # ------------------------------------------------------------ name servers

    def update_name_server_addresses(self, addresses: Iterable[str]) -> None:
        """Set the list of name servers, each ``host:port``. A list with the same addresses changes nothing."""
        old = self.name_servers.addresses
        if self.name_servers.update(addresses):
            self._log.info("name servers: {new}, before: {old}", new=self.name_servers.addresses, old=old)

    def connection_to(self, address: str | None) -> Deferred[ClientConnection]:
        """Return a connection to an address, or to a name server. Fails with RemotingConnectError.

        The chosen name server is kept while it is reachable; then the next reachable one is chosen.
        """
        if address is not None:
            return self.channels.connect(address)
        chosen = self.name_servers.chosen
        connection = None if chosen is None else self.channels.get(chosen)
        if connection is not None:
            return succeed(connection)
        if not self.name_servers.addresses:
            return fail(RemotingConnectError("a name server", "no name server address is set"))
        waiter = join(self._choosers)
        if not self._choosing:
            self._choosing = True
            Deferred.fromCoroutine(self._choose_name_server()).addBoth(self._chosen)
        return waiter

    async def _choose_name_server(self) -> ClientConnection:
        reasons = []
        # One that does not respond must not use up the time of the others: its attempt continues in the background.
        seconds = self.config.connect_timeout_millis / 1000 / len(self.name_servers.addresses)
        for _ in self.name_servers.addresses:
            address = self.name_servers.choose_next()
            try:
                return await self.channels.connect(address).addTimeout(seconds, self.invoke.reactor)
            except RemotingConnectError as error:
                reasons.append(str(error))
            except DeferredTimeoutError:
                reasons.append(f"connect to {address} failed: no connection within {seconds:g} s")
        raise RemotingConnectError("any name server", "; ".join(reasons))

    def _chosen(self, result: ClientConnection | Failure) -> None:
        self._choosing = False
        tell_all(result, self._choosers)

    # ------------------------------------------------------------ what arrives

    def register_processor(self, code: int, processor: ClientProcessor) -> None:
        """Handle the peers' requests of a code by a function."""
        self._processors[code] = processor

    def command_received(self, connection: ClientConnection, command: RemotingCommand) -> None:
        """Complete a request of ours, or handle one of the peer."""
        if command.is_response:
            self.invoke.process_response(connection, command)
            return
        processor = self._processors.get(command.code)
        if processor is None:
            remark = f" request type {command.code} not supported"
            self._log.error("{address}{remark}", address=connection.address, remark=remark)
            self._answer(RemotingCommand.response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark), connection, command)
            return
        handled: Deferred[Any] = maybeDeferred(processor, connection, command)
        handled.addErrback(self._refuse, connection, command)
        handled.addCallback(self._answer, connection, command)

    def connection_lost(self, connection: ClientConnection) -> None:
        """Fail the requests of a lost connection at once."""
        self.invoke.connection_lost(connection, connection.fault)
        if connection.fault:
            self.connection_event(EventKind.EXCEPTION, connection.address, connection.fault)
        self.connection_event(EventKind.CLOSE, connection.address)

    def connection_event(self, kind: EventKind, address: str, reason: str = "") -> None:
        """Call the listeners."""
        event = ConnectionEvent(kind, address, reason)
        for listener in self.listeners:
            listener(event)

    def _refuse(self, failure: Failure, connection: ClientConnection, request: RemotingCommand) -> RemotingCommand:
        error = failure.value
        if isinstance(error, RequestError):
            return RemotingCommand.response(error.code, error.remark)
        self._log.failure("{address}: {request} failed", failure=failure, address=connection.address, request=request)
        if isinstance(error, RemotingCommandError) and error.command is request:
            return RemotingCommand.response(ResponseCode.SYSTEM_ERROR, str(error))
        # The rest of the text may be meant for the program only.
        remark = f"request type {request.code} failed; the log of the client has the error"
        return RemotingCommand.response(ResponseCode.SYSTEM_ERROR, remark)

    def _answer(self, response: RemotingCommand | None, connection: ClientConnection, request: RemotingCommand) -> None:
        if response is not None and not request.is_oneway:
            connection.send(response.answering(request))
