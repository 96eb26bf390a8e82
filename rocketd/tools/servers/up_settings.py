"""Settings of ``rocketd up``, and its last steps: wait for the registration, tell how to go on."""

import os
from collections.abc import Collection, Mapping, Sequence
from ipaddress import ip_address

from twisted.internet.task import deferLater

from rocketd.broker.base.address import join
from rocketd.broker.base.settings import BrokerSettings
from rocketd.broker.service import Broker
from rocketd.client.settings.config import DEFAULT_NAMESRV
from rocketd.common.command_line.errors import CommandError
from rocketd.common.command_line.output import show
from rocketd.common.event_loop.reactor import IReactor
from rocketd.namesrv.route_info import MASTER_ID
from rocketd.namesrv.service import NameServer
from rocketd.namesrv.settings import NamesrvSettings
from rocketd.remoting.bodies.tables import ClusterInfo
from rocketd.remoting.calling.client import RemotingClient
from rocketd.remoting.errors import RemotingError
from rocketd.remoting.serving.server import ListenError
from rocketd.remoting.tls.contexts import ENFORCING, ClientTLS
from rocketd.remoting.wire.codes import RequestCode
from rocketd.remoting.wire.command import RemotingCommand

LOCAL = "127.0.0.1"
"""The address at which servers listen by default."""

READY_SECONDS = 30.0
_POLL_SECONDS = 0.05
_TIMEOUT_MS = 3000


async def registered(
    reactor: IReactor, namesrv: NameServer, settings: BrokerSettings, names: Collection[str]
) -> Mapping[str, str]:
    """Wait until the name server knows all brokers. Return their addresses by name.

    ``settings`` are those of a broker: they say whether its connections use TLS. Raises CommandError after a time.
    """
    client = RemotingClient(reactor, tls=ClientTLS(settings.tls) if settings.client.use_tls else None)
    client.startService()
    try:
        for _ in range(int(READY_SECONDS / _POLL_SECONDS)):
            request = RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO)
            try:
                response = await client.invoke_sync(namesrv.local_address, request, _TIMEOUT_MS)
            except RemotingError as error:
                raise CommandError(f"the name server just started does not answer: {error}") from error
            table = ClusterInfo.decode(response.body).broker_addr_table
            if all(name in table for name in names):
                return {name: table[name].broker_addrs[MASTER_ID] for name in names}
            await deferLater(reactor, _POLL_SECONDS, lambda: None)
        missing = ", ".join(sorted(name for name in names if name not in table))
        raise CommandError(f"{missing} did not register within {READY_SECONDS:g} s; see the log in the data directory")
    finally:
        await client.stopService()


def start_server(server: NameServer | Broker, port_option: str) -> None:
    """Start a server. Raises CommandError with advice about the option of its port."""
    try:
        server.startService()
    except ListenError as error:
        option = port_option if error.setting == "listenPort" else f"-o {error.setting}"
        raise CommandError(error.advise(option)) from error


def show_metrics(name: str, host: str, port: int) -> None:
    """Print the address of a server's metrics. Without a port there are none."""
    if port:
        show(f"metrics      http://{join(host, port)}/metrics  ({name})")


def show_next_steps(namesrv: NameServer) -> None:
    """Print commands to try, and how to stop."""
    address = namesrv.local_address
    again = "" if address == DEFAULT_NAMESRV else f" --namesrv {address}"
    if namesrv.settings.tls.server_mode == ENFORCING:
        # A certificate made at the start cannot be verified.
        again += " --tls-unverified" if namesrv.settings.tls.test_mode_enable else " --tls"
    show(f"try          rocketd produce{again} MyTopic hello   and   rocketd consume{again} MyTopic")
    show("stop         Ctrl-C")


def bound_to(host: str) -> list[tuple[str, str]]:
    """Return the settings for servers that listen on an address. A broker announces it, unless it is 0.0.0.0 or ::."""
    return [] if ip_address(host).is_unspecified else [("bindAddress", host)]


def namesrv_settings(data: str, port: int, overrides: Sequence[tuple[str, str]], brokers: int = 1) -> NamesrvSettings:
    """Return the name server's settings. Its metrics have the port after those of the brokers."""
    known = NamesrvSettings.by_name()
    options = [
        ("kvConfigPath", os.path.join(data, "namesrv", "kvConfig.json")),
        ("configStorePath", os.path.join(data, "namesrv", "namesrv.properties")),
        ("listenPort", str(port)),
        *((key, value) for key, value in overrides if key in known),
    ]
    settings = NamesrvSettings.load(None, options, os.environ)[0]
    first = settings.metrics.metrics_port
    if not first:
        return settings
    return NamesrvSettings.load(None, [*options, ("metricsPort", str(first + brokers))], os.environ)[0]


def broker_settings(
    data: str, port: int, namesrv: str, overrides: Sequence[tuple[str, str]]
) -> tuple[BrokerSettings, list[str]]:
    """Return the broker's settings and their warnings."""
    options = [
        ("storePathRootDir", os.path.join(data, "store")),
        ("listenPort", str(port)),
        *of_broker(overrides),
    ]
    return BrokerSettings.load(None, options, os.environ, namesrv_addr=namesrv)


def of_broker(overrides: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the settings that are not those of the name server alone. An unknown key is the broker's to refuse."""
    elsewhere = NamesrvSettings.by_name().keys() - BrokerSettings.by_name().keys()
    return [(key, value) for key, value in overrides if key not in elsewhere]
