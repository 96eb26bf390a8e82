"""Have one trace of OpenTelemetry's go through a message: from the span that sends it to what its handler does."""

import asyncio
import sys

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from rocketd.client import Message, ReceivedMessage
from rocketd.client.aio import Consumer, Producer
from rocketd.client.opentelemetry import Telemetry

CLUSTER = sys.argv[1:]  # name servers; none given: those of NAMESRV_ADDR

# Of a real application: an exporter that sends spans to a collector.
spans = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))
trace.set_tracer_provider(provider)
tracer = trace.get_tracer("example")
telemetry = Telemetry()


async def main() -> None:
    """Order something, and bake it."""
    baked = asyncio.Event()

    @telemetry.handler
    async def bake(message: ReceivedMessage) -> None:
        with tracer.start_as_current_span(f"bake {message.body.decode()}"):
            baked.set()

    async with Producer("example_spans_producer", CLUSTER, send_hooks=[telemetry.send_hook]) as producer:
        with tracer.start_as_current_span("order"):
            await producer.send(Message("ExampleSpans", b"a cake"))
    async with Consumer("example_spans", CLUSTER, topics="ExampleSpans", begin="earliest", handler=bake):
        await baked.wait()

    finished = spans.get_finished_spans()
    names = {span.context.span_id: span.name for span in finished if span.context}
    for span in finished:
        print(span.name, "within", names[span.parent.span_id] if span.parent else None)


asyncio.run(main())
