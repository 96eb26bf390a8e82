"""Tells the name servers about this broker.

Answers to BrokerOuterAPI's registration and BrokerController.registerBrokerAll. Every name server is told at start, every
30 s, on each change of the topics, and at the stop; a new ``namesrvAddr`` counts from the next of these on. All of it
belongs to the reactor thread but for ``changed`` and ``when_told``.
"""

from collections.abc import Callable
from functools import partial
from time import thread_time
from typing import Any

from twisted.internet import defer
from twisted.logger import Logger

from rocketd.broker.name_server_addresses import NameServerAddresses
from rocketd.common.clocked_loop import ClockedLoop
from rocketd.common.permission import is_readable, is_writable
from rocketd.remoting.bodies import DataVersion, KVTable, RegisterBrokerBody, TopicConfigSerializeWrapper
from rocketd.remoting.codes import RequestCode, ResponseCode
from rocketd.remoting.command import RemotingCommand
from rocketd.remoting.errors import RemotingError
from rocketd.remoting.headers import (
    BrokerIdentityRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    read_header,
    write_header,
)
from rocketd.store.record import body_crc

UNREGISTER_TIMEOUT_MS = 3_000
TOLD_SECONDS = 3.0
"""For how long ``when_told`` waits for name servers: less than administrators wait for their answer."""
_PERIOD_LIMITS_MS = (10_000, 60_000)
_REST = 20
_CHEAP_SECONDS = 0.001
"""A change is told at once after a registration that was cheap to write; else it waits this many times as long as that took.
So a broker with many topics, to which new ones come all the time, spends a twentieth of the reactor's time on telling.
"""
_FIRST_REPEAT_SECONDS = 10.0
"""As Apache's: the first repetition comes early, for name servers that start together with the broker."""


class Registration:
    """Keeps the name servers' knowledge of this broker current.

    ``client`` is the RemotingClient for outgoing requests. A name server that cannot be reached is logged when it
    becomes so, and when it is back.
    """

    _log = Logger()

    def __init__(self, broker: Any, client: Any, reactor: Any) -> None:
        self._broker = broker
        self._client = client
        self._reactor = reactor
        self._addresses = NameServerAddresses(broker.settings.broker, reactor, self._register_changed)
        self._loop = ClockedLoop(reactor, self._repeat)
        self._first: Any = None
        self._unreachable: set[str] = set()
        self._pending = False
        self._rests_until = 0.0
        self._waiting: list[Callable[[], None]] = []
        self._stopped = False
        self._begun = False
        self._held = False
        self.before_repeat: Callable[[], defer.Deferred[None]] | None = None
        """Awaited before each periodic registration."""
        self.on_answer: Callable[[str, RegisterBrokerResponseHeader], None] | None = None
        """Called with a name server and what it said of this broker's master."""

    @property
    def name_servers(self) -> str:
        """The name servers in words."""
        return self._addresses.describe()

    def start(self) -> "defer.Deferred[None]":
        """Register for the first time; fires when every name server has answered or failed."""
        lowest, highest = _PERIOD_LIMITS_MS
        self._addresses.start()
        period_ms = max(lowest, min(self._broker.settings.broker.register_name_server_period, highest))
        self._first = self._reactor.callLater(
            _FIRST_REPEAT_SECONDS, lambda: self._loop.start(period_ms / 1000, now=True)
        )
        self._begun = True
        waiting, self._waiting = self._waiting, []
        told = self.register(force=True)
        if waiting:
            self._call_when(told, waiting)
        return told

    def _repeat(self) -> "defer.Deferred[None]":
        before = defer.succeed(None) if self.before_repeat is None else self.before_repeat()
        return before.addCallback(lambda _: self.register())

    def hold(self) -> None:
        """Register no more from now on; the stop does not unregister, as that would remove another of this name and id."""
        self._held = True

    def stop(self) -> "defer.Deferred[None]":
        """Register no more, and unregister; fires when every name server has answered or failed."""
        self._stopped = True
        self._addresses.stop()
        if self._first is not None and self._first.active():
            self._first.cancel()
        if self._loop.running:
            self._loop.stop()
        if not self._begun or self._held:
            return defer.succeed(None)
        return self._for_all(self._unregister)

    def changed(self, reason: str) -> None:
        """Register soon because something changed, after the start. Any thread; changes that come together are told
        together.
        """
        self._reactor.callFromThread(self._register_changed)

    def when_told(self, callback: Callable[[], None]) -> None:
        """Have a function called in the reactor thread once the name servers have been told of all that changed before,
        or after TOLD_SECONDS. Any thread.
        """
        self._reactor.callFromThread(self._tell_and_call, callback)

    def _tell_and_call(self, callback: Callable[[], None]) -> None:
        self._waiting.append(callback)
        self._register_changed()

    def _register_changed(self) -> None:
        if not self._pending and self._begun:
            self._pending = True
            self._reactor.callLater(max(0.0, self._rests_until - self._reactor.seconds()), self._register_pending)

    def _register_pending(self) -> None:
        self._pending = False
        waiting, self._waiting = self._waiting, []
        told = defer.succeed(None) if self._stopped or self._held else self.register(force=True)
        if waiting:
            self._call_when(told, waiting)

    def _call_when(self, told: "defer.Deferred[None]", waiting: list[Callable[[], None]]) -> None:
        def call() -> None:
            if patience.active():
                patience.cancel()
            while waiting:
                waiting.pop()()

        patience = self._reactor.callLater(TOLD_SECONDS, call)
        told.addCallback(lambda _: call())

    def register(self, force: bool | None = None) -> "defer.Deferred[None]":
        """Tell every name server; where registration is not forced, only those whose knowledge is old."""
        if self._held:
            return defer.succeed(None)
        forced = self._broker.settings.broker.force_register if force is None else force
        self.take_addresses()
        began = thread_time()
        try:
            body, fields = self._request()
        except Exception:  # raised out of here, it would end the loop, and the broker would fade from the routes
            self._log.failure("the registration of this broker cannot be written")
            return defer.succeed(None)
        took = thread_time() - began
        self._rests_until = self._reactor.seconds() + _REST * took if took > _CHEAP_SECONDS else 0.0

        async def tell(address: str) -> None:
            if (forced or await self._is_outdated(address)) and not (self._stopped or self._held):
                await self._register(address, fields, body)

        return self._for_all(tell)

    def take_addresses(self) -> None:
        """Have the client use the name servers that are known now; a list without an address changes nothing."""
        self._client.update_name_server_addresses(self._addresses.current())
        self._unreachable.intersection_update(self._client.name_servers.addresses)

    def _for_all(self, tell: Any) -> "defer.Deferred[None]":
        addresses = list(self._client.name_servers.addresses)
        return defer.DeferredList(
            [defer.Deferred.fromCoroutine(self._guarded(tell, address)) for address in addresses]
        ).addCallback(lambda _: None)

    async def _guarded(self, tell: Any, address: str) -> None:
        try:
            await tell(address)
        except RemotingError as error:
            if address not in self._unreachable:
                self._unreachable.add(address)
                self._log.warn(
                    "name server {address} was not told of this broker: {error}", address=address, error=error
                )
        except Exception:
            self._log.failure("name server {address}: its answer to this broker is no such answer", address=address)
        else:
            if address in self._unreachable:
                self._unreachable.discard(address)
                self._log.info("name server {address} is reached again", address=address)

    def _identity(self) -> dict[str, Any]:
        settings = self._broker.settings.broker
        return {
            "broker_name": settings.broker_name,
            "broker_addr": self._broker.address,
            "cluster_name": settings.broker_cluster_name,
            "broker_id": settings.broker_id,
        }

    def _request(self) -> tuple[bytes, dict[str, str]]:
        settings = self._broker.settings.broker
        wrapper = self._broker.topics.snapshot()
        if not is_writable(settings.broker_permission) or not is_readable(settings.broker_permission):
            limited = {
                name: _with_perm(config, settings.broker_permission)
                for name, config in wrapper.topic_config_table.items()
            }
            wrapper = TopicConfigSerializeWrapper(topic_config_table=limited, data_version=wrapper.data_version)
        content = RegisterBrokerBody(topic_config_serialize_wrapper=wrapper, filter_server_list=[])
        body = content.deflate() if settings.compressed_register else content.encode()
        header = RegisterBrokerRequestHeader(
            **self._identity(),
            ha_server_addr=self._broker.ha_address,
            compressed=settings.compressed_register,
            body_crc32=body_crc(body),
        )
        return body, write_header(header)

    async def _register(self, address: str, fields: dict[str, str], body: bytes) -> None:
        request = RemotingCommand(RequestCode.REGISTER_BROKER, dict(fields), body)
        timeout_ms = self._broker.settings.broker.register_broker_timeout_mills
        response = await self._client.invoke_sync(address, request, timeout_ms)
        if response.code != ResponseCode.SUCCESS:
            raise RemotingError(f"it answered {response.code}: {response.remark}")
        if self.on_answer is not None:
            self.on_answer(address, read_header(RegisterBrokerResponseHeader, response))
        if response.body:  # a name server without a table says nothing of order
            table = KVTable.decode(response.body).table
            # Writes a file where something changed.
            self._broker.dispatcher.pool("admin").call(partial(self._broker.topics.update_order_topics, table))

    async def _is_outdated(self, address: str) -> bool:
        request = RemotingCommand(
            RequestCode.QUERY_DATA_VERSION,
            write_header(BrokerIdentityRequestHeader(**self._identity())),
            self._broker.topics.data_version.encode(),
        )
        timeout_ms = self._broker.settings.broker.register_broker_timeout_mills
        response = await self._client.invoke_sync(address, request, timeout_ms)
        if response.code != ResponseCode.SUCCESS:
            return True
        known = DataVersion.decode(response.body) if response.body else None
        changed = read_header(QueryDataVersionResponseHeader, response).changed
        return changed or known != self._broker.topics.data_version

    async def _unregister(self, address: str) -> None:
        request = RemotingCommand(
            RequestCode.UNREGISTER_BROKER, write_header(BrokerIdentityRequestHeader(**self._identity()))
        )
        response = await self._client.invoke_sync(address, request, UNREGISTER_TIMEOUT_MS)
        if response.code != ResponseCode.SUCCESS:
            raise RemotingError(f"it answered {response.code}: {response.remark}")


def _with_perm(config: Any, perm: int) -> Any:
    return type(config)(
        topic_name=config.topic_name,
        read_queue_nums=config.read_queue_nums,
        write_queue_nums=config.write_queue_nums,
        perm=perm,
    )
