"""``rocketd kv``: read and change the key-value table of the name servers.

Counterpart: mqadmin updateKvConfig, deleteKvConfig and updateOrderConf (Apache).
"""

import click

from rocketd.client.admin import AdminEngine
from rocketd.common.command_line.commands import command
from rocketd.common.command_line.errors import CommandError
from rocketd.common.command_line.output import complain, show_line
from rocketd.common.event_loop.reactor import IReactor
from rocketd.tools.admin.options import yes
from rocketd.tools.base.cluster import ClusterAccess, cluster_options, run_client_command
from rocketd.tools.base.rows import AS_JSON, show_rows


@command("list")
@click.argument("namespace")
@AS_JSON
@cluster_options
def list_command(cluster: ClusterAccess, namespace: str, as_json: bool) -> int:
    """Print a line for each key of NAMESPACE: key and value. The exit status is 1 if there is none."""
    return run_client_command(lambda reactor: _list(reactor, cluster, namespace, as_json))


async def _list(reactor: IReactor, cluster: ClusterAccess, namespace: str, as_json: bool) -> int:
    async with cluster.admin(reactor) as admin:
        values = await admin.kv_values(namespace)
    if not values:
        raise CommandError(f"namespace {namespace} has no key")
    show_rows(("key", "value"), list(values.items()), as_json=as_json)
    return 0


@command("get")
@click.argument("namespace")
@click.argument("key")
@cluster_options
def get_command(cluster: ClusterAccess, namespace: str, key: str) -> int:
    """Print the value of KEY in NAMESPACE. The exit status is 1 if there is none."""
    return run_client_command(lambda reactor: _get(reactor, cluster, namespace, key))


async def _get(reactor: IReactor, cluster: ClusterAccess, namespace: str, key: str) -> int:
    async with cluster.admin(reactor) as admin:
        show_line(await _value(admin, namespace, key))
    return 0


async def _value(admin: AdminEngine, namespace: str, key: str) -> str:
    values = await admin.kv_values(namespace)
    if key not in values:
        raise CommandError(f"namespace {namespace} has no key {key}")
    return values[key]


@command("put")
@click.argument("namespace")
@click.argument("key")
@click.argument("value")
@cluster_options
def put_command(cluster: ClusterAccess, namespace: str, key: str, value: str) -> int:
    """Set KEY in NAMESPACE to VALUE at all name servers, and print the value before."""
    return run_client_command(lambda reactor: _put(reactor, cluster, namespace, key, value))


async def _put(reactor: IReactor, cluster: ClusterAccess, namespace: str, key: str, value: str) -> int:
    async with cluster.admin(reactor) as admin:
        before = (await admin.kv_values(namespace)).get(key)
        await admin.put_kv(namespace, key, value)
    complain(f"set {namespace}/{key} to {value}; before: {'no value' if before is None else before}")
    return 0


@command("delete")
@click.argument("namespace")
@click.argument("key")
@yes("Delete it.")
@cluster_options
def delete_command(cluster: ClusterAccess, namespace: str, key: str, yes: bool) -> int:
    """Delete KEY of NAMESPACE at all name servers. Without --yes nothing is deleted."""
    return run_client_command(lambda reactor: _delete(reactor, cluster, namespace, key, yes))


async def _delete(reactor: IReactor, cluster: ClusterAccess, namespace: str, key: str, yes: bool) -> int:
    async with cluster.admin(reactor) as admin:
        value = await _value(admin, namespace, key)
        if yes:
            await admin.delete_kv(namespace, key)
    held = f"{namespace}/{key} with the value {value}"
    complain(f"deleted {held}" if yes else f"would delete {held}; with --yes it is deleted")
    return 0
