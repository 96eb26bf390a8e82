"""Registers this broker with the name servers.

Every name server is told at the start, every 30 s, after each change of the topics, and at the stop. A new
``namesrvAddr`` takes effect with the next of these. Everything belongs to the reactor thread, except ``changed`` and
``when_told``.

A registration after a change has only the topics added or changed since the last one that the name server has answered on
the same connection: a name server forgets a broker whose connection closes. All topics are sent after deletions, at the
start, and every 30 s. Each name server gets one registration after the other.

A master looks for another one of its name before it registers. A broker may learn its name servers only after it has
begun to serve. Then ``before_first`` does the check, and no registration is sent before it has ended.

Counterpart: the registration of `BrokerOuterAPI`, `BrokerController.registerBrokerAll` (Apache).
"""

from collections.abc import Callable, Coroutine
from functools import partial
from time import thread_time
from typing import Any, NamedTuple, Protocol

from twisted.internet import defer
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketd.broker.name_server_addresses import NameServerAddresses
from rocketd.broker.tables.parts import TableParts
from rocketd.common import names
from rocketd.common.event_loop.clocked_loop import ClockedLoop
from rocketd.common.event_loop.reactor import IReactor
from rocketd.common.permission import is_readable, is_writable
from rocketd.remoting.bodies.tables import (
    DataVersion,
    KVTable,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from rocketd.remoting.calling.channel_table import join, tell_all
from rocketd.remoting.errors import RemotingError
from rocketd.remoting.headers.client import (
    BrokerIdentityRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    read_header,
    write_header,
)
from rocketd.remoting.interfaces import IRemotingClient
from rocketd.remoting.wire.codes import RequestCode, ResponseCode
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.store.format.record import body_crc

UNREGISTER_TIMEOUT_MS = 3_000
TOLD_SECONDS = 3.0
"""The time ``when_told`` waits for name servers. It is shorter than administrators wait for their answer."""
_PERIOD_LIMITS_MS = (10_000, 60_000)
_REST = 20
_CHEAP_SECONDS = 0.001
"""The CPU time of a cheap registration: after one, the next change is told at once. Otherwise it waits _REST times as
long.

So a broker with many topics and steady changes spends at most a twentieth of the reactor's time on registrations.
"""
_FIRST_REPEAT_SECONDS = 10.0
"""The first repetition comes early, as in Apache's broker, for name servers that start together with the broker."""


class RegisteredBroker(TableParts, Protocol):
    """The broker, as its registration sees it."""

    @property
    def ha_address(self) -> str:
        """Host and port for slaves. Any thread."""


class _Written(NamedTuple):
    """The body of a registration, with the version of its topics and the broker's permission.

    It has the topics changed after the change ``since``, or all for None, up to the change ``number``.
    """

    data_version: DataVersion
    permission: int
    since: int | None
    number: int
    body: bytes
    compressed: bool
    crc: int


class _Told(NamedTuple):
    """The topics that a name server knows: up to the change ``number``, as long as the connection is open."""

    connection: object
    number: int


class _Turn:
    """The next registration at a name server, and those who wait for it."""

    def __init__(self) -> None:
        self.whole = False
        self.callers: list[defer.Deferred[None]] = []


class Registration:
    """Keeps the name servers' knowledge of this broker current.

    ``client`` makes the outgoing requests. An unreachable name server is logged once, and again when it is back.
    ``cpu_seconds`` returns the CPU time of the reactor thread.
    """

    _log = Logger()

    def __init__(
        self,
        broker: RegisteredBroker,
        client: IRemotingClient,
        reactor: IReactor,
        cpu_seconds: Callable[[], float] = thread_time,
    ) -> None:
        self._broker = broker
        self._client = client
        self._reactor = reactor
        self._cpu_seconds = cpu_seconds
        self._addresses = NameServerAddresses(broker.settings.broker, reactor, self._register_changed)
        self._loop = ClockedLoop(reactor, self.register)
        self._first: IDelayedCall | None = None
        self._unreachable: set[str] = set()
        self._told: dict[str, _Told] = {}
        self._turns: dict[str, _Turn] = {}
        self._serving: set[str] = set()
        self._written: _Written | None = None
        self._pending = False
        self._signalled = False
        self._rests_until = 0.0
        self._waiting: list[Callable[[], None]] = []
        self._stopped = False
        self._begun = False
        self._held = False
        self.before_each: Callable[[str], defer.Deferred[None]] | None = None
        """Awaited right before each registration is sent, with the name server's address. It may call ``hold``."""
        self.before_first: Callable[[], defer.Deferred[None]] | None = None
        """Awaited once, before the first registration with known name servers. It must not fail."""
        self._checking: list[defer.Deferred[None]] | None = None
        self.on_answer: Callable[[str, RegisterBrokerResponseHeader], None] | None = None
        """Called with the address of a name server and its answer, which names this broker's master."""

    @property
    def name_servers(self) -> str:
        """The name servers in words."""
        return self._addresses.describe()

    @property
    def reaches_nobody(self) -> bool:
        """Whether there are name servers, and none of them answered the last registration. Any thread."""
        addresses = self._client.name_servers.addresses
        return bool(addresses) and self._unreachable.issuperset(addresses)

    @property
    def awaits_addresses(self) -> bool:
        """Whether no name server is known, and an address server will be asked."""
        return self._addresses.awaits_addresses

    async def find_addresses(self) -> None:
        """Ask the address server, if the settings say so, and pass the known name servers to the client.

        This takes some seconds at most.
        """
        await self._addresses.first_answer()
        self.take_addresses()

    def start(self) -> "defer.Deferred[None]":
        """Register for the first time. Fires when every name server has answered or failed."""
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

    def hold(self) -> None:
        """Stop registering.

        The stop will not unregister either: that would remove another broker of this name and id.
        """
        self._held = True

    def resume(self) -> None:
        """Register again at once, after `hold`."""
        self._held = False
        self.register(force=True)

    def stop(self) -> "defer.Deferred[None]":
        """Stop registering, and unregister. Fires when every name server has answered or failed."""
        self._stopped = True
        self._addresses.stop()
        if self._first is not None and self._first.active():
            self._first.cancel()
        if self._loop.running:
            self._loop.stop()
        if not self._begun or self._held or self.before_first is not None:
            return defer.succeed(None)
        return self._for_all(self._unregister)

    def changed(self, reason: str) -> None:
        """Register soon because of a change after the start.

        Any thread. Changes close together share a registration.
        """
        if not self._signalled:
            # Set before the reactor thread looks: a later change has been seen by then, or signals again.
            self._signalled = True
            self._reactor.callFromThread(self._handle_signal)

    def _handle_signal(self) -> None:
        self._signalled = False
        self._register_changed()

    def when_told(self, callback: Callable[[], None]) -> None:
        """Call a function in the reactor thread once the name servers know all changes so far, or after TOLD_SECONDS.

        Any thread.
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
        told = defer.succeed(None) if self._stopped or self._held else self.register(force=True, whole=False)
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

    def register(self, force: bool | None = None, *, whole: bool = True) -> "defer.Deferred[None]":
        """Register with every name server; unless forced, only with those whose version is outdated.

        Without ``whole``, they get only the topics they do not know.
        """
        if self._held:
            return defer.succeed(None)
        self.take_addresses()
        if self.before_first is not None and self._client.name_servers.addresses:
            return self._register_first(self.before_first)
        forced = self._broker.settings.broker.force_register if force is None else force

        async def tell(address: str) -> None:
            if forced or await self._is_outdated(address):
                await self._take_turn(address, whole=whole)

        return self._for_all(tell)

    async def _take_turn(self, address: str, *, whole: bool) -> None:
        """Wait for the next registration at a name server. Its content is written after this call."""
        turn = self._turns.setdefault(address, _Turn())
        turn.whole = turn.whole or whole
        told = join(turn.callers)
        if address not in self._serving:
            self._serving.add(address)
            defer.Deferred.fromCoroutine(self._serve_turns(address))
        await told

    async def _serve_turns(self, address: str) -> None:
        while (turn := self._turns.get(address)) is not None:
            result: Failure | None = None
            try:
                await self._register_at(address, turn)
            except Exception:
                result = Failure()
            if self._turns.get(address) is turn:
                del self._turns[address]
            tell_all(result, turn.callers)
        self._serving.discard(address)

    async def _register_at(self, address: str, turn: _Turn) -> None:
        if self.before_each is not None:
            await self.before_each(address)
        connection = await self._client.connection_to(address)
        if self._stopped or self._held:
            return
        # Written only now, and sent without a pause: later changes take the next turn.
        del self._turns[address]
        told = self._told.pop(address, None)
        since = None if turn.whole or told is None or told.connection is not connection else told.number
        written = self._written
        if written is None or written.since != since or not self._is_current(written):
            written = self._written = self._write(since)
        if written is not None:
            await self._register(address, written)
            self._told[address] = _Told(connection, written.number)

    def _register_first(self, check: Callable[[], "defer.Deferred[None]"]) -> "defer.Deferred[None]":
        """Register after the check. All callers meanwhile wait for this registration."""
        if self._checking is not None:
            return join(self._checking)
        waiting = self._checking = []
        registered = join(waiting)

        def checked(_: None) -> "defer.Deferred[None]":
            self._checking = None
            self.before_first = None
            return self.register(force=True)

        check().addCallback(checked).addBoth(tell_all, waiting)
        return registered

    def take_addresses(self) -> None:
        """Pass the known name servers to the client. An empty list changes nothing."""
        self._client.update_name_server_addresses(self._addresses.current())
        self._unreachable.intersection_update(self._client.name_servers.addresses)

    def _for_all(self, tell: Callable[[str], Coroutine[Any, Any, None]]) -> "defer.Deferred[None]":
        addresses = list(self._client.name_servers.addresses)
        return defer.DeferredList(
            [defer.Deferred.fromCoroutine(self._guarded(tell, address)) for address in addresses]
        ).addCallback(lambda _: None)

    async def _guarded(self, tell: Callable[[str], Coroutine[Any, Any, None]], address: str) -> None:
        try:
            await tell(address)
        except RemotingError as error:
            if address not in self._unreachable:
                self._unreachable.add(address)
                self._log.warn(
                    "cannot tell name server {address} about this broker: {error}", address=address, error=error
                )
        except Exception:
            self._log.failure("name server {address}: its answer to the registration cannot be read", address=address)
        else:
            if address in self._unreachable:
                self._unreachable.discard(address)
                self._log.info("name server {address} answers again", address=address)

    def _identity(self) -> dict[str, Any]:
        settings = self._broker.settings.broker
        return {
            "broker_name": settings.broker_name,
            "broker_addr": self._broker.address,
            "cluster_name": settings.broker_cluster_name,
            "broker_id": settings.broker_id,
        }

    def _is_current(self, written: "_Written") -> bool:
        permission = self._broker.settings.broker.broker_permission
        return written.data_version is self._broker.topics.data_version and written.permission == permission

    def _write(self, since: int | None) -> "_Written | None":
        """Return the content of a registration; None after a failure, which is logged."""
        began = self._cpu_seconds()
        try:
            written = self._content(since)
        except Exception:  # raising it would end the loop, and the broker would fade from the routes
            self._log.failure("the registration of this broker cannot be written")
            return None
        took = self._cpu_seconds() - began
        self._rests_until = self._reactor.seconds() + _REST * took if took > _CHEAP_SECONDS else 0.0
        return written

    def _content(self, since: int | None) -> "_Written":
        settings = self._broker.settings.broker
        changes = None if since is None else self._broker.topics.changes_since(since)
        # Name servers of rocketd take a registration with this topic for one with all topics.
        if changes is None or names.SELF_TEST_TOPIC in changes[1].topic_config_table:
            since, changes = None, self._broker.topics.numbered_snapshot()
        number, wrapper = changes
        version = wrapper.data_version
        if not is_writable(settings.broker_permission) or not is_readable(settings.broker_permission):
            limited = {
                name: _with_perm(config, settings.broker_permission)
                for name, config in wrapper.topic_config_table.items()
            }
            wrapper = TopicConfigSerializeWrapper(topic_config_table=limited, data_version=wrapper.data_version)
        content = RegisterBrokerBody(topic_config_serialize_wrapper=wrapper, filter_server_list=[])
        compressed = settings.compressed_register
        body = content.deflate() if compressed else content.encode()
        return _Written(version, settings.broker_permission, since, number, body, compressed, body_crc(body))

    async def _register(self, address: str, written: "_Written") -> None:
        header = RegisterBrokerRequestHeader(
            **self._identity(),
            ha_server_addr=self._broker.ha_address,
            compressed=written.compressed,
            body_crc32=written.crc,
        )
        request = RemotingCommand(RequestCode.REGISTER_BROKER, write_header(header), written.body)
        timeout_ms = self._broker.settings.broker.register_broker_timeout_mills
        response = await self._client.invoke_sync(address, request, timeout_ms)
        if response.code != ResponseCode.SUCCESS:
            raise RemotingError(f"it answered {response.code}: {response.remark}")
        if self.on_answer is not None:
            self.on_answer(address, read_header(RegisterBrokerResponseHeader, response))
        if response.body:  # a name server without a table says nothing about order
            table = KVTable.decode(response.body).table
            # Writes a file if something changed.
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


def _with_perm(config: TopicConfig, perm: int) -> TopicConfig:
    return type(config)(
        topic_name=config.topic_name,
        read_queue_nums=config.read_queue_nums,
        write_queue_nums=config.write_queue_nums,
        perm=perm,
    )
