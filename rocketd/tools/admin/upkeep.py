"""``rocketd broker drain``, ``undrain`` and ``clean``: keep producers away from a broker, and remove what has expired.

Counterpart: mqadmin wipeWritePerm, addWritePerm, cleanUnusedTopic and cleanExpiredCQ (Apache).
"""

import click

from rocketd.client.errors import RocketMQError
from rocketd.client.queries.inspection import master_of, register_closed_topics
from rocketd.common.command_line.commands import command
from rocketd.common.command_line.errors import CommandError
from rocketd.common.command_line.output import complain
from rocketd.common.event_loop.reactor import IReactor
from rocketd.tools.admin.accounts import known_brokers
from rocketd.tools.admin.changes import refusals_of, status_of
from rocketd.tools.admin.options import OF_CLUSTER, yes
from rocketd.tools.base.cluster import ClusterAccess, cluster_options, run_client_command
from rocketd.tools.base.masters import NOT_ALL_ANSWERED, answers_of


@command("drain")
@click.argument("broker")
@cluster_options
def drain_command(cluster: ClusterAccess, broker: str) -> int:
    """Let the name servers offer no queue of BROKER to producers, for example before its stop.

    Producers follow within half a minute, and consumers read on. It lasts until "undrain", or until a topic of the broker
    is created or changed.
    """
    return run_client_command(lambda reactor: _set_writable(reactor, cluster, broker, False))


@command("undrain")
@click.argument("broker")
@cluster_options
def undrain_command(cluster: ClusterAccess, broker: str) -> int:
    """Let the name servers offer the queues of BROKER to producers again.

    Topics that are closed by "rocketd topic permission" stay closed: the broker registers them again.
    """
    return run_client_command(lambda reactor: _set_writable(reactor, cluster, broker, True))


async def _set_writable(reactor: IReactor, cluster: ClusterAccess, broker: str, writable: bool) -> int:
    async with cluster.admin(reactor) as admin:
        known = [each.broker_name for each in await admin.brokers()]
        if broker not in known:
            raise CommandError(f"no broker {broker} is registered; known are {', '.join(known) or 'none'}")
        change = admin.add_write_permission if writable else admin.wipe_write_permission
        failure: RocketMQError | None = None
        topics = 0
        try:
            topics = await change(broker)
        except RocketMQError as error:
            failure = error
        # Also after an error: the other name servers have opened all topics.
        closed, opened = await register_closed_topics(admin.instance, broker) if writable else ([], {})
    if closed:
        complain(f"closed as before: {', '.join(closed)}")
    for topic, refusal in opened.items():
        complain(f"topic {topic} was closed, and is open now: {refusal}")
    if failure is not None:
        raise failure
    complain(f"{topics} topics of broker {broker} are {'open to' if writable else 'closed for'} producers")
    return 1 if opened else 0


@command("clean")
@click.option("--topics", is_flag=True, help="Delete the queues of topics that no longer exist.")
@click.option("--queues", is_flag=True, help="Delete the files of queues whose messages have expired.")
@OF_CLUSTER
@yes("Delete them.")
@cluster_options
def clean_command(cluster: ClusterAccess, topics: bool, queues: bool, cluster_name: str | None, yes: bool) -> int:
    """Let each master delete queues that are not needed any more. Without --yes nothing is deleted."""
    if not (topics or queues):
        raise click.UsageError("--topics, --queues or both are needed")
    return run_client_command(lambda reactor: _clean(reactor, cluster, topics, queues, cluster_name, yes))


async def _clean(
    reactor: IReactor, cluster: ClusterAccess, topics: bool, queues: bool, cluster_name: str | None, yes: bool
) -> int:
    async with cluster.admin(reactor) as admin:
        brokers = await known_brokers(admin, cluster_name)
        masters = await answers_of(brokers, lambda broker: master_of(admin.instance, broker))
        refusals: list[RocketMQError] = []
        if yes and topics:
            refusals += await refusals_of(admin.clean_unused_topics(cluster=cluster_name))
        if yes and queues:
            refusals += await refusals_of(admin.clean_expired_queues(cluster=cluster_name))
    chosen = [*(["former topics"] if topics else []), *(["expired messages"] if queues else [])]
    held = f"the queues of {' and of '.join(chosen)} at {', '.join(masters.found)}"
    if yes:
        return status_of(refusals, f"deleted {held}")
    masters.complain()
    complain(f"would delete {held}; with --yes they are deleted")
    return NOT_ALL_ANSWERED if masters.failed else 0
