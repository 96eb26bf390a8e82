"""``rocketd acl``: list, change and delete the accounts of brokers, and their white addresses. Secrets are never printed.

Counterpart: mqadmin getAclConfig, updateAclConfig, deleteAclConfig and updateGlobalWhiteAddr (Apache). Unlike mqadmin, a
secret does not stand on the command line, where other users of the machine see it.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import click

from rocketd.acl.permissions import PERMISSIONS
from rocketd.client.admin import AdminEngine
from rocketd.client.queries.accounts import BrokerAccount
from rocketd.common.command_line.commands import command
from rocketd.common.command_line.errors import CommandError
from rocketd.common.command_line.option_types import key_value
from rocketd.common.command_line.output import complain
from rocketd.common.event_loop.reactor import IReactor
from rocketd.tools.admin.changes import refusals_of, status_of
from rocketd.tools.admin.options import OF_CLUSTER, yes
from rocketd.tools.base.cluster import ClusterAccess, cluster_options, run_client_command
from rocketd.tools.base.masters import NOT_ALL_ANSWERED, Answers, answers_of
from rocketd.tools.base.rows import AS_JSON, show_rows

T = TypeVar("T")

_NONE: Final = "-"
_FIELDS: Final[dict[str, Callable[[BrokerAccount], str]]] = {
    "admin": lambda account: _NONE if account.admin is None else "yes" if account.admin else "no",
    "white address": lambda account: account.white_remote_address or _NONE,
    "default topic": lambda account: account.default_topic_perm or _NONE,
    "default group": lambda account: account.default_group_perm or _NONE,
    "topics": lambda account: " ".join(account.topic_perms or ()) or _NONE,
    "groups": lambda account: " ".join(account.group_perms or ()) or _NONE,
}
_LONGEST_SECRET: Final = 4096


@command("list")
@OF_CLUSTER
@AS_JSON
@cluster_options
def list_command(cluster: ClusterAccess, cluster_name: str | None, as_json: bool) -> int:
    """Print a line for each account of each master: its name and rights. Secrets are not printed."""
    return run_client_command(lambda reactor: _list(reactor, cluster, cluster_name, as_json))


async def _list(reactor: IReactor, cluster: ClusterAccess, cluster_name: str | None, as_json: bool) -> int:
    async with cluster.admin(reactor) as admin:
        answers = await answers_of(await known_brokers(admin, cluster_name), admin.accounts)
    rows = [(broker, each.access_key, *_row(each)) for broker, accounts in answers.found.items() for each in accounts]
    show_rows(("broker", "account", *_FIELDS), rows, as_json=as_json)
    return _status(answers)


def _status(answers: Answers[T]) -> int:
    answers.complain()
    return NOT_ALL_ANSWERED if answers.failed else 0


def _row(account: BrokerAccount) -> list[str]:
    return [text(account) for text in _FIELDS.values()]


async def known_brokers(admin: AdminEngine, cluster: str | None) -> list[str]:
    """Return the names of the brokers, also of those without a master. Raises CommandError if there is none."""
    found = [broker.broker_name for broker in await admin.brokers() if cluster in (None, broker.cluster)]
    if not found:
        raise CommandError(
            "no broker is registered" if cluster is None else f"no broker of cluster {cluster} is registered"
        )
    return found


def permission(text: str) -> str:
    """Read a permission."""
    if text.upper() not in PERMISSIONS:
        raise click.BadParameter(f"{text!r}: accepted is DENY, PUB, SUB or PUB|SUB")
    return text.upper()


def resource_permission(text: str) -> str:
    """Read NAME=PERMISSION."""
    name, value = key_value(text)
    return f"{name}={permission(value)}"


def _secret(file: str | None) -> str | None:
    """Return the secret in a file, without the newline at its end. Raises CommandError."""
    if file is None:
        return None
    try:
        with sys.stdin.buffer if file == "-" else open(file, "rb") as source:
            text = source.read(_LONGEST_SECRET + 1).decode().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"--secret-file {file}: {getattr(error, 'strerror', None) or 'it is not UTF-8'}") from None
    if not text or len(text) > _LONGEST_SECRET or not text.isprintable():
        raise CommandError(f"--secret-file {file}: accepted is a line of up to {_LONGEST_SECRET} characters")
    return text


@command("put")
@click.argument("account")
@click.option(
    "--secret-file", metavar="FILE", help="File with the secret; - is standard input. Default: keep the secret."
)
@click.option("--admin/--no-admin", "is_admin", default=None, help="Permit everything, or only what is given.")
@click.option("--white-address", metavar="ADDRESS", help="Address from which the account needs no signature.")
@click.option(
    "--default-topic", type=permission, metavar="PERM", help="For all other topics: DENY, PUB, SUB or PUB|SUB."
)
@click.option("--default-group", type=permission, metavar="PERM", help="For all other groups.")
@click.option("--topic", "topics", type=resource_permission, multiple=True, metavar="NAME=PERM", help="Repeatable.")
@click.option("--group", "groups", type=resource_permission, multiple=True, metavar="NAME=PERM", help="Repeatable.")
@OF_CLUSTER
@AS_JSON
@cluster_options
def put_command(
    cluster: ClusterAccess,
    account: str,
    secret_file: str | None,
    is_admin: bool | None,
    white_address: str | None,
    default_topic: str | None,
    default_group: str | None,
    topics: tuple[str, ...],
    groups: tuple[str, ...],
    cluster_name: str | None,
    as_json: bool,
) -> int:
    """Create or change ACCOUNT at each master, and print a line for each change: broker, field, before and after.

    Values that are not given stay as they are. --topic and --group replace all topics and groups of the account. The
    secret is sent to the brokers; use TLS if others can read the network. The exit status is 1 if a broker refuses. The
    others are changed.
    """
    wanted = BrokerAccount(
        account, white_address, is_admin, default_topic, default_group, topics or None, groups or None
    )
    secret = _secret(secret_file)
    return run_client_command(lambda reactor: _put(reactor, cluster, wanted, secret, cluster_name, as_json))


async def _put(
    reactor: IReactor,
    cluster: ClusterAccess,
    wanted: BrokerAccount,
    secret: str | None,
    cluster_name: str | None,
    as_json: bool,
) -> int:
    async with cluster.admin(reactor) as admin:
        brokers = await known_brokers(admin, cluster_name)

        async def known(broker: str) -> BrokerAccount | None:
            return await _account(admin, broker, wanted.access_key)

        before = (await answers_of(brokers, known)).found
        refusals = await refusals_of(admin.set_account(wanted, secret_key=secret, cluster=cluster_name))
        refused = {refusal.broker for refusal in refusals}
        after = await answers_of([broker for broker in before if broker not in refused], known)
    rows = []
    for broker, new in after.found.items():
        old = before[broker]
        if secret is not None and new is not None:
            rows.append((broker, "secret", _NONE if old is None else "hidden", "hidden"))
        for name, text in _FIELDS.items():
            values = (_NONE if old is None else text(old), _NONE if new is None else text(new))
            if values[0] != values[1]:
                rows.append((broker, name, *values))
    show_rows(("broker", "field", "before", "after"), rows, as_json=as_json)
    return max(status_of(refusals, ""), _status(after))


async def _account(admin: AdminEngine, broker: str, name: str) -> BrokerAccount | None:
    return next((each for each in await admin.accounts(broker) if each.access_key == name), None)


@command("delete")
@click.argument("account")
@OF_CLUSTER
@yes("Delete it.")
@cluster_options
def delete_command(cluster: ClusterAccess, account: str, cluster_name: str | None, yes: bool) -> int:
    """Delete ACCOUNT at each master that has it. Without --yes nothing is deleted."""
    return run_client_command(lambda reactor: _delete(reactor, cluster, account, cluster_name, yes))


async def _delete(reactor: IReactor, cluster: ClusterAccess, account: str, cluster_name: str | None, yes: bool) -> int:
    async with cluster.admin(reactor) as admin:
        known = await known_brokers(admin, cluster_name)
        answers = await answers_of(known, lambda broker: _account(admin, broker, account))
        brokers = [broker for broker, found in answers.found.items() if found is not None]
        if not brokers:
            answers.complain()
            raise answers.nobody(f"has the account {account}")
        held = f"account {account} at {', '.join(brokers)}"
        if yes:
            return status_of(await refusals_of(admin.delete_account(account, cluster=cluster_name)), f"deleted {held}")
    complain(f"would delete {held}; with --yes it is deleted")
    return _status(answers)


@command("whitelist")
@click.argument("addresses", nargs=-1, metavar="[ADDRESS]...")
@OF_CLUSTER
@yes("Set the addresses.")
@AS_JSON
@cluster_options
def whitelist_command(
    cluster: ClusterAccess, addresses: tuple[str, ...], cluster_name: str | None, yes: bool, as_json: bool
) -> int:
    """Print the addresses whose requests need no account, for each master: broker and addresses.

    With addresses, set these instead, and print those before and after. Without --yes nothing is changed. The exit status
    is 1 if a broker refuses. The others are changed.
    """
    if yes and not addresses:
        raise click.UsageError("--yes needs an address")
    return run_client_command(lambda reactor: _whitelist(reactor, cluster, addresses, cluster_name, yes, as_json))


async def _whitelist(
    reactor: IReactor, cluster: ClusterAccess, wanted: Sequence[str], cluster_name: str | None, yes: bool, as_json: bool
) -> int:
    async with cluster.admin(reactor) as admin:
        brokers = await known_brokers(admin, cluster_name)
        before = await answers_of(brokers, admin.white_addresses)
        if not wanted:
            show_rows(
                ("broker", "addresses"), [(b, _words(found)) for b, found in before.found.items()], as_json=as_json
            )
            return _status(before)
        after: Answers[Sequence[str]] = Answers(dict.fromkeys(before.found, wanted))
        if yes:
            refusals = await refusals_of(admin.set_white_addresses(wanted, cluster=cluster_name))
            after = await answers_of(before.found, admin.white_addresses)
    rows = [(broker, _words(before.found[broker]), _words(now)) for broker, now in after.found.items()]
    show_rows(("broker", "before", "after"), rows, as_json=as_json)
    what = f"the white addresses of {', '.join(before.found)}"
    if yes:
        return max(status_of(refusals, f"set {what}"), _status(after))
    complain(f"would set {what}; with --yes they are set")
    return _status(before)


def _words(addresses: Sequence[str]) -> str:
    return " ".join(addresses) or _NONE
