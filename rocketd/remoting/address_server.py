"""The addresses of name servers, asked for by HTTP: a page whose first line lists them.

Counterpart: `TopAddressing` (Apache). Unlike there, an answer that is not a list of addresses is refused.
"""

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.defer import TimeoutError as DeferredTimeoutError
from twisted.internet.endpoints import HostnameEndpoint
from twisted.internet.protocol import Protocol, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.client import URI, Agent, ResponseDone
from twisted.web.http import PotentialDataLoss
from twisted.web.iweb import IAgentEndpointFactory, IResponse
from zope.interface import implementer

from rocketd.common.checks import is_address_list
from rocketd.remoting.channel_table import join, tell_all

INTERVAL_SECONDS = 120.0
"""How often the addresses are asked for anew."""

TIMEOUT_SECONDS = 3.0
"""How long connecting and the whole answer may take."""

_SHOWN = 80


class AddressServerError(Exception):
    """The page gave no addresses; the text says which page and why."""


def page_of(url: str, unit_name: str | None) -> str:
    """Return what is asked for: a unit has a page of its own."""
    return f"{url}-{unit_name}?nofix=1" if unit_name and not unit_name.isspace() else url


def addresses_in(text: str) -> list[str]:
    """Return the addresses in the first line of an answer. Raises ValueError for anything else."""
    line = next(iter(text.strip().splitlines()), "")
    if not line or not is_address_list(line):
        raise ValueError(f"it answers with no addresses of name servers: {line[:_SHOWN]!r}")
    return [part.strip() for part in line.rstrip("; ").split(";")]


@implementer(IAgentEndpointFactory)
class _Endpoints:
    """Makes endpoints on a reactor that is given, without TLS."""

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor

    def endpointForURI(self, uri: URI) -> HostnameEndpoint:  # noqa: N802
        """Return where a page is."""
        return HostnameEndpoint(self._reactor, uri.host, uri.port, timeout=TIMEOUT_SECONDS)


class AddressServer:
    """Asks for one page, and hands the addresses there to ``found``. Reactor thread."""

    _log = Logger()

    def __init__(self, reactor: Any, page: str, found: Callable[[list[str]], None]) -> None:
        self._reactor = reactor
        self._page = page
        self._found = found
        self._agent = Agent.usingEndpointFactory(reactor, _Endpoints(reactor))
        self._asking: Deferred[None] | None = None
        self._waiting: list[Deferred[None]] = []

    async def ask(self) -> None:
        """Ask once for all callers that wait at a time. Raises AddressServerError."""
        answer = join(self._waiting)
        if self._asking is None:
            self._asking = Deferred.fromCoroutine(self._ask())
            self._asking.addBoth(self._asked)
        await answer

    async def refresh(self) -> None:
        """Ask. If that fails, log it and leave the addresses that were found before as they are."""
        try:
            await self.ask()
        except AddressServerError as error:
            self._log.warn("the name servers stay as they are: {error}", error=error)

    def stop(self) -> None:
        """Give up what is under way."""
        if self._asking is not None:
            self._asking.cancel()

    def _asked(self, result: Failure | None) -> None:
        self._asking = None
        tell_all(result, self._waiting)

    async def _ask(self) -> None:
        getting = Deferred.fromCoroutine(self._get())
        getting.addTimeout(TIMEOUT_SECONDS, self._reactor, onTimeoutCancel=_too_late)
        try:
            self._found(addresses_in(await getting))
        except CancelledError:
            raise
        except Exception as error:  # those of connections, of HTTP and of answers have no base of their own
            text = f"asking {self._page} for the addresses of name servers failed: {_reason(error)}"
            raise AddressServerError(text) from error

    async def _get(self) -> str:
        response = await self._agent.request(b"GET", self._page.encode("ascii"))
        body = await _body_of(response)
        if response.code != 200:
            raise ValueError(f"it answers with status {response.code}")
        return str(body, "utf-8", "replace")


class _Body(Protocol):
    """Collects a body: Twisted's readBody leaves the connection open when it is cancelled."""

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
        """Take note of the end; some servers tell it by nothing but the connection's."""
        if self.done.called:
            return  # nobody wants it any more
        if reason.check(ResponseDone, PotentialDataLoss):
            self.done.callback(b"".join(self._parts))
        else:
            self.done.errback(reason)


def _body_of(response: IResponse) -> Deferred[bytes]:
    body = _Body()
    response.deliverBody(body)
    return body.done


def _too_late(_: object, seconds: float) -> None:
    # HTTP has wrapped the cancellation in an error of its own.
    raise DeferredTimeoutError(f"no answer within {seconds:g} s")


def _reason(error: Exception) -> str:
    reasons: list[Failure] = getattr(error, "reasons", [])
    return reasons[0].getErrorMessage() if reasons else str(error)
