"""A program for type checkers: the names of FastStream's broker, of the tests' cluster, and of the client's extras.

Type checkers accept all of it. Nothing runs it.
"""

from logging import LogRecord
from typing import assert_type

from prometheus_client import CollectorRegistry

from rocketd.client import Message, MessageQueue, ReceivedMessage
from rocketd.client.aio import Admin, Consumer, LitePullConsumer, Producer
from rocketd.client.logging_handler import RocketMQHandler
from rocketd.client.metrics import ClientMetrics
from rocketd.client.once import MemoryStore, once
from rocketd.client.opentelemetry import Telemetry
from rocketd.client.sync import Producer as SyncProducer
from rocketd.faststream import (
    RocketBatchMessage,
    RocketBroker,
    RocketMessage,
    RocketPublishCommand,
    RocketPublisher,
    RocketPublishMessage,
    RocketResponse,
    RocketRoute,
    RocketRouter,
    TestRocketBroker,
)
from rocketd.testing import AccountConfig, Cluster, ClusterBroker, Drop

telemetry = Telemetry()
broker = RocketBroker(group="g")
router = RocketRouter(prefix="north_")


def test_with_the_cluster(rocketd_cluster: Cluster) -> None:
    with SyncProducer("p", **rocketd_cluster.client_options()) as producer:
        producer.send(Message("T", b"one"))
        with rocketd_cluster.drop("send", times=1) as drop:
            assert_type(drop, Drop)
    rocketd_cluster.settle()


def servers() -> None:
    accounts = [AccountConfig("shopkeeper", "shopSecret", topic_perms=["Orders=PUB"])]
    with Cluster(accounts=accounts) as cluster:
        assert_type(list(cluster.brokers.values()), list[ClusterBroker])


@telemetry.handler
async def pay(message: ReceivedMessage) -> None:
    with telemetry.processing(message, group="g") as span:
        span.set_attribute("paid", value=True)


@once(MemoryStore())
def pay_once(message: ReceivedMessage) -> None:
    assert_type(message.body, bytes)


def level(record: LogRecord) -> str:
    return record.levelname


@broker.subscriber("orders")
async def take(text: str, message: RocketMessage) -> str:
    assert_type(message.raw_message, ReceivedMessage[bytes])
    return text


@broker.subscriber("lists", batch=True)
async def take_all(texts: list[str], message: RocketBatchMessage) -> RocketResponse:
    return RocketResponse(len(texts), keys=message.message_id)


async def routed(text: str) -> str:
    return text


routes = RocketRouter(handlers=[RocketRoute(routed, "routed", publishers=[RocketPublisher("out")])])


def topic_of(command: RocketPublishCommand) -> str:
    return command.destination


@router.subscriber("orders")
@router.publisher("bills")
async def bill(text: str) -> str:
    return text.upper()


async def faststream() -> None:
    broker.include_router(router)
    async with TestRocketBroker(broker):
        await broker.publish("one", "orders")
        await broker.publish_batch("one", RocketPublishMessage("two", tags="last"), topic="lists")
        assert_type(await broker.request("one", "orders"), RocketMessage)
        assert_type(await broker.ping(1.0), bool)


async def clients() -> None:
    handler = RocketMQHandler("Logs", "logs", tags=level)
    handler.flush()
    async with Producer("p", send_hooks=[telemetry.send_hook]) as producer, Admin() as admin:
        ClientMetrics(producer, registry=CollectorRegistry(), lag=True)
        telemetry.observe(producer)
        async for letter in admin.dead_letters("g"):
            assert_type(letter.message, ReceivedMessage[bytes])
        assert_type((await admin.redrive("g")).sent, int)
    async with Consumer("g", topics="T", handler=pay) as consumer, LitePullConsumer("l", topics=["T"]) as polled:
        assert_type(await consumer.lag(), dict[MessageQueue, int])
        async for message in polled:
            assert_type(message.body, bytes)
