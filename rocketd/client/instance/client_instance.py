"""What all producers and consumers with one client id share: connections, routes, heartbeats, and what brokers ask of them.

Answers to MQClientInstance, MQClientAPIImpl and ClientRemotingProcessor.
"""

import os
from collections.abc import Awaitable, Callable
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred, ensureDeferred
from twisted.internet.defer import TimeoutError as DeferredTimeoutError
from twisted.logger import Logger

from rocketd.client.config import ClientConfig, milliseconds
from rocketd.client.errors import BrokerUnreachableError, GroupInUseError, RocketMQError, check_response, of_remoting
from rocketd.client.gathering import all_of
from rocketd.client.instance.address_server import ClientAddressServer
from rocketd.client.instance.identity import UniqueKeys, client_id, local_address
from rocketd.client.instance.members import Consumer, Producer
from rocketd.client.instance.pending_replies import PendingReplies
from rocketd.client.instance.routes import Routes
from rocketd.client.instance.server_requests import ServerRequests
from rocketd.common.clocked_loop import ClockedLoop
from rocketd.remoting import address_server
from rocketd.remoting.bodies import HeartbeatData, ProducerData
from rocketd.remoting.channel_table import join, tell_all
from rocketd.remoting.client import RemotingClient
from rocketd.remoting.codes import RequestCode
from rocketd.remoting.command import RemotingCommand
from rocketd.remoting.errors import RemotingError, RemotingSendRequestError, RemotingTimeoutError
from rocketd.remoting.headers import Header, UnregisterClientRequestHeader, write_header
from rocketd.remoting.settings import TlsConfig
from rocketd.remoting.signing import SigningHook
from rocketd.remoting.tls import ClientTLS

LEAVE_TIMEOUT_MS = 1000.0
"""How long to wait for brokers that are told of who goes: they find out, too, when the connections close."""

VIP_PORT_BELOW = 2
"""How far a broker's second port, for all but pulls, lies below its first."""


class ClientInstance(Service):
    """One client of a cluster. All methods belong to the reactor thread.

    It makes a RemotingClient of the config for itself unless it is given one. Starting it connects to nothing: the first
    request does. ``now_ms`` gives Unix milliseconds, for timestamps alone; the config says where they come from otherwise.
    """

    log = Logger()

    def __init__(
        self,
        reactor: Any,
        config: ClientConfig,
        *,
        remoting: RemotingClient | None = None,
        now_ms: Callable[[], float] | None = None,
    ) -> None:
        address = config.client_ip or local_address()
        salt = os.urandom(4)
        name = config.instance_name or f"{os.getpid()}#{salt.hex()}"
        self.reactor = reactor
        self.config = config
        self.now_ms = now_ms or config.now_ms
        self.client_id = client_id(address, name if config.unit_name is None else f"{name}@{config.unit_name}")
        self.unique_keys = UniqueKeys(address, os.getpid(), salt, self.now_ms)
        self.remoting = remoting or _remoting_of(reactor, config)
        if remoting is None:
            self.remoting.listeners.append(self)
        self.remoting.update_name_server_addresses(config.name_servers())
        self._address_server = self._address_server_of(config)
        self.routes = Routes(self.ask_name_server, self.remoting.name_servers, reactor.seconds)
        self.producers: dict[str, Producer] = {}
        self.consumers: dict[str, Consumer] = {}
        self.replies = PendingReplies()
        self._loops: list[ClockedLoop] = []
        self._greeted: set[str] = set()
        ServerRequests(self).register()

    def startService(self) -> None:
        """Begin to serve and to send heartbeats."""
        super().startService()
        self.remoting.startService()
        self._repeat(milliseconds("heartbeat_interval", self.config.heartbeat_interval), self._heartbeat)
        self._repeat(milliseconds("route_interval", self.config.route_interval), self._refresh_routes)
        if self._address_server is not None:
            self._repeat(address_server.INTERVAL_SECONDS * 1000, self._address_server.refresh)

    def stopService(self) -> Deferred[None]:
        """Close all connections; producers and consumers are stopped before."""
        super().stopService()
        for loop in self._loops:
            loop.stop()
        self._loops.clear()
        self.routes.stop()
        if self._address_server is not None:
            self._address_server.stop()
        return self.remoting.stopService()

    def _address_server_of(self, config: ClientConfig) -> ClientAddressServer | None:
        if config.name_server_url is None:
            return None
        page = address_server.page_of(config.name_server_url, config.unit_name)
        return ClientAddressServer(self.reactor, page, self.remoting.update_name_server_addresses)

    def _repeat(self, interval_ms: float, function: Callable[[], Awaitable[None]]) -> None:
        loop = ClockedLoop(self.reactor, lambda: ensureDeferred(function()))  # type: ignore[arg-type]
        loop.start(interval_ms / 1000, now=False)
        self._loops.append(loop)

    def clock_ms(self) -> float:
        """Return milliseconds of the reactor's clock, for everything that takes time."""
        return float(self.reactor.seconds() * 1000)

    # ------------------------------------------------------------ questions

    async def ask(
        self,
        address: str,
        code: int,
        header: Header | None = None,
        body: bytes | None = None,
        timeout_ms: float | None = None,
        *,
        bounded: bool = False,
    ) -> RemotingCommand:
        """Return the answer of an address, whatever its code.

        ``timeout_ms`` is the config's unless given. Of ``bounded`` requests, which are sends and pulls, only
        ``client_async_semaphore_value`` are under way at a time; waiting counts against the timeout. Raises
        UnreachableError, ConnectionLostError, RequestTimeoutError or TooManyRequestsError.
        """
        timeout_ms = self.config.timeout_ms if timeout_ms is None else timeout_ms
        try:
            invoke = self.remoting.invoke_bounded if bounded else self.remoting.invoke_sync
            return await invoke(address, _command(code, header, body), timeout_ms)
        except RemotingError as error:
            raise of_remoting(error, address) from error

    async def ask_name_server(self, code: int, header: Header | None = None) -> RemotingCommand:
        """Return a name server's answer, whatever its code; where one does not answer, the next is asked.

        The config's timeout is for all of them together. Raises NoNameServerError, and as ``ask`` does.
        """
        if self._address_server is not None and not self.remoting.name_servers.addresses:
            await self._address_server.fetch()
        ends = self.reactor.seconds() + self.config.timeout_ms / 1000
        servers = len(self.remoting.name_servers.addresses)
        turn, last = 0, None
        while last is None or (turn <= servers and self.reactor.seconds() < ends):
            share = (ends - self.reactor.seconds()) * 1000 / max(1, servers - turn)
            turn += 1
            try:
                return await self.remoting.invoke_sync(None, _command(code, header, None), share)
            except (RemotingTimeoutError, RemotingSendRequestError) as error:
                last = error
            except RemotingError as error:
                raise of_remoting(error, "name server") from error
        raise of_remoting(last, "name server") from last

    async def ask_broker(
        self,
        broker_name: str,
        code: int,
        header: Header | None = None,
        body: bytes | None = None,
        timeout_ms: float | None = None,
    ) -> RemotingCommand:
        """Return the successful answer of a broker's master. Raises BrokerError for any other, and as ``ask`` does."""
        address = self.master(broker_name)
        return check_response(address, await self.ask(address, code, header, body, timeout_ms))

    async def tell(self, address: str, code: int, header: Header | None = None, body: bytes | None = None) -> None:
        """Send a request that is not answered. Raises as ``ask`` does where it cannot be written."""
        try:
            await self.remoting.invoke_oneway(address, _command(code, header, body), self.config.timeout_ms)
        except RemotingError as error:
            raise of_remoting(error, address) from error

    def master(self, broker_name: str) -> str:
        """Return where to send all but pulls; raises BrokerUnreachableError when no address of the broker is known."""
        address = self.routes.address_of(broker_name)
        if address is None:
            raise BrokerUnreachableError(
                f"no address of broker {broker_name} is known: it is not registered at the name servers any more",
                broker=broker_name,
            )
        if self.config.vip_channel:
            host, _, port = address.rpartition(":")
            return f"{host}:{int(port) - VIP_PORT_BELOW}"
        return address

    # ------------------------------------------------------------ members

    def add_producer(self, producer: Producer) -> None:
        """Name a producer's group in heartbeats from now on. Raises GroupInUseError when there is one of the group."""
        self._add(producer, self.producers, "producer")

    def add_consumer(self, consumer: Consumer) -> None:
        """Name a consumer in heartbeats from now on. Raises GroupInUseError when there is one of the group."""
        self._add(consumer, self.consumers, "consumer")

    def _add(self, member: Any, members: dict[str, Any], kind: str) -> None:
        if members.setdefault(member.group, member) is not member:
            raise GroupInUseError(
                f"client {self.client_id} has a {kind} of group {member.group} already: use that one, or give this one "
                "an instance_name of its own"
            )
        self._greeted = set()

    async def remove_producer(self, producer: Producer) -> None:
        """Tell the brokers that a producer has gone."""
        if self.producers.get(producer.group) is producer:
            del self.producers[producer.group]
            await self._unregister(producer_group=producer.group)
            if self.producers:
                # Apache's broker knows of no connection for replies to this client any more, and looks for one only when a
                # group comes that it does not know.
                await self._unregister(producer_group=next(iter(self.producers)))
                await self.send_heartbeats()

    async def remove_consumer(self, consumer: Consumer) -> None:
        """Tell the brokers that a consumer has gone."""
        if self.consumers.get(consumer.group) is consumer:
            del self.consumers[consumer.group]
            await self._unregister(consumer_group=consumer.group)

    async def _unregister(self, *, producer_group: str | None = None, consumer_group: str | None = None) -> None:
        """Tell all known brokers that a group has gone (35), as far as they can be reached."""
        header = UnregisterClientRequestHeader(
            client_id=self.client_id, producer_group=producer_group, consumer_group=consumer_group
        )

        timeout_ms = min(self.config.timeout_ms, LEAVE_TIMEOUT_MS)

        async def tell(address: str) -> None:
            try:
                await self.ask(address, RequestCode.UNREGISTER_CLIENT, header, timeout_ms=timeout_ms)
            except RocketMQError as error:
                self.log.info("unregister: {error}", error=error)

        addresses = self.routes.addresses(slaves=consumer_group is not None)
        await all_of(tell(address) for address in addresses)

    # ------------------------------------------------------------ from time to time

    def connection_lost(self, connection: Any) -> None:
        """Take note that a broker forgets who was here: it knows them by their connection."""
        self._greeted.discard(connection.address)

    async def send_heartbeats(self) -> None:
        """Tell all known brokers who is here (34); one that cannot be reached is logged, the next round tries again."""
        await self._tell_who_is_here(self.routes.addresses(slaves=bool(self.consumers)))

    async def greet(self, wait_ms: float | None = None) -> None:
        """Tell those known brokers who is here that were not told yet: before they have something to ask or to pass on.

        Those that do not answer within ``wait_ms`` are waited for no longer; what they say then counts all the same.
        """
        addresses = self.routes.addresses(slaves=bool(self.consumers))
        telling = Deferred.fromCoroutine(
            self._tell_who_is_here([address for address in addresses if address not in self._greeted])
        )
        if wait_ms is None:
            await telling
            return
        waiting: list[Deferred[None]] = []
        told = join(waiting).addTimeout(wait_ms / 1000, self.reactor)
        telling.addBoth(tell_all, waiting)
        try:
            await told
        except DeferredTimeoutError:
            self.log.info("brokers do not say within {wait:.0f} ms that they know who is here", wait=wait_ms)

    async def _tell_who_is_here(self, addresses: list[str]) -> None:
        if not addresses or not (self.producers or self.consumers):
            return
        body = HeartbeatData(
            self.client_id,
            [ProducerData(group) for group in sorted(self.producers)],
            [consumer.consumer_data() for consumer in self.consumers.values()],
        ).encode()
        greeted = self._greeted  # another one from when somebody joins, of whom this body does not tell

        async def send(address: str) -> None:
            try:
                check_response(address, await self.ask(address, RequestCode.HEART_BEAT, body=body))
            except RocketMQError as error:
                self.log.warn("heartbeat: {error}", error=error)
            else:
                greeted.add(address)

        await all_of(send(address) for address in addresses)

    async def _heartbeat(self) -> None:
        self.routes.forget_offline_brokers()
        await self.send_heartbeats()

    async def _refresh_routes(self) -> None:
        try:
            await self.routes.refresh(self.routes.topics)
        except RocketMQError as error:
            self.log.warn("routes: {error}", error=error)


def _command(code: int, header: Header | None, body: bytes | None) -> RemotingCommand:
    return RemotingCommand(code, None if header is None else write_header(header), body)


def _remoting_of(reactor: Any, config: ClientConfig) -> RemotingClient:
    tls = None
    if config.tls:
        tls = ClientTLS(config.tls if isinstance(config.tls, TlsConfig) else TlsConfig())
    hooks = list(config.hooks)
    if config.credentials is not None:
        hooks.append(SigningHook(config.credentials))  # the last: it signs what the others may have changed
    return RemotingClient(reactor, config.remoting, tls=tls, hooks=hooks)
