"""``rocketd group``: list, show, create and delete consumer groups, and list their members.

Counterpart: mqadmin getConsumerConfig, updateSubGroup, deleteSubGroup and consumerConnection (Apache).
"""

import click

from rocketd.client.admin import AdminEngine
from rocketd.common.command_line.commands import command
from rocketd.common.command_line.errors import CommandError
from rocketd.common.command_line.option_types import group_name, whole_number
from rocketd.common.command_line.output import complain, counted, show_bytes, show_table
from rocketd.common.event_loop.reactor import IReactor
from rocketd.common.names import PRESET_GROUPS, is_system_group
from rocketd.remoting.bodies.tables import SubscriptionGroupConfig
from rocketd.tools.admin.clients import show_online
from rocketd.tools.admin.options import OF_CLUSTER, yes
from rocketd.tools.base.cluster import ClusterAccess, cluster_options, run_client_command
from rocketd.tools.base.json_lines import json_text
from rocketd.tools.base.rows import AS_JSON, show_rows
from rocketd.tools.base.watch import WATCH

_COLUMNS = ("group", "enabled", "broadcast", "retries", "retry queues")


@command("list")
@click.option("--all", "with_system", is_flag=True, help="Also groups that every broker has from its first start.")
@AS_JSON
@cluster_options
def list_command(cluster: ClusterAccess, with_system: bool, as_json: bool) -> int:
    """Print a line for each consumer group: group, enabled, broadcast, retries and retry queues.

    "enabled" is whether the group may consume, "broadcast" whether it may do so in the broadcasting model. "retries" is
    the number of further attempts before a message becomes a dead letter.
    """
    return run_client_command(lambda reactor: _list(reactor, cluster, with_system, as_json))


async def _list(reactor: IReactor, cluster: ClusterAccess, with_system: bool, as_json: bool) -> int:
    async with cluster.admin(reactor) as admin:
        groups = await admin.groups()
    rows = [
        (name, _word(each.consume_enable), _word(each.consume_broadcast_enable), *_retries(each))
        for name, each in groups.items()
        if with_system or not (name in PRESET_GROUPS or is_system_group(name))
    ]
    show_rows(_COLUMNS, rows, as_json=as_json, right=_COLUMNS[3:])
    return 0


def _word(flag: bool) -> str:
    return "yes" if flag else "no"


def _retries(group: SubscriptionGroupConfig) -> tuple[int, int]:
    return group.retry_max_times, group.retry_queue_nums


@command("show")
@click.argument("group", type=group_name)
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON.")
@WATCH
@cluster_options
def show_command(cluster: ClusterAccess, group: str, as_json: bool) -> int:
    """Print the settings of GROUP by Apache's names, then its topics, members online and messages behind.

    "behind" counts all messages from the offsets of the group to the ends of the queues, retries included. The exit
    status is 1 if no broker has the group.
    """
    return run_client_command(lambda reactor: _show(reactor, cluster, group, as_json))


async def _show(reactor: IReactor, cluster: ClusterAccess, group: str, as_json: bool) -> int:
    async with cluster.admin(reactor) as admin:
        config = await known_group(admin, group)
        progress = await admin.group_progress(group)
        members = await admin.consumers(group)
    facts: dict[str, str | int | bool | list[str]] = {
        "groupName": group,
        "consumeEnable": config.consume_enable,
        "consumeFromMinEnable": config.consume_from_min_enable,
        "consumeBroadcastEnable": config.consume_broadcast_enable,
        "retryQueueNums": config.retry_queue_nums,
        "retryMaxTimes": config.retry_max_times,
        "brokerId": config.broker_id,
        "whichBrokerWhenConsumeSlowly": config.which_broker_when_consume_slowly,
        "notifyConsumerIdsChangedEnable": config.notify_consumer_ids_changed_enable,
        "topics": sorted({queue.topic for queue in progress}),
        "members": len(members),
        "behind": sum(queue.behind for queue in progress.values()),
    }
    if as_json:
        show_bytes(json_text(facts).encode() + b"\n")
    else:
        show_table(("key", "value"), [(key, _text(value)) for key, value in facts.items()], plain_header=False)
    return 0


def _text(value: str | int | bool | list[str]) -> str:
    if isinstance(value, list):
        return " ".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


async def known_group(admin: AdminEngine, group: str) -> SubscriptionGroupConfig:
    """Return the settings of a group. Raises CommandError if no broker has it."""
    found = (await admin.groups()).get(group)
    if found is None:
        raise CommandError(f"no broker has the group {group}")
    return found


@command("create")
@click.argument("group", type=group_name)
@click.option(
    "--retries",
    type=whole_number(0),
    metavar="N",
    help="Further attempts before a message becomes a dead letter. Default of a new group: 16.",
)
@click.option(
    "--broadcast/--no-broadcast", default=None, help="Permit the broadcasting model, as for a new group, or not."
)
@OF_CLUSTER
@cluster_options
def create_command(
    cluster: ClusterAccess, group: str, retries: int | None, broadcast: bool | None, cluster_name: str | None
) -> int:
    """Create GROUP at each broker. If it exists, it gets the given settings, and keeps all others."""
    return run_client_command(lambda reactor: _create(reactor, cluster, group, retries, broadcast, cluster_name))


async def _create(
    reactor: IReactor,
    cluster: ClusterAccess,
    group: str,
    retries: int | None,
    broadcast: bool | None,
    cluster_name: str | None,
) -> int:
    async with cluster.admin(reactor) as admin:
        await admin.create_group(group, retry_max_times=retries, broadcast=broadcast, cluster=cluster_name)
    return 0


@command("delete")
@click.argument("group", type=group_name)
@click.option("--offsets", "with_offsets", is_flag=True, help="Delete the offsets of the group, too.")
@OF_CLUSTER
@yes("Delete it.")
@cluster_options
def delete_command(cluster: ClusterAccess, group: str, with_offsets: bool, cluster_name: str | None, yes: bool) -> int:
    """Delete GROUP. Its retries and dead letters stay. Without --yes nothing is deleted, and its state is printed."""
    return run_client_command(lambda reactor: _delete(reactor, cluster, group, with_offsets, cluster_name, yes))


async def _delete(
    reactor: IReactor, cluster: ClusterAccess, group: str, with_offsets: bool, cluster_name: str | None, yes: bool
) -> int:
    async with cluster.admin(reactor) as admin:
        await known_group(admin, group)
        progress = await admin.group_progress(group)
        members = len(await admin.consumers(group))
        if yes:
            await admin.delete_group(group, remove_offsets=with_offsets, cluster=cluster_name)
    behind = sum(queue.behind for queue in progress.values())
    with_them = f"{group} and its offsets" if with_offsets else group
    held = f"{with_them}: {counted(members, 'member')} online, {counted(behind, 'message')} behind"
    complain(f"deleted {held}" if yes else f"would delete {held}; with --yes it is deleted")
    return 0


@command("members")
@click.argument("group", type=group_name)
@AS_JSON
@WATCH
@cluster_options
def members_command(cluster: ClusterAccess, group: str, as_json: bool) -> int:
    """Print a line for each member of GROUP that is online: client, address, language and version.

    The exit status is 1 if there is none.
    """
    return run_client_command(lambda reactor: show_online(reactor, cluster, "consumer", group, as_json))
