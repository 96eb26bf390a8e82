"""Consumes one message on an administrator's request.

Counterpart: `consumeMessageDirectly` of the consume services (Apache).
"""

from time import monotonic
from traceback import format_exception
from typing import Any

from rocketd.client.consumer.handling.handler import Handler, Verdict
from rocketd.client.consumer.options.kind_options import ConsumerOptions, Order
from rocketd.client.consumer.pulling.assigned_queue import PulledMessage
from rocketd.client.consumer.retries.handler_results import Reject, Retry
from rocketd.remoting.bodies.admin import CMResult, ConsumeMessageDirectlyResult
from rocketd.remoting.bodies.tables import MessageQueue
from rocketd.store.format.record import MessageExt


async def consume_directly(
    handler: Handler[Any], options: ConsumerOptions, record: MessageExt, broker_name: str | None
) -> ConsumeMessageDirectlyResult:
    """Return the result. The group's offset and retries are unchanged."""
    began = monotonic()
    queue = MessageQueue(record.topic, broker_name or "", record.queue_id)
    outcome = await handler.consume_directly(queue, [PulledMessage(record)])
    result = ConsumeMessageDirectlyResult(order=options.order is Order.QUEUE, auto_commit=True)
    error = outcome.error
    if outcome.verdict is Verdict.CONSUMED:
        result.consume_result = CMResult.CR_SUCCESS
    elif error is None or isinstance(error, Retry | Reject):
        result.consume_result = CMResult.CR_LATER
        result.remark = None if error is None else str(error)
    else:
        result.consume_result = CMResult.CR_THROW_EXCEPTION
        result.remark = "".join(format_exception(error))
    result.spent_time_mills = int((monotonic() - began) * 1000)
    return result
