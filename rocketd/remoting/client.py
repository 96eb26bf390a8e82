"""The connecting side: requests to any address, and requests of the peers from there.

Answers to Apache's NettyRemotingClient: brokers, producers, consumers and tools all connect through it. Connections are
made when the first request needs them (see ``channel_table``).
"""

from collections.abc import Callable, Iterable
from random import Random
from typing import Any, TypeVar

from twisted.application.service import Service
from twisted.internet.defer import Deferred, fail, maybeDeferred, succeed
from twisted.internet.defer import TimeoutError as DeferredTimeoutError
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketd.remoting.callback_threads import CallbackThreads
from rocketd.remoting.channel_table import ChannelTable, join, tell_all
from rocketd.remoting.client_connection import ClientConnection
from rocketd.remoting.codes import ResponseCode, SerializeType, request_name
from rocketd.remoting.command import RemotingCommand
from rocketd.remoting.errors import (
    PermitTimeoutError,
    RemotingConnectError,
    RemotingSendRequestError,
    RemotingTimeoutError,
    RequestError,
)
from rocketd.remoting.frame import MAX_FRAME_LENGTH
from rocketd.remoting.interfaces import IRPCHook
from rocketd.remoting.invoke import CallbackExecutor, InvokeLayer
from rocketd.remoting.name_servers import NameServers
from rocketd.remoting.settings import NettyClientConfig
from rocketd.remoting.tls import ClientTLS
from rocketd.remoting.waiters import InvokeCallback

T = TypeVar("T")

_Send = Callable[[ClientConnection, RemotingCommand, float], Deferred[RemotingCommand]]
ClientProcessor = Callable[[ClientConnection, RemotingCommand], RemotingCommand | Deferred[Any] | None]
"""Handles a request of a peer in the reactor thread; None answers nothing, a Deferred of either answers later."""


class RemotingClient(Service):
    """Requests to any address. All methods belong to the reactor thread; others use ``invoke.from_thread``.

    An address is ``host:port``; None means a name server of the list. Timeouts are in milliseconds and include making the
    connection, except for one-way requests. ``serialize_type`` is the header form of all requests. ``listeners`` are told
    of each lost connection, by their method ``connection_lost``. Callbacks run in ``callback_executor``. Without one they
    run in up to ``clientCallbackExecutorThreads`` threads, each begun when it is first needed.
    """

    _log = Logger()

    def __init__(
        self,
        reactor: Any,
        config: NettyClientConfig | None = None,
        *,
        tls: ClientTLS | None = None,
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
        self.listeners: list[Any] = []
        self._serialize_type = serialize_type
        self._processors: dict[int, ClientProcessor] = {}
        self._choosers: list[Deferred[ClientConnection]] = []
        self._choosing = False

    def startService(self) -> None:
        """Begin to serve; connections are made when they are needed."""
        super().startService()
        self._callbacks.start()
        self.invoke.start()
        self.channels.start()

    def stopService(self) -> Deferred[None]:
        """Fail what is outstanding, write what is pending, close all connections; fires when they are closed."""
        super().stopService()
        self.invoke.stop()
        self._callbacks.stop()
        return self.channels.stop()

    # ------------------------------------------------------------ requests

    def invoke_sync(
        self, address: str | None, request: RemotingCommand, timeout_ms: float
    ) -> Deferred[RemotingCommand]:
        """Send a request and return its answer.

        Fails with RemotingConnectError, RemotingSendRequestError or RemotingTimeoutError. The second closes the
        connection. The third does where ``clientCloseSocketIfTimeout`` says so, and nothing has come over it since the
        request was sent: a broker that is slow with one request has its connection kept, for others use it, too.
        """
        return self._invoke(self.invoke.invoke_sync, address, request, timeout_ms)

    def invoke_bounded(
        self, address: str | None, request: RemotingCommand, timeout_ms: float
    ) -> Deferred[RemotingCommand]:
        """Send a request and return its answer, as one of at most ``clientAsyncSemaphoreValue`` under way.

        Waiting for its turn counts against the timeout. Fails as ``invoke_sync`` does, and with
        RemotingTooMuchRequestError if no time is left to wait.
        """
        return self._invoke(self.invoke.invoke_bounded, address, request, timeout_ms)

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
            self._log.warn(
                "{address}: closing, no answer to {request}",
                address=connection.address,
                request=request_name(request.code),
            )
            self.channels.close(connection)
        return failure

    def invoke_async(
        self, address: str | None, request: RemotingCommand, timeout_ms: float, callback: InvokeCallback
    ) -> Deferred[None]:
        """Send a request; ``callback`` gets its Completion, once, unless the returned Deferred fails.

        Fails with RemotingConnectError, RemotingTooMuchRequestError, RemotingTimeoutError or RemotingSendRequestError.
        """

        async def invoke() -> None:
            connection, left = await self._connection_for(address, request, timeout_ms)
            await self._closing_if_unsent(connection, self.invoke.invoke_async(connection, request, left, callback))

        return Deferred.fromCoroutine(invoke())

    def invoke_oneway(self, address: str | None, request: RemotingCommand, timeout_ms: float) -> Deferred[None]:
        """Send a request that wants no answer; fires when it was handed to the connection.

        Fails as ``invoke_async`` does. Making the connection does not count against the timeout.
        """

        async def invoke() -> None:
            connection = await self.connection_to(address)
            request.serialize_type = self._serialize_type
            await self._closing_if_unsent(connection, self.invoke.invoke_oneway(connection, request, timeout_ms))

        return Deferred.fromCoroutine(invoke())

    async def _connection_for(
        self, address: str | None, request: RemotingCommand, timeout_ms: float
    ) -> tuple[ClientConnection, float]:
        """Return a connection and what is left of the timeout."""
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
        """Take a list of name servers, each ``host:port``; one with the same addresses changes nothing."""
        old = self.name_servers.addresses
        if self.name_servers.update(addresses):
            self._log.info("name servers: {new}, before: {old}", new=self.name_servers.addresses, old=old)

    def connection_to(self, address: str | None) -> Deferred[ClientConnection]:
        """Return a connection to an address, or to a name server: the one that was chosen while it can be reached, then
        the next that can. Fails with RemotingConnectError.
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
        # One that does not even refuse may not take the time that the others have: its attempt goes on behind the scenes.
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
        """Let a function handle the peers' requests of a code."""
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
        for listener in self.listeners:
            listener.connection_lost(connection)

    def _refuse(self, failure: Failure, connection: ClientConnection, request: RemotingCommand) -> RemotingCommand:
        error = failure.value
        if isinstance(error, RequestError):
            return RemotingCommand.response(error.code, error.remark)
        self._log.failure("{address}: {request} failed", failure=failure, address=connection.address, request=request)
        return RemotingCommand.response(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")

    def _answer(self, response: RemotingCommand | None, connection: ClientConnection, request: RemotingCommand) -> None:
        if response is not None and not request.is_oneway:
            connection.send(response.answering(request))
