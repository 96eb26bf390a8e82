"""``rocketd client``: list the producers and consumers of a group that are online.

Counterpart: mqadmin producerConnection and consumerConnection (Apache).
"""

from typing import Literal

import click

from rocketd.common.command_line.commands import command
from rocketd.common.command_line.errors import CommandError
from rocketd.common.command_line.option_types import group_name
from rocketd.common.event_loop.reactor import IReactor
from rocketd.remoting.wire.versions import version_name
from rocketd.tools.base.cluster import ClusterAccess, cluster_options, run_client_command
from rocketd.tools.base.rows import AS_JSON, show_rows
from rocketd.tools.base.watch import WATCH


@command("consumers")
@click.argument("group", type=group_name)
@AS_JSON
@WATCH
@cluster_options
def consumers_command(cluster: ClusterAccess, group: str, as_json: bool) -> int:
    """Print a line for each consumer of GROUP that is online: client, address, language and version.

    The exit status is 1 if there is none.
    """
    return run_client_command(lambda reactor: show_online(reactor, cluster, "consumer", group, as_json))


@command("producers")
@click.argument("group", type=group_name)
@AS_JSON
@WATCH
@cluster_options
def producers_command(cluster: ClusterAccess, group: str, as_json: bool) -> int:
    """Print a line for each producer of GROUP that is online: client, address, language and version.

    The exit status is 1 if there is none.
    """
    return run_client_command(lambda reactor: show_online(reactor, cluster, "producer", group, as_json))


async def show_online(
    reactor: IReactor, cluster: ClusterAccess, kind: Literal["consumer", "producer"], group: str, as_json: bool
) -> int:
    """Print the clients of a group that are online and return the exit status. Raises CommandError if there is none."""
    async with cluster.admin(reactor) as admin:
        found = await (admin.consumers(group) if kind == "consumer" else admin.producers(group))
    if not found:
        raise CommandError(f"{kind} group {group} has no client online")
    rows = [(each.client_id, each.address, each.language, version_name(each.version)) for each in found]
    show_rows(("client", "address", "language", "version"), rows, as_json=as_json)
    return 0
