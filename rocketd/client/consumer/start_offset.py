"""Where a group begins in a queue it has not consumed yet.

Answers to RebalancePushImpl.computePullFromWhere. Unlike there, "latest" is the end of the queue also when the broker says 0
because all of the queue is young: a broker's 0 is believed only when the group really has stored it. And a moment is one:
of the messages before and after it brokers name the nearer one, here it is always the one after.
"""

from datetime import datetime

from twisted.logger import Logger

from rocketd.client.consumer.member_options import MemberOptions
from rocketd.client.consumer.offset_store import NO_OFFSET, OffsetStore, ReadOffsetType
from rocketd.client.consumer.subscription import ALL
from rocketd.client.errors import RocketMQError
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.common.names import RETRY_PREFIX
from rocketd.common.sysflag import PULL_SUBSCRIPTION
from rocketd.remoting.bodies import ConsumerOffsetSerializeWrapper, MessageQueue
from rocketd.remoting.codes import RequestCode, ResponseCode
from rocketd.remoting.errors import RemotingError
from rocketd.remoting.headers import (
    OffsetResponseHeader,
    PullMessageRequestHeader,
    QueueRequestHeader,
    SearchOffsetRequestHeader,
    read_header,
)
from rocketd.store.record import decode_messages

_log = Logger()


async def start_offset(
    instance: ClientInstance, group: str, queue: MessageQueue, options: MemberOptions, store: OffsetStore
) -> int:
    """Return the offset to go on from: the stored one, else what ``start`` says, which is stored at once.

    Raises RocketMQError when the broker cannot tell.
    """
    stored = await store.read(queue, ReadOffsetType.READ_FROM_STORE)
    if stored > 0 or (stored == 0 and (options.broadcast or await _has_stored(instance, group, queue))):
        return stored
    first = await _begin(instance, group, queue, options)
    if first > 0 or stored == NO_OFFSET:
        store.update(queue, first, False)
        await store.update_to_broker(queue, first, oneway=False)
    return first


async def _begin(instance: ClientInstance, group: str, queue: MessageQueue, options: MemberOptions) -> int:
    retry = queue.topic.startswith(RETRY_PREFIX)
    if options.start == "earliest" or (retry and not isinstance(options.start, datetime)):
        return 0
    if isinstance(options.start, datetime) and not retry:
        return await _first_since(instance, group, queue, int(options.start.timestamp() * 1000))
    header = QueueRequestHeader(topic=queue.topic, queue_id=queue.queue_id)
    response = await instance.ask_broker(queue.broker_name, RequestCode.GET_MAX_OFFSET, header)
    return read_header(OffsetResponseHeader, response).offset


async def _first_since(instance: ClientInstance, group: str, queue: MessageQueue, moment_ms: int) -> int:
    """Return the offset of the first message that was stored at a moment or later; the end where there is none."""
    searched = SearchOffsetRequestHeader(topic=queue.topic, queue_id=queue.queue_id, timestamp=moment_ms)
    response = await instance.ask_broker(queue.broker_name, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, searched)
    offset = read_header(OffsetResponseHeader, response).offset
    looked_at = PullMessageRequestHeader(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=offset,
        max_msg_nums=1,
        sys_flag=PULL_SUBSCRIPTION,
        commit_offset=0,
        suspend_timeout_millis=0,
        sub_version=0,
        subscription=ALL,
        expression_type="TAG",
        bname=queue.broker_name,
    )
    response = await instance.ask(instance.master(queue.broker_name), RequestCode.PULL_MESSAGE, looked_at)
    if response.code == ResponseCode.SUCCESS:
        for record in decode_messages(response.body or b""):
            return offset + 1 if record.store_timestamp < moment_ms else offset
    return offset


async def _has_stored(instance: ClientInstance, group: str, queue: MessageQueue) -> bool:
    """Whether the group has stored an offset of the queue; a broker that does not say is taken to mean it."""
    try:
        response = await instance.ask_broker(queue.broker_name, RequestCode.GET_ALL_CONSUMER_OFFSET)
        table = ConsumerOffsetSerializeWrapper.decode(response.body).offset_table
    except (RocketMQError, RemotingError) as error:
        _log.warn("{queue}: whether group {group} is new is not known: {error}", queue=queue, group=group, error=error)
        return True
    return queue.queue_id in table.get(f"{queue.topic}@{group}", {})
