"""The shared part of all producers and consumers with one client id: connections, routes, heartbeats, brokers' requests.

Counterpart: `MQClientInstance`, `MQClientAPIImpl` and `ClientRemotingProcessor` (Apache).
"""

import os
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

from twisted.internet.defer import Deferred, ensureDeferred
from twisted.internet.defer import TimeoutError as DeferredTimeoutError
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketd.client.errors import (
    BrokerUnreachableError,
    ConnectionLostError,
    GroupInUseError,
    IllegalOptionError,
    NoNameServerError,
    RocketMQError,
    UnreachableError,
    check_response,
    no_master,
    of_remoting,
)
from rocketd.client.instance.address_server import ClientAddressServer
from rocketd.client.instance.all_of import all_of
from rocketd.client.instance.identity import client_id, key_head, local_address
from rocketd.client.instance.members import ConsumerMember, ProducerMember
from rocketd.client.instance.outages import Outages
from rocketd.client.instance.pending_replies import PendingReplies
from rocketd.client.instance.routes import Routes
from rocketd.client.instance.server_requests import ServerRequests
from rocketd.client.settings.config import ClientConfig, milliseconds
from rocketd.common.event_loop import timers
from rocketd.common.event_loop.reactor import IReactor
from rocketd.protocol.typed_request import R, TypedRequest
from rocketd.protocol.unique_keys import UniqueKeys
from rocketd.remoting.bodies.tables import HeartbeatData, ProducerData
from rocketd.remoting.calling import address_server
from rocketd.remoting.calling.channel_table import join, tell_all
from rocketd.remoting.calling.client import RemotingClient
from rocketd.remoting.calling.signing import SigningHook
from rocketd.remoting.errors import RemotingError, RemotingSendRequestError, RemotingTimeoutError
from rocketd.remoting.headers.client import Header, UnregisterClientRequestHeader, write_header
from rocketd.remoting.interfaces import ConnectionEvent, EventKind, IRemotingClient, IRPCHook
from rocketd.remoting.wire.codes import RequestCode
from rocketd.remoting.wire.command import RemotingCommand

LEAVE_TIMEOUT_MS = 1000.0
"""Time to wait for brokers when a member leaves. They also notice when the connections close."""

RETURN_SECONDS = 3.0
"""Interval of heartbeats to brokers that have lost their connection to consumers."""

VIP_PORT_BELOW = 2
"""Distance of a broker's second port, for everything but pulls, below its first."""

Fields = Header | dict[str, str] | None
"""The fields of a request, typed or as text."""

M = TypeVar("M", ProducerMember, ConsumerMember)


class ClientInstance:
    """One client of a cluster. All methods belong to the reactor thread.

    By default it makes a RemotingClient from the config. Starting it connects to nothing; the first request does. ``now_ms``
    returns Unix milliseconds, for timestamps only; the default is the clock of the config.
    """

    log = Logger()

    def __init__(
        self,
        reactor: IReactor,
        config: ClientConfig,
        *,
        remoting: IRemotingClient | None = None,
        now_ms: Callable[[], float] | None = None,
    ) -> None:
        address = config.client_ip or local_address()
        self._address = address
        salt = os.urandom(4)
        name = config.instance_name or f"{os.getpid()}#{salt.hex()}"
        self.reactor = reactor
        self.config = config
        self.now_ms = now_ms or config.now_ms
        self.client_id = client_id(address, name if config.unit_name is None else f"{name}@{config.unit_name}")
        self.unique_keys = UniqueKeys(key_head(address, os.getpid(), salt), self.now_ms)
        self.remoting: IRemotingClient = remoting or _remoting_of(reactor, config)
        if remoting is None:
            self.remoting.listeners.append(self._connection_event)
        self.remoting.update_name_server_addresses(config.name_servers())
        self._address_server = self._address_server_of(config)
        self.routes = Routes(self.ask_name_server, self.remoting.name_servers, reactor.seconds)
        self.outages = Outages(reactor.seconds, self.routes.address_of)
        self.producers: dict[str, ProducerMember] = {}
        self.consumers: dict[str, ConsumerMember] = {}
        self.replies = PendingReplies()
        self._loops: list[timers.ClockedLoop] = []
        self._greeted: set[str] = set()
        # Brokers whose connection was lost since their last heartbeat, heartbeats to them under way, and the time until
        # which each of their lists of members may lack some.
        self._lost: set[str] = set()
        self._greeting: dict[str, list[Deferred[None]]] = {}
        self._members_due: dict[str, float] = {}
        self._losses: Counter[str] = Counter()
        self._returning: IDelayedCall | None = None
        ServerRequests(self).register()

    def startService(self) -> None:
        """Start serving and sending heartbeats."""
        self.remoting.startService()
        self._repeat(milliseconds("heartbeat_interval", self.config.heartbeat_interval), self._heartbeat)
        self._repeat(milliseconds("route_interval", self.config.route_interval), self._refresh_routes)
        if self._address_server is not None:
            self._repeat(address_server.INTERVAL_SECONDS * 1000, self._address_server.refresh)

    def stopService(self) -> Deferred[None]:
        """Close all connections. Producers and consumers must be stopped before."""
        for loop in self._loops:
            loop.stop()
        self._loops.clear()
        if self._returning is not None:
            self._returning.cancel()
            self._returning = None
        self.routes.stop()
        if self._address_server is not None:
            self._address_server.stop()
        stopped: Deferred[None] = self.remoting.stopService()
        return stopped

    def _address_server_of(self, config: ClientConfig) -> ClientAddressServer | None:
        if config.name_server_url is None:
            return None
        page = address_server.page_of(config.name_server_url, config.unit_name)
        return ClientAddressServer(self.reactor, page, self.remoting.update_name_server_addresses)

    def _repeat(self, interval_ms: float, function: Callable[[], Awaitable[None]]) -> None:
        loop = timers.ClockedLoop(self.reactor, lambda: ensureDeferred(function()))  # type: ignore[arg-type]
        loop.start(interval_ms / 1000, now=False)
        self._loops.append(loop)

    def new_unique_keys(self) -> UniqueKeys:
        """Return another generator of unique keys, for another thread. Any thread."""
        return UniqueKeys(key_head(self._address, os.getpid(), os.urandom(4)), self.now_ms)

    def clock_ms(self) -> float:
        """Return milliseconds of the reactor's clock, for durations and timeouts."""
        return float(self.reactor.seconds() * 1000)

    # ------------------------------------------------------------ requests

    async def ask(
        self,
        address: str,
        code: int,
        header: Fields = None,
        body: bytes | None = None,
        timeout_ms: float | None = None,
        *,
        bounded: bool = False,
    ) -> RemotingCommand:
        """Return the answer of an address, with any code.

        ``timeout_ms`` is the config's by default. ``bounded`` requests are sends and pulls: only
        ``client_async_semaphore_value`` of them are under way at a time, and waiting counts against the timeout.

        Raises:

        - UnreachableError: no connection could be made.
        - ConnectionLostError: the connection closed before the answer.
        - RequestTimeoutError: the answer did not come in time.
        - TooManyRequestsError: too many requests are under way.
        """
        timeout_ms = self.config.timeout_ms if timeout_ms is None else timeout_ms
        try:
            invoke = self.remoting.invoke_async if bounded else self.remoting.invoke_sync
            answer = await invoke(address, _command(code, header, body), timeout_ms)
        except RemotingError as error:
            raise of_remoting(error, address) from error
        if self.outages.begun:
            self.outages.answered(address)
        return answer

    async def ask_name_server(self, code: int, header: Header | None = None) -> RemotingCommand:
        """Return a name server's answer, with any code. If one does not answer, the next is asked.

        The config's timeout applies to all of them together. Raises NoNameServerError, and the errors of ``ask``.
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
        """Return the successful answer of a broker's master. Raises BrokerError for any other, and the errors of ``ask``."""
        address = self.master(broker_name)
        return check_response(address, await self.ask(address, code, header, body, timeout_ms))

    async def answer(self, broker_name: str, request: TypedRequest[R]) -> R:
        """Return the result of a request to a broker's master.

        Raises BrokerError if it refuses, and the errors of ``ask``.
        """
        return await self.answer_of(self.master(broker_name), request)

    async def answer_for_group(self, broker_name: str, request: TypedRequest[R]) -> R:
        """Return the result of a request about the offsets of a group, from a slave while the master is gone.

        Raises the errors of ``answer``.
        """
        return await self.answer_of(self.group_broker(broker_name), request)

    async def answer_of(self, address: str, request: TypedRequest[R]) -> R:
        """Return the result of a request to a server. Raises BrokerError if it refuses, and the errors of ``ask``."""
        return request.result(address, await self.ask(address, request.code, request.header))

    async def answer_of_name_server(self, request: TypedRequest[R]) -> R:
        """Return the result of a request to a name server.

        Raises BrokerError if it refuses, and the errors of ``ask_name_server``.
        """
        return request.result("name server", await self.ask_name_server(request.code, request.header))

    async def tell(self, address: str, code: int, header: Fields = None, body: bytes | None = None) -> None:
        """Send a oneway request. Raises the errors of ``ask`` if it cannot be written."""
        try:
            await self.remoting.invoke_oneway(address, _command(code, header, body), self.config.timeout_ms)
        except RemotingError as error:
            raise of_remoting(error, address) from error

    def master(self, broker_name: str) -> str:
        """Return the address for everything but pulls, members and offsets. Any thread.

        Raises BrokerUnreachableError if it is not known.
        """
        address = self.routes.address_of(broker_name)
        if address is None and self.routes.group_address(broker_name) is not None:
            raise no_master(broker_name)
        return self._reachable(broker_name, address)

    def group_broker(self, broker_name: str) -> str:
        """Return the address for members and offsets of consumer groups: a slave's while the master is gone.

        Any thread. Raises BrokerUnreachableError if no address of the broker is known.
        """
        return self._reachable(broker_name, self.routes.group_address(broker_name))

    def _reachable(self, broker_name: str, address: str | None) -> str:
        if address is None:
            raise BrokerUnreachableError(
                f"no address of broker {broker_name} is known: it is no longer registered at the name servers",
                broker=broker_name,
            )
        if self.config.vip_channel:
            host, _, port = address.rpartition(":")
            return f"{host}:{int(port) - VIP_PORT_BELOW}"
        return address

    # ------------------------------------------------------------ members

    def add_producer(self, producer: ProducerMember) -> None:
        """Name a producer's group in heartbeats from now on.

        Raises GroupInUseError if the group has another producer here.
        """
        self._add(producer, self.producers, "producer")

    def add_consumer(self, consumer: ConsumerMember) -> None:
        """Name a consumer in heartbeats from now on. Raises GroupInUseError if the group has another consumer here."""
        self._add(consumer, self.consumers, "consumer")

    def _add(self, member: M, members: dict[str, M], kind: str) -> None:
        if members.setdefault(member.group, member) is not member:
            raise GroupInUseError(
                f"client {self.client_id} has a {kind} of group {member.group} already: use that one, or give this "
                "one another instance_name"
            )
        self._greeted = set()

    async def remove_producer(self, producer: ProducerMember) -> None:
        """Tell the brokers that a producer is gone."""
        if self.producers.get(producer.group) is producer:
            del self.producers[producer.group]
            await self._unregister(producer_group=producer.group)
            if self.producers:
                # Apache's broker has lost its connection for replies to this client, and looks for one only when an
                # unknown group registers.
                await self._unregister(producer_group=next(iter(self.producers)))
                await self.send_heartbeats()

    async def remove_consumer(self, consumer: ConsumerMember) -> None:
        """Tell the brokers that a consumer is gone."""
        if self.consumers.get(consumer.group) is consumer:
            del self.consumers[consumer.group]
            await self._unregister(consumer_group=consumer.group)

    async def _unregister(self, *, producer_group: str | None = None, consumer_group: str | None = None) -> None:
        """Tell all known brokers that a group is gone (request code 35), if they can be reached."""
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

    def is_misled(self, error: RocketMQError) -> bool:
        """Whether waiting cannot help: no name server is given, or the address is that of something else."""
        if not isinstance(error, NoNameServerError):
            return False
        given = self.config.name_server_url is not None or self.remoting.name_servers.addresses
        return error.code is not None or not given

    # ------------------------------------------------------------ heartbeats

    def _connection_event(self, event: ConnectionEvent) -> None:
        if event.kind is EventKind.CLOSE:
            self.connection_lost(event.address)

    def connection_lost(self, address: str) -> None:
        """Note that a broker has forgotten this client's members, which it knows by their connection."""
        self._greeted.discard(address)
        if self.consumers and address in self.routes.addresses(slaves=True):
            self._lost.add(address)
            self._losses[address] += 1
            self._return_later()
            self._await_members(address)

    def _await_members(self, address: str) -> None:
        interval_ms = milliseconds("heartbeat_interval", self.config.heartbeat_interval)
        self._members_due[address] = self.reactor.seconds() + interval_ms / 1000

    def is_forgotten_by(self, address: str) -> bool:
        """Whether a broker has lost its connection to this client, and the heartbeat after that was not tried yet."""
        return address in self._lost

    def losses(self, address: str) -> int:
        """Return how often a broker has lost its connection to this client."""
        return self._losses[address]

    def are_members_back(self, address: str) -> bool:
        """Whether all members of a group had the time to send a heartbeat since this client lost its connection."""
        return self.reactor.seconds() >= self._members_due.get(address, 0.0)

    async def send_heartbeats(self) -> None:
        """Send a heartbeat to all known brokers (request code 34). Failures are logged; the next round tries again."""
        await self._tell_who_is_here(self.routes.addresses(slaves=bool(self.consumers)))

    async def greet(self, wait_ms: float | None = None) -> None:
        """Send a heartbeat to known brokers without one so far, before they have something to ask or to pass on.

        After ``wait_ms`` the slow ones are no longer waited for. Their late answers still count.
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
            self.log.info("brokers have not confirmed the heartbeat within {wait:.0f} ms", wait=wait_ms)

    async def greet_again(self, address: str) -> bool:
        """Send a heartbeat to one broker, one for all concurrent callers. Return whether the broker has confirmed it."""
        waiting = self._greeting.get(address)
        if waiting is not None:
            await join(waiting)
        else:
            waiting = self._greeting[address] = []
            told = join(waiting)
            telling = Deferred.fromCoroutine(self._tell_who_is_here([address]))
            telling.addBoth(self._greeted_again, address, waiting)
            await told
        return address in self._greeted

    def _greeted_again(self, result: Failure | None, address: str, waiting: list[Deferred[None]]) -> None:
        del self._greeting[address]
        tell_all(result, waiting)

    async def _tell_who_is_here(self, addresses: list[str]) -> None:
        if not addresses or not (self.producers or self.consumers):
            return
        body = HeartbeatData(
            self.client_id,
            [ProducerData(group) for group in sorted(self.producers)],
            [consumer.consumer_data() for consumer in self.consumers.values()],
        ).encode()
        greeted = self._greeted  # replaced when a member joins, which this body does not name

        async def send(address: str) -> None:
            try:
                check_response(address, await self.ask(address, RequestCode.HEART_BEAT, body=body))
            except RocketMQError as error:
                greeted.discard(address)
                if not isinstance(error, UnreachableError | ConnectionLostError):
                    self._lost.discard(address)  # pulls must not wait for the same failure again and again
                if not self.outages.covers("heartbeat", error):
                    self.log.warn("heartbeat: {error}", error=error)
            else:
                greeted.add(address)
                if address in self._lost:
                    self._lost.discard(address)
                    self._await_members(address)

        await all_of(send(address) for address in addresses)

    async def _heartbeat(self) -> None:
        self.routes.forget_offline_brokers()
        known = set(self.routes.addresses(slaves=True))
        self._lost &= known
        self.outages.keep(known)
        self._members_due = {address: until for address, until in self._members_due.items() if address in known}
        self._losses = Counter({address: count for address, count in self._losses.items() if address in known})
        await self.send_heartbeats()

    def _return_later(self) -> None:
        """Send a heartbeat soon to brokers that have lost their connection to consumers here.

        Those with queues do so as well, before they pull. The others would come back only with their next heartbeat.
        """
        if self._lost and self._returning is None and self._loops:  # none after the stop
            self._returning = self.reactor.callLater(RETURN_SECONDS, self._return)

    def _return(self) -> None:
        self._returning = None
        returned = Deferred.fromCoroutine(all_of(self.greet_again(address) for address in list(self._lost)))
        returned.addErrback(lambda failure: self.log.failure("heartbeats after lost connections failed", failure))
        returned.addCallback(lambda _: self._return_later())

    async def _refresh_routes(self) -> None:
        try:
            await self.routes.refresh(self.routes.topics)
        except RocketMQError as error:
            self.log.warn("routes: {error}", error=error)


def _command(code: int, header: Fields, body: bytes | None) -> RemotingCommand:
    return RemotingCommand(code, write_header(header) if isinstance(header, Header) else header, body)


def _remoting_of(reactor: IReactor, config: ClientConfig) -> RemotingClient:
    settings = config.tls_settings()
    tls = None
    if settings is not None:
        # Not at the top: a client without TLS does not need OpenSSL.
        from rocketd.remoting.tls.certificates import TLSConfigError
        from rocketd.remoting.tls.contexts import ClientTLS

        try:
            tls = ClientTLS(settings)
        except TLSConfigError as error:
            text = str(error) if config.ca is None else str(error).replace("tls.client.trustCertPath", "ca")
            raise IllegalOptionError(f"tls: {text}") from error
    hooks = cast(list[IRPCHook], list(config.hooks))
    if config.credentials is not None:
        hooks.append(SigningHook(config.credentials))  # last, because it signs the changes of the others
    return RemotingClient(reactor, config.remoting, tls=tls, hooks=hooks)
