"""Consume and publish with FastStream: handlers are decorated, bodies are models, a request has an answer."""

import asyncio
import sys

from faststream.exceptions import NackMessage
from pydantic import BaseModel

from rocketd.faststream import RocketBroker, RocketMessage

CLUSTER = sys.argv[1:]  # name servers; none given: those of NAMESRV_ADDR
broker = RocketBroker(CLUSTER, group="example_faststream", create_topics=True, logger=None)
billed = asyncio.Event()


class Order(BaseModel):
    """What is ordered."""

    fruit: str
    cents: int


@broker.subscriber("ExampleFruitOrders")
@broker.publisher("ExampleFruitBills", tags="fruit")
async def bill(order: Order, message: RocketMessage) -> str:
    """Write a bill at the second try, since the printer has to warm up."""
    if message.reconsume_times == 0:
        raise NackMessage(delay=1)
    return f"{order.cents / 100:.2f} for {order.fruit}"


@broker.subscriber("ExampleFruitBills", group="example_faststream_post", tags="fruit")
async def post(text: str, message: RocketMessage) -> None:
    """Show a bill, with the header that came along from the order."""
    print(text, message.correlation_id)
    billed.set()


@broker.subscriber("ExampleFruitPrices")
async def price(fruit: str) -> int:
    """Answer a request."""
    return len(fruit) * 10


async def main() -> None:
    """Order a fruit for what it costs."""
    async with broker:
        await broker.start()
        reply = await broker.request("pear", "ExampleFruitPrices", timeout=20)
        cents = await reply.decode()
        assert isinstance(cents, int)
        order = Order(fruit="pear", cents=cents)
        await broker.publish(order, "ExampleFruitOrders", correlation_id="order-17")
        await billed.wait()


asyncio.run(main())
