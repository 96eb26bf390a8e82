"""``rocketd up``: a name server, a broker and the web console in one foreground process, for development.

In Apache, this takes two scripts and a configuration.
"""

import os
from collections.abc import Sequence

import click
from twisted.application.service import IService
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.logger import LogLevel
from twisted.python.logfile import LogFile

from rocketd.broker.base.settings import MAX_PORT, VIP_PORT_DISTANCE, BrokerSettings
from rocketd.broker.service import START_ERRORS, make_broker
from rocketd.common.command_line.commands import command
from rocketd.common.command_line.errors import CommandError
from rocketd.common.command_line.option_types import PORT, key_value
from rocketd.common.command_line.output import complain, show
from rocketd.common.event_loop.reactor import IReactor
from rocketd.common.process.cpu_affinity import CpuAffinity
from rocketd.common.process.daemon import tune_interpreter
from rocketd.common.settings.checks import is_ip_address
from rocketd.common.settings.declaration import ConfigError
from rocketd.namesrv.service import make_namesrv
from rocketd.remoting.wire.versions import set_own_version
from rocketd.tools.base.run_coroutine import run_command, show_log
from rocketd.tools.servers.up_console import CONSOLE_OPTION, OFF, ConsolePort, start_console
from rocketd.tools.servers.up_settings import (
    LOCAL,
    bound_to,
    broker_settings,
    namesrv_settings,
    registered,
    show_metrics,
    show_next_steps,
    start_server,
)
from rocketd.tools.servers.up_several import MAX_BROKERS, PORT_DISTANCE, places, up_several

_LOG_BYTES = 10 << 20
_LOG_FILES = 5


def _assignment(text: str) -> tuple[str, str]:
    key, value = key_value(text)
    if key == "listenPort":
        raise click.BadParameter(f"{text!r}: use --namesrv-port or --broker-port")
    if key == "bindAddress":
        raise click.BadParameter(f"{text!r}: use --host")
    return key, value


def _host(text: str) -> str:
    if not is_ip_address(text):
        raise click.BadParameter(f"{text!r}: accepted is an IPv4 or IPv6 address")
    return text


@command("up")
@click.option(
    "--data",
    default="./rocketd-data",
    show_default=True,
    metavar="DIR",
    help="Directory of all files: store, configuration and log.",
)
@click.option(
    "--host",
    type=_host,
    default=LOCAL,
    show_default=True,
    metavar="ADDRESS",
    help="Address of this machine at which to listen, and which clients get. 0.0.0.0 means all addresses.",
)
@click.option(
    "--namesrv-port",
    type=PORT,
    default="9876",
    show_default=True,
    metavar="PORT",
    help="Port of the name server. 0 means a free one.",
)
@click.option(
    "--broker-port",
    type=PORT,
    default="10911",
    show_default=True,
    metavar="PORT",
    help="Port of the broker. 0 means a free one.",
)
@click.option(
    "--brokers",
    type=click.IntRange(1, MAX_BROKERS),
    default="1",
    show_default=True,
    metavar="N",
    help="Number of brokers. Several run in processes, each with a store and ports.",
)
@CONSOLE_OPTION
@click.option(
    "-o",
    "--option",
    "overrides",
    type=_assignment,
    multiple=True,
    metavar="KEY=VALUE",
    help="Setting of the broker or the name server. May be repeated.",
)
def up_command(
    data: str,
    host: str,
    namesrv_port: int,
    broker_port: int,
    brokers: int,
    console: ConsolePort,
    overrides: Sequence[tuple[str, str]],
) -> int:
    """Run a name server, a broker and the web console in the foreground until Ctrl-C.

    By default only programs on this machine can use them.
    """
    _check_ports(namesrv_port, broker_port, brokers)
    if brokers > 1:
        _refuse_shared(overrides)
    if not data:
        raise click.UsageError("--data: accepted is a directory")
    address_settings = bound_to(host)
    overrides = [*address_settings, *overrides]
    data = os.path.abspath(data)
    try:
        settings = _check_settings(data, namesrv_port, broker_port, overrides, brokers)
    except ConfigError as error:
        raise CommandError(str(error)) from None
    try:
        os.makedirs(data, exist_ok=True)
        log = LogFile("rocketd.log", data, rotateLength=_LOG_BYTES, maxRotatedFiles=_LOG_FILES)
    except OSError as error:
        where = data if error.filename == data else f"{data}: {error.filename}"
        reason = "it is not a directory" if isinstance(error, FileExistsError) else error.strerror
        raise click.UsageError(f"--data {where}: {reason}") from None
    show_log(LogLevel.warn, file=log)
    if not address_settings:
        complain("the servers listen on all addresses: any host that reaches this machine can use and change them")
    tune_interpreter()
    set_own_version(settings.remoting.version)
    if brokers == 1:
        return run_command(
            lambda reactor: up(reactor, data, namesrv_port, broker_port, console, overrides), START_ERRORS
        )
    several = places(settings.broker.broker_name, broker_port, data, brokers, settings.metrics.metrics_port)
    return run_command(
        lambda reactor: up_several(
            reactor, namesrv_settings(data, namesrv_port, overrides, brokers), settings, several, console, overrides
        ),
        START_ERRORS,
    )


def _check_ports(namesrv: int, broker: int, brokers: int) -> None:
    """Raise UsageError if a broker listens on the name server's port as well, or above the last port."""
    if not broker:
        return
    ports = [broker + PORT_DISTANCE * number for number in range(brokers)]
    if ports[-1] > MAX_PORT:
        raise click.UsageError(f"--broker-port {broker}: the last of {brokers} brokers would get port {ports[-1]}")
    for port in ports:
        if namesrv and namesrv in (port, port - VIP_PORT_DISTANCE):
            also = f" (beside {port}, for older clients)" if namesrv != port else ""
            raise click.UsageError(f"--namesrv-port {namesrv} is a port of the broker's as well{also}")


def _refuse_shared(overrides: Sequence[tuple[str, str]]) -> None:
    """Raise UsageError for settings that brokers of one cluster cannot share."""
    for key, _ in overrides:
        if key.startswith("storePath") or key in ("brokerId", "haListenPort"):
            raise click.UsageError(f"-o {key}: with --brokers, each broker has another one")


def _check_settings(
    data: str, namesrv_port: int, broker_port: int, overrides: Sequence[tuple[str, str]], brokers: int
) -> BrokerSettings:
    """Return the broker's settings. Raise ConfigError for refused settings before any file is created."""
    namesrv_settings(data, namesrv_port, overrides, brokers)
    # Any port will do: which one is free is found out later.
    return broker_settings(data, broker_port, f"{LOCAL}:{namesrv_port or 1}", overrides)[0]


async def up(
    reactor: IReactor,
    data: str,
    namesrv_port: int,
    broker_port: int,
    console: ConsolePort = OFF,
    overrides: Sequence[tuple[str, str]] = (),
) -> int:
    """Start all, print their addresses, and serve until cancelled. Then stop the broker before the name server."""
    started: list[IService] = []
    try:
        namesrv = make_namesrv(namesrv_settings(data, namesrv_port, overrides), reactor)
        started.append(namesrv)
        start_server(namesrv, "--namesrv-port")
        settings, warnings = broker_settings(data, broker_port, namesrv.local_address, overrides)
        for warning in warnings:
            complain(warning)
        affinity = CpuAffinity(settings.process.cpu_affinity, reactor)
        affinity.startService()
        started.append(affinity)
        broker = make_broker(settings, reactor)
        start_server(broker, "--broker-port")
        started.append(broker)
        await broker.when_serving()
        name = settings.broker.broker_name
        await registered(reactor, namesrv, settings, (name,))
        show(f"name server  {namesrv.local_address}")
        show(f"broker       {broker.address}  ({name}, files in {data})")
        host = settings.metrics.metrics_host
        show_metrics(name, host, settings.metrics.metrics_port)
        show_metrics("name server", host, namesrv.settings.metrics.metrics_port)
        if (pages := start_console(reactor, console, namesrv.local_address, settings)) is not None:
            started.append(pages)
        show_next_steps(namesrv)
        await Deferred()
    finally:
        for service in reversed(started):
            await maybeDeferred(service.stopService)
    return 0
