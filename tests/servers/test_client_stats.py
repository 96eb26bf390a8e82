"""Numbers of clients, with a broker in memory."""

import asyncio
import json
import re

import pytest
from prometheus_client import CollectorRegistry

from rocketd.client import ConsumerStats, Message, MessageQueue, ProducerStats, aio, sync
from rocketd.client.errors import IllegalMessageError, NotStartedError, RocketMQError, UsageError
from rocketd.client.metrics import ClientMetrics
from rocketd.testing import Cluster
from tests.support.client_guide import guide_text
from tests.support.places import ROOT
from tests.support.store_wire import await_condition

SECONDS = 60
METRICS = {
    "rocketd_producer_sent_messages_total",
    "rocketd_producer_failed_messages_total",
    "rocketd_producer_retries_total",
    "rocketd_producer_in_flight",
    "rocketd_consumer_handled_messages_total",
    "rocketd_consumer_failed_messages_total",
    "rocketd_consumer_handler_seconds_total",
    "rocketd_consumer_in_flight_messages",
    "rocketd_consumer_queues",
}
LAG = "rocketd_consumer_lag_messages"
BOARD = ROOT / "etc" / "grafana" / "rocketd-clients.json"


@pytest.fixture(scope="module")
def cluster():
    with Cluster(topics=["T", "Handled", "Polled", "Behind"]) as cluster:
        yield cluster


def eventually(cluster, condition):
    for _ in range(100):
        if condition():
            return
        cluster.advance(seconds=1)
    raise AssertionError(condition)


def test_producer_stats_count_messages_of_all_ways_to_send(cluster):
    with sync.Producer("P", **cluster.client_options()) as producer:
        assert producer.stats() == ProducerStats(sent=0, failed=0, retries=0, in_flight=0)
        producer.send(Message("T", b"1"))
        producer.send_batch([Message("T", b"2"), Message("T", b"3")])
        producer.send_oneway(Message("T", b"4"))
        assert producer.stats() == ProducerStats(sent=4, failed=0, retries=0, in_flight=0)
        with cluster.drop("send", times=1, what="connection"):
            producer.send(Message("T", b"5"))
        assert producer.stats() == ProducerStats(sent=5, failed=0, retries=1, in_flight=0)


def test_asyncio_producer_stats_count_sends_and_failures(cluster):
    async def main():
        async with aio.Producer("P2", retries=0, **cluster.client_options()) as producer:
            await asyncio.gather(*(producer.send(Message("T", b"x")) for _ in range(5)))
            with pytest.raises(RocketMQError):
                await producer.send(Message("T", b"x"), queue=MessageQueue("T", "broker-a", 99))
            return producer.stats()

    assert asyncio.run(main()) == ProducerStats(sent=5, failed=1, retries=0, in_flight=0)


def test_consumer_stats_count_handled_and_failed_messages(cluster):
    def handle(message):
        if message.body == b"bad" and not message.reconsume_times:
            raise ValueError("bad")

    options = dict(topics="Handled", begin="earliest", handler=handle, **cluster.client_options())
    with sync.Producer("P3", **cluster.client_options()) as producer, sync.Consumer("C", **options) as consumer:
        producer.send_batch([Message("Handled", b"good"), Message("Handled", b"bad"), Message("Handled", b"good")])
        eventually(cluster, lambda: consumer.stats().handled == 3)
        stats = consumer.stats()
        assert stats == ConsumerStats(3, 1, stats.handler_seconds, 0, len(consumer.queues()))


def test_polling_consumer_stats_count_returned_messages(cluster):
    with sync.Producer("P4", **cluster.client_options()) as producer:
        producer.send_batch([Message("Polled", b"x")] * 3)
    options = dict(topics="Polled", begin="earliest", pull_batch=2, **cluster.client_options())
    with sync.LitePullConsumer("L", **options) as consumer:
        assert len(consumer.poll(SECONDS)) == 2
        assert (consumer.stats().handled, consumer.stats().queues) == (2, len(consumer.queues()))


def test_stats_of_client_that_is_not_open_raise():
    with pytest.raises(NotStartedError):
        sync.Producer("P", "127.0.0.1:1").stats()


def test_metrics_have_the_sums_of_open_clients_by_group(cluster):
    registry = CollectorRegistry()
    options = cluster.client_options()
    first, second, closed = (sync.Producer("Summed", **options) for _ in range(3))
    consumer = sync.Consumer("Measured", topics="T", handler=print, **options)
    metrics = ClientMetrics(first, consumer, registry=registry)
    metrics.add(second, closed)

    def value(name, group):
        return registry.get_sample_value(name, {"group": group})

    with first, second, consumer:
        for producer in (first, second):
            producer.send(Message("T", b"x"))
        assert value("rocketd_producer_sent_messages_total", "Summed") == 2
        assert value("rocketd_consumer_queues", "Measured") == len(consumer.queues())
        assert value("rocketd_consumer_handled_messages_total", "Summed") is None
        assert {sample.name for family in registry.collect() for sample in family.samples} == METRICS
        second.close()
        assert value("rocketd_producer_sent_messages_total", "Summed") == 2
        first.send(Message("T", b"x"))
    with sync.Producer("Summed", **options) as third:
        metrics.add(third)
        third.send(Message("T", b"x"))
        assert value("rocketd_producer_sent_messages_total", "Summed") == 4
        assert value("rocketd_producer_in_flight", "Summed") == 0
    assert value("rocketd_producer_sent_messages_total", "Summed") == 4
    assert value("rocketd_producer_in_flight", "Summed") is None
    assert value("rocketd_consumer_queues", "Measured") is None


def test_messages_refused_before_the_send_are_not_counted(cluster):
    with sync.Producer("P6", max_message_size=10, **cluster.client_options()) as producer:
        for message in (Message("T", b""), Message("T", b"x" * 11)):
            with pytest.raises(IllegalMessageError):
                producer.send(message)
        assert producer.stats() == ProducerStats(0, 0, 0, 0)


def test_metrics_have_the_lag_by_topic_if_wanted(cluster):
    registry = CollectorRegistry()
    options = cluster.client_options()
    consumer = sync.LitePullConsumer("Behind", topics="Behind", begin="earliest", **options)
    metrics = ClientMetrics(consumer, registry=registry, lag=True)
    assert LAG in {metric.name for metric in metrics.describe()}

    def lag():
        return registry.get_sample_value(LAG, {"group": "Behind", "topic": "Behind"})

    with sync.Producer("P5", **options) as producer, consumer:
        assert lag() is None
        producer.send_batch([Message("Behind", b"x")] * 3)
        await_condition("the lag of a scrape", lambda: lag() == 3)
    assert lag() is None


def test_second_metrics_of_a_registry_are_refused():
    registry = CollectorRegistry()
    ClientMetrics(registry=registry)
    with pytest.raises(UsageError, match=r"has the numbers of clients already: .* with add\(\)"):
        ClientMetrics(registry=registry)


def test_metrics_are_those_of_the_guide():
    listed = re.findall(r"`(rocketd_(?:producer|consumer)_\w+)`", guide_text())
    assert set(listed) == METRICS | {LAG}


def test_board_shows_exactly_the_metrics():
    expressions = [target["expr"] for panel in json.loads(BOARD.read_text())["panels"] for target in panel["targets"]]
    assert {name for text in expressions for name in re.findall(r"rocketd_\w+", text)} == METRICS | {LAG}
    variables = json.loads(BOARD.read_text())["templating"]["list"]
    assert set(re.findall(r"rocketd_\w+", str(variables))) < METRICS
