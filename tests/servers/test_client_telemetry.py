"""Spans of the plain client's sends and handlers, on a cluster in the process: who is whose parent, and how each ends."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from threading import Event

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode, get_current_span

from rocketd.client import Message, Reject, Retry, aio, sync
from rocketd.client.opentelemetry import Telemetry
from rocketd.faststream import RocketBroker, TestRocketBroker
from rocketd.faststream.opentelemetry import RocketTelemetryMiddleware
from rocketd.testing import Cluster

SECONDS = 60


@pytest.fixture(scope="module")
def cluster():
    with Cluster(topics=["first", "second", "lists", "hard", "fast"]) as cluster:
        yield cluster


class Spans:
    def __init__(self):
        self.exporter, self.provider = InMemorySpanExporter(), TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("test")
        self.telemetry = Telemetry(self.provider)

    def named(self, name):
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    def one(self, name):
        (span,) = self.named(name)
        return span


@pytest.fixture
def spans():
    return Spans()


def is_child(span, parent):
    return (span.parent.span_id, span.context.trace_id) == (parent.context.span_id, parent.context.trace_id)


def check_chain(spans):
    """From the application's span over two topics."""
    chain = [
        spans.one(name) for name in ("order", "first publish", "first process", "second publish", "second process")
    ]
    for parent, span in pairwise(chain):
        assert is_child(span, parent), span.name
    assert [span.kind.name for span in chain] == ["INTERNAL", "PRODUCER", "CONSUMER", "PRODUCER", "CONSUMER"]
    assert all(span.status.status_code is StatusCode.UNSET for span in chain)


def test_one_trace_through_threads(cluster, spans):
    telemetry, done = spans.telemetry, Event()
    seen = []
    with sync.Producer("p", send_hooks=[telemetry.send_hook], **cluster.client_options()) as producer:

        @telemetry.handler
        def pass_on(message):
            producer.send(Message("second", message.body))

        @telemetry.handler
        def end(message):
            seen.append((get_current_span(), message.properties["traceparent"]))
            done.set()

        options = {"start": "earliest", **cluster.client_options()}
        with (
            sync.Consumer("first", topics="first", handler=pass_on, **options),
            sync.Consumer("second", topics="second", handler=end, **options),
        ):
            with spans.tracer.start_as_current_span("order"):
                producer.send(Message("first", b"one", tags="t", keys=["k"], properties={"own": "x"}))
            assert done.wait(SECONDS)
    check_chain(spans)
    ((span, text),) = seen
    assert span.name == "second process"
    sent = spans.one("second publish").context
    assert text.startswith(f"00-{sent.trace_id:032x}-{sent.span_id:016x}-")
    sent, got = spans.one("first publish").attributes, spans.one("first process").attributes
    for name in ("system", "destination.name", "destination.partition.id", "message.id"):
        assert sent[f"messaging.{name}"] == got[f"messaging.{name}"]
    assert sent["messaging.system"] == "rocketmq"
    assert sent["messaging.rocketmq.send_status"] == 0
    for attributes in (sent, got):
        assert (attributes["messaging.rocketmq.message.tag"], attributes["messaging.rocketmq.message.keys"]) == (
            "t",
            ("k",),
        )


def test_one_trace_through_coroutines(cluster, spans):
    telemetry = spans.telemetry

    async def main():
        done = asyncio.Event()
        async with aio.Producer("p", send_hooks=[telemetry.send_hook], **cluster.client_options()) as producer:

            @telemetry.handler
            async def pass_on(message):
                await asyncio.sleep(0)
                await producer.send(Message("second", message.body))

            @telemetry.handler
            async def end(message):
                done.set()

            options = {"start": "latest", **cluster.client_options()}
            async with (
                aio.Consumer("first_aio", topics="first", handler=pass_on, **options),
                aio.Consumer("second_aio", topics="second", handler=end, **options),
                asyncio.timeout(SECONDS),
            ):
                with spans.tracer.start_as_current_span("order"):
                    await producer.send(Message("first", b"one"))
                await done.wait()

    asyncio.run(main())
    check_chain(spans)


def test_batches_and_lists_name_the_spans_of_their_messages(cluster, spans):
    telemetry, done = spans.telemetry, Event()
    got = []

    @telemetry.handler
    def handle(messages):
        got.extend(messages)
        if len(got) == 3:
            done.set()

    with sync.Producer("p", send_hooks=[telemetry.send_hook], **cluster.client_options()) as producer:
        with spans.tracer.start_as_current_span("order"):
            messages = telemetry.carried([Message("lists", b"%d" % n, properties={"n": str(n)}) for n in range(3)])
        producer.send_batch(messages)
        with sync.Consumer(
            "lists", topics="lists", handler=handle, batch=3, start="earliest", **cluster.client_options()
        ):
            assert done.wait(SECONDS)
    assert [message.properties["n"] for message in got] == ["0", "1", "2"]
    order = spans.one("order")
    for span in (spans.one("lists publish"), *spans.named("lists process")):
        assert [link.context.span_id for link in span.links] == [order.context.span_id]
        assert span.parent is None
    assert spans.one("lists publish").attributes["messaging.batch.message_count"] == 3


def test_how_handlers_end(cluster, spans):
    telemetry = spans.telemetry
    answers = iter([ValueError("too hard"), Retry(reason="later"), Reject("never"), None])

    @telemetry.handler
    def raises(message):
        if (answer := next(answers)) is not None:
            raise answer

    @telemetry.handler
    def returns(message):
        return Retry(reason="returned")

    with (
        sync.Producer("p", **cluster.client_options()) as producer,
        sync.LitePullConsumer("hard", topics="hard", start="earliest", **cluster.client_options()) as consumer,
    ):
        producer.send(Message("hard", b"one"))
        (message,) = consumer.poll(SECONDS)
    for kind in (ValueError, Retry, Reject):
        with pytest.raises(kind):
            raises(message)
    raises(message)
    assert isinstance(returns(message), Retry)
    # A plain function may return what is to be awaited, which runs within the span, too.
    asyncio.run(telemetry.handler(lambda _: span_of_now())(message))
    with telemetry.processing(message) as span:
        assert get_current_span() is span
    with pytest.raises(LookupError), telemetry.processing([message]):
        raise LookupError
    failed, retried, rejected, done, returned, awaited, iterated, listed = spans.named("hard process")
    assert (failed.attributes["error.type"], failed.status.status_code) == ("ValueError", StatusCode.ERROR)
    assert failed.status.description == "ValueError: too hard"
    for span, event, reason in (
        (retried, "retry", "later"),
        (rejected, "reject", "never"),
        (returned, "retry", "returned"),
    ):
        assert [(each.name, each.attributes["reason"]) for each in span.events] == [(event, reason)]
        assert span.status.status_code is StatusCode.UNSET
    assert done.events == iterated.events == ()
    assert [each.name for each in awaited.events] == ["now"]
    assert listed.attributes["error.type"] == "LookupError"


async def span_of_now():
    get_current_span().add_event("now")


def test_sends_that_wait_for_no_answer(cluster, spans):
    with sync.Producer("p", send_hooks=[spans.telemetry.send_hook], **cluster.client_options()) as producer:
        producer.send_oneway(Message("first", b"perhaps"))
    sent = spans.one("first publish")
    assert sent.status.status_code is StatusCode.UNSET
    assert "messaging.rocketmq.send_status" not in sent.attributes


def test_each_try_is_a_span(cluster, spans):
    options = cluster.client_options()
    with (
        ThreadPoolExecutor(1) as pool,
        sync.Producer("p", send_hooks=[spans.telemetry.send_hook], **options) as producer,
    ):
        producer.send(Message("first", b"one"))
        cluster.kill()
        sending = pool.submit(producer.send, Message("first", b"two"), timeout=1)
        try:
            assert sending.exception(SECONDS) is not None
        finally:
            cluster.restart()
    good, *bad = spans.named("first publish")
    assert good.status.status_code is StatusCode.UNSET
    assert bad
    assert {span.status.status_code for span in bad} == {StatusCode.ERROR}
    assert all(span.attributes["error.type"].endswith("Error") for span in bad)


def test_the_same_trace_goes_on_in_faststream(cluster, spans):
    broker = RocketBroker(
        group="fast", logger=None, middlewares=[RocketTelemetryMiddleware(tracer_provider=spans.provider)]
    )
    seen = asyncio.Event()

    @broker.subscriber("fast")
    async def handle(text: str):
        seen.set()

    async def main():
        async with asyncio.timeout(SECONDS), TestRocketBroker(broker, cluster=cluster):
            hooks = [spans.telemetry.send_hook]
            async with aio.Producer("p", send_hooks=hooks, **cluster.client_options()) as producer:
                await producer.send(Message("fast", b"text"))
            await seen.wait()

    asyncio.run(main())
    assert spans.one("fast process").context.trace_id == spans.one("fast publish").context.trace_id
