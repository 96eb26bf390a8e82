"""``rocketd up``: a name server and a broker in one foreground process, for development.

Answers to nothing of Apache's, where two scripts and a configuration are needed.
"""

import os
from collections.abc import Sequence
from typing import Any, ClassVar

from twisted.application.service import IService
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import deferLater
from twisted.logger import LogLevel
from twisted.python import usage
from twisted.python.logfile import LogFile

from rocketd.broker.service import START_ERRORS, VIP_PORT_DISTANCE, Broker, make_broker
from rocketd.broker.settings import BrokerSettings
from rocketd.common.config import ConfigError, one_line
from rocketd.common.daemon import tune_interpreter
from rocketd.namesrv.service import NameServer, make_namesrv
from rocketd.namesrv.settings import NamesrvSettings
from rocketd.remoting.bodies import ClusterInfo
from rocketd.remoting.client import RemotingClient
from rocketd.remoting.codes import RequestCode
from rocketd.remoting.command import RemotingCommand
from rocketd.remoting.errors import RemotingError
from rocketd.remoting.server import ListenError
from rocketd.remoting.tls import ENFORCING, ClientTLS
from rocketd.tools.console import CommandError, complain, run, show, show_log
from rocketd.tools.options import CommandOptions, port

READY_SECONDS = 30.0
_POLL_SECONDS = 0.05
_TIMEOUT_MS = 3000
_LOG_BYTES = 10 << 20
_LOG_FILES = 5


class UpOptions(CommandOptions):
    """Options of ``rocketd up``."""

    synopsis = "Usage: rocketd up [options]"
    longdesc = "Run a name server and a broker in the foreground until Ctrl-C."

    optParameters: ClassVar[list[list[Any]]] = [
        ["data", None, "./rocketd-data", "Directory of all files: store, configuration, log."],
        ["namesrv-port", None, "9876", "Port of the name server; 0 takes a free one.", port],
        ["broker-port", None, "10911", "Port of the broker; 0 takes a free one.", port],
    ]

    def __init__(self) -> None:
        super().__init__()
        self.overrides: list[tuple[str, str]] = []

    def opt_option(self, assignment: str) -> None:
        """Set KEY=VALUE of the broker or the name server; may be repeated."""
        key, separator, value = assignment.partition("=")
        if not separator or not key.strip():
            raise usage.UsageError(f"-o {one_line(assignment)}: accepted is KEY=VALUE")
        if key.strip() == "listenPort":
            raise usage.UsageError(f"-o {assignment}: use --namesrv-port or --broker-port")
        self.overrides.append((key.strip(), value))

    opt_o = opt_option

    def postOptions(self) -> None:
        """Refuse ports that cannot both be had."""
        namesrv, broker = self["namesrv-port"], self["broker-port"]
        if namesrv and namesrv in (broker, broker - VIP_PORT_DISTANCE):
            also = f" (beside {broker}, for older clients)" if namesrv != broker else ""
            raise usage.UsageError(f"--namesrv-port {namesrv} is a port of the broker's as well{also}")

    def run(self) -> int:
        """Run until a signal comes; return the exit status."""
        if not self["data"]:
            raise usage.UsageError("--data: accepted is a directory")
        data = os.path.abspath(self["data"])
        try:
            self._check_settings(data)
        except ConfigError as error:
            complain("rocketd up", str(error))
            return 1
        try:
            os.makedirs(data, exist_ok=True)
            log = LogFile("rocketd.log", data, rotateLength=_LOG_BYTES, maxRotatedFiles=_LOG_FILES)
        except OSError as error:
            where = data if error.filename == data else f"{data}: {error.filename}"
            reason = "it is no directory" if isinstance(error, FileExistsError) else error.strerror
            raise usage.UsageError(f"--data {where}: {reason}") from None
        show_log(LogLevel.warn, file=log)
        tune_interpreter()
        return run(
            "rocketd up",
            lambda reactor: up(reactor, data, self["namesrv-port"], self["broker-port"], self.overrides),
            (CommandError, *START_ERRORS),
        )

    def _check_settings(self, data: str) -> None:
        """Raise ConfigError for settings that would be refused, before any file is made."""
        _namesrv_settings(data, self["namesrv-port"], self.overrides)
        namesrv_port = self["namesrv-port"] or 1  # any will do: which one is free is found out later
        _broker_settings(data, self["broker-port"], namesrv_port, self.overrides)


async def up(
    reactor: Any, data: str, namesrv_port: int, broker_port: int, overrides: Sequence[tuple[str, str]] = ()
) -> int:
    """Start both, say where they are, and serve until cancelled; then stop the broker before the name server."""
    started: list[IService] = []
    try:
        namesrv = make_namesrv(_namesrv_settings(data, namesrv_port, overrides), reactor)
        started.append(namesrv)
        _start(namesrv, "--namesrv-port")
        settings, warnings = _broker_settings(data, broker_port, namesrv.port, overrides)
        for warning in warnings:
            complain("rocketd up", warning)
        broker = make_broker(settings, reactor)
        _start(broker, "--broker-port")
        started.append(broker)
        await broker.when_serving()
        await _registered(reactor, namesrv, broker)
        address = f"127.0.0.1:{namesrv.port}"
        again = "" if namesrv.port == 9876 else f" --namesrv {address}"
        again += " --tls" if namesrv.settings.tls.server_mode == ENFORCING else ""
        show(f"name server  {address}")
        show(f"broker       {broker.address}  ({broker.settings.broker.broker_name}, files in {data})")
        show(f"try          rocketd produce{again} MyTopic hello   and   rocketd consume{again} MyTopic")
        show("stop         Ctrl-C")
        await Deferred()
    finally:
        for service in reversed(started):
            await maybeDeferred(service.stopService)
    return 0


def _start(server: NameServer | Broker, port_option: str) -> None:
    try:
        server.startService()
    except ListenError as error:
        raise CommandError(error.advise(port_option)) from error


async def _registered(reactor: Any, namesrv: NameServer, broker: Broker) -> None:
    """Wait until the name server knows the broker."""
    settings = broker.settings
    client = RemotingClient(reactor, tls=ClientTLS(settings.tls) if settings.client.use_tls else None)
    client.startService()
    try:
        for _ in range(int(READY_SECONDS / _POLL_SECONDS)):
            request = RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO)
            try:
                response = await client.invoke_sync(f"127.0.0.1:{namesrv.port}", request, _TIMEOUT_MS)
            except RemotingError as error:
                raise CommandError(f"the name server just started does not answer: {error}") from error
            if settings.broker.broker_name in ClusterInfo.decode(response.body).broker_addr_table:
                return
            await deferLater(reactor, _POLL_SECONDS, lambda: None)
        raise CommandError(f"the broker did not register within {READY_SECONDS:g} s; see the log in the data directory")
    finally:
        await client.stopService()


def _namesrv_settings(data: str, port: int, overrides: Sequence[tuple[str, str]]) -> NamesrvSettings:
    known = NamesrvSettings.by_name()
    options = [
        ("kvConfigPath", os.path.join(data, "namesrv", "kvConfig.json")),
        ("configStorePath", os.path.join(data, "namesrv", "namesrv.properties")),
        ("listenPort", str(port)),
        *((key, value) for key, value in overrides if key in known),
    ]
    return NamesrvSettings.load(None, options, os.environ)[0]


def _broker_settings(
    data: str, port: int, namesrv_port: int, overrides: Sequence[tuple[str, str]]
) -> tuple[BrokerSettings, list[str]]:
    """Return the settings, and warnings of them."""
    elsewhere = NamesrvSettings.by_name().keys() - BrokerSettings.by_name().keys()
    options = [
        ("storePathRootDir", os.path.join(data, "store")),
        ("listenPort", str(port)),
        *((key, value) for key, value in overrides if key not in elsewhere),
    ]
    return BrokerSettings.load(None, options, os.environ, namesrv_addr=f"127.0.0.1:{namesrv_port}")
