"""``rocketd lag``: print how far a consumer group is behind.

Counterpart: mqadmin consumerProgress -g (Apache). Unlike it, this command counts only messages wanted by the group, and
works for groups without a member online. Every master of the cluster is asked with one of rocketd's own requests.
"""

from collections.abc import Iterator

import click

from rocketd.client.errors import check_response
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.common.command_line.commands import command
from rocketd.common.command_line.option_types import group_name, topic_name
from rocketd.common.event_loop.reactor import IReactor
from rocketd.remoting.bodies.lag import ConsumerLag
from rocketd.remoting.headers.admin import ConsumerLagRequestHeader
from rocketd.remoting.wire.codes import RequestCode, ResponseCode
from rocketd.tools.base.cluster import ClusterAccess, cluster_options, run_client_command
from rocketd.tools.base.masters import NOT_ALL_ANSWERED, ask_masters
from rocketd.tools.base.rows import AS_JSON, show_rows
from rocketd.tools.base.watch import WATCH

COUNT_TIMEOUT_MS = 60_000
"""Longest time for a broker to count."""

_COLUMNS = ("broker", "topic", "queue", "behind", "seconds", "consumed", "end")
_Row = tuple[str | int | float, ...]


@command("lag")
@click.argument("group", type=group_name)
@click.option(
    "-t", "--topic", type=topic_name, metavar="TOPIC", help="Topic to print. Default: all topics of the group."
)
@AS_JSON
@WATCH
@cluster_options
def lag_command(cluster: ClusterAccess, group: str, topic: str | None, as_json: bool) -> int:
    """Print a line for each queue of the group, and one for their sum.

    The fields of a line are broker, topic, queue, behind, seconds, consumed and end. "behind" is the number of
    unconsumed messages selected by the group. "seconds" is the age of the first of them. "consumed" is the offset of the
    group, and "end" the end of the queue. A number with ~ is an upper limit. A - is an offset never stored. In a file or
    a pipe the fields are separated by tabs.

    The exit status is 0 if all masters answered, and 1 if none knows the group or the topic. It is 2 for a wrong command
    line, and 3 if not all masters answered, even if the group is known.
    """
    return run_client_command(lambda reactor: print_lag(reactor, cluster, group, topic, as_json=as_json))


async def print_lag(
    reactor: IReactor, cluster: ClusterAccess, group: str, topic: str | None, *, as_json: bool = False
) -> int:
    """Print the lag on all masters and return the exit status. Raises CommandError and RocketMQError."""
    async with cluster.client(reactor) as client:
        answers = await ask_masters(client, lambda address: _ask(client, address, group, topic))
    found = {name: lag for name, lag in answers.found.items() if lag is not None}
    if found:
        show_rows(_COLUMNS, [*_queue_rows(found), _sum_row(found)], as_json=as_json, right=_COLUMNS[2:])
    answers.complain()
    if not found:
        raise answers.nobody(f"knows the group {group}" if topic is None else f"has the topic {topic}")
    return NOT_ALL_ANSWERED if answers.failed else 0


async def _ask(client: ClientInstance, address: str, group: str, topic: str | None) -> ConsumerLag | None:
    """Return the lag on a broker, or None if it does not know the group, or the topic if one is given."""
    header = ConsumerLagRequestHeader(consumer_group=group, topic=topic)
    response = await client.ask(address, RequestCode.GET_CONSUMER_LAG, header, timeout_ms=COUNT_TIMEOUT_MS)
    if response.code in (ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, ResponseCode.TOPIC_NOT_EXIST):
        return None
    return ConsumerLag.decode(check_response(address, response).body)


def _queue_rows(found: dict[str, ConsumerLag]) -> Iterator[_Row]:
    for broker, lag in found.items():
        for queue in lag.queues:
            yield (
                broker,
                queue.topic,
                queue.queue_id,
                queue.messages if queue.exact else f"~{queue.messages}",
                round(queue.delay_millis / 1000, 1),
                "-" if queue.consumer_offset < 0 else queue.consumer_offset,
                queue.max_offset,
            )


def _sum_row(found: dict[str, ConsumerLag]) -> _Row:
    lags = found.values()
    exact = all(queue.exact for lag in lags for queue in lag.queues)
    behind = sum(lag.total_messages for lag in lags)
    seconds = max(lag.max_delay_millis for lag in lags) / 1000
    state = "online" if any(lag.online for lag in lags) else "offline"
    return "all", state, "", behind if exact else f"~{behind}", round(seconds, 1), "", ""
