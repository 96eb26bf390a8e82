"""``rocketd topic``: list, show, create and delete the topics of a cluster.

Counterpart: mqadmin topicList, topicStatus, updateTopic and deleteTopic (Apache).
"""

import click

from rocketd.client.admin import AdminEngine
from rocketd.common.command_line.commands import command
from rocketd.common.command_line.errors import CommandError
from rocketd.common.command_line.option_types import POSITIVE, topic_name
from rocketd.common.command_line.output import complain, counted
from rocketd.common.event_loop.reactor import IReactor
from rocketd.common.names import DLQ_PREFIX, RETRY_PREFIX, SYSTEM_TOPIC_PREFIX, SYSTEM_TOPICS, reply_topic
from rocketd.remoting.bodies.tables import MessageQueue
from rocketd.tools.base.cluster import ClusterAccess, cluster_options, run_client_command
from rocketd.tools.base.rows import AS_JSON, show_names, show_rows
from rocketd.tools.base.watch import WATCH
from rocketd.tools.messages.message_text import time_text

_COLUMNS = ("broker", "queue", "first", "end", "messages", "oldest")
_OF_CLUSTER = click.option(
    "--cluster", "cluster_name", metavar="NAME", help="Only at the brokers of this cluster. Default: all brokers."
)


def _is_own(topic: str, of_servers: set[str]) -> bool:
    """Return whether a topic is an application's, and neither the system's nor one of retries or dead letters.

    ``of_servers`` are the topics that have the names of brokers and clusters.
    """
    prefixes = (SYSTEM_TOPIC_PREFIX, RETRY_PREFIX, DLQ_PREFIX)
    return not (topic.startswith(prefixes) or topic in SYSTEM_TOPICS or topic in of_servers)


@command("list")
@click.option("--all", "with_system", is_flag=True, help="Also topics of the system, of retries and of dead letters.")
@AS_JSON
@cluster_options
def list_command(cluster: ClusterAccess, with_system: bool, as_json: bool) -> int:
    """Print the name of each topic on a line."""
    return run_client_command(lambda reactor: _list(reactor, cluster, with_system, as_json))


async def _list(reactor: IReactor, cluster: ClusterAccess, with_system: bool, as_json: bool) -> int:
    async with cluster.admin(reactor) as admin:
        brokers = await admin.brokers()
        clusters = {broker.cluster for broker in brokers}
        names = {broker.broker_name for broker in brokers} | clusters | set(map(reply_topic, clusters))
        topics = [topic for topic in await admin.topics() if with_system or _is_own(topic, names)]
    show_names("topic", topics, as_json=as_json)
    return 0


@command("show")
@click.argument("topic", type=topic_name)
@AS_JSON
@WATCH
@cluster_options
def show_command(cluster: ClusterAccess, topic: str, as_json: bool) -> int:
    """Print a line for each readable queue of TOPIC: broker, queue, first, end, messages and oldest.

    "first" is the lowest offset, and "end" the offset of the next message. "oldest" is the time of storing of the first
    message in UTC, or - without one. In a file or a pipe the fields are separated by tabs.
    """
    return run_client_command(lambda reactor: _show(reactor, cluster, topic, as_json))


async def _show(reactor: IReactor, cluster: ClusterAccess, topic: str, as_json: bool) -> int:
    async with cluster.admin(reactor) as admin:
        queues = sorted(await admin.fetch_subscribe_queues(topic), key=lambda q: (q.broker_name, q.queue_id))
        rows = [await _row(admin, queue) for queue in queues]
    show_rows(_COLUMNS, rows, as_json=as_json, right=_COLUMNS[1:5])
    return 0


async def _row(admin: AdminEngine, queue: MessageQueue) -> tuple[str | int, ...]:
    first, end = await admin.min_offset(queue), await admin.max_offset(queue)
    oldest = await admin.earliest_message_time(queue) if end > first else None
    moment = "-" if oldest is None else time_text(int(oldest.timestamp() * 1000))
    return queue.broker_name, queue.queue_id, first, end, end - first, moment


@command("create")
@click.argument("topic", type=topic_name)
@click.option(
    "--queues", type=POSITIVE, default="4", show_default=True, metavar="N", help="Number of queues at each broker."
)
@_OF_CLUSTER
@cluster_options
def create_command(cluster: ClusterAccess, topic: str, queues: int, cluster_name: str | None) -> int:
    """Create TOPIC at each broker. If it exists, it gets this number of queues."""
    return run_client_command(lambda reactor: _create(reactor, cluster, topic, queues, cluster_name))


async def _create(reactor: IReactor, cluster: ClusterAccess, topic: str, queues: int, cluster_name: str | None) -> int:
    async with cluster.admin(reactor) as admin:
        await admin.create_topic(topic, queues=queues, cluster=cluster_name)
    return 0


@command("delete")
@click.argument("topic", type=topic_name)
@_OF_CLUSTER
@click.option("--yes", is_flag=True, help="Delete it. Default: print what would be deleted.")
@cluster_options
def delete_command(cluster: ClusterAccess, topic: str, cluster_name: str | None, yes: bool) -> int:
    """Delete TOPIC and its messages. Without --yes nothing is deleted, and the number of messages is printed.

    Nothing brings the messages back.
    """
    return run_client_command(lambda reactor: _delete(reactor, cluster, topic, cluster_name, yes))


async def _delete(reactor: IReactor, cluster: ClusterAccess, topic: str, cluster_name: str | None, yes: bool) -> int:
    async with cluster.admin(reactor) as admin:
        members = {b.broker_name for b in await admin.brokers() if cluster_name in (None, b.cluster)}
        queues = [q for q in await admin.fetch_subscribe_queues(topic) if q.broker_name in members]
        if members.isdisjoint(broker.broker_name for broker in (await admin.instance.routes.route(topic)).broker_datas):
            raise CommandError(f"no broker of cluster {cluster_name} has the topic {topic}")
        messages = 0
        for queue in queues:
            messages += await admin.max_offset(queue) - await admin.min_offset(queue)
        held = f"{topic} with {counted(messages, 'message')} in {counted(len(queues), 'queue')}" if queues else "it"
        found = "" if queues else f"topic {topic} has no readable queue; "
        if yes:
            await admin.delete_topic(topic, cluster=cluster_name)
    complain(f"{found}deleted {held}" if yes else f"{found}would delete {held}; with --yes it is deleted")
    return 0
