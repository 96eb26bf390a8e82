"""The hosts of the slaves of this broker's name, from name servers and confirmed by the slaves.

They tell slaves from strangers if the operator has not listed addresses. A slave registers itself with a name server
before, or soon after, it connects to its master. Others may register too, so the broker at each registered address is
asked whether it is a slave of this name. Everything belongs to the reactor thread.
"""

import socket
from collections.abc import Awaitable, Callable
from typing import Any

from twisted.internet import defer, threads
from twisted.logger import Logger

from rocketd.broker.base.address import local_addresses
from rocketd.broker.replication.group import together
from rocketd.broker.replication.parts import ReplicationParts
from rocketd.common.networks import PRIVATE, network_list, parse_host
from rocketd.common.reactor import IReactor
from rocketd.remoting.bodies.tables import ClusterInfo
from rocketd.remoting.calling.channel_table import split_address
from rocketd.remoting.errors import RemotingError
from rocketd.remoting.interfaces import IRemotingClient
from rocketd.remoting.wire.codes import RequestCode, ResponseCode
from rocketd.remoting.wire.command import RemotingCommand

TIMEOUT_MS = 3_000
LOOK_SECONDS = 2.0
"""The minimum interval between two questions to the name servers."""
REMEMBER_SECONDS = 600.0
"""The time for which a broker counts after name servers have forgotten it: restarted ones know none for a while."""

_MAX_BROKERS = 256
"""The maximum number of brokers of one name to ask."""


class KnownBrokers:
    """Hosts of the slaves of this name. ``client`` sends the requests to name servers.

    ``is_slave`` asks the broker at an address (``host:port``) whether it is a slave of this name.
    """

    _log = Logger()

    def __init__(
        self,
        broker: ReplicationParts,
        client: IRemotingClient,
        reactor: IReactor,
        is_slave: Callable[[str], Awaitable[bool]],
    ) -> None:
        self._broker = broker
        self._client = client
        self._reactor = reactor
        self._is_slave = is_slave
        self._missed_at: dict[str, float | None] = {}
        """The time of the first answers without a host, by host; None if it was in the last answer."""
        self._looked_at = float("-inf")
        self._looking: list[defer.Deferred[None]] | None = None

    def knows(self, host: str) -> bool:
        """Return whether a slave of this name was seen at a host recently."""
        if not self._client.name_servers.addresses:
            return network_list(PRIVATE).allows(host)
        return str(parse_host(host)) in self._missed_at

    def look(self) -> "defer.Deferred[None]":
        """Ask the name servers, unless that was done just now. Fires when ``knows`` can be asked again."""
        done: defer.Deferred[None] = defer.Deferred()
        if self._looking is not None:
            self._looking.append(done)
        elif self._reactor.seconds() - self._looked_at < LOOK_SECONDS:
            done.callback(None)
        else:
            self._looked_at = self._reactor.seconds()
            self._looking = [done]
            defer.Deferred.fromCoroutine(self._look()).addBoth(self._looked)
        return done

    def _looked(self, result: Any) -> None:
        if result is not None:
            self._log.failure("the brokers of this name cannot be looked up", failure=result)
        waiting, self._looking = self._looking or [], None
        for done in waiting:
            done.callback(None)

    async def _look(self) -> None:
        addresses = list(self._client.name_servers.addresses)
        answers = await defer.DeferredList([defer.Deferred.fromCoroutine(self._ask(address)) for address in addresses])
        lists = [hosts for _, hosts in answers if hosts is not None]
        if not lists:
            return
        brokers = sorted({broker for found in lists for broker in found})[:_MAX_BROKERS]
        said = await together(self._host_if_slave(address) for address in brokers)
        hosts = sorted({host for host in said if host is not None})
        pool = self._reactor.getThreadPool()
        self._take(await threads.deferToThreadPool(self._reactor, pool, _addresses_of, hosts))

    def _take(self, present: set[str]) -> None:
        now = self._reactor.seconds()
        for host in [*self._missed_at]:
            missed_at = self._missed_at[host]
            if missed_at is None:
                self._missed_at[host] = now
            elif now - missed_at > REMEMBER_SECONDS:
                del self._missed_at[host]
        self._missed_at.update(dict.fromkeys(present))

    async def _ask(self, name_server: str) -> list[str] | None:
        """Return the addresses of other brokers known to one name server; None if it does not answer."""
        request = RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO)
        try:
            response = await self._client.invoke_sync(name_server, request, TIMEOUT_MS)
            if response.code != ResponseCode.SUCCESS or not response.body:
                return None
            brokers = ClusterInfo.decode(response.body).broker_addr_table
            known = brokers.get(self._broker.settings.broker.broker_name)
        except RemotingError:
            return None
        return [] if known is None else [a for a in known.broker_addrs.values() if a != self._broker.address]

    async def _host_if_slave(self, address: str) -> str | None:
        host = _host_of(address)
        return host if host is not None and await self._is_slave(address) else None


def _host_of(address: str) -> str | None:
    try:
        return split_address(address)[0]
    except RemotingError:
        return None


def _addresses_of(hosts: list[str]) -> set[str]:
    """Resolve hosts. If one of them is this machine, all addresses of this machine count. Blocks."""
    found = {address for host in hosts for address in _resolve(host)}
    own = {str(parse_host(host)) for host in local_addresses()} | {"127.0.0.1", "::1"}
    return found | own if found & own else found


def _resolve(host: str) -> list[str]:
    address = parse_host(host)
    if address is not None:
        return [str(address)]
    try:
        return [str(parse_host(str(entry[4][0]))) for entry in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]
    except (OSError, UnicodeError):
        return []
