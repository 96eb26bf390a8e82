"""The addresses of the brokers of this broker's name, as name servers know them.

No counterpart in Apache. They tell slaves from strangers where nobody has listed addresses: a slave registers itself with a
name server before, or soon after, it connects to its master. All of it belongs to the reactor thread.
"""

import socket
from typing import Any

from twisted.internet import defer, threads
from twisted.logger import Logger

from rocketd.broker.address import local_addresses
from rocketd.common.networks import PRIVATE, network_list, parse_host
from rocketd.remoting.bodies import ClusterInfo
from rocketd.remoting.channel_table import split_address
from rocketd.remoting.codes import RequestCode, ResponseCode
from rocketd.remoting.command import RemotingCommand
from rocketd.remoting.errors import RemotingError

TIMEOUT_MS = 3_000
LOOK_SECONDS = 2.0
"""Name servers are not asked more often."""
REMEMBER_SECONDS = 600.0
"""For how long a broker counts that name servers no longer know: those that were restarted know none for a while."""

_MAX_HOSTS = 256
"""Brokers of one name that are looked at."""


class KnownBrokers:
    """Hosts of the other brokers of this name. ``client`` is the RemotingClient for requests to name servers."""

    _log = Logger()

    def __init__(self, broker: Any, client: Any, reactor: Any) -> None:
        self._broker = broker
        self._client = client
        self._reactor = reactor
        self._missed_at: dict[str, float | None] = {}
        """Each host, and when name servers answered without it; None if it was in their last answer."""
        self._looked_at = float("-inf")
        self._looking: list[defer.Deferred[None]] | None = None

    def knows(self, host: str) -> bool:
        """Tell whether a broker of this name has been seen at a host lately."""
        if not self._client.name_servers.addresses:
            return network_list(PRIVATE).allows(host)
        return str(parse_host(host)) in self._missed_at

    def look(self) -> "defer.Deferred[None]":
        """Ask the name servers, unless that was done just now; fires when ``knows`` can be asked again."""
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
        hosts = sorted({host for found in lists for host in found})[:_MAX_HOSTS]
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
        """List the hosts that one name server knows; None if it does not answer."""
        request = RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO)
        try:
            response = await self._client.invoke_sync(name_server, request, TIMEOUT_MS)
            if response.code != ResponseCode.SUCCESS or not response.body:
                return None
            brokers = ClusterInfo.decode(response.body).broker_addr_table
            known = brokers.get(self._broker.settings.broker.broker_name)
        except RemotingError:
            return None
        others = [] if known is None else [a for a in known.broker_addrs.values() if a != self._broker.address]
        return [host for host in map(_host_of, others) if host is not None]


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
