"""The checks before any page, and the headers of every answer."""

from ipaddress import ip_address
from typing import Final, cast
from urllib.parse import urlsplit

from twisted.internet.interfaces import IAddress, IDelayedCall, IProtocol, IProtocolFactory, ITCPTransport, ITransport
from twisted.protocols.policies import ProtocolWrapper, WrappingFactory
from twisted.python.failure import Failure
from twisted.web.http import Request as HttpRequest
from twisted.web.resource import IResource, Resource
from twisted.web.server import Request, Site

from rocketd.common.event_loop.reactor import IReactor

MAX_CONNECTIONS: Final = 64
"""Open connections. A further one replaces the oldest without a whole request, or is closed at once."""
HEADER_SECONDS: Final = 10
"""Time for the headers of a request. Then the connection is closed."""
MAX_BODY_BYTES: Final = 256 * 1024
"""Length of a form. The body of a test message is a part of one."""
IDLE_SECONDS: Final = 60
"""Time without received bytes after which a connection is closed."""
MAX_RUNNING: Final = 16
"""Pages under way at a time. Further ones are answered with status 503."""
MAX_SIGN_INS: Final = 8
"""Sign-ins under way at a time, beside the pages: anybody can begin one, and a silent cluster lets it wait."""

HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Server": "rocketd",
}

_INSTANT: Final = (b"healthz", b"static")
"""First parts of the paths which ask no broker. They do not count as pages."""


class HostCheck:
    """Tells which Host headers are accepted: IP addresses, ``localhost``, ``consoleHost`` and the host of
    ``consoleUrl``.

    A page of a foreign site that lets its own name point to the console (DNS rebinding) sends that name, and is refused.
    """

    def __init__(self, host: str, url: str | None) -> None:
        self._names = {"localhost", host.lower()}
        if url is not None and (name := urlsplit(url).hostname):
            self._names.add(name)

    def accepts(self, header: str | None) -> bool:
        """Return whether a header is accepted."""
        try:
            host = urlsplit(f"//{header}").hostname
        except ValueError:
            return False
        if not header or host is None:
            return False
        if host in self._names:
            return True
        try:
            ip_address(host)
        except ValueError:
            return False
        return True


class Gate(Resource):
    """Checks each request, takes the base path away, and hands it on to ``pages``."""

    isLeaf = True  # noqa: N815 - the name is Twisted's

    def __init__(self, pages: IResource, base: str, hosts: HostCheck) -> None:
        super().__init__()
        self._pages = pages
        self._base = [part.encode() for part in base.split("/") if part]
        self._hosts = hosts
        self._running = 0
        self._sign_ins = 0

    def render(self, request: Request) -> bytes | int:
        """See IResource."""
        for name, value in HEADERS.items():
            request.setHeader(name, value)
        if not self._hosts.accepts(request.getHeader("host")):
            return _refusal(request, 421, "This host name is not the console's. Set consoleUrl if it should be.")
        if request.method == b"POST" and (request.getHeader("sec-fetch-site") or "same-origin") not in (
            "same-origin",
            "none",
        ):
            return _refusal(request, 403, "The form comes from another site.")
        size, path = len(self._base), request.postpath or []
        if size and path[:size] == self._base:
            request.postpath = path[size:] or [b""]
        if request.postpath and request.postpath[0] in _INSTANT:
            return cast(bytes | int, self._pages.render(request))
        if request.method == b"POST" and request.postpath == [b"login"]:
            if self._sign_ins >= MAX_SIGN_INS:
                return _refusal(request, 503, "Many users sign in. Try again.")
            self._sign_ins += 1
            request.notifyFinish().addBoth(self._sign_in_ended)
        else:
            if self._running >= MAX_RUNNING:
                return _refusal(request, 503, "The console is busy. Try again.")
            self._running += 1
            request.notifyFinish().addBoth(self._ended)
        return cast(bytes | int, self._pages.render(request))

    def _ended(self, _: object) -> None:
        self._running -= 1

    def _sign_in_ended(self, _: object) -> None:
        self._sign_ins -= 1


def _refusal(request: Request, status: int, text: str) -> bytes:
    request.setResponseCode(status)
    request.setHeader("content-type", "text/plain; charset=utf-8")
    return f"{text}\n".encode()


class BoundedRequest(Request):
    """A request whose connection is closed if it announces a body over MAX_BODY_BYTES or of unknown length.

    It tells its connection when the headers are complete, and whether an answer is pending.
    """

    def gotLength(self, length: int | None) -> None:  # noqa: N802 - the name is Twisted's
        """Prepare for a body, or refuse it. The headers are complete."""
        self._connection().headers_received()
        refused = length is None or length > MAX_BODY_BYTES
        super().gotLength(0 if refused else length)
        if refused:
            self.channel.forceAbortClient()
            self.refused = True

    refused = False

    def requestReceived(self, command: bytes, path: bytes, version: bytes) -> None:  # noqa: N802 - Twisted's
        """Answer the whole request."""
        self._connection().busy = True
        super().requestReceived(command, path, version)

    def finish(self) -> None:
        """End the answer."""
        self._connection().busy = False
        super().finish()

    def _connection(self) -> "BrowserConnection":
        return cast(BrowserConnection, self.channel.transport)

    def handleContentChunk(self, data: bytes) -> None:  # noqa: N802 - the name is Twisted's
        """Keep a part of the body, unless the request is refused."""
        if not self.refused:
            super().handleContentChunk(data)


class QuietSite(Site):
    """Without a log line for each request: paths have names of topics and keys."""

    noisy = False

    def log(self, request: HttpRequest) -> None:
        """Do nothing."""


class BrowserConnection(ProtocolWrapper):
    """A connection of a browser, which must send the headers of each request within HEADER_SECONDS."""

    factory: "FewConnections"

    def __init__(self, factory: "FewConnections", wrapped: IProtocol) -> None:
        super().__init__(factory, wrapped)  # type: ignore[arg-type]
        self.busy = False
        """Whether a whole request waits for its answer."""
        self.dropped = False
        """Whether it is being closed by the console."""
        self._limit: IDelayedCall | None = None

    def makeConnection(self, transport: ITransport) -> None:
        """Wait for the first request."""
        self._limit = self.factory.reactor.callLater(HEADER_SECONDS, self.drop)
        super().makeConnection(transport)

    def dataReceived(self, data: bytes) -> None:
        """Read a part of a request."""
        if self._limit is None and not self.busy:
            self._limit = self.factory.reactor.callLater(HEADER_SECONDS, self.drop)
        super().dataReceived(data)

    def headers_received(self) -> None:
        """End the limit for the headers."""
        limit, self._limit = self._limit, None
        if limit is not None and limit.active():
            limit.cancel()

    def drop(self) -> None:
        """Close the connection without an answer."""
        self.dropped = True
        cast(ITCPTransport, self.transport).abortConnection()

    def connectionLost(self, reason: Failure) -> None:  # type: ignore[override]
        """End the limit."""
        self.headers_received()
        super().connectionLost(reason)


class FewConnections(WrappingFactory):
    """Keeps MAX_CONNECTIONS open, those with a request under way first."""

    noisy = False
    protocol = BrowserConnection

    def __init__(self, wrapped: IProtocolFactory, reactor: IReactor) -> None:
        super().__init__(wrapped)
        self.reactor = reactor

    def buildProtocol(self, addr: IAddress | None) -> ProtocolWrapper:
        """Return the protocol for a connection, or None to close it."""
        kept = [each for each in cast(dict[BrowserConnection, int], self.protocols) if not each.dropped]
        if len(kept) >= MAX_CONNECTIONS:
            oldest = next((each for each in kept if not each.busy), None)
            if oldest is None:
                # Twisted closes the connection then; the annotation of its base class does not say so.
                return cast(ProtocolWrapper, None)
            oldest.drop()
        return super().buildProtocol(addr)
