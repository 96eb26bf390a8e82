"""Calls a consumer's hooks: around its handler, and as a filter of pulled messages.

Counterpart: `executeHookBefore` and `executeHookAfter` of `DefaultMQPushConsumerImpl`, `executeHook` of `PullAPIWrapper`
(Apache). Reactor thread.
"""

from collections.abc import Callable, Sequence
from math import inf
from random import Random
from typing import Any

from rocketd.client.consumer.handling.tracing import ConsumerTracing
from rocketd.client.consumer.options.member_options import MemberOptions
from rocketd.client.consumer.pulling.queue_puller import Keep
from rocketd.client.consumer.retries.handler_results import Reject, Retry
from rocketd.client.errors import IllegalMessageError, StopConsuming
from rocketd.client.hooks import ConsumeMessageContext, ConsumerHooks, FilterMessageContext
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.client.messages.codec import Codec
from rocketd.client.messages.lease import LEASE
from rocketd.client.messages.message import ReceivedMessage
from rocketd.client.messages.namespace import without_namespace
from rocketd.client.messages.received import received_message
from rocketd.client.producer.tracing import Tracing
from rocketd.client.trace.records import ConsumeReturnType
from rocketd.remoting.bodies.tables import MessageQueue
from rocketd.store.format.record import MessageExt


class HookedConsumption:
    """The hooks of one consumer. ``group`` has its namespace.

    A handler running for ``timeout_ms`` or longer has timed out, even if it consumed the messages.
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

    @property
    def present(self) -> bool:
        """Whether there are hooks around the handler."""
        return self._hooks.consuming

    def begin(self, queue: MessageQueue, messages: Sequence[ReceivedMessage[Any]]) -> ConsumeMessageContext | None:
        """Call the hooks before the handler, and return the context for ``end``. Return None without hooks."""
        if not self.present:
            return None
        context = ConsumeMessageContext(
            group=self._group, messages=messages, queue=self._bare(queue), state={self: self._clock_ms()}
        )
        self._hooks.consume_before(context)
        return context

    def end(self, context: ConsumeMessageContext | None, consumed: bool, error: BaseException | None) -> None:
        """Call the hooks after the handler. ``error`` is its exception, or the Retry or Reject it returned."""
        if context is None:
            return
        context.success = consumed
        context.error = error
        now_ms = self._clock_ms()
        leases = [message.__dict__.get(LEASE) for message in context.messages]
        extended = any(lease is not None and lease.is_extended(now_ms) for lease in leases)
        context.return_type = self._return_type(consumed, error, 0 if extended else now_ms - context.state[self])
        self._hooks.consume_after(context)

    def _return_type(self, consumed: bool, error: BaseException | None, took_ms: float) -> ConsumeReturnType:
        if error is not None and not isinstance(error, Retry | Reject | StopConsuming):
            return ConsumeReturnType.EXCEPTION
        if took_ms >= self._timeout_ms:
            return ConsumeReturnType.TIME_OUT
        return ConsumeReturnType.SUCCESS if consumed else ConsumeReturnType.FAILED

    def keep(self, queue: MessageQueue, records: Sequence[MessageExt]) -> list[MessageExt]:
        """Return the records that hooks do not remove. Hooks do not see unreadable records, which stay."""
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
    """The hooks in a consumer's options, and a tracing hook from ``start`` to ``stop`` if option ``trace`` is set.

    ``group`` has its namespace. ``keep`` filters pulled records; None keeps all.
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
        """Start tracing."""
        if self._tracing is not None:
            self._tracing.start()

    async def stop(self) -> None:
        """Send the waiting traces, for half a second at most."""
        if self._tracing is not None:
            await self._tracing.stop()
