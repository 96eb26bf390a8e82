"""Metrics and spans of FastStream's middlewares for Prometheus and OpenTelemetry, on a cluster in the process."""

import asyncio

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry

from rocketd.faststream import RocketBroker, TestRocketBroker
from rocketd.faststream.opentelemetry import RocketTelemetryMiddleware
from rocketd.faststream.prometheus import RocketPrometheusMiddleware
from rocketd.testing import Cluster


@pytest.fixture(scope="module")
def cluster():
    with Cluster() as cluster:
        yield cluster


def application(middleware):
    broker = RocketBroker(group="telemetry", logger=None, middlewares=[middleware])

    @broker.subscriber("measured")
    @broker.publisher("passed_on")
    async def double(n: int):
        return 2 * n

    @broker.subscriber("passed_on")
    async def end(n: int):
        pass

    @broker.subscriber("lists", batch=True, group="telemetry_lists")
    async def lists(numbers: list[int]):
        pass

    return broker


def run(broker, cluster):
    async def main():
        async with asyncio.timeout(60), TestRocketBroker(broker, cluster=cluster):
            await broker.publish(3, "measured", tags="t", keys=["k"])
            await broker.publish_batch(1, 2, topic="lists")
            with pytest.raises(ValueError, match="int"):
                await broker.publish("no number", "passed_on")

    asyncio.run(main())


def test_prometheus(cluster):
    registry = CollectorRegistry()
    run(application(RocketPrometheusMiddleware(registry=registry, app_name="app")), cluster)

    def value(name, **labels):
        return registry.get_sample_value(
            f"faststream_{name}_total", {"app_name": "app", "broker": "rocketmq", **labels}
        )

    assert value("received_messages", handler="measured") == 1
    assert value("received_messages", handler="lists") == 2
    assert value("published_messages", destination="lists", status="success") == 2
    assert value("published_messages", destination="passed_on", status="success") == 1
    assert value("received_processed_messages", handler="passed_on", status="acked") == 1
    assert value("received_processed_messages_exceptions", handler="passed_on", exception_type="ValidationError") == 1


def test_spans(cluster):
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    run(application(RocketTelemetryMiddleware(tracer_provider=provider)), cluster)
    spans = {span.name: span for span in exporter.get_finished_spans()}
    first = spans["measured create"]
    assert first.attributes["messaging.rocketmq.message.keys"] == ("k",)
    assert first.attributes["messaging.rocketmq.message.tag"] == "t"
    # One trace from the first message to the messages published by its handler.
    for name in ("measured publish", "measured process"):
        assert spans[name].context.trace_id == first.context.trace_id
    processes = [span for span in exporter.get_finished_spans() if span.name == "passed_on process"]
    assert first.context.trace_id in {span.context.trace_id for span in processes}
    assert spans["measured process"].attributes["messaging.system"] == "rocketmq"
    assert spans["measured process"].attributes["messaging.destination.partition.id"].startswith("broker-a-")
    lists = [span for span in exporter.get_finished_spans() if span.name == "lists process"]
    assert sum(span.attributes["messaging.batch.message_count"] for span in lists) == 2
    published = spans["lists publish"].context.trace_id
    created = [span for span in exporter.get_finished_spans() if span.name == "lists create" and span.links]
    assert {link.context.trace_id for span in created for link in span.links} == {published}
    assert len(created) == len(lists)
