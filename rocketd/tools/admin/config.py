"""``rocketd config``: show and change the settings of a running broker.

Counterpart: mqadmin getBrokerConfig and updateBrokerConfig (Apache). Unlike it, a name that the broker does not know is
refused, and so is a value that the broker ignores.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import click

from rocketd.common.command_line.commands import command
from rocketd.common.command_line.errors import CommandError
from rocketd.common.command_line.option_types import key_value
from rocketd.common.command_line.output import complain, counted
from rocketd.common.event_loop.reactor import IReactor
from rocketd.common.suggest import did_you_mean
from rocketd.tools.admin.options import yes
from rocketd.tools.base.cluster import ClusterAccess, cluster_options, run_client_command
from rocketd.tools.base.rows import AS_JSON, show_rows

PENDING: Final = "rocketd.pending."
"""Prefix of the name of a setting that has effect from the next start of a rocketd server on."""
_UNSET: Final = "-"


@command("show")
@click.argument("broker")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@AS_JSON
@cluster_options
def show_command(cluster: ClusterAccess, broker: str, names: tuple[str, ...], as_json: bool) -> int:
    """Print a line for each setting of the master BROKER, or for those with a NAME: setting and value."""
    return run_client_command(lambda reactor: _show(reactor, cluster, broker, names, as_json))


async def _show(reactor: IReactor, cluster: ClusterAccess, broker: str, names: tuple[str, ...], as_json: bool) -> int:
    async with cluster.admin(reactor) as admin:
        config = await admin.broker_config(broker)
    check_names(f"broker {broker}", config, names, _settings_of_broker)
    shown = sorted((name, config.get(name, _UNSET)) for name in {*(names or config)})
    show_rows(("setting", "value"), shown, as_json=as_json)
    return 0


def _settings_of_broker() -> Iterable[str]:
    # Imported here: it is only needed for a name that the server did not list.
    from rocketd.broker.base.settings import BrokerSettings

    return BrokerSettings.by_name()


def check_names(
    server: str, config: Mapping[str, str], names: Iterable[str], settings: Callable[[], Iterable[str]]
) -> None:
    """Raise CommandError for the first name that is not a setting of ``server``.

    A server does not list settings without a value, so a name in ``settings`` is accepted, too.
    """
    for name in names:
        if name not in config and name not in settings():
            raise CommandError(f"{server} has no setting {name}{did_you_mean(name, config)}")


@command("set")
@click.argument("broker")
@click.argument("settings", type=key_value, nargs=-1, required=True, metavar="NAME=VALUE...")
@yes("Change them.")
@AS_JSON
@cluster_options
def set_command(
    cluster: ClusterAccess, broker: str, settings: tuple[tuple[str, str], ...], yes: bool, as_json: bool
) -> int:
    """Change settings of the master BROKER, and print a line for each: setting, before and after.

    Without --yes nothing is changed. The broker writes the values to its file. Brokers of rocketd tell which values have
    effect only at their next start.
    """
    return run_client_command(lambda reactor: _set(reactor, cluster, broker, dict(settings), yes, as_json))


async def _set(
    reactor: IReactor, cluster: ClusterAccess, broker: str, wanted: dict[str, str], yes: bool, as_json: bool
) -> int:
    server = f"broker {broker}"
    async with cluster.admin(reactor) as admin:
        before = await admin.broker_config(broker)
        check_names(server, before, wanted, _settings_of_broker)
        after: Mapping[str, str] = wanted
        if yes:
            await admin.set_broker_config(broker, wanted)
            after = await admin.broker_config(broker)
    rows = [(name, before.get(name, _UNSET), in_effect_later(after, name)) for name in wanted]
    show_rows(("setting", "before", "after"), rows, as_json=as_json)
    if yes:
        check_kept(server, before, after, wanted)
    complain(
        outcome(server, after, wanted)
        if yes
        else f"would change {counted(len(wanted), 'setting')} of {server}; {_WITH_YES}"
    )
    return 0


_WITH_YES: Final = "with --yes they are changed"


def in_effect_later(config: Mapping[str, str], name: str) -> str:
    """Return the value that a setting has now or from the next start on, or - if it has none."""
    return config.get(PENDING + name, config.get(name, _UNSET))


def check_kept(server: str, before: Mapping[str, str], after: Mapping[str, str], wanted: Mapping[str, str]) -> None:
    """Raise CommandError if a server said yes to a value and did not take it, as Apache's do with unreadable values."""
    for name, value in wanted.items():
        old = before.get(name, _UNSET)
        if in_effect_later(after, name) == old and not _mean_the_same(old, value):
            raise CommandError(f"{server} ignored {name}={value} and keeps {old}")


def _mean_the_same(value: str, other: str) -> bool:
    """Return whether two texts are the same word in any case, or the same number."""
    if value.lower() == other.lower():
        return True
    try:
        return float(value) == float(other)
    except ValueError:
        return False


def outcome(server: str, after: Mapping[str, str], wanted: Mapping[str, str]) -> str:
    """Return the sentence about changed settings."""
    later = [name for name in wanted if PENDING + name in after]
    note = f"; from its next start on: {', '.join(later)}" if later else ""
    return f"changed {counted(len(wanted), 'setting')} of {server}{note}"
