"""Inspecting a consume queue: 321.

For each entry it shows the place in the log. If the queue is extended, it also shows the content of the unit, and
whether a group's filter accepts it. The texts are Apache's.

Counterpart: `AdminBrokerProcessor.queryConsumeQueue` (Apache).
"""

from base64 import b64encode
from collections.abc import Callable
from itertools import islice

from zope.interface import implementer

from rocketd.broker.admin.parts import AdminParts
from rocketd.broker.admin.query import first_that_fit
from rocketd.broker.tables.filters.subscriptions import ANY_TAG, is_tag_type
from rocketd.remoting.bodies.admin import ConsumeQueueData, QueryConsumeQueueResponseBody
from rocketd.remoting.bodies.tables import Body, SubscriptionData
from rocketd.remoting.errors import RequestError
from rocketd.remoting.fastjson import dialect as fastjson
from rocketd.remoting.headers.admin import QueryConsumeQueueRequestHeader
from rocketd.remoting.headers.client import read_header
from rocketd.remoting.interfaces import IRequestContext, IRequestProcessor
from rocketd.remoting.wire.codes import ResponseCode
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.store.queue.consume_queue import ConsumeQueue
from rocketd.store.queue.consume_queue_ext import MIN_UNIT_SIZE, CqExtUnit, is_ext_address

UnitJudge = Callable[[CqExtUnit], bool]
"""Returns whether a group's filter may accept the message of a unit."""


class _UnitBody(Body):
    """A unit in Apache's form; ``size`` in bytes, the bitmap in base64."""

    filter_bit_map: str | None
    msg_store_time: int
    size: int
    tags_code: int


@implementer(IRequestProcessor)
class ConsumeQueueProcessor:
    """Reads entries of queues. ``process`` may run in several threads at once."""

    def __init__(self, broker: AdminParts) -> None:
        self._broker = broker

    def process(self, request: RemotingCommand, context: IRequestContext) -> RemotingCommand:
        """Handle one request; see IRequestProcessor."""
        header = read_header(QueryConsumeQueueRequestHeader, request)
        topic = header.topic or ""
        queue: ConsumeQueue | None = self._broker.store.consume_queue(topic, header.queue_id)
        if queue is None:
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"{header.queue_id}@{topic} is not exist!")
        body = QueryConsumeQueueResponseBody(max_queue_index=queue.max_offset, min_queue_index=queue.min_offset)
        judge = None
        if header.consumer_group is not None:
            judge = self._describe_group(body, header.consumer_group, topic)
        entries = queue.read(header.index)
        if entries is None:
            return RemotingCommand.response(remark=f"Index {header.index} of {header.queue_id}@{topic} is not exist!")
        asked = (_describe(queue, *entry, judge) for entry in islice(entries, max(0, header.count)))
        body.queue_data = first_that_fit(asked, lambda data: len(data.encode()) + len(","))
        return RemotingCommand.response(body=body.encode())

    def _describe_group(self, body: QueryConsumeQueueResponseBody, group: str, topic: str) -> UnitJudge | None:
        online = self._broker.consumers.find(group)
        subscription: SubscriptionData | None = None if online is None else online.find_subscription(topic)
        if subscription is None:
            body.filter_data = f"{group}@{topic} is not online!"
            return None
        body.subscription_data = subscription
        stored = self._broker.filters.stored_form(topic, group)
        body.filter_data = "null" if stored is None else fastjson.dumps_pretty(stored).decode()
        return self._judge_of(subscription, group)

    def _judge_of(self, subscription: SubscriptionData, group: str) -> UnitJudge:
        if is_tag_type(subscription.expression_type):
            wanted = None if subscription.sub_string == ANY_TAG else frozenset(subscription.code_set or ())
            return lambda unit: wanted is None or unit.tags_code in wanted
        known = self._broker.filters.get(subscription.topic, group)
        matches = None if known is None else known.matches_unit
        return lambda unit: matches is None or matches(unit.store_timestamp, unit.bitmap)


def _describe(
    queue: ConsumeQueue, physical_offset: int, size: int, tags_code: int, judge: UnitJudge | None
) -> ConsumeQueueData:
    data = ConsumeQueueData(physic_offset=physical_offset, physic_size=size, tags_code=tags_code)
    if is_ext_address(tags_code):
        unit = None if queue.ext is None else queue.ext.get(tags_code)
        if unit is None:
            data.msg = f"Cq extend not exist!addr: {tags_code}"
        else:
            data.extend_data_json = _unit_text(unit)
            if unit.bitmap is not None:
                data.bit_map = bits_text(unit.bitmap)
            data.eval = judge is not None and judge(unit)
    return data


def _unit_text(unit: CqExtUnit) -> str:
    bitmap = None if unit.bitmap is None else b64encode(unit.bitmap).decode()
    size = MIN_UNIT_SIZE + len(unit.bitmap or b"")
    return _UnitBody(bitmap, unit.store_timestamp, size, unit.tags_code).encode().decode()


def bits_text(bitmap: bytes) -> str:
    """Return a bitmap in the form of Apache's BitsArray.

    The last byte comes first, with a line break after every eighth byte from the front.
    """
    return "".join(f"{byte:08b}" + ("\n" if at % 8 == 0 else "") for at, byte in reversed(list(enumerate(bitmap))))
