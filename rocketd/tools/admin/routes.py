"""``rocketd topic route``, ``permission`` and ``groups``: brokers, permission and consumer groups of a topic.

Counterpart: mqadmin topicRoute, updateTopicPerm and the groups of topicStatus (Apache).
"""

import click

from rocketd.common.command_line.commands import command
from rocketd.common.command_line.errors import CommandError
from rocketd.common.command_line.option_types import one_of, topic_name
from rocketd.common.command_line.output import complain
from rocketd.common.event_loop.reactor import IReactor
from rocketd.common.permission import is_readable, is_writable
from rocketd.protocol.cluster import MASTER
from rocketd.remoting.bodies.tables import TopicRouteData
from rocketd.tools.admin.changes import refusals_of, status_of
from rocketd.tools.admin.options import yes
from rocketd.tools.base.cluster import ClusterAccess, cluster_options, run_client_command
from rocketd.tools.base.rows import AS_JSON, show_names, show_rows

_COLUMNS = ("broker", "cluster", "address", "read queues", "write queues", "permission")


@command("route")
@click.argument("topic", type=topic_name)
@AS_JSON
@cluster_options
def route_command(cluster: ClusterAccess, topic: str, as_json: bool) -> int:
    """Print a line for each broker of TOPIC: its name, cluster, address, numbers of queues and permission.

    The permission is rw, r or w. A - is an unknown address.
    """
    return run_client_command(lambda reactor: _route(reactor, cluster, topic, as_json))


async def _route(reactor: IReactor, cluster: ClusterAccess, topic: str, as_json: bool) -> int:
    async with cluster.admin(reactor) as admin:
        route = await admin.topic_route(topic)
    brokers = {broker.broker_name: broker for broker in route.broker_datas}
    rows: list[tuple[str | int, ...]] = []
    for queues in sorted(route.queue_datas, key=lambda each: each.broker_name):
        broker = brokers.get(queues.broker_name)
        place = ("-", "-") if broker is None else (broker.cluster, broker.broker_addrs.get(MASTER, "-"))
        numbers = (queues.read_queue_nums, queues.write_queue_nums)
        rows.append((queues.broker_name, *place, *numbers, _word(queues.perm)))
    show_rows(_COLUMNS, rows, as_json=as_json, right=_COLUMNS[3:5])
    return 0


def _word(permission: int) -> str:
    return ("r" if is_readable(permission) else "") + ("w" if is_writable(permission) else "") or "-"


@command("permission")
@click.argument("topic", type=topic_name)
@click.argument("permission", type=one_of("rw", "r", "w"), metavar="rw|r|w")
@yes("Change it.")
@AS_JSON
@cluster_options
def permission_command(cluster: ClusterAccess, topic: str, permission: str, yes: bool, as_json: bool) -> int:
    """Permit to read and write TOPIC, or only one of them, at all its brokers, and print a line for each broker.

    Without --yes nothing is changed. The numbers of queues stay. The exit status is 1 if a broker refuses. The others are
    changed.
    """
    return run_client_command(lambda reactor: _permit(reactor, cluster, topic, permission, yes, as_json))


async def _permit(
    reactor: IReactor, cluster: ClusterAccess, topic: str, permission: str, yes: bool, as_json: bool
) -> int:
    async with cluster.admin(reactor) as admin:
        before = _permissions(await admin.topic_route(topic))
        after = dict.fromkeys(before, permission)
        if yes:
            change = admin.set_topic_permission(topic, read="r" in permission, write="w" in permission)
            refusals = await refusals_of(change)
            after |= _permissions(await admin.topic_route(topic))
    rows = [(broker, before[broker], after[broker]) for broker in before]
    show_rows(("broker", "before", "after"), rows, as_json=as_json)
    if yes:
        return status_of(refusals, f"changed topic {topic}")
    complain(f"would change topic {topic}; with --yes it is changed")
    return 0


def _permissions(route: TopicRouteData) -> dict[str, str]:
    return {queues.broker_name: _word(queues.perm) for queues in route.queue_datas}


@command("groups")
@click.argument("topic", type=topic_name)
@AS_JSON
@cluster_options
def groups_command(cluster: ClusterAccess, topic: str, as_json: bool) -> int:
    """Print the name of each consumer group that reads TOPIC or has offsets in it. The exit status is 1 without one."""
    return run_client_command(lambda reactor: _groups(reactor, cluster, topic, as_json))


async def _groups(reactor: IReactor, cluster: ClusterAccess, topic: str, as_json: bool) -> int:
    async with cluster.admin(reactor) as admin:
        groups = await admin.topic_groups(topic)
    if not groups:
        raise CommandError(f"topic {topic} has no consumer group")
    show_names("group", groups, as_json=as_json)
    return 0
