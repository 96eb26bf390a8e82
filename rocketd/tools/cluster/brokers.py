"""``rocketd broker``: list the brokers of a cluster, and print all that one of them tells about itself.

Counterpart: mqadmin clusterList and brokerStatus (Apache).
"""

import click

from rocketd.client.admin import AdminEngine
from rocketd.client.errors import RocketMQError
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.common.command_line.commands import command
from rocketd.common.command_line.errors import CommandError
from rocketd.common.command_line.output import complain, show_bytes, show_table
from rocketd.common.event_loop.reactor import IReactor
from rocketd.protocol.cluster import MASTER, runtime_info
from rocketd.tools.base.cluster import ClusterAccess, cluster_options, run_client_command
from rocketd.tools.base.json_lines import json_text
from rocketd.tools.base.masters import NOT_ALL_ANSWERED
from rocketd.tools.base.rows import AS_JSON, show_rows
from rocketd.tools.base.watch import WATCH

_COLUMNS = ("cluster", "broker", "id", "address", "version", "in/s", "out/s", "disk")
_UNKNOWN = "-"


@command("list")
@AS_JSON
@WATCH
@cluster_options
def list_command(cluster: ClusterAccess, as_json: bool) -> int:
    """Print a line for each registered broker: cluster, broker, id, address, version, in/s, out/s and disk.

    The id of a master is 0. "in/s" and "out/s" are messages per second within the last ten seconds, "disk" is how full
    the disk of the log is. A - is unknown. The exit status is 3 if not all brokers answered.
    """
    return run_client_command(lambda reactor: _list(reactor, cluster, as_json))


async def _list(reactor: IReactor, cluster: ClusterAccess, as_json: bool) -> int:
    failed: dict[str, str] = {}
    rows: list[tuple[str, ...]] = []
    async with cluster.admin(reactor) as admin:
        for broker in await admin.brokers():
            for broker_id, address in sorted(broker.broker_addrs.items()):
                state: dict[str, str] = {}
                try:
                    state = await state_of(admin.instance, address)
                except RocketMQError as error:
                    failed[f"{broker.broker_name}:{broker_id}"] = str(error)
                rows.append((broker.cluster, broker.broker_name, str(broker_id), address, *_load(state)))
    show_rows(_COLUMNS, rows, as_json=as_json, right=("id", *_COLUMNS[5:]))
    for name, reason in failed.items():
        complain(f"nothing from {name}: {reason}")
    if not rows:
        raise CommandError("no broker is registered at the name servers", NOT_ALL_ANSWERED)
    return NOT_ALL_ANSWERED if failed else 0


@command("show")
@click.argument("broker")
@click.option("--id", "broker_id", type=int, default=MASTER, show_default=True, metavar="N", help="0: the master.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON.")
@cluster_options
def show_command(cluster: ClusterAccess, broker: str, broker_id: int, as_json: bool) -> int:
    """Print the state of BROKER, a name or an address: a line for each key and its value, as mqadmin brokerStatus."""
    return run_client_command(lambda reactor: _show(reactor, cluster, broker, broker_id, as_json))


async def _show(reactor: IReactor, cluster: ClusterAccess, broker: str, broker_id: int, as_json: bool) -> int:
    async with cluster.admin(reactor) as admin:
        address = broker if ":" in broker else await _address(admin, broker, broker_id)
        state = await state_of(admin.instance, address)
    if as_json:
        show_bytes(json_text(dict(sorted(state.items()))).encode() + b"\n")
    else:
        show_table(("key", "value"), sorted(state.items()), plain_header=False)
    return 0


async def _address(admin: AdminEngine, name: str, broker_id: int) -> str:
    brokers = {broker.broker_name: broker for broker in await admin.brokers()}
    if name not in brokers:
        raise CommandError(f"no broker {name} is registered; known are {', '.join(sorted(brokers)) or 'none'}")
    address = brokers[name].broker_addrs.get(broker_id)
    if address is None:
        raise CommandError(f"broker {name} has no member with the id {broker_id}")
    return address


async def state_of(client: ClientInstance, address: str) -> dict[str, str]:
    """Return the state of a broker, as mqadmin's brokerStatus shows it. Raises RocketMQError."""
    request = runtime_info()
    return request.result(address, await client.ask(address, request.code, request.header))


def _load(state: dict[str, str]) -> tuple[str, ...]:
    def rate(key: str) -> str:
        # Three averages, of ten seconds, a minute and ten minutes.
        first = state.get(key, "").split(" ")[0]
        try:
            return f"{float(first):.1f}"
        except ValueError:
            return _UNKNOWN

    try:
        disk = f"{float(state.get('commitLogDiskRatio', '')) * 100:.0f}%"
    except ValueError:
        disk = _UNKNOWN
    return state.get("brokerVersionDesc") or _UNKNOWN, rate("putTps"), rate("getTransferedTps"), disk
