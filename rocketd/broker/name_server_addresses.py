"""The addresses of the name servers: from ``namesrvAddr``, or from an address server.

Counterpart: `BrokerOuterAPI.fetchNameServerAddr` (Apache), which first asks ten seconds after the start.
"""

from collections.abc import Callable

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from rocketd.broker.base.settings import BrokerConfig
from rocketd.remoting.calling import address_server
from rocketd.remoting.calling.channel_table import join, tell_all

RETRY_SECONDS = 10.0
"""The interval between requests for the page while no name server is known."""

_PORT = 8080
_PATH = "/rocketmq/"


def page_url(settings: BrokerConfig) -> str:
    """Return the URL of the page with the name servers. The port is 8080 unless the domain contains one."""
    domain = settings.rmq_address_server_domain
    port = "" if ":" in domain else f":{_PORT}"
    return f"http://{domain}{port}{_PATH}{settings.rmq_address_server_sub_group}"


class NameServerAddresses:
    """The name servers to register with. Reactor thread.

    ``changed`` is called if the page lists other addresses than before.
    """

    _log = Logger()

    def __init__(self, settings: BrokerConfig, reactor: IReactorTime, changed: Callable[[], None]) -> None:
        self._settings = settings
        self._reactor = reactor
        self._changed = changed
        self._fetched: list[str] = []
        self._server: address_server.AddressServer | None = None
        self._first: list[Deferred[None]] = []
        self._is_asked = False
        self._next: IDelayedCall | None = None

    def current(self) -> list[str]:
        """Return the addresses; none before the first answer of an address server."""
        given = [address.strip() for address in (self._settings.namesrv_addr or "").split(";")]
        return [address for address in given if address] or self._fetched

    def describe(self) -> str:
        """Return the known name servers in words, or the page they come from."""
        if addresses := self.current():
            return ";".join(addresses)
        return f"of {page_url(self._settings)}" if self._settings.fetch_namesrv_addr_by_address_server else "none"

    @property
    def awaits_addresses(self) -> bool:
        """Whether no address is known, and an address server will be asked."""
        return self._settings.fetch_namesrv_addr_by_address_server and not self.current()

    def start(self) -> None:
        """Begin to ask the address server, if the settings say so. Another call does nothing."""
        if self._settings.fetch_namesrv_addr_by_address_server and self._server is None:
            self._server = address_server.AddressServer(self._reactor, page_url(self._settings), self._found)
            self._ask(self._server)

    async def first_answer(self) -> None:
        """Start, and return after the first answer of the address server, or on ``stop``.

        It takes some seconds at most.
        """
        self.start()
        if self._server is not None and not self._is_asked:
            await join(self._first)

    def stop(self) -> None:
        """Stop asking."""
        if self._next is not None and self._next.active():
            self._next.cancel()
        server, self._server = self._server, None
        if server is not None:
            server.stop()

    def _ask(self, server: address_server.AddressServer) -> None:
        if self._settings.namesrv_addr:
            self._again(None)  # set by a request meanwhile: it takes precedence
        else:
            Deferred.fromCoroutine(server.refresh()).addBoth(self._again)

    def _again(self, _: object) -> None:
        self._is_asked = True
        tell_all(None, self._first)
        server = self._server
        if server is not None:
            seconds = address_server.INTERVAL_SECONDS if self.current() else RETRY_SECONDS
            self._next = self._reactor.callLater(seconds, self._ask, server)

    def _found(self, addresses: list[str]) -> None:
        if set(addresses) != set(self._fetched):
            self._log.info(
                "name servers of {page}: {addresses}", page=page_url(self._settings), addresses=", ".join(addresses)
            )
            self._fetched = addresses
            self._changed()
