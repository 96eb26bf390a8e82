"""The broker as a service: tables, store, processors, server and registration, put together.

The constructor opens nothing. ``startService`` opens everything in the order of dependencies; ``stopService`` closes it
in the opposite order, so that every acknowledged message survives.

Counterpart: `BrokerController` (Apache).
"""

import os
from collections.abc import Callable
from functools import partial
from time import monotonic, time

from twisted.application.service import Service
from twisted.internet import defer, threads
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from rocketd import core
from rocketd.broker.access.access_control import RELOAD_SECONDS, AccessControl, make_access_control, signing_hooks
from rocketd.broker.access.open_doors import open_doors
from rocketd.broker.base.address import (
    AdvertisedAddress,
    choose_address,
    is_loopback,
    join,
    named,
    record_host,
    specific,
)
from rocketd.broker.base.interfaces import IBroker
from rocketd.broker.base.json_file import JsonFileError
from rocketd.broker.base.settings import VIP_PORT_DISTANCE, BrokerSettings
from rocketd.broker.base.store_paths import path_error
from rocketd.broker.base.watermark import SECONDS as WATER_MARK_SECONDS
from rocketd.broker.base.watermark import WaterMarks
from rocketd.broker.clients.broker_to_client import BrokerToClient
from rocketd.broker.clients.last_subscriptions import NOTE_SECONDS
from rocketd.broker.fast_failure import CHECK_SECONDS, FastFailure
from rocketd.broker.parts import make_parts
from rocketd.broker.registration import Registration
from rocketd.broker.replication.service import Replication
from rocketd.broker.replication.single_master import SecondMasterError
from rocketd.broker.start_fault import start_fault
from rocketd.broker.stats.broker_stats_manager import SAMPLE_SECONDS as BROKER_STATS_SECONDS
from rocketd.broker.stats.store_stats import SAMPLE_SECONDS
from rocketd.broker.tables.implied_topics import ImpliedTopics
from rocketd.broker.tables.missing_tables import warn_of_missing_tables
from rocketd.broker.transaction.service import TICK_SECONDS
from rocketd.common.event_loop.clocked_loop import ClockedLoop
from rocketd.common.event_loop.reactor import IReactor, global_reactor
from rocketd.common.settings.declaration import ConfigError
from rocketd.common.stamp_clock import StampClock
from rocketd.common.table_writer import TableWriter
from rocketd.remoting.bodies.tables import (
    DelayOffsetSerializeWrapper,
)
from rocketd.remoting.calling.callback_threads import CallbackThreads
from rocketd.remoting.calling.client import RemotingClient
from rocketd.remoting.calling.invoke import InvokeLayer
from rocketd.remoting.limits.address_guard import ADMIN_WRITES, admin_guard
from rocketd.remoting.serving.audit import Audit
from rocketd.remoting.serving.connection import Connection
from rocketd.remoting.serving.dispatch import Dispatcher
from rocketd.remoting.serving.fair_queue import each_connection
from rocketd.remoting.serving.plugins import load_processors, load_server_extensions, of_plugins
from rocketd.remoting.serving.server import ListenError, RemotingServer
from rocketd.remoting.serving.third_party.guarded_hook import PluginHook
from rocketd.remoting.serving.third_party.running_calls import ARRIVAL_LISTENER, LOG_DISPATCHER
from rocketd.remoting.socket_buffers import SocketBuffers, WriteMarks
from rocketd.remoting.tls.certificates import TLSConfigError
from rocketd.remoting.tls.contexts import ClientTLS
from rocketd.remoting.tls.port import wrap_server_factory
from rocketd.remoting.wire.codes import SerializeType
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.store.base.errors import StoreError
from rocketd.store.base.filesystem import IFileSystem, RealFileSystem
from rocketd.store.base.layout import audit_path, config_dir
from rocketd.store.interfaces import IMessageStore
from rocketd.store.message_store import MessageStore
from rocketd.store.state.audit_file import AuditFile

START_ERRORS = (ConfigError, TLSConfigError, ListenError, StoreError, JsonFileError, SecondMasterError, OSError)
"""The errors that may prevent a start, each with a text for the operator."""

CLIENT_SCAN_SECONDS = 10.0
HELD_PULLS_SECONDS = 1.0
DELIVERY_SECONDS = 0.1
FILTERS_SECONDS = 10.0


@implementer(IBroker)
class Broker(Service):
    """One broker. Methods belong to the reactor thread unless they say otherwise.

    ``now_ms`` returns Unix milliseconds, ``clock`` monotonic seconds. ``stopwatch`` returns the seconds that measure how
    long work takes, by default those of ``clock``.
    """

    _log = Logger()

    def __init__(
        self,
        settings: BrokerSettings,
        reactor: IReactor,
        file_system: IFileSystem,
        now_ms: Callable[[], int],
        advertised: AdvertisedAddress | None = None,
        clock: Callable[[], float] = monotonic,
        stopwatch: Callable[[], float] | None = None,
    ) -> None:
        self.settings = settings
        self.now_ms = now_ms
        self.clock = clock
        self._stopwatch = stopwatch or clock
        self.stamps = StampClock(lambda: now_ms() / 1000, clock)
        self._reactor = reactor
        bound = specific(settings.server.bind_address)
        self._advertised = advertised or choose_address(*named(settings.broker.broker_ip1, "brokerIP1", bound))
        self._slave_side = choose_address(*named(settings.broker.broker_ip2, "brokerIP2", bound))
        self._only_local = is_loopback(bound)
        self.file_system = file_system
        self.dispatcher = Dispatcher(reactor.callFromThread, clock=clock)
        self.table_writer = TableWriter("rocketd-tables")
        server, remoting = settings.server, settings.remoting
        self.callbacks = CallbackThreads("callback", server.server_callback_executor_threads)
        self.invoke = InvokeLayer(
            reactor, server.server_oneway_semaphore_value, server.server_async_semaphore_value, self.callbacks
        )
        self.dispatcher.answers.responses = self.invoke
        to_clients = BrokerToClient(settings.broker, self.invoke, SerializeType[remoting.serialize_type])
        parts = make_parts(self, to_clients, self.table_writer, clock)
        self.delay_levels = parts.delay_levels
        self.timers = parts.timers
        self.message_builder = parts.message_builder
        self.topics = parts.topics
        self.groups = parts.groups
        self.offsets = parts.offsets
        self.filters = parts.filters
        self.consumers = parts.consumers
        self.producers = parts.producers
        self.last_subscriptions = parts.last_subscriptions
        self.locks = parts.locks
        self.to_clients = parts.to_clients
        self.group_guard = parts.group_guard
        self.schedule = parts.schedule
        self.transactions = parts.transactions
        self.stats = parts.stats
        self.broker_stats = parts.broker_stats
        self.message_hooks = parts.message_hooks
        self.extensions = parts.extensions
        self.consumers.on_ids_changed(self.to_clients.notify_consumer_ids_changed)
        # As in Apache's broker: the setting's value is replaced by the size the filters need.
        settings.store.bit_map_length_consume_queue_ext = self.filters.bloom.bits
        self.dispatcher.plugin_stop_seconds = settings.server.plugin_stop_timeout / 1000
        self.dispatcher.answers.allow(remoting.frame_max_length)
        self.dispatcher.answers.slowest_step = self.slowest_recent_step
        settings.start_fault = partial(start_fault, settings, fs=file_system)
        self._make_pools()
        self.server = RemotingServer(
            reactor,
            self.dispatcher,
            port=server.listen_port,
            interface=server.bind_address,
            backlog=server.server_socket_backlog,
            marks=WriteMarks.of(server.write_buffer_high_water_mark, server.write_buffer_low_water_mark),
            buffers=SocketBuffers(server.server_socket_snd_buf_size, server.server_socket_rcv_buf_size),
            idle_seconds=server.server_channel_max_idle_time_seconds or float("inf"),
            max_frame_length=remoting.frame_max_length,
            wrap=wrap_server_factory(settings.tls, reactor),
            limits=settings.limits,
            lanes=("send", "pull") if settings.broker.connection_lanes else (),
            stopwatch=stopwatch,
        )
        self.server.listeners.append(self)
        self.client = RemotingClient(
            reactor,
            settings.client,
            tls=ClientTLS(settings.tls) if settings.client.use_tls else None,
            serialize_type=SerializeType[remoting.serialize_type],
            max_frame_length=remoting.frame_max_length,
            hooks=signing_hooks(settings.broker),
        )
        self.access: AccessControl | None = None
        self.audit = Audit(AuditFile(file_system, audit_path(settings.store.store_path_root_dir)), now_ms, self._signer)
        self.admin_guard = admin_guard(lambda: settings.broker.admin_without_acl, clock)
        self.registration = Registration(self, self.client, reactor)
        self.topics.on_change(self.registration.changed)
        self.replication = Replication(self, self.client, reactor)
        self.registration.on_answer = self.replication.registered
        self._loops: list[ClockedLoop] = []
        self._delivering = False
        self._serving = False
        self._metrics: Service | None = None
        if settings.metrics.metrics_port:
            # Not at the top: without metrics, its packages would cost each start time and memory.
            from rocketd.broker.metrics.endpoint import broker_endpoint

            self._metrics = broker_endpoint(self, self.server, self.registration, self.is_serving, reactor, clock)
        self._not_serving: Failure | None = None
        self._waiting_for_service: list[defer.Deferred[None]] = []
        self.held_pull_checks: list[Callable[[], None]] = []
        self.started_ms = 0
        self.store: IMessageStore
        self.store_host = b""
        self._unresolved: str | None = None

    def _signer(self, address: str, request: RemotingCommand) -> str | None:
        return None if self.access is None else self.access.signer(address, request)

    def _make_pools(self) -> None:
        broker = self.settings.broker
        for name, capacity in (
            ("send", broker.send_thread_pool_queue_capacity),
            ("pull", broker.pull_thread_pool_queue_capacity),
            ("reply", broker.reply_thread_pool_queue_capacity),
            ("query", broker.query_thread_pool_queue_capacity),
            ("client", broker.client_manager_thread_pool_queue_capacity),
            ("consumer", broker.consumer_manager_thread_pool_queue_capacity),
            ("heartbeat", broker.heartbeat_thread_pool_queue_capacity),
        ):
            self.dispatcher.add_pool(name, max_requests=capacity)
        self.dispatcher.add_pool("admin", turns=each_connection)
        self.dispatcher.add_pool("heartbeat-long")

    def clock_ms(self) -> int:
        """Monotonic milliseconds. Any thread."""
        return int(self.clock() * 1000)

    # ------------------------------------------------------------ addresses

    @property
    def port(self) -> int:
        """The port for clients; before the start the one to open, 0 for any."""
        return self.server.port

    @property
    def advertised_host(self) -> str:
        """The host announced to clients. Any thread."""
        return self._advertised.host

    @property
    def address(self) -> str:
        """Host and port announced to clients. Any thread."""
        return join(self._advertised.host, self.port)

    @property
    def status_text(self) -> str:
        """The state in a line, for the service manager."""
        return f"broker {self.settings.broker.broker_name} serves at {self.address}"

    @property
    def ha_address(self) -> str:
        """Host and port announced to slaves. Any thread."""
        return join(self._slave_side.host, self.replication.port)

    # ------------------------------------------------------------ start

    def startService(self) -> None:
        """Listen, open the store, begin to serve and to register.

        Blocks while the store recovers. If it raises, nothing stays open:

        - ListenError: a port cannot be opened.
        - StoreError, JsonFileError: the store or a table cannot be read.
        - ConfigError: the operating system refuses a path, or accounts or an extension are unusable.

        A master with name servers first asks them for other masters of its name; requests wait until then. So does one
        with an address server. See ``when_serving``.
        """
        validators: list[PluginHook] = []
        replaced = False
        if self.settings.broker.acl_enable:
            validators, replaced = self.extensions.access_validators()
        if not replaced:
            self.access = make_access_control(
                self.settings.broker, self.now_ms, lambda offset: self.store.look_message(offset)
            )
            if self.access is not None:
                self.dispatcher.answers.hooks += (self.access,)
        self.dispatcher.answers.hooks += tuple(validators)
        if self.access is None and not validators:
            self.dispatcher.guard(ADMIN_WRITES, self.admin_guard)
        self.server.listen()
        try:
            if self.port > VIP_PORT_DISTANCE and self.settings.server.listen_port:
                self.server.listen(self.port - VIP_PORT_DISTANCE)
            self.replication.listen()
            if self._metrics is not None:
                self._metrics.startService()
            try:
                self._open_store()
            except OSError as error:
                raise path_error(error, self.settings.store) from error
        except BaseException:
            self.server.stop_listening()
            self.replication.stop_listening()
            if self._metrics is not None:
                self._metrics.stopService()
            raise
        super().startService()
        self.table_writer.start()
        processors = load_processors(self.dispatcher, "broker", self) + self.message_hooks.load(self)
        processors += self.extensions.names + load_server_extensions(self.server, "broker", self)
        self.client.startService()
        self.invoke.start()
        self.replication.start(self.store)
        self.registration.take_addresses()
        may_know_others = bool(self.client.name_servers.addresses) or self.registration.awaits_addresses
        if self.replication.is_slave or not may_know_others:
            self._serve(processors)
        else:
            defer.Deferred.fromCoroutine(self._serve_if_alone(processors)).addErrback(self._not_served)

    def reload(self, load: Callable[[], tuple[BrokerSettings, list[str]]]) -> None:
        """Load settings and accounts again in the thread of their requests, and take the live values."""
        self._in_pool("admin", partial(self._reload, load))

    def _reload(self, load: Callable[[], tuple[BrokerSettings, list[str]]]) -> None:
        if self.access is not None:
            self.access.manager.reload()
        if "brokerPermission" in self.settings.reload(load):
            self.topics.next_version()
            self.register_with_name_servers("brokerPermission was changed")

    def when_serving(self) -> "defer.Deferred[None]":
        """Fire when the broker serves. If it may not, fail with SecondMasterError; the broker has stopped then."""
        result: defer.Deferred[None] = defer.Deferred()
        if self._serving:
            result.callback(None)
        elif self._not_serving is not None:
            result.errback(self._not_serving)
        else:
            self._waiting_for_service.append(result)
        return result

    def is_serving(self) -> bool:
        """Return whether the broker serves, and is not stopping."""
        return self._serving and bool(self.running)

    async def _serve_if_alone(self, processors: list[str]) -> None:
        try:
            await self.registration.find_addresses()
            await self.replication.before_serving()
        except SecondMasterError as error:
            if self.running:
                self._log.critical("{error}", error=error)
                await self.stopService()
            raise
        except Exception:  # the answers are useful, but the messages do not depend on them
            self._log.failure("the other brokers of this name could not be queried")
        if self.running:
            self._serve(processors)

    def _not_served(self, failure: Failure) -> None:
        self._not_serving = failure
        waiting, self._waiting_for_service = self._waiting_for_service, []
        for result in waiting:
            result.errback(failure)

    def _serve(self, processors: list[str]) -> None:
        """Begin to serve and to register."""
        self._serving = True
        self.server.startService()
        self.started_ms = self.now_ms()
        self._start_loops()
        self.timers.start()
        self.replication.serving()
        self.registration.start()
        self._log.info("broker {line}", line=self._advertised.describe(self.port))
        if self._advertised.warning and not self._only_local:
            another = "another " if self.settings.broker.broker_ip1 else ""
            self._log.warn("{doubt}; set {another}brokerIP1", doubt=self._advertised.warning, another=another)
        if self._unresolved:
            self._log.warn("{doubt}", doubt=self._unresolved)
        for door in open_doors(self.settings):
            self._log.warn("{door}", door=door)
        self._log.info(
            "broker {name} of cluster {cluster} serves on port {port}, store {store}, name servers {namesrv}; "
            "{core}{plugins}",
            core=core.kind(),
            name=self.settings.broker.broker_name,
            cluster=self.settings.broker.broker_cluster_name,
            port=self.port,
            store=self.settings.store.store_path_root_dir,
            namesrv=self.registration.name_servers,
            plugins=of_plugins(processors),
        )
        waiting, self._waiting_for_service = self._waiting_for_service, []
        for result in waiting:
            result.callback(None)

    def _open_store(self) -> None:
        self.store_host, self._unresolved = record_host(self._advertised.host, self.port)
        store = MessageStore(
            self.settings.store,
            self.store_host,
            fs=self.file_system,
            clock=lambda: self.now_ms() / 1000,
            monotonic=self.clock,
            stopwatch=self._stopwatch,
            stamps=self.stamps.now,
            delay_time_of=self.delay_levels.deliver_ms,
        )
        self.store = self.extensions.wrap_store(store, self.settings.broker.message_store_plug_in)
        self.extensions.load(self.store)
        self.store.put_listener = self.stats.puts_took
        self.store.holds_dispatch = True
        self.store.dispatch_blockers = self._dispatch_blockers
        self.dispatcher.pool("send").after_jobs = self.store.release_dispatch
        # Before the store: its recovery computes bitmaps too.
        self.filters.load()
        self.store.set_bitmap_maker(self.filters.make_bitmaps)
        self.store.start()
        try:
            for table in (self.topics, self.groups, self.offsets, self.schedule):
                table.load()
            self.last_subscriptions.load()
            self._warn_of_missing_tables()
            if self.replication.is_slave:
                self.topics.follow_a_master()
            else:
                ImpliedTopics(self).make()
        except BaseException:
            self.store.stop()
            raise

    def _water_marks(self) -> WaterMarks:
        return WaterMarks(
            lambda: self.dispatcher.pools,
            lambda: self.store.dispatch_behind_bytes(),
            self.clock_ms,
            self.server.lags,
        )

    def _warn_of_missing_tables(self) -> None:
        config = config_dir(self.settings.store.store_path_root_dir)
        topics, *others = (
            os.path.join(config, name) for name in ("topics.json", "subscriptionGroup.json", "consumerOffset.json")
        )
        warn_of_missing_tables(
            self.file_system,
            topics,
            others,
            self.store.queue_keys(),
            lambda topic: self.topics.select(topic) is not None,
        )

    def _start_loops(self) -> None:
        flush_seconds = self.settings.broker.flush_consumer_offset_interval / 1000
        delay_seconds = self.settings.store.flush_delay_offset_interval / 1000
        pull = self.dispatcher.pool("pull")
        fast_failure = FastFailure(
            self.settings.broker,
            self.dispatcher,
            self.store,
            self.clock_ms,
            self.slowest_recent_step,
        )
        loops: list[tuple[float, Callable[[], None]]] = [
            (CLIENT_SCAN_SECONDS, partial(self._in_pool, "client", self._scan_clients)),
            (HELD_PULLS_SECONDS, lambda: pull.call(self._check_held_pulls)),
            (SAMPLE_SECONDS, self.stats.sample),
            (BROKER_STATS_SECONDS, partial(self._in_pool, "admin", self.broker_stats.sample)),
            (NOTE_SECONDS, partial(self._in_pool, "admin", self.last_subscriptions.note)),
            (CHECK_SECONDS, fast_failure.check),
            (WATER_MARK_SECONDS, self._water_marks().log),
            (flush_seconds, partial(self._in_pool, "admin", self._save_offsets)),
            (delay_seconds, self.schedule.save),
            (FILTERS_SECONDS, self.filters.save),
        ]
        if self.access is not None:
            loops.append((RELOAD_SECONDS, partial(self._in_pool, "admin", self.access.manager.reload)))
        if not self.replication.is_slave:
            loops.append((DELIVERY_SECONDS, self._deliver))
            loops.append((TICK_SECONDS, self.transactions.tick))
        for seconds, function in loops:
            loop = ClockedLoop(self._reactor, self._guarded(function))
            loop.start(seconds, now=False)
            self._loops.append(loop)

    def _guarded(self, function: Callable[[], None]) -> Callable[[], None]:
        """Wrap a function so that a failure is logged, and the next call still happens."""

        def guarded() -> None:
            try:
                function()
            except Exception:
                self._log.failure("a periodic task of the broker failed")

        return guarded

    def _in_pool(self, pool: str, function: Callable[[], None]) -> None:
        self.dispatcher.pool(pool).call(self._guarded(function))

    def _scan_clients(self) -> None:
        self.consumers.scan_not_active()
        self.producers.scan_not_active()
        self.locks.drop_expired()
        self.group_guard.check()

    def _check_held_pulls(self) -> None:
        for check in self.held_pull_checks:
            check()

    def _save_offsets(self) -> None:
        self.transactions.publish()
        self.offsets.save()

    def _deliver(self) -> None:
        """Deliver due messages in the storage thread, unless the last delivery is still running."""
        if not self._delivering:
            self._delivering = True
            self.dispatcher.pool("send").call(self._deliver_in_storage_thread)

    def _deliver_in_storage_thread(self) -> None:
        more = False
        try:
            more = self.schedule.deliver_due()
        except Exception:
            self._log.failure("delayed messages could not be delivered; trying again")
        finally:
            if more:
                # Queued behind the sends received meanwhile.
                self.dispatcher.pool("send").call(self._deliver_in_storage_thread)
            else:
                self._delivering = False

    # ------------------------------------------------------------ stop

    def stopService(self) -> "defer.Deferred[None]":
        """Unregister, answer queued requests, flush and close everything. Another call does nothing."""
        if not self.running:
            return defer.succeed(None)
        super().stopService()
        return defer.Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        for loop in self._loops:
            loop.stop()
        self._loops.clear()
        await self.registration.stop()
        self.replication.stop_following()
        self.invoke.stop()
        self.callbacks.stop()
        self.dispatcher.begin_stop()
        # Before the connections are closed: consumers that are gone have no subscriptions.
        await threads.deferToThreadPool(self._reactor, self._reactor.getThreadPool(), self.last_subscriptions.note)
        if self._serving:
            await threads.deferToThreadPool(self._reactor, self._reactor.getThreadPool(), self.timers.stop)
        await self.server.stopService()
        await self.replication.stop()
        await self.client.stopService()
        if self._metrics is not None:
            await self._metrics.stopService()
        await threads.deferToThreadPool(self._reactor, self._reactor.getThreadPool(), self._close_store)
        self._log.info("broker {name} stopped", name=self.settings.broker.broker_name)

    def _dispatch_blockers(self, given_up: bool) -> str:
        kinds = LOG_DISPATCHER, ARRIVAL_LISTENER
        calls = self.dispatcher.plugin_calls
        return ", ".join(map(str, calls.busy(*kinds))) if not given_up or calls.given_up(*kinds) else ""

    def _close_store(self) -> None:
        self.transactions.publish()
        self.table_writer.stop()
        tables = self.offsets, self.schedule, self.topics, self.groups, self.filters, self.last_subscriptions
        for table in tables:
            try:
                table.persist()
            except OSError as error:  # the messages still have to be made durable
                self._log.error("a table of the broker cannot be written: {error}", error=error)
        self.store.stop()

    # ------------------------------------------------------------ for other parts

    def connection_lost(self, connection: Connection) -> None:
        """Forget the clients of a closed connection."""
        self.invoke.connection_lost(connection)
        self._in_pool("client", partial(self._forget_connection, connection))

    def _forget_connection(self, connection: Connection) -> None:
        self.consumers.connection_closed(connection)
        self.producers.connection_closed(connection)

    def when_registered(self, callback: Callable[[], None]) -> None:
        """Call back once the name servers know all changes so far, or after a while; see Registration. Any thread."""
        self.registration.when_told(callback)

    def register_with_name_servers(self, reason: str) -> None:
        """Register a change with the name servers. Any thread."""
        self.registration.changed(reason)

    def slowest_recent_step(self) -> str:
        """Name the step sends waited for recently, with its measured time. Any thread."""
        append_ms, flush_ms = self.store.last_append_ms, self.store.last_flush_ms
        step, took_ms = ("fdatasync of the log", flush_ms) if flush_ms > append_ms else ("append to the log", append_ms)
        return f"{step}, {took_ms:.0f} ms"

    def delay_offsets(self) -> DelayOffsetSerializeWrapper:
        """Copy the delivery progress of each delay level. Any thread."""
        return self.schedule.snapshot()

    def disk_usage_text(self) -> str:
        """Return how full the disks of log, queues and index are, as in Apache's remark. Any thread."""
        ratio = self.store.disk_ratio()
        return f"CL: {ratio:5.2f} CQ: {ratio:5.2f} INDEX: {ratio:5.2f}"


def make_broker(settings: BrokerSettings, reactor: IReactor | None = None) -> Broker:
    """Make a broker from its settings, on the reactor of this process unless one is given.

    Raises ConfigError or TLSConfigError if the settings are unusable.
    """
    return Broker(settings, reactor or global_reactor(), RealFileSystem(), lambda: int(time() * 1000))
