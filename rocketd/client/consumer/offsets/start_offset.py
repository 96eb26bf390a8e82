"""The first offset of a group in a queue it has not consumed yet.

Counterpart: `RebalancePushImpl.computePullFromWhere` (Apache), with two differences:

- "latest" is always the end of the queue. A broker may answer 0 because the whole queue is still in memory. This 0 counts
  only if the group really has stored it.
- A point in time is exact, see ``first_since``.
"""

from collections.abc import Callable
from datetime import datetime

from twisted.logger import Logger

from rocketd.client.consumer.offsets.offset_store import NO_OFFSET, OffsetStore, ReadOffsetType
from rocketd.client.errors import BrokerUnreachableError, RocketMQError
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.client.queries.queues import first_since, milliseconds_of
from rocketd.common.names import RETRY_PREFIX
from rocketd.protocol import offsets
from rocketd.remoting.bodies.tables import MessageQueue
from rocketd.remoting.errors import RemotingError

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
        return await first_since(instance, group, queue, milliseconds_of(begin))
    return await instance.answer(queue.broker_name, offsets.max_offset(queue))


async def _has_stored(instance: ClientInstance, group: str, queue: MessageQueue) -> bool:
    """Whether the group has stored an offset of the queue. If the broker does not answer, assume so, unless it is a slave.

    Brokers answer 0 for groups without an offset if the whole queue is still in memory.
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
