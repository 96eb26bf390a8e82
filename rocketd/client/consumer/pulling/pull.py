"""One pull of a queue: the broker's address, the answer, and the matching records.

Counterpart: `PullAPIWrapper` (Apache). Reactor thread.
"""

from collections.abc import Callable
from typing import Final

from rocketd.client.consumer.options.subscription import wants
from rocketd.client.errors import BrokerError, BrokerUnreachableError
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.client.messages.records import log_damaged, readable_records
from rocketd.common.message_properties import TAGS
from rocketd.protocol.pull import PULLED
from rocketd.remoting.bodies.tables import SubscriptionData
from rocketd.remoting.headers.client import PullMessageRequestHeader
from rocketd.remoting.wire.codes import RequestCode, ResponseCode
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.store.format.record import MessageExt

PULL_TIMEOUT_MS: Final = 30_000
"""Timeout of a pull the broker may hold."""


def address_to_pull(instance: ClientInstance, broker_name: str, broker_id: int) -> tuple[int, str]:
    """Return id and address of a broker, preferably with this id. Raises BrokerUnreachableError if no address is known."""
    found = instance.routes.address_to_read(broker_name, broker_id)
    if found is None:
        raise BrokerUnreachableError(f"no address of broker {broker_name} is known", broker=broker_name)
    return found


async def pull(
    instance: ClientInstance, address: str, header: PullMessageRequestHeader, timeout_ms: float = PULL_TIMEOUT_MS
) -> RemotingCommand:
    """Return the answer: found, nothing found, or offset moved.

    Raises BrokerError for any other, and the errors of ``ask``.
    """
    response = await instance.ask(address, RequestCode.PULL_MESSAGE, header, timeout_ms=timeout_ms, bounded=True)
    if response.code not in PULLED:
        raise BrokerError(address, response)
    return response


def wanted_records(
    response: RemotingCommand, subscription: SubscriptionData, source: str, tell: Callable[[str], None] = log_damaged
) -> list[MessageExt]:
    """Return the records of an answer, without those of other tags with the same hash, and without damaged ones.

    ``source`` and ``tell`` are those of ``readable_records``.
    """
    if response.code != ResponseCode.SUCCESS:
        return []
    records = readable_records(response.body, source, tell)
    if not subscription.tags_set:
        return records
    return [record for record in records if wants(subscription, record.properties_map().get(TAGS))]
