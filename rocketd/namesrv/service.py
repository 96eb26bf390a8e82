"""The name server as a service: tables, KV configuration and a listening server, put together.

Answers to Apache's NamesrvController and BrokerHousekeepingService. Nothing is opened or read before the service starts,
except the certificates of TLS, so that a bad one is an error of the configuration.
"""

from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Any, Final

from twisted.application.service import MultiService
from twisted.internet import threads
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from zope.interface import implementer

from rocketd.common.clocked_loop import ClockedLoop
from rocketd.common.networks import network_list
from rocketd.common.table_writer import TableWriter
from rocketd.namesrv.interfaces import INameServer
from rocketd.namesrv.kv_config import KVConfigError, KVConfigManager
from rocketd.namesrv.route_info import RouteInfoManager
from rocketd.namesrv.settings import NamesrvSettings
from rocketd.remoting.address_guard import ADMIN_WRITES, REGISTRATIONS, admin_guard, registration_guard
from rocketd.remoting.certificates import TLSConfigError
from rocketd.remoting.dispatch import Dispatcher
from rocketd.remoting.plugins import load_processors, load_server_extensions
from rocketd.remoting.server import ListenError, RemotingServer
from rocketd.remoting.socket_buffers import SocketBuffers, WriteMarks
from rocketd.remoting.tls_port import wrap_server_factory
from rocketd.store.filesystem import IFileSystem, RealFileSystem
from rocketd.store.kept_settings import keep_settings

START_ERRORS: Final = (TLSConfigError, ListenError, KVConfigError, OSError)
"""What may keep a name server from starting, each with a text for the operator."""

POOL: Final = "namesrv"
FIRST_SCAN_SECONDS: Final = 5.0
SCAN_SECONDS: Final = 10.0


@implementer(INameServer)
class NameServer(MultiService):
    """One name server. Methods belong to the reactor thread, except ``store_settings``, called in the pool's.

    All that changes the tables goes through the one thread of the pool ``namesrv``, closed connections and the scan
    included. So the reactor never waits for the tables, and a connection that closes right after a registration is
    seen after it. ``clock`` gives monotonic seconds.
    """

    _log = Logger()

    def __init__(
        self,
        settings: NamesrvSettings,
        reactor: Any,
        file_system: IFileSystem,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        super().__init__()
        self.settings = settings
        self.routes = RouteInfoManager()
        self.table_writer = TableWriter()
        self.kv_config = KVConfigManager(settings.namesrv.kv_config_path, file_system, self.table_writer)
        self.dispatcher = Dispatcher(reactor.callFromThread, clock=clock)
        self.dispatcher.plugin_stop_seconds = settings.server.plugin_stop_timeout / 1000
        config = settings.namesrv
        self.admin_guard = admin_guard(lambda: config.admin_without_acl, clock)
        self.dispatcher.guard(ADMIN_WRITES, self.admin_guard)
        self.broker_guard = registration_guard(lambda: config.broker_allowed_addresses, clock)
        self.dispatcher.guard(REGISTRATIONS, self.broker_guard)
        self.server = RemotingServer(
            reactor,
            self.dispatcher,
            port=settings.server.listen_port,
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
        )
        self.server.setServiceParent(self)
        self.server.listeners.append(self)
        self._pool = self.dispatcher.add_pool(POOL)
        self._reactor = reactor
        self._file_system = file_system
        self._clock = clock
        self._scan = ClockedLoop(reactor, self._scan_inactive)
        self._first_scan: Any = None

    @property
    def port(self) -> int:
        """The port it listens on; before the start the one it is to listen on, 0 for any."""
        return self.server.port

    def startService(self) -> None:
        """Read the KV configuration, load the processors, listen. Raises ListenError."""
        processors = load_processors(self.dispatcher, "namesrv", self)
        processors += load_server_extensions(self.server, "namesrv", self)
        self.kv_config.load()
        super().startService()
        self.table_writer.start()
        self._first_scan = self._reactor.callLater(FIRST_SCAN_SECONDS, self._scan.start, SCAN_SECONDS)
        self._log.info(
            "name server listens on port {port} of all addresses, namesrvAddr for brokers and clients on this machine "
            "is 127.0.0.1:{port}; processors: {processors}",
            port=self.port,
            processors=", ".join(processors),
        )
        admins = self.settings.namesrv.admin_without_acl
        if network_list(admins).takes_everybody:
            self._log.warn(
                "adminWithoutAcl={admins}: everybody who reaches this port can change the KV configuration and settings; "
                "set adminWithoutAcl=private",
                admins=admins,
            )

    def stopService(self) -> "Deferred[None]":
        """Answer what was asked, then close everything."""
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

    def connection_lost(self, connection: Any) -> None:
        """Forget the brokers of a closed connection."""
        self._pool.call(partial(self.routes.on_connection_closed, connection))

    def _scan_inactive(self) -> None:
        self._pool.call(self._forget_inactive)

    def _forget_inactive(self) -> None:
        self.routes.scan_inactive(int(self._clock() * 1000))

    def store_settings(self, changes: dict[str, str]) -> None:
        """Write keys and values into the file ``configStorePath``; see INameServer."""
        path = self.settings.namesrv.config_store_path
        keep_settings(self._file_system, path, changes, given=path == self.settings.config_file)


def make_namesrv(settings: NamesrvSettings, reactor: Any = None) -> NameServer:
    """Make a name server of its settings, on the reactor of this process unless one is given.

    Raises TLSConfigError when the certificates that the settings name cannot be used.
    """
    if reactor is None:
        from twisted.internet import reactor
    return NameServer(settings, reactor, RealFileSystem())
