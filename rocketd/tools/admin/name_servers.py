"""``rocketd namesrv list`` and ``config``: the name servers, and their settings.

Counterpart: mqadmin getNamesrvConfig and updateNamesrvConfig (Apache).
"""

from collections.abc import Iterable, Mapping

import click

from rocketd.client.errors import RocketMQError
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.client.queries.name_servers import answered_configs, set_config
from rocketd.common.command_line.commands import command
from rocketd.common.command_line.option_types import key_value
from rocketd.common.command_line.output import complain, counted
from rocketd.common.event_loop.reactor import IReactor
from rocketd.protocol.cluster import cluster_info, topics
from rocketd.tools.admin.config import check_kept, check_names, in_effect_later, outcome
from rocketd.tools.admin.options import yes
from rocketd.tools.base.cluster import ClusterAccess, cluster_options, run_client_command
from rocketd.tools.base.masters import NOT_ALL_ANSWERED
from rocketd.tools.base.rows import AS_JSON, show_rows
from rocketd.tools.base.watch import WATCH

_UNKNOWN = "-"


@command("list")
@AS_JSON
@WATCH
@cluster_options
def list_command(cluster: ClusterAccess, as_json: bool) -> int:
    """Print a line for each name server: its address, and how many brokers and topics it knows.

    All should know the same. A - is unknown. The exit status is 3 if not all name servers answered.
    """
    return run_client_command(lambda reactor: _list(reactor, cluster, as_json))


async def _list(reactor: IReactor, cluster: ClusterAccess, as_json: bool) -> int:
    rows: list[tuple[str, int | str, int | str]] = []
    failed: dict[str, RocketMQError] = {}
    async with cluster.client(reactor) as client:
        for address in client.remoting.name_servers.addresses:
            try:
                rows.append((address, *await _known(client, address)))
            except RocketMQError as error:
                failed[address] = error
                rows.append((address, _UNKNOWN, _UNKNOWN))
    show_rows(("name server", "brokers", "topics"), rows, as_json=as_json, right=("brokers", "topics"))
    return _status(failed)


async def _known(client: ClientInstance, address: str) -> tuple[int, int]:
    """Return the numbers of brokers and topics that a name server knows."""
    request, of_topics = cluster_info(), topics()
    info = request.result(address, await client.ask(address, request.code, request.header))
    names = of_topics.result(address, await client.ask(address, of_topics.code, of_topics.header))
    return len(info.broker_addr_table), len(names)


@command("config")
@click.argument("settings", type=key_value, nargs=-1, metavar="[NAME=VALUE]...")
@yes("Change the settings.")
@AS_JSON
@cluster_options
def config_command(cluster: ClusterAccess, settings: tuple[tuple[str, str], ...], yes: bool, as_json: bool) -> int:
    """Print a line for each setting of each name server: name server, setting and value.

    With settings, change these at all name servers, and print the values before and after. Without --yes nothing is
    changed. The exit status is 3 if not all name servers answered. The others are changed.
    """
    if settings:
        return run_client_command(lambda reactor: _set(reactor, cluster, dict(settings), yes, as_json))
    if yes:
        raise click.UsageError("--yes needs a setting")
    return run_client_command(lambda reactor: _show(reactor, cluster, as_json))


async def _show(reactor: IReactor, cluster: ClusterAccess, as_json: bool) -> int:
    async with cluster.admin(reactor) as admin:
        configs, failed = await answered_configs(admin.instance)
    rows = [(address, *setting) for address, config in configs.items() for setting in sorted(config.items())]
    show_rows(("name server", "setting", "value"), rows, as_json=as_json)
    return _status(failed)


def _status(failed: Mapping[str, RocketMQError]) -> int:
    """Complain about name servers that did not answer, and return the exit status."""
    for address, reason in failed.items():
        complain(f"nothing from {address}: {reason}")
    return NOT_ALL_ANSWERED if failed else 0


def _settings_of_name_server() -> Iterable[str]:
    # Imported here: it is only needed for a name that the server did not list.
    from rocketd.namesrv.settings import NamesrvSettings

    return NamesrvSettings.by_name()


async def _set(reactor: IReactor, cluster: ClusterAccess, wanted: dict[str, str], yes: bool, as_json: bool) -> int:
    async with cluster.admin(reactor) as admin:
        before, failed = await answered_configs(admin.instance)
        for address, config in before.items():
            check_names(f"name server {address}", config, wanted, _settings_of_name_server)
        after: Mapping[str, Mapping[str, str]] = dict.fromkeys(before, wanted)
        if yes:
            await set_config(admin.instance, wanted, at=before)
            now, failed = await answered_configs(admin.instance)
            after = {address: config for address, config in now.items() if address in before}
    columns = ("name server", "setting", "before", "after")
    rows = [
        (address, name, before[address].get(name, _UNKNOWN), in_effect_later(config, name))
        for address, config in after.items()
        for name in wanted
    ]
    show_rows(columns, rows, as_json=as_json)
    if yes:
        for address, now_there in after.items():
            check_kept(f"name server {address}", before[address], now_there, wanted)
    for address, changed in after.items():
        server = f"name server {address}"
        would = f"would change {counted(len(wanted), 'setting')} of {server}; with --yes they are changed"
        complain(outcome(server, changed, wanted) if yes else would)
    return _status(failed)
