"""``rocketd cluster``: list the clusters, and show the brokers of one with their numbers of messages.

Counterpart: mqadmin clusterList -m (Apache).
"""

from collections.abc import Mapping

import click

from rocketd.client.errors import RocketMQError
from rocketd.common.command_line.commands import command
from rocketd.common.command_line.errors import CommandError
from rocketd.common.command_line.output import complain
from rocketd.common.event_loop.reactor import IReactor
from rocketd.protocol.cluster import MASTER
from rocketd.tools.base.cluster import ClusterAccess, cluster_options, run_client_command
from rocketd.tools.base.masters import NOT_ALL_ANSWERED
from rocketd.tools.base.rows import AS_JSON, show_rows
from rocketd.tools.base.watch import WATCH
from rocketd.tools.cluster.brokers import state_of

_UNKNOWN = "-"
_LISTED = ("cluster", "brokers", "masters", "slaves")
_COUNTS = ("in today", "out today", "in yesterday", "out yesterday")
_SHOWN = ("broker", "id", "address", "version", *_COUNTS)


@command("list")
@AS_JSON
@cluster_options
def list_command(cluster: ClusterAccess, as_json: bool) -> int:
    """Print a line for each cluster: cluster, and its numbers of broker names, masters and slaves."""
    return run_client_command(lambda reactor: _list(reactor, cluster, as_json))


async def _list(reactor: IReactor, cluster: ClusterAccess, as_json: bool) -> int:
    async with cluster.admin(reactor) as admin:
        brokers = await admin.brokers()
    if not brokers:
        raise CommandError("no broker is registered at the name servers", NOT_ALL_ANSWERED)
    rows = []
    for name in sorted({broker.cluster for broker in brokers}):
        members = [broker.broker_addrs for broker in brokers if broker.cluster == name]
        masters = sum(MASTER in addresses for addresses in members)
        rows.append((name, len(members), masters, sum(map(len, members)) - masters))
    show_rows(_LISTED, rows, as_json=as_json, right=_LISTED[1:])
    return 0


@command("show")
@click.argument("name", metavar="CLUSTER")
@AS_JSON
@WATCH
@cluster_options
def show_command(cluster: ClusterAccess, name: str, as_json: bool) -> int:
    """Print a line for each broker of CLUSTER: broker, id, address, version, and its numbers of messages.

    The numbers are those of today and yesterday, in and out. A - is unknown. The exit status is 3 if not all brokers
    answered.
    """
    return run_client_command(lambda reactor: _show(reactor, cluster, name, as_json))


async def _show(reactor: IReactor, cluster: ClusterAccess, name: str, as_json: bool) -> int:
    failed: dict[str, str] = {}
    rows: list[tuple[str | int, ...]] = []
    async with cluster.admin(reactor) as admin:
        brokers = await admin.brokers()
        for broker in brokers:
            for broker_id, address in sorted(broker.broker_addrs.items()) if broker.cluster == name else ():
                state: dict[str, str] = {}
                try:
                    state = await state_of(admin.instance, address)
                except RocketMQError as error:
                    failed[f"{broker.broker_name}:{broker_id}"] = str(error)
                rows.append((broker.broker_name, broker_id, address, *_counts(state)))
    if not rows:
        known = ", ".join(sorted({broker.cluster for broker in brokers})) or "none"
        raise CommandError(f"no broker of cluster {name} is registered; known are {known}")
    show_rows(_SHOWN, rows, as_json=as_json, right=("id", *_COUNTS))
    for member, reason in failed.items():
        complain(f"nothing from {member}: {reason}")
    return NOT_ALL_ANSWERED if failed else 0


def _counts(state: Mapping[str, str]) -> tuple[str | int, ...]:
    def between(key: str, begin: str, end: str) -> str | int:
        try:
            return int(state[f"{key}{end}"]) - int(state[f"{key}{begin}"])
        except (KeyError, ValueError):
            return _UNKNOWN

    days = (("TodayMorning", "TodayNow"), ("YesterdayMorning", "TodayMorning"))
    counts = [between(key, *day) for day in days for key in ("msgPutTotal", "msgGetTotal")]
    return state.get("brokerVersionDesc") or _UNKNOWN, *counts
