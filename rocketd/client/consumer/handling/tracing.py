"""Traces the messages of a consumer by a hook.

Counterpart: `ConsumeMessageTraceHookImpl` (Apache). Reactor thread.
"""

from rocketd.client.hooks import ConsumeMessageContext, ConsumerHook
from rocketd.client.producer.tracing import Tracing
from rocketd.client.trace.hooks import trace_of_consume, trace_of_consumed


class ConsumerTracing(ConsumerHook):
    """Traces messages before and after their handling."""

    def __init__(self, tracing: Tracing) -> None:
        self._tracing = tracing
        self._instance = tracing.instance

    def consume_before(self, context: ConsumeMessageContext) -> None:
        """Trace the start of the handling."""
        before = trace_of_consume(
            group=context.group,
            messages=context.messages,
            request_id=self._instance.unique_keys.next_key(),
            started_ms=int(self._instance.now_ms()),
        )
        context.state[self] = before
        self._tracing.append(before)

    def consume_after(self, context: ConsumeMessageContext) -> None:
        """Trace the end of the handling."""
        self._tracing.append(
            trace_of_consumed(
                context.state[self],
                message_count=len(context.messages),
                success=context.success,
                return_type=context.return_type,
                finished_ms=int(self._instance.now_ms()),
            )
        )
