"""The first offset of a group in a queue it has not consumed yet.

Counterpart: `RebalancePushImpl.computePullFromWhere` (Apache), with two differences:

- "latest" is always the end of the queue. A broker may answer 0 because the whole queue is young. This 0 counts only if
  the group really has stored it.
- A moment is exact. Apache's brokers return the message nearest to it, before or after, or any of those stored in the same
  millisecond. Here it is always the first one since.
"""

from collections.abc import Callable
from datetime import datetime

from twisted.logger import Logger

from rocketd.client.consumer.offset_store import NO_OFFSET, OffsetStore, ReadOffsetType
from rocketd.client.errors import BrokerUnreachableError, RocketMQError
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.common.names import RETRY_PREFIX
from rocketd.protocol import offsets
from rocketd.protocol.pull import everything, pull_header
from rocketd.remoting.bodies.tables import MessageQueue
from rocketd.remoting.errors import RemotingError
from rocketd.remoting.wire.codes import RequestCode, ResponseCode
from rocketd.store.format.record import decode_readable

_log = Logger()


async def start_offset(
    instance: ClientInstance,
    group: str,
    queue: MessageQueue,
    store: OffsetStore,
    begin: Callable[[], str | datetime],
    *,
    broadcast: bool,
) -> int:
    """Return the offset to continue from: the stored one, or else that of a place, which is stored at once.

    ``begin`` returns the place. Raises its errors, RocketMQError if the broker cannot tell, and BrokerUnreachableError if
    only a slave answers that has no offset: it may not have copied it from its master yet.
    """
    known_by_master = broadcast or instance.routes.address_of(queue.broker_name) is not None
    # The offsets of a broadcasting consumer are its own: they are newer in memory than in its file.
    source = ReadOffsetType.MEMORY_FIRST_THEN_STORE if broadcast else ReadOffsetType.READ_FROM_STORE
    stored = await store.read(queue, source)
    if stored > 0 or (stored == 0 and (broadcast or await _has_stored(instance, group, queue))):
        return stored
    if not known_by_master:
        raise BrokerUnreachableError(
            f"the master of {queue.broker_name} is away, and its slave has no offset of group {group} for queue "
            f"{queue.queue_id} of {queue.topic}",
            broker=queue.broker_name,
        )
    first = await _begin(instance, group, queue, begin())
    if first > 0 or stored == NO_OFFSET:
        store.update(queue, first, False)
        await store.update_to_broker(queue, first, oneway=False)
    return first


async def _begin(instance: ClientInstance, group: str, queue: MessageQueue, begin: str | datetime) -> int:
    retry = queue.topic.startswith(RETRY_PREFIX)
    if begin == "earliest" or (retry and not isinstance(begin, datetime)):
        return 0
    if isinstance(begin, datetime) and not retry:
        return await first_since(instance, group, queue, int(begin.timestamp() * 1000))
    return await instance.answer(queue.broker_name, offsets.max_offset(queue))


async def first_since(instance: ClientInstance, group: str, queue: MessageQueue, moment_ms: int) -> int:
    """Return the offset of the first message stored at or after a moment; the end of the queue if there is none.

    Raises RocketMQError.
    """
    offset = await instance.answer(queue.broker_name, offsets.search_offset(queue, moment_ms))
    stored = await _store_time(instance, group, queue, offset)
    if stored != moment_ms:
        return offset + 1 if stored is not None and stored < moment_ms else offset
    # Others before it may have the same time. Steps back double, until one is too long. The rest is halved.
    low, high, step = 0, offset, 1
    while low < high:
        at = max(low, high - step) if step else (low + high) // 2
        stored = await _store_time(instance, group, queue, at)
        if stored is not None and stored >= moment_ms:
            high, step = at, 2 * step
        else:
            low, step = at + 1, 0
    return high


async def _store_time(instance: ClientInstance, group: str, queue: MessageQueue, offset: int) -> int | None:
    """Return the store time in ms of the message at an offset, None without it. Raises RocketMQError."""
    looked_at = pull_header(group, queue, everything(queue.topic), offset, 1)
    response = await instance.ask(instance.master(queue.broker_name), RequestCode.PULL_MESSAGE, looked_at)
    if response.code != ResponseCode.SUCCESS:
        return None
    records, _ = decode_readable(response.body or b"")
    return records[0].store_timestamp if records else None


async def _has_stored(instance: ClientInstance, group: str, queue: MessageQueue) -> bool:
    """Whether the group has stored an offset of the queue. If the broker does not answer, assume so, unless it is a slave.

    Brokers answer 0 for groups without an offset if the queue is young.
    """
    try:
        table = await instance.answer_for_group(queue.broker_name, offsets.group_offsets())
    except (RocketMQError, RemotingError) as error:
        _log.warn(
            "{queue}: cannot find out whether group {group} is new: {error}",
            queue=queue,
            group=group,
            error=error,
        )
        return instance.routes.address_of(queue.broker_name) is not None
    return queue.queue_id in table.get(f"{queue.topic}@{group}", {})
