"""``rocketd groups``: print the problems within consumer groups.

Every master of the cluster is asked with one of rocketd's own requests.
"""

import click

from rocketd.client.errors import check_response
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.common.command_line.commands import command
from rocketd.common.command_line.option_types import group_name
from rocketd.common.event_loop.reactor import IReactor
from rocketd.remoting.bodies.groups import GroupProblem, GroupProblems
from rocketd.remoting.bodies.tables import SubscriptionGroupWrapper
from rocketd.remoting.headers.admin import GroupProblemsRequestHeader
from rocketd.remoting.wire.codes import RequestCode
from rocketd.tools.base.cluster import ClusterAccess, cluster_options, run_client_command
from rocketd.tools.base.masters import NOT_ALL_ANSWERED, ask_masters
from rocketd.tools.base.rows import AS_JSON, show_rows
from rocketd.tools.base.watch import WATCH

_COLUMNS = ("broker", "group", "kind", "problem")

PROBLEMS_FOUND = 1
"""Exit status if there are problems."""


@command("groups")
@click.argument("group", type=group_name, required=False)
@AS_JSON
@WATCH
@cluster_options
def groups_command(cluster: ClusterAccess, group: str | None, as_json: bool) -> int:
    """Print a line for each problem of the groups that are online, or of one group.

    Its fields are broker, group, kind and problem. In a file or a pipe they are separated by tabs. The problems are
    different subscriptions within a group, two clients with the same id, queues without a reader, and groups started at
    the first message in spite of CONSUME_FROM_LAST_OFFSET.

    The exit status is 0 without problems. It is 1 if there are problems, or if no broker knows the group. It is 2
    for a wrong command line, and 3 if not all masters answered, even if the others found none.
    """
    return run_client_command(lambda reactor: print_problems(reactor, cluster, group, as_json=as_json))


async def print_problems(reactor: IReactor, cluster: ClusterAccess, group: str | None, *, as_json: bool = False) -> int:
    """Print the problems known to the masters and return the exit status. Raises CommandError and RocketMQError."""
    async with cluster.client(reactor) as client:
        answers = await ask_masters(client, lambda address: _ask(client, address, group))
    rows = [
        (name, problem.group, problem.kind, problem.text)
        for name, problems in answers.found.items()
        for problem in problems or ()
    ]
    show_rows(_COLUMNS, rows, as_json=as_json, plain_header=False)
    answers.complain()
    if all(problems is None for problems in answers.found.values()):
        raise answers.nobody(f"knows the group {group}")
    if answers.failed:
        return NOT_ALL_ANSWERED
    return PROBLEMS_FOUND if rows else 0


async def _ask(client: ClientInstance, address: str, group: str | None) -> list[GroupProblem] | None:
    """Return the problems known to a broker, or None if it has no such group."""
    header = GroupProblemsRequestHeader(consumer_group=group)
    response = await client.ask(address, RequestCode.GET_GROUP_PROBLEMS, header)
    problems = GroupProblems.decode(check_response(address, response).body).problems
    if problems or group is None:
        return problems
    response = await client.ask(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    known = SubscriptionGroupWrapper.decode(check_response(address, response).body).subscription_group_table
    return problems if group in known else None
