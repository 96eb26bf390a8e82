"""Addresses of name servers from an HTTP page whose first line lists them.

Counterpart: `TopAddressing` (Apache). Unlike Apache, an answer without a list of addresses is refused.
"""

from collections.abc import Callable

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.defer import TimeoutError as DeferredTimeoutError
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketd.common.settings.checks import is_address_list
from rocketd.remoting.calling.channel_table import join, tell_all

INTERVAL_SECONDS = 120.0
"""Interval of requests for the addresses."""

TIMEOUT_SECONDS = 3.0
"""Timeout of connecting and of the whole answer."""

_SHOWN = 80


class AddressServerError(Exception):
    """The page gave no addresses. The text has the page and the reason."""


def page_of(url: str, unit_name: str | None) -> str:
    """Return the URL to request. A unit has a separate page."""
    return f"{url}-{unit_name}?nofix=1" if unit_name and not unit_name.isspace() else url


def addresses_in(text: str) -> list[str]:
    """Return the addresses in the first line of an answer. Raises ValueError for anything else."""
    line = next(iter(text.strip().splitlines()), "")
    if not line or not is_address_list(line):
        raise ValueError(f"its answer does not list addresses of name servers: {line[:_SHOWN]!r}")
    return [part.strip() for part in line.rstrip("; ").split(";")]


class AddressServer:
    """Requests one page, and passes its addresses to ``found``. Reactor thread."""

    _log = Logger()

    def __init__(self, reactor: IReactorTime, page: str, found: Callable[[list[str]], None]) -> None:
        self._reactor = reactor
        self._page = page
        self._found = found
        self._asking: Deferred[None] | None = None
        self._waiting: list[Deferred[None]] = []

    async def ask(self) -> None:
        """Request once for all callers waiting at a time. Raises AddressServerError."""
        answer = join(self._waiting)
        if self._asking is None:
            self._asking = Deferred.fromCoroutine(self._ask())
            self._asking.addBoth(self._asked)
        await answer

    async def refresh(self) -> None:
        """Request the page. If this fails, log it and keep the known addresses."""
        try:
            await self.ask()
        except AddressServerError as error:
            self._log.warn("the name servers stay as they are: {error}", error=error)

    def stop(self) -> None:
        """Cancel the running request."""
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
        except Exception as error:  # errors of connections, HTTP and answers have no common base
            text = f"asking {self._page} for the addresses of name servers failed: {_reason(error)}"
            raise AddressServerError(text) from error

    async def _get(self) -> str:
        # Not at the top: few programs have an address server, and Twisted's HTTP client doubles an import's time.
        from rocketd.remoting.calling.http_page import get_page

        return await get_page(self._reactor, self._page, TIMEOUT_SECONDS)


def _too_late(_: object, seconds: float) -> None:
    # HTTP has wrapped the cancellation in another error.
    raise DeferredTimeoutError(f"no answer within {seconds:g} s")


def _reason(error: Exception) -> str:
    reasons: list[Failure] = getattr(error, "reasons", [])
    return reasons[0].getErrorMessage() if reasons else str(error)
