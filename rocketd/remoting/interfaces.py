"""What a processor plugin is, and what it is given.

Third parties implement these: see docs/howto/processor-plugin.md. Nothing here imports the reactor.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from twisted.plugin import IPlugin
from zope.interface import Attribute, Interface

from rocketd.remoting.command import RemotingCommand


class IConnection(Interface):
    """One peer's connection, as processors see it. Its methods may be called from any thread."""

    address = Attribute("The peer as ``host:port``.")
    host = Attribute("The peer's address and port as the record's host field: 8 or 20 bytes.")
    closed = Attribute("Whether the connection is gone.")

    def send(command: RemotingCommand) -> None:
        """Write a command; it is dropped when the connection is gone."""

    def close() -> None:
        """Write what is pending, then close."""


class IRequestContext(Interface):
    """What goes with a request into a processor."""

    connection = Attribute("The IConnection it came from.")
    received_ms = Attribute("Monotonic milliseconds at which its bytes were read.")

    def answer(response: RemotingCommand) -> None:
        """Send the answer now, from any thread; for processors that returned None because theirs comes late."""


class IRequestProcessor(Interface):
    """Handles requests of the codes it is registered for, in the threads of its pool."""

    def process(request: RemotingCommand, context: Any) -> RemotingCommand | None:
        """Handle one request and return its response.

        None means that ``context.answer`` is called later or that nothing is to be answered. A Deferred of a response may
        be returned if it fires in the reactor thread. The method may be ``async def``: the coroutine then runs in the
        reactor thread, where it may await Deferreds and must not block. Raise RequestError to refuse. Any other
        exception is answered with SYSTEM_ERROR, without its text, and logged.
        """


class IJobProcessor(IRequestProcessor):
    """A processor that takes the whole queue at once: for the hot paths, where a hop a message costs more than the work."""

    def process_jobs(jobs: Sequence[Any]) -> None:
        """Handle all frames of all jobs (``dispatch.Job``) and answer them; may not raise."""


class IProcessorPlugin(IPlugin):
    """A descriptor found by ``twisted.plugin``: cheap to import, it names what it handles and makes it when asked."""

    name = Attribute("Unique name, for logs.")
    daemon = Attribute("'broker' or 'namesrv': whose requests.")
    codes = Attribute("The request codes it handles: a tuple of int.")
    pool = Attribute(
        "Name of the thread pool it runs in. An unknown name makes a pool, with as many threads as the attribute "
        "``threads`` says: 1 to 64, and 1 if there is no such attribute."
    )

    def create(daemon: Any) -> IRequestProcessor:
        """Make the processor. ``daemon`` is the IBroker or INameServer it will serve in."""


class IRPCHook(Interface):
    """Sees every request before it is handled or sent, and its response after."""

    def before_request(address: str, request: RemotingCommand) -> None:
        """See the request. Raise RequestError to refuse it: code and remark become the answer's.

        Any other exception is answered with SYSTEM_ERROR, without its text, and logged.
        """

    def after_response(address: str, request: RemotingCommand, response: RemotingCommand | None) -> None:
        """See the response; may change its fields."""


class IFieldsHook(IRPCHook):
    """A hook that can do without the command where the code's header fields tell all: on the hot paths it has to."""

    def before_fields(address: str, code: int, fields: Mapping[str, str], body: bytes | memoryview | None) -> None:
        """As ``before_request``, for the codes of sends and pulls. A request that is refused comes there once more."""


class IRPCHookPlugin(IPlugin):
    """A descriptor of a hook around all requests of a server, found by ``twisted.plugin``."""

    name = Attribute("Unique name, for logs.")
    daemon = Attribute("'broker' or 'namesrv': whose requests.")

    def create_rpc_hook(daemon: Any) -> Any:
        """Make an IRPCHook, or an IFieldsHook. ``daemon`` is the IBroker or INameServer."""


class IConnectionListener(Interface):
    """Told what happens to the connections of a server, each time with a ConnectionEvent, from one thread of its own."""

    def connected(event: Any) -> None:
        """A peer has connected."""

    def closed(event: Any) -> None:
        """A connection is gone."""

    def idle(event: Any) -> None:
        """A connection is closed because nothing was received on it for too long. ``closed`` follows."""

    def failed(event: Any) -> None:
        """A connection failed or sent bytes that are not a frame; ``reason`` says which. ``closed`` follows."""


class IConnectionListenerPlugin(IPlugin):
    """A descriptor of a connection listener, found by ``twisted.plugin``."""

    name = Attribute("Unique name, for logs.")
    daemon = Attribute("'broker' or 'namesrv': whose connections.")

    def create_connection_listener(daemon: Any) -> IConnectionListener:
        """Make the listener. ``daemon`` is the IBroker or INameServer."""
