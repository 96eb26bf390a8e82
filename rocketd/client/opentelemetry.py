"""OpenTelemetry's spans and metrics for sends and handlers of all faces. The trace context travels in message properties.

Apache's traces are messages of a topic instead (``trace=True``). This module needs ``rocketd[opentelemetry]``, which is the
API alone: the application sets up an SDK to choose the spans to keep and their destination. The context has W3C's names
``traceparent`` and ``tracestate``, unless the application has set other propagators. Names are those of OpenTelemetry's
conventions for messaging; those that begin with ``rocketd`` are our own.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from inspect import isawaitable
from time import perf_counter
from typing import Any, Final, TypeVar

from msgspec.structs import replace
from opentelemetry import propagate
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import (
    Link,
    Span,
    SpanKind,
    Status,
    StatusCode,
    Tracer,
    TracerProvider,
    get_current_span,
    get_tracer,
    set_span_in_context,
    use_span,
)

from rocketd.client.consumer.retries.handler_results import Reject, Retry
from rocketd.client.errors import StopConsuming
from rocketd.client.hooks import ProducerHook, SendMessageContext
from rocketd.client.measured import Measured
from rocketd.client.messages.message import Message, ReceivedMessage, SendResult, T
from rocketd.client.opentelemetry_metrics import ERROR, GROUP, SYSTEM, TOPIC, Attributes, MessagingMeter
from rocketd.client.runtime.listeners import is_coroutine_function
from rocketd.client.trace.records import MessageType

_TYPES: Final = {
    MessageType.NORMAL: "normal",
    MessageType.DELAY: "delay",
    MessageType.TRANSACTION_HALF: "transaction",
}

Listener = TypeVar("Listener", bound=Callable[..., Any])
Received = ReceivedMessage[Any] | Sequence[ReceivedMessage[Any]]

_ANSWERS: Final = {Retry: "retry", Reject: "reject", StopConsuming: "left"}
"""Results of a handler other than errors, and the event for each."""


def message_attributes(tag: str | None, keys: Sequence[str]) -> Attributes:
    """Return the attributes of a message specific to RocketMQ."""
    attributes: Attributes = {}
    if tag:
        attributes["messaging.rocketmq.message.tag"] = tag
    if keys:
        attributes["messaging.rocketmq.message.keys"] = list(keys)
    return attributes


def partition_id(broker_name: str, queue_id: int) -> str:
    """Return the name of a queue of a topic."""
    return f"{broker_name}-{queue_id}"


class Telemetry:
    """Makes the spans and metrics of one application. Any thread may call it.

    ``Producer(send_hooks=[telemetry.send_hook])`` makes a span of each try of a send, and the message carries its context.
    ``Consumer(handler=telemetry.handler(function))`` makes a span of each handling. The handler runs within it, so its sends
    belong to the same trace. Both are measured as well, and ``observe`` makes gauges of clients. The default of
    ``tracer_provider`` and ``meter_provider`` is the application's global one.
    """

    def __init__(
        self, tracer_provider: TracerProvider | None = None, meter_provider: MeterProvider | None = None
    ) -> None:
        self._tracer = get_tracer("rocketd.client", tracer_provider=tracer_provider)
        self._meter = MessagingMeter(meter_provider)
        self.send_hook: ProducerHook = _SendHook(self._tracer, self._meter)

    def observe(self, *clients: Measured, lag: bool = False) -> None:
        """Make gauges of these clients, by group: sends under way, messages not yet handled, queues.

        With ``lag``, each collection also has the lag of consumers by topic, and asks the brokers for that of the next
        one: a request for each queue. Clients are forgotten when the application drops them.
        """
        self._meter.observe(*clients, lag=lag)

    def carried(self, messages: Sequence[Message[T]]) -> list[Message[T]]:
        """Return messages with the context of the caller's span.

        This is for ``send_batch``, because hooks cannot change the messages of a batch.
        """
        carrier: dict[str, str] = {}
        propagate.inject(carrier)
        return [replace(message, properties={**message.properties, **carrier}) for message in messages]

    def handler(self, function: Listener, *, group: str | None = None) -> Listener:
        """Return a handler that runs within a span. It may be a plain or coroutine function, also of lists of messages.

        ``group`` is the consumer group, for the attribute of this name.
        """

        @wraps(function)
        def handle(received: Received) -> Any:
            operation = self._begin(received, group)
            with operation.under_way():
                answer = function(received)
            if isawaitable(answer):
                return finish(operation, answer)
            operation.end(answer)
            return answer

        async def finish(operation: _Operation, awaitable: Any) -> Any:
            with operation.under_way():
                answer = await awaitable
            operation.end(answer)
            return answer

        @wraps(function)
        async def handle_in_loop(received: Received) -> Any:
            return await finish(self._begin(received, group), function(received))

        return handle_in_loop if is_coroutine_function(function) else handle  # type: ignore[return-value]

    @contextmanager
    def processing(self, received: Received, *, group: str | None = None) -> Iterator[Span]:
        """Handle one or several messages within a span, when iterating or polling."""
        operation = self._begin(received, group)
        with operation.under_way():
            yield operation.span
        operation.end(None)

    def _begin(self, received: Received, group: str | None) -> "_Operation":
        single = isinstance(received, ReceivedMessage)
        messages = [received] if isinstance(received, ReceivedMessage) else received
        first, count = messages[0], len(messages)
        topic = first.topic
        measured: Attributes = {TOPIC: topic}
        if group is not None:
            measured[GROUP] = group
        attributes: Attributes = {**measured, **_operation("process")}
        links: list[Link] = []
        context = None
        if single:
            context = propagate.extract(first.properties)
            attributes["messaging.destination.partition.id"] = partition_id(
                first.queue.broker_name, first.queue.queue_id
            )
            attributes["messaging.message.id"] = first.msg_id
            attributes["rocketd.message.reconsume_times"] = first.reconsume_times
            attributes |= message_attributes(first.tags, first.keys)
        else:
            # They may come from different traces. The span links to all of them, and begins a new trace.
            links = _links(messages)
            attributes["messaging.batch.message_count"] = count
        span = self._tracer.start_span(f"process {topic}", context, SpanKind.CONSUMER, attributes, links)
        return _Operation(span, self._meter.processed, count, measured)


class _Operation:
    """A send or a handling under way: its span, and what ``record`` gets at the end."""

    def __init__(
        self, span: Span, record: Callable[[float, int, Attributes], None], count: int, measured: Attributes
    ) -> None:
        self.span = span
        self._record = record
        self._count = count
        self._measured = measured
        self._began = perf_counter()

    @contextmanager
    def under_way(self) -> Iterator[None]:
        """Make its span the current one. Only an exception ends it here."""
        try:
            with use_span(self.span, record_exception=False, set_status_on_exception=False):
                yield
        except BaseException as error:
            self.end(error)
            raise

    def end(self, outcome: object) -> None:
        """End it with the outcome: an exception, a result for another delivery, or success."""
        seconds = perf_counter() - self._began
        for kind, event in _ANSWERS.items():
            if isinstance(outcome, kind):
                self.span.add_event(event, {"reason": str(outcome)})
                break
        else:
            if isinstance(outcome, BaseException):
                name = type(outcome).__qualname__
                self._measured[ERROR] = name
                self.span.set_attribute(ERROR, name)
                self.span.record_exception(outcome)
                self.span.set_status(Status(StatusCode.ERROR, f"{type(outcome).__name__}: {outcome}"))
        self.span.end()
        self._record(seconds, self._count, self._measured)


class _SendHook(ProducerHook):
    """Makes a span of each try. Reactor thread, with the context of the producer's caller."""

    def __init__(self, tracer: Tracer, meter: MessagingMeter) -> None:
        self._tracer = tracer
        self._meter = meter

    def send_before(self, context: SendMessageContext) -> None:
        """Begin the span, and add its context to the message. For a batch, link to the spans of its messages."""
        queue, first, count = context.queue, context.messages[0], len(context.messages)
        measured: Attributes = {TOPIC: queue.topic, **_server(context.broker_address)}
        attributes: Attributes = {
            **measured,
            **_operation("send"),
            "messaging.destination.partition.id": partition_id(queue.broker_name, queue.queue_id),
            "messaging.message.body.size": context.body_length,
        }
        if count > 1:
            # A span whose context no message has is one of a client.
            kind, links = SpanKind.CLIENT, _links(context.messages)
            attributes["messaging.batch.message_count"] = count
        else:
            kind, links = SpanKind.PRODUCER, []
            attributes["messaging.message.id"] = context.msg_id
            if (known := _TYPES.get(context.message_type)) is not None:
                attributes["messaging.rocketmq.message.type"] = known
            attributes |= message_attributes(first.tags, first.keys)
        span = self._tracer.start_span(f"send {queue.topic}", None, kind, attributes, links)
        context.state[self] = _Operation(span, self._meter.sent, count, measured)
        if count == 1:
            propagate.inject(context.properties, set_span_in_context(span))

    def send_after(self, context: SendMessageContext) -> None:
        """End the span."""
        operation: _Operation = context.state[self]
        if isinstance(context.result, SendResult):
            operation.span.set_attribute("rocketd.send.status", context.result.status.name)
        operation.end(context.error)


def _operation(name: str) -> Attributes:
    return {"messaging.system": SYSTEM, "messaging.operation.name": name, "messaging.operation.type": name}


def _server(address: str) -> Attributes:
    host, _, port = address.rpartition(":")
    return {"server.address": host.strip("[]"), "server.port": int(port)}


def _links(messages: Sequence[Message[Any] | ReceivedMessage[Any]]) -> list[Link]:
    contexts = (get_current_span(propagate.extract(each.properties)).get_span_context() for each in messages)
    return [Link(each) for each in {each.span_id: each for each in contexts}.values() if each.is_valid]
