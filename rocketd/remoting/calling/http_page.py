"""The text of a page, requested by HTTP without TLS."""

from twisted.internet.defer import Deferred
from twisted.internet.endpoints import HostnameEndpoint
from twisted.internet.interfaces import IReactorTime
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from twisted.web.client import URI, Agent, ResponseDone
from twisted.web.http import PotentialDataLoss
from twisted.web.iweb import IAgentEndpointFactory, IResponse
from zope.interface import implementer


async def get_page(reactor: IReactorTime, url: str, connect_seconds: float) -> str:
    """Return the text of a page. Raises ValueError for a status other than 200, and the errors of connections and HTTP."""
    agent = Agent.usingEndpointFactory(reactor, _Endpoints(reactor, connect_seconds))
    response = await agent.request(b"GET", url.encode("ascii"))
    body = await _body_of(response)
    if response.code != 200:
        raise ValueError(f"its answer has status {response.code}")
    return str(body, "utf-8", "replace")


@implementer(IAgentEndpointFactory)
class _Endpoints:
    """Creates endpoints on a given reactor, without TLS."""

    def __init__(self, reactor: IReactorTime, timeout: float) -> None:
        self._reactor = reactor
        self._timeout = timeout

    def endpointForURI(self, uri: URI) -> HostnameEndpoint:  # noqa: N802
        """Return the endpoint of a page."""
        return HostnameEndpoint(self._reactor, uri.host, uri.port, timeout=self._timeout)


class _Body(Protocol):
    """Collects a body. Twisted's readBody leaves the connection open if it is cancelled."""

    def __init__(self) -> None:
        self.done: Deferred[bytes] = Deferred(lambda _: self._end())
        self._parts: list[bytes] = []

    def _end(self) -> None:
        if self.transport is not None:
            self.transport.loseConnection()

    def dataReceived(self, data: bytes) -> None:
        """Take a part."""
        self._parts.append(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Handle the end. Some servers signal it only by closing the connection."""
        if self.done.called:
            return  # cancelled
        if reason.check(ResponseDone, PotentialDataLoss):
            self.done.callback(b"".join(self._parts))
        else:
            self.done.errback(reason)


def _body_of(response: IResponse) -> Deferred[bytes]:
    body = _Body()
    response.deliverBody(body)
    return body.done
