"""One pull of a queue: where it goes, what it asks, and which of the records that come are wanted.

Answers to PullAPIWrapper. Reactor thread.
"""

from typing import Final

from rocketd.client.consumer.subscription import wants
from rocketd.client.errors import BrokerError, BrokerUnreachableError
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.common.properties import TAGS
from rocketd.common.sysflag import PULL_SUBSCRIPTION
from rocketd.remoting.bodies import MessageQueue, SubscriptionData
from rocketd.remoting.codes import RequestCode, ResponseCode
from rocketd.remoting.command import RemotingCommand
from rocketd.remoting.headers import PullMessageRequestHeader
from rocketd.store.record import MessageExt, decode_messages

PULL_TIMEOUT_MS: Final = 30_000
"""How long to wait for the answer to a pull that the broker may hold."""

FOUND_NOTHING: Final = (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY)


def address_to_pull(instance: ClientInstance, broker_name: str, broker_id: int) -> tuple[int, str]:
    """Return id and address of a broker, by preference the one with this id. Raises BrokerUnreachableError."""
    found = instance.routes.address_to_read(broker_name, broker_id)
    if found is None:
        raise BrokerUnreachableError(f"no address of broker {broker_name} is known", broker=broker_name)
    return found


async def pull(
    instance: ClientInstance, address: str, header: PullMessageRequestHeader, timeout_ms: float = PULL_TIMEOUT_MS
) -> RemotingCommand:
    """Return the answer: found, found nothing or moved. Raises BrokerError for any other, and as ``ask`` does."""
    response = await instance.ask(address, RequestCode.PULL_MESSAGE, header, timeout_ms=timeout_ms, bounded=True)
    if response.code not in (ResponseCode.SUCCESS, ResponseCode.PULL_OFFSET_MOVED, *FOUND_NOTHING):
        raise BrokerError(address, response)
    return response


def pull_header(
    group: str,
    queue: MessageQueue,
    subscription: SubscriptionData,
    offset: int,
    most: int,
    *,
    sys_flag: int,
    suspend_ms: int,
    commit_offset: int = 0,
) -> PullMessageRequestHeader:
    """Make the request's header. The subscription's text goes along where ``sys_flag`` says so."""
    return PullMessageRequestHeader(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=offset,
        max_msg_nums=most,
        sys_flag=sys_flag,
        commit_offset=commit_offset,
        suspend_timeout_millis=suspend_ms,
        subscription=subscription.sub_string if sys_flag & PULL_SUBSCRIPTION else None,
        sub_version=subscription.sub_version,
        expression_type=subscription.expression_type,
        bname=queue.broker_name,
    )


def wanted_records(response: RemotingCommand, subscription: SubscriptionData) -> list[MessageExt]:
    """Return the records of an answer without those that got through by their tag's hash. Raises RecordError."""
    if response.code != ResponseCode.SUCCESS:
        return []
    records = decode_messages(response.body or b"")
    if not subscription.tags_set:
        return records
    return [record for record in records if wants(subscription, record.properties_map().get(TAGS))]
