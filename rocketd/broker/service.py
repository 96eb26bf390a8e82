"""The broker as a service: tables, store, processors, a listening server and the registration, put together.

Answers to Apache's BrokerController. The constructor opens nothing; ``startService`` opens everything, in the order in
which parts need each other, and ``stopService`` closes it in the opposite order, so that nothing acknowledged is lost.
"""

import os
from collections.abc import Callable
from functools import partial
from time import monotonic, time
from typing import Any

from twisted.application.service import Service
from twisted.internet import defer, threads
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from rocketd import core
from rocketd.broker.access_control import RELOAD_SECONDS, AccessControl, make_access_control, signing_hooks
from rocketd.broker.address import AdvertisedAddress, choose_address, join, record_host
from rocketd.broker.broker_to_client import BrokerToClient
from rocketd.broker.consumer_filter_file import ConsumerFilterWrapper
from rocketd.broker.consumer_filters import ConsumerFilterManager
from rocketd.broker.consumers import ConsumerManager
from rocketd.broker.delay_levels import DelayLevels
from rocketd.broker.extensions import Extensions, ValidatorHook
from rocketd.broker.fast_failure import CHECK_SECONDS, FastFailure
from rocketd.broker.group_guard import GroupGuard
from rocketd.broker.groups import SubscriptionGroupManager
from rocketd.broker.implied_topics import ImpliedTopics
from rocketd.broker.incoming import MessageBuilder
from rocketd.broker.interfaces import IBroker
from rocketd.broker.json_file import JsonFile, JsonFileError
from rocketd.broker.last_subscriptions import NOTE_SECONDS, LastSubscriptions, LastSubscriptionWrapper
from rocketd.broker.light_offsets import offset_file
from rocketd.broker.message_hooks import MessageHooks
from rocketd.broker.missing_tables import warn_of_missing_tables
from rocketd.broker.new_names import group_limit, topic_limit
from rocketd.broker.offsets import ConsumerOffsetManager
from rocketd.broker.open_doors import open_doors
from rocketd.broker.producers import ProducerManager
from rocketd.broker.rebalance_lock import RebalanceLockManager
from rocketd.broker.registration import Registration
from rocketd.broker.replication.service import Replication
from rocketd.broker.replication.single_master import SecondMasterError
from rocketd.broker.schedule import ScheduleMessageService
from rocketd.broker.settings import BrokerSettings
from rocketd.broker.stats.broker_stats_manager import SAMPLE_SECONDS as BROKER_STATS_SECONDS
from rocketd.broker.stats.broker_stats_manager import BrokerStatsManager
from rocketd.broker.store_paths import path_error
from rocketd.broker.store_stats import SAMPLE_SECONDS, StoreStats
from rocketd.broker.timer.service import TimerMessageService
from rocketd.broker.topics import TopicConfigManager
from rocketd.broker.transaction.service import TICK_SECONDS, TransactionService
from rocketd.broker.watermark import SECONDS as WATER_MARK_SECONDS
from rocketd.broker.watermark import WaterMarks
from rocketd.common.clocked_loop import ClockedLoop
from rocketd.common.config import ConfigError
from rocketd.common.stamp_clock import StampClock
from rocketd.common.table_writer import TableWriter
from rocketd.remoting.address_guard import ADMIN_WRITES, admin_guard
from rocketd.remoting.bodies import (
    DelayOffsetSerializeWrapper,
    SubscriptionGroupWrapper,
    TopicConfigSerializeWrapper,
)
from rocketd.remoting.callback_threads import CallbackThreads
from rocketd.remoting.certificates import TLSConfigError
from rocketd.remoting.client import RemotingClient
from rocketd.remoting.codes import SerializeType
from rocketd.remoting.dispatch import Dispatcher
from rocketd.remoting.invoke import InvokeLayer
from rocketd.remoting.plugins import load_processors, load_server_extensions
from rocketd.remoting.server import ListenError, RemotingServer
from rocketd.remoting.socket_buffers import SocketBuffers, WriteMarks
from rocketd.remoting.tls import ClientTLS
from rocketd.remoting.tls_port import wrap_server_factory
from rocketd.store.errors import StoreError
from rocketd.store.filesystem import IFileSystem, RealFileSystem
from rocketd.store.layout import config_dir
from rocketd.store.message_store import MessageStore

START_ERRORS = (ConfigError, TLSConfigError, ListenError, StoreError, JsonFileError, SecondMasterError, OSError)
"""What may keep a broker from starting, each with a text for the operator."""

VIP_PORT_DISTANCE = 2
"""Older clients reach the broker on the port two below as well."""
CLIENT_SCAN_SECONDS = 10.0
HELD_PULLS_SECONDS = 1.0
DELIVERY_SECONDS = 0.1
FILTERS_SECONDS = 10.0


@implementer(IBroker)
class Broker(Service):
    """One broker. Methods belong to the reactor thread unless they say otherwise.

    ``now_ms`` tells Unix milliseconds, ``clock`` seconds that only go forward.
    """

    _log = Logger()

    def __init__(
        self,
        settings: BrokerSettings,
        reactor: Any,
        file_system: IFileSystem,
        now_ms: Callable[[], int],
        advertised: AdvertisedAddress | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.settings = settings
        self.now_ms = now_ms
        self.clock = clock
        self.stamps = StampClock(lambda: now_ms() / 1000, clock)
        self._reactor = reactor
        self._advertised = advertised or choose_address(settings.broker.broker_ip1)
        self._slave_side = choose_address(settings.broker.broker_ip2, "brokerIP2")
        self.delay_levels = DelayLevels(settings.store.message_delay_level)
        self.timers = TimerMessageService(self, clock)
        self.message_builder = MessageBuilder(
            settings.broker.broker_cluster_name, self.delay_levels.delays_ms, self.timers.gate
        )
        tables = config_dir(settings.store.store_path_root_dir)

        def json_file(name: str, content_type: Any) -> Any:
            return JsonFile(os.path.join(tables, name), content_type, file_system)

        self.dispatcher = Dispatcher(reactor.callFromThread, clock=clock)
        writer = self.table_writer = TableWriter("rocketd-tables")
        self.topics = TopicConfigManager(
            settings.broker,
            json_file("topics.json", TopicConfigSerializeWrapper),
            now_ms,
            writer,
            topic_limit(settings.broker, self.dispatcher.limits, clock),
        )
        self.groups = SubscriptionGroupManager(
            settings.broker,
            json_file("subscriptionGroup.json", SubscriptionGroupWrapper),
            now_ms,
            writer,
            group_limit(settings.broker, self.dispatcher.limits, clock),
        )
        self.offsets = ConsumerOffsetManager(offset_file(settings.store, json_file), writer)
        if settings.store.enable_lmq:
            self.topics.serve_light_queues()
            self.groups.serve_light_queues()
        self.consumers = ConsumerManager(self.clock_ms)
        self.filters = ConsumerFilterManager(
            settings.broker, json_file("consumerFilter.json", ConsumerFilterWrapper), now_ms, writer
        )
        # As Apache's broker does: what is read as a setting is what the filters need.
        settings.store.bit_map_length_consume_queue_ext = self.filters.bloom.bits
        self.producers = ProducerManager(self.clock_ms)
        self.last_subscriptions = LastSubscriptions(
            self, json_file("lastSubscription.json", LastSubscriptionWrapper), writer
        )
        self.locks = RebalanceLockManager(
            self.clock_ms,
            settings.broker.rebalance_lock_max_live_time,
            lambda: settings.broker.max_queue_locks,
            self.dispatcher.limits,
        )
        self.schedule = ScheduleMessageService(self, json_file("delayOffset.json", DelayOffsetSerializeWrapper), writer)
        self.transactions = TransactionService(self, clock)
        self.dispatcher.plugin_stop_seconds = settings.server.plugin_stop_timeout / 1000
        self.dispatcher.slowest_step = self.slowest_recent_step
        self._make_pools()
        server, remoting = settings.server, settings.remoting
        self._callbacks = CallbackThreads("callback", server.server_callback_executor_threads)
        self.invoke = InvokeLayer(
            reactor, server.server_oneway_semaphore_value, server.server_async_semaphore_value, self._callbacks
        )
        self.dispatcher.responses = self.invoke
        self.to_clients = BrokerToClient(settings.broker, self.invoke, SerializeType[remoting.serialize_type])
        self.consumers.on_ids_changed(self.to_clients.notify_consumer_ids_changed)
        self.consumers.on_group_gone(self.filters.unregister)
        self.group_guard = GroupGuard(self)
        self.server = RemotingServer(
            reactor,
            self.dispatcher,
            port=server.listen_port,
            backlog=server.server_socket_backlog,
            marks=WriteMarks.of(server.write_buffer_high_water_mark, server.write_buffer_low_water_mark),
            buffers=SocketBuffers(server.server_socket_snd_buf_size, server.server_socket_rcv_buf_size),
            idle_seconds=server.server_channel_max_idle_time_seconds or float("inf"),
            max_frame_length=remoting.frame_max_length,
            wrap=wrap_server_factory(settings.tls, reactor),
            limits=settings.limits,
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
        self.admin_guard = admin_guard(lambda: settings.broker.admin_without_acl, clock)
        self.registration = Registration(self, self.client, reactor)
        self.topics.on_change(self.registration.changed)
        self.replication = Replication(self, self.client, reactor)
        self.registration.on_answer = self.replication.registered
        self.file_system = file_system
        self._loops: list[ClockedLoop] = []
        self._delivering = False
        self._serving = False
        self._not_serving: Failure | None = None
        self._waiting_for_service: list[defer.Deferred[None]] = []
        self.held_pull_checks: list[Callable[[], None]] = []
        self.started_ms = 0
        self.stats = StoreStats(now_ms, self.clock_ms, lambda: self.store.messages_put)
        self.message_hooks = MessageHooks()
        self.extensions = Extensions(self)
        self.broker_stats = BrokerStatsManager(
            settings.broker.broker_cluster_name,
            self.clock_ms,
            per_queue=settings.broker.enable_detail_stat,
            merge_lmq=settings.store.enable_lmq,
        )
        self.store: MessageStore
        self.store_host = b""
        self._unresolved: str | None = None

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
        self.dispatcher.add_pool("admin")

    def clock_ms(self) -> int:
        """Milliseconds that only go forward. Any thread."""
        return int(self.clock() * 1000)

    # ------------------------------------------------------------ who and where

    @property
    def port(self) -> int:
        """The port clients connect to; before the start the one that is to be opened, 0 for any."""
        return self.server.port

    @property
    def advertised_host(self) -> str:
        """The host that clients are told. Any thread."""
        return self._advertised.host

    @property
    def address(self) -> str:
        """Host and port that clients are told. Any thread."""
        return join(self._advertised.host, self.port)

    @property
    def ha_address(self) -> str:
        """Host and port that slaves are told. Any thread."""
        return join(self._slave_side.host, self.replication.port)

    # ------------------------------------------------------------ start

    def startService(self) -> None:
        """Listen, open the store, begin to serve and to register.

        Blocks while the store recovers. Raises ListenError, StoreError, JsonFileError or, for what the operating
        system refuses, ConfigError; nothing stays open then. A master that has name servers begins to serve when it has
        asked them for its namesakes, see ``when_serving``; requests wait until then.
        """
        validators: list[ValidatorHook] = []
        replaced = False
        if self.settings.broker.acl_enable:
            validators, replaced = self.extensions.access_validators()
        if not replaced:
            self.access = make_access_control(
                self.settings.broker, self.now_ms, lambda offset: self.store.look_message(offset)
            )
            if self.access is not None:
                self.dispatcher.hooks += (self.access,)
        self.dispatcher.hooks += tuple(validators)
        if self.access is None and not validators:
            self.dispatcher.guard(ADMIN_WRITES, self.admin_guard)
        self.server.listen()
        try:
            if self.port > VIP_PORT_DISTANCE and self.settings.server.listen_port:
                self.server.listen(self.port - VIP_PORT_DISTANCE)
            self.replication.listen()
            try:
                self._open_store()
            except OSError as error:
                raise path_error(error, self.settings.store) from error
        except BaseException:
            self.server.stop_listening()
            self.replication.stop_listening()
            raise
        super().startService()
        self.table_writer.start()
        processors = load_processors(self.dispatcher, "broker", self) + self.message_hooks.load(self)
        processors += self.extensions.names + load_server_extensions(self.server, "broker", self)
        self.client.startService()
        self.invoke.start()
        self.replication.start(self.store)
        self.registration.take_addresses()
        if self.replication.is_slave or not self.client.name_servers.addresses:
            self._serve(processors)
        else:
            defer.Deferred.fromCoroutine(self._serve_if_alone(processors)).addErrback(self._not_served)

    def when_serving(self) -> "defer.Deferred[None]":
        """Fire when the broker serves; fails with SecondMasterError, and the broker has stopped, when it may not."""
        result: defer.Deferred[None] = defer.Deferred()
        if self._serving:
            result.callback(None)
        elif self._not_serving is not None:
            result.errback(self._not_serving)
        else:
            self._waiting_for_service.append(result)
        return result

    async def _serve_if_alone(self, processors: list[str]) -> None:
        try:
            await self.replication.before_serving()
        except SecondMasterError as error:
            if self.running:
                self._log.critical("{error}", error=error)
                await self.stopService()
            raise
        except Exception:  # what is asked for is of use, but nothing that the messages need
            self._log.failure("the other brokers of this name could not be asked")
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
        if self._advertised.warning:
            self._log.warn("{doubt}; set brokerIP1", doubt=self._advertised.warning)
        if self._unresolved:
            self._log.warn("{doubt}", doubt=self._unresolved)
        for door in open_doors(self.settings):
            self._log.warn("{door}", door=door)
        self._log.info(
            "broker {name} of cluster {cluster} serves on port {port}, store {store}, name servers {namesrv}; "
            "{core}, processors: {processors}",
            core=core.kind(),
            name=self.settings.broker.broker_name,
            cluster=self.settings.broker.broker_cluster_name,
            port=self.port,
            store=self.settings.store.store_path_root_dir,
            namesrv=self.registration.name_servers,
            processors=", ".join(dict.fromkeys(processors)),
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
            stamps=self.stamps.now,
            delay_time_of=self.delay_levels.deliver_ms,
        )
        self.store = self.extensions.wrap_store(store, self.settings.broker.message_store_plug_in)
        self.extensions.load(self.store)
        self.store.put_listener = self.stats.puts_took
        self.store.holds_dispatch = True
        self.dispatcher.pool("send").after_jobs = self.store.release_dispatch
        # Before the store: its recovery makes bitmaps too.
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
        return WaterMarks(lambda: self.dispatcher.pools, lambda: self.store.dispatch_behind_bytes(), self.clock_ms)

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
        """Have a function that fails be a line in the log, and called again next time."""

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
        """Deliver due messages in the storage thread, unless the last delivery is still under way."""
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
                # Behind the sends that have come meanwhile.
                self.dispatcher.pool("send").call(self._deliver_in_storage_thread)
            else:
                self._delivering = False

    # ------------------------------------------------------------ stop

    def stopService(self) -> "defer.Deferred[None]":
        """Unregister, answer what is queued, flush and close everything. A further call does nothing."""
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
        self._callbacks.stop()
        if self._serving:
            await threads.deferToThreadPool(self._reactor, self._reactor.getThreadPool(), self.timers.stop)
        await self.server.stopService()
        await self.replication.stop()
        await self.client.stopService()
        await threads.deferToThreadPool(self._reactor, self._reactor.getThreadPool(), self._close_store)
        self._log.info("broker {name} stopped", name=self.settings.broker.broker_name)

    def _close_store(self) -> None:
        self.transactions.publish()
        self.table_writer.stop()
        for table in (self.offsets, self.schedule, self.topics, self.groups, self.filters):
            try:
                table.persist()
            except OSError as error:  # the messages are still to be made safe
                self._log.error("a table of the broker cannot be written: {error}", error=error)
        self.store.stop()

    # ------------------------------------------------------------ for others

    def connection_lost(self, connection: Any) -> None:
        """Forget the clients of a closed connection."""
        self.invoke.connection_lost(connection)
        self._in_pool("client", partial(self._forget_connection, connection))

    def _forget_connection(self, connection: Any) -> None:
        self.consumers.connection_closed(connection)
        self.producers.connection_closed(connection)

    def when_registered(self, callback: Callable[[], None]) -> None:
        """Call back once the name servers know of all changes so far, or after a while; see Registration. Any thread."""
        self.registration.when_told(callback)

    def register_with_name_servers(self, reason: str) -> None:
        """Tell the name servers of a change. Any thread."""
        self.registration.changed(reason)

    def slowest_recent_step(self) -> str:
        """Name what sends waited for lately, with its measured time. Any thread."""
        append_ms, flush_ms = self.store.last_append_ms, self.store.last_flush_ms
        step, took_ms = ("fdatasync of the log", flush_ms) if flush_ms > append_ms else ("append to the log", append_ms)
        return f"{step}, {took_ms:.0f} ms"

    def delay_offsets(self) -> DelayOffsetSerializeWrapper:
        """Copy how far each delay level has been delivered. Any thread."""
        return self.schedule.snapshot()

    def disk_usage_text(self) -> str:
        """Say how full the disks of log, queues and index are, as Apache's remark does. Any thread."""
        ratio = self.store.disk_watch.ratio
        return f"CL: {ratio:5.2f} CQ: {ratio:5.2f} INDEX: {ratio:5.2f}"


def make_broker(settings: BrokerSettings, reactor: Any = None) -> Broker:
    """Make a broker of its settings, on the reactor of this process unless one is given.

    Raises ConfigError or TLSConfigError when the settings cannot be used.
    """
    if reactor is None:
        from twisted.internet import reactor
    return Broker(settings, reactor, RealFileSystem(), lambda: int(time() * 1000))
