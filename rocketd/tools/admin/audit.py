"""``rocketd audit``: print the last changes that administrators made at the servers of a cluster.

Every name server and every master is asked with one of rocketd's own requests. Apache's servers do not have it.
"""

from collections.abc import Mapping

import click
import msgspec

from rocketd.client.errors import RocketMQError
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.client.queries.masters import Masters
from rocketd.common.command_line.commands import command
from rocketd.common.command_line.option_types import whole_number
from rocketd.common.command_line.output import complain, show_bytes, show_table
from rocketd.common.event_loop.reactor import IReactor
from rocketd.protocol.audit import admin_changes
from rocketd.protocol.cluster import cluster_info
from rocketd.remoting.bodies.audit import MAX_CHANGES, AdminChange
from rocketd.tools.base.cluster import ClusterAccess, cluster_options, run_client_command
from rocketd.tools.base.json_lines import json_text
from rocketd.tools.base.lacking_requests import reason_of
from rocketd.tools.base.masters import NOT_ALL_ANSWERED
from rocketd.tools.base.rows import AS_JSON
from rocketd.tools.base.watch import WATCH

_COLUMNS = ("time", "server", "address", "account", "action", "subject", "before", "after")
_UNKNOWN = "-"


@command("audit")
@click.option(
    "--count",
    type=whole_number(1, MAX_CHANGES),
    default="100",
    show_default=True,
    metavar="N",
    help="Print at most so many changes of each server.",
)
@AS_JSON
@WATCH
@cluster_options
def audit_command(cluster: ClusterAccess, count: int, as_json: bool) -> int:
    """Print a line for each of the last changes by administrators, the oldest first.

    Its fields are time (UTC), server, address and account of the administrator, action, subject, and the values before
    and after it as JSON. The account is - if the server did not check a signature. The exit status is 3 if not all
    servers answered.
    """
    return run_client_command(lambda reactor: _print(reactor, cluster, count, as_json))


async def _print(reactor: IReactor, cluster: ClusterAccess, count: int, as_json: bool) -> int:
    found: list[tuple[str, AdminChange]] = []
    failed: dict[str, str] = {}
    async with cluster.client(reactor) as client:
        for name, address in (await _servers(client)).items():
            try:
                found += [(name, change) for change in await client.answer_of(address, admin_changes(count))]
            except RocketMQError as error:
                failed[name] = reason_of(error)
    found.sort(key=lambda row: row[1].time)
    rows = [(change.time, name, *_fields(change)) for name, change in found]
    if as_json:
        for name, change in found:
            show_bytes(json_text({"server": name, **msgspec.structs.asdict(change)}).encode() + b"\n")
    else:
        show_table(_COLUMNS, rows)
    for name, reason in failed.items():
        complain(f"nothing from {name}: {reason}")
    return NOT_ALL_ANSWERED if failed else 0


async def _servers(client: ClientInstance) -> Mapping[str, str]:
    """Return the addresses of the name servers and masters, by the names to print. Raises RocketMQError."""
    request = cluster_info()
    brokers = request.result("the name server", await client.ask_name_server(request.code)).broker_addr_table
    masters = Masters.of(brokers.values())
    return {
        **{address: address for address in client.remoting.name_servers.addresses},
        **{name: masters.address(name) for name in masters.addresses},
    }


def _fields(change: AdminChange) -> tuple[str, ...]:
    values = (_UNKNOWN if value is None else json_text(value) for value in (change.before, change.after))
    return change.address, change.account or _UNKNOWN, change.action, change.subject, *values
