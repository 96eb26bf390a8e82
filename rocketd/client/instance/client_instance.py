"""What all producers and consumers of a process share: connections, routes, heartbeats.

Answers to MQClientInstance.
"""

import os
from collections.abc import Callable, Iterable
from time import time
from typing import Any, Protocol

from twisted.application.service import Service
from twisted.internet.defer import Deferred, ensureDeferred, gatherResults
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

from rocketd.acl.credentials import Credentials
from rocketd.client.errors import ClientError
from rocketd.client.instance.identity import UniqueKeys, client_id, local_address
from rocketd.client.instance.routes import Routes
from rocketd.remoting.bodies import ConsumerData, HeartbeatData, ProducerData
from rocketd.remoting.client import RemotingClient
from rocketd.remoting.client_connection import ClientConnection
from rocketd.remoting.codes import RequestCode, ResponseCode
from rocketd.remoting.command import RemotingCommand
from rocketd.remoting.errors import RemotingError
from rocketd.remoting.headers import (
    ConsumerGroupRequestHeader,
    UnregisterClientRequestHeader,
    read_header,
    write_header,
)
from rocketd.remoting.settings import NettyClientConfig
from rocketd.remoting.signing import SigningHook
from rocketd.remoting.tls import ClientTLS

HEARTBEAT_SECONDS = 30.0
ROUTE_SECONDS = 30.0
TIMEOUT_MS = 3000


class Consumer(Protocol):
    """A consumer, as the client sees it."""

    group: str

    def consumer_data(self) -> ConsumerData:
        """What heartbeats say of it."""

    def rebalance_soon(self) -> None:
        """Share the queues anew."""


class ClientInstance(Service):
    """One client of a cluster. All methods belong to the reactor thread.

    ``name_servers`` are addresses ``host:port``. ``config``, ``tls`` and ``credentials``, which sign all requests, are for
    the RemotingClient it makes for itself unless it is given one. ``address`` is this machine's, for the client id and the
    unique keys. Starting the client connects to nothing: the first request does.
    """

    log = Logger()

    def __init__(
        self,
        reactor: Any,
        name_servers: Iterable[str],
        *,
        instance_name: str | None = None,
        config: NettyClientConfig | None = None,
        tls: ClientTLS | None = None,
        credentials: Credentials | None = None,
        remoting: RemotingClient | None = None,
        address: str | None = None,
        now_ms: Callable[[], float] = lambda: time() * 1000,
    ) -> None:
        address = address or local_address()
        salt = os.urandom(4)
        self.reactor = reactor
        self.now_ms = now_ms
        self.client_id = client_id(address, instance_name or f"{os.getpid()}#{salt.hex()}")
        self.unique_keys = UniqueKeys(address, os.getpid(), salt, now_ms)
        hooks = () if credentials is None else (SigningHook(credentials),)
        self.remoting = remoting or RemotingClient(reactor, config, tls=tls, hooks=hooks)
        self.remoting.update_name_server_addresses(name_servers)
        self.remoting.register_processor(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, self._consumer_ids_changed)
        self.routes = Routes(self.remoting)
        self.producer_groups: set[str] = set()
        self.consumers: dict[str, Consumer] = {}
        self._loops: list[LoopingCall] = []

    def startService(self) -> None:
        """Begin to serve and to send heartbeats."""
        super().startService()
        self.remoting.startService()
        self._repeat(HEARTBEAT_SECONDS, self.send_heartbeats)
        self._repeat(ROUTE_SECONDS, self._refresh_routes)

    def stopService(self) -> Deferred[None]:
        """Close all connections; producers and consumers are stopped before."""
        super().stopService()
        for loop in self._loops:
            loop.stop()
        self._loops.clear()
        return self.remoting.stopService()

    def _repeat(self, seconds: float, function: Callable[[], Any]) -> None:
        loop = LoopingCall(lambda: ensureDeferred(function()))
        loop.clock = self.reactor
        loop.start(seconds, now=False)
        self._loops.append(loop)

    async def send_heartbeats(self) -> None:
        """Tell all known brokers who is here (34); one that cannot be reached is logged, the next round tries again."""
        producers = [ProducerData(group) for group in sorted(self.producer_groups)]
        consumers = [consumer.consumer_data() for consumer in self.consumers.values()]
        if not producers and not consumers:
            return
        body = HeartbeatData(self.client_id, producers, consumers).encode()
        addresses = self.routes.addresses(slaves=bool(consumers))
        await gatherResults([ensureDeferred(self._send_heartbeat(address, body)) for address in addresses])

    async def _send_heartbeat(self, address: str, body: bytes) -> None:
        try:
            response = await self.remoting.invoke_sync(
                address, RemotingCommand(RequestCode.HEART_BEAT, body=body), TIMEOUT_MS
            )
        except RemotingError as error:
            self.log.warn("heartbeat: {error}", error=error)
            return
        if response.code != ResponseCode.SUCCESS:
            self.log.warn("heartbeat: {address} answers {response}", address=address, response=response)

    async def unregister(self, *, producer_group: str | None = None, consumer_group: str | None = None) -> None:
        """Tell all known brokers that a group has gone (35), as far as they can be reached."""
        header = UnregisterClientRequestHeader(
            client_id=self.client_id, producer_group=producer_group, consumer_group=consumer_group
        )
        for address in self.routes.addresses(slaves=consumer_group is not None):
            try:
                await self.remoting.invoke_sync(
                    address, RemotingCommand(RequestCode.UNREGISTER_CLIENT, write_header(header)), TIMEOUT_MS
                )
            except RemotingError as error:
                self.log.info("unregister: {error}", error=error)

    async def _refresh_routes(self) -> None:
        try:
            await self.routes.refresh(self.routes.topics)
        except (RemotingError, ClientError) as error:
            self.log.warn("routes: {error}", error=error)

    def _consumer_ids_changed(self, connection: ClientConnection, request: RemotingCommand) -> None:
        group = read_header(ConsumerGroupRequestHeader, request).consumer_group
        consumer = self.consumers.get(group)
        if consumer is not None:
            consumer.rebalance_soon()
