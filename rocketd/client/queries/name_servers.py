"""Requests to name servers, and changes of their settings and key-value tables.

Counterpart: the functions of `DefaultMQAdminExtImpl` for name servers (Apache). Reactor thread. Each name server has a table
and settings of its own, so changes are sent to each.
"""

from collections.abc import Iterable, Mapping

from rocketd.client.errors import NoNameServerError, RocketMQError, UsageError, check_response
from rocketd.client.instance.all_of import tell_each
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.client.queries.settings_text import properties_text, settings_of
from rocketd.remoting.bodies.tables import KVTable
from rocketd.remoting.headers.client import (
    Header,
    KVKeyRequestHeader,
    KVNamespaceRequestHeader,
    PutKVConfigRequestHeader,
)
from rocketd.remoting.wire.codes import RequestCode, ResponseCode


def addresses(instance: ClientInstance) -> list[str]:
    """Return the addresses of the name servers. Raises NoNameServerError if none is known."""
    found = list(instance.remoting.name_servers.addresses)
    if not found:
        raise NoNameServerError("no name server is known")
    return found


async def configs(instance: ClientInstance) -> dict[str, dict[str, str]]:
    """Return the settings of each name server by its address. Raises the first error."""
    found, failed = await answered_configs(instance)
    for error in failed.values():
        raise error
    return found


async def answered_configs(
    instance: ClientInstance,
) -> tuple[dict[str, dict[str, str]], dict[str, RocketMQError]]:
    """Return the settings of each name server, and the errors of those that do not answer, by address."""
    found: dict[str, dict[str, str]] = {}
    failed: dict[str, RocketMQError] = {}
    for address in addresses(instance):
        try:
            response = check_response(address, await instance.ask(address, RequestCode.GET_NAMESRV_CONFIG))
            found[address] = settings_of(response.body)
        except RocketMQError as error:
            failed[address] = error
    return found, failed


async def set_config(instance: ClientInstance, settings: Mapping[str, str], at: Iterable[str] | None = None) -> None:
    """Change settings of the name servers ``at`` these addresses, by default of all.

    Raises UsageError for a value that cannot be sent.
    """
    body = properties_text(settings)
    await _tell(instance, addresses(instance) if at is None else at, RequestCode.UPDATE_NAMESRV_CONFIG, body=body)


async def kv_values(instance: ClientInstance, namespace: str) -> dict[str, str]:
    """Return the keys and values of a namespace, of the first name server that has it; empty without one.

    Name servers that do not answer are left out. If none answers, the first error is raised.
    """
    header = KVNamespaceRequestHeader(namespace=namespace)
    failure: RocketMQError | None = None
    answered = False
    for address in addresses(instance):
        try:
            response = await instance.ask(address, RequestCode.GET_KVLIST_BY_NAMESPACE, header)
            if response.code != ResponseCode.QUERY_NOT_FOUND:
                return dict(sorted(KVTable.decode(check_response(address, response).body).table.items()))
            answered = True
        except RocketMQError as error:
            failure = failure or error
    if failure is not None and not answered:
        raise failure
    return {}


async def put_kv(instance: ClientInstance, namespace: str, key: str, value: str) -> None:
    """Set a value at all name servers. Raises UsageError for an empty text."""
    for name, text in (("namespace", namespace), ("key", key), ("value", value)):
        _check(name, text)
    await _tell(
        instance, addresses(instance), RequestCode.PUT_KV_CONFIG, PutKVConfigRequestHeader(namespace, key, value)
    )


async def delete_kv(instance: ClientInstance, namespace: str, key: str) -> None:
    """Delete a key at all name servers. A missing key is not an error. Raises UsageError for an empty text."""
    for name, text in (("namespace", namespace), ("key", key)):
        _check(name, text)
    await _tell(instance, addresses(instance), RequestCode.DELETE_KV_CONFIG, KVKeyRequestHeader(namespace, key))


def _check(name: str, text: str) -> None:
    if not isinstance(text, str) or not text:
        raise UsageError(f"{name}={text!r}: accepted is a text that is not empty")


async def _tell(
    instance: ClientInstance,
    told: Iterable[str],
    code: RequestCode,
    header: Header | None = None,
    body: bytes | None = None,
) -> None:
    """Tell name servers something, as `tell_each` does."""

    async def tell(address: str) -> None:
        check_response(address, await instance.ask(address, code, header, body))

    await tell_each(told, tell)
