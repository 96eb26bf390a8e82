"""Spans and metrics of the plain client's sends and handlers, on a cluster in the process."""

import ast
import asyncio
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from threading import Event

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import messaging_attributes
from opentelemetry.semconv._incubating.metrics import messaging_metrics
from opentelemetry.semconv.attributes import error_attributes, server_attributes
from opentelemetry.trace import StatusCode, get_current_span

from rocketd.client import Message, Reject, Retry, RocketMQError, aio, sync
from rocketd.client.opentelemetry import Telemetry
from rocketd.faststream import RocketBroker, TestRocketBroker
from rocketd.faststream.opentelemetry import RocketTelemetryMiddleware
from rocketd.testing import Cluster
from tests.support.store_wire import await_condition

SECONDS = 60


@pytest.fixture(scope="module")
def cluster():
    with Cluster(topics=["first", "second", "lists", "hard", "fast", "gauged", "measured"]) as cluster:
        yield cluster


class Spans:
    def __init__(self):
        self.exporter, self.provider = InMemorySpanExporter(), TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("test")
        self.reader = InMemoryMetricReader()
        self.telemetry = Telemetry(self.provider, MeterProvider([self.reader]))

    def metrics(self):
        """The metrics collected now, by name."""
        collected = self.reader.get_metrics_data()
        found = {} if collected is None else collected.resource_metrics[0].scope_metrics
        return {metric.name: metric for scope in found for metric in scope.metrics}

    def points(self, name):
        """The points of a metric: for each its number, and its attributes without the common ones."""
        points = self.metrics()[name].data.data_points
        return [(getattr(one, "value", getattr(one, "count", None)), dict(one.attributes)) for one in points]

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
    chain = [spans.one(name) for name in ("order", "send first", "process first", "send second", "process second")]
    for parent, span in pairwise(chain):
        assert is_child(span, parent), span.name
    assert [span.kind.name for span in chain] == ["INTERNAL", "PRODUCER", "CONSUMER", "PRODUCER", "CONSUMER"]
    assert all(span.status.status_code is StatusCode.UNSET for span in chain)


def test_trace_continues_through_threads(cluster, spans):
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

        options = {"begin": "earliest", **cluster.client_options()}
        with (
            sync.Consumer("first", topics="first", handler=pass_on, **options),
            sync.Consumer("second", topics="second", handler=end, **options),
        ):
            with spans.tracer.start_as_current_span("order"):
                producer.send(Message("first", b"one", tags="t", keys=["k"], properties={"own": "x"}))
            assert done.wait(SECONDS)
    check_chain(spans)
    ((span, text),) = seen
    assert span.name == "process second"
    sent = spans.one("send second").context
    assert text.startswith(f"00-{sent.trace_id:032x}-{sent.span_id:016x}-")
    sent, got = spans.one("send first").attributes, spans.one("process first").attributes
    for name in ("system", "destination.name", "destination.partition.id", "message.id"):
        assert sent[f"messaging.{name}"] == got[f"messaging.{name}"]
    assert sent["messaging.system"] == "rocketmq"
    assert sent["rocketd.send.status"] == "SEND_OK"
    assert (sent["server.address"], sent["messaging.message.body.size"]) == ("127.0.0.1", 3)
    for attributes in (sent, got):
        assert (attributes["messaging.rocketmq.message.tag"], attributes["messaging.rocketmq.message.keys"]) == (
            "t",
            ("k",),
        )


def test_trace_continues_through_coroutines(cluster, spans):
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

            options = {"begin": "latest", **cluster.client_options()}
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
            "lists", topics="lists", handler=handle, batch=3, begin="earliest", **cluster.client_options()
        ):
            assert done.wait(SECONDS)
    assert [message.properties["n"] for message in got] == ["0", "1", "2"]
    order = spans.one("order")
    for span in (spans.one("send lists"), *spans.named("process lists")):
        assert [link.context.span_id for link in span.links] == [order.context.span_id]
        assert span.parent is None
    assert spans.one("send lists").attributes["messaging.batch.message_count"] == 3


def test_span_of_handler_has_its_outcome(cluster, spans):
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
        sync.LitePullConsumer("hard", topics="hard", begin="earliest", **cluster.client_options()) as consumer,
    ):
        producer.send(Message("hard", b"one"))
        (message,) = consumer.poll(SECONDS)
    for kind in (ValueError, Retry, Reject):
        with pytest.raises(kind):
            raises(message)
    raises(message)
    assert isinstance(returns(message), Retry)
    # A plain function may return an awaitable, which runs within the span, too.
    asyncio.run(telemetry.handler(lambda _: span_of_now())(message))
    with telemetry.processing(message) as span:
        assert get_current_span() is span
    with pytest.raises(LookupError), telemetry.processing([message]):
        raise LookupError
    failed, retried, rejected, done, returned, awaited, iterated, listed = spans.named("process hard")
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


def test_oneway_sends_have_a_span_without_status(cluster, spans):
    with sync.Producer("p", send_hooks=[spans.telemetry.send_hook], **cluster.client_options()) as producer:
        producer.send_oneway(Message("first", b"perhaps"))
    sent = spans.one("send first")
    assert sent.status.status_code is StatusCode.UNSET
    assert "rocketd.send.status" not in sent.attributes


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
    good, *bad = spans.named("send first")
    assert good.status.status_code is StatusCode.UNSET
    assert bad
    assert {span.status.status_code for span in bad} == {StatusCode.ERROR}
    assert all(span.attributes["error.type"].endswith("Error") for span in bad)


def test_trace_continues_in_faststream(cluster, spans):
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
    assert spans.one("fast process").context.trace_id == spans.one("send fast").context.trace_id


def names_of(*modules):
    """The names in modules of the conventions that are not deprecated."""
    names = set()
    for module in modules:
        body = ast.parse(Path(module.__file__).read_text()).body
        for declared, text in pairwise(body):
            if isinstance(declared, ast.AnnAssign) and not text.value.value.strip().startswith("Deprecated"):
                names.add(declared.value.value)
    return names


def sent_and_handled(cluster, spans):
    """Send to a topic and handle: good and bad messages, alone and as a list."""
    telemetry = spans.telemetry

    @telemetry.handler
    def raises(message):
        raise LookupError

    with (
        sync.Producer("p", send_hooks=[telemetry.send_hook], retries=0, **cluster.client_options()) as producer,
        sync.LitePullConsumer("m", topics="measured", begin="earliest", **cluster.client_options()) as consumer,
    ):
        producer.send(Message("measured", b"one", tags="t", keys=["k"]))
        producer.send_batch([Message("measured", b"two"), Message("measured", b"three")])
        with cluster.drop("send", times=1, what="connection"), pytest.raises(RocketMQError):
            producer.send(Message("measured", b"lost"))
        got = []
        while len(got) < 3:
            got += consumer.poll(SECONDS)
        with telemetry.processing(got, group="m"):
            pass
        with pytest.raises(LookupError):
            raises(got[0])


def test_names_and_units_are_those_of_the_conventions(cluster, spans):
    sent_and_handled(cluster, spans)
    known = names_of(messaging_attributes, error_attributes, server_attributes)
    finished = spans.exporter.get_finished_spans()
    used = {name for span in finished for name in span.attributes}
    metrics = spans.metrics()
    used |= {name for metric in metrics.values() for point in metric.data.data_points for name in point.attributes}
    assert {name for name in used if not name.startswith("rocketd.")} - known == set()
    assert {"messaging.operation.name", "messaging.operation.type", "messaging.consumer.group.name"} < used
    assert metrics.keys() == names_of(messaging_metrics)
    assert {name: metric.unit for name, metric in metrics.items()} == {
        "messaging.client.operation.duration": "s",
        "messaging.process.duration": "s",
        "messaging.client.sent.messages": "{message}",
        "messaging.client.consumed.messages": "{message}",
    }
    assert {span.kind.name for span in finished if span.name == "send measured"} == {"PRODUCER", "CLIENT"}


def test_sends_and_handlers_are_measured(cluster, spans):
    sent_and_handled(cluster, spans)
    for name, counts, more in (
        ("messaging.client.sent.messages", (3, 1), {}),
        ("messaging.client.operation.duration", (2, 1), {"messaging.operation.type": "send"}),
    ):
        good, bad = sorted(spans.points(name), key=lambda point: len(point[1]))
        assert (good[0], bad[0]) == counts, name
        error = bad[1].pop("error.type")
        assert error.endswith("Error")
        port = good[1].pop("server.port")
        assert bad[1].pop("server.port") == port > 0
        assert (
            good[1]
            == bad[1]
            == {
                "messaging.system": "rocketmq",
                "messaging.operation.name": "send",
                "messaging.destination.name": "measured",
                "server.address": "127.0.0.1",
                **more,
            }
        )
    common = {
        "messaging.system": "rocketmq",
        "messaging.operation.name": "process",
        "messaging.destination.name": "measured",
    }
    of_group, failed = {**common, "messaging.consumer.group.name": "m"}, {**common, "error.type": "LookupError"}
    by_attributes = sorted(spans.points("messaging.client.consumed.messages"), key=lambda point: -point[0])
    assert by_attributes[0][1] == of_group
    assert by_attributes[0][0] >= 3
    assert by_attributes[1:] == [(1, failed)]
    handled = sorted(spans.points("messaging.process.duration"), key=lambda point: "error.type" in point[1])
    assert handled == [(1, of_group), (1, failed)]


def test_gauges_have_the_numbers_and_the_lag_of_clients(cluster, spans):
    options = cluster.client_options()
    with (
        sync.Producer("p", **options) as producer,
        sync.LitePullConsumer("g", topics="gauged", begin="earliest", **options) as consumer,
    ):
        spans.telemetry.observe(producer)
        spans.telemetry.observe(consumer, lag=True)
        producer.send(Message("gauged", b"one"))
        await_condition("the message in its queue", lambda: sum(consumer.lag().values()) == 1)
        consumers = {"messaging.system": "rocketmq", "messaging.consumer.group.name": "g"}
        lag = [(1, {**consumers, "messaging.destination.name": "gauged"})]
        await_condition(
            "the lag of a collection",
            lambda: "rocketd.consumer.lag" in spans.metrics() and spans.points("rocketd.consumer.lag") == lag,
        )
        assert spans.points("rocketd.producer.in_flight") == [
            (0, {"messaging.system": "rocketmq", "rocketd.producer.group.name": "p"})
        ]
        assert spans.points("rocketd.consumer.queues") == [(len(consumer.queues()), consumers)]
    assert "rocketd.consumer.queues" not in spans.metrics()
