"""Send and consume objects: a codec makes bodies of them and checks what comes in."""

import asyncio
import sys
from dataclasses import dataclass

from rocketd.client import JsonCodec, Message
from rocketd.client.aio import Consumer, Producer

CLUSTER = sys.argv[1:]  # name servers; none given: those of NAMESRV_ADDR


@dataclass
class Payment:
    """What is sent."""

    customer: str
    cents: int


CODEC = JsonCodec(Payment)


async def main() -> None:
    """Send a payment."""
    async with Producer[Payment]("example_json_producer", CLUSTER, codec=CODEC) as producer:
        await producer.send(Message("ExampleJson", Payment("ann", 1250)))
    consumer = Consumer[Payment]("example_json", CLUSTER, topics="ExampleJson", begin="earliest", codec=CODEC)
    async with consumer:
        message = await anext(consumer)
        print(message.body.customer, "pays", message.body.cents / 100)


asyncio.run(main())
