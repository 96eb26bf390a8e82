"""Calls a consumer's hooks with what they are to know: around its handler, and on what was pulled.

Answers to executeHookBefore and executeHookAfter of DefaultMQPushConsumerImpl, and executeHook of PullAPIWrapper. Reactor
thread.
"""

from collections.abc import Callable, Sequence
from math import inf
from random import Random
from typing import Any

from rocketd.client.codec import Codec
from rocketd.client.consumer.member_options import MemberOptions
from rocketd.client.consumer.outcome import Reject, Retry
from rocketd.client.consumer.queue_puller import Keep
from rocketd.client.errors import IllegalMessageError, StopConsuming
from rocketd.client.hooks import ConsumeMessageContext, ConsumerHooks, FilterMessageContext
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.client.message import ReceivedMessage
from rocketd.client.namespace import without_namespace
from rocketd.client.trace.records import ConsumeReturnType
from rocketd.client.trace.tracing import ConsumerTracing, Tracing
from rocketd.client.wire_message import received_message
from rocketd.remoting.bodies import MessageQueue
from rocketd.store.record import MessageExt


class HookedConsumption:
    """The hooks of one consumer, whose ``group`` has its namespace.

    ``timeout_ms`` is the time from which on a handler has taken too long, whatever came of it.
    """

    def __init__(
        self,
        hooks: ConsumerHooks,
        group: str,
        namespace: str,
        codec: Codec[Any],
        timeout_ms: float,
        clock_ms: Callable[[], float],
    ) -> None:
        self._hooks = hooks
        self._group = without_namespace(namespace, group)
        self._namespace = namespace
        self._codec = codec
        self._timeout_ms = timeout_ms
        self._clock_ms = clock_ms

    def begin(self, queue: MessageQueue, messages: Sequence[ReceivedMessage[Any]]) -> ConsumeMessageContext | None:
        """Call what comes before the handler; give the result to ``end``. None where there is nothing to call."""
        if not self._hooks.consuming:
            return None
        context = ConsumeMessageContext(
            group=self._group, messages=messages, queue=self._bare(queue), state={self: self._clock_ms()}
        )
        self._hooks.consume_before(context)
        return context

    def end(self, context: ConsumeMessageContext | None, consumed: bool, error: BaseException | None) -> None:
        """Call what comes after the handler; ``error`` is what it raised, or returned to say that it did not consume."""
        if context is None:
            return
        context.success = consumed
        context.error = error
        context.return_type = self._return_type(consumed, error, self._clock_ms() - context.state[self])
        self._hooks.consume_after(context)

    def _return_type(self, consumed: bool, error: BaseException | None, took_ms: float) -> ConsumeReturnType:
        if error is not None and not isinstance(error, Retry | Reject | StopConsuming):
            return ConsumeReturnType.EXCEPTION
        if took_ms >= self._timeout_ms:
            return ConsumeReturnType.TIME_OUT
        return ConsumeReturnType.SUCCESS if consumed else ConsumeReturnType.FAILED

    def keep(self, queue: MessageQueue, records: Sequence[MessageExt]) -> list[MessageExt]:
        """Return the records that hooks do not filter. What cannot be read is not shown to them, and stays."""
        shown: dict[int, ReceivedMessage[Any]] = {}
        for record in records:
            try:
                shown[record.queue_offset] = received_message(record, queue, self._codec, self._namespace)
            except IllegalMessageError:
                continue
        context = FilterMessageContext(group=self._group, messages=list(shown.values()), queue=self._bare(queue))
        self._hooks.filter_messages(context)
        kept = {message.queue_offset for message in context.messages}
        return [record for record in records if record.queue_offset in kept or record.queue_offset not in shown]

    def _bare(self, queue: MessageQueue) -> MessageQueue:
        return MessageQueue(without_namespace(self._namespace, queue.topic), queue.broker_name, queue.queue_id)


class MemberHooks:
    """The hooks that the options of a consumer name, and one that traces, from ``start`` to ``stop``, if they say so.

    ``group`` has its namespace. ``keep`` chooses among the records that come; None takes all.
    """

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        options: MemberOptions,
        codec: Codec[Any],
        timeout_ms: float = inf,
    ) -> None:
        trace = options.trace
        self._tracing = Tracing(instance, group, "CONSUME", trace, Random()) if trace else None
        traces = [] if self._tracing is None else [ConsumerTracing(self._tracing)]
        hooks = ConsumerHooks([*traces, *options.consume_hooks])
        self.consumption = HookedConsumption(
            hooks, group, instance.config.namespace, codec, timeout_ms, instance.clock_ms
        )
        self.keep: Keep | None = self.consumption.keep if hooks.filtering else None

    def start(self) -> None:
        """Trace from now on."""
        if self._tracing is not None:
            self._tracing.start()

    async def stop(self) -> None:
        """Send the traces that wait, for half a second at most."""
        if self._tracing is not None:
            await self._tracing.stop()
