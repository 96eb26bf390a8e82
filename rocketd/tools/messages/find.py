"""``rocketd message``: find messages by id or key, and print them.

Counterpart: mqadmin queryMsgById, queryMsgByKey and queryMsgByUniqueKey (Apache).
"""

from datetime import datetime

import click

from rocketd.client.messages.message import ReceivedMessage
from rocketd.common.command_line.commands import command
from rocketd.common.command_line.errors import CommandError
from rocketd.common.command_line.option_types import POSITIVE, topic_name
from rocketd.common.command_line.output import show, show_bytes
from rocketd.common.event_loop.reactor import IReactor
from rocketd.tools.base.cluster import ClusterAccess, cluster_options, run_client_command
from rocketd.tools.messages.message_text import described, json_line, json_of
from rocketd.tools.messages.positions import moment

_AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print each message as one line of JSON.")


@command("show")
@click.argument("topic", type=topic_name)
@click.argument("id")
@_AS_JSON
@cluster_options
def show_command(cluster: ClusterAccess, topic: str, id: str, as_json: bool) -> int:  # noqa: A002 - the name is click's
    """Print the message of TOPIC with an ID: its unique key, or its offset message id (address and physical offset).

    The exit status is 1 if there is none.
    """
    return run_client_command(lambda reactor: _show(reactor, cluster, topic, id, as_json))


async def _show(reactor: IReactor, cluster: ClusterAccess, topic: str, wanted: str, as_json: bool) -> int:
    async with cluster.admin(reactor) as admin:
        found = await admin.view_message(topic, wanted)
    if found is None:
        raise CommandError(f"topic {topic} has no message with the id {wanted}")
    _print(found, as_json)
    return 0


@command("find")
@click.argument("topic", type=topic_name)
@click.argument("key")
@click.option(
    "--since",
    type=moment,
    metavar="TIME",
    help="Only those stored from this time on: 2026-01-31T09:30, or -5m for five minutes ago (s, m, h, d).",
)
@click.option("--until", type=moment, metavar="TIME", help="Only those stored before this time.")
@click.option("--limit", type=POSITIVE, default="32", show_default=True, metavar="N", help="Messages of each broker.")
@_AS_JSON
@cluster_options
def find_command(
    cluster: ClusterAccess,
    topic: str,
    key: str,
    since: datetime | None,
    until: datetime | None,
    limit: int,
    as_json: bool,
) -> int:
    """Print the messages of TOPIC with a KEY, the oldest first. The exit status is 1 if there is none."""
    return run_client_command(lambda reactor: _find(reactor, cluster, topic, key, since, until, limit, as_json))


async def _find(
    reactor: IReactor,
    cluster: ClusterAccess,
    topic: str,
    key: str,
    since: datetime | None,
    until: datetime | None,
    limit: int,
    as_json: bool,
) -> int:
    async with cluster.admin(reactor) as admin:
        found = await admin.query_message(topic, key, limit, since, until)
    if not found:
        raise CommandError(f"topic {topic} has no message with the key {key}")
    for number, message in enumerate(sorted(found, key=lambda each: each.store_timestamp)):
        if number and not as_json:
            show("")
        _print(message, as_json)
    return 0


def _print(message: ReceivedMessage[bytes], as_json: bool) -> None:
    if as_json:
        show_bytes(json_line(message) + b"\n")
        return
    show(*described(json_of(message)), sep="\n")
