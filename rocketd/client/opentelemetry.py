"""OpenTelemetry's spans for sends and handlers of all faces, and the context of a trace in the properties of messages.

No counterpart in Apache, whose own traces are messages of a topic (``trace=True``). It needs ``rocketd[opentelemetry]``,
which is the API alone: which spans are kept, and where they go, is the application's to set up with an SDK. The context
travels by W3C's names, ``traceparent`` and ``tracestate``, unless the application has set other propagators. Attributes have
the names of OpenTelemetry's conventions.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from inspect import isawaitable
from typing import Any, Final, TypeVar

from msgspec.structs import replace
from opentelemetry import propagate
from opentelemetry.trace import (
    Link,
    Span,
    SpanKind,
    Status,
    StatusCode,
    TracerProvider,
    get_current_span,
    get_tracer,
    set_span_in_context,
    use_span,
)

from rocketd.client.consumer.outcome import Reject, Retry
from rocketd.client.errors import StopConsuming
from rocketd.client.hooks import ProducerHook, SendMessageContext
from rocketd.client.listeners import is_coroutine_function
from rocketd.client.message import Message, ReceivedMessage, SendResult, T

SYSTEM: Final = "rocketmq"
"""What this messaging system is called in attributes."""

Listener = TypeVar("Listener", bound=Callable[..., Any])
Received = ReceivedMessage[Any] | Sequence[ReceivedMessage[Any]]

_ANSWERS: Final = {Retry: "retry", Reject: "reject", StopConsuming: "left"}
"""What a handler raises or returns that is no error, and the event that it makes."""


def message_attributes(tag: str | None, keys: Sequence[str]) -> dict[str, Any]:
    """Return the attributes of a message that only RocketMQ has."""
    attributes: dict[str, Any] = {}
    if tag:
        attributes["messaging.rocketmq.message.tag"] = tag
    if keys:
        attributes["messaging.rocketmq.message.keys"] = list(keys)
    return attributes


def partition_id(broker_name: str, queue_id: int) -> str:
    """Return what names a queue of a topic."""
    return f"{broker_name}-{queue_id}"


class Telemetry:
    """Makes the spans of one application. Any thread may call it.

    ``Producer(send_hooks=[telemetry.send_hook])`` makes a span of each try of a send, which the message takes along;
    ``Consumer(handler=telemetry.handler(function))`` one of each handling, within which the handler runs: what it sends
    belongs to the same trace. ``tracer_provider`` is the one that the application has set, unless another is given.
    """

    def __init__(self, tracer_provider: TracerProvider | None = None) -> None:
        self._tracer = get_tracer("rocketd.client", tracer_provider=tracer_provider)
        self.send_hook: ProducerHook = _SendHook(self._start)

    def carried(self, messages: Sequence[Message[T]]) -> list[Message[T]]:
        """Return messages that take the caller's span along: for ``send_batch``, whose messages no hook can change."""
        carrier: dict[str, str] = {}
        propagate.inject(carrier)
        return [replace(message, properties={**message.properties, **carrier}) for message in messages]

    def handler(self, function: Listener) -> Listener:
        """Make a handler, a plain or a coroutine function, one that runs within a span; also of lists of messages."""

        @wraps(function)
        def handle(received: Received) -> Any:
            span = self._begin(received)
            with _within(span):
                answer = function(received)
            if isawaitable(answer):
                return finish(span, answer)
            _end(span, answer)
            return answer

        async def finish(span: Span, awaitable: Any) -> Any:
            with _within(span):
                answer = await awaitable
            _end(span, answer)
            return answer

        @wraps(function)
        async def handle_in_loop(received: Received) -> Any:
            return await finish(self._begin(received), function(received))

        return handle_in_loop if is_coroutine_function(function) else handle  # type: ignore[return-value]

    @contextmanager
    def processing(self, received: Received) -> Iterator[Span]:
        """Handle a message, or several, within a span: for whoever iterates or polls."""
        span = self._begin(received)
        with _within(span):
            yield span
        _end(span, None)

    def _begin(self, received: Received) -> Span:
        if isinstance(received, ReceivedMessage):
            context = propagate.extract(received.properties)
            queue = received.queue
            return self._start(
                f"{received.topic} process",
                SpanKind.CONSUMER,
                {
                    "messaging.operation": "process",
                    "messaging.destination.name": received.topic,
                    "messaging.destination.partition.id": partition_id(queue.broker_name, queue.queue_id),
                    "messaging.message.id": received.msg_id,
                    "messaging.rocketmq.message.reconsume_times": received.reconsume_times,
                    **message_attributes(received.tags, received.keys),
                },
                context,
            )
        # Several may come from as many traces: the span names them all, and begins one of its own.
        topic = received[0].topic
        attributes = {
            "messaging.operation": "process",
            "messaging.destination.name": topic,
            "messaging.batch.message_count": len(received),
        }
        return self._start(f"{topic} process", SpanKind.CONSUMER, attributes, links=_links(received))

    def _start(
        self, name: str, kind: SpanKind, attributes: dict[str, Any], context: Any = None, links: Sequence[Link] = ()
    ) -> Span:
        return self._tracer.start_span(name, context, kind, {"messaging.system": SYSTEM, **attributes}, links)


class _SendHook(ProducerHook):
    """Makes a span of each try. Reactor thread, with the context of whoever has called the producer."""

    def __init__(self, start: Callable[..., Span]) -> None:
        self._start = start

    def send_before(self, context: SendMessageContext) -> None:
        """Begin the span, and give it to the message; of a batch, name the spans that its messages have."""
        queue, first = context.queue, context.messages[0]
        attributes: dict[str, Any] = {
            "messaging.operation": "publish",
            "messaging.destination.name": queue.topic,
            "messaging.destination.partition.id": partition_id(queue.broker_name, queue.queue_id),
            "messaging.message.payload_size_bytes": context.body_length,
            "server.address": context.broker_address,
        }
        count = len(context.messages)
        links: list[Link] = []
        if count > 1:
            attributes["messaging.batch.message_count"] = count
            links = _links(context.messages)
        else:
            attributes["messaging.message.id"] = context.msg_id
            attributes |= message_attributes(first.tags, first.keys)
        span = self._start(f"{queue.topic} publish", SpanKind.PRODUCER, attributes, links=links)
        context.state[self] = span
        if count == 1:
            propagate.inject(context.properties, set_span_in_context(span))

    def send_after(self, context: SendMessageContext) -> None:
        """End the span."""
        span: Span = context.state[self]
        if isinstance(context.result, SendResult):
            span.set_attribute("messaging.rocketmq.send_status", context.result.status)
        _end(span, context.error)


def _links(messages: Sequence[Message[Any] | ReceivedMessage[Any]]) -> list[Link]:
    contexts = (get_current_span(propagate.extract(each.properties)).get_span_context() for each in messages)
    return [Link(each) for each in {each.span_id: each for each in contexts}.values() if each.is_valid]


@contextmanager
def _within(span: Span) -> Iterator[None]:
    """Make a span the current one; it is ended here only by an exception."""
    try:
        with use_span(span, record_exception=False, set_status_on_exception=False):
            yield
    except BaseException as error:
        _end(span, error)
        raise


def _end(span: Span, outcome: Any) -> None:
    """End a span as what it is of has ended: by an exception, by what says that a message comes again, or well."""
    for kind, event in _ANSWERS.items():
        if isinstance(outcome, kind):
            span.add_event(event, {"reason": str(outcome)})
            break
    else:
        if isinstance(outcome, BaseException):
            span.set_attribute("error.type", type(outcome).__qualname__)
            span.record_exception(outcome)
            span.set_status(Status(StatusCode.ERROR, f"{type(outcome).__name__}: {outcome}"))
    span.end()
