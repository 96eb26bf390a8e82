"""The accounts of brokers and their global white addresses: requests and changes.

Counterpart: the functions of `DefaultMQAdminExtImpl` for access control (Apache). Reactor thread. Brokers answer with the
secrets of all accounts. No result of this module has one.
"""

from collections.abc import Sequence

import msgspec

from rocketd.acl.signature import KEY_LENGTH
from rocketd.client.errors import UsageError, check_response
from rocketd.client.instance.all_of import raise_first
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.client.queries.masters import Masters
from rocketd.remoting.bodies.admin import GetBrokerClusterAclConfigResponseBody, PlainAccessConfig
from rocketd.remoting.headers.acl import (
    CreateAccessConfigRequestHeader,
    DeleteAccessConfigRequestHeader,
    UpdateGlobalWhiteAddrsConfigRequestHeader,
)
from rocketd.remoting.wire.codes import RequestCode
from rocketd.remoting.wire.command import RemotingCommand


class BrokerAccount(msgspec.Struct, frozen=True):
    """An account of a broker, without its secret. None is a value that is not set.

    ``topic_perms`` and ``group_perms`` are entries such as ``Orders=PUB|SUB``.
    """

    access_key: str
    white_remote_address: str | None = None
    admin: bool | None = None
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: tuple[str, ...] | None = None
    group_perms: tuple[str, ...] | None = None


async def accounts(instance: ClientInstance, address: str) -> list[BrokerAccount]:
    """Return the accounts of a broker, sorted by name."""
    found = [_account(each) for each in (await _config(instance, address)).plain_access_configs]
    return sorted(found, key=lambda account: account.access_key)


async def white_addresses(instance: ClientInstance, address: str) -> list[str]:
    """Return the addresses whose requests need no account at a broker."""
    return (await _config(instance, address)).global_white_addrs


async def set_account(
    instance: ClientInstance, masters: Masters, account: BrokerAccount, secret_key: str | None
) -> None:
    """Create or change an account at brokers. A value of None stays as it is; so does the secret.

    Raises UsageError for a value that cannot be sent, or a new account without a secret. Nothing is changed then. A
    BrokerError has stars in place of the secret.
    """
    headers: dict[str, CreateAccessConfigRequestHeader] = {}

    async def prepare(address: str) -> None:
        known = {each.access_key: each for each in (await _config(instance, address)).plain_access_configs}
        headers[address] = _header(account, secret_key, known.get(account.access_key), address)

    async def put(address: str) -> None:
        header = headers[address]
        response = await instance.ask(address, RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, header)
        check_response(address, _without_secret(response, header.secret_key))

    silent = await masters.errors_of(prepare)
    raise_first([*silent, *await masters.at(headers).errors_of(put)])


def _without_secret(response: RemotingCommand, secret: str | None) -> RemotingCommand:
    """Replace the secret in a response: the remark of a broker repeats the keys that it refuses."""
    if secret and response.remark:
        response.remark = response.remark.replace(secret, "***")
    return response


async def delete_account(instance: ClientInstance, masters: Masters, access_key: str) -> None:
    """Delete an account at all of the brokers that have it. Raises BrokerError if one refuses, or none has it.

    The others have deleted it then.
    """
    header = DeleteAccessConfigRequestHeader(access_key=access_key)
    holders: list[str] = []

    async def look(address: str) -> None:
        if any(each.access_key == access_key for each in (await _config(instance, address)).plain_access_configs):
            holders.append(address)

    async def delete(address: str) -> None:
        check_response(address, await instance.ask(address, RequestCode.DELETE_ACL_CONFIG, header))

    silent = await masters.errors_of(look)
    # If no broker has it, the refusal of one is the error.
    asked = holders if holders or silent else list(masters.registered().values())[:1]
    raise_first([*silent, *await masters.at(asked).errors_of(delete)])


async def set_white_addresses(instance: ClientInstance, masters: Masters, white: Sequence[str]) -> None:
    """Set the addresses whose requests need no account, at brokers. Raises UsageError for an empty list or address."""
    header = UpdateGlobalWhiteAddrsConfigRequestHeader(global_white_addrs=_joined("white addresses", white))

    async def put(address: str) -> None:
        check_response(address, await instance.ask(address, RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, header))

    await masters.tell_each(put)


async def _config(instance: ClientInstance, address: str) -> GetBrokerClusterAclConfigResponseBody:
    response = check_response(address, await instance.ask(address, RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG))
    return GetBrokerClusterAclConfigResponseBody.decode(response.body)


def _account(config: PlainAccessConfig) -> BrokerAccount:
    return BrokerAccount(
        config.access_key,
        config.white_remote_address,
        config.admin,
        config.default_topic_perm,
        config.default_group_perm,
        None if config.topic_perms is None else tuple(config.topic_perms),
        None if config.group_perms is None else tuple(config.group_perms),
    )


def _header(
    account: BrokerAccount, secret_key: str | None, known: PlainAccessConfig | None, address: str
) -> CreateAccessConfigRequestHeader:
    if secret_key is None and known is None:
        raise UsageError(f"account {account.access_key} is new at {address}: it needs a secret")
    secret = known.secret_key if secret_key is None and known is not None else secret_key
    # Brokers refuse shorter ones with a remark that has the secret.
    for name, key in (("name", account.access_key), ("secret", secret)):
        if len(key or "") <= KEY_LENGTH:
            raise UsageError(f"the {name} of an account needs more than {KEY_LENGTH} characters, at {address}")
    # A broker takes the secret and admin of every request, and keeps only the other values that are absent.
    return CreateAccessConfigRequestHeader(
        access_key=account.access_key,
        secret_key=secret,
        white_remote_address=account.white_remote_address,
        admin=(known is not None and known.admin) if account.admin is None else account.admin,
        default_topic_perm=account.default_topic_perm,
        default_group_perm=account.default_group_perm,
        topic_perms=None if account.topic_perms is None else _joined("topic_perms", account.topic_perms),
        group_perms=None if account.group_perms is None else _joined("group_perms", account.group_perms),
    )


def _joined(name: str, parts: Sequence[str]) -> str:
    if not parts or any(not isinstance(part, str) or not part or "," in part for part in parts):
        raise UsageError(f"{name}: accepted is one text or more, each without a comma")
    return ",".join(parts)
