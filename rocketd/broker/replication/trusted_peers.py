"""The hosts whose brokers this one believes: they may copy its log, lead it, or make it step down.

Anyone can register any address with a name server, and answer there as a broker of any name. So a host is trusted only
if it has something no stranger has:

- It is in haAllowedAddresses. If 127.0.0.1 is, so are all addresses of this machine.
- It has shown a valid certificate (haTlsMode, haTlsEnable).
- This broker has connected to it at an address of its own settings (haMasterAddress).

The last two hold until this broker stops. Everything belongs to the reactor thread.
"""

import socket
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address

from twisted.internet import threads

from rocketd.broker.base.address import join, local_addresses
from rocketd.common.event_loop.reactor import IReactor
from rocketd.common.networks import network_list, parse_host
from rocketd.remoting.calling.channel_table import split_address
from rocketd.remoting.errors import RemotingError
from rocketd.store.base.settings import MessageStoreConfig

_LOOPBACK = "127.0.0.1"
_MAX_NAMES = 64
"""The maximum number of host names to resolve at a time: a stranger may register many."""


class TrustedPeers:
    """Tells trusted hosts from others, by the settings as they are now."""

    def __init__(self, config: MessageStoreConfig, reactor: IReactor) -> None:
        self._config = config
        self._reactor = reactor
        self._proved: set[IPv4Address | IPv6Address] = set()

    def prove(self, host: str) -> None:
        """Trust a host from now on: it has shown its certificate, or was reached at an address of the settings."""
        if (address := parse_host(host)) is not None:
            self._proved.add(address)

    def lists(self, host: str, *, is_local: bool) -> bool:
        """Return whether a host is in the list: an IP address. ``is_local`` is whether this machine has it."""
        allowed = network_list(self._config.ha_allowed_addresses)
        return allowed.allows(host) or (is_local and allowed.allows(_LOOPBACK))

    def trusts(self, host: str, *, is_local: bool = False) -> bool:
        """Return whether a host is in the list or proved."""
        return self.lists(host, is_local=is_local) or parse_host(host) in self._proved

    async def trusted(self, addresses: Iterable[str]) -> dict[str, str]:
        """Map each trusted address (``host:port``) to the address to use, in their order.

        Its host is an IP address, because a name may stand for another one a moment later.
        """
        parts = {address: _parts(address) for address in addresses}
        doubtful = [host for host, _ in parts.values() if host and not self.trusts(host)]
        names = [host for host in doubtful if parse_host(host) is None][:_MAX_NAMES]
        own: set[str] = set()
        resolved: dict[str, list[str]] = {}
        if names or (doubtful and self.lists(_LOOPBACK, is_local=True)):
            pool = self._reactor.getThreadPool()
            own, resolved = await threads.deferToThreadPool(self._reactor, pool, _look_up, names)
        found = {}
        for address, (host, port) in parts.items():
            candidates = resolved.get(host, ()) if parse_host(host) is None else (host,)
            trusted = next((each for each in candidates if self.trusts(each, is_local=each in own)), None)
            if trusted is not None:
                found[address] = join(trusted, port)
        return found


def _parts(address: str) -> tuple[str, int]:
    """Return host and port. The host is empty, and so not trusted, if it is not an address."""
    try:
        return split_address(address)
    except RemotingError:
        return "", 0


def _look_up(names: list[str]) -> tuple[set[str], dict[str, list[str]]]:
    """Return the addresses of this machine, and those of each name. Blocks."""
    return set(local_addresses()), {name: _resolve(name) for name in names}


def _resolve(name: str) -> list[str]:
    try:
        return [str(entry[4][0]) for entry in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)]
    except (OSError, UnicodeError):
        return []
