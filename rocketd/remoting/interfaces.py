"""Interfaces of client and server, and of third-party extensions.

Third parties implement those of processors, hooks and listeners, see docs/howto/processor-plugin.md. Nothing here
imports the reactor.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

from twisted.internet.defer import Deferred
from zope.interface import Attribute, Interface

from rocketd.common.lazy_names import lazy_names
from rocketd.remoting.wire.command import RemotingCommand

if TYPE_CHECKING:
    from rocketd.remoting.plugin_interfaces import IConnectionListenerPlugin, IProcessorPlugin, IRPCHookPlugin
else:
    # Clients import this module, and have no plugins.
    __getattr__, __dir__ = lazy_names(
        __name__,
        {"rocketd.remoting.plugin_interfaces": ("IConnectionListenerPlugin", "IProcessorPlugin", "IRPCHookPlugin")},
    )

__all__ = [
    "ConnectionEvent",
    "EventKind",
    "IConnection",
    "IConnectionListener",
    "IConnectionListenerPlugin",
    "IFieldsHook",
    "IJobProcessor",
    "IProcessorPlugin",
    "IRPCHook",
    "IRPCHookPlugin",
    "IRemotingClient",
    "IRemotingServer",
    "IRemotingService",
    "IRequestContext",
    "IRequestProcessor",
]


class IConnection(Interface):
    """One peer's connection, as seen by processors. Its methods may be called from any thread."""

    address: str = Attribute("The peer as ``host:port``.")
    host: bytes = Attribute("The peer's address and port as the record's host field: 8 or 20 bytes.")
    closed: bool = Attribute("Whether the connection is gone.")

    def send(command: RemotingCommand) -> None:
        """Write a command. It is dropped if the connection is gone."""

    def close() -> None:
        """Write pending bytes, then close."""


class IRequestContext(Interface):
    """Context of a request in a processor."""

    connection: IConnection = Attribute("The IConnection it came from.")
    request: RemotingCommand = Attribute("The request itself.")
    received_ms: int = Attribute("Monotonic milliseconds at which its bytes were read.")

    def answer(response: RemotingCommand) -> None:
        """Send the answer now, from any thread. For processors that returned None to answer later."""


class IRequestProcessor(Interface):
    """Handles requests of its registered codes, in the threads of its pool."""

    def process(
        request: RemotingCommand, context: IRequestContext
    ) -> "RemotingCommand | Deferred[RemotingCommand] | None":
        """Handle one request and return its response.

        Other results:

        - None: ``context.answer`` is called later, or the request needs no answer.
        - A Deferred of a response. It must fire in the reactor thread.
        - A coroutine (``async def``). It runs in the reactor thread, may await Deferreds and must not block.

        Raise RequestError to refuse. Any other exception is logged and answered with SYSTEM_ERROR, without its text.
        """


class IJobProcessor(Interface):
    """A processor that takes the whole queue at once, for hot paths: one hand-off per message would cost too much."""

    def process_jobs(jobs: Sequence[Any]) -> None:
        """Handle all frames of all jobs (``dispatch.Job``) and answer them. Must not raise."""


class IRPCHook(Interface):
    """See every request before it is handled or sent, and its response after."""

    def before_request(address: str, request: RemotingCommand) -> None:
        """See the request. Raise RequestError to refuse it with this code and remark.

        Any other exception is logged and answered with SYSTEM_ERROR, without its text.
        """

    def after_response(address: str, request: RemotingCommand, response: RemotingCommand | None) -> None:
        """See the response. Its fields may be changed."""


class IFieldsHook(IRPCHook):
    """A hook that works on the header fields alone. The hot paths need it, because they have no command."""

    def before_fields(address: str, code: int, fields: Mapping[str, str], body: bytes | memoryview | None) -> None:
        """Like ``before_request``, for the codes of sends and pulls. A refused request is passed to that method as
        well.
        """


class EventKind(Enum):
    """Kind of a connection's event. The value is the listener's method."""

    CONNECT = "connected"
    CLOSE = "closed"
    IDLE = "idle"
    EXCEPTION = "failed"


class ConnectionEvent(NamedTuple):
    """One event. ``address`` is the peer's ``host:port``. ``reason`` is empty unless the kind is EXCEPTION or IDLE."""

    kind: EventKind
    address: str
    reason: str = ""


class IConnectionListener(Interface):
    """Gets the events of a server's connections, from one separate thread."""

    def connected(event: ConnectionEvent) -> None:
        """A peer has connected."""

    def closed(event: ConnectionEvent) -> None:
        """A connection is gone."""

    def idle(event: ConnectionEvent) -> None:
        """A connection is closed because nothing was received for too long. ``closed`` follows."""

    def failed(event: ConnectionEvent) -> None:
        """A connection failed or sent bytes that are not a frame; see ``reason``. ``closed`` follows."""


class IRemotingService(Interface):
    """Common part of client and server: they start, stop and run hooks.

    Counterpart: `RemotingService` (Apache). All methods of these interfaces belong to the reactor thread.
    """

    def startService() -> None:
        """Start."""

    def stopService() -> "Deferred[Any]":
        """Stop. Fires when all connections are closed."""

    def register_rpc_hook(hook: IRPCHook) -> None:
        """Add a hook. It runs after the hooks added before."""


class IRemotingClient(IRemotingService):
    """Sends requests to any address, and passes requests of peers to functions.

    An address is ``host:port``; None means a name server of the list. Timeouts are in milliseconds. Counterpart:
    `RemotingClient` (Apache).
    """

    config = Attribute("NettyClientConfig.")
    invoke = Attribute("InvokeLayer: requests in flight.")
    channels = Attribute("ChannelTable: the connections by address.")
    name_servers = Attribute("NameServers: their addresses, and the one in use.")
    listeners = Attribute("A list of functions. Each is called with every ConnectionEvent.")

    def invoke_sync(address: str | None, request: RemotingCommand, timeout_ms: float) -> "Deferred[RemotingCommand]":
        """Send a request and return its answer. Fails with a RemotingError."""

    def invoke_async(address: str | None, request: RemotingCommand, timeout_ms: float) -> "Deferred[RemotingCommand]":
        """Send a request, within the limit of concurrent requests, and return its answer. Fails with a RemotingError."""

    def invoke_oneway(address: str | None, request: RemotingCommand, timeout_ms: float) -> "Deferred[None]":
        """Send a one-way request. Fires when it was given to the connection."""

    def connection_to(address: str | None) -> "Deferred[Any]":
        """Return a connection. Fails with RemotingConnectError."""

    def update_name_server_addresses(addresses: Iterable[str]) -> None:
        """Replace the list of name servers."""

    def register_processor(code: int, processor: Callable[..., Any]) -> None:
        """Handle requests of peers with this code by a function."""


class IRemotingServer(IRemotingService):
    """Listens, and passes requests to the processors of its dispatcher.

    Counterpart: `RemotingServer` (Apache).
    """

    port = Attribute("The listening port; before the start, the requested one.")
    dispatcher = Attribute("Dispatcher: the processors by code, and their pools.")
    events = Attribute("ConnectionEvents: calls connection listeners.")
    connections = Attribute("The open connections: a mapping with each as a key.")
    listeners = Attribute("A list. ``connection_lost`` of each is called with every lost connection.")

    def listen(port: int | None = None) -> int:
        """Open the port, or one more, and return its number. Raises ListenError."""

    def stop_listening() -> "Deferred[Any]":
        """Close the ports. Fires when they are closed."""
