"""The name server as a service: tables, KV configuration and a listening server.

Counterpart: `NamesrvController` and `BrokerHousekeepingService` (Apache). Before the service starts, only TLS
certificates are read, so a bad one is an error of the configuration.
"""

import os
from collections.abc import Callable
from functools import partial
from ipaddress import ip_address
from time import monotonic, time
from typing import Final

from twisted.application.service import MultiService
from twisted.internet import threads
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from zope.interface import implementer

from rocketd.common.event_loop.clocked_loop import ClockedLoop
from rocketd.common.event_loop.reactor import IReactor, global_reactor
from rocketd.common.networks import network_list
from rocketd.common.table_writer import TableWriter
from rocketd.namesrv.interfaces import INameServer
from rocketd.namesrv.kv_config import KVConfigError, KVConfigManager
from rocketd.namesrv.route_info import RouteInfoManager
from rocketd.namesrv.settings import NamesrvSettings
from rocketd.remoting.limits.address_guard import ADMIN_WRITES, REGISTRATIONS, admin_guard, registration_guard
from rocketd.remoting.serving.audit import Audit
from rocketd.remoting.serving.connection import Connection
from rocketd.remoting.serving.dispatch import Dispatcher
from rocketd.remoting.serving.fair_queue import each_connection, each_host
from rocketd.remoting.serving.plugins import load_processors, load_server_extensions, of_plugins
from rocketd.remoting.serving.server import ListenError, RemotingServer
from rocketd.remoting.socket_buffers import SocketBuffers, WriteMarks
from rocketd.remoting.tls.certificates import TLSConfigError
from rocketd.remoting.tls.contexts import server_context
from rocketd.remoting.tls.port import wrap_server_factory
from rocketd.store.base.filesystem import IFileSystem, RealFileSystem
from rocketd.store.state.audit_file import AuditFile
from rocketd.store.state.kept_settings import keep_settings

START_ERRORS: Final = (TLSConfigError, ListenError, KVConfigError, OSError)
"""Errors of a start, each with a text for the operator."""

POOL: Final = "namesrv"
"""Lists, KV configuration and settings."""
ROUTES_POOL: Final = "routes"
REGISTRATIONS_POOL: Final = "registrations"
LANE_CHECK_SECONDS: Final = 0.2
"""Interval of checks for a lane that is held up. Route queries wait for no disk, so the checks may be rare."""
FIRST_SCAN_SECONDS: Final = 5.0
SCAN_SECONDS: Final = 10.0


@implementer(INameServer)
class NameServer(MultiService):
    """One name server. Methods belong to the reactor thread, except ``store_settings``: it is called by the pool's
    thread.

    Registrations, closed connections and the scan run on the only thread of the pool ``registrations``. So the reactor
    never waits for the tables, and a connection closed right after a registration is handled after it. Hosts take turns
    in that pool, because a broker may register over a new connection before its last one is finished. Route queries and
    all other requests have separate pools, in which connections take turns. The thread of route queries reads the
    connections that ask for routes (see ``rocketd.remoting.serving.lane``). ``clock`` returns monotonic seconds, ``now_ms``
    Unix milliseconds. ``stopwatch`` measures the reactor's delays in seconds, by default with the reactor's time.
    """

    _log = Logger()

    def __init__(
        self,
        settings: NamesrvSettings,
        reactor: IReactor,
        file_system: IFileSystem,
        clock: Callable[[], float] = monotonic,
        stopwatch: Callable[[], float] | None = None,
        now_ms: Callable[[], int] = lambda: int(time() * 1000),
    ) -> None:
        super().__init__()
        self.settings = settings
        settings.start_fault = self._start_fault
        self.routes = RouteInfoManager()
        self.table_writer = TableWriter()
        self.kv_config = KVConfigManager(settings.namesrv.kv_config_path, file_system, self.table_writer)
        audit_file = os.path.join(os.path.dirname(settings.namesrv.kv_config_path), "audit.log")
        self.audit = Audit(AuditFile(file_system, audit_file), now_ms)
        self.dispatcher = Dispatcher(reactor.callFromThread, clock=clock)
        self.dispatcher.plugin_stop_seconds = settings.server.plugin_stop_timeout / 1000
        self.dispatcher.answers.allow(settings.remoting.frame_max_length)
        config = settings.namesrv
        self.admin_guard = admin_guard(lambda: config.admin_without_acl, clock)
        self.dispatcher.guard(ADMIN_WRITES, self.admin_guard)
        self.broker_guard = registration_guard(lambda: config.broker_allowed_addresses, clock)
        self.dispatcher.guard(REGISTRATIONS, self.broker_guard)
        self.server = RemotingServer(
            reactor,
            self.dispatcher,
            port=settings.server.listen_port,
            interface=settings.server.bind_address,
            backlog=settings.server.server_socket_backlog,
            marks=WriteMarks.of(
                settings.server.write_buffer_high_water_mark, settings.server.write_buffer_low_water_mark
            ),
            buffers=SocketBuffers(
                settings.server.server_socket_snd_buf_size, settings.server.server_socket_rcv_buf_size
            ),
            idle_seconds=settings.server.server_channel_max_idle_time_seconds or float("inf"),
            max_frame_length=settings.remoting.frame_max_length,
            wrap=wrap_server_factory(settings.tls, reactor),
            limits=settings.limits,
            lanes=(ROUTES_POOL,),
            stand_in_seconds=LANE_CHECK_SECONDS,
            stopwatch=stopwatch,
        )
        self.server.setServiceParent(self)
        self.server.listeners.append(self)
        if settings.metrics.metrics_port:
            # Not at the top: without metrics, its packages would cost each start time and memory.
            from rocketd.namesrv.metrics import namesrv_endpoint

            endpoint = namesrv_endpoint(settings.metrics, self.server, self.routes, reactor, clock)
            endpoint.setServiceParent(self)
        self._registrations = self.dispatcher.add_pool(REGISTRATIONS_POOL, turns=each_host)
        for name in (ROUTES_POOL, POOL):
            self.dispatcher.add_pool(name, turns=each_connection)
        self._reactor = reactor
        self._file_system = file_system
        self._clock = clock
        self._scan = ClockedLoop(reactor, self._scan_inactive)
        self._first_scan: IDelayedCall | None = None

    @property
    def port(self) -> int:
        """The listening port. Before the start, the wanted one, 0 for any."""
        return self.server.port

    @property
    def local_address(self) -> str:
        """Host and port for clients on this machine."""
        bound = self.settings.server.bind_address
        host = "127.0.0.1" if bound is None or ip_address(bound).is_unspecified else bound
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"

    @property
    def status_text(self) -> str:
        """The state in a line, for the service manager."""
        return f"name server serves on port {self.port}"

    def startService(self) -> None:
        """Read the KV configuration, load the processors, listen. Raises ListenError."""
        processors = load_processors(self.dispatcher, "namesrv", self)
        processors += load_server_extensions(self.server, "namesrv", self)
        self.kv_config.load()
        super().startService()
        self.table_writer.start()
        self._first_scan = self._reactor.callLater(FIRST_SCAN_SECONDS, self._scan.start, SCAN_SECONDS)
        self._log.info(
            "name server listens on port {port} of {where}, namesrvAddr for brokers and clients on this machine "
            "is {address}{plugins}",
            port=self.port,
            where=self.settings.server.bind_address or "all addresses",
            address=self.local_address,
            plugins=of_plugins(processors),
        )
        self._warn_of_open_doors()

    def _warn_of_open_doors(self) -> None:
        admins = self.settings.namesrv.admin_without_acl
        if network_list(admins).takes_everybody:
            self._log.warn(
                "adminWithoutAcl={admins}: any host that reaches this port can change the KV configuration and settings; "
                "set adminWithoutAcl=private",
                admins=admins,
            )
        brokers = self.settings.namesrv.broker_allowed_addresses
        if network_list(brokers).takes_everybody:
            self._log.warn(
                "brokerAllowedAddresses={brokers}: any host that reaches this port can register as any broker and take "
                "over its routes; set brokerAllowedAddresses=private, or list the brokers",
                brokers=brokers,
            )

    def stopService(self) -> "Deferred[None]":
        """Answer pending requests, then close everything."""
        if self._first_scan is not None and self._first_scan.active():
            self._first_scan.cancel()
        if self._scan.running:
            self._scan.stop()
        stopped: Deferred[None] = super().stopService()
        stopped.addCallback(
            lambda _: threads.deferToThreadPool(self._reactor, self._reactor.getThreadPool(), self.table_writer.stop)
        )
        stopped.addCallback(lambda _: self._log.info("name server stopped"))
        return stopped

    def _start_fault(self, tried: NamesrvSettings) -> str | None:
        """Return why a name server would not start with other settings, None if it would."""
        try:
            if tried.tls != self.settings.tls:
                server_context(tried.tls)
        except TLSConfigError as error:
            return str(error)
        return None

    def connection_lost(self, connection: Connection) -> None:
        """Remove the brokers of a closed connection."""
        self._registrations.call(partial(self.routes.on_connection_closed, connection), connection)

    def _scan_inactive(self) -> None:
        self._registrations.call(self._forget_inactive)

    def _forget_inactive(self) -> None:
        self.routes.scan_inactive(int(self._clock() * 1000))

    def reload(self, load: Callable[[], tuple[NamesrvSettings, list[str]]]) -> None:
        """Load the settings again in the thread of their requests, and take the live values."""
        self.dispatcher.pool(POOL).call(partial(self._reload, load))

    def _reload(self, load: Callable[[], tuple[NamesrvSettings, list[str]]]) -> None:
        self.settings.reload(load)

    def store_settings(self, changes: dict[str, str]) -> None:
        """Write keys and values to the file ``configStorePath``, see INameServer."""
        path = self.settings.namesrv.config_store_path
        given, older = path == self.settings.config_file, self.settings.changes_file
        keep_settings(self._file_system, path, changes, given=given, beside=older)


def make_namesrv(settings: NamesrvSettings, reactor: IReactor | None = None) -> NameServer:
    """Return a name server with these settings, by default on the reactor of this process.

    Raises TLSConfigError if the certificates of the settings are unusable.
    """
    return NameServer(settings, reactor or global_reactor(), RealFileSystem())
