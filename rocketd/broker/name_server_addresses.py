"""The name servers of a broker: those of ``namesrvAddr``, else those that an address server names.

Counterpart: `BrokerOuterAPI.fetchNameServerAddr` (Apache), which asks for the first time ten seconds after the start.
"""

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from rocketd.broker.settings import BrokerConfig
from rocketd.remoting import address_server

RETRY_SECONDS = 10.0
"""How soon the page is asked for again while no name server is known."""

_PORT = 8080
_PATH = "/rocketmq/"


def page_url(settings: BrokerConfig) -> str:
    """Return the URL of the page that lists the name servers; the port is 8080 unless the domain has one."""
    domain = settings.rmq_address_server_domain
    port = "" if ":" in domain else f":{_PORT}"
    return f"http://{domain}{port}{_PATH}{settings.rmq_address_server_sub_group}"


class NameServerAddresses:
    """Knows which name servers to register with. Reactor thread.

    ``changed`` is called when the page names others than before.
    """

    _log = Logger()

    def __init__(self, settings: BrokerConfig, reactor: Any, changed: Callable[[], None]) -> None:
        self._settings = settings
        self._reactor = reactor
        self._changed = changed
        self._fetched: list[str] = []
        self._server: address_server.AddressServer | None = None
        self._next: Any = None

    def current(self) -> list[str]:
        """Return the addresses; none while an address server has not answered yet."""
        given = [address.strip() for address in (self._settings.namesrv_addr or "").split(";")]
        return [address for address in given if address] or self._fetched

    def describe(self) -> str:
        """Say which name servers are known, or where they are asked for."""
        if addresses := self.current():
            return ";".join(addresses)
        return f"of {page_url(self._settings)}" if self._settings.fetch_namesrv_addr_by_address_server else "none"

    def start(self) -> None:
        """Begin to ask the address server, if the settings say so."""
        if self._settings.fetch_namesrv_addr_by_address_server:
            self._server = address_server.AddressServer(self._reactor, page_url(self._settings), self._found)
            self._ask(self._server)

    def stop(self) -> None:
        """Ask no more."""
        if self._next is not None and self._next.active():
            self._next.cancel()
        server, self._server = self._server, None
        if server is not None:
            server.stop()

    def _ask(self, server: address_server.AddressServer) -> None:
        if self._settings.namesrv_addr:
            self._again(None)  # set by a request meanwhile: it wins
        else:
            Deferred.fromCoroutine(server.refresh()).addBoth(self._again)

    def _again(self, _: object) -> None:
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
